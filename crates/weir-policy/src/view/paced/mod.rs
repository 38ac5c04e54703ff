//! The flows of a coflow that each have a rate of their own, by the shares of a plan.
//!
//! # Problem
//! A plan that changes the levels of a few links changes the rates of many flows. Who follows every flow on its
//! own pays for all of them.
//!
//! # Approach
//! In every share a flow is attached to the link that limits it there, and moves as fast as the levels of these
//! links say together. So a link counts, per share, how far a flow attached to it comes, and a flow ends when the
//! counts of its links reach its target together. A new level touches no flow but those that some other link
//! limits from then on.
//!
//! With one share the count at which a flow ends is known. With several it depends on how fast each counts: what is
//! left of the flow is split over its links as they count now, and before one of them has counted its part the flow
//! cannot end. Only when a part is the first that any flow has counted is it looked at, and split anew if levels
//! have changed since. (Countdowns of distributed monitoring do the same with messages.)
//!
//! # Terminology
//! * cell: where a live flow stands.
//! * amount: bytes, or parts of a flow's size where shares are by size.
//! * meter: a link under one share. served: how far flows attached to it have come since it was last without any,
//!   as an amount.
//! * target: what the meters of a flow have served together when it ends.
//! * checkpoint: what a meter of a flow has served when its part is done. With one share that is the target.
//! * share: see [`crate::Share`]; a coflow has as many as its policy fills tiers in rounds.
//!
//! # Properties
//! * The first of all checkpoints to be reached is no later than the first end.
//! * Cost of new levels: a comparison per flow on a link whose level changes, and a search in a heap per flow that
//!   changes its link. Nothing is paid while time passes.

mod meter;
mod restart;

use super::line::{FLOOR_BYTES, end_after, secs_between};
use meter::{Entry, Meter};
use std::cmp::Reverse;
use weir_model::{LinkId, Path};

/// An end that never comes.
pub(in crate::view) const NEVER: u64 = u64::MAX;
/// No place, no meter, no flow.
const NONE: u32 = u32::MAX;

/// What one share of a coflow says.
#[derive(Clone, Debug)]
pub(in crate::view) struct Levels {
    pub(in crate::view) by_size: bool,
    /// Level per link of the fabric, 0 on those that the share does not name.
    pub(in crate::view) of: Vec<f64>,
}

/// Cell of a flow that is live, or that has left.
#[derive(Clone, Debug)]
struct Cell {
    /// Its place in the coflow; none once it has left.
    flow: u32,
    /// Links that the flow crosses.
    path: CellPath,
    size: f64,
    /// What is left of it where it is attached to no meter.
    target: f64,
    /// The restart whose levels its checkpoints are split by.
    split: u64,
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

/// A link of the coflow.
#[derive(Clone, Debug)]
struct Crossed {
    link: u32,
    /// All cells of flows that cross it, and of some that left, with the first meter of the link at the other end of
    /// their paths.
    cells: Vec<(u32, u32)>,
}

/// What a share says of a link, and what it said before.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    before: f64,
    now: f64,
}

/// Enters a cell at all links of its path, each with the other link, where there are two.
fn cross(links: &mut [Crossed], cell: u32, path: &[u32], shares: usize) {
    let ends = path.first().zip(path.last()).map_or(0, |(first, last)| first ^ last);
    for &link in path {
        links[link as usize].cells.push((cell, (ends ^ link) * shares as u32));
    }
}

/// The live flows of one coflow that cross links.
#[derive(Clone, Debug)]
pub(in crate::view) struct Paced {
    cells: Vec<Cell>,
    links: Vec<Crossed>,
    /// Per link of the fabric, its index among those of the coflow.
    index_of: Vec<u32>,
    long_paths: Vec<Vec<u32>>,
    shares: usize,
    by_size: bool,
    /// Per link and share.
    levels: Vec<Level>,
    /// Per link and share.
    meters: Vec<Meter>,
    /// Per meter, when the first of its checkpoints is reached; 0 where that is to be found again.
    ends: Vec<u64>,
    stale: Vec<u32>,
    /// Per cell and share, the meter it is attached to and the checkpoint there.
    limits: Vec<u32>,
    checks: Vec<f64>,
    /// Cells that were added since the last plan.
    fresh: Vec<u32>,
    /// Number of restarts so far.
    restarts: u64,
    /// How many cells have been left.
    gone: usize,
    /// Per flow of the coflow, its cell.
    places: Vec<u32>,
    /// Bytes sent in all by flows here and gone, at a reading of the clock, and per second from then on.
    attained: f64,
    since: u64,
    per_sec: f64,
    /// The first end of a flow, if that is known.
    end: u64,
    is_exact: bool,
    /// Memory of one restart: meters whose level is another, cells on the link of one of them.
    changed: Vec<u32>,
    switching: Vec<u32>,
}

impl Paced {
    /// State of a coflow that has no flows yet.
    pub(in crate::view) fn new(links: usize, clock: u64, attained: f64) -> Paced {
        Paced {
            cells: Vec::new(),
            links: Vec::new(),
            index_of: vec![NONE; links],
            long_paths: Vec::new(),
            shares: 1,
            by_size: false,
            levels: Vec::new(),
            meters: Vec::new(),
            ends: Vec::new(),
            stale: Vec::new(),
            limits: Vec::new(),
            checks: Vec::new(),
            fresh: Vec::new(),
            restarts: 0,
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
        let path: Vec<u32> =
            path.iter().flat_map(|path| path.iter()).map(|link| self.link_of(link.0)).collect();
        let Some((&first, &last)) = path.first().zip(path.last()) else { return self.places.push(NONE) };
        let place = self.cells.len() as u32;
        cross(&mut self.links, place, &path, self.shares);
        let path = if path.len() <= 2 {
            CellPath::Ends([first, last])
        } else {
            self.long_paths.push(path);
            CellPath::Long(self.long_paths.len() as u32 - 1)
        };
        let flow = self.places.len() as u32;
        self.places.push(place);
        let target = left / if self.by_size { size } else { 1.0 };
        self.add_cell(Cell { flow, path, size, target, split: 0 });
    }

    /// Adds a cell that stands still and is entered at its links.
    fn add_cell(&mut self, cell: Cell) {
        self.fresh.push(self.cells.len() as u32);
        self.cells.push(cell);
        self.limits.resize(self.limits.len() + self.shares, NONE);
        self.checks.resize(self.limits.len(), 0.0);
    }

    fn link_of(&mut self, link: u32) -> u32 {
        if self.index_of[link as usize] == NONE {
            self.index_of[link as usize] = self.links.len() as u32;
            self.links.push(Crossed { link, cells: Vec::new() });
            self.add_meters();
        }
        self.index_of[link as usize]
    }

    /// Adds meters up to the last link.
    fn add_meters(&mut self) {
        let meters = self.links.len() * self.shares;
        self.levels.resize(meters, Level::default());
        self.meters.resize(meters, Meter::new(self.since));
        self.ends.resize(meters, NEVER);
    }

    fn weight(&self, cell: &Cell) -> f64 {
        if self.by_size { cell.size } else { 1.0 }
    }

    fn place(&self, flow: u32) -> Option<usize> {
        self.places.get(flow as usize).filter(|&&place| place != NONE).map(|&place| place as usize)
    }

    /// Where limits and checkpoints of a cell stand.
    fn of_cell(&self, place: usize) -> std::ops::Range<usize> {
        place * self.shares..(place + 1) * self.shares
    }

    /// The meters a cell is attached to.
    fn meters_of(&self, place: usize) -> impl Iterator<Item = &Meter> {
        self.limits[self.of_cell(place)].iter().filter_map(|&meter| self.meters.get(meter as usize))
    }

    /// Amount a cell has left.
    fn left_at(&self, place: usize, clock: u64) -> f64 {
        self.cells[place].target - self.meters_of(place).map(|meter| meter.served(clock)).sum::<f64>()
    }

    /// Amount that moves of a cell per second.
    fn pace(&self, place: usize) -> f64 {
        self.meters_of(place).map(|meter| meter.level).sum()
    }

    /// When a cell has nothing left.
    fn end_of(&self, place: usize) -> u64 {
        if self.shares == 1 {
            return self.meters_of(place).next().map_or(NEVER, |meter| meter.end_of(self.checks[place]));
        }
        let pace = self.pace(place);
        if pace > 0.0 {
            end_after(self.since, self.left_at(place, self.since).max(0.0) / pace)
        } else {
            NEVER
        }
    }

    pub(in crate::view) fn left(&self, flow: u32, clock: u64) -> f64 {
        self.place(flow).map_or(0.0, |place| {
            let cell = &self.cells[place];
            let left = self.left_at(place, clock) * self.weight(cell);
            // Rounding of what was served makes nothing more than it was.
            left.min(cell.size).max(FLOOR_BYTES)
        })
    }

    pub(in crate::view) fn rate(&self, flow: u32) -> f64 {
        self.place(flow).map_or(0.0, |place| self.pace(place) * self.weight(&self.cells[place]))
    }

    /// Sum of the rates on a link that so many live flows cross. Where the link limits all of them, or has nothing for
    /// them, in every share, that is seen from its meters; else its cells are looked at.
    pub(in crate::view) fn rate_on(&self, link: LinkId, live: u32) -> f64 {
        let index = self.index_of[link.index()];
        let Some(crossed) = self.links.get(index as usize) else { return 0.0 };
        let of_link = index as usize * self.shares..(index as usize + 1) * self.shares;
        let (levels, meters) = (&self.levels[of_link.clone()], &self.meters[of_link]);
        let is_plain = |(level, meter): (&Level, &Meter)| level.now == 0.0 || meter.attached == live;
        if levels.iter().zip(meters).all(is_plain) {
            // A meter at level 0 adds nothing, whatever is attached to it.
            return meters.iter().map(|meter| meter.level * meter.weight).sum();
        }
        // Cells that were left are attached to no meter.
        let rate =
            |&(cell, _): &(u32, u32)| self.pace(cell as usize) * self.weight(&self.cells[cell as usize]);
        crossed.cells.iter().map(rate).sum()
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
        let Some(place) = self.place(flow) else { return };
        let bytes = bytes.max(FLOOR_BYTES);
        // What it has sent is its size less what is left: a correction of one is a correction of the other.
        self.attained += before - bytes;
        self.set_target(place, bytes / self.weight(&self.cells[place]), clock);
        self.is_exact = false;
    }

    /// Forgets a flow, which has moved all but `left` bytes.
    pub(in crate::view) fn leave(&mut self, flow: u32, left: f64) {
        let Some(place) = self.place(flow) else { return };
        let weight = self.weight(&self.cells[place]);
        // What it has moved since then is in the sum of rates no more.
        self.attained += self.left_at(place, self.since) * weight - left;
        self.per_sec -= self.pace(place) * weight;
        self.is_exact = false;
        for at in self.of_cell(place) {
            self.detach(at, weight);
        }
        self.cells[place].flow = NONE;
        self.places[flow as usize] = NONE;
        self.gone += 1;
    }

    /// Takes the meter from a cell under a share.
    fn detach(&mut self, at: usize, weight: f64) {
        let meter = std::mem::replace(&mut self.limits[at], NONE);
        if meter != NONE {
            self.meters[meter as usize].detach(weight);
            self.mark(meter);
        }
    }

    /// Lets the first checkpoint of a meter be found again.
    fn mark(&mut self, meter: u32) {
        if !std::mem::replace(&mut self.meters[meter as usize].is_stale, true) {
            self.stale.push(meter);
            self.ends[meter as usize] = 0;
        }
    }

    /// Sets what is left of a cell, and splits that over its meters.
    fn set_target(&mut self, place: usize, left: f64, clock: u64) {
        let (pace, shares) = (self.pace(place), self.shares as f64);
        let mut target = left;
        for at in self.of_cell(place) {
            let limit = self.limits[at];
            let Some(meter) = self.meters.get_mut(limit as usize) else { continue };
            // As the meters count now, so that all parts are done at the same time if no level changes.
            let part = if pace > 0.0 { meter.level / pace } else { 1.0 / shares };
            let served = meter.served(clock);
            target += served;
            self.checks[at] = served + left * part;
            meter.checks.push(Reverse((self.checks[at].to_bits(), place as u32)));
            self.mark(limit);
        }
        (self.cells[place].target, self.cells[place].split) = (target, self.restarts);
    }

    /// Whether an entry of a meter is the checkpoint of a cell that is attached to it.
    fn is_current(&self, meter: u32, &Reverse((check, place)): &Entry) -> bool {
        let at = place as usize * self.shares + meter as usize % self.shares;
        self.limits[at] == meter && self.checks[at].to_bits() == check
    }

    /// Finds sums and ends of everything that changed.
    fn settle_all(&mut self) {
        self.is_exact = false;
        self.settle();
        self.per_sec = self.meters.iter().map(|meter| meter.level * meter.weight).sum();
    }

    /// Finds the first end again, if flows left, were corrected or move at other rates.
    pub(in crate::view) fn settle(&mut self) {
        if self.is_exact {
            return;
        }
        self.is_exact = true;
        loop {
            self.find_checks();
            let end = self.ends.iter().copied().fold(NEVER, u64::min);
            self.end = end;
            if self.shares == 1 || end == NEVER {
                return;
            }
            let Some(meter) = self.ends.iter().position(|other| *other == end) else { return };
            let Some(&Reverse((_, place))) = self.meters[meter].checks.peek() else { return };
            self.end = self.end_of(place as usize);
            // Checkpoints that are split by the levels of now are reached when the flow ends, but for rounding.
            if self.end <= end || self.cells[place as usize].split == self.restarts {
                return;
            }
            let left = self.left_at(place as usize, self.since).max(0.0);
            self.set_target(place as usize, left, self.since);
        }
    }

    /// Finds the first checkpoint of every meter where that is to be found.
    fn find_checks(&mut self) {
        let mut stale = std::mem::take(&mut self.stale);
        for meter in stale.drain(..) {
            let mut checks = std::mem::take(&mut self.meters[meter as usize].checks);
            // Entries out of date are dropped only at the top; without this a meter whose first entry stays would collect them for ever.
            if checks.len() > 2 * self.meters[meter as usize].attached as usize + 16 {
                checks.retain(|entry| self.is_current(meter, entry));
            }
            while checks.peek().is_some_and(|entry| !self.is_current(meter, entry)) {
                checks.pop();
            }
            let first = checks.peek().map(|&Reverse((check, _))| f64::from_bits(check));
            let of = &mut self.meters[meter as usize];
            self.ends[meter as usize] = first.map_or(NEVER, |check| of.end_of(check));
            (of.checks, of.is_stale) = (checks, false);
        }
        self.stale = stale;
    }

    /// No flow ends before this.
    pub(in crate::view) fn first_end(&self) -> u64 {
        if self.is_exact {
            return self.end;
        }
        let live = (0..self.cells.len()).filter(|&place| self.cells[place].flow != NONE);
        live.map(|place| self.end_of(place)).min().unwrap_or(NEVER)
    }

    /// Adds the flows that have nothing left at a time, by index.
    pub(in crate::view) fn take_ends(&self, clock: u64, flows: &mut Vec<u32>) {
        if self.is_exact && self.end > clock {
            return;
        }
        for (meter, _) in (0u32..).zip(&self.ends).filter(|(_, end)| **end <= clock) {
            let of = &self.meters[meter as usize];
            let reached = |&&Reverse((check, _)): &&Entry| of.end_of(f64::from_bits(check)) <= clock;
            let current = of.checks.iter().filter(reached).filter(|entry| self.is_current(meter, entry));
            let ended = current.filter(|Reverse((_, place))| self.end_of(*place as usize) <= clock);
            flows.extend(ended.map(|Reverse((_, place))| self.cells[*place as usize].flow));
        }
        if flows.is_empty() && self.shares > 1 && self.first_end() <= clock {
            // Rounding has it that checkpoints are reached after the end.
            let ended = (0..self.cells.len()).filter(|&place| self.end_of(place) <= clock);
            flows.extend(ended.map(|place| self.cells[place].flow).filter(|&flow| flow != NONE));
        }
        // A flow has a checkpoint at every meter, and may stand twice in a heap.
        flows.sort_unstable();
        flows.dedup();
    }
}
