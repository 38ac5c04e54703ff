//! Witnesses: agents that keep the note of a coflow so that its registration outlives the coordinator's process before
//! any receiver or sender takes part in it.
//!
//! # Problem
//! After a coordinator began anew, its agents come back one by one and say what they know. Were every agent that comes
//! given what the others before it knew, all would know, and journal, everything after a few restarts. Were none ever
//! given it, the notes would be gone once the hosts that had them were exchanged one after another.
//!
//! # Approach
//! A coflow that was registered here has its witnesses at once, or as soon as there are agents. One that agents told of
//! most likely has witnesses that are still to come: others are chosen only after these had time to, that is
//! [`ARRIVALS`] after the last word of an agent that introduces itself. An agent that comes back without a note that it
//! was given, because it has another spool or the note was lost on its way, is given it again. One that stays away for
//! [`PATIENCE`] counts no more, and others are given what it had.
//!
//! # Properties
//! * An agent that restarts within [`PATIENCE`] costs no other agent a line of its journal.
//! * Hosts that are exchanged one after another lose no note, as long as one of three that had it lives.

use super::state::{Coordinator, SessionId};
use crate::ids::HostNumber;
use crate::planted::{Defect, is_planted};
use std::collections::{BTreeMap, BTreeSet};
use weir_model::{CoflowId, Span, Time};

/// Agents that keep the note of a coflow.
const WITNESSES: usize = 3;
/// So long after one agent came, others that were only held up as it was are expected to be there too.
const ARRIVALS: Span = Span::from_millis(5_000);
/// And no longer than this after the first: one that introduces itself for ever holds up nothing else.
const ARRIVALS_LIMIT: Span = Span::from_millis(300_000);
/// So long an agent may be away before others are given what it kept.
const PATIENCE: Span = Span::from_millis(60_000);

/// Which coflows lack witnesses, and who has notes.
#[derive(Debug, Default)]
pub(super) struct Witnesses {
    /// Coflows whose note too few agents have.
    lacking: BTreeSet<CoflowId>,
    /// When witnesses are chosen for those that others registered, and when at the latest.
    due: Option<(Time, Time)>,
    /// Coflows whose notes a host has, as in their `knowing`.
    notes: BTreeMap<HostNumber, BTreeSet<CoflowId>>,
    /// Hosts with notes that have no agent, and since when.
    away: BTreeMap<HostNumber, Time>,
}

impl Witnesses {
    /// Agents could not come for so long: they have as much longer.
    pub(super) fn put_off(&mut self, gap: Span) {
        self.due = self.due.map(|(due, latest)| (due + gap, latest + gap));
    }

    /// A coflow has ended, of which these hosts had the note.
    pub(super) fn forget<'a>(&mut self, id: CoflowId, knowing: impl Iterator<Item = &'a HostNumber>) {
        self.lacking.remove(&id);
        for host in knowing {
            if let Some(notes) = self.notes.get_mut(host) {
                notes.remove(&id);
            }
        }
    }
}

impl Coordinator {
    /// A host has the note of a coflow, or will have it soon. False if that was known.
    pub(super) fn note_knowing(&mut self, host: HostNumber, id: CoflowId) -> bool {
        let Some(coflow) = self.coflows.get_mut(&id) else { return false };
        if !coflow.knowing.insert(host) {
            return false;
        }
        let known = coflow.knowing.len();
        self.witnesses.notes.entry(host).or_default().insert(id);
        self.note_witnesses(id, known);
        true
    }

    /// So many agents have the note of a coflow.
    fn note_witnesses(&mut self, id: CoflowId, known: usize) {
        if known < WITNESSES {
            self.witnesses.lacking.insert(id);
        } else {
            self.witnesses.lacking.remove(&id);
        }
    }

    /// Agents keep the note of a coflow, until enough do.
    pub(super) fn choose_witnesses(&mut self, id: CoflowId) {
        if is_planted(Defect::NoWitnesses) {
            return;
        }
        let Some(coflow) = self.coflows.get(&id) else { return };
        // Neighbouring ids have other witnesses, so that no agent keeps all.
        let first = (id.0 as usize).checked_rem(self.hosts.len()).unwrap_or(0);
        let (before, after) = (self.hosts.keys().take(first), self.hosts.keys().skip(first));
        let others = after.chain(before).filter(|host| !coflow.knowing.contains(host));
        let lacking = WITNESSES.saturating_sub(coflow.knowing.len());
        for host in others.take(lacking).copied().collect::<Vec<_>>() {
            self.takes_part(host, id);
        }
        let known = self.coflows.get(&id).map_or(0, |coflow| coflow.knowing.len());
        self.note_witnesses(id, known);
    }

    /// An agent has just come, and may be a witness of what too few others keep. `noted`: coflows that it has notes of.
    pub(super) fn become_witness(&mut self, now: Time, session: SessionId, noted: &BTreeSet<CoflowId>) {
        let Some(host) = self.agents.get(&session).map(|agent| agent.host) else { return };
        self.witnesses.away.remove(&host);
        let given = self.witnesses.notes.get(&host).into_iter().flatten();
        for id in given.filter(|id| !noted.contains(id)).copied().collect::<Vec<_>>() {
            self.tell_host(host, id);
        }
        let own = self.own_ids();
        let lacking: Vec<CoflowId> = self.witnesses.lacking.range(own).copied().collect();
        for id in lacking {
            self.takes_part(host, id);
        }
        self.expect_witnesses(now);
    }

    /// An agent introduces itself: others may be as late.
    pub(super) fn expect_witnesses(&mut self, now: Time) {
        if !self.witnesses.lacking.is_empty() {
            let (_, latest) = self.witnesses.due.unwrap_or((now, now + ARRIVALS_LIMIT));
            self.witnesses.due = Some((latest.min(now + ARRIVALS), latest));
        }
    }

    /// A host has no agent any more.
    pub(super) fn note_away(&mut self, now: Time, host: HostNumber) {
        self.witnesses.away.insert(host, now);
    }

    /// Agents that held notes before had time to come, and those that went had time to come back.
    pub(super) fn choose_late_witnesses(&mut self, now: Time) {
        if self.next_late_witnesses().is_some_and(|due| due <= now) {
            self.witnesses.due = None;
            let lacking: Vec<CoflowId> = self.witnesses.lacking.iter().copied().collect();
            lacking.into_iter().for_each(|id| self.choose_witnesses(id));
        }
        let heard_since = self.heard_since();
        let gone = |&since: &Time| since.max(heard_since) + PATIENCE <= now;
        let away = self.witnesses.away.iter().filter(|(_, since)| gone(since)).map(|(&host, _)| host);
        for host in away.collect::<Vec<_>>() {
            self.witnesses.away.remove(&host);
            let notes = self.witnesses.notes.remove(&host).unwrap_or_default();
            for id in &notes {
                if let Some(coflow) = self.coflows.get_mut(id) {
                    coflow.knowing.remove(&host);
                }
            }
            notes.into_iter().for_each(|id| self.choose_witnesses(id));
        }
    }

    /// When witnesses are chosen anew.
    pub(super) fn next_late_witnesses(&self) -> Option<Time> {
        self.witnesses.due.map(|(due, _)| due)
    }
}
