//! Coflows and blocks: registration, location, the end of a coflow.

use super::state::{CoflowEntry, Coordinator, SessionId};
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
        if request.request_key != 0 {
            self.request_keys.insert(request.request_key, coflow);
            if self.request_keys.len() > limits::MAX_LIVE_COFLOWS {
                self.request_keys.pop_first();
            }
        }
        self.coflows.insert(coflow, CoflowEntry { options, registered: now, ..CoflowEntry::default() });
        self.broadcast_note(now, coflow);
        Ok(coflow)
    }

    /// No more flows will join. False if the coflow is not known.
    pub fn handle_seal(&mut self, now: Time, coflow: u64) -> bool {
        let Some(entry) = self.coflows.get_mut(&coflow) else { return false };
        entry.sealed = true;
        self.broadcast_note(now, coflow);
        self.check_complete(now, coflow);
        true
    }

    /// Ends a coflow: agents drop its blocks and flows, and everyone who waits for a block is answered.
    pub fn handle_unregister(&mut self, now: Time, coflow: u64) -> Option<v1::CoflowRecord> {
        self.coflows.get(&coflow)?;
        self.advance(now);
        let record = self.record(now, coflow);
        let keys: Vec<u64> =
            self.flows.iter().filter(|(_, flow)| flow.coflow == coflow).map(|(&key, _)| key).collect();
        for key in keys {
            self.drop_flow(key);
            for agent in self.agents.values_mut() {
                agent.flows.remove(&key);
            }
        }
        self.coflows.remove(&coflow);
        let range = (coflow, String::new())..(coflow + 1, String::new());
        let blocks: Vec<_> = self.holders.range(range.clone()).map(|(key, _)| key.clone()).collect();
        for key in blocks {
            for host in self.holders.remove(&key).unwrap_or_default().into_keys() {
                if let Some(agent) = self.hosts.get(&host).and_then(|session| self.agents.get_mut(session)) {
                    agent.blocks = agent.blocks.saturating_sub(1);
                }
            }
        }
        let waited: Vec<_> = self.waiting.range(range).map(|(key, _)| key.clone()).collect();
        for key in waited {
            self.answer(&key);
        }
        let sessions: Vec<SessionId> = self.agents.keys().copied().collect();
        for session in sessions {
            let ended = v1::CoflowEnded { coflow };
            self.send(now, session, v1::coordinator_message::Kind::CoflowEnded(ended));
        }
        self.dirty = true;
        Some(record)
    }

    /// Where a block is; answered through [`Coordinator::poll_answer`] now or when it is put.
    pub fn handle_locate(&mut self, now: Time, token: u64, request: v1::LocateRequest) {
        let key = (request.coflow, request.block);
        let wait = Span::from_millis(request.wait_ms.min(limits::MAX_LOCATE_WAIT_MS));
        self.waiting.entry(key.clone()).or_default().push(Waiting { token, until: now + wait });
        if self.holders.contains_key(&key) || wait == Span::ZERO {
            self.answer(&key);
        }
    }

    /// The next reply to a `Locate`.
    pub fn poll_answer(&mut self) -> Option<Answer> {
        self.answers.pop_front()
    }

    pub(super) fn answer_waiting(&mut self, key: &(u64, String)) {
        if self.waiting.contains_key(key) {
            self.answer(key);
        }
    }

    /// Answers those whose time limit has passed.
    pub(super) fn expire_waiting(&mut self, now: Time) {
        for waiting in self.waiting.values_mut() {
            waiting.retain(|wait| {
                let keep = wait.until > now;
                if !keep {
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

    /// Holders least loaded with live flows come first, ties by host.
    fn answer(&mut self, key: &(u64, String)) {
        let mut holders: Vec<(usize, v1::Holder)> = Vec::new();
        for (host, &size) in self.holders.get(key).into_iter().flatten() {
            if let Some(agent) = self.hosts.get(host).and_then(|session| self.agents.get(session)) {
                let data_address = agent.data_address.clone();
                holders.push((agent.flows.len(), v1::Holder { host: *host, data_address, size }));
            }
        }
        holders.sort_by_key(|(load, holder)| (*load, holder.host));
        let holders: Vec<_> = holders.into_iter().map(|(_, holder)| holder).collect();
        for wait in self.waiting.remove(key).unwrap_or_default() {
            let reply = v1::LocateReply { holders: holders.clone() };
            self.answers.push_back(Answer { token: wait.token, reply });
        }
    }

    fn broadcast_note(&mut self, now: Time, coflow: u64) {
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
        };
        self.send(now, session, v1::coordinator_message::Kind::CoflowNote(note));
    }
}
