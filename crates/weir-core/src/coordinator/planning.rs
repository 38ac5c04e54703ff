//! From the policy's plan to what each agent must be told.
//!
//! The table of live coflows moves by the plan in force between events and is corrected by reports, so
//! the policy always sees the present. After a batch of events the policy makes one new plan, and each
//! agent gets the difference to what it already enforces: coflows whose drain is not simply the old one
//! continued, and flows whose grant changed.

use super::state::{Coordinator, SessionId, agent_flow};
use std::collections::{BTreeMap, BTreeSet};
use weir_model::{Span, Time};
use weir_policy::FlowRef;
use weir_proto::v1;
use weir_proto::v1::coordinator_message::Kind;

/// A plan never lets a coflow end sooner than this: what is left is known no better.
const SHORTEST_DRAIN_S: f64 = 0.002;
/// A drain that differs by less than this share from the enforced one continued is not sent again.
const DRAIN_TOLERANCE: f64 = 0.005;
/// A grant that differs by less than this share from the enforced one is not sent again.
const GRANT_TOLERANCE: f64 = 0.005;
/// Grant of a flow that no link limits, in bytes per second.
const UNLIMITED_BYTES_PER_S: f64 = 1e12;

/// What one agent was last told.
#[derive(Debug, Default)]
pub(super) struct Enforced {
    /// Per coflow with flows there: drain per second and when it was sent.
    drains: BTreeMap<u64, (f64, Time)>,
    grants: BTreeMap<u64, f64>,
    /// Coflows with flows there that are left to TCP.
    bypassed: BTreeSet<u64>,
}

impl Enforced {
    /// The agent must hear of this coflow again even if nothing changed: it has a new flow there.
    pub(super) fn expect_news(&mut self, coflow: u64) {
        self.drains.remove(&coflow);
    }

    /// Whatever the agent was told of this coflow holds no more.
    pub(super) fn forget(&mut self, coflow: u64) {
        self.drains.remove(&coflow);
        self.bypassed.remove(&coflow);
    }

    /// Whether the agent is still to be told that this coflow is left to TCP; it is told now.
    pub(super) fn bypass(&mut self, coflow: u64) -> bool {
        self.bypassed.insert(coflow)
    }

    /// Whether `drain` at `now` is what the agent does anyway: rates are held from the moment a drain
    /// arrives, so one that was 1/T then is 1/(T - elapsed) now.
    fn continues(&self, now: Time, coflow: u64, drain: f64) -> bool {
        let Some(&(sent, at)) = self.drains.get(&coflow) else { return false };
        if sent == 0.0 || drain == 0.0 {
            return sent == drain;
        }
        let due = 1.0 / sent - now.since(at).as_secs();
        (1.0 / drain - due).abs() <= DRAIN_TOLERANCE / drain
    }
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= GRANT_TOLERANCE * a.abs().max(b.abs())
}

impl Coordinator {
    /// Lets time pass: keepalives, time limits, the policy's own wake-ups.
    pub fn handle_timeout(&mut self, now: Time) {
        self.expire_waiting(now);
        self.end_gathering(now);
        let quiet: Vec<SessionId> = self
            .agents
            .iter()
            .filter(|(_, agent)| agent.last_message + self.keepalive_interval() <= now)
            .map(|(&session, _)| session)
            .collect();
        for session in quiet {
            self.send(now, session, Kind::Keepalive(v1::Keepalive {}));
        }
        if self.policy_wakeup().is_some_and(|at| at <= now) {
            self.want_plan(now);
        }
        // What an agent holds may differ from what it was told, as after a lapse of its lease that only it
        // noticed. Everything is therefore said again once per lease.
        for agent in self.agents.values_mut().filter(|agent| !agent.flows.is_empty()) {
            if agent.planned.is_some_and(|at| at + self.config.lease <= now) {
                agent.planned = None;
                agent.enforced = Enforced::default();
                self.plan_due = Some(self.plan_due.map_or(now, |due| due.min(now)));
            }
        }
    }

    /// When to call [`Coordinator::handle_timeout`] if nothing happens before.
    pub fn next_timeout(&self) -> Option<Time> {
        let keepalive =
            self.agents.values().map(|agent| agent.last_message + self.keepalive_interval()).min();
        let moving = self.agents.values().filter(|agent| !agent.flows.is_empty());
        let repeat = moving.filter_map(|agent| agent.planned).min().map(|at| at + self.config.lease);
        let waits = [self.next_expiry(), self.next_ready()];
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
        if self.senders.is_some() {
            self.sync(now);
            return true;
        }
        self.plan.clear();
        self.policy.plan(now, &self.fabric, &self.table, &mut self.plan);
        self.table.adopt(&self.plan);
        self.count("plans");
        let messages = self.differences(now);
        for (session, plan) in messages {
            self.send(now, session, Kind::Plan(plan));
        }
        true
    }

    /// The next message for an agent's session.
    pub fn poll_message(&mut self) -> Option<(SessionId, v1::CoordinatorMessage)> {
        self.messages.pop_front()
    }

    pub(super) fn send(&mut self, now: Time, session: SessionId, kind: Kind) {
        let Some(agent) = self.agents.get_mut(&session) else { return };
        agent.last_message = now;
        self.epoch += 1;
        let lease_ms = self.config.lease.nanos() / 1_000_000;
        let message = v1::CoordinatorMessage { epoch: self.epoch, lease_ms, kind: Some(kind) };
        self.messages.push_back((session, message));
    }

    /// Moves the table of live coflows to `now` under the plan in force.
    pub(super) fn advance(&mut self, now: Time) {
        let span = now.since(self.planned_at);
        if span > Span::ZERO {
            // What senders decide is known from their reports alone.
            if self.senders.is_none() {
                self.table.advance(&self.plan, span);
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

    /// Extra rate per serving host and flow key, beside its coflow's drain.
    fn grants(&self) -> BTreeMap<u32, BTreeMap<u64, f64>> {
        let mut grants: BTreeMap<u32, BTreeMap<u64, f64>> = BTreeMap::new();
        let mut grant = |at: FlowRef, rate: f64| {
            if let Some(&key) = self.keys.get(&self.table.flow(at).id().0) {
                let host = self.flows[&key].host;
                grants.entry(host).or_default().insert(key, rate.min(UNLIMITED_BYTES_PER_S));
            }
        };
        if self.plan.levels.is_empty() && !self.table.has_shares() {
            for (at, rate) in self.table.grants() {
                let drained = self.table.drain(at.coflow) * self.table.remaining(at);
                grant(at, (rate - drained).max(0.0));
            }
        } else {
            self.plan.for_each_rate(&self.table, |at, rate| grant(at, rate.bytes_per_sec()));
        }
        grants
    }

    fn differences(&mut self, now: Time) -> Vec<(SessionId, v1::Plan)> {
        let mut drains: BTreeMap<u64, f64> =
            self.table.coflows().map(|(_, coflow)| (coflow.id().0, 0.0)).collect();
        for (slot, drain) in self.table.drains() {
            drains.insert(self.table.coflow(slot).id().0, drain.min(1.0 / SHORTEST_DRAIN_S));
        }
        let mut grants_by_host = self.grants();
        let mut plans: BTreeMap<SessionId, v1::Plan> = BTreeMap::new();
        for (&coflow, &drain) in &drains {
            let Some(entry) = self.coflows.get(&coflow) else { continue };
            let whole = entry.options.flows > 0 && entry.opened >= entry.options.flows;
            for host in entry.live.keys() {
                let Some((session, agent)) = session_of(&self.hosts, &mut self.agents, *host) else {
                    continue;
                };
                if agent.enforced.continues(now, coflow, drain) {
                    continue;
                }
                agent.enforced.drains.insert(coflow, (drain, now));
                let rate = v1::CoflowRate { coflow, drain_per_s: drain, whole };
                plans.entry(session).or_default().coflows.push(rate);
            }
        }
        let complete = self.complete_plans();
        for (&session, agent) in &mut self.agents {
            agent.enforced.drains.retain(|coflow, _| drains.contains_key(coflow));
            agent.enforced.bypassed.retain(|coflow| self.coflows.contains_key(coflow));
            let new = grants_by_host.remove(&agent.host).unwrap_or_default();
            let changed = changed_grants(&mut agent.enforced.grants, &new);
            if !changed.is_empty() {
                plans.entry(session).or_default().grants = changed;
            }
            if let Some(facts) = complete.get(&session) {
                agent.planned = Some(now);
                agent.enforced.bypassed = facts.bypassed.iter().copied().collect();
                let v1::Plan { coflows, grants, .. } = plans.remove(&session).unwrap_or_default();
                plans.insert(session, v1::Plan { coflows, grants, ..facts.clone() });
            }
            let completed = agent.completed.take();
            if let Some(plan) = plans.get_mut(&session) {
                plan.latest_flow = agent.latest_flow;
                plan.completed_flow = completed.unwrap_or(0);
            }
        }
        plans.into_iter().collect()
    }

    /// What a plan that repeats everything says besides rates, for each agent that is due one.
    fn complete_plans(&self) -> BTreeMap<SessionId, v1::Plan> {
        let due = self.agents.iter().filter(|(_, agent)| agent.planned.is_none());
        let facts = due.map(|(&session, agent)| {
            let coflows = agent.flows.iter().filter_map(|key| self.flows.get(key)).map(|flow| flow.coflow);
            let bypassed: BTreeSet<u64> = coflows.filter(|&coflow| self.is_bypassed(coflow)).collect();
            let plan = v1::Plan {
                complete: true,
                bypassed: bypassed.into_iter().collect(),
                bypass_bytes: self.bypass_bytes(agent.host),
                ready_wait_ns: self.config.ready_wait.nanos(),
                ..v1::Plan::default()
            };
            (session, plan)
        });
        facts.collect()
    }
}

/// Grants that differ from the enforced ones, those that ended as zero. What is sent is enforced from now
/// on; what is not sent keeps its old value, so that small changes cannot add up unsent.
fn changed_grants(enforced: &mut BTreeMap<u64, f64>, new: &BTreeMap<u64, f64>) -> Vec<v1::FlowGrant> {
    let mut changed = Vec::new();
    enforced.retain(|&key, _| {
        let stays = new.contains_key(&key);
        if !stays {
            changed.push(v1::FlowGrant { flow: agent_flow(key), bytes_per_s: 0.0 });
        }
        stays
    });
    for (&key, &rate) in new {
        if !enforced.get(&key).is_some_and(|&held| close(held, rate)) {
            enforced.insert(key, rate);
            changed.push(v1::FlowGrant { flow: agent_flow(key), bytes_per_s: rate });
        }
    }
    changed
}

fn session_of<'a>(
    hosts: &BTreeMap<u32, SessionId>,
    agents: &'a mut BTreeMap<SessionId, super::state::AgentEntry>,
    host: u32,
) -> Option<(SessionId, &'a mut super::state::AgentEntry)> {
    let session = *hosts.get(&host)?;
    agents.get_mut(&session).map(|agent| (session, agent))
}
