//! The flows of a coflow that each have a rate of their own, by the shares of a plan.
//!
//! # Problem
//! A plan that changes the levels of a few links changes the rates of many flows. Who follows every flow on its
//! own pays for all of them.
//!
//! # Approach
//! A flow is attached to the link that limits it, and moves as fast as that link's level says. So a link counts
//! how far a flow attached to it comes, and a flow ends when that count reaches the flow's target. A new level
//! touches no flow but those that some other link limits from then on.
//!
//! # Terminology
//! * cell: where a live flow stands.
//! * amount: bytes, or parts of a flow's size where shares are by size.
//! * served: how far flows attached to a link have come since it was last without any, as an amount.
//! * target: what its link has served when a flow ends.
//! * loose: a flow that one share limits here and another there; it is followed on its own.
//! * share: see [`crate::Share`]; a coflow has as many as its policy fills tiers in rounds.
//!
//! # Properties
//! Cost of new levels: one visit per flow on a link whose level changes, a search in a heap per flow that
//! changes its link, and one visit per loose flow. Nothing is paid while time passes.

mod limit;
mod restart;

use super::coflow::FLOOR_BYTES;
use super::moving::{end_after, secs_between};
use limit::{Limit, is_current};
use std::cmp::Reverse;
use weir_model::Path;

/// An end that never comes.
pub(in crate::view) const NEVER: u64 = u64::MAX;
/// No place, no link, no flow.
const NONE: u32 = u32::MAX;
/// In place of a link: followed on its own.
const LOOSE: u32 = u32::MAX - 1;

/// What one share of a coflow says.
#[derive(Clone, Debug)]
pub(in crate::view) struct Levels {
    pub(in crate::view) by_size: bool,
    /// Level per link of the fabric, 0 on those that the share does not name.
    pub(in crate::view) of: Vec<f64>,
}

/// A live flow.
#[derive(Clone, Debug)]
struct Cell {
    /// Its place in the coflow; none once it has left.
    flow: u32,
    /// What limits it: an index into links, loose, or nothing yet.
    limit: u32,
    /// Its links.
    path: CellPath,
    size: f64,
    /// The target if it is attached, else what was left at a reading of the clock.
    amount: f64,
    since: u64,
    /// Amount per second while it is loose.
    per_sec: f64,
}

/// Indices of a path's links among those of the coflow.
#[derive(Clone, Copy, Debug)]
enum CellPath {
    Ends([u32; 2]),
    /// Index of a longer one.
    Long(u32),
}

impl CellPath {
    fn links<'a>(&'a self, long_paths: &'a [Vec<u32>]) -> &'a [u32] {
        match self {
            CellPath::Ends(ends) if ends[0] == ends[1] => &ends[..1],
            CellPath::Ends(ends) => ends,
            CellPath::Long(path) => &long_paths[*path as usize],
        }
    }
}

/// Enters a cell at all links of its path, each with the other link, where there are two.
fn cross(limits: &mut [Limit], cell: u32, path: &[u32]) {
    let ends = path.first().zip(path.last()).map_or(0, |(first, last)| first ^ last);
    for &limit in path {
        limits[limit as usize].cells.push((cell, ends ^ limit));
    }
}

/// The live flows of one coflow that cross links.
#[derive(Clone, Debug)]
pub(in crate::view) struct Paced {
    cells: Vec<Cell>,
    limits: Vec<Limit>,
    /// Per link of the fabric, its index among those of the coflow.
    index_of: Vec<u32>,
    long_paths: Vec<Vec<u32>>,
    /// Per link of the coflow, its level in every share.
    levels: Vec<f64>,
    /// The same as of the last plan.
    before: Vec<f64>,
    shares: usize,
    by_size: bool,
    /// Cells that were added since the last plan.
    fresh: Vec<u32>,
    loose: Vec<u32>,
    /// How many cells have been left.
    gone: usize,
    /// Per flow of the coflow, its cell.
    places: Vec<u32>,
    /// Bytes sent in all by flows here and gone, at a reading of the clock, and per second from then on.
    attained: f64,
    since: u64,
    per_sec: f64,
    /// No flow ends before this.
    end: u64,
    /// Whether one ends then.
    is_exact: bool,
    /// Memory of one restart: links whose level is another, cells on one of them.
    changed: Vec<u32>,
    switching: Vec<u32>,
}

impl Paced {
    /// No flows yet.
    pub(in crate::view) fn new(links: usize, clock: u64, attained: f64) -> Paced {
        Paced {
            cells: Vec::new(),
            limits: Vec::new(),
            index_of: vec![NONE; links],
            long_paths: Vec::new(),
            levels: Vec::new(),
            before: Vec::new(),
            shares: 1,
            by_size: false,
            fresh: Vec::new(),
            loose: Vec::new(),
            gone: 0,
            places: Vec::new(),
            attained,
            since: clock,
            per_sec: 0.0,
            end: NEVER,
            is_exact: true,
            changed: Vec::new(),
            switching: Vec::new(),
        }
    }

    /// Adds the next flow of the coflow, which stands still; one without a path has ended, or crosses no link.
    pub(in crate::view) fn push(&mut self, size: f64, left: f64, path: Option<&Path>) {
        let cell = self.cells.len() as u32;
        let path: Vec<u32> =
            path.iter().flat_map(|path| path.iter()).map(|link| self.limit_of(link.0)).collect();
        let Some((&first, &last)) = path.first().zip(path.last()) else { return self.places.push(NONE) };
        cross(&mut self.limits, cell, &path);
        let path = if path.len() <= 2 {
            CellPath::Ends([first, last])
        } else {
            self.long_paths.push(path);
            CellPath::Long(self.long_paths.len() as u32 - 1)
        };
        let flow = self.places.len() as u32;
        self.places.push(cell);
        self.fresh.push(cell);
        let mut cell = Cell { flow, limit: NONE, path, size, amount: 0.0, since: self.since, per_sec: 0.0 };
        cell.amount = left / self.weight(&cell);
        self.cells.push(cell);
    }

    fn limit_of(&mut self, link: u32) -> u32 {
        let index = &mut self.index_of[link as usize];
        if *index == NONE {
            *index = self.limits.len() as u32;
            self.limits.push(Limit::new(link, self.since));
            self.levels.resize(self.levels.len() + self.shares, 0.0);
            self.before.resize(self.levels.len(), 0.0);
        }
        *index
    }

    fn weight(&self, cell: &Cell) -> f64 {
        if self.by_size { cell.size } else { 1.0 }
    }

    fn cell(&self, flow: u32) -> Option<&Cell> {
        self.places.get(flow as usize).and_then(|&place| self.cells.get(place as usize))
    }

    /// Amount a cell has left.
    fn left_at(&self, cell: &Cell, clock: u64) -> f64 {
        match self.limits.get(cell.limit as usize) {
            Some(limit) => cell.amount - limit.served(clock),
            None => cell.amount - cell.per_sec * signed_secs(cell.since, clock),
        }
    }

    /// Amount per second.
    fn pace(&self, cell: &Cell) -> f64 {
        self.limits.get(cell.limit as usize).map_or(cell.per_sec, |limit| limit.level)
    }

    pub(in crate::view) fn left(&self, flow: u32, clock: u64) -> f64 {
        let left = |cell: &Cell| self.left_at(cell, clock) * self.weight(cell);
        // Rounding of what was served makes nothing more than it was.
        self.cell(flow).map_or(0.0, |cell| left(cell).min(cell.size).max(FLOOR_BYTES))
    }

    pub(in crate::view) fn rate(&self, flow: u32) -> f64 {
        self.cell(flow).map_or(0.0, |cell| self.pace(cell) * self.weight(cell))
    }

    /// Sum of the rates.
    pub(in crate::view) fn per_sec(&self) -> f64 {
        self.per_sec
    }

    pub(in crate::view) fn attained(&self, clock: u64) -> f64 {
        self.attained + self.per_sec * secs_between(self.since, clock)
    }

    pub(in crate::view) fn add_attained(&mut self, bytes: f64) {
        self.attained += bytes;
    }

    /// Corrects what a flow has left.
    pub(in crate::view) fn set_left(&mut self, flow: u32, bytes: f64, clock: u64) {
        let before = self.left(flow, clock);
        let Some(place) = self.cell(flow).map(|_| self.places[flow as usize]) else { return };
        let bytes = bytes.max(FLOOR_BYTES);
        self.attained += before - bytes;
        let amount = bytes / self.weight(&self.cells[place as usize]);
        let cell = &mut self.cells[place as usize];
        if let Some(limit) = self.limits.get_mut(cell.limit as usize) {
            cell.amount = amount + limit.served(clock);
            limit.targets.push(Reverse((cell.amount.to_bits(), place)));
            limit.is_stale = true;
        } else {
            (cell.amount, cell.since) = (amount, clock);
        }
        self.is_exact = false;
    }

    /// Forgets a flow, which has moved all but `left` bytes.
    pub(in crate::view) fn leave(&mut self, flow: u32, left: f64) {
        let Some(cell) = self.cell(flow) else { return };
        let weight = self.weight(cell);
        // What it has moved since then is in the sum of rates no more.
        let moved = self.left_at(cell, self.since) * weight - left;
        let rate = self.pace(cell) * weight;
        self.attained += moved;
        self.per_sec -= rate;
        self.is_exact = false;
        let place = std::mem::replace(&mut self.places[flow as usize], NONE);
        let cell = &mut self.cells[place as usize];
        if let Some(limit) = self.limits.get_mut(cell.limit as usize) {
            limit.detach(weight);
        }
        (cell.flow, cell.limit, cell.per_sec) = (NONE, NONE, 0.0);
        self.gone += 1;
    }

    /// Finds sums and ends of everything that changed, and of what is loose.
    fn settle_all(&mut self) {
        let cells = &self.cells;
        self.loose.retain(|&place| cells[place as usize].limit == LOOSE);
        self.is_exact = false;
        self.settle();
        let attached: f64 = self.limits.iter().map(|limit| limit.level * limit.weight).sum();
        let loose = self.loose.iter().map(|&place| &self.cells[place as usize]);
        self.per_sec = attached + loose.map(|cell| cell.per_sec * self.weight(cell)).sum::<f64>();
    }

    /// Finds the first end again, if flows left or were corrected.
    pub(in crate::view) fn settle(&mut self) {
        if self.is_exact {
            return;
        }
        let cells = &self.cells;
        for (at, limit) in (0u32..).zip(&mut self.limits).filter(|(_, limit)| limit.is_stale) {
            while limit.targets.peek().is_some_and(|target| !is_current(cells, at, target)) {
                limit.targets.pop();
            }
            let first = limit.targets.peek().map(|&Reverse((target, _))| f64::from_bits(target));
            limit.end = first.map_or(NEVER, |target| limit.end_of(target));
            limit.is_stale = false;
        }
        self.end = self.first_end();
        self.is_exact = true;
    }

    /// No flow ends before this.
    pub(in crate::view) fn first_end(&self) -> u64 {
        if self.is_exact {
            return self.end;
        }
        let end = |(at, limit): (u32, &Limit)| {
            if !limit.is_stale {
                return limit.end;
            }
            let current = limit.targets.iter().filter(|target| is_current(&self.cells, at, target));
            current.map(|&Reverse((target, _))| limit.end_of(f64::from_bits(target))).min().unwrap_or(NEVER)
        };
        let attached = (0u32..).zip(&self.limits).map(end).min();
        let loose = self.loose.iter().map(|&place| self.end_of(&self.cells[place as usize])).min();
        attached.unwrap_or(NEVER).min(loose.unwrap_or(NEVER))
    }

    /// Adds the flows that have nothing left at a time, by index.
    pub(in crate::view) fn take_ends(&self, clock: u64, flows: &mut Vec<u32>) {
        if self.is_exact && self.end > clock {
            return;
        }
        let due = (0u32..).zip(&self.limits).filter(|(_, limit)| limit.is_stale || limit.end <= clock);
        for (at, limit) in due {
            let current = limit.targets.iter().filter(|target| is_current(&self.cells, at, target));
            let ended = current.filter(|Reverse((target, _))| limit.end_of(f64::from_bits(*target)) <= clock);
            flows.extend(ended.map(|Reverse((_, place))| self.cells[*place as usize].flow));
        }
        let loose = self.loose.iter().map(|&place| &self.cells[place as usize]);
        flows.extend(loose.filter(|cell| self.end_of(cell) <= clock).map(|cell| cell.flow));
        // A target may stand twice in its heap.
        flows.sort_unstable();
        flows.dedup();
    }

    fn end_of(&self, loose: &Cell) -> u64 {
        if loose.per_sec > 0.0 {
            end_after(loose.since, loose.amount.max(0.0) / loose.per_sec)
        } else {
            NEVER
        }
    }
}

/// Seconds from one reading of the clock to another, negative if that is the earlier one.
fn signed_secs(from: u64, to: u64) -> f64 {
    if to >= from { secs_between(from, to) } else { -secs_between(to, from) }
}
