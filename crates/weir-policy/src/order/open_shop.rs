//! The order of the 2-approximation for concurrent open shop (Mastrolilli, Queyranne, Schulz, Svensson, Uhan,
//! Minimizing the sum of weighted completion times in a concurrent open shop, Operations Research Letters 2010).
//!
//! # Problem
//! If only one side of the fabric limits, coflows are jobs of a concurrent open shop: links are machines, and a
//! job is complete when its part on every machine is. Some order of jobs is optimal; finding it is NP-hard.
//!
//! # Approach
//! Build the order from its end. The busiest link decides when the last coflow ends; the one that goes last is
//! the one whose weight there buys the most time. What its weight has paid for is taken from the others.
//!
//! # Terminology
//! * load of a link: seconds it needs for all coflows not placed yet.
//! * price of a coflow: the weight it has left over the seconds it needs on the busiest link.
//!
//! # Pseudo-code
//! ```text
//! for place from last to first:
//!     link = the one with the largest load
//!     last = the coflow with the smallest price there; it takes the place
//!     for other coflows: weight -= price of last * seconds on link
//!     loads -= what last needs
//! ```
//!
//! # Properties
//! * Where only one side of a switch limits and all coflows are there from the beginning, the sum of weighted
//!   completion times is at most twice the least possible.
//! * Ties break by (arrival, id): the later goes last. Loads and prices that differ by rounding are equal; of
//!   equally busy links the first counts.
//! * Cost: coflows * (coflows + links) per plan.
//!
//! # Departures
//! The algorithm is offline. Here the order is made anew at every plan, of what is left of the coflows that are
//! live, and both sides of the fabric count as machines: the bound of 2 does not carry over.

use super::Order;
use crate::{CoflowTable, Slot};
use weir_model::Fabric;

/// Numbers that differ by less than this share are equal.
const ROUNDING: f64 = 1e-9;

/// The order, and its memory.
#[derive(Default)]
pub struct OpenShop {
    inverse_capacity: Vec<f64>,
    /// Per link, the seconds that all coflows not placed yet need.
    loads: Vec<f64>,
    /// Coflows not placed yet, by (arrival, id), and the weight each has left.
    open: Vec<(Slot, f64)>,
}

impl OpenShop {
    fn begin(&mut self, view: &CoflowTable) {
        self.open.clear();
        self.open.extend(view.coflows().map(|(slot, coflow)| (slot, coflow.weight())));
        self.loads.clear();
        self.loads.resize(self.inverse_capacity.len(), 0.0);
        for &slot in view.slots() {
            self.add_load(view, slot, 1.0);
        }
    }

    fn add_load(&mut self, view: &CoflowTable, slot: Slot, sign: f64) {
        for &link in view.coflow(slot).links() {
            let secs = view.demand(slot, link) * self.inverse_capacity[link.index()];
            self.loads[link.index()] += sign * secs;
        }
    }

    /// The first of the busiest links.
    fn busiest(&self) -> usize {
        let most = self.loads.iter().copied().fold(0.0, f64::max);
        // Loads are sums and differences of doubles: without the tolerance their rounding would choose between equally busy links.
        self.loads.iter().position(|&load| load >= most * (1.0 - ROUNDING)).unwrap_or(0)
    }

    /// Takes out the coflow that goes last.
    fn take_last(&mut self, view: &CoflowTable) -> Option<Slot> {
        let link = weir_model::LinkId(self.busiest() as u32);
        let secs = |slot: Slot| {
            let crosses = view.coflow(slot).link_set().contains(link.index());
            if crosses { view.demand(slot, link) * self.inverse_capacity[link.index()] } else { 0.0 }
        };
        let mut last: Option<(usize, f64)> = None;
        for (at, &(slot, weight)) in self.open.iter().enumerate() {
            let price = weight / secs(slot);
            // Infinite prices are coflows that do not cross the link: to put one of them last would free the link of nothing. `<=`: the later.
            if price.is_finite() && last.is_none_or(|(_, least)| price <= least * (1.0 + ROUNDING)) {
                last = Some((at, price));
            }
        }
        // Nothing is left to carry: the latest goes last.
        let (at, price) = last.or_else(|| Some((self.open.len().checked_sub(1)?, 0.0)))?;
        let paid: Vec<f64> = self.open.iter().map(|&(slot, _)| price * secs(slot)).collect();
        for ((_, weight), paid) in self.open.iter_mut().zip(paid) {
            // Not below 0, since the price paid is the least; rounding must not make a weight negative, and its price the least of all.
            *weight = (*weight - paid).max(0.0);
        }
        let (slot, _) = self.open.remove(at);
        self.add_load(view, slot, -1.0);
        Some(slot)
    }
}

impl Order for OpenShop {
    fn set_fabric(&mut self, fabric: &Fabric) {
        let inverse = fabric.links().iter().map(|link| 1.0 / link.capacity.bytes_per_sec());
        self.inverse_capacity = inverse.collect();
    }

    fn sort(&mut self, view: &CoflowTable, sorted: &mut Vec<Slot>) {
        sorted.clear();
        self.begin(view);
        while let Some(slot) = self.take_last(view) {
            sorted.push(slot);
        }
        sorted.reverse();
    }
}
