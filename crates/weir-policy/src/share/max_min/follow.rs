//! Filling in the order of the last plan, where no path has more than two links.
//!
//! # Problem
//! Looking for the least share among links, and keeping count of the flows not limited yet on every
//! link, is most of the work of a filling, though the order of the links hardly changes.
//!
//! # Approach
//! Take the links in the last order, mended where levels do not rise. How many flows each link limits is
//! known from the last plan and changes only where two links change places. What is left of a link when
//! its turn comes is one sum over the links taken before, and nothing else needs to be kept.
//!
//! # Pseudo-code
//! ```text
//! for link of the last order, from the first whose flows changed on:
//!     left = capacity - sum over links taken before of (their level * flows that cross both)
//!     while the link before it has a level above left / flows it limits:
//!         give that one back; classes they share are limited by link from now on
//!     level = left / flows it limits
//!     links given back come next
//! links that limit no flow come last, and must have capacity for what was taken
//! ```
//!
//! # Properties
//! * Rising levels make the result right: see the [filling](super).
//! * Cost: one visit per (link that limits flows, class crossing it) from the first change on, and as
//!   much per link given back.
//! * Gives up, for a filling without a guess, when more is given back than a few times all links, or a
//!   link has too little for what was taken and no other link gives any back.

use super::{Crossing, DENSE_SPREAD, MaxMin, ROUNDING};
use crate::{ClassId, Plan};

/// Times all links that may be given back before the order counts as lost.
const MOST_ROUNDS: usize = 2;
/// Sums kept side by side: one would wait for itself at every step.
const LANES: usize = 8;

impl Crossing {
    /// What the flows that also cross other links take, given the levels of those that limit them.
    fn taken(&self, levels: &[f64]) -> f64 {
        if self.row.len() > DENSE_SPREAD * self.short.len() {
            let of_entry = |entry: &super::Entry| f64::from(entry.live) * levels[entry.other as usize];
            return self.short.iter().map(of_entry).sum();
        }
        let (rows, row) = self.row.as_chunks::<LANES>();
        let (levels, rest) = levels[self.base..self.base + self.row.len()].as_chunks::<LANES>();
        let mut sums = [0.0; LANES];
        for (live, levels) in rows.iter().zip(levels) {
            for lane in 0..LANES {
                sums[lane] += f64::from(live[lane]) * levels[lane];
            }
        }
        let rest: f64 = row.iter().zip(rest).map(|(&live, level)| f64::from(live) * level).sum();
        sums.iter().sum::<f64>() + rest
    }

    /// Live flows that also cross another link.
    fn shared(&self, other: usize) -> f64 {
        let live = other.checked_sub(self.base).and_then(|at| self.row.get(at));
        live.map_or(0.0, |&live| f64::from(live))
    }
}

impl MaxMin {
    /// Fills in the last order from the first touched link on; false if that is hopeless.
    pub(super) fn follow(&mut self, plan: &mut Plan) -> bool {
        let (mut waiting, mut given_back) = (self.begin(), 0);
        plan.levels.clone_from(&self.levels);
        loop {
            let link = match self.pending.pop() {
                Some(link) => link as usize,
                None if waiting < self.links => {
                    waiting += 1;
                    self.order[waiting - 1] as usize
                }
                None => match self.idle.iter().position(|&link| self.lacks(link as usize)) {
                    Some(at) => self.idle.swap_remove(at) as usize,
                    None => break,
                },
            };
            // A link that limits no flow is idle, unless it lacks capacity at the end: then it must limit some after all.
            if self.limited[link] < 0.5 && (waiting < self.links || !self.lacks(link)) {
                plan.levels[link] = f64::INFINITY;
                self.idle.push(link as u32);
                continue;
            }
            let before = self.pending.len();
            let level = self.level(link, plan);
            given_back += self.pending.len() - before;
            // Limits move to `link` from those given back; with none moved its level would be a division by 0.
            if given_back > MOST_ROUNDS * self.links || self.limited[link] < 0.5 {
                return false;
            }
            plan.levels[link] = level;
            self.taken[link] = level;
            self.new_order.push(link as u32);
        }
        // They come after all others on their paths.
        self.new_order.append(&mut self.idle);
        std::mem::swap(&mut self.order, &mut self.new_order);
        for (position, &link) in (0u32..).zip(&self.order) {
            self.position[link as usize] = position;
        }
        true
    }

    /// Takes all links before the first touched one as in the last plan; how many.
    fn begin(&mut self) -> usize {
        let first = self.touched.iter().map(|&link| self.position[link as usize] as usize).min();
        let first = first.unwrap_or(self.links);
        // They are of fillings that keep count of more than this one.
        self.drop_checkpoints(0);
        self.pending.clear();
        self.idle.clear();
        self.new_order.clear();
        self.new_order.extend_from_slice(&self.order[..first]);
        self.taken.clear();
        self.taken.resize(self.links + 1, 0.0);
        for &link in &self.new_order {
            let level = self.levels[link as usize];
            self.taken[link as usize] = if level.is_finite() { level } else { 0.0 };
        }
        first
    }

    /// Whether more is taken of a link than it has; not if all its flows at the highest level fit.
    fn lacks(&self, link: usize) -> bool {
        let (capacity, flows) = (self.capacity[link], self.flows[link] as f64);
        let levels = self.new_order.iter().rev().map(|&link| self.taken[link as usize]);
        let highest = levels.into_iter().find(|&level| level > 0.0).unwrap_or(0.0);
        flows * highest > capacity && capacity - self.crossing[link].taken(&self.taken) < -ROUNDING * capacity
    }

    /// The level of a link, after links before it with a higher one are given back.
    fn level(&mut self, link: usize, plan: &mut Plan) -> f64 {
        let mut left = self.capacity[link] - self.crossing[link].taken(&self.taken);
        // Links that limit no flow may stand between others; they move only with one that does.
        let (mut keep, mut last) = (self.new_order.len(), 0.0);
        for at in (0..self.new_order.len()).rev() {
            let other = self.new_order[at] as usize;
            let level = plan.levels[other];
            if level.is_infinite() {
                continue;
            }
            let flows = self.limited[link];
            let share = if flows < 0.5 { f64::NEG_INFINITY } else { left / flows };
            if share >= level * (1.0 - ROUNDING) {
                last = level;
                break;
            }
            self.taken[other] = 0.0;
            left += level * self.move_limit(other, link, plan);
            keep = at;
        }
        self.pending.extend(self.new_order.drain(keep..).rev());
        // Not below the level before it: the difference is within the tolerance above, and levels must rise for the result to be right.
        last.max(left / self.limited[link])
    }

    /// The class that crosses both links, if there is one, is limited by `to` from now on; its flows.
    fn move_limit(&mut self, from: usize, to: usize, plan: &mut Plan) -> f64 {
        let live = self.crossing[to].shared(from);
        if live > 0.5 {
            self.limited[from] -= live;
            self.limited[to] += live;
            let crossing = &self.crossing[to];
            if let Some(at) = crossing.short.iter().position(|entry| entry.other as usize == from) {
                plan.switched.push((ClassId(crossing.classes[at]), self.link_at[to]));
            }
        }
        live
    }
}
