//! From when on the policy sees a coflow: small ones never, others once their flows are there.
//!
//! # Problem
//! A plan for a coflow of which half the gets are missing gives rates that are wrong a moment later, and a
//! coflow that is over before a plan for it could have arrived gains nothing from one.
//!
//! # Approach
//! A coflow passes through up to three stages, and never goes back ([`Stage`]). It is *bypassed* while the
//! bytes known of it keep its bottleneck below a bound: agents send its flows as TCP would, at once. Beyond
//! the bound it *gathers*: it waits for the gets it announced, but no longer than a limit that counts from its
//! first one. Then it is *scheduled*: its flows are in the policy's table, and later ones join them as they come.
//! One with a deadline may then be *refused* (`admission`).
//!
//! # Terminology
//! The bottleneck (Gamma) is the longest time that any link would need for the coflow's bytes if it had nothing
//! else to carry. Known bytes are those of all flows opened so far, done ones too, so a coflow does not become
//! small again by moving; and those that its driver expects (`expected`).
//!
//! # Pseudo-code
//! ```text
//! a flow of coflow c is opened:
//!     bytes of c on each link of its path += what is left of the flow
//!     if c is scheduled:                        add it to the table
//!     else if c was refused:                    tell its agent to send without a plan
//!     else if bypass > 0, c has no deadline, and max over links (bytes / capacity) < bypass:
//!                                               tell its agent to send without a plan
//!     else if announced flows are missing and (now - first get) < ready_wait:
//!                                               wait, at the longest until first get + ready_wait
//!     else                                      add all its flows to the table, and plan
//! ```
//!
//! # Properties
//! - A missing get delays a coflow by `ready_wait` at most, counted from its first get.
//! - A coflow with a deadline waits a little longer ([`JUDGED_WITHIN`]): what is judged should be all of it.
//! - Capacity that bypassed coflows use is not taken from what the policy gives away.
//!
//! # Departures
//! Varys, section 5.3: coflows with bottlenecks below 25 MB at 800 Mbit/s, which is 0.25 s, are not scheduled.
//! It asks when a coflow is registered, with all sizes known; here sizes become known with the flows, and the
//! answer may change once. That a coflow with a deadline is never bypassed is ours: it was promised a rate.
//! Varys, section 5.1 plans once all `numFlows` gets are there, however long that takes; the limit is ours.

use super::state::{Coordinator, FlowKey};
use crate::ids::HostNumber;
use std::collections::BTreeMap;
use weir_model::{Bytes, CoflowId, CoflowSpec, FlowSpec, LinkId, Span, Time};
use weir_policy::Slot;

/// A scheduled coflow's flow that comes late may wait this long for others of its coflow: gets come in bursts,
/// and a plan for every few of them would cost every agent more than it brings.
const STRAGGLERS_TOGETHER: Span = Span::from_millis(3);

/// A coflow with a deadline waits for its announced flows for this share of it,
const JUDGED_WITHIN: f64 = 0.1;
/// and no longer than this, unless coflows without one do: agents have its flows wait for so long.
const JUDGED_SOON: Span = Span::from_millis(50);

/// How far a coflow has come on its way to the policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// Little is known of it: agents send its flows as TCP would.
    #[default]
    Bypassed,
    /// It waits for the rest of its announced flows, at the longest until then.
    Gathering(Time),
    /// Its flows are in the policy's table.
    Scheduled,
    /// The policy turned it away: its flows move as TCP has them move, or end.
    Refused,
}

/// Bytes of a coflow by link, as far as they are known.
#[derive(Clone, Debug, Default)]
pub(super) struct Demand(BTreeMap<LinkId, u64>);

impl Demand {
    pub(super) fn add(&mut self, links: &[LinkId], bytes: u64) {
        for &link in links {
            let sum = self.0.entry(link).or_default();
            *sum = sum.saturating_add(bytes);
        }
    }

    pub(super) fn take(&mut self, links: &[LinkId], bytes: u64) {
        for link in links {
            if let Some(sum) = self.0.get_mut(link) {
                *sum = sum.saturating_sub(bytes);
            }
        }
    }
}

impl Coordinator {
    /// A flow was opened: it joins its coflow in the policy's table, waits with it, or is left to TCP.
    pub(super) fn take_in(&mut self, now: Time, key: FlowKey) {
        let Some(flow) = self.flows.get(&key) else { return };
        let (id, host, left) = (flow.coflow, flow.host, flow.left());
        let path = self.network.path(host, flow.destination);
        let Some(coflow) = self.coflows.get_mut(&id) else { return };
        if coflow.stage == Stage::Scheduled {
            let all = coflow.opened >= coflow.options.flows;
            self.schedule_flow(key);
            // The last announced flow is planned at once: nothing more is to come that could share its plan.
            let wait = if all { Span::ZERO } else { STRAGGLERS_TOGETHER.min(self.ready_wait()) };
            return self.want_plan(now + wait);
        }
        coflow.outside.insert(key);
        if coflow.stage == Stage::Refused {
            return self.tell_bypassed(host, id);
        }
        if let Some(path) = path {
            coflow.demand.add(&path, left);
        }
        if coflow.stage == Stage::Bypassed && self.is_small(id) {
            self.count("flows_bypassed");
            return self.tell_bypassed(host, id);
        }
        self.gather(now, id);
    }

    /// Whether the known bytes of a coflow keep its bottleneck on the empty fabric below the bound.
    pub(super) fn is_small(&self, id: CoflowId) -> bool {
        let (bypass, fabric) = (self.bypass().as_secs(), self.network.whole());
        let Some(coflow) = self.coflows.get(&id).filter(|coflow| coflow.options.deadline_ms == 0) else {
            return false;
        };
        let secs = |(link, bytes): (&LinkId, &u64)| *bytes as f64 / fabric.capacity(*link).bytes_per_sec();
        // On the uplink where it will go, on top of what is known there already.
        let to_come = coflow.expected.iter().filter_map(|(&host, bytes)| {
            let link = self.network.uplink(host)?;
            Some(secs((&link, &bytes.saturating_add(coflow.demand.0.get(&link).copied().unwrap_or(0)))))
        });
        // `all` holds of no link too: without the second test a coflow of unknown bytes would be
        // small where nothing is bypassed.
        coflow.demand.0.iter().map(secs).chain(to_come).all(|secs| secs < bypass) && bypass > 0.0
    }

    /// Whether a coflow's live flows move without a plan.
    pub(super) fn is_bypassed(&self, id: CoflowId) -> bool {
        self.coflows.get(&id).is_some_and(|coflow| match coflow.stage {
            Stage::Bypassed => coflow.opened > 0,
            Stage::Refused => true,
            Stage::Gathering(_) | Stage::Scheduled => false,
        })
    }

    /// Bytes of one host's coflow below which its agent need not ask: the bound at the host's own link.
    pub(super) fn bypass_bytes(&self, host: HostNumber) -> u64 {
        // By order alone no flow waits for anything: until its coflow has a class it is sent as one of its size.
        if self.policy.classes().is_some() {
            return u64::MAX;
        }
        let uplink = self.network.uplink(host);
        let rate = uplink.map_or(0.0, |link| self.network.whole().capacity(link).bytes_per_sec());
        (self.bypass().as_secs() * rate) as u64
    }

    /// Schedules a coflow if its announced flows are there or were waited for long enough.
    pub(super) fn gather(&mut self, now: Time, id: CoflowId) {
        let ready_wait = self.ready_wait();
        let Some(coflow) = self.coflows.get_mut(&id) else { return };
        let deadline = Span::from_millis(coflow.options.deadline_ms);
        let judged = Span::from_secs_ceil(deadline.as_secs() * JUDGED_WITHIN).min(JUDGED_SOON);
        let until = coflow.arrived.unwrap_or(now) + ready_wait.max(judged);
        // A coflow that announced no number of flows has nothing to wait for.
        if coflow.opened >= coflow.options.flows || coflow.sealed || until <= now {
            self.schedule(now, id);
        } else {
            // An agent that came back may know of an earlier first get.
            if let Stage::Gathering(before) = coflow.stage {
                self.gathering.remove(&(before, id));
            }
            coflow.stage = Stage::Gathering(until);
            self.gathering.insert((until, id));
        }
    }

    /// Schedules the coflows that waited long enough.
    pub(super) fn end_gathering(&mut self, now: Time) {
        while let Some(&(until, id)) = self.gathering.first().filter(|&&(until, _)| until <= now) {
            self.gathering.remove(&(until, id));
            self.count("coflows_ready_by_limit");
            self.schedule(now, id);
        }
    }

    /// When the first coflow will have waited long enough.
    pub(super) fn next_ready(&self) -> Option<Time> {
        self.gathering.first().map(|&(until, _)| until)
    }

    /// A coflow that gathers waits for nothing any more: no more flows join.
    pub(super) fn stop_gathering(&mut self, now: Time, id: CoflowId) {
        if matches!(self.coflows.get(&id).map(|coflow| coflow.stage), Some(Stage::Gathering(_))) {
            self.schedule(now, id);
        }
    }

    fn schedule(&mut self, now: Time, id: CoflowId) {
        self.advance(now);
        let Some(coflow) = self.coflows.get_mut(&id) else { return };
        if let Stage::Gathering(until) = coflow.stage {
            self.gathering.remove(&(until, id));
        }
        coflow.stage = Stage::Scheduled;
        for key in std::mem::take(&mut coflow.outside) {
            self.schedule_flow(key);
        }
        let hosts = self.coflows.get(&id).map(|coflow| coflow.knowing.clone()).unwrap_or_default();
        for session in hosts.iter().filter_map(|host| self.hosts.get(host)) {
            if let Some(agent) = self.agents.get_mut(session) {
                agent.bypassed.remove(&id);
                agent.outbox.bypassed.remove(&id);
            }
        }
        self.expect_judgement(id);
        self.want_plan(now);
    }

    /// Adds a flow to the policy's table, and its coflow if it is the first there. Expects the table at `now`.
    fn schedule_flow(&mut self, key: FlowKey) {
        // A flow with nothing left needs no rate, only its receiver's word.
        let Some(flow) = self.flows.get(&key).filter(|flow| flow.left() > 0) else { return };
        let (id, coflow) = (flow.id, flow.coflow);
        let ends = self.network.place(flow.host).zip(self.network.place(flow.destination));
        let Some((source, destination)) = ends else { return };
        let spec = FlowSpec { source, destination, size: Bytes(flow.left()), group: flow.group };
        let Some(slot) = self.slot_of(coflow) else { return };
        let at = self.table.add_flow(slot, id, &spec, self.network.whole());
        self.places.enter(at, key);
        if let Some(flow) = self.flows.get_mut(&key) {
            flow.at = Some(at);
        }
        self.disturb_senders();
    }

    /// The slot of a coflow in the policy's table, made if it has none.
    fn slot_of(&mut self, id: CoflowId) -> Option<Slot> {
        if let Some(slot) = self.table.find_coflow(id) {
            return Some(slot);
        }
        let coflow = self.coflows.get(&id)?;
        let mut empty = CoflowSpec::new(id, coflow.arrived?, Vec::new());
        empty.dependencies = self.dependencies(id);
        if coflow.options.weight > 0.0 && coflow.options.weight.is_finite() {
            empty.weight = coflow.options.weight;
        }
        if coflow.options.deadline_ms > 0 {
            let deadline = Span::from_millis(coflow.options.deadline_ms);
            empty.deadline = Some(self.config.tuning.deadline_margin.shorten(deadline));
        }
        self.expect_anew(id);
        // Without flows: each is added with the id that it has already, and `next_flow` is taken by
        // none.
        Some(self.table.insert(&empty, self.next_flow, self.network.whole()))
    }

    /// Takes what is left of a flow that goes out of what is known of its coflow.
    pub(super) fn forget_demand(&mut self, key: FlowKey) {
        let Some(flow) = self.flows.get(&key) else { return };
        let path = self.network.path(flow.host, flow.destination);
        if let (Some(path), Some(coflow)) = (path, self.coflows.get_mut(&flow.coflow)) {
            coflow.demand.take(&path, flow.left());
        }
    }

    /// Counts what a host served of a coflow before this process knew it.
    pub(super) fn note_served(&mut self, host: HostNumber, id: CoflowId, bytes: u64) {
        let link = self.network.uplink(host);
        if let (Some(link), Some(coflow)) = (link, self.coflows.get_mut(&id)) {
            coflow.demand.add(&[link], bytes);
        }
    }
}
