//! Orders by one number of what is left of a coflow: its largest flow (SCF), its flows (NCF), its bytes (TCF).
//!
//! # Problem
//! As [`super::whole`]. A coflow that has moved most of its bytes is short now, whatever it was.
//!
//! # Approach
//! The same numbers, of what is left. SEBF of what is left is [`super::Sebf`].
//!
//! # Properties
//! * The smaller number goes first; ties break by (arrival, id).
//! * The flows of a coflow are looked at again only once the largest of them may not be it any more: as a
//!   share of what its coflow's drain leaves, no flow grows.

use super::{Keyed, Order};
use crate::{Coflow, CoflowTable, FlowRef, Slot};
use weir_model::{Fabric, LinkId, LinkKind};

/// Shortest coflow first: by the largest flow left.
#[derive(Default)]
pub struct Shortest {
    /// Per slot, the largest flow at the last plan.
    largest: Vec<Largest>,
    keyed: Keyed,
}

/// The largest flow of a coflow as last computed.
#[derive(Clone, Copy)]
struct Largest {
    coflow: u64,
    raises: u64,
    flow: u32,
    /// What is left of it and of the second largest, over the coflow's scale.
    left: f64,
    second: f64,
}

const UNKNOWN: Largest = Largest { coflow: u64::MAX, raises: u64::MAX, flow: 0, left: 0.0, second: 0.0 };

impl Largest {
    fn of(view: &CoflowTable, slot: Slot, coflow: &Coflow) -> Largest {
        let mut largest = Largest { coflow: coflow.id().0, raises: coflow.raises(), ..UNKNOWN };
        // Over the scale, what is left of a flow stays the same while all flows drain in proportion, so that it can be compared later.
        let inverse = 1.0 / coflow.scale();
        for (flow, _) in
            (0u32..).zip(coflow.flows()).filter(|(_, flow)| flow.live() && flow.class().is_some())
        {
            let left = view.remaining(FlowRef { coflow: slot, flow }) * inverse;
            if left > largest.left {
                largest = Largest { flow, left, second: largest.left, ..largest };
            } else if left > largest.second {
                largest.second = left;
            }
        }
        largest
    }

    /// Takes over what is left of the flow. While that is above what the second was, it is still the largest.
    fn holds(&mut self, view: &CoflowTable, slot: Slot, coflow: &Coflow) -> bool {
        if (self.coflow, self.raises) != (coflow.id().0, coflow.raises()) {
            return false;
        }
        self.left = view.remaining(FlowRef { coflow: slot, flow: self.flow }) / coflow.scale();
        self.left >= self.second
    }
}

impl Order for Shortest {
    fn sort(&mut self, view: &CoflowTable, sorted: &mut Vec<Slot>) {
        let Shortest { largest, keyed } = self;
        largest.resize(view.slot_bound(), UNKNOWN);
        keyed.sort(view, sorted, |slot, coflow| {
            let largest = &mut largest[slot.0 as usize];
            if !largest.holds(view, slot, coflow) {
                *largest = Largest::of(view, slot, coflow);
            }
            largest.left * coflow.scale()
        });
    }
}

/// Narrowest coflow first: by the number of flows left. Those that cross no link end at once.
#[derive(Default)]
pub struct Narrowest {
    keyed: Keyed,
}

impl Order for Narrowest {
    fn sort(&mut self, view: &CoflowTable, sorted: &mut Vec<Slot>) {
        self.keyed.sort(view, sorted, |_, coflow| coflow.live_flows() as f64);
    }
}

/// Smallest total first: by the bytes left.
#[derive(Default)]
pub struct Smallest {
    /// Whether a link is the uplink of a host.
    uplink: Vec<bool>,
    /// Whether every flow that crosses a link crosses one uplink, so that their sums are the coflow's.
    by_uplinks: bool,
    keyed: Keyed,
}

impl Order for Smallest {
    fn set_fabric(&mut self, fabric: &Fabric) {
        let is_uplink = |kind| matches!(kind, LinkKind::Uplink(_));
        self.uplink = fabric.links().iter().map(|link| is_uplink(link.kind)).collect();
        // Each host has one uplink, and every path with links begins at one: sums by uplink count each flow exactly once.
        self.by_uplinks = self.uplink.iter().filter(|&&uplink| uplink).count() == fabric.hosts() as usize;
    }

    fn sort(&mut self, view: &CoflowTable, sorted: &mut Vec<Slot>) {
        let Smallest { uplink, by_uplinks, keyed } = self;
        keyed.sort(view, sorted, |slot, coflow| {
            if *by_uplinks {
                let sums = coflow.links().iter().filter(|link| uplink[link.index()]);
                return sums.map(|&link: &LinkId| view.demand(slot, link)).sum();
            }
            let live = (0u32..).zip(coflow.flows()).filter(|(_, flow)| flow.live() && flow.class().is_some());
            live.map(|(flow, _)| view.remaining(FlowRef { coflow: slot, flow })).sum()
        });
    }
}
