//! What flows do not take of their rates goes to others, whatever the policy.
//!
//! # Problem
//! A receiver that reads slowly, or stops, keeps the rate that the plan has for its flow from everybody else: under an
//! order, all that come later on the same uplink wait for it.
//!
//! # Approach
//! Agents tell what a flow can use where that is less than it is given (`FlowLimits`). The policy plans as if it took all,
//! so that its order stays what it is; then the rest is given away on top of the plan: first to flows that move on the
//! same links, in the ratio of their rates, for that is how their policy shares; then to flows that wait, in order.
//! Limits are few and rare, and without any of them nothing is computed.
//!
//! # Pseudo-code
//! ```text
//! free(link) = capacity - sum over flows of min(rate, limit)
//! for a few rounds: every moving flow that is not limited and crosses a link of a limited flow gets
//!     rate * min over its links of (free / rates that may grow there) more
//! for flows in order that cross such a link: give what is free on their path
//! ```
//!
//! # Properties
//! * No link is given more than its capacity, limited flows counted with what they can use.
//! * A limit that ends takes back what it gave with the next plan.
//! * A limited flow moves in the table by what it can use: what it is believed to have left is what it has.

use super::state::{Coordinator, SessionId, flow_key};
use std::collections::BTreeMap;
use weir_model::{LinkId, Span, Time};
use weir_policy::{FlowRef, Slot};
use weir_proto::v1;

/// Rounds in which moving flows grow: links that are full after one hold up only their own flows in the next.
const ROUNDS: usize = 4;
/// Less than this share of a link's capacity is not given to a flow that waits.
const LEAST_GIFT: f64 = 0.01;

/// A flow of the table and its rate while gifts are computed.
struct Moving {
    at: FlowRef,
    path: Vec<LinkId>,
    rate: f64,
    limit: f64,
}

impl Coordinator {
    /// What flows of an agent can use.
    pub(super) fn handle_limits(&mut self, now: Time, session: SessionId, limits: &v1::FlowLimits) {
        let Some(host) = self.agents.get(&session).map(|agent| agent.host) else { return };
        self.advance(now);
        for limit in &limits.flows {
            let key = flow_key(host, limit.flow);
            if !self.flows.contains_key(&key) {
                continue;
            }
            if limit.bytes_per_s >= 0.0 && limit.bytes_per_s.is_finite() {
                self.limits.insert(key, limit.bytes_per_s);
            } else {
                self.limits.remove(&key);
            }
        }
        self.count("flow_limits");
        self.want_plan(now);
    }

    /// What a flow can use, as its agent said.
    pub(super) fn limit_of(&self, key: u64) -> f64 {
        self.limits.get(&key).copied().unwrap_or(f64::INFINITY)
    }

    /// What a flow has on top of the plan in force, of what limited flows leave.
    pub(super) fn gift(&self, at: FlowRef) -> f64 {
        self.gifts.get(&at).copied().unwrap_or(0.0)
    }

    /// Gives away, on top of the plan just adopted, what limited flows do not take.
    pub(super) fn give_away(&mut self) {
        self.gifts.clear();
        if self.limits.is_empty() {
            return;
        }
        let mut flows = self.moving_flows();
        let capacity = |link: LinkId| self.fabric.capacity(link).bytes_per_sec();
        let mut free: Vec<f64> =
            (0..self.fabric.links().len() as u32).map(|link| capacity(LinkId(link))).collect();
        let mut touched = vec![false; free.len()];
        for flow in &flows {
            for link in &flow.path {
                free[link.index()] -= flow.rate.min(flow.limit);
                touched[link.index()] |= flow.rate > flow.limit;
            }
        }
        free.iter_mut().for_each(|free| *free = free.max(0.0));
        flows.retain(|flow| flow.rate < flow.limit && flow.path.iter().any(|link| touched[link.index()]));
        let mut gifts: BTreeMap<FlowRef, f64> = BTreeMap::new();
        for _ in 0..ROUNDS {
            grow(&mut flows, &mut free, &mut gifts);
        }
        for index in self.in_order(&flows) {
            let flow = &flows[index];
            let least = |of: &dyn Fn(LinkId) -> f64| {
                flow.path.iter().map(|&link| of(link)).fold(f64::INFINITY, f64::min)
            };
            let gift = least(&|link| free[link.index()]).min(flow.limit - flow.rate);
            if gift.is_finite() && gift > LEAST_GIFT * least(&capacity) {
                flow.path.iter().for_each(|link| free[link.index()] -= gift);
                *gifts.entry(flow.at).or_default() += gift;
            }
        }
        self.gifts = gifts;
    }

    /// All flows of the table that cross links.
    fn moving_flows(&self) -> Vec<Moving> {
        let mut flows = Vec::new();
        self.plan.for_each_rate(&self.table, |at, rate| {
            let Some(class) = self.table.flow(at).class() else { return };
            let key = self.places.key(at.coflow, at.flow);
            flows.push(Moving {
                at,
                path: self.table.classes()[class.index()].path().to_vec(),
                rate: rate.bytes_per_sec(),
                limit: key.map_or(f64::INFINITY, |key| self.limit_of(key)),
            });
        });
        flows
    }

    /// Indices of flows, those of coflows that the policy serves first before others.
    fn in_order(&self, flows: &[Moving]) -> Vec<usize> {
        let order = self.policy.order().unwrap_or_default();
        let places: BTreeMap<Slot, usize> =
            order.iter().enumerate().map(|(place, &slot)| (slot, place)).collect();
        let mut indices: Vec<usize> = (0..flows.len()).collect();
        // Without an order they stay as they are: by arrival.
        indices.sort_by_key(|&index| places.get(&flows[index].at.coflow).copied().unwrap_or(usize::MAX));
        indices
    }

    /// Moves the table on by a plan, limited flows by what they can use and others by what they have besides.
    pub(super) fn advance_table(&mut self, span: Span) {
        let secs = span.as_secs();
        let limited = self.limits.iter().filter_map(|(key, &limit)| Some((self.flows.get(key)?.at?, limit)));
        let before: Vec<(FlowRef, f64, f64)> =
            limited.map(|(at, limit)| (at, self.table.remaining(at), limit * secs)).collect();
        self.table.advance(&self.plan, span);
        for (at, before, usable) in before {
            if self.table.flow(at).live() && before - self.table.remaining(at) > usable {
                self.table.set_remaining(at, (before - usable).max(1.0));
            }
        }
        for (&at, &gift) in &self.gifts {
            if self.table.flow(at).live() {
                self.table.set_remaining(at, (self.table.remaining(at) - gift * secs).max(1.0));
            }
        }
    }
}

/// Lets moving flows grow in the ratio of their rates, as far as their links have room.
fn grow(flows: &mut [Moving], free: &mut [f64], gifts: &mut BTreeMap<FlowRef, f64>) {
    let mut rates = vec![0.0; free.len()];
    for flow in flows.iter() {
        flow.path.iter().for_each(|link| rates[link.index()] += flow.rate);
    }
    let room = free.to_vec();
    for flow in flows.iter_mut().filter(|flow| flow.rate > 0.0) {
        let share = |link: &LinkId| room[link.index()] / rates[link.index()];
        let share = flow.path.iter().map(share).fold(f64::INFINITY, f64::min);
        let gift = (flow.rate * share).min(flow.limit - flow.rate);
        if gift.is_finite() && gift > 0.0 {
            flow.path.iter().for_each(|link| free[link.index()] = (free[link.index()] - gift).max(0.0));
            *gifts.entry(flow.at).or_default() += gift;
            flow.rate += gift;
        }
    }
}
