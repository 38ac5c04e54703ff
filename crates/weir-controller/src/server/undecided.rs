//! Whether decisions follow what relays tell.

use crate::decision::Decision;
use crate::records::State;
use weir_model::{Span, Time};

/// So long a state with coflows may wait for any decision before that is worth a warning.
const PATIENCE: Span = Span::from_millis(10_000);

/// Since when no decision came, and whether that was told.
#[derive(Debug, Default)]
pub(super) struct Undecided {
    since: Option<Time>,
    /// Number of the last decision; 0: none.
    number: u64,
    is_told: bool,
    warning: Option<String>,
}

impl Undecided {
    /// There is a state, and the last decision.
    pub(super) fn note(&mut self, now: Time, epoch: u64, state: &State, decision: Option<&Decision>) {
        let number = decision.map_or(0, |decision| decision.number);
        if number > self.number || state.coflows.is_empty() {
            if self.is_told && number > self.number {
                self.warning = Some("decisions come again".to_owned());
            }
            (self.since, self.is_told) = (None, false);
        }
        self.number = self.number.max(number);
        if !state.coflows.is_empty() && decision.is_none_or(|decision| decision.proposal.epoch < epoch) {
            self.since.get_or_insert(now);
        }
    }

    /// What is to be said, once.
    pub(super) fn poll(&mut self, now: Time) -> Option<String> {
        if !self.is_told && self.since.is_some_and(|since| since + PATIENCE <= now) {
            self.is_told = true;
            self.warning = Some(format!(
                "no decision for {} s on what relays told: no decision maker answers. Relays keep the rules they have, and new \
                 coflows go directly and last. Start one (weir controller decide --store ...), or look at its log",
                PATIENCE.as_secs()
            ));
        }
        self.warning.take()
    }
}
