//! What each agent must be told after a plan: the difference to what it already does.
//!
//! # Problem
//! A plan moves thousands of flows at hundreds of agents, hundreds of times a second, and most of it is what the
//! last one said. Looking at every (coflow, agent) and every flow each time would take longer than planning.
//!
//! # Approach
//! Rates that an agent made of a drain go on by themselves, so a coflow whose drain is the old one continued is
//! skipped as a whole. All agents of a coflow do the same; an agent that must hear of it anew (it has a new flow,
//! or everything is repeated to it) is told the drain that the others have, not one a little different.
//! Flows with a grant are few; what agents do with each stands beside its place in the table.
//!
//! # Terminology
//! * told: the drain that the agents of a coflow enforce, and when they were sent it.
//! * base: the rate that an agent made of a flow's drain and holds.
//! * grant: what a flow moves beside its base.
//!
//! # Pseudo-code
//! ```text
//! for coflow in table:
//!     if its drain is told's continued: tell hosts in its news what told is by now
//!     else: tell all its hosts
//! for flow with a rate of its own in the plan:
//!     base = drain * left now, or what it was while the grant goes on and the drain is not told again
//!     if |rate - base - grant in force| matters: tell the grant
//! for flow with a grant in force and none in the plan: take it back, and its host is in the coflow's news
//! ```
//!
//! # Properties
//! * What an agent makes of differences is what it would make of the whole plan, up to the tolerances
//!   (`differences_lead_agents_to_what_whole_plans_say`).
//! * What is not sent keeps its old value here too, so that small changes cannot add up unsent.

use super::state::{CoflowEntry, Coordinator, FlowKey, SessionId, agent_flow, host_of};
use crate::ids::HostNumber;
use std::collections::{BTreeMap, BTreeSet};
use weir_model::{CoflowId, Time};
use weir_policy::{FlowRef, Form, Slot};
use weir_proto::v1;

/// A plan never lets a coflow end sooner than this: what is left is known no better.
const SHORTEST_DRAIN_S: f64 = 0.002;
/// A drain that differs by less than this share from the enforced one continued is not sent again.
const DRAIN_TOLERANCE: f64 = 0.005;
/// The same where some agents must be told anyway: a coflow may have many new flows, each a small change.
const NEWS_TOLERANCE: f64 = 0.000_5;
/// A grant that differs by less than this share from the enforced one is not sent again.
const GRANT_TOLERANCE: f64 = 0.005;
/// Grant of a flow that no link limits, in bytes per second.
const UNLIMITED_BYTES_PER_S: f64 = 1e12;

/// A drain per second, as sent at some time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    drain: f64,
    at: Time,
}

impl Told {
    /// What it is by now: rates are held from the moment a drain arrives, so one that was 1/T then is
    /// 1/(T - elapsed) now.
    fn now(self, now: Time) -> f64 {
        if self.drain == 0.0 { 0.0 } else { 1.0 / (1.0 / self.drain - now.since(self.at).as_secs()) }
    }

    /// Whether `drain` at `now` is what agents do anyway.
    fn continues(self, now: Time, drain: f64, tolerance: f64) -> bool {
        if self.drain == 0.0 || drain == 0.0 {
            return self.drain == drain;
        }
        // Compared as times, not as rates: seconds until all is moved, of which agents hold `due`.
        let due = 1.0 / self.drain - now.since(self.at).as_secs();
        (1.0 / drain - due).abs() <= tolerance / drain
    }
}

/// What the agent of a flow does with it.
#[derive(Clone, Copy, Debug)]
struct Place {
    key: FlowKey,
    base: f64,
    grant: f64,
    /// The last plan that gave it a rate of its own.
    plan: u64,
}

/// Flows of the policy's table, by slot and index.
#[derive(Debug, Default)]
pub(super) struct Places {
    of_slot: Vec<Vec<Place>>,
    /// Flows with a grant in force; some may be gone.
    granted: Vec<FlowRef>,
    plans: u64,
}

impl Places {
    /// A flow entered the table: the flows of a slot do so by rising index.
    pub(super) fn enter(&mut self, at: FlowRef, key: FlowKey) {
        let slot = at.coflow.0 as usize;
        if self.of_slot.len() <= slot {
            self.of_slot.resize_with(slot.saturating_add(1), Vec::new);
        }
        // Index 0 begins another coflow in the slot.
        self.of_slot[slot].truncate(at.flow as usize);
        self.of_slot[slot].push(Place { key, base: 0.0, grant: 0.0, plan: 0 });
    }

    /// A flow has left the table: its agent has nothing more to hear of it.
    pub(super) fn leave(&mut self, at: FlowRef) {
        if let Some(place) = self.get(at) {
            place.grant = 0.0;
        }
    }

    /// The key of a flow in the table.
    pub(super) fn key(&self, slot: Slot, flow: u32) -> Option<FlowKey> {
        self.of_slot.get(slot.0 as usize)?.get(flow as usize).map(|place| place.key)
    }

    fn get(&mut self, at: FlowRef) -> Option<&mut Place> {
        self.of_slot.get_mut(at.coflow.0 as usize)?.get_mut(at.flow as usize)
    }
}

/// Messages in the making, by host.
#[derive(Default)]
struct Outgoing {
    plans: BTreeMap<HostNumber, v1::Plan>,
    /// Coflows that single hosts were told of.
    anew: BTreeSet<(CoflowId, HostNumber)>,
}

impl Outgoing {
    fn drain(&mut self, host: HostNumber, coflow: CoflowId, drain: f64, whole: bool) {
        let rate = v1::CoflowRate { coflow: coflow.0, drain_per_s: drain, whole };
        self.plans.entry(host).or_default().coflows.push(rate);
    }

    fn grant(&mut self, key: FlowKey, bytes_per_s: f64) {
        let grant = v1::FlowGrant { flow: agent_flow(key).0, bytes_per_s };
        self.plans.entry(host_of(key)).or_default().grants.push(grant);
    }
}

impl CoflowEntry {
    fn tell(&mut self, now: Time, id: CoflowId, drain: f64, out: &mut Outgoing) {
        let whole = self.options.flows > 0 && self.opened >= self.options.flows;
        // Single agents are told the drain of the others continued, so it must be nearer to the plan than where none is told.
        let tolerance = if self.news.is_empty() { DRAIN_TOLERANCE } else { NEWS_TOLERANCE };
        match self.told.filter(|told| told.continues(now, drain, tolerance)) {
            Some(told) => {
                for host in std::mem::take(&mut self.news) {
                    if self.live.contains_key(&host) {
                        out.drain(host, id, told.now(now), whole);
                        out.anew.insert((id, host));
                    }
                }
            }
            None => {
                self.told = Some(Told { drain, at: now });
                self.news.clear();
                // All agents at once, so that all flows of the coflow follow one drain.
                self.live.keys().for_each(|&host| out.drain(host, id, drain, whole));
            }
        }
    }
}

impl Coordinator {
    /// What an agent was told counts no more: it is to be told everything again.
    pub(super) fn forget_told(&mut self, session: SessionId) {
        let Some(agent) = self.agents.get_mut(&session) else { return };
        self.dues.plan(None, session, agent);
        agent.bypassed.clear();
        for flow in agent.flows.iter().filter_map(|key| self.flows.get(key)) {
            if let Some(coflow) = self.coflows.get_mut(&flow.coflow) {
                coflow.news.insert(agent.host);
                coflow.classes.remove(&agent.host);
            }
            flow.at.into_iter().for_each(|at| self.places.leave(at));
        }
    }

    /// What each agent must be told of the plan just adopted.
    pub(super) fn differences(&mut self, now: Time) -> Vec<(SessionId, v1::Plan)> {
        let mut out = Outgoing::default();
        self.places.plans = self.places.plans.saturating_add(1);
        if self.policy.classes().is_some() {
            self.tell_classes(now, &mut out);
        } else {
            self.tell_drains(now, &mut out);
            self.tell_grants(now, &mut out);
        }
        let mut plans = Vec::new();
        let complete = self.complete_plans();
        for (&session, agent) in self.agents.iter_mut().filter(|(_, agent)| agent.arrival.is_none()) {
            let mut plan = out.plans.remove(&agent.host);
            if let Some(facts) = complete.get(&session) {
                self.dues.plan(Some(now), session, agent);
                agent.bypassed = facts.bypassed.iter().copied().map(CoflowId).collect();
                let v1::Plan { coflows, grants, classes, .. } = plan.unwrap_or_default();
                plan = Some(v1::Plan { coflows, grants, classes, ..facts.clone() });
            }
            let completed = agent.completed.take();
            if let Some(mut plan) = plan {
                plan.latest_flow = agent.latest_flow.0;
                plan.completed_flow = completed.unwrap_or_default().0;
                plan.number = self.places.plans;
                plans.push((session, plan));
            }
        }
        plans
    }

    /// Classes that hosts do not know yet.
    fn tell_classes(&mut self, now: Time, out: &mut Outgoing) {
        let just_in_time: BTreeSet<Slot> = self.plan.just_in_time.iter().copied().collect();
        for &(slot, class) in &self.plan.classes {
            let id = self.table.coflow(slot).id();
            let Some(entry) = self.coflows.get_mut(&id) else { continue };
            let due = self.table.due(slot).filter(|_| just_in_time.contains(&slot));
            let told = (class, due.is_some());
            // Most coflows keep their class, and no host of theirs is new.
            if entry.class.replace(told) == Some(told) && entry.news.is_empty() {
                continue;
            }
            entry.news.clear();
            // On the wire 0 says that it is not to end just in time: one that is due now has a
            // nanosecond.
            let due_in_ns = due.map_or(0, |due| due.since(now).nanos().max(1));
            for &host in entry.live.keys() {
                if entry.classes.insert(host, told) != Some(told) {
                    let plan = out.plans.entry(host).or_default();
                    plan.classes.push(v1::CoflowClass { coflow: id.0, class, due_in_ns });
                }
            }
        }
    }

    /// Has agents told of drains that differ from what they do anyway.
    fn tell_drains(&mut self, now: Time, out: &mut Outgoing) {
        for (slot, coflow) in self.table.coflows() {
            let (id, drain) = (coflow.id(), self.table.drain(slot));
            if let Some(entry) = self.coflows.get_mut(&id) {
                entry.tell(now, id, drain.min(1.0 / SHORTEST_DRAIN_S), out);
            }
        }
    }

    /// Rates that flows have beside their coflow's drain.
    fn tell_grants(&mut self, now: Time, out: &mut Outgoing) {
        let mut rates: Vec<(FlowRef, f64)> = Vec::new();
        if self.plan.form == Form::Drains {
            rates.extend(self.table.grants());
        } else {
            self.plan.for_each_rate(&self.table, |at, rate| rates.push((at, rate.bytes_per_sec())));
        }
        self.add_gifts(&mut rates);
        let plan = self.places.plans;
        let before = std::mem::take(&mut self.places.granted);
        for (at, rate) in rates {
            let id = self.table.coflow(at.coflow).id();
            let told = self.coflows.get(&id).and_then(|coflow| coflow.told);
            let drained = told.map_or(0.0, |told| told.now(now)) * self.table.remaining(at);
            let Some(place) = self.places.get(at) else { continue };
            let anew = told.is_none_or(|told| told.at == now) || out.anew.contains(&(id, host_of(place.key)));
            // A base holds from one plan to the next only while the flow has a rate of its own in each of them.
            if anew || place.plan.saturating_add(1) != plan {
                place.base = drained;
            }
            place.plan = plan;
            let rate = rate.min(UNLIMITED_BYTES_PER_S);
            let (key, excess) = (place.key, place.base - rate);
            let grant = (-excess).max(0.0);
            if !close(place.grant, grant, place.base) {
                place.grant = grant;
                out.grant(key, grant);
            }
            if place.grant > 0.0 {
                self.places.granted.push(at);
            }
            // The flow has more by its base than the plan gives it, and a grant cannot be negative: its base is to be made anew.
            if excess > GRANT_TOLERANCE * rate {
                self.tell_again(key);
            }
        }
        for at in before {
            if let Some(place) = self.places.get(at).filter(|place| place.plan != plan && place.grant > 0.0) {
                place.grant = 0.0;
                let key = place.key;
                out.grant(key, 0.0);
                self.tell_again(key);
            }
        }
    }

    /// Adds what flows have besides the plan to their rates.
    fn add_gifts(&self, rates: &mut Vec<(FlowRef, f64)>) {
        if self.gifts.is_empty() {
            return;
        }
        // Rates are many and gifts few.
        let mut met = BTreeSet::new();
        for (at, rate) in rates.iter_mut() {
            if let Some(gift) = self.gifts.get(at) {
                *rate += gift;
                met.insert(*at);
            }
        }
        let drained = |at: FlowRef| self.table.drain(at.coflow) * self.table.remaining(at);
        let others = self.gifts.iter().filter(|(at, _)| !met.contains(at));
        rates.extend(others.map(|(&at, &gift)| (at, drained(at) + gift)));
    }

    /// A flow has less left than its agent's base was made for, because it had a grant: the next plan tells the
    /// drain again, for which the base is made anew.
    fn tell_again(&mut self, key: FlowKey) {
        if let Some(coflow) = self.flows.get(&key).and_then(|flow| self.coflows.get_mut(&flow.coflow)) {
            coflow.news.insert(host_of(key));
        }
    }

    /// What a plan that repeats everything says besides rates, for each agent that is due one.
    fn complete_plans(&self) -> BTreeMap<SessionId, v1::Plan> {
        let due = self.agents.iter().filter(|(_, agent)| agent.planned.is_none() && agent.arrival.is_none());
        let facts = due.map(|(&session, agent)| {
            let coflows = agent.flows.iter().filter_map(|key| self.flows.get(key)).map(|flow| flow.coflow);
            let bypassed: BTreeSet<CoflowId> = coflows.filter(|&coflow| self.is_bypassed(coflow)).collect();
            let plan = v1::Plan {
                complete: true,
                bypassed: bypassed.into_iter().map(|coflow| coflow.0).collect(),
                bypass_bytes: self.bypass_bytes(agent.host),
                ready_wait_ns: self.ready_wait().nanos(),
                uplink: self.uplink_of(agent.host),
                ..v1::Plan::default()
            };
            (session, plan)
        });
        facts.collect()
    }
}

/// Whether a flow moves as well with one grant as with the other.
fn close(held: f64, grant: f64, base: f64) -> bool {
    (held - grant).abs() <= GRANT_TOLERANCE * (base + held.max(grant))
}
