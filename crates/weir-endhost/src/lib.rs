//! What an end host decides about the packets of its flows, by itself: how fast a flow with a deadline goes ([`mcp`]),
//! in which class its packets travel ([`tagging`]), and how small a flow has to be to overtake others ([`thresholds`]).
//!
//! The laws take facts and give numbers. They send nothing, read no clock and know neither packets nor sockets, so that
//! one copy of them serves the packet simulator and real hosts.
#![forbid(unsafe_code)]

pub mod mcp;
pub mod tagging;
pub mod thresholds;
