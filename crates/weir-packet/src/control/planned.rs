//! A flow at the rates that a coordinator planned for it.

use super::{Acked, Allowance, Control, Loss};
use crate::packet::SEGMENT_BYTES;
use crate::time::Picos;
use std::sync::Arc;
use weir_model::Rate;

/// In flight is at most what the rate explains in the round trip of an empty path and this time, as at Weir's agents: a
/// flow whose class gets nothing for a while leaves no queue behind that fills a buffer.
const QUEUEING: Picos = Picos::from_micros(500);
/// Fewer segments than these are always let go.
const LEAST_IN_FLIGHT: f64 = 2.0;

/// From when on which rate, of payload, until the plan ends; then what is left follows another control.
pub(crate) struct ByPlan {
    steps: Arc<[(Picos, Rate)]>,
    next: usize,
    rate: Rate,
    round_trip: Picos,
    end: Picos,
    ended: bool,
    after: Box<dyn Control>,
}

impl ByPlan {
    pub(crate) fn new(
        steps: Arc<[(Picos, Rate)]>,
        end: Picos,
        round_trip: Picos,
        after: Box<dyn Control>,
    ) -> ByPlan {
        ByPlan { steps, next: 0, rate: Rate::ZERO, round_trip, end, ended: false, after }
    }
}

/// What a flow may do at a rate of payload, on a path of this round trip.
pub(super) fn at_rate(rate: Rate, round_trip: Picos) -> Allowance {
    let rate = rate.bytes_per_sec();
    if rate <= 0.0 {
        return Allowance { window: 0.0, gap: Picos::ZERO };
    }
    let window = rate * (round_trip + QUEUEING).as_secs() / f64::from(SEGMENT_BYTES);
    // Planned rates are of payload: headers do not count.
    let gap = Picos::from_secs(f64::from(SEGMENT_BYTES) / rate);
    Allowance { window: window.max(LEAST_IN_FLIGHT), gap }
}

impl Control for ByPlan {
    fn allowance(&self) -> Allowance {
        if self.ended { self.after.allowance() } else { at_rate(self.rate, self.round_trip) }
    }
    fn next_change(&mut self, now: Picos) -> Option<Picos> {
        if now >= self.end {
            self.ended = true;
            return None;
        }
        while let Some(&(_, rate)) = self.steps.get(self.next).filter(|(from, _)| *from <= now) {
            self.rate = rate;
            self.next += 1;
        }
        // A step beyond the end never comes into force: the plan has lapsed by then.
        Some(self.steps.get(self.next).map_or(self.end, |(from, _)| (*from).min(self.end)))
    }
    fn on_ack(&mut self, acked: &Acked) {
        if self.ended {
            self.after.on_ack(acked);
        }
    }
    fn on_loss(&mut self, lost: &Loss) {
        if self.ended {
            self.after.on_loss(lost);
        }
    }
    fn on_timeout(&mut self, lost: &Loss, first: bool) {
        if self.ended {
            self.after.on_timeout(lost, first);
        }
    }
}
