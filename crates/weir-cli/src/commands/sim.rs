//! `weir sim`: a workload through the fluid simulator under one or more policies.

use super::outputs::{OutputArgs, Outputs};
use super::simulation::{Simulation, find_policies};
use super::workload::{self, SliceArgs};
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use weir_console::{Failure, progress};
use weir_model::{Bytes, CoflowSpec, Fabric, Rate, Time};
use weir_policy::Chosen;
use weir_results::report::{self, ReportInput, ReportRun};
use weir_results::{Cut, Recorded, Results, Simulated, Spec, bins_table, simulate, summary_table};
use weir_sim::{CoflowRecord, Options, Replan, SimError, Window};
use weir_trace::{SYNTHETIC, Topology};

/// As of synthetic workloads. Every host costs two links of a simulator's tables, whether it sends or not.
const MOST_HOSTS: i64 = 1 << 20;

#[derive(Args)]
pub(crate) struct SimArgs {
    /// A trace file, or synthetic:NAME
    #[arg(long, value_name = "FILE|synthetic:NAME", required_unless_present = "scenario")]
    trace: Option<String>,
    /// A scenario file: run it and compare with the completion times it expects
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "trace", "arrival_scale", "offline", "hosts", "first", "count", "bytes_divisor", "time_divisor",
        "isolation_cap", "deadlines", "window",
    ])]
    scenario: Option<PathBuf>,
    /// Policies (see `weir policies`); the first is the one others are compared with
    #[arg(long, value_name = "NAME", value_delimiter = ',', required_unless_present = "scenario")]
    policy: Vec<String>,
    /// Rate of each host's link, each direction; in a scenario, what rate 1 is
    #[arg(long, value_name = "RATE", default_value = "1gbit")]
    link_rate: Rate,
    /// Multiply arrival times: 0.5 brings the same work in half the time
    #[arg(long, value_name = "X", default_value_t = 1.0, allow_negative_numbers = true)]
    arrival_scale: f64,
    /// Let all coflows arrive at the beginning
    #[arg(long, conflicts_with = "arrival_scale")]
    offline: bool,
    /// Give every coflow a deadline: isolation time * (1 + U(0, X)), at least 200 ms, drawn by the seed
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    deadlines: Option<f64>,
    /// Seed of a synthetic workload and of drawn deadlines; 1 unless said
    #[arg(long, conflicts_with = "scenario")]
    seed: Option<u64>,
    /// Plan again at every flow completion, or at coflow arrivals and completions only
    #[arg(long, value_enum, default_value_t = ReplanAt::Every)]
    replan: ReplanAt,
    /// Have receivers ask for a part of their data at a time, in requests of a fifth of this, as tasks of Spark do (48MB there):
    /// the policy sees what was asked for
    #[arg(long, value_name = "BYTES", conflicts_with_all = ["flows", "deadlines"])]
    window: Option<Bytes>,
    /// Tell the policy what is to come, by source
    #[arg(long, requires = "window")]
    expect: bool,
    /// A flow is a block, which receivers ask for whole, in an order of their own, as tasks of Spark do
    #[arg(long, requires = "window")]
    blocks: bool,
    /// Number of hosts: host h of the trace becomes h modulo N, and flows inside a host are left out
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MOST_HOSTS))]
    hosts: Option<u32>,
    /// File of hosts, their links, racks and sites (docs/hosts.md), in place of --link-rate: host h of the trace becomes the host of
    /// the file that is number h modulo their number, from 0
    #[arg(long, value_name = "FILE", conflicts_with_all = ["hosts", "scenario"])]
    topology: Option<PathBuf>,
    #[command(flatten)]
    slice: SliceArgs,
    // Sampling link use for --report, and flows for --flows, adds to the CPU time shown.
    #[command(flatten)]
    outputs: OutputArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ReplanAt {
    /// At every arrival and every flow completion
    Every,
    /// At arrivals and completions of coflows, as in the Varys paper
    Coflow,
}

pub(crate) fn sim(args: SimArgs) -> Result<(), Failure> {
    let mut files = workload::inputs("--trace", args.trace.as_deref().unwrap_or(SYNTHETIC));
    args.scenario.iter().for_each(|path| files.reads("--scenario", path));
    args.topology.iter().for_each(|path| files.reads("--topology", path));
    let outputs = args.outputs.check(files)?;
    let replan = match args.replan {
        ReplanAt::Every => Replan::FlowCompletions,
        ReplanAt::Coflow => Replan::CoflowEvents,
    };
    let window = window(&args);
    let options = Options { replan, offline: args.offline, arrival_scale: args.arrival_scale, window };
    if let Some(path) = &args.scenario {
        let (scenario, simulation, unit_secs) =
            super::scenario::prepare(path, &args.policy, args.link_rate, options)?;
        let results = run_all(&simulation, &outputs)?;
        return super::scenario::check(&scenario, &results, unit_secs);
    }
    let simulation = prepare(&args, options)?;
    let results = run_all(&simulation, &outputs)?;
    println!("{}", setting(&simulation));
    println!("\n{}", summary_table(&results));
    println!("\n{}", bins_table(&results));
    Ok(())
}

fn prepare(args: &SimArgs, options: Options) -> Result<Simulation, Failure> {
    let policies = find_policies(&args.policy)?;
    if !(args.arrival_scale.is_finite() && args.arrival_scale >= 0.0) {
        let reason = format!("--arrival-scale {} is not a number of at least 0", args.arrival_scale);
        return Err(Failure::Input(reason));
    }
    if let Some(spread) = args.deadlines.filter(|spread| !(spread.is_finite() && *spread >= 0.0)) {
        return Err(Failure::Input(format!("--deadlines {spread} is not a number of at least 0")));
    }
    let trace = args.trace.as_deref().unwrap_or_default();
    let seed = workload::seed(args.seed, trace, args.deadlines)?;
    let workload = workload::load(trace, seed)?;
    let (name, mut hosts) = (workload.name.clone(), workload.hosts);
    let (mut coflows, mut cut) = (workload.into_coflows(), None);
    let network = args.topology.as_deref().map(read_topology).transpose()?;
    // The rate by which sizes are cut, if they are cut.
    let link_rate = network.as_ref().and_then(|(_, rate)| *rate).unwrap_or(args.link_rate);
    let of_topology = network.as_ref().map(|(fabric, _)| fabric.hosts());
    // A topology with fewer hosts than the workload folds the workload's hosts, as --hosts does.
    if args.hosts.or(of_topology.filter(|&known| known < hosts)).is_some() || args.slice.is_given() {
        hosts = args.hosts.or(of_topology).unwrap_or(hosts);
        cut = Some(args.slice.recorded(hosts));
        coflows = workload::cut(&coflows, &args.slice, hosts, link_rate)?;
    }
    let fabric = match network {
        Some((fabric, _)) => fabric,
        None => Fabric::big_switch(hosts, link_rate)
            .map_err(|error| Failure::Input(format!("--link-rate {link_rate}: {error}")))?,
    };
    workload::check_times(&fabric, &coflows, link_rate)?;
    if let Some(spread) = args.deadlines {
        weir_trace::draw_deadlines(&mut coflows, spread, seed, |coflow| weir_sim::isolation(&fabric, coflow));
    }
    // Results name a seed only where something was drawn by it.
    let seed = workload::draws(trace, args.deadlines).then_some(seed);
    check_window(args, &coflows)?;
    let topology = args.topology.clone();
    let spec = Spec { fabric, coflows, changes: Vec::new(), options };
    Ok(Simulation { name, seed, cut, link_rate, topology, policies, spec })
}

/// The network of a file, and the rate of its links that have none of their own.
fn read_topology(path: &Path) -> Result<(Fabric, Option<Rate>), Failure> {
    let topology = Topology::load(path).map_err(|error| Failure::Input(format!("--topology {error}")))?;
    let wrong = |reason| Failure::Input(format!("--topology {}: {reason}", path.display()));
    Ok((topology.fabric(1.0).map_err(wrong)?, topology.link_rate))
}

/// One line on workload and network.
fn setting(simulation: &Simulation) -> String {
    let Spec { fabric, coflows, .. } = &simulation.spec;
    let flows: usize = coflows.iter().map(CoflowSpec::width).sum();
    format!(
        "{}: {} coflows, {flows} flows, {} over {} hosts {}",
        simulation.name,
        coflows.len(),
        coflows.iter().map(CoflowSpec::bytes).sum::<Bytes>(),
        fabric.hosts(),
        match &simulation.topology {
            Some(path) => format!("of {}", path.display()),
            None => format!("at {}", simulation.link_rate),
        },
    )
}

/// Most requests of a simulation with windows: each is a flow.
const MOST_REQUESTS: u64 = 20_000_000;

fn window(args: &SimArgs) -> Option<Window> {
    Some(Window { bytes: args.window?, expected: args.expect, blocks: args.blocks })
}

/// Refuses a window that makes more requests than can be simulated.
fn check_window(args: &SimArgs, coflows: &[CoflowSpec]) -> Result<(), Failure> {
    let Some(window) = window(args) else { return Ok(()) };
    let refused = |what: &str| Err(Failure::Input(format!("--window {} {what}", window.bytes)));
    if args.replan == ReplanAt::Coflow {
        return refused("does not go with --replan coflow: what receivers ask for has to be planned");
    }
    if let Some(coflow) = coflows.iter().find(|coflow| coflow.deadline.is_some()) {
        let what = "does not go with deadlines: what is promised is promised to all of a coflow";
        return refused(&format!("{what}; coflow {} has one", coflow.id));
    }
    if window.bytes.0 == 0 {
        return Err(Failure::Input("--window 0 asks for nothing; 48MB is that of Spark".to_owned()));
    }
    let requests = |coflow: &CoflowSpec| window.requests(coflow);
    let all = coflows.iter().map(requests).fold(0u64, u64::saturating_add);
    if all <= MOST_REQUESTS {
        return Ok(());
    }
    Err(Failure::Input(format!(
        "--window {} makes {all} requests of these coflows, more than the {MOST_REQUESTS} that can be simulated; take a \
         larger window, or smaller sizes (--bytes-divisor)",
        window.bytes
    )))
}

/// A sentence on workload and network, and one on what was cut.
pub(crate) fn with_cut(setting: String, cut: Option<&Cut>) -> String {
    cut.map_or(setting.clone(), |cut| format!("{setting}. {}", cut.sentence()))
}

/// Runs all policies, then writes what was asked for.
fn run_all(simulation: &Simulation, outputs: &Outputs) -> Result<Results, Failure> {
    let mut results = Results::new(simulation.name.clone(), simulation.link_rate, simulation.seed);
    results.cut.clone_from(&simulation.cut);
    let mut link_uses = Vec::new();
    for policy in &simulation.policies {
        let recorded = Recorded { link_use: outputs.has_report(), flows: outputs.flows };
        let Simulated { run, link_use } = run(simulation, policy, recorded)?;
        results.runs.push(run);
        link_uses.push(link_use);
    }
    outputs.write(&results, || {
        let runs = results.runs.iter().zip(link_uses);
        report::render(&ReportInput {
            title: results.trace.clone(),
            setting: with_cut(setting(simulation), simulation.cut.as_ref()),
            made_by: &results.made_by,
            runs: runs.map(|(run, link_use)| ReportRun { run, link_use }).collect(),
        })
    })?;
    Ok(results)
}

/// One policy over the workload, with a bar that moves with every coflow.
fn run(simulation: &Simulation, policy: &Chosen, recorded: Recorded) -> Result<Simulated, Failure> {
    let bar = progress::bar(simulation.spec.coflows.len() as u64, &policy.name, "coflows");
    let mut left = |coflow: &CoflowRecord| {
        bar.inc(1);
        if !bar.is_hidden() {
            let now = coflow.arrival + coflow.cct;
            bar.set_message(format!(", {:.1} s simulated", now.since(Time::ZERO).as_secs()));
        }
    };
    let simulated = simulate(&simulation.spec, policy, recorded, &mut left);
    bar.finish_and_clear();
    simulated.map_err(|error| match error {
        late @ SimError::TooLate { .. } => Failure::Input(format!("--arrival-scale or --trace: {late}")),
        error => anyhow::anyhow!("{}: {error}", policy.name).into(),
    })
}
