//! Hosts that are to be stopped: they take no more blocks, and serve those they have until their coflows end.
//!
//! Whether a host is drained is its agent's to say, which remembers it, so it outlives both processes. A caller is answered
//! once the agent has said so.

use super::callers::Callers;
use super::network::label;
use super::state::{Coordinator, SessionId};
use crate::ids::HostNumber;
use std::collections::VecDeque;
use weir_model::{Span, Time};
use weir_proto::v1::coordinator_message::Kind;
use weir_proto::{limits, v1};

/// How long an agent may take to say that it is drained.
const DRAIN_LIMIT: Span = Span::from_millis(5_000);

/// What became of a call to drain a host.
#[derive(Clone, Debug, PartialEq)]
pub struct Drained {
    /// As given with the request.
    pub token: u64,
    /// What the host holds and serves still, or why it is not drained, in words.
    pub result: Result<v1::DrainReply, String>,
}

/// Calls that wait for their agents, each with what it wants, and answers.
#[derive(Debug, Default)]
pub(super) struct Drains {
    waiting: Callers<SessionId, bool>,
    answers: VecDeque<Drained>,
}

impl Drains {
    pub(super) fn next_due(&self) -> Option<Time> {
        self.waiting.next_due()
    }

    pub(super) fn give_up(&mut self, token: u64) {
        self.waiting.remove(token);
    }

    fn refuse(&mut self, token: u64, reason: String) {
        self.answers.push_back(Drained { token, result: Err(reason) });
    }
}

impl Coordinator {
    /// Has a host take no more blocks, or takes that back; answered through [`Coordinator::poll_output`].
    pub fn handle_drain(&mut self, now: Time, token: u64, request: &v1::DrainRequest) {
        let v1::DrainRequest { host, host_name, undo } = request;
        let host = HostNumber(*host);
        let number = if host_name.is_empty() { Some(host) } else { self.network.number_of(host_name) };
        let Some(&session) = number.and_then(|number| self.hosts.get(&number)) else {
            let host = label(host, host_name);
            return self.drains.refuse(token, format!("host {host} has no agent at this coordinator"));
        };
        if self.drains.waiting.len() >= limits::MAX_WAITING_OFFERS {
            return self
                .drains
                .refuse(token, "as many calls to drain hosts wait as may; ask again".to_owned());
        }
        self.drains.waiting.add(session, token, now + DRAIN_LIMIT, !undo);
        self.send(now, session, Kind::Drain(v1::Drain { on: !undo }));
    }

    /// An agent takes no more blocks, or takes them again.
    pub(super) fn handle_draining(&mut self, session: SessionId, on: bool) {
        let Some(agent) = self.agents.get_mut(&session) else { return };
        agent.draining = on;
        let (blocks, flows, host) = (agent.blocks, agent.flows.len() as u64, agent.host);
        // A call for the opposite waits for its own answer, which comes after this one.
        for token in self.drains.waiting.take_matching(&session, |&wanted| wanted == on) {
            let result = Ok(v1::DrainReply { name: self.network.name(host), blocks, flows });
            self.drains.answers.push_back(Drained { token, result });
        }
    }

    /// Whether receivers are to ask others first.
    pub(super) fn is_draining(&self, session: SessionId) -> bool {
        self.agents.get(&session).is_some_and(|agent| agent.draining)
    }

    /// The agent of a session answers nothing any more.
    pub(super) fn end_drains(&mut self, session: SessionId) {
        for (token, _) in self.drains.waiting.take(&session) {
            let gone = "the host's agent went away; ask again once it is back".to_owned();
            self.drains.refuse(token, gone);
        }
    }

    pub(super) fn expire_drains(&mut self, now: Time) {
        while let Some((token, _)) = self.drains.waiting.take_due(now) {
            let silent = "the host's agent does not answer, and may do it later all the same; `weir hosts` says what came of it. One \
                          of an older version never does";
            self.drains.refuse(token, silent.to_owned());
        }
    }

    pub(super) fn poll_drained(&mut self) -> Option<Drained> {
        self.drains.answers.pop_front()
    }
}
