//! `weir live`: the same workload as real bytes over shaped links, beside its simulation.

use super::coordinator::{ControlArgs, MarginArgs};
use super::outputs::OutputArgs;
use super::sim::with_cut;
use super::values::{plan_share, seconds};
use super::workload::{self, SliceArgs};
use clap::Args;
use std::collections::BTreeMap;
use std::path::PathBuf;
use weir_console::find_for_hosts;
use weir_console::{Failure, progress};
use weir_live::{Case, Pair, TCP, Work, equal_links, least_rate, line, notes, tables, topology_links};
use weir_model::{CoflowSpec, Rate, Span};
use weir_results::Results;
use weir_results::report::{self, ReportInput};
use weir_testbed::live::{self, LiveOptions, Network};
use weir_testbed::{Bed, BedError};
use weir_trace::{Scenario, Topology};

#[derive(Args)]
pub(crate) struct LiveArgs {
    /// A trace file, or synthetic:NAME. Without options that cut a piece, the first 150 coflows are taken,
    /// sizes divided by 40, times by 30, and coflows scaled down to less than 4 s alone
    #[arg(long, value_name = "FILE|synthetic:NAME", default_value = "synthetic:fb2010")]
    trace: String,
    /// A scenario file instead of a trace: its completion times are compared with those it expects. Ports
    /// in and out become different hosts, so that every flow crosses two links
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "trace", "hosts", "first", "count", "bytes_divisor", "time_divisor", "isolation_cap",
    ])]
    scenario: Option<PathBuf>,
    /// Policies to run, one after the other; tcp is no scheduling at all
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_values_t = [TCP.to_owned(), "varys".to_owned()])]
    policy: Vec<String>,
    /// Number of hosts: host h of the trace becomes h modulo N, and flows inside a host are left out
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(2..=250))]
    hosts: u32,
    /// Rate of each host's link, each direction, headers included
    #[arg(long, value_name = "RATE", default_value = "100mbit")]
    link_rate: Rate,
    /// File of hosts and their links (docs/hosts.md), in place of --hosts and --link-rate: a host of the bed for each of the file, in
    /// its order
    #[arg(long, value_name = "FILE", conflicts_with_all = ["hosts", "scenario"])]
    topology: Option<PathBuf>,
    /// Share of the links' payload rate the coordinator plans with
    #[arg(long, value_name = "SHARE", default_value_t = 0.985, allow_negative_numbers = true, value_parser = plan_share)]
    plan_share: f64,
    /// Coflows whose bottleneck alone takes less than this are left to TCP, as by `weir coordinator`; 0: none
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = seconds)]
    bypass: Span,
    /// Agents tag packets by the size of their flow, and the links of the bed serve eight classes one after the other: small coflows
    /// pass large ones. Not under tcp
    #[arg(long)]
    tags: bool,
    #[command(flatten)]
    control: ControlArgs,
    /// Give every coflow a deadline: isolation time * (1 + U(0, X)), at least 200 ms, drawn by the seed. Coflows
    /// that are refused do not move
    #[arg(long, value_name = "X", conflicts_with = "scenario", value_parser = spread)]
    deadlines: Option<f64>,
    #[command(flatten)]
    margin: MarginArgs,
    /// Let agents measure foreign traffic on their links, as they do outside of test beds
    #[arg(long)]
    foreign_traffic: bool,
    /// Seed of a synthetic workload and of drawn deadlines; 1 unless said
    #[arg(long, conflicts_with = "scenario")]
    seed: Option<u64>,
    /// Repeat everything this often
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    #[command(flatten)]
    slice: SliceArgs,
    /// Use this machine's loopback with Weir's pacing as the links, not namespaces
    #[arg(long)]
    loopback: bool,
    #[command(flatten)]
    outputs: OutputArgs,
}

/// What is moved over which network, as the command line says it.
fn work(args: &LiveArgs) -> Result<Work, Failure> {
    let Some(path) = &args.scenario else { return of_trace(args) };
    let input = |reason: String| Failure::Input(format!("--scenario {reason}"));
    let scenario = Scenario::load(path).map_err(|error| input(error.to_string()))?;
    Work::of_scenario(&scenario, path, args.link_rate).map_err(input)
}

fn of_trace(args: &LiveArgs) -> Result<Work, Failure> {
    let seed = workload::seed(args.seed, &args.trace, args.deadlines)?;
    let coflows = workload::load(&args.trace, seed)?.into_coflows();
    let piece = if args.slice.is_given() { args.slice.clone() } else { SliceArgs::live() };
    if !args.slice.is_given() {
        println!("{}", piece.announcement(&args.trace));
    }
    let (links, fabric) = match &args.topology {
        Some(path) => {
            let topology =
                Topology::load(path).map_err(|error| Failure::Input(format!("--topology {error}")))?;
            let wrong = |reason| Failure::Input(format!("--topology {}: {reason}", path.display()));
            topology_links(&topology).map_err(wrong)?
        }
        None => equal_links(args.hosts, args.link_rate).map_err(|error| Failure::Input(error.to_string()))?,
    };
    let hosts = links.hosts.len() as u32;
    let mut coflows = workload::cut(&coflows, &piece, hosts, least_rate(&links))?;
    if let Some(spread) = args.deadlines {
        let isolation = |coflow: &CoflowSpec| weir_sim::isolation(&fabric, coflow);
        weir_trace::draw_deadlines(&mut coflows, spread, seed, isolation);
    }
    // Tails of coflows: drivers know them in advance, live as in the simulation.
    weir_sim::set_tails(&fabric, &mut coflows);
    let seed = workload::draws(&args.trace, args.deadlines).then_some(seed);
    let cut = Some(piece.recorded(hosts));
    Ok(Work { name: args.trace.clone(), seed, cut, links, coflows, fabric, expect: BTreeMap::new() })
}

/// A number of at least 0.
fn spread(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if value.is_finite() && value >= 0.0 { Ok(value) } else { Err("not a number of at least 0".to_owned()) }
}

pub(crate) fn live(args: &LiveArgs) -> Result<(), Failure> {
    let mut files = workload::inputs("--trace", &args.trace);
    args.scenario.iter().for_each(|path| files.reads("--scenario", path));
    args.topology.iter().for_each(|path| files.reads("--topology", path));
    let outputs = args.outputs.check(files)?;
    let scheduled: Vec<String> = args.policy.iter().filter(|name| *name != TCP).cloned().collect();
    let chosen = scheduled.iter().map(|name| find_for_hosts(name)).collect::<Result<Vec<_>, _>>()?;
    let by_class = chosen.iter().find(|chosen| chosen.create().classes().is_some());
    if args.tags && scheduled.is_empty() {
        let reason = "--tags changes nothing under tcp: name a policy with --policy, or leave it out";
        return Err(Failure::Input(reason.to_owned()));
    }
    let work = work(args)?;
    // Before anything is simulated, which takes long for a run that is too large.
    live::check_room(&work.coflows).map_err(|error| Failure::Input(error.to_string()))?;
    let loopback = args.loopback || !rights();
    let with_classes = by_class.map(|chosen| format!("--policy {}", chosen.name));
    if let Some(option) = with_classes.or(args.tags.then(|| "--tags".to_owned())) {
        weir_console::check_built(&option)?;
        if loopback {
            let reason =
                "needs switches with classes of priority, as those of a test bed have, and loopback has none";
            return Err(Failure::Input(format!("{option} {reason}")));
        }
    }
    let setting = setting(args, &work, loopback);
    println!("{setting}");

    let mut results = Results::new(work.name.clone(), work.fastest_link(), work.seed);
    results.cut.clone_from(&work.cut);
    let mut pairs = Vec::new();
    for number in 0..args.runs {
        for policy in &args.policy {
            let label = if args.runs == 1 { policy.clone() } else { format!("{policy} {}", number + 1) };
            let pair = run(args, policy, &label, &work, loopback)?;
            println!("{}", line(&label, &pair));
            notes(&work, &pair).iter().for_each(|note| println!("  {note}"));
            results.runs.extend([pair.live.clone(), pair.simulated.clone()]);
            pairs.push(pair);
        }
    }
    println!("\n{}", tables(&args.policy, &pairs));
    outputs.write(&results, || {
        report::render(&ReportInput {
            title: format!("{}, live", work.name),
            setting: with_cut(setting, work.cut.as_ref()),
            made_by: &results.made_by,
            runs: pairs.iter().flat_map(Pair::report_runs).collect(),
        })
    })
}

/// Whether namespaces can be made; if not, says why.
fn rights() -> bool {
    if weir_testbed::has_rights() {
        return true;
    }
    eprintln!(
        "weir: no network namespaces here (neither root nor user namespaces); running on loopback, with Weir's \
         own pacing as the links"
    );
    false
}

fn run(args: &LiveArgs, policy: &str, label: &str, work: &Work, loopback: bool) -> Result<Pair, Failure> {
    let case = Case::new(work, policy, args.tags)?;
    let network = if loopback {
        Network::Loopback
    } else {
        let bed = Bed::create(&case.links()).map_err(|error| without_bed(&error))?;
        Network::Bed(Box::new(bed))
    };
    let options = LiveOptions {
        program: std::env::current_exe()?,
        links: case.links(),
        policy: None,
        plan_share: args.plan_share,
        bypass: args.bypass,
        batch_window: args.control.batch_window,
        ready_wait: args.control.ready_wait,
        sync_interval: args.control.sync_interval,
        deadline_margin: (args.margin.deadline_margin, args.margin.deadline_margin_ms),
        foreign_traffic: args.foreign_traffic,
        tags: args.tags,
        relays: None,
    };
    let bar = progress::bytes(work.coflows.iter().map(|coflow| coflow.bytes().0).sum(), label);
    let pair = case.measure(&network, options, args.outputs.flows, |bytes| bar.set_position(bytes));
    bar.finish_and_clear();
    Ok(pair?)
}

/// Why there is no test bed, and what does without one.
fn without_bed(error: &BedError) -> Failure {
    Failure::Run(anyhow::anyhow!("{error}; --loopback runs without namespaces and their tools"))
}

/// One sentence on workload and network.
fn setting(args: &LiveArgs, work: &Work, loopback: bool) -> String {
    let coflows = &work.coflows;
    let flows: usize = coflows.iter().map(CoflowSpec::width).sum();
    let bytes = coflows.iter().map(CoflowSpec::bytes).sum::<weir_model::Bytes>();
    let place = if loopback { "on loopback" } else { "in network namespaces" };
    format!(
        "{}: {} coflows, {flows} flows, {bytes} over {} hosts {} {place}; every byte is checksummed",
        work.name,
        coflows.len(),
        work.links.hosts.len(),
        match &args.topology {
            Some(path) => format!("of {}", path.display()),
            None => format!("at {}", args.link_rate),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_that_is_missing_is_named_with_the_way_around_it() {
        let error = BedError::MissingTool { tool: "bridge", package: "iproute2" };
        let Failure::Run(said) = without_bed(&error) else { panic!("no fault of the user's") };
        let said = format!("{said:#}");
        assert!(said.starts_with("`bridge` is not installed") && said.contains("--loopback"), "{said}");
    }
}
