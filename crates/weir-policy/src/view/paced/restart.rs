//! New levels: which flows have another limit, and from when on all move by them.

use super::limit::is_current;
use super::{LOOSE, Levels, NONE, Paced, cross};
use std::cmp::Reverse;

impl Paced {
    /// Brings all amounts to now and lets flows move by these shares, whose levels add up, from now on.
    pub(in crate::view) fn restart(&mut self, clock: u64, shares: &[Levels]) {
        self.attained = self.attained(clock);
        self.since = clock;
        let by_size = shares.iter().any(|share| share.by_size);
        if self.gone * 2 > self.cells.len() || (by_size != self.by_size && !shares.is_empty()) {
            self.rebuild(clock, by_size && !shares.is_empty());
        }
        self.set_levels(clock, shares);
        let mut switching = std::mem::take(&mut self.switching);
        for at in 0..self.changed.len() {
            let limit = self.changed[at];
            match self.shares {
                1 if self.long_paths.is_empty() => self.find_switching::<1>(limit, &mut switching),
                2 if self.long_paths.is_empty() => self.find_switching::<2>(limit, &mut switching),
                _ => switching.extend(self.limits[limit as usize].cells.iter().map(|&(cell, _)| cell)),
            }
            switching.drain(..).for_each(|cell| self.attach(cell, clock));
        }
        self.switching = switching;
        self.before.clone_from(&self.levels);
        let mut fresh = std::mem::take(&mut self.fresh);
        for cell in fresh.drain(..) {
            self.attach(cell, clock);
        }
        self.fresh = fresh;
        self.settle_all();
    }

    /// Adds the cells on a link whose flows may have another limit or, if they are loose, another rate than before;
    /// by levels alone: most flows on a link whose level changed are passed over without a look at them.
    fn find_switching<const SHARES: usize>(&self, limit: u32, switching: &mut Vec<u32>) {
        let (before, _) = self.before.as_chunks::<SHARES>();
        let (now, _) = self.levels.as_chunks::<SHARES>();
        let (own_before, own) = (before[limit as usize], now[limit as usize]);
        let cells = &self.limits[limit as usize].cells;
        let first = switching.len();
        switching.resize(first + cells.len(), 0);
        let mut found = first;
        for &(cell, other) in cells {
            let (other_before, other) = (before[other as usize], now[other as usize]);
            // All of it without a branch, which could not be foretold.
            let (mut is_own, mut is_others, mut is_same) = (true, true, true);
            for share in 0..SHARES {
                let (was_own, was_others) =
                    (own_before[share] < other_before[share], other_before[share] < own_before[share]);
                let (now_own, now_others) = (own[share] < other[share], other[share] < own[share]);
                let same_level =
                    least(own_before[share], other_before[share]) == least(own[share], other[share]);
                is_own &= was_own & now_own;
                is_others &= was_others & now_others;
                is_same &= (was_own == now_own) & (was_others == now_others) & same_level;
            }
            switching[found] = cell;
            found += usize::from(!(is_own | is_others | is_same));
        }
        switching.truncate(found);
    }

    /// Drops cells that were left and lets all others stand still, as if they had been added now.
    fn rebuild(&mut self, clock: u64, by_size: bool) {
        let mut old = std::mem::take(&mut self.cells);
        old.retain(|cell| cell.flow != NONE);
        for cell in &mut old {
            let left = self.left_at(cell, clock) * self.weight(cell);
            (cell.amount, cell.since, cell.per_sec) = (left, clock, 0.0);
        }
        self.by_size = by_size;
        self.loose.clear();
        self.fresh.clear();
        for limit in &mut self.limits {
            limit.cells.clear();
            limit.targets.clear();
            (limit.attached, limit.weight, limit.is_stale) = (0, 0.0, true);
        }
        for (place, cell) in (0u32..).zip(&mut old) {
            cell.limit = NONE;
            cell.amount /= if by_size { cell.size } else { 1.0 };
            self.places[cell.flow as usize] = place;
            self.fresh.push(place);
            cross(&mut self.limits, place, cell.path.links(&self.long_paths));
        }
        (self.cells, self.gone) = (old, 0);
    }

    /// Takes over levels, and notes the links where they are others.
    fn set_levels(&mut self, clock: u64, shares: &[Levels]) {
        self.changed.clear();
        if shares.len() > self.shares {
            let (before, now) = (self.shares, shares.len());
            let padding = vec![0.0; now - before];
            let levels = self.levels.chunks_exact(before).flat_map(|levels| levels.iter().chain(&padding));
            self.levels = levels.copied().collect();
            self.before.clone_from(&self.levels);
            self.shares = now;
        }
        let with_levels = self.limits.iter_mut().zip(self.levels.chunks_exact_mut(self.shares));
        for (at, (limit, levels)) in (0u32..).zip(with_levels) {
            let given =
                shares.iter().map(|share| share.of[limit.link as usize]).chain(std::iter::repeat(0.0));
            if levels.iter().copied().eq(given.clone().take(self.shares)) {
                continue;
            }
            limit.served = if limit.attached > 0 { limit.served(clock) } else { 0.0 };
            limit.since = clock;
            levels.iter_mut().zip(given).for_each(|(level, given)| *level = given);
            let level = levels.iter().sum::<f64>();
            // A link that limits nobody serves nobody.
            limit.level = if level.is_finite() { level } else { 0.0 };
            limit.is_stale = true;
            self.changed.push(at);
        }
    }

    /// Attaches a flow to the link that limits it now, or lets it loose.
    fn attach(&mut self, place: u32, clock: u64) {
        let cell = &self.cells[place as usize];
        if cell.flow == NONE {
            return;
        }
        let (limit, per_sec) = self.find_limit(cell.limit, cell.path.links(&self.long_paths));
        if limit == cell.limit && limit != LOOSE {
            return;
        }
        let (left, weight) = (self.left_at(cell, clock).max(0.0), self.weight(cell));
        if let Some(before) = self.limits.get_mut(cell.limit as usize) {
            before.detach(weight);
        }
        let cell = &mut self.cells[place as usize];
        if limit == LOOSE {
            if cell.limit != LOOSE {
                self.loose.push(place);
            }
            (cell.limit, cell.amount, cell.since, cell.per_sec) = (LOOSE, left, clock, per_sec);
            return;
        }
        let to = &mut self.limits[limit as usize];
        if to.attached == 0 {
            (to.served, to.since) = (0.0, clock);
        }
        to.attached += 1;
        to.weight += weight;
        (cell.limit, cell.amount, cell.per_sec) = (limit, left + to.served(clock), 0.0);
        if to.targets.len() > 2 * to.attached as usize + 16 {
            let cells = &self.cells;
            to.targets.retain(|target| is_current(cells, limit, target));
        }
        to.targets.push(Reverse((self.cells[place as usize].amount.to_bits(), place)));
        to.is_stale = true;
    }

    /// The link of a path with the least level in every share, the current one if that is it; or none of them,
    /// and the sum of the least levels.
    fn find_limit(&self, current: u32, path: &[u32]) -> (u32, f64) {
        let shares = self.shares;
        let levels = |limit: u32| &self.levels[limit as usize * shares..][..shares];
        if shares == 1 {
            let mut best = if path.contains(&current) { current } else { path[0] };
            for &other in path {
                if levels(other)[0] < levels(best)[0] {
                    best = other;
                }
            }
            return (best, 0.0);
        }
        let is_least = |limit: u32| {
            let own = levels(limit);
            path.iter().all(|&other| own.iter().zip(levels(other)).all(|(own, other)| own <= other))
        };
        if path.contains(&current) && is_least(current) {
            return (current, 0.0);
        }
        if let Some(&limit) = path.iter().find(|&&limit| is_least(limit)) {
            return (limit, 0.0);
        }
        let least_of =
            |share: usize| path.iter().map(|&limit| levels(limit)[share]).fold(f64::INFINITY, least);
        (LOOSE, (0..shares).map(least_of).sum())
    }
}

#[inline]
fn least(a: f64, b: f64) -> f64 {
    if b < a { b } else { a }
}
