//! Programs that Weir runs in the kernel. One sets the DSCP of the packets of TCP sockets, so that the priorities of switches
//! hold for them. One marks packets at the ports of a switch that is a Linux machine.
//!
//! A [`Tagger`] attaches the first to what leaves one interface. The class of a packet follows from what its process said about
//! the flow ([`weir_model::Hint`]), or from the bytes that were sent so far, by the law of `weir-endhost` ([`weir_endhost::tagging`]).
//! Sockets of other network namespaces, forwarded packets, and all that is not TCP over Ethernet are left as they are.
//!
//! A [`Marker`] attaches the second to a port that has a queue for each class under HTB. It marks packets (ECN) that enter a queue in
//! which many bytes wait.
//!
//! A [`HintedGroup`] gives the sockets of processes a mark that says what they send, and a congestion control.
//!
//! [`Dctcp`] is another: a congestion control that sockets of the machine can have. [`Karuna`] is that and, for flows with a
//! deadline, MCP ([`weir_endhost::mcp`]).
//!
//! They go when what attached them is dropped, and when the process ends, however it ends. They need Linux 6.6, `CAP_BPF` and
//! `CAP_NET_ADMIN` in the machine's own user namespace, the marker and DCTCP also `CAP_PERFMON`, and DCTCP Linux 6.10. No switch is configured: the queues
//! are there before.

mod attach;
mod config;
mod control;
mod error;
mod group;
mod loaded;
mod marker;
mod mcp;
mod program;
mod tagger;

pub use config::{Config, Unhinted};
pub use control::{Dctcp, Karuna};
pub use error::{ConfigError, ControlError, MarkError, TagError};
pub use group::{HintedGroup, available_controls};
pub use loaded::loaded;
pub use marker::{ClassMarks, Marker, Marking, Marks};
pub use mcp::McpConfig;
pub use tagger::{ClassCounters, Counters, Tagger};
pub use weir_endhost::tagging::DEFAULT_DSCP;
