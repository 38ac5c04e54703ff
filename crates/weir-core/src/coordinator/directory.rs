//! Coflows and blocks: registration, location, the end of a coflow.

use super::readiness::Stage;
use super::state::{CoflowEntry, Coordinator, SessionId, host_of};
use weir_model::{Span, Time};
use weir_proto::{limits, v1};

/// Why a coflow was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// The coordinator holds as many coflows as it may.
    #[error("{max} coflows are live already; unregister some", max = limits::MAX_LIVE_COFLOWS)]
    TooMany,
    /// A value is outside its range.
    #[error("{0}")]
    Invalid(&'static str),
}

/// Why a coflow was not sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// It has ended, or its id was never given.
    #[error("coflow {0} is not registered")]
    Unknown(u64),
    /// Its id is of an earlier process of this coordinator, and no agent has told of it yet.
    #[error("coflow {0} is of an earlier coordinator process, and no agent has told of it yet")]
    NotYetKnown(u64),
}

/// The reply to a `Locate` that may have waited.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// As given with the request.
    pub token: u64,
    /// What to reply.
    pub reply: v1::LocateReply,
}

#[derive(Debug)]
pub(super) struct Waiting {
    token: u64,
    receiver: u32,
    until: Time,
}

impl Coordinator {
    /// Declares a coflow and tells the agents of it.
    pub fn handle_register(&mut self, now: Time, request: v1::RegisterRequest) -> Result<u64, RegisterError> {
        if let Some(&coflow) =
            self.request_keys.get(&request.request_key).filter(|_| request.request_key != 0)
        {
            return Ok(coflow);
        }
        let options = request.options.unwrap_or_default();
        if options.weight < 0.0 || !options.weight.is_finite() {
            return Err(RegisterError::Invalid("the weight of a coflow must be a finite number above 0"));
        }
        if self.coflows.len() >= limits::MAX_LIVE_COFLOWS {
            return Err(RegisterError::TooMany);
        }
        let coflow = self.next_coflow;
        self.next_coflow += 1;
        let request_key = request.request_key;
        if request_key != 0 {
            self.request_keys.insert(request_key, coflow);
        }
        let entry = CoflowEntry { options, request_key, registered: now, ..CoflowEntry::default() };
        self.coflows.insert(coflow, entry);
        self.inherit(coflow);
        self.broadcast_note(now, coflow);
        Ok(coflow)
    }

    /// No more flows will join.
    pub fn handle_seal(&mut self, now: Time, coflow: u64) -> Result<(), SealError> {
        let Some(entry) = self.coflows.get_mut(&coflow) else {
            let earlier = coflow < self.config.first_coflow && !self.ended.contains(&coflow);
            return Err(if earlier { SealError::NotYetKnown(coflow) } else { SealError::Unknown(coflow) });
        };
        entry.sealed = true;
        self.stop_gathering(now, coflow);
        self.broadcast_note(now, coflow);
        self.check_complete(now, coflow);
        Ok(())
    }

    /// Ends a coflow: agents drop its blocks and flows, and everyone who waits for a block is answered.
    /// Also one that this process does not know (yet): the agents of an earlier process's coflow may come
    /// back later. `None` then.
    pub fn handle_unregister(&mut self, now: Time, coflow: u64) -> Option<v1::CoflowRecord> {
        let record = self.coflows.contains_key(&coflow).then(|| self.record(now, coflow));
        self.end(now, coflow);
        if record.is_none() && self.ended.contains(&coflow) {
            self.tell_all_of_end(now, coflow);
        }
        record
    }

    /// Ends a coflow, known or not, unless it has ended already or its id was never given.
    pub(super) fn end(&mut self, now: Time, coflow: u64) {
        if coflow >= self.next_coflow && !self.coflows.contains_key(&coflow) {
            return;
        }
        if !self.ended.insert(coflow) {
            return;
        }
        if self.ended.len() > limits::MAX_ENDED_COFLOWS {
            self.ended.pop_first();
        }
        self.advance(now);
        let keys: Vec<u64> =
            self.flows.iter().filter(|(_, flow)| flow.coflow == coflow).map(|(&key, _)| key).collect();
        for key in keys {
            self.drop_flow(key);
            let session = self.hosts.get(&host_of(key));
            if let Some(agent) = session.and_then(|session| self.agents.get_mut(session)) {
                agent.flows.remove(&key);
            }
        }
        for agent in self.agents.values_mut() {
            agent.bypassed.remove(&coflow);
        }
        let known = self.coflows.remove(&coflow);
        if let Some(entry) = &known {
            self.request_keys.remove(&entry.request_key);
            if let Stage::Gathering(until) = entry.stage {
                self.gathering.remove(&(until, coflow));
            }
        }
        let range = (coflow, String::new())..(coflow + 1, String::new());
        let blocks: Vec<_> = self.holders.range(range).map(|(key, _)| key.clone()).collect();
        let held = !blocks.is_empty();
        for key in blocks {
            for host in self.holders.remove(&key).unwrap_or_default().into_keys() {
                if let Some(agent) = self.hosts.get(&host).and_then(|session| self.agents.get_mut(session)) {
                    agent.blocks = agent.blocks.saturating_sub(1);
                }
            }
        }
        self.answer_all_waiting(now, coflow);
        self.answer_awaited(coflow);
        if known.is_some() || held {
            self.tell_all_of_end(now, coflow);
        }
        self.want_plan(now);
    }

    fn tell_all_of_end(&mut self, now: Time, coflow: u64) {
        let sessions: Vec<SessionId> = self.agents.keys().copied().collect();
        for session in sessions {
            self.tell_of_end(now, session, coflow);
        }
    }

    pub(super) fn tell_of_end(&mut self, now: Time, session: SessionId, coflow: u64) {
        let ended = v1::CoflowEnded { coflow };
        self.send(now, session, v1::coordinator_message::Kind::CoflowEnded(ended));
    }

    /// Where a block is; answered through [`Coordinator::poll_answer`] now or when it is put.
    pub fn handle_locate(&mut self, now: Time, token: u64, request: v1::LocateRequest) {
        let key = (request.coflow, request.block);
        let wait = Span::from_millis(request.wait_ms.min(limits::MAX_LOCATE_WAIT_MS));
        let full = self.waiting_count >= limits::MAX_WAITING_LOCATES;
        if full {
            self.count("locates_not_waited_for");
        }
        self.waiting.entry(key.clone()).or_default().push(Waiting {
            token,
            receiver: request.host,
            until: now + wait,
        });
        self.waiting_count += 1;
        let stopped = self.coflows.get(&key.0).is_some_and(|coflow| !coflow.stopped().is_empty());
        let known = stopped || self.holders.contains_key(&key) || self.ended.contains(&key.0);
        if known || full || wait == Span::ZERO {
            self.answer(now, &key);
        }
    }

    /// The next reply to a `Locate`.
    pub fn poll_answer(&mut self) -> Option<Answer> {
        self.answers.pop_front()
    }

    pub(super) fn answer_waiting(&mut self, now: Time, key: &(u64, String)) {
        if self.waiting.contains_key(key) {
            self.answer(now, key);
        }
    }

    /// Answers those whose time limit has passed.
    pub(super) fn expire_waiting(&mut self, now: Time) {
        for waiting in self.waiting.values_mut() {
            waiting.retain(|wait| {
                let keep = wait.until > now;
                if !keep {
                    self.waiting_count -= 1;
                    let reply = v1::LocateReply::default();
                    self.answers.push_back(Answer { token: wait.token, reply });
                }
                keep
            });
        }
        self.waiting.retain(|_, waiting| !waiting.is_empty());
    }

    pub(super) fn next_expiry(&self) -> Option<Time> {
        self.waiting.values().flatten().map(|wait| wait.until).min()
    }

    /// Answers all who wait for any block of a coflow.
    pub(super) fn answer_all_waiting(&mut self, now: Time, coflow: u64) {
        let range = (coflow, String::new())..(coflow + 1, String::new());
        let waited: Vec<_> = self.waiting.range(range).map(|(key, _)| key.clone()).collect();
        for key in waited {
            self.answer(now, &key);
        }
    }

    /// Answers all who wait for a block.
    fn answer(&mut self, now: Time, key: &(u64, String)) {
        self.advance(now);
        let ended = self.ended.contains(&key.0);
        let refused = self.coflows.get(&key.0).map(CoflowEntry::stopped).unwrap_or_default();
        for wait in self.waiting.remove(key).unwrap_or_default() {
            self.waiting_count -= 1;
            let holders =
                if refused.is_empty() { self.holders_for(now, key, wait.receiver) } else { Vec::new() };
            let reply = v1::LocateReply { holders, ended, refused: refused.clone() };
            self.answers.push_back(Answer { token: wait.token, reply });
        }
    }

    pub(super) fn broadcast_note(&mut self, now: Time, coflow: u64) {
        let sessions: Vec<SessionId> = self.agents.keys().copied().collect();
        for session in sessions {
            self.send_note(now, session, coflow);
        }
    }

    /// Gives an agent what a later coordinator would need to know of a coflow.
    pub(super) fn send_note(&mut self, now: Time, session: SessionId, coflow: u64) {
        let Some(entry) = self.coflows.get(&coflow) else { return };
        let note = v1::CoflowNote {
            coflow,
            options: Some(entry.options.clone()),
            age_ns: now.since(entry.registered).nanos(),
            sealed: entry.sealed,
            done_flows: 0,
            done_bytes: 0,
            moving_age_ns: 0,
            request_key: entry.request_key,
            refused: entry.refusal(),
        };
        self.send(now, session, v1::coordinator_message::Kind::CoflowNote(note));
    }
}
