//! Smallest effective bottleneck first (Varys, SIGCOMM 2014, section 5.3.2).
//!
//! # Problem
//! On several links at once no simple order of coflows is optimal; length, width or size alone each miss
//! what decides a completion time: the link on which a coflow has most to do for its capacity.
//!
//! # Approach
//! Sort by Gamma, the time the coflow would still need if the whole network were its own.
//!
//! # Terminology
//! * Gamma: `max over links of (bytes left on the link / capacity of the link)`, equation 1; bytes left are those of open
//!   flows, and those that are known to come ([`Coflow::expected`]).
//! * effective bottleneck: the link that attains it.
//!
//! # Pseudo-code
//! ```text
//! for coflow in live coflows:
//!     if a sum grew, or the last bottleneck's shrank below the second: peak = max over links of sum / capacity
//!     gamma = peak * scale
//! sort by (gamma, arrival, id)
//! ```
//!
//! # Properties
//! * Shorter remaining Gamma goes first; ties break by (arrival, id).
//! * While no sum grows and the bottleneck stays above what the second was, no other link is looked at.
//!
//! # Departures
//! Equation 1 divides by `Rem`, the capacity left besides traffic not under control; it is whatever
//! capacity the fabric passed in has. Capacity used by other coflows is not subtracted for the order
//! (it is in MADD).

use super::{Keyed, Order};
use crate::{Coflow, CoflowTable, Slot};
use weir_model::{Fabric, LinkId};

/// SEBF with the peaks of the last plan.
#[derive(Default)]
pub struct Sebf {
    bottlenecks: Bottlenecks,
    keyed: Keyed,
}

/// Gammas of live coflows, from the peaks of the last plan where they still hold.
#[derive(Default)]
pub(super) struct Bottlenecks {
    inverse_capacity: Vec<f64>,
    /// Per slot, the peak at the last plan.
    peaks: Vec<Peak>,
}

/// The effective bottleneck of a coflow as last computed.
#[derive(Clone, Copy)]
struct Peak {
    coflow: u64,
    raises: u64,
    link: LinkId,
    /// Largest and second largest `sum / capacity`: Gammas without the coflow's scale.
    time: f64,
    second: f64,
}

const UNKNOWN: Peak = Peak { coflow: u64::MAX, raises: u64::MAX, link: LinkId(0), time: 0.0, second: 0.0 };

impl Peak {
    fn of(view: &CoflowTable, coflow: &Coflow, inverse_capacity: &[f64]) -> Peak {
        let mut peak = Peak { coflow: coflow.id().0, raises: coflow.raises(), ..UNKNOWN };
        for &link in coflow.links() {
            // Equation 1 of Varys, in units of the coflow's scale: all links of a coflow shrink by one factor, which changes no maximum.
            let time = view.demand_base(coflow, link) * inverse_capacity[link.index()];
            if time > peak.time {
                peak = Peak { link, time, second: peak.time, ..peak };
            } else if time > peak.second {
                peak.second = time;
            }
        }
        peak
    }

    /// Takes over what is left on the bottleneck. Sums only shrink unless noted: while it stays above what
    /// the second was, it is still the bottleneck.
    fn holds(&mut self, view: &CoflowTable, coflow: &Coflow, inverse_capacity: &[f64]) -> bool {
        if (self.coflow, self.raises) != (coflow.id().0, coflow.raises()) {
            return false;
        }
        self.time = view.demand_base(coflow, self.link) * inverse_capacity[self.link.index()];
        self.time >= self.second
    }
}

impl Bottlenecks {
    /// Says what the links are, before the first Gamma and whenever capacities are not what they were.
    pub(super) fn set_fabric(&mut self, fabric: &Fabric) {
        let inverse = fabric.links().iter().map(|link| 1.0 / link.capacity.bytes_per_sec());
        self.inverse_capacity = inverse.collect();
        self.peaks.clear();
    }

    /// Makes room for all coflows of a table, before their Gammas are asked for.
    pub(super) fn make_room(&mut self, view: &CoflowTable) {
        self.peaks.resize(view.slot_bound(), UNKNOWN);
    }

    /// Seconds that the coflow would still need alone.
    pub(super) fn gamma(&mut self, view: &CoflowTable, slot: Slot, coflow: &Coflow) -> f64 {
        let peak = &mut self.peaks[slot.0 as usize];
        if !peak.holds(view, coflow, &self.inverse_capacity) {
            *peak = Peak::of(view, coflow, &self.inverse_capacity);
        }
        let open = peak.time * coflow.scale();
        let inverse = |link: LinkId| self.inverse_capacity[link.index()];
        // Bytes that are to come grow and shrink without the table noting a raise, so they are not part of the peak that is kept.
        let expected = coflow.expected().iter();
        expected.map(|&(link, bytes)| (view.demand(slot, link) + bytes) * inverse(link)).fold(open, f64::max)
    }
}

impl Order for Sebf {
    fn set_fabric(&mut self, fabric: &Fabric) {
        self.bottlenecks.set_fabric(fabric);
    }

    fn sort(&mut self, view: &CoflowTable, sorted: &mut Vec<Slot>) {
        let Sebf { bottlenecks, keyed } = self;
        bottlenecks.make_room(view);
        keyed.sort(view, sorted, |slot, coflow| bottlenecks.gamma(view, slot, coflow));
    }
}
