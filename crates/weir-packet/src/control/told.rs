//! A flow at the rate that a coordinator says, anew as it likes.

use super::planned::at_rate;
use super::{Acked, Allowance, Control, Loss};
use crate::time::Picos;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_model::Rate;

/// How often a flow looks what its rate is: what is said takes half of it on average to be heard, as plans of a coordinator take a
/// millisecond or so to be in force.
const LOOKS_EVERY: Picos = Picos::from_millis(1);

/// A rate, of payload, that others say while a flow moves; until then, and at zero, it waits.
#[derive(Clone, Debug, Default)]
pub struct ToldRate(Arc<AtomicU64>);

impl ToldRate {
    /// The flow has this rate from now on.
    pub fn say(&self, rate: Rate) {
        self.0.store(rate.bytes_per_sec().to_bits(), Ordering::Relaxed);
    }

    /// What was said last.
    pub fn get(&self) -> Rate {
        Rate::from_bytes_per_sec(f64::from_bits(self.0.load(Ordering::Relaxed)))
    }
}

/// What a flow goes by.
pub(crate) struct ByToldRate {
    told: ToldRate,
    rate: Rate,
    /// When it looks again.
    looks: Picos,
    round_trip: Picos,
}

impl ByToldRate {
    pub(crate) fn new(told: ToldRate, round_trip: Picos) -> ByToldRate {
        ByToldRate { told, rate: Rate::ZERO, looks: Picos::ZERO, round_trip }
    }
}

impl Control for ByToldRate {
    fn allowance(&self) -> Allowance {
        at_rate(self.rate, self.round_trip)
    }
    fn next_change(&mut self, now: Picos) -> Option<Picos> {
        // Asked in between as well: then the event that is queued stays the next one.
        if now >= self.looks {
            self.rate = self.told.get();
            self.looks = now + LOOKS_EVERY;
        }
        Some(self.looks)
    }
    // Rates are the coordinator's to say, whatever is lost.
    fn on_ack(&mut self, _: &Acked) {}
    fn on_loss(&mut self, _: &Loss) {}
    fn on_timeout(&mut self, _: &Loss, _: bool) {}
}
