//! When plans came into force at the last agent that they concern, counted from the events that led to them.

use std::collections::BTreeMap;
use weir_model::{Span, Time};

/// What is known of one plan.
#[derive(Debug, Default)]
struct Round {
    /// When its last message so far arrived.
    last: Option<Time>,
    /// When the events were told that it is the first to count.
    events: Vec<Time>,
}

/// Plans by their number, and the events that wait for one.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    rounds: BTreeMap<u64, Round>,
    /// First flow of an agent's message of ends -> when it was sent.
    ends: BTreeMap<(u32, u64), Time>,
    /// Coflow -> when its last flow was told of.
    arrivals: BTreeMap<u64, Time>,
}

impl Rounds {
    pub(super) fn ended(&mut self, host: u32, flow: u64, now: Time) {
        self.ends.insert((host, flow), now);
    }

    pub(super) fn arrived(&mut self, coflow: u64, now: Time) {
        self.arrivals.insert(coflow, now);
    }

    /// A plan arrived at an agent's session. `whole` are the coflows that it counts with all their flows.
    pub(super) fn planned(
        &mut self,
        number: u64,
        host: u32,
        completed: u64,
        whole: impl Iterator<Item = u64>,
        now: Time,
    ) {
        let round = self.rounds.entry(number).or_default();
        round.last = Some(now);
        // A plan names the first flow whose end it is the first to count, and an agent's message of
        // ends is kept under its first flow. 0 is no flow: played agents count theirs from 1.
        round.events.extend(self.ends.remove(&(host, completed)));
        round.events.extend(whole.filter_map(|coflow| self.arrivals.remove(&coflow)));
    }

    /// Forgets the plans so far.
    pub(super) fn clear(&mut self) {
        // Events stay: the plans that count them are yet to come, and are measured where they come.
        self.rounds.clear();
    }

    /// Milliseconds from events to their plan's last arrival, ascending.
    pub(super) fn millis(&self) -> Vec<f64> {
        let of_round = |round: &Round| {
            let last = round.last.unwrap_or(Time::ZERO);
            round.events.iter().map(move |&event| last.since(event)).collect::<Vec<Span>>()
        };
        let mut millis: Vec<f64> =
            self.rounds.values().flat_map(of_round).map(|span| span.as_secs() * 1e3).collect();
        millis.sort_by(f64::total_cmp);
        millis
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_waits_for_the_last_message_of_its_plan() {
        let mut rounds = Rounds::default();
        let at = Time::from_millis;
        rounds.ended(3, 17, at(10));
        rounds.arrived(5, at(11));
        // Plan 1 counts neither.
        rounds.planned(1, 3, 0, [4].into_iter(), at(12));
        rounds.planned(2, 3, 17, [].into_iter(), at(13));
        rounds.planned(2, 9, 0, [5].into_iter(), at(15));
        rounds.planned(3, 9, 0, [5].into_iter(), at(90));
        assert_eq!(rounds.millis(), [4.0, 5.0]);
    }
}
