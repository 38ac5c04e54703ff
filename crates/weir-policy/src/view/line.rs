//! Amounts that shrink at a constant rate, on the clock of a table (nanoseconds).

use weir_model::Span;

pub(super) const NANOS_PER_SEC: f64 = 1e9;
/// What is left of a flow that was predicted to be done but not yet reported so, at least (bytes).
/// Keeps a late report from turning into an infinite rate; no completion time depends on it.
pub(super) const FLOOR_BYTES: f64 = 1e-6;

/// Seconds between two readings of a table's clock.
#[inline]
pub(super) fn secs_between(since: u64, until: u64) -> f64 {
    (until - since) as f64 / NANOS_PER_SEC
}

/// The reading of the clock once work of so many seconds is done. Flows that should end together must not end
/// in two events because of rounding: between the two a policy might turn to another coflow, and what one flow
/// would have moved in a nanosecond would wait for as long as that takes.
pub(super) fn end_after(clock: u64, secs: f64) -> u64 {
    clock.saturating_add(Span::until_done(secs).nanos())
}

/// Bytes that shrink at a constant rate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Line {
    pub(super) left: f64,
    pub(super) per_sec: f64,
    pub(super) since: u64,
}

impl Line {
    #[inline]
    pub(super) fn at(&self, clock: u64) -> f64 {
        self.left - self.per_sec * secs_between(self.since, clock)
    }

    /// Bytes by which it shrinks in a second.
    #[inline]
    pub(super) fn per_sec(&self) -> f64 {
        self.per_sec
    }

    #[inline]
    pub(super) fn change(&mut self, clock: u64, bytes: f64, per_sec: f64) {
        self.left = self.at(clock) + bytes;
        self.per_sec += per_sec;
        self.since = clock;
    }
}

impl Line {
    /// The sum of two lines, from the later of both times on.
    pub(super) fn plus(&self, other: &Line) -> Line {
        let since = self.since.max(other.since);
        Line { left: self.at(since) + other.at(since), per_sec: self.per_sec + other.per_sec, since }
    }

    /// Whether this is less than a part of another, at the time of the later of both.
    pub(super) fn is_less(&self, part: f64, other: &Line) -> bool {
        let clock = self.since.max(other.since);
        self.at(clock) < part * other.at(clock)
    }

    /// Without one that is part of it.
    pub(super) fn minus(&self, other: &Line) -> Line {
        let since = self.since.max(other.since);
        Line { left: self.at(since) - other.at(since), per_sec: self.per_sec - other.per_sec, since }
    }
}
