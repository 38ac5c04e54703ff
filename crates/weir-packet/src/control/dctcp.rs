//! DCTCP (Alizadeh et al., SIGCOMM 2010; RFC 8257), and D2TCP (Vamanan et al., SIGCOMM 2012), which is DCTCP with an
//! exponent for urgency.

use super::reno::Reno;
use super::{Acked, Allowance, Control, Decided, Loss, WindowEnded};
use crate::time::Picos;

/// What is still assumed of the network before the first window: RFC 8257, section 3.3, begins at 1.
const FIRST_ALPHA: f64 = 1.0;
/// D2TCP: the window's average over its sawtooth, as a share of its peak (section 3.2).
const AVERAGE_OF_SAWTOOTH: f64 = 0.75;
/// D2TCP: bounds of the urgency (section 3.2).
const URGENCY: (f64, f64) = (0.5, 2.0);

/// What makes a flow more or less urgent than others (D2TCP).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Urgency {
    pub(crate) deadline: Picos,
}

impl Urgency {
    /// `d`: round trips that are needed at this window over those that are left, within bounds.
    fn exponent(self, window: f64, acked: &Acked) -> f64 {
        let needed = f64::from(acked.left) / (AVERAGE_OF_SAWTOOTH * window) * acked.smoothed_rtt.as_secs();
        let left = self.deadline.since(acked.now).as_secs();
        // A deadline that has passed makes a flow as urgent as can be.
        if left <= 0.0 { URGENCY.1 } else { (needed / left).clamp(URGENCY.0, URGENCY.1) }
    }
}

/// DCTCP's window: shrinks by half the share of marked segments, once a round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dctcp {
    reno: Reno,
    alpha: f64,
    gain: f64,
    acked: u32,
    marked: u32,
    /// Segments before this one were sent before the window was last reduced: their marks and losses are no news.
    reduced_at: Option<u32>,
    urgency: Option<Urgency>,
    /// Segments acknowledged and marked in the window that ended last, until that was asked for.
    ended: Option<(u32, u32)>,
}

impl Dctcp {
    /// `gain` is the weight of the newest round in `alpha`, 1/16 in the paper.
    pub(crate) fn new(initial: f64, gain: f64, urgency: Option<Urgency>) -> Dctcp {
        Dctcp {
            reno: Reno::new(initial),
            alpha: FIRST_ALPHA,
            gain,
            acked: 0,
            marked: 0,
            reduced_at: None,
            urgency,
            ended: None,
        }
    }

    /// The window was reduced, and no more is acknowledged than had been sent until then.
    fn has_reduced(&self, unacked: u32) -> bool {
        self.reduced_at.is_some_and(|reduced_at| unacked <= reduced_at)
    }
}

impl Control for Dctcp {
    fn allowance(&self) -> Allowance {
        Allowance { window: self.reno.window, gap: Picos::ZERO }
    }

    fn on_ack(&mut self, acked: &Acked) {
        self.acked += acked.segments;
        if acked.marked {
            self.marked += acked.segments;
        }
        if acked.round_over {
            let share = f64::from(self.marked) / f64::from(self.acked.max(1));
            // RFC 8257, section 3.3: alpha = (1 - g) alpha + g M, with M counted in segments and not in bytes.
            self.alpha += self.gain * (share - self.alpha);
            self.ended = Some((self.acked, self.marked));
            (self.acked, self.marked) = (0, 0);
        }
        let recovers = self.has_reduced(acked.unacked);
        if acked.marked && !recovers {
            let exponent = self.urgency.map_or(1.0, |urgency| urgency.exponent(self.reno.window, acked));
            // D2TCP's penalty is alpha^d, and cuts half its value off the window; DCTCP is d = 1.
            self.reno.shrink(1.0 - self.alpha.powf(exponent) / 2.0);
            // One cut for each window: marks of segments sent before this one answer the same congestion.
            self.reduced_at = Some(acked.sent);
        } else if !recovers && !acked.recovering {
            self.reno.grow(acked.segments);
        }
    }

    /// A window that marks have cut is not cut again for losses in it (RFC 3168, section 6.1.2), nor the other way.
    fn on_loss(&mut self, lost: &Loss) {
        if !self.has_reduced(lost.unacked) {
            self.reno.halve(lost.flight);
            self.reduced_at = Some(lost.sent);
        }
    }
    fn on_timeout(&mut self, lost: &Loss, first: bool) {
        self.reno.restart(lost.flight, first);
        (self.acked, self.marked, self.reduced_at) = (0, 0, None);
    }
    fn on_spurious_timeout(&mut self) {
        self.reno.undo_restart();
    }
    fn take_window(&mut self) -> Option<WindowEnded> {
        let (acked, marked) = self.ended.take()?;
        Some(WindowEnded { acked, marked, decided: Decided::Alpha(self.alpha) })
    }
}
