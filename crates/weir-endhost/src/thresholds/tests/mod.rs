//! Figures of the model, what the search promises, and both against ways to the same that share no code with them.

mod forecasts;
mod search;
mod shared;

use super::*;
use weir_trace::{FlowSizes, Mix};

/// Payload of a packet in bytes.
const PACKET: f64 = 1460.0;

fn traffic(sizes: FlowSizes, load: f64, deadline: f64, known: f64, urgent: Urgent) -> Traffic {
    Traffic::new(sizes, load, &Mix { deadline_bytes: deadline, known, ..Mix::UNKNOWN }, urgent).unwrap()
}

fn unknown(sizes: &str, load: f64) -> Traffic {
    traffic(FlowSizes::named(sizes).unwrap(), load, 0.0, 0.0, Urgent::Paced)
}
