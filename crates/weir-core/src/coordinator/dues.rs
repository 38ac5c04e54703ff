//! What agents are due and when, so that time costs what it touches however many agents there are.

use super::state::{AgentEntry, SessionId};
use std::collections::BTreeSet;
use weir_model::Time;

/// Sessions by what they are due. Code that changes what is indexed here of an agent must say so here.
#[derive(Debug, Default)]
pub(super) struct Dues {
    /// By when they were last sent a message.
    told: BTreeSet<(Time, SessionId)>,
    /// By when they were last sent a plan that repeats everything. One that has no flows may be missing.
    planned: BTreeSet<(Time, SessionId)>,
    /// Sessions with something in the outbox that goes before the next keepalive.
    urgent: BTreeSet<SessionId>,
    /// Sessions whose Hello is not complete.
    arriving: BTreeSet<SessionId>,
}

impl Dues {
    /// A session began, with the first part of a Hello.
    pub(super) fn began(&mut self, session: SessionId, agent: &AgentEntry) {
        self.told.insert((agent.last_message, session));
        self.arriving.insert(session);
    }

    /// All parts of a session's Hello are there.
    pub(super) fn arrived(&mut self, session: SessionId) {
        self.arriving.remove(&session);
    }

    /// The session is over: nothing is due to it any more.
    pub(super) fn ended(&mut self, session: SessionId, agent: &AgentEntry) {
        self.told.remove(&(agent.last_message, session));
        if let Some(planned) = agent.planned {
            self.planned.remove(&(planned, session));
        }
        self.urgent.remove(&session);
        self.arriving.remove(&session);
    }

    /// A session is sent a message.
    pub(super) fn tell(&mut self, now: Time, session: SessionId, agent: &mut AgentEntry) {
        self.told.remove(&(agent.last_message, session));
        self.told.insert((now, session));
        agent.last_message = now;
    }

    /// It is sent a plan that repeats everything, or is due one.
    pub(super) fn plan(&mut self, planned: Option<Time>, session: SessionId, agent: &mut AgentEntry) {
        if let Some(before) = std::mem::replace(&mut agent.planned, planned) {
            self.planned.remove(&(before, session));
        }
        self.moves(session, agent);
    }

    /// A session's agent has a flow more.
    pub(super) fn moves(&mut self, session: SessionId, agent: &AgentEntry) {
        if let Some(planned) = agent.planned.filter(|_| !agent.flows.is_empty()) {
            self.planned.insert((planned, session));
        }
    }

    /// A session's agent has no flows, so no plan is to be repeated to it.
    pub(super) fn rests(&mut self, planned: Time, session: SessionId) {
        self.planned.remove(&(planned, session));
    }

    /// Something in its outbox cannot wait.
    pub(super) fn hurry(&mut self, session: SessionId) {
        self.urgent.insert(session);
    }

    /// A session's outbox is empty.
    pub(super) fn emptied(&mut self, session: SessionId) {
        self.urgent.remove(&session);
    }

    /// Sessions by when they were last sent a message, that which has waited longest first.
    pub(super) fn by_message(&self) -> impl Iterator<Item = (Time, SessionId)> {
        self.told.iter().copied()
    }
    /// Sessions by when they were last sent everything.
    pub(super) fn by_plan(&self) -> impl Iterator<Item = (Time, SessionId)> {
        self.planned.iter().copied()
    }
    /// Sessions with something that cannot wait.
    pub(super) fn urgent(&self) -> impl Iterator<Item = SessionId> {
        self.urgent.iter().copied()
    }
    /// Sessions whose Hello is not complete.
    pub(super) fn arriving(&self) -> impl Iterator<Item = SessionId> {
        self.arriving.iter().copied()
    }
}

#[cfg(test)]
impl super::Coordinator {
    /// What a look at all agents finds is what is kept by due.
    #[track_caller]
    pub(super) fn check_dues(&self) {
        let of = |due: &dyn Fn(&AgentEntry) -> bool| -> BTreeSet<SessionId> {
            self.agents.iter().filter(|(_, agent)| due(agent)).map(|(&session, _)| session).collect()
        };
        let told = self.agents.iter().map(|(&session, agent)| (agent.last_message, session));
        assert_eq!(self.dues.told, told.collect());
        assert_eq!(self.dues.arriving, of(&|agent| agent.arrival.is_some()));
        for &(planned, session) in &self.dues.planned {
            assert_eq!(self.agents.get(&session).and_then(|agent| agent.planned), Some(planned));
        }
        let planned: BTreeSet<SessionId> = self.dues.by_plan().map(|(_, session)| session).collect();
        let moving = of(&|agent| agent.planned.is_some() && !agent.flows.is_empty());
        assert!(planned.is_superset(&moving), "{planned:?} of {moving:?}");
        assert!(self.dues.urgent.iter().all(|session| self.agents.contains_key(session)));
    }
}
