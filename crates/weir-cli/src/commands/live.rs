//! `weir live`: the same workload as real bytes over shaped links, beside its simulation.

mod tables;

use super::coordinator::{ControlArgs, MarginArgs};
use super::outputs::OutputArgs;
use super::sim::with_cut;
use super::values::{plan_share, seconds};
use super::workload::{self, SliceArgs};
use clap::Args;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tables::{deadlines, jobs, line, print_tables, seconds_of};
use weir_console::find_for_hosts;
use weir_console::{Failure, progress};
use weir_model::{CoflowId, CoflowSpec, Fabric, Rate, Span, Time};
use weir_results::report::{self, LinkUse, ReportInput, ReportRun, Transfer};
use weir_results::{
    Cut, FlowRecorder, Mode, Recorded, Results, Run, Simulated, Spec, coflow_rows, fixed, simulate,
};
use weir_testbed::live::{self, LiveOptions, LiveOutcome, Network};
use weir_testbed::{Bed, BedError, BedLinks};
use weir_trace::{Expected, Scenario};

/// Name on the command line for no Weir at all.
const TCP: &str = "tcp";
/// What plain TCP is compared with in simulation, and stands for it on loopback.
const FAIR: &str = "fair";

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

/// What is moved over which network.
struct Work {
    name: String,
    /// Of what was drawn; none where nothing was.
    seed: Option<u64>,
    /// What was cut out of the trace; none of a scenario.
    cut: Option<Cut>,
    links: BedLinks,
    coflows: Vec<CoflowSpec>,
    fabric: Fabric,
    /// Expected completion times in seconds, by policy and coflow.
    expect: BTreeMap<String, BTreeMap<CoflowId, f64>>,
}

impl Work {
    fn prepare(args: &LiveArgs) -> Result<Work, Failure> {
        match &args.scenario {
            Some(path) => Work::from_scenario(args, path),
            None => Work::from_trace(args),
        }
    }

    fn from_trace(args: &LiveArgs) -> Result<Work, Failure> {
        let seed = workload::seed(args.seed, &args.trace, args.deadlines)?;
        let coflows = workload::load(&args.trace, seed)?.into_coflows();
        let piece = if args.slice.is_given() { args.slice.clone() } else { SliceArgs::live() };
        if !args.slice.is_given() {
            println!("{}", piece.announcement(&args.trace));
        }
        let (links, fabric) = match &args.topology {
            Some(path) => workload::bed_links(path)?,
            None => (equal(args.hosts, args.link_rate), big_switch(args.hosts, args.link_rate)?),
        };
        let hosts = links.hosts.len() as u32;
        let mut coflows = workload::cut(&coflows, &piece, hosts, workload::least_rate(&links))?;
        if let Some(spread) = args.deadlines {
            let isolation = |coflow: &CoflowSpec| weir_sim::isolation(&fabric, coflow);
            weir_trace::draw_deadlines(&mut coflows, spread, seed, isolation);
        }
        // Tails of coflows: drivers know them in advance, live as in the simulation.
        weir_sim::set_tails(&fabric, &mut coflows);
        let seed = workload::draws(&args.trace, args.deadlines).then_some(seed);
        Ok(Work {
            name: args.trace.clone(),
            seed,
            cut: Some(piece.recorded(hosts)),
            links,
            coflows,
            fabric,
            expect: BTreeMap::new(),
        })
    }

    fn from_scenario(args: &LiveArgs, path: &Path) -> Result<Work, Failure> {
        let input = |reason: String| Failure::Input(format!("--scenario {reason}"));
        let scenario = Scenario::load(path).map_err(|error| input(error.to_string()))?;
        let ports = scenario.hosts();
        let capacity = args.link_rate.payload();
        let scaled = scenario.at(capacity, scenario.unit_bytes).map_err(|error| input(error.to_string()))?;
        let same = |link: &weir_model::Link| link.capacity == scaled.fabric.links()[0].capacity;
        if scaled.fabric.links().len() != 2 * ports as usize || !scaled.fabric.links().iter().all(same) {
            let reason = format!("{}: only one switch with equal links can be run live", path.display());
            return Err(input(reason));
        }
        let mut coflows = scaled.coflows;
        for flow in coflows.iter_mut().flat_map(|coflow| &mut coflow.flows) {
            flow.destination.0 += ports;
        }
        let seconds = |(policy, times): (&String, &Vec<(CoflowId, Expected)>)| {
            let completes = |&(coflow, expected): &(CoflowId, Expected)| match expected {
                Expected::CompletesAfter(units) => Some((coflow, units * scaled.unit_secs)),
                Expected::Refused => None,
            };
            (policy.clone(), times.iter().filter_map(completes).collect())
        };
        let expect = scenario.expect.iter().map(seconds).collect();
        let fabric = big_switch(2 * ports, args.link_rate)?;
        weir_sim::set_tails(&fabric, &mut coflows);
        let (name, links) = (scenario.name.clone(), equal(2 * ports, args.link_rate));
        Ok(Work { name, seed: None, cut: None, links, coflows, fabric, expect })
    }

    /// That of the fastest link of a host, headers included.
    fn fastest_link(&self) -> Rate {
        let rates = self.links.hosts.iter().map(|host| host.rates.up_bps.max(host.rates.down_bps));
        Rate::from_bits_per_sec(rates.max().unwrap_or(0) as f64)
    }

    /// Prints expected beside measured completion times of a scenario.
    fn print_expected(&self, pair: &Pair) {
        let twin = if pair.policy == TCP { FAIR } else { &pair.policy };
        let Some(expected) = self.expect.get(twin) else { return };
        for row in &pair.live.coflows {
            if let Some(seconds) = expected.get(&CoflowId(row.id)) {
                println!(
                    "  coflow {}: expected {} s, live {} s ({})",
                    row.id,
                    seconds_of(*seconds),
                    seconds_of(row.cct_s),
                    fixed(row.cct_s / seconds, 3, "x")
                );
            }
        }
    }
}

/// A number of at least 0.
fn spread(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if value.is_finite() && value >= 0.0 { Ok(value) } else { Err("not a number of at least 0".to_owned()) }
}

fn equal(hosts: u32, link_rate: Rate) -> BedLinks {
    BedLinks::equal(hosts as usize, link_rate.bits_per_sec() as u64)
}

fn big_switch(hosts: u32, link_rate: Rate) -> Result<Fabric, Failure> {
    Fabric::big_switch(hosts, link_rate.payload()).map_err(|error| Failure::Input(error.to_string()))
}

/// A measured run beside the simulated one of the same workload.
struct Pair {
    policy: String,
    live: Run,
    simulated: Run,
    /// Of the coordinator, all agents and all tasks.
    cpu_secs: [f64; 3],
    first_byte_us: Vec<u32>,
    replan_us: Vec<u32>,
    link_use: LinkUse,
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
    let work = Work::prepare(args)?;
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
            work.print_expected(&pair);
            let of_deadlines = [&pair.live, &pair.simulated].into_iter().filter_map(deadlines);
            for line in of_deadlines.chain(jobs(&pair)) {
                println!("  {line}");
            }
            results.runs.extend([pair.live.clone(), pair.simulated.clone()]);
            pairs.push(pair);
        }
    }
    print_tables(args, &pairs);
    outputs.write(&results, || {
        report::render(&ReportInput {
            title: format!("{}, live", work.name),
            setting: with_cut(setting, work.cut.as_ref()),
            made_by: &results.made_by,
            runs: pairs.iter().flat_map(report_runs).collect(),
        })
    })
}

/// A measured run and its simulation, as the report shows them.
fn report_runs(pair: &Pair) -> [ReportRun<'_>; 2] {
    [
        ReportRun { run: &pair.live, link_use: Some(pair.link_use.clone()) },
        ReportRun { run: &pair.simulated, link_use: None },
    ]
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
    let Work { coflows, fabric, .. } = work;
    let scheduled = match policy {
        // Loopback has no shaped links that TCP could share: Weir paces max-min fair in its stead.
        TCP if loopback => Some(FAIR.to_owned()),
        TCP => None,
        name => Some(name.to_owned()),
    };
    let twin = if policy == TCP { FAIR } else { policy };
    let info = weir_policy::find(twin)?;
    let spec = Spec {
        fabric: fabric.clone(),
        coflows: coflows.clone(),
        changes: Vec::new(),
        options: weir_sim::Options::default(),
    };
    let recorded = Recorded { link_use: false, flows: args.outputs.flows };
    let Simulated { run: simulated, .. } = simulate(&spec, &info, recorded, &mut |_| {})?;

    let mut links = work.links.clone();
    let tags = policy != TCP && (args.tags || info.create().classes().is_some());
    if tags {
        let queues = weir_testbed::Queues::ByDscp(weir_endhost::tagging::DEFAULT_DSCP);
        (links.queues, links.host_queues) = (queues, queues);
    }
    let network = if loopback {
        Network::Loopback
    } else {
        let bed = Bed::create(&links).map_err(|error| without_bed(&error))?;
        Network::Bed(Box::new(bed))
    };
    let options = LiveOptions {
        program: std::env::current_exe()?,
        links,
        policy: scheduled,
        plan_share: args.plan_share,
        bypass: args.bypass,
        batch_window: args.control.batch_window,
        ready_wait: args.control.ready_wait,
        sync_interval: args.control.sync_interval,
        deadline_margin: (args.margin.deadline_margin, args.margin.deadline_margin_ms),
        foreign_traffic: args.foreign_traffic,
        tags,
        relays: None,
    };
    let total: u64 = coflows.iter().map(|coflow| coflow.bytes().0).sum();
    let bar = progress::bytes(total, label);
    let outcome = live::run(&options, &network, coflows, |bytes| bar.set_position(bytes));
    bar.finish_and_clear();
    let outcome = outcome?;
    let records = live_records(&outcome, coflows, fabric);
    let jobs = weir_sim::Jobs::of(&live::from_start(coflows)).records(&records);
    let rows = coflow_rows(&records, coflows);
    let transfers: Vec<Transfer> = outcome
        .flows
        .iter()
        .map(|done| {
            let flow = &coflows[done.coflow].flows[done.flow];
            Transfer {
                source: flow.source,
                destination: flow.destination,
                start_s: done.first_byte.as_secs(),
                end_s: done.done.as_secs(),
                bytes: flow.size.0,
            }
        })
        .collect();
    let link_use = LinkUse::from_transfers(fabric, &transfers);
    let mut flows = FlowRecorder::new(coflows);
    for done in &outcome.flows {
        let coflow = coflows[done.coflow].id.0;
        flows.measured(coflow, done.flow, done.first_byte.as_secs(), done.done.as_secs());
    }
    let LiveOutcome { first_byte_us, replan_us, cpu_secs, .. } = outcome;
    let mut live = Run::new(policy, Mode::Live, rows, cpu_secs.iter().sum()).with_jobs(&jobs);
    if args.outputs.flows {
        live.flows = flows.finish();
    }
    Ok(Pair { policy: policy.to_owned(), live, simulated, cpu_secs, first_byte_us, replan_us, link_use })
}

/// Why there is no test bed, and what does without one.
fn without_bed(error: &BedError) -> Failure {
    Failure::Run(anyhow::anyhow!("{error}; --loopback runs without namespaces and their tools"))
}

/// What was measured, as the simulator would have it.
fn live_records(
    outcome: &LiveOutcome,
    coflows: &[CoflowSpec],
    fabric: &Fabric,
) -> Vec<weir_sim::CoflowRecord> {
    let measured = outcome.completion.iter().zip(&outcome.arrival).zip(&outcome.refused);
    coflows
        .iter()
        .zip(measured)
        .map(|(coflow, ((&cct, &arrival), refused))| weir_sim::CoflowRecord {
            id: coflow.id,
            arrival: Time::ZERO + arrival,
            admitted: refused.is_none(),
            cct,
            isolation: weir_sim::isolation(fabric, coflow),
            width: coflow.width(),
            bytes: coflow.bytes(),
            bin: coflow.bin(),
        })
        .collect()
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
