//! `weir experiment live`: the part of an experiment between sites that is repeated with real bytes.

use super::written::{write_numbers, write_text};
use super::{LiveArgs, check_policies, chosen, failed, load_trace};
use crate::commands::workload;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use weir_console::{Failure, controller_options, progress};
use weir_experiment::{Experiment, Live, LiveWork, MadeBy};
use weir_model::{Bytes, CoflowId, CoflowSpec, HostId, Rate, Span};
use weir_results::{Provenance, mean, percentile};
use weir_sim::{FlowRecord, Observer};
use weir_testbed::live::{LiveOptions, LiveOutcome, Network, RateChange, RelaySetup};
use weir_testbed::{BedLinks, MAX_LINK_RATE_BPS, MIN_LINK_RATE_BPS, SiteBed, SiteBedConfig};

/// Parallel connections between relays, as measured bandwidths are of many.
const CONNECTIONS: u8 = 4;
/// What agents take their hosts' links to carry, which are not shaped, in bytes per second.
const HOST_RATE: f64 = 1.25e9;

/// Everything that was measured.
#[derive(Debug, Serialize)]
struct LiveResults {
    schema: u32,
    made_by: MadeBy,
    point: String,
    workload: String,
    runs: Vec<LiveRun>,
}

/// One policy with one seed.
#[derive(Debug, Serialize)]
struct LiveRun {
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
struct Times {
    avg_cct_s: f64,
    p90_cct_s: f64,
    slowest_cct_s: f64,
    read_p50_s: f64,
    read_p90_s: f64,
}

/// Payload rates of a link in Mbit/s: what it had, and what was learned of it.
#[derive(Debug, Serialize)]
struct LearnedLink {
    from: usize,
    to: usize,
    samples: usize,
    had: Quantiles,
    learned: Quantiles,
}

#[derive(Debug, Serialize)]
struct Quantiles {
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

pub(super) fn live(args: &LiveArgs) -> Result<(), Failure> {
    for (name, folder, experiment) in chosen(&args.dir, &args.name)? {
        let Some(live) = &experiment.live else {
            return Err(Failure::Input(format!("{name} has no live part; siphon-sort has one")));
        };
        check_policies(&name, &experiment)?;
        let source = load_trace(&args.trace)?;
        let stem = folder.join(format!("live-{}", weir_experiment::stem(source.name())));
        let mut files = workload::inputs("--trace", &args.trace);
        let mut file = |ending: &str| files.writes("--write", &stem.with_extension(ending));
        let written = args.write.then(|| Ok::<_, Failure>([file("json")?, file("md")?])).transpose()?;
        let mut results = LiveResults {
            schema: 1,
            made_by: Provenance::of_experiment(&["experiment", "live", &name, "--trace", &args.trace]),
            point: live.point.clone(),
            workload: source.name().to_owned(),
            runs: Vec::new(),
        };
        for &seed in experiment.live_seeds(live) {
            let work = experiment.live_work(live, &source, seed);
            let work = work.map_err(|error| failed(&name, error))?;
            for policy in &live.policies {
                let run = run(live, policy, seed, &work, &format!("{policy}, seed {seed}"))?;
                println!("{}", line(&run));
                results.runs.push(run);
            }
        }
        let page = page(&experiment, live, &name, &results);
        println!("\n{page}");
        if let Some([numbers, text]) = &written {
            write_numbers(numbers, &results)?;
            write_text(text, &page)?;
        }
    }
    Ok(())
}

fn line(run: &LiveRun) -> String {
    let LiveRun { policy, seed, live, simulated, learned_error, .. } = run;
    let learned =
        learned_error.map_or_else(String::new, |error| format!(", links learned to {:.1} %", error * 100.0));
    format!(
        "seed {seed}, {policy}: average {:.2} s, simulated {:.2} s ({:.3}x); reads p50 {:.2} s, simulated {:.2} s{learned}",
        live.avg_cct_s,
        simulated.avg_cct_s,
        live.avg_cct_s / simulated.avg_cct_s,
        live.read_p50_s,
        simulated.read_p50_s,
    )
}

fn bits(rate: Rate) -> u64 {
    (rate.bits_per_sec() as u64).clamp(MIN_LINK_RATE_BPS, MAX_LINK_RATE_BPS)
}

fn run(live: &Live, policy: &str, seed: u64, work: &LiveWork, label: &str) -> Result<LiveRun, Failure> {
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
        controller: controller_options(policy)?,
        warm_up: Bytes(live.warm_up as u64),
        changes: work.changes.iter().map(change).collect(),
    };
    let options = LiveOptions {
        program: std::env::current_exe()?,
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
    let total: u64 = coflows.iter().map(|coflow| coflow.bytes().0).sum();
    let bar = progress::bytes(total, label);
    let outcome = weir_testbed::live::run(&options, &Network::Sites(Box::new(bed)), coflows, |bytes| {
        bar.set_position(bytes);
    });
    bar.finish_and_clear();
    let outcome = outcome?;
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

fn simulate(policy: &str, work: &LiveWork) -> Result<Times, Failure> {
    let (fabric, changes) = work.simulated(Rate::PAYLOAD_SHARE).map_err(|reason| anyhow::anyhow!(reason))?;
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

/// The page: a row per policy.
fn page(experiment: &Experiment, live: &Live, name: &str, results: &LiveResults) -> String {
    let mut page = String::new();
    let seeds = experiment.live_seeds(live).len();
    // Writing to a String cannot fail.
    let _ = writeln!(
        page,
        "# {}, with real bytes\n\n{}, {}. Workload: {}. `weir experiment live {name}` makes this page; it is of one \
         machine and one run, unlike the simulated one beside it. Means over {seeds} seeds; in brackets the least and the \
         most. {}\n",
        experiment.title,
        experiment.source,
        results.point,
        results.workload,
        results.made_by.line(experiment.live_seeds(live))
    );
    let _ = writeln!(
        page,
        "| policy | average, s | simulated, s | live / simulated | factor | simulated factor | read p50, s | simulated, s | learned to |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|"
    );
    for policy in &live.policies {
        let of = |policy: &String| -> Vec<&LiveRun> {
            results.runs.iter().filter(|run| run.policy == *policy).collect()
        };
        let (runs, base) = (of(policy), of(&live.policies[0]));
        let average =
            |of: &dyn Fn(&LiveRun) -> f64| mean(&runs.iter().map(|run| of(run)).collect::<Vec<_>>());
        let ratios = |of: &dyn Fn(&LiveRun, &LiveRun) -> f64| {
            let mut all: Vec<f64> = runs.iter().zip(&base).map(|(run, base)| of(run, base)).collect();
            all.sort_by(f64::total_cmp);
            let ends = all.first().zip(all.last()).map_or((0.0, 0.0), |(first, last)| (*first, *last));
            format!("{:.3} ({:.3}-{:.3})", mean(&all), ends.0, ends.1)
        };
        let learned: Vec<f64> = runs.iter().filter_map(|run| run.learned_error).collect();
        let learned =
            if learned.is_empty() { "-".to_owned() } else { format!("{:.1} %", mean(&learned) * 100.0) };
        let _ = writeln!(
            page,
            "| {policy} | {:.2} | {:.2} | {} | {} | {} | {:.2} | {:.2} | {learned} |",
            average(&|run| run.live.avg_cct_s),
            average(&|run| run.simulated.avg_cct_s),
            ratios(&|run, _| run.live.avg_cct_s / run.simulated.avg_cct_s),
            ratios(&|run, base| run.live.avg_cct_s / base.live.avg_cct_s),
            ratios(&|run, base| run.simulated.avg_cct_s / base.simulated.avg_cct_s),
            average(&|run| run.live.read_p50_s),
            average(&|run| run.simulated.read_p50_s),
        );
    }
    let _ = writeln!(
        page,
        "\n- average: from a coflow's arrival to its last verified byte; of a single shuffle, its slowest read\n\
         - factor: average over that of the first policy\n\
         - read p50: median time until a reducer has read\n\
         - learned to: mean over links of how far the mean of what relays measured is from what the link had"
    );
    page
}
