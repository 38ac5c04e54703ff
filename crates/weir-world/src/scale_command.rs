//! `weir-world scale`: a workload of many hosts through the system in virtual time, beside the fluid simulator.

use clap::Args;
use serde::Serialize;
use std::process::ExitCode;
use weir_model::{CoflowSpec, Rate, Span};
use weir_trace::{Workload, synthetic::Fb2010};
use weir_world::scale::{Comparison, Control, ScaleSettings, compare, fluid, run};

/// A workload of many hosts without faults, beside the fluid simulator
#[derive(Args)]
pub(crate) struct ScaleArguments {
    /// A trace file; `public` is the public Facebook trace. Without one, a workload is generated
    #[arg(long, value_name = "FILE", conflicts_with_all = ["hosts", "seed", "seconds"])]
    trace: Option<String>,
    /// Hosts of the generated workload (1000 unless said)
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    hosts: Option<u32>,
    /// Coflows: of a trace the first so many (all unless said), of a generated workload all (526 unless said)
    #[arg(long)]
    coflows: Option<usize>,
    /// Time in which generated coflows arrive (3600 unless said)
    #[arg(long)]
    seconds: Option<u64>,
    /// Seed of the generated workload (1 unless said)
    #[arg(long)]
    seed: Option<u64>,
    /// Coflows of the trace to leave out before the first
    #[arg(long, default_value_t = 0)]
    first: usize,
    /// Policies to run, one after the other
    #[arg(long, value_delimiter = ',', default_value = "varys,dclas-strict")]
    policy: Vec<String>,
    /// How long a message takes, in milliseconds
    #[arg(long, value_delimiter = ',', default_value = "0.5")]
    delay_ms: Vec<f64>,
    /// Payload of each host's link, each direction
    #[arg(long, default_value = "1gbit")]
    link: Rate,
    /// Share of it that the coordinator plans with
    #[arg(long, default_value_t = 0.985)]
    plan_share: f64,
    /// Coflows that need less alone are left to TCP, in seconds
    #[arg(long, value_delimiter = ',', default_value = "0.25")]
    bypass: Vec<f64>,
    /// How often agents report progress, in milliseconds
    #[arg(long, default_value_t = 20.0)]
    report_ms: f64,
    /// Print JSON in place of a table
    #[arg(long)]
    json: bool,
    /// Print each coflow: id, bytes, flows, both completion times in seconds
    #[arg(long)]
    each: bool,
}

/// One line of the table.
#[derive(Serialize)]
struct Line {
    policy: String,
    delay_ms: f64,
    bypass_s: f64,
    coflows: usize,
    flows: usize,
    system_s: f64,
    fluid_s: f64,
    ratio: f64,
    ratio_p50: f64,
    ratio_p95: f64,
    up_messages: u64,
    up_bytes: u64,
    down_messages: u64,
    down_bytes: u64,
    calls: u64,
    plans: u64,
    events: u64,
    virtual_s: f64,
    digest: String,
    /// Of this machine, from here on.
    planning_s: f64,
    worst_plan_ms: f64,
    coordinator_s: f64,
    agents_s: f64,
    cpu_s: Option<f64>,
    wall_s: f64,
    peak_memory_mb: Option<f64>,
}

pub(crate) fn scale(arguments: &ScaleArguments) -> ExitCode {
    match all(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weir-world scale: {error}");
            ExitCode::from(2)
        }
    }
}

fn all(arguments: &ScaleArguments) -> Result<(), String> {
    let workload = workload(arguments)?;
    let (name, hosts) = (workload.name.clone(), workload.hosts);
    let mut coflows = workload.into_coflows();
    if arguments.trace.is_some() {
        let count = arguments.coflows.unwrap_or(usize::MAX);
        coflows = coflows.into_iter().skip(arguments.first).take(count).collect();
    }
    if coflows.is_empty() {
        return Err("no coflows are left".to_owned());
    }
    let delays: Vec<Span> =
        arguments.delay_ms.iter().map(|ms| span("--delay-ms", ms / 1e3)).collect::<Result<_, _>>()?;
    let bypasses: Vec<Span> =
        arguments.bypass.iter().map(|secs| span("--bypass", *secs)).collect::<Result<_, _>>()?;
    let report_interval = span("--report-ms", arguments.report_ms / 1e3)?;
    if !(arguments.plan_share > 0.0 && arguments.plan_share <= 1.0) {
        return Err(format!("--plan-share {} is not above 0 and at most 1", arguments.plan_share));
    }
    if !arguments.json {
        print_settings(arguments, &name, hosts, &coflows);
    }
    let mut lines = Vec::new();
    for policy in &arguments.policy {
        let settings = ScaleSettings {
            link: arguments.link,
            plan_share: arguments.plan_share,
            report_interval,
            ..ScaleSettings::usual(hosts, policy)
        };
        let simulated = fluid(&settings, &coflows)?;
        for &bypass in &bypasses {
            for &delay in &delays {
                forget_peak_memory();
                let settings = ScaleSettings { delay, bypass, ..settings.clone() };
                let before = cpu_s();
                let control = run(&settings, &coflows)?;
                let cpu_s = cpu_s().zip(before).map(|(after, before)| after - before);
                let compared = compare(&control, &simulated);
                if arguments.each {
                    print_each(&coflows, &control, &simulated);
                }
                let line = Line { cpu_s, ..Line::new(&settings, &coflows, &control, &compared) };
                if !arguments.json {
                    line.print();
                }
                lines.push(line);
                if !compared.too_fast.is_empty() {
                    return Err(format!("faster than alone on full links: coflows {:?}", compared.too_fast));
                }
            }
        }
    }
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&lines).map_err(|error| error.to_string())?);
    }
    Ok(())
}

fn span(option: &str, secs: f64) -> Result<Span, String> {
    if !(0.0..=60.0).contains(&secs) {
        return Err(format!("{option}: {secs} s is not between 0 and a minute"));
    }
    Ok(Span::from_secs_ceil(secs))
}

fn workload(arguments: &ScaleArguments) -> Result<Workload, String> {
    let Some(trace) = &arguments.trace else {
        let usual = Fb2010::default();
        let seconds = arguments.seconds.unwrap_or(usual.seconds);
        let coflows = arguments.coflows.unwrap_or(usual.coflows);
        if seconds == 0 || coflows == 0 {
            return Err("--seconds and --coflows are at least 1".to_owned());
        }
        let seed = arguments.seed.unwrap_or(usual.seed);
        return Ok(Fb2010 { hosts: arguments.hosts.unwrap_or(1_000), coflows, seconds, seed }.generate());
    };
    let path = if trace == "public" {
        let found = weir_trace::find_public_trace();
        found.map_err(|_| "--trace public: it is not here; set WEIR_TRACE_DIR to its folder".to_owned())?
    } else {
        trace.into()
    };
    weir_trace::load(&path.to_string_lossy(), 1).map_err(|error| format!("--trace {error}"))
}

fn print_settings(arguments: &ScaleArguments, name: &str, hosts: u32, coflows: &[CoflowSpec]) {
    let usual = ScaleSettings::usual(hosts, "");
    let flows: usize = coflows.iter().map(CoflowSpec::width).sum();
    let bytes: f64 = coflows.iter().map(|coflow| coflow.bytes().0 as f64).sum();
    println!(
        "{name}: {hosts} hosts, {} coflows, {flows} flows, {:.3} TB; links of {}, of which {} are planned with; batch \
         {} ms, ready wait {} ms, sync interval {} ms, reports every {} ms",
        coflows.len(),
        bytes / 1e12,
        arguments.link,
        arguments.plan_share,
        usual.batch.as_secs() * 1e3,
        usual.ready_wait.as_secs() * 1e3,
        usual.sync_interval.as_secs() * 1e3,
        arguments.report_ms,
    );
    println!(
        "\n| policy | delay, ms | bypass, s | average CCT, s | fluid, s | ratio | p50, p95 of single coflows | messages up, \
         MB | down, MB | per coflow | plans | planning, s; worst, ms | coordinator, agents besides, s | memory, MB | CPU; wall, s |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
}

impl Line {
    fn new(
        settings: &ScaleSettings,
        coflows: &[CoflowSpec],
        control: &Control,
        compared: &Comparison,
    ) -> Line {
        let computing = &control.computing;
        Line {
            policy: settings.policy.clone(),
            delay_ms: settings.delay.as_secs() * 1e3,
            bypass_s: settings.bypass.as_secs(),
            coflows: coflows.len(),
            flows: coflows.iter().map(CoflowSpec::width).sum(),
            system_s: compared.system_s,
            fluid_s: compared.fluid_s,
            ratio: compared.ratio(),
            ratio_p50: compared.median,
            ratio_p95: compared.p95,
            up_messages: control.up.messages,
            up_bytes: control.up.bytes,
            down_messages: control.down.messages,
            down_bytes: control.down.bytes,
            calls: control.calls,
            plans: control.plans,
            events: control.events,
            virtual_s: control.took.as_secs(),
            digest: format!("{:016x}", control.digest()),
            planning_s: computing.plans.as_secs_f64(),
            worst_plan_ms: computing.worst_plan.as_secs_f64() * 1e3,
            coordinator_s: computing.coordinator.as_secs_f64(),
            agents_s: computing.agents.as_secs_f64(),
            cpu_s: None,
            wall_s: computing.run.as_secs_f64(),
            peak_memory_mb: peak_memory_mb(),
        }
    }

    fn print(&self) {
        let memory = self.peak_memory_mb.map_or("-".to_owned(), |mb| format!("{mb:.0}"));
        let cpu = self.cpu_s.map_or("-".to_owned(), |secs| format!("{secs:.1}"));
        println!(
            "| {} | {} | {} | {:.4} | {:.4} | {:.4} | {:.3}, {:.3} | {}, {:.1} | {}, {:.1} | {:.0} | {} | {:.2}; {:.2} | \
             {:.2}, {:.2} | {memory} | {cpu}; {:.1} |",
            self.policy,
            self.delay_ms,
            self.bypass_s,
            self.system_s,
            self.fluid_s,
            self.ratio,
            self.ratio_p50,
            self.ratio_p95,
            self.up_messages,
            self.up_bytes as f64 / 1e6,
            self.down_messages,
            self.down_bytes as f64 / 1e6,
            (self.up_messages + self.down_messages) as f64 / self.coflows as f64,
            self.plans,
            self.planning_s,
            self.worst_plan_ms,
            self.coordinator_s,
            self.agents_s,
            self.wall_s,
        );
    }
}

fn print_each(coflows: &[CoflowSpec], control: &Control, simulated: &weir_sim::Outcome) {
    for ((coflow, cct), record) in coflows.iter().zip(&control.ccts).zip(&simulated.coflows) {
        println!(
            "{} {} {} {:.6} {:.6} {:.6}",
            coflow.id,
            coflow.bytes().0,
            coflow.width(),
            cct.as_secs(),
            record.cct.as_secs(),
            record.isolation.as_secs()
        );
    }
}

/// Time that this thread had a processor, where the operating system says so: other work on the machine is not in it.
fn cpu_s() -> Option<f64> {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(times.split_whitespace().next()?.parse::<f64>().ok()? / 1e9)
}

/// Most memory that this process had since [`forget_peak_memory`], where the operating system says so.
fn peak_memory_mb() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok()? * 1024.0 / 1e6)
}

/// Lets the peak begin anew, where that can be done.
fn forget_peak_memory() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}
