//! `weir sim`: a workload through the fluid simulator under one or more policies.

use super::workload::{self, SliceArgs};
use crate::output::{CoflowRow, Mode, OutputFile, Results, Run, bins_table, summary_table};
use crate::{Failure, progress};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use weir_model::{CoflowSpec, Fabric, Rate};
use weir_policy::PolicyInfo;
use weir_sim::{CoflowRecord, Observer, Options, Replan};

#[derive(Args)]
pub(crate) struct SimArgs {
    /// A trace file, or synthetic:NAME
    #[arg(long, value_name = "FILE|synthetic:NAME")]
    trace: String,
    /// Policies (see `weir policies`); the first is the one others are compared with
    #[arg(long, value_name = "NAME", value_delimiter = ',', required = true)]
    policy: Vec<String>,
    /// Rate of each host's link, each direction
    #[arg(long, value_name = "RATE", default_value = "1gbit")]
    link_rate: Rate,
    /// Multiply arrival times: 0.5 brings the same work in half the time
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    arrival_scale: f64,
    /// Let all coflows arrive at the beginning
    #[arg(long)]
    offline: bool,
    /// Seed of a synthetic workload
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Plan again at every flow completion, or at coflow arrivals and completions only
    #[arg(long, value_enum, default_value_t = ReplanAt::Every)]
    replan: ReplanAt,
    /// Number of hosts: host h of the trace becomes h modulo N, and flows inside a host are left out
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    hosts: Option<u32>,
    #[command(flatten)]
    slice: SliceArgs,
    /// Write all results, coflow by coflow
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,
    /// Write a page of charts
    #[arg(long, value_name = "OUT.html")]
    report: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ReplanAt {
    /// At every arrival and every flow completion
    Every,
    /// At arrivals and completions of coflows, as in the Varys paper
    Coflow,
}

/// Everything a simulation needs, checked.
struct Job {
    name: String,
    fabric: Fabric,
    coflows: Vec<CoflowSpec>,
    policies: Vec<&'static PolicyInfo>,
    options: Options,
}

pub(crate) fn sim(args: SimArgs) -> Result<(), Failure> {
    let json = args.json.as_deref().map(|path| OutputFile::check(path, "--json")).transpose()?;
    let job = prepare(&args)?;
    let mut results = Results::new(job.name.clone(), args.link_rate);
    for policy in &job.policies {
        results.runs.push(run(&job, policy)?);
    }
    print_tables(&results, &job);
    if let Some(file) = json {
        file.write(|output| Ok(serde_json::to_writer(output, &results)?))?;
    }
    Ok(())
}

/// The policies of these names, or the first that is none.
pub(crate) fn find_policies(names: &[String]) -> Result<Vec<&'static PolicyInfo>, Failure> {
    let find =
        |name: &String| weir_policy::find(name).map_err(|error| Failure::Input(format!("--policy: {error}")));
    names.iter().map(find).collect()
}

fn prepare(args: &SimArgs) -> Result<Job, Failure> {
    let policies = find_policies(&args.policy)?;
    if !(args.arrival_scale.is_finite() && args.arrival_scale >= 0.0) {
        let reason = format!("--arrival-scale {} is not a number of at least 0", args.arrival_scale);
        return Err(Failure::Input(reason));
    }
    let workload = workload::load(&args.trace, args.seed)?;
    let dependent = workload.dependent_jobs();
    if dependent > 0 {
        eprintln!(
            "weir: {dependent} jobs have stages that wait for others: their coflows arrive as if transfers took no time"
        );
    }
    let (name, mut hosts) = (workload.name.clone(), workload.hosts);
    let mut coflows = workload.into_coflows();
    if args.hosts.is_some() || !args.slice.is_whole() {
        hosts = args.hosts.unwrap_or(hosts);
        coflows = workload::cut(&coflows, &args.slice, hosts, args.link_rate)?;
    }
    let fabric = Fabric::big_switch(hosts, args.link_rate)
        .map_err(|error| Failure::Input(format!("--link-rate {}: {error}", args.link_rate)))?;
    let replan = match args.replan {
        ReplanAt::Every => Replan::FlowCompletions,
        ReplanAt::Coflow => Replan::CoflowEvents,
    };
    let options = Options { replan, offline: args.offline, arrival_scale: args.arrival_scale };
    Ok(Job { name, fabric, coflows, policies, options })
}

/// Moves the bar with every coflow.
struct Watch {
    bar: indicatif::ProgressBar,
}

impl Observer for Watch {
    fn coflow_completed(&mut self, _: &CoflowRecord) {
        self.bar.inc(1);
    }
}

fn run(job: &Job, policy: &PolicyInfo) -> Result<Run, Failure> {
    let mut watch = Watch { bar: progress::bar(job.coflows.len() as u64, policy.name, "coflows") };
    let coflows = job.coflows.clone();
    let before = thread_cpu_secs();
    let outcome = weir_sim::simulate_observed(
        &job.fabric,
        coflows,
        (policy.create)().as_mut(),
        &job.options,
        &mut watch,
    );
    let cpu_s = thread_cpu_secs() - before;
    watch.bar.finish_and_clear();
    let outcome = outcome.map_err(|error| anyhow::anyhow!("{}: {error}", policy.name))?;
    let rows = simulated_rows(&outcome.coflows, &job.coflows);
    Ok(Run::new(policy.name, Mode::Simulated, rows, cpu_s))
}

/// Rows of a simulated run, with the deadlines of its coflows.
pub(crate) fn simulated_rows(records: &[CoflowRecord], coflows: &[CoflowSpec]) -> Vec<CoflowRow> {
    let stated = coflows.iter().filter_map(|coflow| coflow.deadline.map(|deadline| (coflow.id, deadline)));
    let deadlines: std::collections::BTreeMap<_, _> = stated.collect();
    records.iter().map(|record| CoflowRow::new(record, deadlines.get(&record.id).copied())).collect()
}

/// Processor time of this thread; the simulator runs on it alone.
pub(crate) fn thread_cpu_secs() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn print_tables(results: &Results, job: &Job) {
    let flows: usize = job.coflows.iter().map(CoflowSpec::width).sum();
    let bytes = job.coflows.iter().map(CoflowSpec::bytes).sum::<weir_model::Bytes>();
    println!(
        "{}: {} coflows, {flows} flows, {bytes} over {} hosts at {}",
        results.trace,
        job.coflows.len(),
        job.fabric.hosts(),
        Rate::from_bits_per_sec(results.link_rate_bps as f64),
    );
    println!("\n{}", summary_table(results));
    println!("\n{}", bins_table(results));
}
