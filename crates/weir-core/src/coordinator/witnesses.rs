//! Witnesses: agents that keep the note of a coflow so that its registration outlives the coordinator's process before
//! anybody takes part in it.
//!
//! # Problem
//! After a coordinator began anew, its agents come back one by one and say what they know. Were every agent that comes
//! given what the others before it knew, all would know, and journal, everything after a few restarts.
//!
//! # Approach
//! A coflow that was registered here has its witnesses at once, or as soon as there are agents. One that agents told of
//! most likely has witnesses that are still to come: others are chosen only after these had time to.

use super::state::{Coordinator, SessionId};
use std::collections::BTreeSet;
use weir_model::{Span, Time};

/// Agents that keep the note of a coflow.
const WITNESSES: usize = 3;
/// So long after the first agent that comes, the others are expected to be there too.
const ARRIVALS: Span = Span::from_nanos(5_000_000_000);

/// Which coflows lack witnesses.
#[derive(Debug, Default)]
pub(super) struct Witnesses {
    /// Coflows whose note too few agents have.
    lacking: BTreeSet<u64>,
    /// When witnesses are chosen for those that others registered.
    due: Option<Time>,
}

impl Witnesses {
    /// A coflow has ended.
    pub(super) fn forget(&mut self, id: u64) {
        self.lacking.remove(&id);
    }
}

impl Coordinator {
    /// So many agents have the note of a coflow.
    pub(super) fn note_witnesses(&mut self, id: u64, known: usize) {
        if known < WITNESSES {
            self.witnesses.lacking.insert(id);
        } else {
            self.witnesses.lacking.remove(&id);
        }
    }

    /// Agents keep the note of a coflow, until enough do.
    pub(super) fn choose_witnesses(&mut self, id: u64) {
        let Some(coflow) = self.coflows.get(&id) else { return };
        // Neighbouring ids have other witnesses, so that no agent keeps all.
        let first = (id as usize).checked_rem(self.hosts.len()).unwrap_or(0);
        let (before, after) = (self.hosts.keys().take(first), self.hosts.keys().skip(first));
        let others = after.chain(before).filter(|host| !coflow.knowing.contains(host));
        let lacking = WITNESSES.saturating_sub(coflow.knowing.len());
        for host in others.take(lacking).copied().collect::<Vec<_>>() {
            self.takes_part(host, id);
        }
        let known = self.coflows.get(&id).map_or(0, |coflow| coflow.knowing.len());
        self.note_witnesses(id, known);
    }

    /// An agent has just come, and may be a witness of what too few others keep.
    pub(super) fn become_witness(&mut self, now: Time, session: SessionId) {
        let Some(host) = self.agents.get(&session).map(|agent| agent.host) else { return };
        let own = self.own_ids();
        let lacking: Vec<u64> = self.witnesses.lacking.range(own).copied().collect();
        for id in lacking {
            self.takes_part(host, id);
        }
        if !self.witnesses.lacking.is_empty() {
            self.witnesses.due.get_or_insert(now + ARRIVALS);
        }
    }

    /// Whoever was to come had time to.
    pub(super) fn choose_late_witnesses(&mut self, now: Time) {
        if self.next_late_witnesses().is_some_and(|due| due <= now) {
            self.witnesses.due = None;
            let lacking: Vec<u64> = self.witnesses.lacking.iter().copied().collect();
            lacking.into_iter().for_each(|id| self.choose_witnesses(id));
        }
    }

    /// When witnesses are chosen anew.
    pub(super) fn next_late_witnesses(&self) -> Option<Time> {
        self.witnesses.due
    }
}
