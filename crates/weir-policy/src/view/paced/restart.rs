//! New levels: which flows have another limit, and from when on all move by them.

use super::{Levels, NONE, Paced, cross};

impl Paced {
    /// Brings all amounts to now and lets flows move by these shares, whose levels add up, from now on.
    pub(in crate::view) fn restart(&mut self, clock: u64, shares: &[Levels]) {
        self.attained = self.attained(clock);
        self.since = clock;
        let by_size = shares.iter().any(|share| share.by_size);
        let others = shares.len() > self.shares || (by_size != self.by_size && !shares.is_empty());
        if others || self.gone * 2 > self.cells.len() {
            self.rebuild(clock, by_size && !shares.is_empty(), self.shares.max(shares.len()));
        }
        self.set_levels(clock, shares);
        let mut switching = std::mem::take(&mut self.switching);
        for at in 0..self.changed.len() {
            let link = self.changed[at];
            match self.shares {
                1 if self.long_paths.is_empty() => self.find_switching::<1>(link, &mut switching),
                2 if self.long_paths.is_empty() => self.find_switching::<2>(link, &mut switching),
                _ => switching.extend(self.links[link as usize].cells.iter().map(|&(cell, _)| cell)),
            }
            switching.drain(..).for_each(|cell| self.attach(cell as usize, clock));
        }
        self.switching = switching;
        self.before.clone_from(&self.levels);
        let mut fresh = std::mem::take(&mut self.fresh);
        fresh.drain(..).for_each(|cell| self.attach(cell as usize, clock));
        self.fresh = fresh;
        self.settle_all();
    }

    /// Adds the cells on a link whose flows may have another limit than before in some share; by levels alone: most
    /// flows on a link whose level changed are passed over without a look at them.
    fn find_switching<const SHARES: usize>(&self, link: u32, switching: &mut Vec<u32>) {
        let (before, _) = self.before.as_chunks::<SHARES>();
        let (now, _) = self.levels.as_chunks::<SHARES>();
        let (own_before, own) = (before[link as usize], now[link as usize]);
        let cells = &self.links[link as usize].cells;
        let first = switching.len();
        switching.resize(first + cells.len(), 0);
        let mut found = first;
        for &(cell, other) in cells {
            let (other_before, other) = (before[other as usize], now[other as usize]);
            // All of it without a branch, which could not be foretold.
            let mut stays = true;
            for share in 0..SHARES {
                stays &= (own_before[share] < other_before[share]) == (own[share] < other[share]);
                stays &= (other_before[share] < own_before[share]) == (other[share] < own[share]);
            }
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
        (self.levels, self.before) = (Vec::new(), Vec::new());
        (self.meters, self.ends) = (Vec::new(), Vec::new());
        self.add_meters();
        self.stale.clear();
        self.limits.clear();
        self.checks.clear();
        self.fresh.clear();
        for (cell, left) in old.into_iter().zip(left).filter(|(cell, _)| cell.flow != NONE) {
            let place = self.cells.len() as u32;
            self.places[cell.flow as usize] = place;
            cross(&mut self.links, place, cell.path.links(&self.long_paths));
            let target = left / if by_size { cell.size } else { 1.0 };
            self.add_cell(super::Cell { target, ..cell });
        }
    }

    /// Takes over levels, and notes the links where they are others.
    fn set_levels(&mut self, clock: u64, shares: &[Levels]) {
        self.changed.clear();
        for link in 0..self.links.len() as u32 {
            let of_fabric = self.links[link as usize].link as usize;
            let mut is_changed = false;
            for share in 0..self.shares {
                let meter = link as usize * self.shares + share;
                let level = shares.get(share).map_or(0.0, |share| share.of[of_fabric]);
                if self.levels[meter] != level {
                    self.levels[meter] = level;
                    self.meters[meter].set_level(clock, level);
                    self.mark(meter as u32);
                    is_changed = true;
                }
            }
            if is_changed {
                self.changed.push(link);
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
        let mut best = current;
        for meter in meters {
            if best == NONE || self.levels[meter as usize] < self.levels[best as usize] {
                best = meter;
            }
        }
        best
    }
}
