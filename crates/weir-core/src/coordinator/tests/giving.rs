//! Gifts are those that a look at every flow of the table leads to.

use super::*;
use crate::coordinator::state::flow_key;
use proptest::prelude::*;
use std::collections::BTreeMap;
use v1::agent_event::Kind;
use weir_model::{LinkId, RackSpec, SiteSpec};
use weir_policy::{FlowRef, Slot};

const HOSTS: u32 = 9;
/// One for each form of a plan, and others.
const POLICIES: [&str; 15] = [
    "varys",
    "varys:delta=200ms",
    "varys-madd",
    "scf",
    "sebf-static",
    "fifo",
    "fair",
    "fair-coflows",
    "smallest-flow",
    "flow-edf",
    "dclas",
    "dclas-strict",
    "baraat",
    "orchestra",
    BETWEEN_SITES,
];
/// It has an order (`Plan::order`) and needs sites. No coordinator runs it.
const BETWEEN_SITES: &str = "sebf-routed";

/// A flow of the table and its rate while gifts are computed.
struct Moving {
    at: FlowRef,
    path: Vec<LinkId>,
    rate: f64,
    limit: f64,
}

/// Gifts by a look at every flow, slow and plain.
fn obvious_gifts(coordinator: &Coordinator) -> BTreeMap<FlowRef, f64> {
    let mut flows = moving_flows(coordinator);
    let fabric = coordinator.network.left();
    let capacity = |link: LinkId| fabric.capacity(link).bytes_per_sec();
    let mut free: Vec<f64> = (0..fabric.links().len() as u32).map(|link| capacity(LinkId(link))).collect();
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
    for _ in 0..4 {
        grow(&mut flows, &mut free, &mut gifts);
    }
    for index in in_order(coordinator, &flows) {
        let flow = &flows[index];
        let least =
            |of: &dyn Fn(LinkId) -> f64| flow.path.iter().map(|&link| of(link)).fold(f64::INFINITY, f64::min);
        let gift = least(&|link| free[link.index()]).min(flow.limit - flow.rate);
        if gift.is_finite() && gift > 0.01 * least(&capacity) {
            flow.path.iter().for_each(|link| free[link.index()] -= gift);
            *gifts.entry(flow.at).or_default() += gift;
        }
    }
    gifts
}

/// All flows of the table that cross links.
fn moving_flows(coordinator: &Coordinator) -> Vec<Moving> {
    let (table, mut flows) = (&coordinator.table, Vec::new());
    coordinator.plan.for_each_rate(table, |at, rate| {
        let Some(class) = table.flow(at).class() else { return };
        let key = coordinator.places.key(at.coflow, at.flow);
        flows.push(Moving {
            at,
            path: table.classes()[class.index()].path().to_vec(),
            rate: rate.bytes_per_sec(),
            limit: key.map_or(f64::INFINITY, |key| coordinator.limit_of(key)),
        });
    });
    flows
}

/// Indices of flows, those of coflows that the policy serves first before others.
fn in_order(coordinator: &Coordinator, flows: &[Moving]) -> Vec<usize> {
    let order = &coordinator.plan.order;
    let places: BTreeMap<Slot, usize> =
        order.iter().enumerate().map(|(place, &slot)| (slot, place)).collect();
    let mut indices: Vec<usize> = (0..flows.len()).collect();
    indices.sort_by_key(|&index| places.get(&flows[index].at.coflow).copied().unwrap_or(usize::MAX));
    indices
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

/// A coordinator, and of its agents only what they say.
struct Heard {
    now: Time,
    coordinator: Coordinator,
    /// Hosts and ids of open flows.
    flows: Vec<(u32, u64)>,
    next_flow: u64,
}

fn session(host: u32) -> SessionId {
    SessionId(u64::from(host) + 1)
}

impl Heard {
    fn new(policy: &str, fabric: Fabric) -> Heard {
        let (now, hosts) = (Time::from_millis(1), fabric.hosts());
        let config = CoordinatorConfig { fabric, ..config(hosts, 1 << 40) };
        let mut coordinator = Coordinator::new(config, &weir_policy::find(policy).unwrap());
        for host in 0..hosts {
            let hello = v1::Hello { version: 1, host, ..v1::Hello::default() };
            coordinator.handle_hello(now, session(host), hello).unwrap();
        }
        Heard { now, coordinator, flows: Vec::new(), next_flow: 1 }
    }

    fn tell(&mut self, host: u32, kind: Kind) {
        let events = vec![v1::AgentEvent { kind: Some(kind) }];
        self.coordinator.handle_agent(self.now, session(host), v1::AgentMessage { events });
    }

    fn open(&mut self, coflow: CoflowId, from: u32, destination: u32, size: u64) {
        let (flow, block) = (self.next_flow, self.next_flow.to_string());
        self.next_flow += 1;
        self.flows.push((from, flow));
        let opened = v1::FlowOpened { flow, coflow: coflow.0, block, destination, size, offset: 0, group: 0 };
        self.tell(from, Kind::FlowOpened(opened));
    }

    fn limit(&mut self, (host, flow): (u32, u64), bytes_per_s: f64) {
        let flows = vec![v1::FlowLimit { flow, bytes_per_s }];
        self.tell(host, Kind::Limits(v1::FlowLimits { flows }));
    }

    /// A flow sent all but this part of its size.
    fn report(&mut self, (host, flow): (u32, u64), part_left: f64) {
        let size = self.coordinator.flows[&flow_key(HostNumber(host), FlowNumber(flow))].size;
        let sent = size - (size as f64 * part_left) as u64;
        self.tell(host, Kind::Progress(v1::Progress { flows: vec![v1::FlowProgress { flow, sent }] }));
    }

    fn end(&mut self, index: usize) {
        let (host, flow) = self.flows.remove(index);
        let sent = self.coordinator.flows[&flow_key(HostNumber(host), FlowNumber(flow))].size;
        self.tell(host, Kind::FlowClosed(v1::FlowClosed { flow, sent, done: true, again: false }));
    }

    fn plan(&mut self) {
        self.coordinator.want_plan(self.now);
        assert!(self.coordinator.plan_now(self.now));
        self.coordinator.messages.clear();
    }

    /// Gifts that are there beside those that should be.
    fn check(&self, policy: &str) {
        let (gifts, expected) = (&self.coordinator.gifts, obvious_gifts(&self.coordinator));
        for at in gifts.keys().chain(expected.keys()) {
            let [gift, expected] = [gifts, &expected].map(|of| of.get(at).copied().unwrap_or(0.0));
            let most = 1e-6 * gift.max(expected).max(CAPACITY);
            assert!((gift - expected).abs() <= most, "{policy}: {at:?} has {gift} B/s instead of {expected}");
        }
    }
}

/// A switch, racks, sites with links of hosts, and sites without.
fn fabric(kind: usize) -> Fabric {
    let host_rate = Rate::from_bytes_per_sec(CAPACITY);
    let rates = vec![vec![Rate::from_bytes_per_sec(1.7 * CAPACITY); 3]; 3];
    let sites = |host_rate| SiteSpec { hosts_per_site: vec![4, 3, 2], host_rate, rates: rates.clone() };
    let racks = RackSpec { hosts_per_rack: 3, racks: 3, host_rate, oversubscription: 2.0 };
    match kind {
        0 => Fabric::big_switch(HOSTS, host_rate),
        1 => Fabric::racks(&racks),
        2 => Fabric::sites(&sites(Some(host_rate))),
        _ => Fabric::sites(&sites(None)),
    }
    .unwrap()
}

#[derive(Clone, Debug)]
enum Step {
    Open(u64, u32, u32, u64),
    Limit(prop::sample::Index, f64),
    Report(prop::sample::Index, f64),
    End(prop::sample::Index),
    Wait(u64),
}

fn opens() -> impl Strategy<Value = Step> {
    (1..15u64, 0..HOSTS, 0..HOSTS, 100_000..50_000_000u64)
        .prop_map(|(coflow, from, to, size)| Step::Open(coflow, from, to, size))
}

fn steps() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    // Nothing, a 64th of a link, any rate, more than a link has, and a limit that ends.
    let limit = prop_oneof![
        Just(0.0),
        Just(CAPACITY / 64.0),
        0.0..CAPACITY,
        Just(2.0 * CAPACITY),
        Just(f64::INFINITY),
    ];
    prop_oneof![
        1 => opens(),
        4 => (index(), limit).prop_map(|(flow, limit)| Step::Limit(flow, limit)),
        1 => (index(), 0.01..1.0).prop_map(|(flow, left)| Step::Report(flow, left)),
        1 => index().prop_map(Step::End),
        1 => (0..900u64).prop_map(Step::Wait),
    ]
}

fn take(heard: &mut Heard, step: &Step) {
    let flow = |index: &prop::sample::Index, heard: &Heard| index.index(heard.flows.len());
    match step {
        Step::Open(coflow, from, to, size) => heard.open(CoflowId(*coflow), *from, *to, *size),
        _ if heard.flows.is_empty() => {}
        Step::Limit(index, limit) => heard.limit(heard.flows[flow(index, heard)], *limit),
        Step::Report(index, left) => heard.report(heard.flows[flow(index, heard)], *left),
        Step::End(index) => heard.end(flow(index, heard)),
        Step::Wait(millis) => heard.now = heard.now + Span::from_millis(*millis),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn gifts_are_those_of_a_look_at_every_flow(
        kind in 0..4usize,
        first in prop::collection::vec(opens(), 1..150),
        then in prop::collection::vec(steps(), 1..25),
    ) {
        let fabric = fabric(kind);
        for policy in POLICIES.iter().filter(|&&policy| policy != BETWEEN_SITES || fabric.site_count() > 0) {
            let mut heard = Heard::new(policy, fabric.clone());
            first.iter().for_each(|step| take(&mut heard, step));
            for step in &then {
                take(&mut heard, step);
                heard.plan();
                heard.check(policy);
            }
        }
    }
}

#[test]
fn no_limit_above_the_rate_and_none_on_other_links_gives_anything_away() {
    // Two flows of one uplink at half of it each, and one from another host that has its link alone.
    let mut heard = Heard::new("fair", fabric(0));
    for (from, to) in [(0, 1), (0, 2), (3, 4)] {
        heard.open(CoflowId(1), from, to, 50_000_000);
    }
    heard.limit((0, 1), 0.6 * CAPACITY);
    heard.limit((3, 3), 2.0 * CAPACITY);
    heard.plan();
    assert_eq!(heard.coordinator.gifts, BTreeMap::new());
    // Of its half the first flow can use a fifth of the link: three tenths are for the second.
    heard.limit((0, 1), 0.2 * CAPACITY);
    heard.plan();
    let gifts: Vec<(u32, f64)> = heard.coordinator.gifts.iter().map(|(at, &gift)| (at.flow, gift)).collect();
    assert_eq!(gifts.len(), 1);
    assert_eq!(gifts[0].0, 1);
    assert_rate(gifts[0].1, 0.3 * CAPACITY);
}

/// Prints what a plan takes at 100 hosts with 30 coflows of 1000 flows, without a limit and with one flow that takes
/// nothing:
/// `cargo test -p weir-core --locked --lib time_of_gifts -- --ignored --nocapture`
#[test]
#[ignore = "prints times, and asserts nothing of them"]
fn time_of_gifts() {
    const ROUNDS: u32 = 50;
    println!("us per plan without a limit, with one; us of gifts, of gifts by a look at every flow");
    for policy in ["varys", "scf", "fair", "fair-coflows", "dclas", "dclas-strict", "smallest-flow"] {
        let mut heard =
            Heard::new(policy, Fabric::big_switch(100, Rate::from_bytes_per_sec(CAPACITY)).unwrap());
        // Hosts and sizes in no order, the same in every run.
        let mut state = 1u64;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for flow in 0..30_000 {
            let (from, to) = (draw(100) as u32, draw(100) as u32);
            heard.open(CoflowId(flow / 1000 + 1), from, to, 1_000_000 + draw(9_000_000));
        }
        let plan = |heard: &mut Heard| {
            let mut sum = std::time::Duration::ZERO;
            for _ in 0..ROUNDS {
                // One correction, so that no plan merely goes on.
                heard.now = heard.now + Span::from_millis(1);
                heard.report(heard.flows[0], 0.9);
                sum += time(|| heard.plan());
            }
            sum.as_secs_f64() * 1e6 / f64::from(ROUNDS)
        };
        plan(&mut heard);
        let without = plan(&mut heard);
        let rate = |at: FlowRef| heard.coordinator.plan.rate(&heard.coordinator.table, at).bytes_per_sec();
        let known = |&(host, flow): &(u32, u64)| {
            heard.coordinator.flows[&flow_key(HostNumber(host), FlowNumber(flow))].at.unwrap()
        };
        let moving = heard.flows.iter().copied().find(|flow| rate(known(flow)) > 0.0);
        heard.limit(moving.unwrap(), 0.0);
        let with = plan(&mut heard);
        heard.check(policy);
        let each = |sum: std::time::Duration| sum.as_secs_f64() * 1e6 / f64::from(ROUNDS);
        let new = each(time(|| (0..ROUNDS).for_each(|_| heard.coordinator.give_away())));
        let old = each(time(|| {
            (0..ROUNDS).for_each(|_| drop(std::hint::black_box(obvious_gifts(&heard.coordinator))));
        }));
        let gifts = heard.coordinator.gifts.len();
        println!(
            "{policy}: {without:.0}, {with:.0}; {new:.0}, {old:.0} ({:.0} times as much); {gifts} gifts",
            old / new
        );
    }
}

#[expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "prints what it measures, and asserts nothing of it"
)]
fn time(what: impl FnOnce()) -> std::time::Duration {
    let begin = std::time::Instant::now();
    what();
    begin.elapsed()
}
