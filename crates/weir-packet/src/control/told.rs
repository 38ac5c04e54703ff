//! A flow at the rate that a coordinator says, anew as it likes.

use super::planned::at_rate;
use super::{Acked, Allowance, Control, Loss};
use crate::time::Picos;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use weir_model::Rate;

/// How often a flow looks what its rate is: what is said takes half of it on average to be heard, as plans of a coordinator take a
/// millisecond or so to be in force.
const LOOKS_EVERY: Picos = Picos::from_millis(1);

/// Rates, of payload, that others say while a flow moves; until the first, and at zero, it waits.
#[derive(Clone, Debug, Default)]
pub struct ToldRate(Arc<Mutex<VecDeque<(Picos, Rate)>>>);

impl ToldRate {
    /// The flow has this rate from then on; what is said later is heard later.
    pub fn say(&self, heard: Picos, rate: Rate) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back((heard, rate));
    }

    /// What was heard last by now. What was heard before is forgotten.
    pub fn get(&self, now: Picos) -> Rate {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while said.get(1).is_some_and(|(heard, _)| *heard <= now) {
            said.pop_front();
        }
        said.front().filter(|(heard, _)| *heard <= now).map_or(Rate::ZERO, |(_, rate)| *rate)
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
            self.rate = self.told.get(now);
            self.looks = now + LOOKS_EVERY;
        }
        Some(self.looks)
    }
    // Rates are the coordinator's to say, whatever is lost.
    fn on_ack(&mut self, _: &Acked) {}
    fn on_loss(&mut self, _: &Loss) {}
    fn on_timeout(&mut self, _: &Loss, _: bool) {}
}
