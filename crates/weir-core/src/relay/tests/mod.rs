//! Relays against what they promise.

mod bounds;
mod network;
mod queue;
mod rules;
