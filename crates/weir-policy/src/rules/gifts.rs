//! What flows do not take of their rates goes to others, whatever the policy.
//!
//! # Problem
//! A receiver that reads slowly, or stops, keeps the rate that the plan has for its flow from all other flows: under an
//! order, all that come later on the same uplink wait for it.
//!
//! # Approach
//! Of some flows it is known what they can use ([`super::Offer`]). The policy plans as if they took all that they are given,
//! so that its order stays what it is; then the rest is given away on top of the plan: first to flows that move on the
//! same links, in the ratio of their rates, for that is how their policy shares; then to flows that wait, in order.
//!
//! Limits are few, and tables have many flows: only flows on the links of limited ones are looked at. What the plan gives on
//! the links of these is known to the table without a look at the others (`Plan::add_rates_on`). Of flows that wait, most are
//! passed over because nothing is left on the link of the limited flow: the rest of their path is asked for as late as
//! possible.
//!
//! # Terminology
//! * held: a limited flow that the plan gives more than it can use. touched: a link of such a flow.
//! * taker: a flow that crosses a touched link and can use more than it is given.
//! * room: what a link has free.
//!
//! # Pseudo-code
//! ```text
//! held = limited flows with rate > limit; none: nothing to give
//! room(link) = capacity - (rates on the link by the plan - rates of held flows on it) - limits of held flows on it
//! for a few rounds: every taker that moves gets rate * min over its links of (room / rates that may grow there) more
//! for takers in the policy's order, by arrival without one: give the least room on the path
//! ```
//!
//! # Properties
//! * No link is given more than its capacity, limited flows counted with what they can use.
//! * A limit that ends takes back what it gave with the next plan.
//! * Gifts are those that a look at every flow of the table leads to, up to rounding
//!   (`gifts_are_those_of_a_look_at_every_flow` in `weir-core`).
//! * Where no limited flow is given more than it can use, the cost is a look at each limit.

use crate::bits::BitSet;
use crate::{CoflowTable, FlowRef, Plan, Slot};
use std::collections::BTreeMap;
use weir_model::{Fabric, LinkId, Path};

/// Rounds in which moving flows grow: links that are full after one hold up only their own flows in the next.
const ROUNDS: usize = 4;
/// Less than this share of a link's capacity is not given to a flow that waits.
const LEAST_GIFT: f64 = 0.01;
/// Less than this share of a link's capacity is what rounding leaves of a difference.
const ROUNDING: f64 = 1e-9;
/// So many flows that wait have the room on their paths found together first, for they may take all there is; then twice
/// as many each time, for finding it has a cost of its own.
const FIRST_TOGETHER: usize = 32;

/// A flow of the table and its rate while gifts are computed.
struct Moving {
    at: FlowRef,
    path: Path,
    rate: f64,
    limit: f64,
}

/// What flows have on top of the plan, in bytes per second, above 0.
pub type Gifts = BTreeMap<FlowRef, f64>;

/// What rates are given out of.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// Links and what they have for these coflows.
    pub fabric: &'a Fabric,
    /// Live coflows, as the plan moves them.
    pub table: &'a CoflowTable,
    /// The plan in force, which the table has adopted and has not advanced by yet.
    pub plan: &'a Plan,
    /// Coflows that the policy serves one after the other, first to last; empty where it has no such order.
    pub order: &'a [Slot],
}

/// What others get, on top of the plan, of what limited flows leave. `limits` are bytes per second that flows can use; those that
/// are not in it can use any rate.
pub fn gifts(given: Given<'_>, limits: &BTreeMap<FlowRef, f64>) -> Gifts {
    let limited = limits.iter().filter_map(|(&at, &limit)| given.moving(at, limit));
    let held: Vec<Moving> = limited.filter(|flow| flow.rate > flow.limit).collect();
    if held.is_empty() {
        return Gifts::new();
    }
    let mut room = Room::beside(&held, given);
    let mut flows = given.takers(&held, limits);
    let growing = flows.iter().filter(|flow| flow.rate > 0.0);
    room.find(held.iter().chain(growing).map(|flow| flow.path));
    let mut gifts = Gifts::new();
    for _ in 0..ROUNDS {
        room.grow(&mut flows, &mut gifts);
    }
    let order = given.in_order(&flows);
    let (mut waiting, mut size) = (order.as_slice(), FIRST_TOGETHER);
    while !waiting.is_empty() {
        let (together, later) = waiting.split_at(size.min(waiting.len()));
        (waiting, size) = (later, size.saturating_mul(2));
        let hopeful = together.iter().map(|&index| flows[index].path).filter(|path| room.is_worth(path));
        let hopeful: Vec<Path> = hopeful.collect();
        room.find(hopeful);
        for flow in together.iter().map(|&index| &flows[index]) {
            let gift = room.least(&flow.path).min(flow.limit - flow.rate);
            // A trickle would take a message and keep a link from being given to one flow as a whole.
            if gift.is_finite() && gift > LEAST_GIFT * room.least_capacity(&flow.path) {
                room.take(&flow.path, gift);
                *gifts.entry(flow.at).or_default() += gift;
            }
        }
    }
    gifts
}

impl Given<'_> {
    /// A flow of the table that can use so much, if it crosses links.
    fn moving(self, at: FlowRef, limit: f64) -> Option<Moving> {
        let class = self.table.flow(at).class()?;
        let path = *self.table.classes()[class.index()].path();
        Some(Moving { at, path, rate: self.plan.rate(self.table, at).bytes_per_sec(), limit })
    }

    /// Flows on the links of these that can use more than they are given, by (arrival, id) of their coflows.
    fn takers(self, held: &[Moving], limits: &BTreeMap<FlowRef, f64>) -> Vec<Moving> {
        let mut touched = BitSet::new(self.fabric.links().len());
        held.iter().flat_map(|flow| flow.path.iter()).for_each(|link| touched.insert(link.index()));
        let (mut takers, mut found) = (Vec::new(), Vec::new());
        for &coflow in self.table.slots() {
            self.table.find_flows_on(coflow, &touched, &mut found);
            let flows = found.iter().filter_map(|&flow| {
                let at = FlowRef { coflow, flow };
                self.moving(at, limits.get(&at).copied().unwrap_or(f64::INFINITY))
            });
            takers.extend(flows.filter(|flow| flow.rate < flow.limit));
        }
        takers
    }

    /// Indices of flows, those of coflows that the policy serves first before others.
    fn in_order(self, flows: &[Moving]) -> Vec<usize> {
        let places: BTreeMap<Slot, usize> =
            self.order.iter().enumerate().map(|(place, &slot)| (slot, place)).collect();
        let mut indices: Vec<usize> = (0..flows.len()).collect();
        // Without an order they stay as they are: by arrival.
        let place = |&index: &usize| places.get(&flows[index].at.coflow).copied().unwrap_or(usize::MAX);
        indices.sort_by_cached_key(place);
        indices
    }
}

/// What links have free while gifts are computed; found for the links that are asked for.
struct Room<'a> {
    given: Given<'a>,
    /// Per link, what held flows are given, and what they can use.
    held: Vec<(f64, f64)>,
    /// Per link, infinite until it is found.
    free: Vec<f64>,
}

impl<'a> Room<'a> {
    fn beside(held: &[Moving], given: Given<'a>) -> Room<'a> {
        let links = given.fabric.links().len();
        let mut sums = vec![(0.0, 0.0); links];
        for flow in held {
            for sum in flow.path.iter().map(|link| link.index()) {
                sums[sum].0 += flow.rate;
                sums[sum].1 += flow.limit;
            }
        }
        Room { given, held: sums, free: vec![f64::INFINITY; links] }
    }

    /// Finds what is free on paths.
    fn find(&mut self, paths: impl IntoIterator<Item = Path>) {
        let mut links = BitSet::new(self.free.len());
        for path in paths {
            let unknown = path.iter().map(|link| link.index()).filter(|&link| self.free[link].is_infinite());
            unknown.for_each(|link| links.insert(link));
        }
        if links.is_empty() {
            return;
        }
        let mut given = vec![0.0; self.free.len()];
        self.given.plan.add_rates_on(self.given.table, &links, &mut given);
        for link in links.iter() {
            let capacity = self.capacity(LinkId(link as u32));
            let (given_to_held, usable) = self.held[link];
            // In this order: beside a held flow that has its links alone, exactly what it cannot use is free.
            let or_nothing = |rate: f64| if rate > ROUNDING * capacity { rate } else { 0.0 };
            let others = or_nothing(given[link] - given_to_held);
            let free = or_nothing(capacity - others - usable);
            self.free[link] = if given[link].is_finite() { free } else { 0.0 };
        }
    }

    fn capacity(&self, link: LinkId) -> f64 {
        self.given.fabric.capacity(link).bytes_per_sec()
    }

    fn least_capacity(&self, path: &Path) -> f64 {
        path.iter().map(|&link| self.capacity(link)).fold(f64::INFINITY, f64::min)
    }

    /// The least that a link of a path has free, of those that were found.
    fn least(&self, path: &Path) -> f64 {
        path.iter().map(|link| self.free[link.index()]).fold(f64::INFINITY, f64::min)
    }

    /// Whether a flow that waits may get something on a path, as far as its links were found.
    fn is_worth(&self, path: &Path) -> bool {
        self.least(path) > LEAST_GIFT * self.least_capacity(path)
    }

    fn take(&mut self, path: &Path, gift: f64) {
        path.iter().for_each(|link| self.free[link.index()] = (self.free[link.index()] - gift).max(0.0));
    }

    /// Lets moving flows grow in the ratio of their rates, as far as their links have room.
    fn grow(&mut self, flows: &mut [Moving], gifts: &mut Gifts) {
        let mut rates = vec![0.0; self.free.len()];
        for flow in flows.iter().filter(|flow| flow.rate > 0.0) {
            flow.path.iter().for_each(|link| rates[link.index()] += flow.rate);
        }
        // Shares are of the room at the beginning of the round, so that the order of flows does not matter.
        let room = self.free.clone();
        for flow in flows.iter_mut().filter(|flow| flow.rate > 0.0) {
            let share = |link: &LinkId| room[link.index()] / rates[link.index()];
            let share = flow.path.iter().map(share).fold(f64::INFINITY, f64::min);
            let gift = (flow.rate * share).min(flow.limit - flow.rate);
            if gift.is_finite() && gift > 0.0 {
                self.take(&flow.path, gift);
                *gifts.entry(flow.at).or_default() += gift;
                flow.rate += gift;
            }
        }
    }
}
