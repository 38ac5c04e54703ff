//! A network packet by packet: hosts, queues, switches, and the transports that decide at end hosts.
//!
//! A [`Simulation`] moves flows ([`weir_trace::FlowArrival`]) through a [`Topology`] of hosts and output-queued switches, as a
//! [`transport`] says: how a flow is controlled and tagged at its sender, and what switches do with its packets. Time is
//! whole picoseconds ([`Picos`]), equal times are in order of insertion, and nothing is drawn while a run goes on: the
//! same input gives the same run, byte by byte.
//!
//! The crate has no byte streams, no connection set-up and no checksums; a flow is a number of segments of
//! [`SEGMENT_BYTES`]. It knows single flows: coflows are `weir-sim`'s.
#![forbid(unsafe_code)]

pub mod capture;
mod control;
mod event;
mod flow;
mod observer;
mod packet;
mod port;
mod receiver;
mod record;
mod recorder;
mod repair;
mod requests;
pub mod scenario;
mod segments;
mod sender;
mod setup;
mod simulation;
mod spans;
mod summary;
mod tagging;
mod time;
pub mod topology;
pub mod transport;
mod watch;

pub use control::{Acked, Allowance, Ask, Control, Decided, Loss, ToldRate, WindowEnded};
pub use observer::{FlowSeen, Observer, PacketSeen};
pub use packet::{HEADER_BYTES, SEGMENT_BYTES};
pub use port::{PortCounts, PortSpec};
pub use receiver::Acknowledging;
pub use record::{FlowRecord, RunCounts, Unfinished};
pub use recorder::Recorder;
pub use scenario::{Scenario, ScenarioError};
pub use setup::{Buffer, Discipline, Giving, Marking};
pub use simulation::Simulation;
pub use spans::ideal;
pub use summary::{Completion, Deadlines, Gathered, LARGE, Open, SIZE_CLASSES, Summary, Used};
pub use tagging::{Tagging, ToldClass};
pub use time::Picos;
pub use topology::Topology;
