//! Orders by one number of a coflow as it was registered, of those that SEBF is compared with (Varys, SIGCOMM
//! 2014, section 5.3.2).
//!
//! # Problem
//! Shortest first is best on one link. A coflow has several numbers that could stand for "short".
//!
//! # Approach
//! Sort by one of them: the largest flow (SCF), the number of flows (NCF), the sum of all flows (TCF), or the
//! effective bottleneck (SEBF).
//!
//! # Properties
//! * The smaller number goes first; ties break by (arrival, id).
//! * It never changes while a coflow lives, unless flows join it.
//! * Flows that cross no link do not count.
//!
//! # Departures
//! The paper does not say whether its numbers shrink as coflows move; its worked example (figure 5) holds
//! either way. [`super::left`] has those that do.

use super::{Keyed, Order};
use crate::{Coflow, CoflowTable, Slot};
use weir_model::Fabric;

/// What stands for the length of a coflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// Bytes of its largest flow.
    Length,
    /// Number of its flows.
    Width,
    /// Bytes of all its flows.
    Size,
    /// Seconds that its busiest link needs.
    Bottleneck,
}

/// An order by a key of whole coflows.
pub struct ByWhole {
    key: Key,
    inverse_capacity: Vec<f64>,
    /// Per slot, the key as last computed.
    known: Vec<Known>,
    keyed: Keyed,
}

#[derive(Clone, Copy)]
struct Known {
    coflow: u64,
    stay: u64,
    flows: usize,
    key: f64,
}

const UNKNOWN: Known = Known { coflow: u64::MAX, stay: u64::MAX, flows: usize::MAX, key: 0.0 };

impl ByWhole {
    /// The order by `key`.
    pub fn new(key: Key) -> ByWhole {
        ByWhole { key, inverse_capacity: Vec::new(), known: Vec::new(), keyed: Keyed::default() }
    }
}

fn key_of(key: Key, view: &CoflowTable, coflow: &Coflow, inverse_capacity: &[f64]) -> f64 {
    let flows = coflow.flows().iter().filter_map(|flow| Some((flow.size().0, flow.class()?)));
    match key {
        Key::Length => flows.map(|(size, _)| size).max().unwrap_or(0) as f64,
        Key::Width => flows.count() as f64,
        // In 128 bits: the sum of sizes, each of which fits into 64, may not.
        Key::Size => flows.map(|(size, _)| u128::from(size)).sum::<u128>() as f64,
        Key::Bottleneck => {
            let mut times = vec![0.0; inverse_capacity.len()];
            for (size, class) in flows {
                for link in view.classes()[class.index()].path().iter() {
                    times[link.index()] += size as f64 * inverse_capacity[link.index()];
                }
            }
            times.into_iter().fold(0.0, f64::max)
        }
    }
}

impl Order for ByWhole {
    fn set_fabric(&mut self, fabric: &Fabric) {
        let inverse = fabric.links().iter().map(|link| 1.0 / link.capacity.bytes_per_sec());
        self.inverse_capacity = inverse.collect();
        self.known.clear();
    }

    fn sort(&mut self, view: &CoflowTable, sorted: &mut Vec<Slot>) {
        let ByWhole { key, inverse_capacity, known, keyed } = self;
        known.resize(view.slot_bound(), UNKNOWN);
        keyed.sort(view, sorted, |slot, coflow| {
            let known = &mut known[slot.0 as usize];
            let (id, stay, flows) = (coflow.id().0, coflow.stay(), coflow.flows().len());
            if (known.coflow, known.stay, known.flows) != (id, stay, flows) {
                let key = key_of(*key, view, coflow, inverse_capacity);
                *known = Known { coflow: id, stay, flows, key };
            }
            known.key
        });
    }
}
