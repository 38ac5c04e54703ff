//! When plans are made, and what time does besides: keepalives, time limits, the policy's own wake-ups.
//!
//! The table of live coflows moves by the plan in force between events and is corrected by reports, so
//! the policy always sees the present. After a batch of events the policy makes one new plan, and each
//! agent gets the difference to what it already enforces (`differences`).

use super::state::{Coordinator, SessionId};
use weir_model::{Span, Time};
use weir_proto::v1;
use weir_proto::v1::coordinator_message::Kind;

/// Agents that one plan repeats everything to, at most: all of them at once would hold up what is urgent.
const REPEATS_AT_ONCE: usize = 32;

impl Coordinator {
    /// Lets time pass: keepalives, time limits, the policy's own wake-ups.
    pub fn handle_timeout(&mut self, now: Time) {
        self.notice_pause(now);
        self.expire_waiting(now);
        self.expire_awaited(now);
        self.end_gathering(now);
        self.expire_endings(now);
        self.expire_coflows(now);
        self.expire_arrivals(now);
        self.sweep(now);
        self.choose_late_witnesses(now);
        let quiet: Vec<SessionId> = self
            .agents
            .iter()
            .filter(|(_, agent)| agent.last_message + self.keepalive_interval() <= now)
            .map(|(&session, _)| session)
            .collect();
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
        let moving = self.agents.iter().filter(|(_, agent)| !agent.flows.is_empty());
        let lapsed =
            moving.filter(|(_, agent)| agent.planned.is_some_and(|at| at + self.config.lease <= now));
        let repeated: Vec<SessionId> = lapsed.map(|(&session, _)| session).take(REPEATS_AT_ONCE).collect();
        for session in repeated {
            self.forget_told(session);
            self.want_plan(now);
        }
    }

    /// When to call [`Coordinator::handle_timeout`] if nothing happens before. A call that comes much later means that the
    /// process did not run (`pauses`).
    pub fn next_timeout(&self) -> Option<Time> {
        let keepalive =
            self.agents.values().map(|agent| agent.last_message + self.keepalive_interval()).min();
        let moving = self.agents.values().filter(|agent| !agent.flows.is_empty());
        let repeat = moving.filter_map(|agent| agent.planned).min().map(|at| at + self.config.lease);
        let waits = [self.waiting.next_due(), self.awaited.waiting.next_due(), self.next_ready()];
        let ends = [self.next_ending(), self.next_coflow_expiry(), self.next_late_witnesses()];
        let waits = waits.into_iter().chain(ends).chain([self.next_tick()]);
        [keepalive, repeat, self.policy_wakeup()].into_iter().chain(waits).flatten().min()
    }

    /// When to call [`Coordinator::poll_plan`], if anything changed since the last plan.
    pub fn plan_due(&self) -> Option<Time> {
        self.plan_due
    }

    /// Makes a new plan if anything changed, and queues what it changes for each agent. True if it did.
    pub fn poll_plan(&mut self, now: Time) -> bool {
        if self.plan_due.take().is_none() {
            return false;
        }
        self.advance(now);
        // What is left to TCP, and what is not any more, is said before the plan that follows from it.
        self.flush(now);
        if self.senders.is_some() {
            self.sync(now);
            return true;
        }
        self.plan.clear();
        self.policy.plan(now, &self.fabric, &self.table, &mut self.plan);
        self.table.adopt(&self.plan);
        self.count("plans");
        self.act_on_judgement(now);
        self.give_away();
        let messages = self.differences(now);
        for (session, plan) in messages {
            self.send(now, session, Kind::Plan(plan));
        }
        // Who was refused hears so at once.
        self.flush(now);
        true
    }

    /// The next message for an agent's session.
    pub fn poll_message(&mut self) -> Option<(SessionId, v1::CoordinatorMessage)> {
        self.messages.pop_front()
    }

    pub(super) fn send(&mut self, now: Time, session: SessionId, kind: Kind) {
        let Some(agent) = self.agents.get_mut(&session) else { return };
        agent.last_message = now;
        self.epoch = self.epoch.saturating_add(1);
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
        Span::from_nanos(self.config.lease.nanos() / 4)
    }

    fn policy_wakeup(&self) -> Option<Time> {
        if self.senders.is_some() {
            return None;
        }
        self.policy.next_wakeup(self.planned_at, &self.table)
    }
}
