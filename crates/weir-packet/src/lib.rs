//! A network packet by packet: hosts, queues, switches, and the transports that decide at end hosts.
#![forbid(unsafe_code)]

pub mod thresholds;
