//! Large coflows at a coordinator's rates, and small coflows and flows with deadlines beside them, in one network.
//!
//! Large coflows are planned by `varys` in the fluid simulator, on a share of every link, and go at those rates in the
//! last class. Small coflows either begin at once, under the transport that is tried, or wait for the coordinator and are
//! planned with the large ones. Flows with deadlines always begin at once. Planned anew, large coflows have the rates that a policy
//! gives them as they come and flows end, by what has arrived. By order alone nothing has a rate: all coflows are in classes that a
//! policy gives them likewise, over the classes of the transport ([`super::order`]).

use super::order::{Coordinator, Reports, Says};
use crate::Measures;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use weir_model::{Bytes, CoflowId, CoflowSpec, Fabric, FlowSpec, HostId, Rate, Span, Time};
use weir_packet::transport::{self, Ordered, Planned, RatePlan, Rated, Transport};
use weir_packet::{Deadlines, FlowRecord, HEADER_BYTES, Picos, SEGMENT_BYTES, Scenario, Simulation};
use weir_policy::{CoflowTable, Plan};
use weir_sim::{Observer, Options, mean, percentile};
use weir_trace::{FlowArrival, FlowKind};

/// Bytes of a flow, and senders and receivers, of each kind of coflow.
const LARGE: (RangeInclusive<u64>, RangeInclusive<u32>) = (2_000_000..=20_000_000, 2..=6);
const SMALL: (RangeInclusive<u64>, RangeInclusive<u32>) = (10_000..=100_000, 1..=3);
/// Bytes of a flow with a deadline, and its deadline in milliseconds.
const URGENT: (RangeInclusive<u64>, RangeInclusive<u64>) = (50_000..=500_000, 15..=60);

/// A run is over so long after the last flow began: what has not ended by then never does.
const LONGEST: Span = Span::from_millis(600_000);

/// Coflows and flows with deadlines in one network.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CoflowTraffic {
    /// Large coflows of a run; others come until the last of these has.
    pub large: u32,
    /// Load of hosts' links by large coflows.
    pub large_load: f64,
    /// Load of hosts' links by small coflows.
    pub small_load: f64,
    /// Load of hosts' links by flows with deadlines.
    pub deadline_load: f64,
    /// Share of every link that the coordinator plans with.
    pub plan_share: f64,
    /// How long a small coflow waits for its plan; without it, it begins at once and has none. By order alone, how long what is
    /// said of classes is on its way: until then a coflow is in the class of its size.
    pub wait: Option<String>,
    /// A policy that says classes: coflows go by order alone.
    pub order: Option<String>,
    /// A policy by which large coflows are planned anew as they come and as flows end; without it, and without an order, `varys` plans
    /// them once. Small coflows begin at once then, and `wait` is how long what is said of rates is on its way.
    pub anew: Option<String>,
}

/// What is to move.
struct Work {
    large: Vec<CoflowSpec>,
    small: Vec<CoflowSpec>,
    urgent: Vec<FlowArrival>,
}

/// Draws coflows and flows of one kind.
struct Drawing {
    random: ChaCha8Rng,
    hosts: u32,
    /// Payload per second that all hosts together send at load 1.
    capacity: f64,
}

impl Drawing {
    fn new(seed: u64, stream: u64, hosts: u32, link: Rate) -> Drawing {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(stream);
        Drawing { random, hosts, capacity: f64::from(hosts) * link.bytes_per_sec() }
    }

    /// Seconds until the next arrival of so many bytes on average at a load.
    fn gap(&mut self, bytes: f64, load: f64) -> f64 {
        let draw: f64 = self.random.random_range(f64::MIN_POSITIVE..1.0);
        // An exponential gap by inversion, of the mean at which `bytes` each make this load. The draw is never 0.
        -draw.ln() * bytes / (load * self.capacity)
    }

    /// So many different hosts.
    fn some_hosts(&mut self, count: u32) -> Vec<HostId> {
        let mut all: Vec<u32> = (0..self.hosts).collect();
        let count = count.min(self.hosts) as usize;
        for place in 0..count {
            // The first steps of Fisher and Yates's shuffle: different hosts, each choice of them
            // as likely.
            let other = self.random.random_range(place..all.len());
            all.swap(place, other);
        }
        all[..count].iter().map(|&host| HostId(host)).collect()
    }

    /// Coflows of a kind, at a load, until there are `count` or `until` has passed.
    fn coflows(
        &mut self,
        kind: &(RangeInclusive<u64>, RangeInclusive<u32>),
        load: f64,
        first: u64,
        (count, until): (u32, f64),
    ) -> Vec<CoflowSpec> {
        let (sizes, ends) = kind;
        let width = f64::from(ends.start() + ends.end()) / 2.0;
        let bytes = (sizes.start() + sizes.end()) as f64 / 2.0 * width * width;
        let (mut coflows, mut now) = (Vec::new(), 0.0);
        while coflows.len() < count as usize {
            now += self.gap(bytes, load);
            if now > until {
                break;
            }
            let (senders, receivers) =
                (self.random.random_range(ends.clone()), self.random.random_range(ends.clone()));
            let hosts = self.some_hosts(senders + receivers);
            let (senders, receivers) = hosts.split_at(senders as usize);
            let mut flows = Vec::new();
            for &source in senders {
                for &destination in receivers {
                    let size = Bytes(self.random.random_range(sizes.clone()));
                    flows.push(FlowSpec { source, destination, size, group: 0 });
                }
            }
            let id = CoflowId(first + coflows.len() as u64);
            coflows.push(CoflowSpec::new(id, Time::ZERO + Span::from_secs_ceil(now), flows));
        }
        coflows
    }

    fn urgent(&mut self, load: f64, until: f64) -> Vec<FlowArrival> {
        let (sizes, deadlines) = &URGENT;
        let bytes = (sizes.start() + sizes.end()) as f64 / 2.0;
        let (mut flows, mut now) = (Vec::new(), 0.0);
        loop {
            now += self.gap(bytes, load);
            if now > until {
                return flows;
            }
            let ends = self.some_hosts(2);
            let within = Span::from_millis(self.random.random_range(deadlines.clone()));
            flows.push(FlowArrival {
                arrival: Time::ZERO + Span::from_secs_ceil(now),
                source: ends[0],
                destination: ends[1],
                size: Bytes(self.random.random_range(sizes.clone())),
                kind: FlowKind::Deadline { within },
            });
        }
    }
}

/// What each flow was planned to do, from a fluid run.
#[derive(Default)]
struct Plans {
    steps: BTreeMap<(CoflowId, u32), RatePlan>,
    /// Flows that move, with the rates of the latest plan.
    moving: BTreeMap<(CoflowId, u32), Rate>,
}

impl Observer for Plans {
    fn moved(&mut self, from: Time, _: Time, table: &CoflowTable, plan: &Plan) {
        let mut now = BTreeMap::new();
        plan.for_each_rate(table, |at, rate| {
            now.insert((table.coflow(at.coflow).id(), at.flow), rate);
        });
        let from = Picos::from(from);
        for (flow, rate) in &now {
            if self.moving.get(flow) != Some(rate) {
                self.steps.entry(*flow).or_default().steps.push((from, *rate));
            }
        }
        // A flow that the plan leaves out has no rate from now on.
        for flow in self.moving.keys().filter(|flow| !now.contains_key(flow)) {
            self.steps.entry(*flow).or_default().steps.push((from, Rate::ZERO));
        }
        self.moving = now;
    }
    fn flow_completed(&mut self, flow: weir_sim::FlowRecord) {
        let key = (flow.coflow, flow.index as u32);
        self.moving.remove(&key);
        self.steps.entry(key).or_default().end = flow.completed.into();
    }
}

/// What flows of a run belong to, by number.
struct Flows {
    arrivals: Vec<FlowArrival>,
    coflows: Vec<Option<CoflowId>>,
    /// Of planned flows, by their numbers.
    plans: Vec<RatePlan>,
    members: Vec<(CoflowId, u32)>,
    /// Planned completion times of coflows, in seconds.
    planned: BTreeMap<CoflowId, f64>,
}

/// One run under a transport.
pub(super) fn simulate(
    traffic: &CoflowTraffic,
    mut scenario: Scenario,
    transport: &str,
    seed: u64,
) -> Result<Measures, String> {
    scenario.traffic = None;
    let work = work(traffic, &scenario, seed);
    let flows = flows(traffic, &work, &scenario)?;
    let others = transport::named(transport).map_err(|error| error.to_string())?;
    let says = match (&traffic.order, &traffic.anew) {
        (Some(_), Some(_)) => return Err("packets: coflows: order and anew: give one of them".to_owned()),
        (Some(policy), None) => Some((policy, "order", Says::Classes { last: others.last_class() })),
        (None, Some(policy)) => Some((policy, "anew", Says::Rates)),
        (None, None) => None,
    };
    let coordinator = says
        .map(|(policy, key, says)| {
            let fabric = traffic.fabric(&scenario, says)?;
            let coflows = work.large.iter().chain(&work.small).cloned();
            let delay = traffic.wait()?.unwrap_or_default().into();
            Coordinator::new(policy, fabric, coflows, &flows.members, says, delay)
                .map_err(|error| format!("packets: coflows: {key}: {error}"))
        })
        .transpose()?;
    let transport: Box<dyn Transport> = match (&coordinator, says) {
        (Some(coordinator), Some((.., Says::Rates))) => Box::new(Rated::new(coordinator.rate_told(), others)),
        (Some(coordinator), _) => Box::new(Ordered::new(coordinator.told(), others)),
        (None, _) => Box::new(Planned::new(flows.plans.clone(), others)),
    };
    let planned = |flow: &FlowArrival| match flow.kind {
        FlowKind::Planned(number) => Some(number),
        _ => None,
    };
    let planned: Vec<Option<u32>> = flows.arrivals.iter().map(planned).collect();
    let mut reports =
        coordinator.clone().map(|coordinator| Reports { coordinator, planned: planned.clone() });
    let topology = scenario.topology().map_err(|error| error.to_string())?;
    let network = scenario.network(&topology);
    let mut ends: BTreeMap<CoflowId, Picos> = BTreeMap::new();
    let mut moving = flows.coflows.iter().flatten().count();
    let mut deadlines = Deadlines::default();
    let mut simulation = Simulation::new(&topology, transport, network, flows.arrivals.iter().copied());
    if let Some(reports) = &mut reports {
        simulation.observe(reports);
    }
    // Flows that are told no rate look for one for good.
    let last = flows.arrivals.last().map_or(Time::ZERO, |flow| flow.arrival);
    simulation.run(Picos::from(last + LONGEST), &mut |record: FlowRecord| {
        if let (Some(coordinator), Some(Some(number))) = (&coordinator, planned.get(record.number as usize)) {
            coordinator.ended(*number, record.finish);
        }
        if let Some(Some(coflow)) = flows.coflows.get(record.number as usize) {
            let end = ends.entry(*coflow).or_default();
            *end = (*end).max(record.finish);
            moving -= 1;
        }
        if record.infeasible() {
            deadlines.infeasible += 1;
        } else if let Some(met) = record.met() {
            deadlines.feasible += 1;
            deadlines.missed += u64::from(!met);
        }
    });
    // The simulation is over. The mean would be of a part of the coflows.
    if moving > 0 {
        return Err(format!("packets: coflows: {moving} flows of coflows do not end under this transport"));
    }
    let ended = deadlines.feasible + deadlines.infeasible;
    let never = (work.urgent.len() as u64).saturating_sub(ended);
    (deadlines.feasible, deadlines.missed) = (deadlines.feasible + never, deadlines.missed + never);
    Ok(measures(&work, &flows, &ends, &deadlines))
}

fn work(traffic: &CoflowTraffic, scenario: &Scenario, seed: u64) -> Work {
    let (hosts, link) = (scenario.hosts(), payload(scenario.host_rate()));
    // A stream for each kind: another load of one kind draws no other coflows of another.
    let drawing = |stream| Drawing::new(seed, stream, hosts, link);
    let large = drawing(0).coflows(&LARGE, traffic.large_load, 0, (traffic.large, f64::INFINITY));
    let until = large.last().map_or(0.0, |coflow| coflow.arrival.as_secs());
    let first = large.len() as u64;
    let small = drawing(1).coflows(&SMALL, traffic.small_load, first, (u32::MAX, until));
    Work { large, small, urgent: drawing(2).urgent(traffic.deadline_load, until) }
}

impl CoflowTraffic {
    /// The links as a coordinator has them: rates leave room for what has none.
    fn fabric(&self, scenario: &Scenario, says: Says) -> Result<Fabric, String> {
        let share = if matches!(says, Says::Rates) { self.plan_share } else { 1.0 };
        let link = payload(scenario.host_rate()).scaled(share);
        Fabric::big_switch(scenario.hosts(), link).map_err(|error| error.to_string())
    }

    fn wait(&self) -> Result<Option<Span>, String> {
        let wrong = |error| format!("packets: coflows: wait: {error}");
        self.wait.as_ref().map(|wait| wait.parse().map_err(wrong)).transpose()
    }
}

/// What of a link's rate is payload.
fn payload(link: Rate) -> Rate {
    link.scaled(f64::from(SEGMENT_BYTES) / f64::from(SEGMENT_BYTES + HEADER_BYTES))
}

/// Plans what is to be planned, and puts all flows in the order of their arrivals.
fn flows(traffic: &CoflowTraffic, work: &Work, scenario: &Scenario) -> Result<Flows, String> {
    let wait = traffic.wait()?;
    let mut coflows = work.large.clone();
    if traffic.order.is_some() {
        coflows.extend(work.small.iter().cloned());
    } else if traffic.anew.is_none() {
        for coflow in wait.iter().flat_map(|_| &work.small) {
            let mut later = coflow.clone();
            later.arrival = later.arrival + wait.unwrap_or_default();
            coflows.push(later);
        }
    }
    let fabric = traffic.fabric(scenario, Says::Rates)?;
    let policy = traffic.order.as_deref().or(traffic.anew.as_deref()).unwrap_or("varys");
    let mut policy = weir_policy::create(policy).map_err(|error| error.to_string())?;
    let mut plans = Plans::default();
    let outcome =
        weir_sim::simulate_observed(&fabric, coflows, policy.as_mut(), &Options::default(), &mut plans)
            .map_err(|error| error.to_string())?;
    let planned = outcome.coflows.iter().map(|coflow| (coflow.id, coflow.cct.as_secs())).collect();
    let mut flows =
        Flows { arrivals: Vec::new(), coflows: Vec::new(), plans: Vec::new(), members: Vec::new(), planned };
    let mut all: Vec<(FlowArrival, Option<CoflowId>)> =
        work.urgent.iter().map(|flow| (*flow, None)).collect();
    for coflow in work.large.iter().chain(&work.small) {
        for (index, flow) in coflow.flows.iter().enumerate() {
            let plan = plans.steps.remove(&(coflow.id, index as u32));
            let kind =
                if plan.is_some() { FlowKind::Planned(flows.plans.len() as u32) } else { FlowKind::Known };
            if let Some(plan) = plan {
                flows.plans.push(plan);
                flows.members.push((coflow.id, index as u32));
            }
            let FlowSpec { source, destination, size, .. } = *flow;
            all.push((
                FlowArrival { arrival: coflow.arrival, source, destination, size, kind },
                Some(coflow.id),
            ));
        }
    }
    // A stable sort: flows that arrive together stay in the order of their coflows, whatever the
    // seed.
    all.sort_by_key(|(flow, _)| flow.arrival);
    (flows.arrivals, flows.coflows) = all.into_iter().unzip();
    Ok(flows)
}

fn measures(work: &Work, flows: &Flows, ends: &BTreeMap<CoflowId, Picos>, deadlines: &Deadlines) -> Measures {
    let mut measures = Measures::new();
    let mut note = |name: &str, value: f64| measures.insert(name.to_owned(), value);
    let times = |coflows: &[CoflowSpec]| -> Vec<f64> {
        let time = |coflow: &CoflowSpec| Some(ends.get(&coflow.id)?.as_secs() - coflow.arrival.as_secs());
        let mut times: Vec<f64> = coflows.iter().filter_map(time).collect();
        times.sort_by(f64::total_cmp);
        times
    };
    let small = times(&work.small);
    note("cct avg small", 1e3 * mean(&small));
    note("cct p95 small", 1e3 * percentile(&small, 0.95));
    note("cct p99 small", 1e3 * percentile(&small, 0.99));
    note("cct avg large", 1e3 * mean(&times(&work.large)));
    let over = |coflow: &CoflowSpec| {
        let time = ends.get(&coflow.id)?.as_secs() - coflow.arrival.as_secs();
        Some(time / flows.planned.get(&coflow.id)?)
    };
    note("cct over plan", mean(&work.large.iter().filter_map(over).collect::<Vec<_>>()));
    let all = (deadlines.feasible + deadlines.infeasible).max(1);
    note("missed", 100.0 * deadlines.miss_rate());
    note("infeasible", 100.0 * deadlines.infeasible as f64 / all as f64);
    measures
}
