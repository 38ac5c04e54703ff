//! New levels: which flows have another limit, and from when on all move by them.

use super::{Levels, NONE, Paced, cross};

impl Paced {
    /// Brings all amounts to now and lets flows move by these shares, whose levels add up, from now on.
    pub(in crate::view) fn restart(&mut self, clock: u64, shares: &[Levels]) {
        self.attained = self.attained(clock);
        self.since = clock;
        self.restarts += 1;
        let by_size = shares.iter().any(|share| share.by_size);
        // Fewer shares than before need no rebuild: the meters of the others get level 0.
        let others = shares.len() > self.shares || (by_size != self.by_size && !shares.is_empty());
        if others || self.gone * 2 > self.cells.len() {
            self.rebuild(clock, by_size && !shares.is_empty(), self.shares.max(shares.len()));
        }
        // All levels before any flow: which link limits a flow is found by comparing the new levels of its links.
        self.set_levels(clock, shares);
        let mut switching = std::mem::take(&mut self.switching);
        for at in 0..self.changed.len() {
            self.find_switching(self.changed[at], &mut switching);
            switching.drain(..).for_each(|cell| self.attach(cell as usize, clock));
        }
        self.switching = switching;
        for meter in self.changed.drain(..) {
            let level = &mut self.levels[meter as usize];
            level.before = level.now;
        }
        let mut fresh = std::mem::take(&mut self.fresh);
        fresh.drain(..).for_each(|cell| self.attach(cell as usize, clock));
        self.fresh = fresh;
        self.settle_all();
    }

    /// Adds the cells on a link whose flows may have another limit than before in a share, because of what the share
    /// says of this link; by levels alone: most flows on a link whose level changed are passed over without a look
    /// at them.
    fn find_switching(&self, meter: u32, switching: &mut Vec<u32>) {
        let (link, share) = (meter as usize / self.shares, meter as usize % self.shares);
        let cells = &self.links[link].cells;
        if !self.long_paths.is_empty() {
            switching.extend(cells.iter().map(|&(cell, _)| cell));
            return;
        }
        let own = self.levels[meter as usize];
        switching.resize(cells.len(), 0);
        let mut found = 0;
        for &(cell, other) in cells {
            let other = self.levels[other as usize + share];
            // Without a branch, which could not be foretold.
            let stays = ((own.before < other.before) == (own.now < other.now))
                & ((other.before < own.before) == (other.now < own.now));
            switching[found] = cell;
            found += usize::from(!stays);
        }
        switching.truncate(found);
    }

    /// Drops cells that were left and lets all others stand still, as if they had been added now.
    fn rebuild(&mut self, clock: u64, by_size: bool, shares: usize) {
        let left: Vec<f64> = (0..self.cells.len())
            .map(|place| self.left_at(place, clock) * self.weight(&self.cells[place]))
            .collect();
        let old = std::mem::take(&mut self.cells);
        (self.by_size, self.shares, self.gone) = (by_size, shares, 0);
        self.links.iter_mut().for_each(|link| link.cells.clear());
        (self.levels, self.meters, self.ends) = (Vec::new(), Vec::new(), Vec::new());
        self.add_meters();
        self.stale.clear();
        self.limits.clear();
        self.checks.clear();
        self.fresh.clear();
        for (cell, left) in old.into_iter().zip(left).filter(|(cell, _)| cell.flow != NONE) {
            let place = self.cells.len() as u32;
            self.places[cell.flow as usize] = place;
            cross(&mut self.links, place, cell.path.links(&self.long_paths), shares);
            let target = left / if by_size { cell.size } else { 1.0 };
            self.add_cell(super::Cell { target, ..cell });
        }
    }

    /// Takes over levels, and notes the meters where they are others.
    fn set_levels(&mut self, clock: u64, shares: &[Levels]) {
        for link in 0..self.links.len() as u32 {
            let of_fabric = self.links[link as usize].link as usize;
            for share in 0..self.shares {
                let meter = link as usize * self.shares + share;
                let level = shares.get(share).map_or(0.0, |share| share.of[of_fabric]);
                if self.levels[meter].now != level {
                    self.levels[meter].now = level;
                    self.meters[meter].set_level(clock, level);
                    self.mark(meter as u32);
                    self.changed.push(meter as u32);
                }
            }
        }
    }

    /// Attaches a flow, in every share, to the link that limits it there now.
    fn attach(&mut self, place: usize, clock: u64) {
        let cell = &self.cells[place];
        if cell.flow == NONE {
            return;
        }
        let (mut left, weight, path) = (f64::NAN, self.weight(cell), cell.path);
        for (share, at) in self.of_cell(place).enumerate() {
            let limit = self.find_limit(share, self.limits[at], path.links(&self.long_paths));
            if limit == self.limits[at] {
                continue;
            }
            if left.is_nan() {
                left = self.left_at(place, clock).max(0.0);
            }
            self.detach(at, weight);
            self.limits[at] = limit;
            self.meters[limit as usize].attach(clock, weight);
        }
        if !left.is_nan() {
            self.set_target(place, left, clock);
        }
    }

    /// The meter of the link of a path with the least level in a share, the current one if that is it.
    fn find_limit(&self, share: usize, current: u32, path: &[u32]) -> u32 {
        let meters = path.iter().map(|&link| link * self.shares as u32 + share as u32);
        // The current one if it is among the least: equal levels move no flow to another link.
        let mut best = current;
        for meter in meters {
            if best == NONE || self.levels[meter as usize].now < self.levels[best as usize].now {
                best = meter;
            }
        }
        best
    }
}
