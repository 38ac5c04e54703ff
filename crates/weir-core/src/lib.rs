//! The live system as state machines without I/O.
//!
//! [`coordinator::Coordinator`] turns what agents report into plans; [`agent::Agent`] turns plans into
//! bytes that are due; [`serving::Conversation`] turns requests into what is written to one connection;
//! [`receiver::Receiver`] gets a block from a holder; [`relay::Relay`] sends flows on between sites. All follow one
//! convention: `handle_*` takes an event in, `poll_*` gives an action
//! out, `next_timeout` says when to call again if nothing happens, and `now` is always an argument. After
//! any `handle_*` or an elapsed timeout, call the `poll_*` methods until they return `None`. The coordinator's
//! are [`poll_plan`](coordinator::Coordinator::poll_plan), which says whether it made a plan, and then
//! [`poll_output`](coordinator::Coordinator::poll_output) for all that is to be done; the agent's are
//! [`poll_transmit`](agent::Agent::poll_transmit) for what may be written, and [`poll_output`](agent::Agent::poll_output);
//! the relay's are [`poll_output`](relay::Relay::poll_output) and, of what a connection can take,
//! [`poll_message`](relay::Relay::poll_message) and [`poll_delivery`](relay::Relay::poll_delivery). Before a message,
//! [`wants_look`](relay::Relay::wants_look) says whether the relay is to hear first what is under way.
//!
//! This crate opens no socket, reads no clock and spawns nothing; crates `weir-daemon` and `weir-client` drive it.
#![forbid(unsafe_code)]
// What peers say goes into sums: none of them overflows.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

pub mod agent;
pub mod coordinator;
mod id_set;
pub mod ids;
mod marks;
pub mod planted;
mod portions;
pub mod receiver;
pub mod relay;
pub mod serving;

/// How many sequences of arbitrary messages tests draw.
#[cfg(test)]
fn noise_cases() -> u32 {
    std::env::var("WEIR_NOISE_CASES").map_or(300, |cases| cases.parse().unwrap())
}
