//! What agents are to hear of coflows, gathered until it goes out as few messages: notes, ends, and what is left to TCP.
//!
//! # Problem
//! A coordinator may have a hundred thousand coflows and a thousand agents. Telling every agent of every coflow in a
//! message of its own fills queues and journals, at the latest when all agents come back at once.
//!
//! # Approach
//! A coflow's note goes to the agents that take part in it (they hold a block of it or serve a flow), and to a few
//! witnesses (`witnesses.rs`). Whatever agents are to hear waits in their outbox until the events at hand were handled,
//! and goes out together. Ends of coflows go at once to those who know of the coflow, and to all others with their next
//! keepalive.

use super::state::{CoflowEntry, Coordinator, SessionId};
use crate::id_set::IdSet;
use crate::ids::HostNumber;
use crate::planted::{Defect, is_planted};
use crate::portions::Portion;
use std::collections::{BTreeSet, VecDeque};
use weir_model::{CoflowId, Time};
use weir_proto::v1::coordinator_message::Kind;
use weir_proto::{limits, v1};

/// Ended coflows that are remembered one by one for the next keepalives; an agent that lags further hears of all.
const MAX_ENDED_LOG: usize = 65_536;

/// What waits for one agent.
#[derive(Debug)]
pub(super) struct Outbox {
    pub(super) notes: BTreeSet<CoflowId>,
    pub(super) ended: IdSet,
    pub(super) bypassed: BTreeSet<CoflowId>,
    /// Ends of coflows that it heard of, counted in the log.
    heard: u64,
}

impl Outbox {
    pub(super) fn new(heard: u64) -> Outbox {
        Outbox { notes: BTreeSet::new(), ended: IdSet::default(), bypassed: BTreeSet::new(), heard }
    }
}

/// The latest coflows that ended, in order.
#[derive(Debug, Default)]
pub(super) struct EndedLog {
    latest: VecDeque<CoflowId>,
    /// Number of those that fell out of it.
    before: u64,
}

impl EndedLog {
    /// How many ended so far.
    pub(super) fn next(&self) -> u64 {
        self.before.saturating_add(self.latest.len() as u64)
    }

    fn push(&mut self, id: CoflowId) {
        if self.latest.len() == MAX_ENDED_LOG {
            self.latest.pop_front();
            self.before = self.before.saturating_add(1);
        }
        self.latest.push_back(id);
    }

    /// Coflows that ended after the first `heard` of them; `None` if they are not all remembered.
    fn since(&self, heard: u64) -> Option<impl Iterator<Item = CoflowId>> {
        let skipped = usize::try_from(heard.checked_sub(self.before)?).ok()?;
        Some(self.latest.iter().skip(skipped).copied())
    }
}

impl Coordinator {
    /// A host is to have the note of a coflow from now on.
    pub(super) fn takes_part(&mut self, host: HostNumber, id: CoflowId) {
        if self.note_knowing(host, id) {
            self.tell_host(host, id);
        }
    }

    /// A host hears what a later coordinator would need to know of a coflow. Of an adopted one nothing is known.
    pub(super) fn tell_host(&mut self, host: HostNumber, id: CoflowId) {
        if self.coflows.get(&id).is_none_or(|coflow| coflow.adopted) {
            return;
        }
        if let Some(&session) = self.hosts.get(&host)
            && let Some(agent) = self.agents.get_mut(&session)
        {
            agent.outbox.notes.insert(id);
            self.dues.hurry(session);
        }
    }

    /// A coflow's note changed: all who have it hear so.
    pub(super) fn tell_note(&mut self, id: CoflowId) {
        let knowing = self.coflows.get(&id).map(|coflow| coflow.knowing.clone()).unwrap_or_default();
        for host in knowing {
            self.tell_host(host, id);
        }
    }

    /// A coflow ended: those who know of it hear so at once, all others with their next keepalive. Of one that no agent told
    /// of, no agent with a session knows; agents that come later and know it hear so then. Unless there were too many to be told of.
    pub(super) fn tell_end(&mut self, id: CoflowId, known: Option<&CoflowEntry>) {
        if is_planted(Defect::EndNotTold) {
            return;
        }
        let all_are_known = !self.counters.contains_key("coflows_over_bound");
        if known.is_some() || self.is_own(id) || !all_are_known {
            self.ended_log.push(id);
        }
        self.witnesses.forget(id, known.iter().flat_map(|coflow| &coflow.knowing));
        for &host in known.iter().flat_map(|coflow| &coflow.knowing) {
            if let Some(&session) = self.hosts.get(&host) {
                self.tell_of_end(session, id);
            }
        }
    }

    /// An agent hears at once that a coflow has ended.
    pub(super) fn tell_of_end(&mut self, session: SessionId, id: CoflowId) {
        if let Some(agent) = self.agents.get_mut(&session) {
            agent.outbox.ended.insert(id);
            // What was to be said of it before is of no use to the agent now.
            agent.outbox.notes.remove(&id);
            agent.outbox.bypassed.remove(&id);
            self.dues.hurry(session);
        }
    }

    /// A host's agent leaves a coflow to TCP.
    pub(super) fn tell_bypassed(&mut self, host: HostNumber, id: CoflowId) {
        if let Some(&session) = self.hosts.get(&host)
            && let Some(agent) = self.agents.get_mut(&session)
            && agent.bypassed.insert(id)
        {
            agent.outbox.bypassed.insert(id);
            self.dues.hurry(session);
        }
    }

    /// Sends what is urgent.
    pub(super) fn flush(&mut self, now: Time) {
        let arrived =
            |session: &SessionId| self.agents.get(session).is_some_and(|agent| agent.arrival.is_none());
        for session in self.dues.urgent().filter(arrived).collect::<Vec<_>>() {
            self.empty_outbox(now, session);
        }
    }

    /// Sends all that waits for an agent, and ends of coflows that it has not heard of; false if there was nothing.
    pub(super) fn empty_outbox(&mut self, now: Time, session: SessionId) -> bool {
        let Some(agent) = self.agents.get_mut(&session) else { return false };
        let next = self.ended_log.next();
        match self.ended_log.since(agent.outbox.heard) {
            Some(latest) => latest.for_each(|id| _ = agent.outbox.ended.insert(id)),
            None => {
                for range in self.ended.ranges() {
                    agent.outbox.ended.insert_range(CoflowId(range.first), CoflowId(range.last));
                }
            }
        }
        let Outbox { notes, ended, bypassed, .. } = std::mem::replace(&mut agent.outbox, Outbox::new(next));
        self.dues.emptied(session);
        let latest_flow = agent.latest_flow;
        let notes: Vec<CoflowId> = notes.into_iter().collect();
        let bypassed: Vec<u64> = bypassed.into_iter().map(|coflow| coflow.0).collect();
        let any = !notes.is_empty() || !bypassed.is_empty() || ended.range_count() > 0;
        self.send_notes(now, session, &notes);
        let ranges: Vec<v1::IdRange> = ended.ranges().collect();
        for ranges in ranges.chunks(limits::MAX_ENTRIES_PER_MESSAGE) {
            self.send(now, session, Kind::CoflowsEnded(v1::CoflowsEnded { ranges: ranges.to_vec() }));
        }
        for ids in bypassed.chunks(limits::MAX_ENTRIES_PER_MESSAGE) {
            let plan = v1::Plan { bypassed: ids.to_vec(), latest_flow: latest_flow.0, ..v1::Plan::default() };
            self.send(now, session, Kind::Plan(plan));
        }
        any
    }

    fn send_notes(&mut self, now: Time, session: SessionId, ids: &[CoflowId]) {
        let (mut notes, mut portion) = (Vec::new(), Portion::of(limits::MAX_ENTRIES_PER_MESSAGE));
        for note in ids.iter().filter_map(|&id| self.note(now, id)).collect::<Vec<_>>() {
            if !portion.take(&note) {
                let notes = std::mem::take(&mut notes);
                self.send(now, session, Kind::CoflowNotes(v1::CoflowNotes { notes }));
                portion = Portion::of(limits::MAX_ENTRIES_PER_MESSAGE);
                portion.take(&note);
            }
            notes.push(note);
        }
        if !notes.is_empty() {
            self.send(now, session, Kind::CoflowNotes(v1::CoflowNotes { notes }));
        }
    }

    /// What a later coordinator would need to know of a coflow.
    fn note(&self, now: Time, id: CoflowId) -> Option<v1::CoflowNote> {
        let entry = self.coflows.get(&id)?;
        Some(v1::CoflowNote {
            coflow: id.0,
            options: Some(entry.options.clone()),
            age_ns: now.since(entry.registered).nanos(),
            sealed: entry.sealed,
            done_flows: 0,
            done_bytes: 0,
            moving_age_ns: 0,
            request_key: entry.request_key,
            refused: entry.refusal(),
            admitted: entry.is_admitted(),
        })
    }
}
