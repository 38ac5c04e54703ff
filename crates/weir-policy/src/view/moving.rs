//! What moves between two plans: coflows by their drain, flows by their grant, as lines over time. `advance.rs` moves the table by them.
//!
//! Rates are constant from one plan to the next, and most go on over many plans. So nothing is touched
//! while time passes but the clock: every amount is a straight line from the moment its rate last
//! changed, and so are the sums per link.

use super::line::{Line, NANOS_PER_SEC, end_after, secs_between};
use super::place::{FlowRef, Slot};

/// The part of a coflow that is left, at least, of what its drain should have moved but was not reported.
const LEAST_PART: f64 = 1.0 / (1u64 << 40) as f64;
/// Less than this is nothing where a flow is given a rate of its own: rates in proportion to what is left would have a
/// flow come ever nearer to its end, plan by plan. At 1 Gbit/s it takes 8 picoseconds.
const DUST_BYTES: f64 = 1e-3;
/// An end that never comes.
pub(super) const NEVER: u64 = u64::MAX;

/// A coflow that moves as a whole: after `secs` seconds from `since` nothing is left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drain {
    pub(super) since: u64,
    /// The coflow's scale then.
    pub(super) scale: f64,
    pub(super) secs: f64,
}

impl Drain {
    /// The part of it that is still left; a trace of it until its end is reported.
    #[inline]
    pub(super) fn part_left(&self, clock: u64) -> f64 {
        (1.0 - secs_between(self.since, clock) / self.secs).max(LEAST_PART)
    }

    /// What it is per second of what is left now.
    #[inline]
    pub(super) fn per_sec(&self, clock: u64) -> f64 {
        1.0 / (self.secs * self.part_left(clock))
    }
}

/// A flow with a grant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granted {
    pub(super) flow: FlowRef,
    pub(super) bytes_per_sec: f64,
    pub(super) line: Line,
    /// Whether the plan that is being adopted has a grant for it, too.
    pub(super) stays: bool,
}

/// Everything that moves by drains and grants, and a clock.
#[derive(Clone, Debug, Default)]
pub(super) struct Moving {
    /// Nanoseconds the table has been advanced in all.
    pub(super) clock: u64,
    pub(super) draining: Vec<(u64, Slot)>,
    /// Flows with a grant; places without one have no rate, and end never.
    pub(super) granted: Vec<Granted>,
    /// Parallel to `granted`: when nothing is left.
    pub(super) ends: Vec<u64>,
    pub(super) free: Vec<u32>,
    /// Nothing ends before this.
    pub(super) first_end: u64,
    /// Whether something ends then.
    pub(super) exact: bool,
}

impl Moving {
    /// What a granted flow has left.
    #[inline]
    pub(super) fn left(&self, place: u32) -> f64 {
        self.granted[place as usize].line.at(self.clock)
    }

    /// Whether nothing is left of a granted flow but what moves in a nanosecond.
    pub(super) fn is_due(&self, place: u32) -> bool {
        let left = self.left(place);
        // Times of ends are rounded to nanoseconds, so at its end a flow may have left what moves in one.
        left <= DUST_BYTES || left * NANOS_PER_SEC <= self.granted[place as usize].bytes_per_sec
    }

    /// What is left of a granted flow, as a line over time.
    pub(super) fn line(&self, place: u32) -> Line {
        self.granted[place as usize].line
    }

    pub(super) fn enter(&mut self, granted: Granted) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.granted.push(granted);
            self.ends.push(NEVER);
            self.granted.len() as u32 - 1
        });
        self.granted[place as usize] = granted;
        place
    }

    /// Forgets a granted flow.
    pub(super) fn leave(&mut self, place: u32) {
        self.ends[place as usize] = NEVER;
        self.granted[place as usize].bytes_per_sec = 0.0;
        self.free.push(place);
        self.exact = false;
    }

    pub(super) fn predict(&mut self, place: u32) {
        let line = &self.granted[place as usize].line;
        let left = line.at(self.clock);
        let end = if left > DUST_BYTES { end_after(self.clock, left / line.per_sec) } else { self.clock };
        self.ends[place as usize] = end;
        self.first_end = self.first_end.min(end);
        self.exact = false;
    }

    /// Forgets the drain of a coflow.
    pub(super) fn stop(&mut self, slot: Slot) {
        self.draining.retain(|&(_, other)| other != slot);
        self.exact = false;
    }

    pub(super) fn find_first_end(&self) -> u64 {
        let drains = self.draining.iter().map(|&(end, _)| end);
        drains.chain(self.ends.iter().copied()).min().unwrap_or(NEVER)
    }
}
