//! A link and the flows that it limits.

use super::{Cell, NEVER};
use crate::view::moving::{end_after, secs_between};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A target in a heap; never negative, so that its bits are in its order.
pub(super) type Target = Reverse<(u64, u32)>;

/// A link of the coflow.
#[derive(Clone, Debug)]
pub(super) struct Limit {
    pub(super) link: u32,
    /// Sum of its levels in all shares.
    pub(super) level: f64,
    /// Amount served at a reading of the clock.
    pub(super) served: f64,
    pub(super) since: u64,
    /// Flows attached to it, and the sum of their weights.
    pub(super) attached: u32,
    pub(super) weight: f64,
    /// Targets and cells of flows attached to it, and of some that were.
    pub(super) targets: BinaryHeap<Target>,
    /// The first end of a flow attached to it, unless that is to be found again.
    pub(super) end: u64,
    pub(super) is_stale: bool,
    /// All cells of flows that cross it, and of some that left, with the link at the other end of their paths.
    pub(super) cells: Vec<(u32, u32)>,
}

impl Limit {
    pub(super) fn new(link: u32, clock: u64) -> Limit {
        Limit {
            link,
            level: 0.0,
            served: 0.0,
            since: clock,
            attached: 0,
            weight: 0.0,
            targets: BinaryHeap::new(),
            end: NEVER,
            is_stale: false,
            cells: Vec::new(),
        }
    }

    pub(super) fn served(&self, clock: u64) -> f64 {
        self.served + self.level * secs_between(self.since, clock)
    }

    pub(super) fn end_of(&self, target: f64) -> u64 {
        if self.level > 0.0 {
            end_after(self.since, (target - self.served).max(0.0) / self.level)
        } else {
            NEVER
        }
    }

    pub(super) fn detach(&mut self, weight: f64) {
        self.attached -= 1;
        self.weight -= weight;
        self.is_stale = true;
        if self.attached == 0 {
            self.weight = 0.0;
            self.targets.clear();
        }
    }
}

/// Whether a target is that of a flow that is still attached to the link.
pub(super) fn is_current(cells: &[Cell], limit: u32, &Reverse((target, place)): &Target) -> bool {
    let cell = &cells[place as usize];
    cell.limit == limit && cell.amount.to_bits() == target
}
