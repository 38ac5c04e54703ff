//! The window of TCP: slow start, congestion avoidance, halved by a loss (RFC 5681).

use super::{Acked, Allowance, Control, Loss};
use crate::time::Picos;

/// A window smaller than this is not halved further.
const LEAST_THRESHOLD: f64 = 2.0;

/// Reno's window, in segments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reno {
    pub(crate) window: f64,
    /// Slow start ends here.
    pub(crate) threshold: f64,
    /// Window and threshold before timeouts that nothing has explained yet.
    before_timeouts: Option<(f64, f64)>,
}

impl Reno {
    pub(crate) fn new(initial: f64) -> Reno {
        Reno { window: initial, threshold: f64::INFINITY, before_timeouts: None }
    }

    /// Grows by what was acknowledged: by as many segments in slow start, by one a round trip after it.
    #[inline]
    pub(crate) fn grow(&mut self, segments: u32) {
        // Only the first answer after timeouts can show that they were spurious; it has been judged before the window grows.
        self.before_timeouts = None;
        let mut segments = f64::from(segments);
        if self.window < self.threshold {
            // An acknowledgement of many segments at once does not carry slow start past its end.
            let slow = segments.min(self.threshold - self.window);
            self.window += slow;
            segments -= slow;
        }
        if segments > 0.0 {
            // RFC 5681, section 3.1: one segment a round trip, and never more than one for an acknowledgement.
            self.window += (segments / self.window).min(1.0);
        }
    }

    /// Shrinks to a share of the window, and goes on from there.
    pub(crate) fn shrink(&mut self, share: f64) {
        self.threshold = (self.window * share).max(LEAST_THRESHOLD);
        self.window = self.threshold;
    }

    /// Halves: what is in flight, and not the window that may not be full (RFC 5681, section 3.1). What limited transmit
    /// sent beyond the window does not count.
    pub(crate) fn halve(&mut self, flight: u32) {
        self.window = self.window.min(f64::from(flight));
        self.shrink(0.5);
    }

    /// Begins again. Of timeouts in a row the first alone says how much the network carries (RFC 5681, section 3.1).
    pub(crate) fn restart(&mut self, flight: u32, first: bool) {
        self.before_timeouts.get_or_insert((self.window, self.threshold));
        if first {
            self.threshold = (self.window.min(f64::from(flight)) / 2.0).max(LEAST_THRESHOLD);
        }
        self.window = 1.0;
    }

    /// Goes on as if the last timeouts had not been (RFC 4015).
    pub(crate) fn undo_restart(&mut self) {
        if let Some((window, threshold)) = self.before_timeouts.take() {
            (self.window, self.threshold) = (window, threshold);
        }
    }
}

impl Control for Reno {
    fn allowance(&self) -> Allowance {
        Allowance { window: self.window, gap: Picos::ZERO }
    }
    fn on_ack(&mut self, acked: &Acked) {
        if !acked.recovering {
            self.grow(acked.segments);
        }
    }
    fn on_loss(&mut self, lost: &Loss) {
        self.halve(lost.flight);
    }
    fn on_timeout(&mut self, lost: &Loss, first: bool) {
        self.restart(lost.flight, first);
    }
    fn on_spurious_timeout(&mut self) {
        self.undo_restart();
    }
}
