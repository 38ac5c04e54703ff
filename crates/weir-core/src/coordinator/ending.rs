//! The end of a coflow, by its driver or with its lease.
//!
//! A receiver that has all of its last block acknowledges it to the agent, and its driver may unregister the coflow in
//! the same moment, before this process even heard that the flow began. So that the record has what receivers
//! acknowledged, unregistering asks the agents that take part in the coflow to tell first what they know. It waits for
//! them a quarter of a second at most.

use super::state::{Coordinator, SessionId, host_of};
use crate::ids::HostNumber;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use weir_model::{CoflowId, Span, Time};
use weir_proto::v1::coordinator_message::Kind;
use weir_proto::{limits, v1};

/// How long agents may take to say what became of a coflow's flows.
const SETTLE_LIMIT: Span = Span::from_millis(250);

/// The reply to an `Unregister`.
#[derive(Clone, Debug, PartialEq)]
pub struct Unregistered {
    /// As given with the request.
    pub token: u64,
    /// What was known of the coflow, if anything was.
    pub record: Option<v1::CoflowRecord>,
}

/// Coflows that are about to end.
#[derive(Debug, Default)]
pub(super) struct Endings {
    by_coflow: BTreeMap<CoflowId, Ending>,
    by_time: BTreeSet<(Time, CoflowId)>,
    done: VecDeque<Unregistered>,
}

#[derive(Debug)]
struct Ending {
    tokens: Vec<u64>,
    until: Time,
    /// Hosts that have not settled yet.
    awaited: BTreeSet<HostNumber>,
}

impl Endings {
    /// Agents could not be heard for so long: they have as much longer.
    pub(super) fn put_off(&mut self, gap: Span) {
        for (&id, ending) in &mut self.by_coflow {
            self.by_time.remove(&(ending.until, id));
            ending.until = ending.until + gap;
            self.by_time.insert((ending.until, id));
        }
    }
}

impl Coordinator {
    /// Ends a coflow: agents drop its blocks and flows, and every receiver that waits for a block is answered. Also one that
    /// this process does not know (yet): the agents of an earlier process's coflow may come back later. Answered
    /// through [`Coordinator::poll_output`].
    pub fn handle_unregister(&mut self, now: Time, token: u64, id: CoflowId) {
        if let Some(ending) = self.endings.by_coflow.get_mut(&id) {
            // A call repeated by its driver: both are answered when the first is, and agents are asked once.
            ending.tokens.push(token);
            return;
        }
        let knowing = self.coflows.get(&id).map(|coflow| coflow.knowing.clone()).unwrap_or_default();
        let sessions: BTreeMap<HostNumber, SessionId> =
            knowing.into_iter().filter_map(|host| Some((host, *self.hosts.get(&host)?))).collect();
        let awaited = sessions.keys().copied().collect();
        for session in sessions.into_values() {
            self.send(now, session, Kind::CoflowEnding(v1::CoflowEnding { coflow: id.0 }));
        }
        let until = now + SETTLE_LIMIT;
        self.endings.by_time.insert((until, id));
        self.endings.by_coflow.insert(id, Ending { tokens: vec![token], until, awaited });
        self.end_if_settled(now, id);
    }

    /// The next reply to an `Unregister`.
    pub(super) fn poll_unregistered(&mut self) -> Option<Unregistered> {
        self.endings.done.pop_front()
    }

    /// An agent has told all it knows of the flows of a coflow that is about to end.
    pub(super) fn handle_settled(&mut self, now: Time, session: SessionId, id: CoflowId) {
        let Some(host) = self.agents.get(&session).map(|agent| agent.host) else { return };
        if let Some(ending) = self.endings.by_coflow.get_mut(&id) {
            ending.awaited.remove(&host);
            self.end_if_settled(now, id);
        }
    }

    /// A host's agent is gone: no call waits for what it would say.
    pub(super) fn nobody_settles_at(&mut self, now: Time, host: HostNumber) {
        for ending in self.endings.by_coflow.values_mut() {
            ending.awaited.remove(&host);
        }
        for id in self.endings.by_coflow.keys().copied().collect::<Vec<_>>() {
            self.end_if_settled(now, id);
        }
    }

    /// Ends coflows whose agents took too long.
    pub(super) fn expire_endings(&mut self, now: Time) {
        while let Some(&(_, id)) = self.endings.by_time.first().filter(|&&(until, _)| until <= now) {
            self.count("unregistered_unsettled");
            self.finish_ending(now, id);
        }
    }

    /// When the first coflow that is about to end will have waited long enough.
    pub(super) fn next_ending(&self) -> Option<Time> {
        self.endings.by_time.first().map(|&(until, _)| until)
    }

    fn end_if_settled(&mut self, now: Time, id: CoflowId) {
        if self.endings.by_coflow.get(&id).is_some_and(|ending| ending.awaited.is_empty()) {
            self.finish_ending(now, id);
        }
    }

    fn finish_ending(&mut self, now: Time, id: CoflowId) {
        let Some(ending) = self.endings.by_coflow.remove(&id) else { return };
        self.endings.by_time.remove(&(ending.until, id));
        // Before the end, which forgets what the record is made of.
        let record = self.coflows.contains_key(&id).then(|| self.record(now, id));
        self.end(now, id);
        for token in ending.tokens {
            self.endings.done.push_back(Unregistered { token, record: record.clone() });
        }
    }

    /// Whether a coflow has ended. Of those of this process that is known; of others as far as agents or drivers told.
    pub(super) fn has_ended(&self, id: CoflowId) -> bool {
        let elsewhere = || self.ended_elsewhere.contains(id) || self.ended_unseen.contains(id);
        if self.is_own(id) { self.ended.contains(id) } else { elsewhere() }
    }

    /// Whether an id would be given by this process and was not yet: an agent that names it did not have it from a
    /// coordinator.
    pub(super) fn was_never_given(&self, id: CoflowId) -> bool {
        self.is_own(id) && id >= self.next_coflow
    }

    /// An agent named an id that was not given yet: it counts as ended, and is given to no driver.
    pub(super) fn void_if_never_given(&mut self, id: CoflowId) {
        if self.was_never_given(id) && self.ended.insert(id) {
            self.count("ids_named_before_they_were_given");
        }
    }

    /// Whether an id is one that this process gives.
    pub(super) fn is_own(&self, id: CoflowId) -> bool {
        self.own_ids().contains(&id)
    }

    /// Ids that this process gives. Those of earlier processes are anywhere else, for clocks may step back between two.
    pub(super) fn own_ids(&self) -> Range<CoflowId> {
        let first = self.config.first_coflow;
        let given = self.next_coflow.0.saturating_sub(first.0);
        let batches = (given / super::IDS_AT_ONCE).saturating_add(1);
        first..CoflowId(first.0.saturating_add(batches.saturating_mul(super::IDS_AT_ONCE)))
    }

    /// An agent says that coflows have ended. Of those that this process registered, it knows itself.
    pub(super) fn end_of_others(&mut self, now: Time, range: &v1::IdRange) {
        // From the wire: it may be no range.
        if range.last < range.first {
            return;
        }
        let (from, to) = (CoflowId(range.first), CoflowId(range.last));
        let live = self.coflows.range(from..=to).map(|(&id, _)| id);
        for id in live.filter(|&id| !self.is_own(id)).collect::<Vec<_>>() {
            self.end(now, id);
        }
        // Around the ids that are this process's own.
        let first = self.config.first_coflow;
        self.ended_elsewhere.insert_range(from, to.min(CoflowId(first.0.saturating_sub(1))));
        let mut own_end = self.next_coflow;
        while self.is_own(own_end) && own_end < CoflowId(u64::MAX) {
            let begun = own_end.0.saturating_sub(first.0) % super::IDS_AT_ONCE;
            own_end.0 = own_end.0.saturating_add(super::IDS_AT_ONCE.saturating_sub(begun));
        }
        self.ended_elsewhere.insert_range(from.max(own_end), to);
        self.ended_elsewhere.shrink_to(limits::MAX_ENDED_RANGES);
    }

    /// Ends a coflow of another process that no agent has told of: most likely its hosts are away, or no coordinator ever gave the
    /// id. There is nothing to plan anew.
    fn end_unseen(&mut self, now: Time, id: CoflowId) {
        if self.ended_unseen.range_count() < limits::MAX_UNSEEN_ENDS {
            self.ended_unseen.insert(id);
        } else {
            // If it was given and a host brings it back, it ends with its lease.
            self.count("ends_not_remembered");
        }
        self.answer_all_waiting(now, id);
        self.answer_awaited(id);
        self.tell_end(id, None);
    }

    /// Ends a coflow, known or not, unless it has ended already or its id was never given.
    pub(super) fn end(&mut self, now: Time, id: CoflowId) {
        if self.was_never_given(id) || self.has_ended(id) {
            return;
        }
        // Counted while the coflow is still known.
        self.note_end(now, id);
        if self.is_own(id) {
            self.ended.insert(id);
        } else if self.coflows.contains_key(&id) {
            self.ended_elsewhere.insert(id);
            self.ended_elsewhere.shrink_to(limits::MAX_ENDED_RANGES);
        } else {
            return self.end_unseen(now, id);
        }
        self.advance(now);
        let keys = self.coflows.get(&id).map(|coflow| coflow.flows.clone()).unwrap_or_default();
        for key in keys {
            self.drop_flow(key);
            let session = self.hosts.get(&host_of(key));
            if let Some(agent) = session.and_then(|session| self.agents.get_mut(session)) {
                agent.flows.remove(&key);
            }
        }
        self.disturb_senders();
        let known = self.coflows.remove(&id);
        if let Some(entry) = &known {
            for agent in entry.knowing.iter().filter_map(|host| self.hosts.get(host)) {
                self.agents.get_mut(agent).into_iter().for_each(|agent| _ = agent.bypassed.remove(&id));
            }
            self.request_keys.remove(&entry.request_key);
            self.forget_expected(id, entry.expected.len());
            if let super::readiness::Stage::Gathering(until) = entry.stage {
                self.gathering.remove(&(until, id));
            }
        }
        self.forget_blocks(id);
        self.answer_all_waiting(now, id);
        self.answer_awaited(id);
        self.tell_end(id, known.as_ref());
        self.want_plan(now);
    }
}
