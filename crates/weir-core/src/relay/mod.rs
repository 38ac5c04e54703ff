//! A relay between sites: takes flows of hosts of its site and of other relays, and sends them on as rules say, or to
//! their receivers (Siphon, ATC'18, section 4.2; its aggregator).
//!
//! # Problem
//! Links between sites are few, slow and uneven. What crosses them should go coflow by coflow, by the way that is
//! done first, and change its way when a controller says so; and nothing may be lost, whatever fails.
//!
//! # Approach
//! A flow is cut into messages that each say where they belong. Every relay looks up the flow's next hops, divides its
//! messages among them, and keeps one queue per flow and next hop. The last relay puts the messages in order for the
//! receiver. Credits per flow, from each relay to the one before it, bound what a relay holds. What is under way to a
//! neighbour is bounded in time (`flight.rs`), so that a message that goes first does not wait behind megabytes in kernels.
//!
//! # Terminology
//! * upstream: who sends to this relay: a host, one flow at a time, or another relay.
//! * next hop: a relay that this one sends to.
//! * direct way: straight to the relay that the receiver listens at.
//! * under way: written or being written to a neighbour, and not acknowledged by its kernel.
//! * reset: a flow is given up, at all relays that know it. Its receiver asks the sender's agent for the rest,
//!   directly.
//!
//! # Pseudo-code
//! ```text
//! a flow opens:      its next hops by the longest rule, or the direct way; grant its upstream a window
//! a message comes:   to the next hop that has the least of the flow for its weight; to reassembly at the last relay
//! a link can write:  the next message by rank, then by weight, if no more is under way than the link carries in two
//!                    round trips and 20 ms
//! rules change:      what still waits is divided anew
//! a neighbour fails: flows with bytes under way there are reset, others take another way
//! the receiver has all: the source's end goes along all ways, and every relay forgets the flow
//! ```
//!
//! # Properties
//! * A receiver gets every byte once and in order, or hears of a reset.
//! * A flow that its receiver does not take holds a window at each relay, and no other flow.
//! * What of a better rank comes to a link waits for that and one message at most.
//! * A message goes through no more relays than its hop limit.
//! * No flow waits for a controller.
//! * Of every flow a relay hears every [`ALIVE_INTERVAL`]; one it does not hear of for [`SILENCE_LIMIT`] is reset.
//!
//! # Departures
//! The paper's aggregators serve a publish/subscribe interface; here a receiver subscribes at its own relay to the one
//! flow that it asked its sender for. The paper does not say what becomes of messages at an aggregator that fails.

mod contact;
mod control;
mod facts;
mod flight;
mod flow;
mod hop;
mod hops;
mod meter;
mod neighbours;
mod queue;
mod reassembly;
mod state;
mod table;
#[cfg(test)]
mod tests;
mod window;

pub use contact::{Contact, OutOfPlace, Received, Role};
pub use facts::{HopId, Message, Output, RelayConfig, RelayCounters, SubscriberId, UpstreamId, UpstreamKind};
pub use flight::UnderWay;
pub use meter::LinkMeter;
pub use neighbours::Neighbours;
pub use queue::NextHopQueue;
pub use reassembly::{Misplaced, Reassembly};
pub use state::{ALIVE_INTERVAL, Relay, SILENCE_LIMIT, WAIT_LIMIT};
pub use table::{ForwardingTable, Prefix, Rule, To};
pub use window::{WINDOW_BYTES, Window, window_bytes};
