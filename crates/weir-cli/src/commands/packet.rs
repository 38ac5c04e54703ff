//! `weir packet`: a scenario through the packet-level simulator, under one or more transports.

mod csv;
mod live;
mod page;

use clap::Args;
use indicatif::ProgressBar;
use page::{Received, few, page};
use rayon::prelude::*;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use weir_console::{Failure, progress};
use weir_console::{Files, OutputFile};
use weir_model::Span;
use weir_packet::capture::Capture;
use weir_packet::transport::{self, Transport};
use weir_packet::{
    Completion, FlowRecord, Gathered, LARGE, Picos, PortCounts, Recorder, RunCounts, SIZE_CLASSES, Scenario,
    Simulation, Summary, Topology,
};
use weir_results::report::render_packets;
use weir_results::{Provenance, number, table, text, thread_cpu_secs};
use weir_trace::{FlowArrival, FlowKind, Poisson};

/// A bar moves once in so many flows.
const FLOWS_PER_STEP: u64 = 64;

#[derive(Args)]
pub(crate) struct PacketArgs {
    /// A scenario file: the network, and the flows that move in it
    #[arg(long, value_name = "FILE")]
    scenario: PathBuf,
    /// Transports (see `weir policies`), with settings behind them: dctcp:init=70
    #[arg(long, value_name = "NAME", value_delimiter = ',', required = true)]
    transport: Vec<String>,
    /// Also move the flows on a test bed of this machine: by cubic or tcp (Reno), and as root by dctcp, pias, karuna
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    live: Vec<String>,
    /// Load of the scenario's traffic
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    load: Option<f64>,
    /// Number of flows of the scenario's traffic
    #[arg(long, value_name = "N")]
    flows: Option<u64>,
    /// Seed of the scenario's traffic
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Write all results, flow by flow
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,
    /// Write a table with a row for each flow
    #[arg(long, value_name = "OUT.csv")]
    csv: Option<PathBuf>,
    /// Write a page of charts
    #[arg(long, value_name = "OUT.html")]
    report: Option<PathBuf>,
    /// Write queues, links, windows and what flows received over time (with one transport)
    #[arg(long, value_name = "OUT.csv")]
    series: Option<PathBuf>,
    /// Length of an interval of --series and --report
    #[arg(long, value_name = "TIME", default_value = "1ms")]
    every: Span,
    /// Write the packets that ports send, for packet analysers (with one transport)
    #[arg(long, value_name = "OUT.pcap")]
    pcap: Option<PathBuf>,
    /// Ports to capture: a host's own has its number, the switch's towards host h has the number of hosts plus h;
    /// without this all
    #[arg(long, value_name = "N", value_delimiter = ',', requires = "pcap")]
    pcap_port: Vec<u32>,
}

/// Where flows moved: simulated, or on a test bed.
#[derive(Clone, Copy, Debug)]
enum On {
    Simulator,
    Bed(live::Machine),
}

/// What one transport made of the flows.
struct Run {
    transport: String,
    on: On,
    summary: Summary,
    counts: RunCounts,
    timeouts: u64,
    retransmitted: u64,
    cpu_s: f64,
    flows: Vec<FlowRow>,
    /// What became of packets at each port; only where results are written.
    ports: Vec<PortCounts>,
    /// Bytes that each flow received, by interval; only for reports on few flows.
    received: Received,
}

/// A flow in `--json`.
#[derive(Serialize)]
struct FlowRow {
    id: u64,
    arrival_s: f64,
    source: u32,
    destination: u32,
    bytes: u64,
    kind: &'static str,
    fct_s: f64,
    ideal_s: f64,
    /// Absent without a deadline.
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    met: Option<bool>,
    retransmitted: u32,
    /// None of live runs, which do not count them.
    timeouts: Option<u32>,
}

struct Outputs {
    report: Option<OutputFile>,
    json: Option<OutputFile>,
    csv: Option<OutputFile>,
    series: Option<OutputFile>,
    pcap: Option<OutputFile>,
}

impl PacketArgs {
    /// Whether it takes a test bed.
    pub(crate) fn is_live(&self) -> bool {
        !self.live.is_empty()
    }
}

pub(crate) fn packet(args: &PacketArgs) -> Result<(), Failure> {
    let transports = &args.transport;
    for name in transports {
        named(name)?;
    }
    if transports.len() > 1 && (args.series.is_some() || args.pcap.is_some()) {
        let reason = "--series and --pcap follow one transport: name only one with --transport";
        return Err(Failure::Input(reason.to_owned()));
    }
    let scenario = scenario(args)?;
    let outputs = outputs(args, &scenario)?;
    let topology = scenario.topology().map_err(|error| in_file(&args.scenario, &error))?;
    live::check(&args.live, &scenario, &topology)?;
    if let Some(port) = args.pcap_port.iter().find(|&&port| port as usize >= topology.ports().len()) {
        let reason = format!("--pcap-port {port}: ports are 0 to {}", topology.ports().len() - 1);
        return Err(Failure::Input(reason));
    }
    if args.every == Span::ZERO {
        return Err(Failure::Input("--every 0: an interval has a length".to_owned()));
    }
    println!("{}", setting(&scenario));
    let mut runs = if transports.len() == 1 && (outputs.series.is_some() || outputs.pcap.is_some()) {
        vec![watched(&scenario, &topology, &transports[0], args, &outputs)?]
    } else {
        let keep = outputs.has_flows();
        let every = (outputs.report.is_some() && few(&scenario)).then(|| Picos::from(args.every));
        let run = |name: &String| plain(&scenario, &topology, name, keep, every);
        transports.par_iter().map(run).collect::<Result<_, Failure>>()?
    };
    for name in &args.live {
        runs.push(live::run(&scenario, &topology, name, outputs.has_flows())?);
    }
    println!("\n{}", times_table(&runs));
    for table in [live::ratio_table(&runs), Some(work_table(&runs)), live::work_table(&runs)] {
        table.into_iter().for_each(|table| println!("\n{table}"));
    }
    if let Some(report) = &outputs.report {
        let page = render_packets(&page(&scenario, &runs, args.every.into()));
        report.write(|output| Ok(output.write_all(page.as_bytes())?))?;
    }
    if let Some(json) = &outputs.json {
        json.write(|output| {
            serde_json::to_writer(&mut *output, &results(&scenario, &runs))?;
            Ok(writeln!(output)?)
        })?;
    }
    if let Some(csv) = &outputs.csv {
        csv.write(|output| csv::write(output, &runs))?;
    }
    Ok(())
}

impl Outputs {
    /// Whether flows are told one by one.
    fn has_flows(&self) -> bool {
        self.json.is_some() || self.report.is_some() || self.csv.is_some()
    }
}

fn outputs(args: &PacketArgs, scenario: &Scenario) -> Result<Outputs, Failure> {
    let mut files = Files::default();
    files.reads("--scenario", &args.scenario);
    // A name of sizes that Weir knows is no file.
    scenario.traffic.iter().for_each(|traffic| files.reads("[traffic] sizes", traffic.sizes.name().as_ref()));
    Ok(Outputs {
        report: files.may_write("--report", args.report.as_ref())?,
        json: files.may_write("--json", args.json.as_ref())?,
        csv: files.may_write("--csv", args.csv.as_ref())?,
        series: files.may_write("--series", args.series.as_ref())?,
        pcap: files.may_write("--pcap", args.pcap.as_ref())?,
    })
}

fn in_file(path: &Path, error: &dyn std::error::Error) -> Failure {
    Failure::Input(format!("--scenario {}: {error}", path.display()))
}

fn named(name: &str) -> Result<Box<dyn Transport>, Failure> {
    transport::named(name).map_err(|error| Failure::Input(format!("--transport: {error}")))
}

/// The scenario of the file, with what the command line says otherwise.
fn scenario(args: &PacketArgs) -> Result<Scenario, Failure> {
    let text = weir_trace::read_text(&args.scenario).map_err(|error| in_file(&args.scenario, &error))?;
    let mut scenario = Scenario::from_text(&text).map_err(|error| in_file(&args.scenario, &error))?;
    let Some(traffic) = &mut scenario.traffic else {
        if args.load.is_some() || args.flows.is_some() || args.seed.is_some() {
            let reason = "--load, --flows and --seed change [traffic], which the scenario has not";
            return Err(Failure::Input(reason.to_owned()));
        }
        return Ok(scenario);
    };
    traffic.load = args.load.unwrap_or(traffic.load);
    traffic.flows = args.flows.unwrap_or(traffic.flows);
    traffic.seed = args.seed.unwrap_or(traffic.seed);
    Poisson::new(traffic.clone()).map_err(|error| Failure::Input(format!("--load: {error}")))?;
    Ok(scenario)
}

/// One line on network and flows.
fn setting(scenario: &Scenario) -> String {
    let listed = scenario.flows.len();
    let mut flows = Vec::new();
    if listed > 0 {
        flows.push(format!("{listed} flows"));
    }
    if let Some(traffic) = &scenario.traffic {
        let (flows_drawn, sizes) = (traffic.flows, traffic.sizes.name());
        flows.push(format!("{flows_drawn} flows of {sizes} at load {}", traffic.load));
    }
    format!(
        "{}: {} over {} hosts at {}",
        scenario.name,
        flows.join(" and "),
        scenario.hosts(),
        scenario.host_rate()
    )
}

/// Takes records of flows in.
struct Sink {
    gathered: Gathered,
    timeouts: u64,
    retransmitted: u64,
    rows: Option<Vec<FlowRow>>,
    ports: Vec<PortCounts>,
    bar: ProgressBar,
}

impl Sink {
    fn new(scenario: &Scenario, transport: &str, keep: bool) -> Sink {
        let all = scenario.flows.len() as u64 + scenario.traffic.as_ref().map_or(0, |traffic| traffic.flows);
        Sink {
            gathered: Gathered::default(),
            timeouts: 0,
            retransmitted: 0,
            rows: keep.then(Vec::new),
            ports: Vec::new(),
            bar: progress::bar(all, transport, "flows"),
        }
    }

    fn add(&mut self, record: &FlowRecord) {
        self.gathered.add(record);
        self.timeouts += u64::from(record.timeouts);
        self.retransmitted += u64::from(record.retransmitted);
        if let Some(rows) = &mut self.rows {
            rows.push(row(record));
        }
        if record.number.is_multiple_of(FLOWS_PER_STEP) {
            self.bar.inc(FLOWS_PER_STEP);
        }
    }

    fn end(self, transport: &str, counts: RunCounts, cpu_s: f64) -> Run {
        self.bar.finish_and_clear();
        Run {
            transport: transport.to_owned(),
            on: On::Simulator,
            summary: self.gathered.summary(),
            counts,
            timeouts: self.timeouts,
            retransmitted: self.retransmitted,
            cpu_s,
            flows: self.rows.unwrap_or_default(),
            ports: self.ports,
            received: Received::default(),
        }
    }
}

fn row(record: &FlowRecord) -> FlowRow {
    let flow: &FlowArrival = &record.flow;
    let (kind, deadline_s) = match flow.kind {
        FlowKind::Deadline { within } => ("deadline", Some(within.as_secs())),
        FlowKind::Known => ("known", None),
        FlowKind::Unknown => ("unknown", None),
        FlowKind::Planned(_) => ("planned", None),
    };
    FlowRow {
        id: record.number,
        arrival_s: flow.arrival.as_secs(),
        source: flow.source.0,
        destination: flow.destination.0,
        bytes: flow.size.0,
        kind,
        fct_s: record.completion().as_secs(),
        ideal_s: record.ideal.as_secs(),
        deadline_s,
        met: record.met(),
        retransmitted: record.retransmitted,
        timeouts: Some(record.timeouts),
    }
}

/// Runs a simulation to its end.
fn run_out(simulation: &mut Simulation<'_>, scenario: &Scenario, sink: &mut Sink) -> RunCounts {
    let until = scenario.until.unwrap_or(Picos::MAX);
    let counts = simulation.run(until, &mut |record| sink.add(&record));
    simulation.unfinished().for_each(|open| sink.gathered.add_unfinished(&open, counts.end));
    sink.ports = simulation.ports().collect();
    counts
}

fn plain(
    scenario: &Scenario,
    topology: &Topology,
    name: &str,
    keep: bool,
    every: Option<Picos>,
) -> Result<Run, Failure> {
    let mut received = Received { every: every.unwrap_or(Picos::MAX), by_flow: BTreeMap::new() };
    let mut sink = Sink::new(scenario, name, keep);
    let before = thread_cpu_secs();
    let network = scenario.network(topology);
    let mut simulation = Simulation::numbered(topology, named(name)?, network, scenario.numbered()?);
    if every.is_some() {
        simulation.observe(&mut received);
    }
    let counts = run_out(&mut simulation, scenario, &mut sink);
    drop(simulation);
    Ok(Run { received, ..sink.end(name, counts, thread_cpu_secs() - before) })
}

/// As [`plain`], and writes down what happens.
fn watched(
    scenario: &Scenario,
    topology: &Topology,
    name: &str,
    args: &PacketArgs,
    outputs: &Outputs,
) -> Result<Run, Failure> {
    let mut run = None;
    let mut work = |series: Option<&mut dyn Write>, pcap: Option<&mut dyn Write>| -> Result<(), Failure> {
        let ports = (!args.pcap_port.is_empty()).then(|| args.pcap_port.clone());
        let recorder = series.map(|output| Recorder::new(output, args.every.into())).transpose()?;
        let capture = pcap.map(|output| Capture::new(output, ports)).transpose()?;
        let mut observers = (recorder, capture);
        let mut sink = Sink::new(scenario, name, outputs.has_flows());
        let before = thread_cpu_secs();
        let network = scenario.network(topology);
        let mut simulation = Simulation::numbered(topology, named(name)?, network, scenario.numbered()?);
        simulation.observe(&mut observers);
        let counts = run_out(&mut simulation, scenario, &mut sink);
        drop(simulation);
        let (recorder, capture) = observers;
        recorder.map(Recorder::finish).transpose()?;
        capture.map(Capture::finish).transpose()?;
        run = Some(sink.end(name, counts, thread_cpu_secs() - before));
        Ok(())
    };
    match (&outputs.series, &outputs.pcap) {
        (Some(series), Some(pcap)) => {
            series.write(|series| pcap.write(|pcap| work(Some(series), Some(pcap))))?;
        }
        (Some(series), None) => series.write(|series| work(Some(series), None))?,
        (None, Some(pcap)) => pcap.write(|pcap| work(None, Some(pcap)))?,
        (None, None) => work(None, None)?,
    }
    run.ok_or_else(|| Failure::Run(anyhow::anyhow!("nothing was run")))
}

/// Milliseconds, or a dash where there were no flows.
fn ms(completion: &Completion, value: f64) -> String {
    if completion.flows == 0 { "-".to_owned() } else { number(value * 1e3) }
}

/// Completion times of flows without deadlines by size, and deadlines missed.
fn times_table(runs: &[Run]) -> String {
    let deadlines = runs.iter().any(|run| run.summary.with_deadline.flows > 0);
    let mut header = vec![
        "transport",
        "flows",
        "avg ms",
        "p95 ms",
        "p99 ms",
        "slowdown",
        "small avg",
        "small p99",
        "middle avg",
        "large avg",
    ];
    if deadlines {
        header.extend(["deadlines", "infeasible", "missed", "missed %"]);
    }
    let mut table = table(&header, 1);
    for run in runs {
        let summary = &run.summary;
        let [small, middle, large] = &summary.by_size;
        let others = &summary.others;
        let mut row = vec![
            run.transport.clone(),
            others.flows.to_string(),
            ms(others, others.average_s),
            ms(others, others.p95_s),
            ms(others, others.p99_s),
            if others.flows == 0 { "-".to_owned() } else { format!("{:.2}", others.average_slowdown) },
            ms(small, small.average_s),
            ms(small, small.p99_s),
            ms(middle, middle.average_s),
            ms(large, large.average_s),
        ];
        if deadlines {
            let deadlines = &summary.deadlines;
            row.push((deadlines.feasible + deadlines.infeasible).to_string());
            row.push(deadlines.infeasible.to_string());
            row.push(deadlines.missed.to_string());
            row.push(format!("{:.2}", deadlines.miss_rate() * 100.0));
        }
        table.add_row(row);
    }
    text(&table)
}

/// What the runs did and took.
fn work_table(runs: &[Run]) -> String {
    let header = [
        "transport",
        "complete",
        "retransmitted",
        "timeouts",
        "dropped",
        "marked",
        "packet-hops",
        "events",
        "flows at once",
        "packets at once",
        "CPU s",
        "M hops/CPU s",
        "M events/CPU s",
    ];
    let mut table = table(&header, 1);
    for run in runs.iter().filter(|run| matches!(run.on, On::Simulator)) {
        let counts = &run.counts;
        let per_s = |value: u64| format!("{:.2}", value as f64 / run.cpu_s / 1e6);
        table.add_row([
            run.transport.clone(),
            format!("{}/{}", counts.finished, counts.begun),
            run.retransmitted.to_string(),
            run.timeouts.to_string(),
            counts.dropped.to_string(),
            counts.marked.to_string(),
            counts.hops.to_string(),
            counts.events.to_string(),
            counts.most_flows.to_string(),
            counts.most_packets.to_string(),
            format!("{:.2}", run.cpu_s),
            per_s(counts.hops),
            per_s(counts.events),
        ]);
    }
    text(&table)
}

/// Ports by number, those of which nothing was sent or dropped left out.
fn ports(counts: &[PortCounts]) -> serde_json::Value {
    let used = counts.iter().enumerate().filter(|(_, port)| port.sent + port.dropped > 0);
    let rows = used.map(|(number, port)| {
        serde_json::json!({
            "port": number, "sent": port.sent, "bytes": port.bytes, "marked": port.marked, "dropped": port.dropped,
        })
    });
    serde_json::Value::Array(rows.collect())
}

/// What makes the results, with the seed of the traffic if there is any.
fn made_by(scenario: &Scenario) -> Provenance {
    Provenance::of_this_run(scenario.traffic.as_ref().map(|traffic| traffic.seed))
}

/// The schema of `--json`, version 1, field by field in docs/json.md. Times are seconds; a completion time (FCT) counts from arrival to the last byte at
/// the receiver. `flows` of a summary are those without deadlines.
fn results(scenario: &Scenario, runs: &[Run]) -> serde_json::Value {
    let completion = |group: &Completion| {
        let known = |value: f64| (group.flows > 0).then_some(value);
        serde_json::json!({
            "flows": group.flows, "avg_fct_s": known(group.average_s), "p95_fct_s": known(group.p95_s),
            "p99_fct_s": known(group.p99_s), "avg_slowdown": known(group.average_slowdown),
        })
    };
    let runs: Vec<_> = runs
        .iter()
        .map(|run| {
            let (summary, counts) = (&run.summary, &run.counts);
            let counted = |value: u64| matches!(run.on, On::Simulator).then_some(value);
            let names = SIZE_CLASSES.map(|(name, _)| name).into_iter().chain([LARGE]);
            let by_size: serde_json::Map<_, _> = names
                .zip(&summary.by_size)
                .map(|(name, group)| (name.to_owned(), completion(group)))
                .collect();
            serde_json::json!({
                "transport": run.transport,
                "summary": {
                    "without_deadline": completion(&summary.others),
                    "by_size": by_size,
                    "with_deadline": completion(&summary.with_deadline),
                    "deadlines_feasible": summary.deadlines.feasible,
                    "deadlines_infeasible": summary.deadlines.infeasible,
                    "deadlines_missed": summary.deadlines.missed,
                    "begun": counts.begun, "finished": counts.finished, "dropped": counted(counts.dropped),
                    "marked": counts.marked, "retransmitted": run.retransmitted, "timeouts": counted(run.timeouts),
                    "packet_hops": counted(counts.hops), "events": counted(counts.events),
                    "most_live_flows": counted(counts.most_flows), "most_live_packets": counted(counts.most_packets),
                    "makespan_s": counts.end.as_secs(), "cpu_s": run.cpu_s,
                },
                "live": match &run.on { On::Simulator => None, On::Bed(machine) => Some(machine) },
                "flows": run.flows,
                "ports": ports(&run.ports),
            })
        })
        .collect();
    let rate = scenario.host_rate().bits_per_sec().round() as u64;
    serde_json::json!({
        "schema": 1, "made_by": made_by(scenario), "scenario": scenario.name, "link_rate_bps": rate, "runs": runs,
    })
}
