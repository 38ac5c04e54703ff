//! Sessions of agents: what begins with Hello, what Hello restores, and what the end of a session takes away.
//!
//! A Hello comes in parts where an agent holds much. Until the last part is there the agent is not planned for: a plan
//! would leave out flows that the agent has not told of yet.
//!
//! # One host, two agents
//! A host has one agent. One that comes back is known by the identity of its spool and the incarnation of its process, and
//! replaces its own older session, whose end the coordinator may not have noticed. Another agent that was given the same host,
//! or a copy of its spool, is refused for as long as the first one's session lives, and both are told. So is a new process
//! of the same agent, until the connection of the one before is found dead.
//!
//! A coordinator that begins anew does not know which of two agents was its host's. Agents say it: when a coordinator last
//! took them, and whether they were refused since. One that was refused is taken only after the other one had time to come
//! back, and within a minute after the start the one that was taken before replaces one that was not.

use super::directory::Held;
use super::network::label;
use super::outbox::Outbox;
use super::readiness::Stage;
use super::refused::HelloError;
use super::state::{AgentEntry, CoflowEntry, Coordinator, SessionId};
use super::{admission::Verdict, senders::Heard};
use crate::id_set::IdSet;
use crate::ids::{BlockKey, FlowNumber, HostNumber};
use crate::planted::{Defect, is_planted};
use std::collections::BTreeSet;
use weir_model::{CoflowId, Span, Time};
use weir_proto::data::Identity;
use weir_proto::v1::coordinator_message::Kind;
use weir_proto::{limits, v1};

/// So long after its start a coordinator takes no agent that another one refused for its host.
const REFUSED_WAIT: Span = Span::from_millis(10_000);
/// So long after its start an agent that was its host's before replaces one that was not.
const RETURN_LIMIT: Span = Span::from_millis(60_000);
/// So long after one part of a Hello the next one is there, or its session is over: it keeps the host from others.
const PART_LIMIT: Span = Span::from_millis(10_000);
/// And so long after the first part all are.
const HELLO_LIMIT: Span = Span::from_millis(300_000);
/// How often an agent is told that another one says it is its host.
const NOTICE_INTERVAL: Span = Span::from_millis(60_000);

/// What is known of an agent while its Hello comes in.
#[derive(Debug, Default)]
pub(super) struct Arrival {
    /// Coflows that it named,
    named: BTreeSet<CoflowId>,
    /// and those that it has the note of.
    noted: BTreeSet<CoflowId>,
    /// Coflows of which it knows that they ended.
    ended: IdSet,
    /// When its first part came, and its last one.
    began: Time,
    heard: Time,
}

/// What the host of a Hello is called.
fn called(hello: &v1::Hello) -> String {
    label(HostNumber(hello.host), &hello.name)
}

impl Coordinator {
    /// An agent's first message: all it knows, or the first part of it. A newer session of an agent replaces its
    /// older one.
    ///
    /// # Errors
    /// The agent speaks another version or goes by other terms, its name or address is out of bounds, its host cannot join the network,
    /// or the host has another agent or a newer session of this one.
    pub fn handle_hello(
        &mut self,
        now: Time,
        session: SessionId,
        hello: v1::Hello,
    ) -> Result<(), HelloError> {
        if hello.version != 1 {
            return Err(HelloError::Version(hello.version));
        }
        if hello.data_address.len() > limits::MAX_NAME_BYTES {
            return Err(HelloError::Address(hello.data_address.len()));
        }
        // Agents of versions that do not tell their terms are taken as they are.
        if hello.terms.as_ref().is_some_and(|terms| *terms != self.terms()) {
            self.count("hellos_of_other_terms");
            return Err(HelloError::Terms);
        }
        let planned = self.may_join(&hello)?;
        self.make_room_for(now, &hello)?;
        if let Some(planned) = planned {
            self.join(now, &hello, planned)?;
        }
        let host = HostNumber(hello.host);
        self.hosts.insert(host, session);
        let entry = AgentEntry {
            host,
            data_address: hello.data_address,
            spool_identity: hello.spool_identity,
            incarnation: hello.incarnation,
            number: hello.session,
            claim_ns: hello.accepted_ns,
            noticed: None,
            arrival: Some(Box::new(Arrival { began: now, heard: now, ..Arrival::default() })),
            blocks: 0,
            flows: BTreeSet::new(),
            last_message: now,
            clock_ns: 0,
            planned: None,
            latest_flow: FlowNumber(0),
            completed: None,
            heard: Heard::default(),
            bypassed: BTreeSet::new(),
            outbox: Outbox::new(self.ended_log.next()),
            draining: hello.draining,
        };
        self.dues.began(session, &entry);
        self.agents.insert(session, entry);
        // Versions that know no ranges name ended coflows one by one.
        let old = hello.ended.iter().map(|&id| v1::IdRange { first: id, last: id });
        let part = v1::HelloPart {
            ended: old.chain(hello.ended_ranges).collect(),
            coflows: hello.coflows,
            blocks: hello.blocks,
            flows: hello.flows,
            last: !hello.more,
            clock_ns: hello.clock_ns,
        };
        self.handle_hello_part(now, session, part);
        Ok(())
    }

    /// Ends the session that an agent which is back had before; refuses one that is not the host's.
    fn make_room_for(&mut self, now: Time, hello: &v1::Hello) -> Result<(), HelloError> {
        let started = self.started(now);
        let old = self.hosts.get(&HostNumber(hello.host));
        let Some((&old, agent)) = old.and_then(|old| self.agents.get_key_value(old)) else {
            // No other agent is here; but one may be on its way.
            let awaited = hello.refused && now < started + REFUSED_WAIT;
            return if awaited { Err(HelloError::Awaited { host: called(hello) }) } else { Ok(()) };
        };
        let (known, new) = (agent.spool_identity, hello.spool_identity);
        let is_same = (known, agent.incarnation) == (new, hello.incarnation);
        if is_same && hello.session < agent.number {
            return Err(HelloError::Late(called(hello)));
        }
        // Agents of versions without identities have 0.
        if is_same || known == 0 || new == 0 {
            self.handle_session_lost(now, old);
            self.closed.push_back(old);
            return Ok(());
        }
        let unsettled = agent.arrival.is_some() || now < started + RETURN_LIMIT;
        let address = agent.data_address.clone();
        if unsettled && hello.accepted_ns > agent.claim_ns {
            let reason = format!(
                "the agent at {} was host {} before, and is again; this one, at {address}, is not. Give each host a name \
                 and a spool of its own.",
                hello.data_address,
                called(hello)
            );
            self.send(now, old, Kind::Refused(v1::Refused { reason }));
            self.count("agents_replaced_by_those_of_before");
            self.handle_session_lost(now, old);
            self.closed.push_back(old);
            return Ok(());
        }
        if agent.noticed.is_none_or(|at| at + NOTICE_INTERVAL <= now) {
            let text = format!(
                "another agent, at {}, says that it is host {} too; it was refused. Give each host a name of its own.",
                hello.data_address,
                called(hello)
            );
            self.send(now, old, Kind::Notice(v1::Notice { text }));
            if let Some(agent) = self.agents.get_mut(&old) {
                agent.noticed = Some(now);
            }
        }
        self.count("agents_refused_for_their_host");
        Err(HelloError::Taken { host: called(hello), address })
    }

    /// What an agent's clock showed when it said so: its leases count from then. If that was a lease after the last time, it
    /// believed nothing of what it was told in between.
    fn hear_clock(&mut self, now: Time, session: SessionId, at_ns: u64) {
        let Some(agent) = self.agents.get_mut(&session) else { return };
        let before = agent.clock_ns;
        agent.clock_ns = before.max(at_ns);
        if before != 0 && at_ns.saturating_sub(before) >= self.config.lease.nanos() {
            self.forget_told(session);
            self.want_plan(now);
        }
    }

    /// The next part of a Hello.
    pub(super) fn handle_hello_part(&mut self, now: Time, session: SessionId, part: v1::HelloPart) {
        self.hear_clock(now, session, part.clock_ns);
        let Some(agent) = self.agents.get_mut(&session) else { return };
        let host = agent.host;
        let Some(arrival) = &mut agent.arrival else { return self.count("messages_out_of_place") };
        arrival.heard = now;
        for range in &part.ended {
            arrival.ended.insert_range(CoflowId(range.first), CoflowId(range.last));
        }
        let noted = part.coflows.iter().filter(|note| note.options.is_some());
        arrival.noted.extend(noted.map(|note| CoflowId(note.coflow)));
        arrival.named.extend(part.coflows.iter().map(|note| CoflowId(note.coflow)));
        arrival.named.extend(part.blocks.iter().map(|block| CoflowId(block.coflow)));
        arrival.named.extend(part.flows.iter().map(|flow| CoflowId(flow.coflow)));
        // Ends first: what this part says of a coflow that has ended must not bring it back.
        for range in part.ended {
            self.end_of_others(now, &range);
        }
        for note in part.coflows {
            self.restore_coflow(now, host, note);
        }
        for block in part.blocks {
            self.handle_block(now, session, block);
        }
        for flow in part.flows {
            self.handle_opened(now, session, flow);
        }
        if part.last {
            self.finish_hello(now, session);
        } else {
            self.expect_witnesses(now);
        }
    }

    /// All parts are there: the agent hears what it does not know yet, and is planned for.
    fn finish_hello(&mut self, now: Time, session: SessionId) {
        let Some(arrival) = self.agents.get_mut(&session).and_then(|agent| agent.arrival.take()) else {
            return;
        };
        self.dues.arrived(session);
        let Arrival { named, noted, ended: known, .. } = *arrival;
        for coflow in named {
            if self.has_ended(coflow) {
                self.tell_of_end(session, coflow);
            }
            self.check_complete(now, coflow);
        }
        let news: Vec<v1::IdRange> =
            self.ended.ranges().filter(|range| !known.contains_range(range)).collect();
        if let Some(agent) = self.agents.get_mut(&session) {
            self.returning.remove(&agent.host);
            news.into_iter().for_each(|range| {
                agent.outbox.ended.insert_range(CoflowId(range.first), CoflowId(range.last))
            });
            self.dues.hurry(session);
        }
        self.send(now, session, Kind::Accepted(v1::Accepted { at_ns: now.nanos() }));
        self.become_witness(now, session, &noted);
        // Plans that were made meanwhile left the agent out.
        self.forget_told(session);
        self.want_plan(now);
    }

    /// Any later message of an agent. One from a session that has ended is dropped.
    pub fn handle_agent(&mut self, now: Time, session: SessionId, message: v1::AgentMessage) {
        use v1::agent_event::Kind;
        if !self.agents.contains_key(&session) {
            self.count("messages_from_ended_sessions");
            return;
        }
        self.count("agent_messages");
        self.count_many("agent_events", message.events.len() as u64);
        for event in message.events {
            match event.kind {
                Some(Kind::BlockAdded(block)) => self.handle_block(now, session, block),
                Some(Kind::FlowOpened(flow)) => self.handle_opened(now, session, flow),
                Some(Kind::FlowClosed(flow)) => self.handle_closed(now, session, &flow),
                Some(Kind::Progress(progress)) => self.handle_progress(now, session, &progress),
                Some(Kind::Attained(attained)) => self.handle_attained(now, session, &attained),
                Some(Kind::Interface(report)) => self.handle_interface(now, session, &report),
                Some(Kind::BlockGone(gone)) => self.handle_block_gone(session, &gone),
                Some(Kind::HelloPart(part)) => self.handle_hello_part(now, session, part),
                Some(Kind::Settled(settled)) => self.handle_settled(now, session, CoflowId(settled.coflow)),
                Some(Kind::Clock(clock)) => self.hear_clock(now, session, clock.at_ns),
                Some(Kind::OfferAnswer(answer)) => self.handle_offer_answer(session, answer),
                Some(Kind::Limits(limits)) => self.handle_limits(now, session, &limits),
                Some(Kind::Drain(drain)) => self.handle_draining(session, drain.on),
                Some(Kind::LinkRates(rates)) => self.handle_link_rates(now, session, &rates),
                Some(Kind::Hello(_)) | None => self.count("messages_out_of_place"),
            }
        }
    }

    /// An agent's session ended: its flows leave the plan and its blocks cannot be located until it is
    /// back. What it has served stays counted.
    pub fn handle_session_lost(&mut self, now: Time, session: SessionId) {
        let Some(agent) = self.agents.remove(&session) else { return };
        self.dues.ended(session, &agent);
        self.advance(now);
        self.hosts.remove(&agent.host);
        self.network.note_away(now, agent.host);
        self.forget_traffic(now, agent.host);
        for &key in &agent.flows {
            self.drop_flow(key);
        }
        self.nobody_settles_at(now, agent.host);
        self.end_offers(session);
        self.end_drains(session);
        self.note_away(now, agent.host);
        self.sweep_later(now);
        self.want_plan(now);
    }

    /// Ends sessions of which the rest of the Hello does not come.
    pub(super) fn expire_arrivals(&mut self, now: Time) {
        let heard_since = self.heard_since();
        let late = |arrival: &Arrival| {
            // While this process did not run it could hear no agent: that is no silence of theirs.
            arrival.heard.max(heard_since) + PART_LIMIT <= now
                || arrival.began.max(heard_since) + HELLO_LIMIT <= now
        };
        let late = |session: &SessionId| {
            self.agents.get(session).and_then(|agent| agent.arrival.as_deref()).is_some_and(late)
        };
        for session in self.dues.arriving().filter(late).collect::<Vec<_>>() {
            self.count("hellos_unfinished");
            self.handle_session_lost(now, session);
            self.closed.push_back(session);
        }
    }

    /// The next session that the driver is to close: an agent's newer one took its place, or its Hello did not end.
    pub(super) fn poll_closed(&mut self) -> Option<SessionId> {
        self.closed.pop_front()
    }

    /// Takes over what an agent kept of a coflow that an earlier process, or this one, registered.
    fn restore_coflow(&mut self, now: Time, host: HostNumber, note: v1::CoflowNote) {
        let (id, key) = (CoflowId(note.coflow), note.request_key);
        // An agent that serves flows of a coflow, and never heard its note, names it all the same.
        let is_noted = note.options.is_some();
        let options = note.options.unwrap_or_default();
        if self.was_never_given(id) || super::directory::check(&options).is_err() {
            return self.count("notes_refused");
        }
        let other = self.request_keys.get(&key).copied().filter(|&other| key != 0 && other != id);
        if other.is_some_and(|other| self.is_own(other) || is_planted(Defect::EitherEnded))
            && !self.is_own(id)
        {
            // Its registration was repeated here before any agent told of it: its driver knows only the other. Of two from
            // earlier processes it is not known which one it knows: the one that it does not renew ends with its lease.
            self.end(now, id);
        }
        if self.has_ended(id) {
            return;
        }
        let registered = Time::from_nanos(now.nanos().saturating_sub(note.age_ns));
        if !self.adopt(now, id) {
            return;
        }
        let Some(entry) = self.coflows.get_mut(&id) else { return };
        let was_unknown = is_noted && std::mem::take(&mut entry.adopted);
        if was_unknown {
            (entry.options, entry.registered, entry.request_key) = (options, registered, key);
            if key != 0 {
                self.request_keys.insert(key, id);
            }
        }
        entry.sealed |= note.sealed;
        if note.admitted && entry.verdict == Verdict::Undecided {
            entry.verdict = Verdict::Admitted;
        }
        let undecided = entry.verdict == Verdict::Undecided;
        if undecided && !note.refused.is_empty() && matches!(entry.stage, Stage::Bypassed | Stage::Refused) {
            (entry.stage, entry.verdict) = (Stage::Refused, Verdict::Refused(note.refused.clone()));
        }
        if note.moving_age_ns > 0 {
            let opened = Time::from_nanos(now.nanos().saturating_sub(note.moving_age_ns));
            // Each agent tells of its own first flow; the coflow arrived with the first of all.
            entry.arrived = Some(entry.arrived.map_or(opened, |at| at.min(opened)));
        }
        // In place of what this host said before, not in addition: it tells its sums at every Hello.
        let before = entry.done.insert(host, (note.done_flows, note.done_bytes)).unwrap_or_default();
        let news = entry.sealed != note.sealed
            || entry.refusal() != note.refused
            || entry.is_admitted() != note.admitted;
        if is_noted {
            self.note_knowing(host, id);
        }
        self.note_served(host, id, note.done_bytes.saturating_sub(before.1));
        self.note_attained(host, id, note.done_bytes);
        if was_unknown {
            self.renew(now, id);
            // To agents that hold blocks of it, and came before its note did.
            self.tell_note(id);
        } else if news {
            self.tell_host(host, id);
        }
    }

    /// A block was put at an agent.
    pub(super) fn handle_block(&mut self, now: Time, session: SessionId, block: v1::BlockAdded) {
        let Some(host) = self.agents.get(&session).map(|agent| agent.host) else { return };
        let named = (1..=limits::MAX_BLOCK_NAME_BYTES).contains(&block.block.len());
        if !named || block.size > limits::MAX_BLOCK_BYTES {
            return self.count("messages_out_of_place");
        }
        let coflow = CoflowId(block.coflow);
        // Its later owner would not be told of what lies there, or be refused for it: so it gets no owner.
        self.void_if_never_given(coflow);
        if self.has_ended(coflow) && !is_planted(Defect::EndedListed) {
            self.tell_of_end(session, coflow);
            return self.count("blocks_of_ended_coflows");
        }
        let full = self
            .agents
            .get(&session)
            .is_some_and(|agent| agent.blocks >= limits::MAX_BLOCKS_PER_AGENT as u64);
        if full || !self.adopt(now, coflow) {
            return self.count("blocks_not_listed");
        }
        let held = Held { session, host, size: block.size, identity: Identity::from_wire(&block.identity) };
        let blocks = self.directory.entry(coflow).or_default();
        let holders = blocks.entry(block.block.clone().into_boxed_str()).or_default();
        let known = holders.iter().any(|other| other.session == session);
        // Also what an earlier session of this host listed, which counts no more.
        holders.retain(|other| other.host != host);
        holders.push(held);
        if let Some(agent) = self.agents.get_mut(&session).filter(|_| !known) {
            agent.blocks = agent.blocks.saturating_add(1);
        }
        self.takes_part(host, coflow);
        self.renew(now, coflow);
        self.answer_waiting(now, &BlockKey { coflow, name: block.block });
    }

    /// An agent does not hold a block any more.
    fn handle_block_gone(&mut self, session: SessionId, gone: &v1::BlockGone) {
        let Some(blocks) = self.directory.get_mut(&CoflowId(gone.coflow)) else { return };
        let Some(holders) = blocks.get_mut(gone.block.as_str()) else { return };
        let before = holders.len();
        holders.retain(|held| held.session != session);
        let gone_here = holders.len() < before;
        if holders.is_empty() {
            blocks.remove(gone.block.as_str());
        }
        if let Some(agent) = self.agents.get_mut(&session).filter(|_| gone_here) {
            agent.blocks = agent.blocks.saturating_sub(1);
        }
    }

    /// The entry of a coflow, made if there is none: registered at an earlier process, or at none. False at the bound.
    pub(super) fn adopt(&mut self, now: Time, id: CoflowId) -> bool {
        if self.coflows.contains_key(&id) {
            return true;
        }
        if self.coflows.len() >= limits::MAX_LIVE_COFLOWS {
            self.count("coflows_over_bound");
            return false;
        }
        let entry = CoflowEntry { registered: now, adopted: true, ..CoflowEntry::default() };
        self.coflows.insert(id, entry);
        self.renew(now, id);
        true
    }
}
