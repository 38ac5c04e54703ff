//! What a link serves under one share, and the flows that it limits there.

use super::NEVER;
use crate::view::line::{end_after, secs_between};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A checkpoint and its cell, in a heap; checkpoints are never negative, so that their bits are in their order.
pub(super) type Entry = Reverse<(u64, u32)>;

/// A link under one share.
#[derive(Clone, Debug)]
pub(super) struct Meter {
    pub(super) level: f64,
    /// Amount served at a reading of the clock.
    served: f64,
    since: u64,
    /// Flows attached to it, and the sum of their weights.
    pub(super) attached: u32,
    pub(super) weight: f64,
    /// Checkpoints of flows attached to it, and some that are out of date.
    pub(super) checks: BinaryHeap<Entry>,
    /// Whether the first of them is to be found again.
    pub(super) is_stale: bool,
}

impl Meter {
    pub(super) fn new(clock: u64) -> Meter {
        Meter {
            level: 0.0,
            served: 0.0,
            since: clock,
            attached: 0,
            weight: 0.0,
            checks: BinaryHeap::new(),
            is_stale: false,
        }
    }

    pub(super) fn served(&self, clock: u64) -> f64 {
        self.served + self.level * secs_between(self.since, clock)
    }

    /// Serves at a level from now on.
    pub(super) fn set_level(&mut self, clock: u64, level: f64) {
        // Without flows attached the count begins at 0 again: large counts would cost precision.
        self.served = if self.attached > 0 { self.served(clock) } else { 0.0 };
        self.since = clock;
        // A link that limits no flow has an infinite level, and no flow is attached to it.
        self.level = if level.is_finite() { level } else { 0.0 };
    }

    /// When so much has been served.
    pub(super) fn end_of(&self, check: f64) -> u64 {
        if self.level > 0.0 {
            end_after(self.since, (check - self.served).max(0.0) / self.level)
        } else {
            NEVER
        }
    }

    pub(super) fn attach(&mut self, clock: u64, weight: f64) {
        if self.attached == 0 {
            (self.served, self.since) = (0.0, clock);
        }
        self.attached += 1;
        self.weight += weight;
    }

    pub(super) fn detach(&mut self, weight: f64) {
        self.attached -= 1;
        self.weight -= weight;
        if self.attached == 0 {
            // Exactly 0, whatever rounding left of the sum; entries of flows that were attached are all out of date.
            self.weight = 0.0;
            self.checks.clear();
        }
    }
}
