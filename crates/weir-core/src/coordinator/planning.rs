//! When plans are made, and what time does besides: keepalives, time limits, the policy's own wake-ups.
//!
//! The table of live coflows moves by the plan in force between events and is corrected by reports, so
//! the policy always sees the present. Events within [`Tuning::batch`](super::Tuning::batch) of a plan
//! share the next one: a wide coflow opens hundreds of flows within a millisecond and costs one plan, not one per flow. Each
//! agent gets the difference to what it already enforces (`differences`).

use super::admission::Decision;
use super::directory::Answer;
use super::draining::Drained;
use super::ending::Unregistered;
use super::offers::Offered;
use super::state::{Coordinator, SessionId};
use crate::planted::{Defect, is_planted};
use weir_model::{CoflowId, Span, Time};
use weir_proto::v1;
use weir_proto::v1::coordinator_message::Kind;

/// Agents that one plan repeats everything to, at most: all of them at once would hold up what is urgent.
const REPEATS_AT_ONCE: usize = 32;

/// What a coordinator wants done.
#[derive(Debug)]
pub enum Output {
    /// An agent's session is to be sent a message.
    Message(SessionId, v1::CoordinatorMessage),
    /// A session is to be closed: an agent's newer one took its place, or its Hello did not end.
    Close(SessionId),
    /// A coflow ended with its lease, which no driver renewed: a word for the log.
    Expired(CoflowId),
    /// A call to end a coflow is answered.
    Unregistered(Unregistered),
    /// A call that waited for admission is answered.
    Decided(Decision),
    /// A call that waited for a block is answered.
    Located(Answer),
    /// A call that waited for a file of a host is answered.
    Offered(Offered),
    /// A call to drain a host is answered.
    Drained(Drained),
}

impl Coordinator {
    /// Lets time pass: keepalives, time limits, the policy's own wake-ups.
    pub fn handle_timeout(&mut self, now: Time) {
        // First: after a gap it puts limits off, before any of them is taken for over.
        self.notice_pause(now);
        self.expire_waiting(now);
        self.expire_awaited(now);
        self.expire_offers(now);
        self.expire_drains(now);
        self.end_gathering(now);
        self.expire_endings(now);
        self.expire_coflows(now);
        self.expire_arrivals(now);
        self.sweep(now);
        self.choose_late_witnesses(now);
        let is_quiet = |&(told, _): &(Time, SessionId)| told + self.keepalive_interval() <= now;
        let quiet: Vec<SessionId> =
            self.dues.by_message().take_while(is_quiet).map(|(_, session)| session).collect();
        for session in quiet {
            let arrives = self.agents.get(&session).is_some_and(|agent| agent.arrival.is_some());
            if arrives || !self.empty_outbox(now, session) {
                self.send(now, session, Kind::Keepalive(v1::Keepalive {}));
            }
        }
        self.flush(now);
        if self.policy_wakeup().is_some_and(|at| at <= now) {
            self.want_plan(now);
        }
        // What an agent holds may differ from what it was told, as after a lapse of its lease that only it
        // noticed. Everything is therefore said again once per lease.
        let lapsed = |&(planned, _): &(Time, SessionId)| planned + self.config.lease <= now;
        let lapsed: Vec<_> = self.dues.by_plan().take_while(lapsed).take(REPEATS_AT_ONCE).collect();
        for (planned, session) in lapsed {
            if self.agents.get(&session).is_none_or(|agent| agent.flows.is_empty()) {
                self.dues.rests(planned, session);
                continue;
            }
            self.forget_told(session);
            self.want_plan(now);
        }
    }

    /// When to call [`Coordinator::handle_timeout`] and [`Coordinator::poll_plan`] if nothing happens before. A call that comes much later means that the
    /// process did not run (`pauses`).
    pub fn next_timeout(&self) -> Option<Time> {
        let keepalive = self.dues.by_message().next().map(|(told, _)| told + self.keepalive_interval());
        let repeat = self.dues.by_plan().next().map(|(planned, _)| planned + self.config.lease);
        let waits = [
            self.waiting.next_due(),
            self.awaited.waiting.next_due(),
            self.offers.next_due(),
            self.drains.next_due(),
            self.next_ready(),
        ];
        let ends = [self.next_ending(), self.next_coflow_expiry(), self.next_late_witnesses()];
        let waits = waits.into_iter().chain(ends).chain([self.next_tick(), self.plan_due()]);
        [keepalive, repeat, self.policy_wakeup()].into_iter().chain(waits).flatten().min()
    }

    /// When the next plan is due, if anything changed since the last one.
    pub(super) fn plan_due(&self) -> Option<Time> {
        // The first plan waits for nothing; later ones keep their distance, so that a burst of events costs one.
        let earliest = self.last_plan.map_or(Time::ZERO, |last| last + self.config.tuning.batch);
        self.plan_due.map(|due| due.max(earliest))
    }

    /// Makes a new plan if one is due, and queues what it changes for each agent. True if it did.
    pub fn poll_plan(&mut self, now: Time) -> bool {
        self.plan_due().is_some_and(|due| due <= now) && self.plan_now(now)
    }

    /// The same as soon as anything changed.
    pub(super) fn plan_now(&mut self, now: Time) -> bool {
        if self.plan_due.take().is_none() {
            return false;
        }
        // Counted from now also where senders decide and only a sync follows.
        self.last_plan = Some(now);
        self.advance(now);
        // What is left to TCP, and what is not any more, is said before the plan that follows from it.
        self.flush(now);
        if self.senders.is_some() {
            self.sync(now);
            return true;
        }
        self.tell_expected();
        self.plan.clear();
        self.policy.plan(now, self.network.left(), &self.table, &mut self.plan);
        // Before judgement, gifts and differences, which all read rates from the table.
        self.table.adopt(&self.plan);
        self.count("plans");
        self.act_on_judgement(now);
        self.give_away();
        // After gifts: what an agent is told is the plan and what is given on top of it.
        let messages = self.differences(now);
        for (session, plan) in messages {
            self.send(now, session, Kind::Plan(plan));
        }
        // Agents and drivers of coflows that were refused hear so at once.
        self.flush(now);
        true
    }

    /// The next thing to do for what happened.
    pub fn poll_output(&mut self) -> Option<Output> {
        let message = self.poll_message().map(|(session, message)| Output::Message(session, message));
        message
            .or_else(|| self.poll_closed().map(Output::Close))
            .or_else(|| self.poll_expired().map(Output::Expired))
            .or_else(|| self.poll_unregistered().map(Output::Unregistered))
            .or_else(|| self.poll_decision().map(Output::Decided))
            .or_else(|| self.poll_answer().map(Output::Located))
            .or_else(|| self.poll_offered().map(Output::Offered))
            .or_else(|| self.poll_drained().map(Output::Drained))
    }

    pub(super) fn poll_message(&mut self) -> Option<(SessionId, v1::CoordinatorMessage)> {
        self.messages.pop_front()
    }

    pub(super) fn send(&mut self, now: Time, session: SessionId, kind: Kind) {
        let Some(agent) = self.agents.get_mut(&session) else { return };
        self.dues.tell(now, session, agent);
        self.epoch = self.epoch.saturating_add(u64::from(!is_planted(Defect::EpochNotRaised)));
        let lease_ms = self.config.lease.nanos() / 1_000_000;
        let message = v1::CoordinatorMessage {
            epoch: self.epoch,
            lease_ms,
            heard_ns: agent.clock_ns,
            kind: Some(kind),
        };
        self.messages.push_back((session, message));
        self.count("coordinator_messages");
    }

    /// Moves the table of live coflows to `now` under the plan in force.
    pub(super) fn advance(&mut self, now: Time) {
        let span = now.since(self.planned_at);
        if span > Span::ZERO {
            // What senders decide is known from their reports alone.
            if self.senders.is_none() {
                self.advance_table(span);
            }
            self.planned_at = now;
        }
    }

    fn keepalive_interval(&self) -> Span {
        // Four times per lease: three may be lost or late before flows are unscheduled.
        Span::from_nanos(self.config.lease.nanos() / 4)
    }

    fn policy_wakeup(&self) -> Option<Time> {
        if self.senders.is_some() {
            return None;
        }
        self.policy.next_wakeup(self.planned_at, &self.table)
    }
}
