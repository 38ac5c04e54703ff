//! Filling in the order of the last plan, where no path has more than two links.
//!
//! # Problem
//! Looking for the least share among links, and keeping count of the flows not limited yet on every
//! link, is most of the work of a filling, though the order of the links hardly changes.
//!
//! # Approach
//! Take the links in the last order, mended where levels do not rise. How many flows each link limits is
//! known from the last plan and changes only where two links change places, so capacities are all that
//! has to be kept.
//!
//! # Pseudo-code
//! ```text
//! for link of the last order:
//!     while the link before it has a higher level than capacity left of link / flows it limits:
//!         give back what that one took; classes they share are limited by link from now on
//!     level = capacity left of link / flows it limits; take it
//!     links given back come next
//! ```
//!
//! # Properties
//! * Rising levels make the result right: see the [filling](super).
//! * Cost: one visit per (link that limits somebody, class crossing it) and per link given back.
//! * Gives up, for a filling without a guess, when more is given back than a few times all links, or a
//!   link has too little for what was taken and nobody gives back.

use super::{CHECKPOINT_LINKS, Crossing, DENSE_SPREAD, MaxMin, ROUNDING};
use crate::{ClassId, Plan};
use weir_model::LinkId;

/// Times all links that may be given back before the order counts as lost.
const MOST_ROUNDS: usize = 2;

impl Crossing {
    /// Takes `level` per flow of all classes out of the links they also cross; negative gives back.
    fn take_capacity(&self, level: f64, capacity: &mut [f64]) {
        if self.row.len() <= DENSE_SPREAD * self.short.len() {
            let capacity = &mut capacity[self.base..self.base + self.row.len()];
            for (capacity, &live) in capacity.iter_mut().zip(&self.row) {
                *capacity -= f64::from(live) * level;
            }
            return;
        }
        for entry in &self.short {
            capacity[entry.other as usize] -= f64::from(entry.live) * level;
        }
    }

    /// Live flows that also cross another link.
    fn shared(&self, other: usize) -> f64 {
        let live = other.checked_sub(self.base).and_then(|at| self.row.get(at));
        live.map_or(0.0, |&live| f64::from(live))
    }
}

impl MaxMin {
    /// Fills in the last order from the last checkpoint on; false if that is hopeless.
    pub(super) fn follow(&mut self, plan: &mut Plan) -> bool {
        let (_, start) = self.resume();
        plan.levels.clone_from(&self.levels);
        let (mut waiting, mut given_back) = (start, 0);
        let mut due = start + CHECKPOINT_LINKS;
        self.pending.clear();
        self.idle.clear();
        loop {
            let link = match self.pending.pop() {
                Some(link) => link as usize,
                None if waiting < self.links => {
                    if self.new_order.len() >= due {
                        due = self.new_order.len() + CHECKPOINT_LINKS;
                        self.save(0.0);
                    }
                    waiting += 1;
                    self.order[waiting - 1] as usize
                }
                None => match self.idle.iter().position(|&link| self.share(link as usize) < 0.0) {
                    Some(at) => self.idle.swap_remove(at) as usize,
                    None => break,
                },
            };
            if self.limited[link] < 0.5 && self.share(link) > 0.0 {
                plan.levels[link] = f64::INFINITY;
                self.idle.push(link as u32);
                continue;
            }
            let before = self.pending.len();
            let last = self.make_way(link, plan);
            given_back += self.pending.len() - before;
            if given_back > MOST_ROUNDS * self.links || self.limited[link] < 0.5 {
                return false;
            }
            let level = self.share(link).max(last);
            plan.levels[link] = level;
            self.crossing[link].take_capacity(level, &mut self.open.capacity);
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

    /// What each flow that a link limits can get. A link that limits nobody limits nobody, unless more was
    /// taken than it has.
    fn share(&self, link: usize) -> f64 {
        let (capacity, flows) = (self.open.capacity[link], self.limited[link]);
        match flows > 0.5 {
            true => capacity / flows,
            false if capacity < -ROUNDING * self.capacity[link] => f64::NEG_INFINITY,
            false => f64::INFINITY,
        }
    }

    /// Gives back the links before `link` whose level is above its share, and returns the level of the
    /// last that stays.
    fn make_way(&mut self, link: usize, plan: &mut Plan) -> f64 {
        // Links that limit nobody stand between others; they stay where they are if nothing moves past.
        let mut keep = self.new_order.len();
        let mut at = keep;
        while at > 0 {
            let other = self.new_order[at - 1] as usize;
            let level = plan.levels[other];
            if level.is_finite() {
                if self.share(link) >= level * (1.0 - ROUNDING) {
                    break;
                }
                self.crossing[other].take_capacity(-level, &mut self.open.capacity);
                self.move_limit(other, link, plan);
                keep = at - 1;
            }
            at -= 1;
        }
        let last = self.new_order[..keep].iter().rev().map(|&link| plan.levels[link as usize]);
        let last = last.into_iter().find(|level| level.is_finite()).unwrap_or(0.0);
        if keep < self.new_order.len() {
            self.pending.extend(self.new_order.drain(keep..).rev());
            let checkpoints = self.checkpoints.partition_point(|checkpoint| checkpoint.position <= keep);
            self.drop_checkpoints(checkpoints);
        }
        last
    }

    /// The class that crosses both links, if there is one, is limited by `to` from now on.
    fn move_limit(&mut self, from: usize, to: usize, plan: &mut Plan) {
        let live = self.crossing[to].shared(from);
        if live < 0.5 {
            return;
        }
        self.limited[from] -= live;
        self.limited[to] += live;
        let crossing = &self.crossing[to];
        if let Some(at) = crossing.short.iter().position(|entry| entry.other as usize == from) {
            plan.switched.push((ClassId(crossing.classes[at]), LinkId(to as u32)));
        }
    }
}
