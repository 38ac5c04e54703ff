//! Relays against what they promise.

mod bounds;
mod flight;
mod network;
mod queue;
mod rules;
