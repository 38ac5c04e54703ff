//! Coflows between sites: real bytes through relays, beside their simulation.

mod page;

use anyhow::Error;
pub use page::{line, page};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use weir_experiment::{Live, LiveWork, MadeBy};
use weir_model::{Bytes, CoflowId, CoflowSpec, HostId, Rate, Span};
use weir_results::{mean, percentile};
use weir_sim::{FlowRecord, Observer};
use weir_testbed::live::{LiveOptions, LiveOutcome, Network, RateChange, RelaySetup};
use weir_testbed::{BedLinks, MAX_LINK_RATE_BPS, MIN_LINK_RATE_BPS, SiteBed, SiteBedConfig};

/// Parallel connections between relays, as measured bandwidths are of many.
const CONNECTIONS: u8 = 4;
/// What agents take their hosts' links to carry, which are not shaped, in bytes per second.
const HOST_RATE: f64 = 1.25e9;

/// The processes of a run.
#[derive(Clone, Debug)]
pub struct Processes {
    /// The binary `weir`, which runs daemons and tasks.
    pub program: PathBuf,
    /// Options of `weir controller`; none: there is no controller.
    pub controller: Option<Vec<String>>,
}

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub struct LiveResults {
    schema: u32,
    /// The command that measured.
    pub made_by: MadeBy,
    /// The point of the experiment that was repeated.
    pub point: String,
    /// Name of the trace.
    pub workload: String,
    /// In the order in which they ran.
    pub runs: Vec<LiveRun>,
}

impl LiveResults {
    /// Results without a run yet.
    pub fn new(made_by: MadeBy, point: &str, workload: &str) -> LiveResults {
        LiveResults {
            schema: 1,
            made_by,
            point: point.to_owned(),
            workload: workload.to_owned(),
            runs: Vec::new(),
        }
    }
}

/// One policy with one seed.
#[derive(Debug, Serialize)]
pub struct LiveRun {
    policy: String,
    seed: u64,
    live: Times,
    simulated: Times,
    /// Mean over links of |mean of what was learned / what the link had on average - 1|; none without a controller.
    learned_error: Option<f64>,
    links: Vec<LearnedLink>,
}

/// Completion times of coflows and of reducers, in seconds.
#[derive(Debug, Serialize)]
pub struct Times {
    avg_cct_s: f64,
    p90_cct_s: f64,
    slowest_cct_s: f64,
    read_p50_s: f64,
    read_p90_s: f64,
}

/// Payload rates of a link in Mbit/s: what it had, and what was learned of it.
#[derive(Debug, Serialize)]
pub struct LearnedLink {
    from: usize,
    to: usize,
    samples: usize,
    had: Quantiles,
    learned: Quantiles,
}

/// Mean, median, 10th and 90th percentile of samples.
#[derive(Debug, Serialize)]
pub struct Quantiles {
    mean: f64,
    p10: f64,
    p50: f64,
    p90: f64,
}

impl Quantiles {
    fn of(mut values: Vec<f64>) -> Quantiles {
        values.sort_by(f64::total_cmp);
        let at = |share| percentile(&values, share);
        Quantiles { mean: mean(&values), p10: at(0.1), p50: at(0.5), p90: at(0.9) }
    }
}

fn bits(rate: Rate) -> u64 {
    (rate.bits_per_sec() as u64).clamp(MIN_LINK_RATE_BPS, MAX_LINK_RATE_BPS)
}

/// Moves one piece of work under one policy, over a bed with a host in each site. `program` is `weir`; `controller`: what its
/// controller is told, none where there is none; `moved` is told the bytes that have arrived.
///
/// # Errors
/// The policy or the bed cannot be made, the work cannot be simulated, or the run fails.
pub fn run(
    live: &Live,
    policy: &str,
    seed: u64,
    work: &LiveWork,
    processes: Processes,
    moved: impl FnMut(u64),
) -> Result<LiveRun, Error> {
    let coflows = &work.coflows;
    let simulated = simulate(policy, work)?;
    let rates_bps = work.rates.iter().map(|row| row.iter().copied().map(bits).collect()).collect();
    let bed = SiteBed::create(&SiteBedConfig { hosts_per_site: vec![1; work.rates.len()], rates_bps })?;
    let change = |&(at, from, to, rate): &(weir_model::Time, usize, usize, Rate)| {
        let rate = Rate::from_bits_per_sec(bits(rate) as f64);
        RateChange { at: Span::from_nanos(at.nanos()), from, to, rate }
    };
    let relays = RelaySetup {
        connections: CONNECTIONS,
        connection_rates: None,
        controller: processes.controller,
        warm_up: Bytes(live.warm_up as u64),
        changes: work.changes.iter().map(change).collect(),
    };
    let options = LiveOptions {
        program: processes.program,
        links: BedLinks::equal(work.rates.len(), Rate::from_bytes_per_sec(HOST_RATE).bits_per_sec() as u64),
        policy: None,
        plan_share: 1.0,
        bypass: Span::ZERO,
        batch_window: Span::from_millis(1),
        ready_wait: Span::ZERO,
        sync_interval: Span::from_millis(10),
        deadline_margin: (0.0, Span::ZERO),
        foreign_traffic: false,
        tags: false,
        relays: Some(relays),
    };
    let outcome = weir_testbed::live::run(&options, &Network::Sites(Box::new(bed)), coflows, moved)?;
    let links = links(work, &outcome);
    let errors: Vec<f64> = links.iter().map(|link| (link.learned.mean / link.had.mean - 1.0).abs()).collect();
    Ok(LiveRun {
        policy: policy.to_owned(),
        seed,
        live: live_times(coflows, &outcome),
        simulated,
        learned_error: (!errors.is_empty()).then(|| mean(&errors)),
        links,
    })
}

/// What was learned of links, beside what they had while it was.
fn links(work: &LiveWork, outcome: &LiveOutcome) -> Vec<LearnedLink> {
    let megabits = |bytes_per_sec: f64| bytes_per_sec * 8e-6;
    let end = outcome.flows.iter().map(|flow| flow.done).max().unwrap_or(Span::ZERO);
    let learned = |(&(from, to), samples): (&(u32, u32), &Vec<f64>)| {
        let (from, to) = (from as usize, to as usize);
        let changes = work.changes.iter().filter(|change| (change.1, change.2) == (from, to));
        let during = changes.take_while(|change| change.0.nanos() < end.nanos()).map(|change| change.3);
        let had: Vec<f64> = std::iter::once(work.rates[from][to])
            .chain(during)
            .map(|rate| megabits(rate.bytes_per_sec() * Rate::PAYLOAD_SHARE))
            .collect();
        LearnedLink {
            from,
            to,
            samples: samples.len(),
            had: Quantiles::of(had),
            learned: Quantiles::of(samples.iter().copied().map(megabits).collect()),
        }
    };
    outcome.learned.iter().map(learned).collect()
}

/// A reducer: its coflow, host, and number there.
type Reducer = (CoflowId, HostId, u32);

/// Sees when the last flow to each reducer ends.
struct Reads<'a> {
    coflows: BTreeMap<CoflowId, &'a CoflowSpec>,
    done: BTreeMap<Reducer, f64>,
}

impl Reads<'_> {
    fn of(coflows: &[CoflowSpec]) -> Reads<'_> {
        let coflows = coflows.iter().map(|coflow| (coflow.id, coflow)).collect();
        Reads { coflows, done: BTreeMap::new() }
    }

    fn note(&mut self, coflow: CoflowId, flow: usize, secs: f64) {
        let spec = self.coflows[&coflow];
        let flow = &spec.flows[flow];
        let done = self.done.entry((coflow, flow.destination, flow.group)).or_insert(0.0);
        *done = done.max(secs);
    }

    fn times(self, mut ccts: Vec<f64>) -> Times {
        let mut reads: Vec<f64> = self.done.into_values().collect();
        reads.sort_by(f64::total_cmp);
        ccts.sort_by(f64::total_cmp);
        Times {
            avg_cct_s: mean(&ccts),
            p90_cct_s: percentile(&ccts, 0.9),
            slowest_cct_s: ccts.last().copied().unwrap_or(0.0),
            read_p50_s: percentile(&reads, 0.5),
            read_p90_s: percentile(&reads, 0.9),
        }
    }
}

impl Observer for Reads<'_> {
    fn flow_completed(&mut self, flow: FlowRecord) {
        let arrival = self.coflows[&flow.coflow].arrival;
        self.note(flow.coflow, flow.index, flow.completed.since(arrival).as_secs());
    }
}

fn simulate(policy: &str, work: &LiveWork) -> Result<Times, Error> {
    let (fabric, changes) = work.simulated(Rate::PAYLOAD_SHARE).map_err(Error::msg)?;
    let mut reads = Reads::of(&work.coflows);
    let mut instance = weir_policy::create(policy)?;
    let options = weir_sim::Options::default();
    let coflows = work.coflows.clone();
    let outcome =
        weir_sim::simulate_changing(&fabric, changes, coflows, instance.as_mut(), &options, &mut reads)?;
    Ok(reads.times(outcome.coflows.iter().map(|record| record.cct.as_secs()).collect()))
}

fn live_times(coflows: &[CoflowSpec], outcome: &LiveOutcome) -> Times {
    let mut reads = Reads::of(coflows);
    for flow in &outcome.flows {
        let since_arrival = flow.done.nanos().saturating_sub(outcome.arrival[flow.coflow].nanos());
        reads.note(coflows[flow.coflow].id, flow.flow, Span::from_nanos(since_arrival).as_secs());
    }
    reads.times(outcome.completion.iter().map(|cct| cct.as_secs()).collect())
}
