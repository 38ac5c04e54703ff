//! Relays against what they promise.

mod network;
mod queue;
mod rules;
