//! The processes of the live system: each drives one state machine of `weir-core` over `weir-net`.
//!
//! - [`coordinator`]: gRPC in, plans out; one task owns the state machine.
//! - [`agent`]: one thread owns the state machine and all data connections; an async side talks to the
//!   coordinator and to the tasks of the host.
//! - [`relay`]: one thread owns the state machine and all connections; an async side talks to the controller.
//!
//! Decisions live elsewhere (`weir-core`, `weir-policy`); this crate holds sockets, tasks and files.
#![forbid(unsafe_code)]

pub mod agent;
pub mod coordinator;
pub mod relay;

mod session;
mod watching;
