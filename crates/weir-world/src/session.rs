//! Sessions between agents and coordinators: two streams in order, which may be cut.

use crate::coordinator::WORDS_UNDER_WAY;
use crate::events::Event;
use crate::world::World;
use weir_core::coordinator::SessionId;
use weir_model::{Span, Time};
use weir_proto::v1::{self, coordinator_message::Kind};

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) host: u32,
    pub(crate) life: u64,
    /// Of the coordinator that it is with.
    pub(crate) coordinator: u64,
    /// Nothing arrives any more.
    pub(crate) is_cut: bool,
    /// The agent heard so, and could say from then on what it holds.
    accepted: Option<Time>,
    /// What was said until then upward comes then.
    stalled_until: Time,
    up: Time,
    down: Time,
}

impl World {
    /// An agent without a session tries to get one.
    pub(crate) fn connect(&mut self, host: u32, life: u64) {
        let side = &self.hosts[host as usize];
        if side.life != life || side.agent.is_none() || side.session.is_some() {
            return;
        }
        let delay = self.delay();
        self.later(delay, Event::AskTerms { host, life });
    }

    /// The coordinator has known for a while what an agent said a while ago.
    pub(crate) fn has_told(&self, host: u32) -> bool {
        let session = self.hosts[host as usize].session.and_then(|id| self.sessions.get(&id));
        session.filter(|session| !session.is_cut).is_some_and(|session| {
            let known = session.accepted.map(|accepted| accepted.max(session.stalled_until));
            known.is_some_and(|known| known + WORDS_UNDER_WAY <= self.now)
        })
    }

    /// It does so again after a while.
    pub(crate) fn connect_later(&mut self, host: u32) {
        let life = self.hosts[host as usize].life;
        let after = self.millis(20, 120);
        self.later(after, Event::Connect { host, life });
    }

    pub(crate) fn give_terms(&mut self, host: u32, life: u64) {
        let Some(core) = &self.coordinator.core else {
            if self.hosts[host as usize].life == life {
                self.connect_later(host);
            }
            return;
        };
        let (terms, coordinator) = (core.terms(), self.coordinator.life);
        let delay = self.delay();
        self.later(delay, Event::Terms { host, life, terms, coordinator });
    }

    pub(crate) fn begin_session(&mut self, host: u32, life: u64, terms: v1::TermsReply, coordinator: u64) {
        let id = SessionId(self.number());
        let (at, side) = (self.now, &mut self.hosts[host as usize]);
        let now = side.now(at);
        let Some(agent) = side.agent.as_mut().filter(|_| side.life == life && side.session.is_none()) else {
            return;
        };
        agent.handle_terms(now, terms);
        agent.handle_session_up(now);
        side.session = Some(id);
        let session = Session {
            host,
            life,
            coordinator,
            is_cut: false,
            accepted: None,
            stalled_until: at,
            up: at,
            down: at,
        };
        self.sessions.insert(id, session);
        if self.coordinator.core.is_none() || self.coordinator.life != coordinator {
            // The coordinator's process that gave these terms is gone: the stream leads nowhere.
            self.cut(id, None, false);
        }
        self.settle_agent(host);
    }

    /// An agent says something.
    pub(crate) fn say_upward(&mut self, host: u32, message: v1::AgentMessage) {
        let Some(id) = self.hosts[host as usize].session else { return };
        let at = self.now + self.delay();
        let Some(session) = self.sessions.get_mut(&id) else { return };
        // A stream keeps its order: nothing comes before what was said earlier.
        session.up = session.up.max(at);
        self.queue.push(session.up, Event::Upward { session: id, message });
    }

    /// The coordinator says something.
    pub(crate) fn say_downward(&mut self, id: SessionId, message: v1::CoordinatorMessage) {
        let at = self.now + self.delay();
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.down = session.down.max(at);
        self.queue.push(session.down, Event::Downward { session: id, message: Box::new(message) });
    }

    pub(crate) fn hear_agent(&mut self, id: SessionId, message: v1::AgentMessage) {
        let Some(session) = self.sessions.get(&id) else { return };
        // What was said to an earlier process of the coordinator is lost with that process.
        if session.is_cut || session.coordinator != self.coordinator.life {
            return;
        }
        let now = self.coordinator.now(self.now);
        let Some(core) = &mut self.coordinator.core else { return };
        self.report.messages += 1;
        let first = message.events.first().and_then(|event| event.kind.clone());
        if let Some(v1::agent_event::Kind::Hello(hello)) = first {
            if core.handle_hello(now, id, hello).is_err() {
                // The coordinator took no session, and so has none to lose.
                self.cut(id, Some(Event::Refused { session: id }), false);
            }
        } else {
            core.handle_agent(now, id, message);
        }
        self.settle_coordinator();
    }

    pub(crate) fn hear_coordinator(&mut self, id: SessionId, message: v1::CoordinatorMessage) {
        let Some(session) = self.sessions.get(&id).filter(|session| !session.is_cut) else { return };
        let (host, life) = (session.host, session.life);
        let at = self.now;
        let side = &mut self.hosts[host as usize];
        let now = side.now(at);
        let Some(agent) = side.agent.as_mut().filter(|_| side.life == life && side.session == Some(id))
        else {
            return;
        };
        self.report.messages += 1;
        let before = agent.stale_dropped();
        let kind = message.kind.clone();
        agent.handle_coordinator(now, message);
        let is_stale = agent.stale_dropped() > before;
        match kind {
            Some(Kind::CoflowNotes(notes)) => self.noted(&notes.notes),
            Some(Kind::Accepted(_)) => {
                self.sessions.entry(id).and_modify(|session| session.accepted = Some(at));
            }
            _ => {}
        }
        if is_stale {
            self.violate(format!("host {host}: epochs do not grow in a session"));
        }
        self.settle_agent(host);
    }

    /// A session is over. The agent hears `says`, if anything; the coordinator, if it does not know, that it is lost.
    pub(crate) fn cut(&mut self, id: SessionId, says: Option<Event>, coordinator_too: bool) {
        let Some(session) = self.sessions.get_mut(&id).filter(|session| !session.is_cut) else { return };
        session.is_cut = true;
        // Each end learns of it at a time of its own: the coordinator may still have this session
        // when the next one begins.
        let (agent, coordinator) = (self.notice(), self.notice());
        self.later(agent, says.unwrap_or(Event::AgentLoses { session: id }));
        if coordinator_too {
            self.later(coordinator, Event::CoordinatorLoses { session: id });
        }
    }

    /// Nothing of one direction arrives for a while; what was said then comes late, and in order.
    pub(crate) fn stall(&mut self, id: SessionId, span: Span, upward: bool) {
        let until = self.now + span;
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if upward {
            // Only what agents say decides what the coordinator has been told (`has_told`).
            session.stalled_until = session.stalled_until.max(until);
        }
        let direction = if upward { &mut session.up } else { &mut session.down };
        *direction = (*direction).max(until);
    }

    /// How long it takes an end to learn that the other is gone: mostly no time, at times as long as a probe takes.
    pub(crate) fn notice(&mut self) -> Span {
        use rand::RngExt;
        if self.rng.random_range(0..4) == 0 { self.millis(1, 3_000) } else { self.delay() }
    }

    pub(crate) fn refused(&mut self, id: SessionId) {
        self.lose(id, true);
    }

    pub(crate) fn agent_loses(&mut self, id: SessionId) {
        self.lose(id, false);
    }

    fn lose(&mut self, id: SessionId, refused: bool) {
        let Some(session) = self.sessions.get(&id) else { return };
        let host = session.host;
        let side = &mut self.hosts[host as usize];
        let Some(agent) = side.agent.as_mut().filter(|_| side.session == Some(id)) else { return };
        agent.handle_session_lost();
        if refused {
            agent.handle_refused();
        }
        side.session = None;
        self.connect_later(host);
        self.settle_agent(host);
    }

    pub(crate) fn coordinator_loses(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get(&id) else { return };
        if session.coordinator != self.coordinator.life {
            return;
        }
        let now = self.coordinator.now(self.now);
        if let Some(core) = &mut self.coordinator.core {
            core.handle_session_lost(now, id);
            self.settle_coordinator();
        }
    }
}
