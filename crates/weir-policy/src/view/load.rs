//! What one link has to carry for one coflow.

use super::line::Line;

/// A sum that one change leaves with less than this part is computed anew: what rounding added to it when
/// it was large may be more than what is left.
const CANCELLED: f64 = 1e-4;

/// What a link has to carry for a coflow.
#[derive(Clone, Debug, Default)]
pub(super) struct Load {
    /// Sum of the bases of its flows.
    pub(super) base: f64,
    /// Sum of its flows with a grant.
    pub(super) granted: Line,
    /// Number of its flows with a grant.
    pub(super) grants: u32,
    /// Number of live flows, those with a grant included.
    pub(super) flows: u32,
}

impl Load {
    /// Takes from the sum of bases; true if hardly anything is left of what should not be 0.
    pub(super) fn take(&mut self, base: f64) -> bool {
        let left = self.base - base;
        // All flows have a grant, so the base is exactly 0, whatever rounding left of it.
        let none = self.grants == self.flows;
        let cancelled = !none && left < self.base * CANCELLED;
        self.base = if none { 0.0 } else { left };
        cancelled
    }

    /// Takes a flow out of the sum of those with a grant; true if hardly anything is left of it.
    pub(super) fn end_grant(&mut self, line: &Line) -> bool {
        self.grants -= 1;
        let rest = self.granted.minus(line);
        let cancelled = self.grants > 0 && rest.is_less(CANCELLED, &self.granted);
        self.granted = if self.grants == 0 { Line::default() } else { rest };
        cancelled
    }

    pub(super) fn add_granted(&mut self, line: &Line) {
        self.grants += 1;
        self.granted = if self.grants == 1 { *line } else { self.granted.plus(line) };
    }
}
