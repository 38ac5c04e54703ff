//! `weir packet`: a scenario through the packet-level simulator, under one or more transports.

use clap::Args;
use rayon::prelude::*;
use std::io::Write;
use std::path::{Path, PathBuf};
use weir_console::{Failure, progress};
use weir_console::{Files, OutputFile};
use weir_live::mix::{self, MixError};
use weir_model::Span;
use weir_packet::capture::Capture;
use weir_packet::transport::{self, Transport};
use weir_packet::{FlowRecord, Observer, Picos, Recorder, Scenario, Topology};
use weir_results::packets::{self, Received, Run, Sink};
use weir_results::report::render_packets;
use weir_trace::Poisson;

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
        // All names before any work: a slip in the last one would be told after the others had run.
        named(name)?;
    }
    if transports.len() > 1 && (args.series.is_some() || args.pcap.is_some()) {
        let reason = "--series and --pcap follow one transport: name only one with --transport";
        return Err(Failure::Input(reason.to_owned()));
    }
    let scenario = scenario(args)?;
    let outputs = outputs(args, &scenario)?;
    let topology = scenario.topology().map_err(|error| in_file(&args.scenario, &error))?;
    mix::check(&args.live, &scenario, &topology).map_err(not_moved)?;
    if let Some(port) = args.pcap_port.iter().find(|&&port| port as usize >= topology.ports().len()) {
        let reason = format!("--pcap-port {port}: ports are 0 to {}", topology.ports().len() - 1);
        return Err(Failure::Input(reason));
    }
    if args.every == Span::ZERO {
        return Err(Failure::Input("--every 0: an interval has a length".to_owned()));
    }
    println!("{}", packets::setting(&scenario));
    let mut runs = if transports.len() == 1 && (outputs.series.is_some() || outputs.pcap.is_some()) {
        vec![watched(&scenario, &topology, &transports[0], args, &outputs)?]
    } else {
        let keep = outputs.has_flows();
        let every =
            (outputs.report.is_some() && packets::has_few(&scenario)).then(|| Picos::from(args.every));
        let run = |name: &String| plain(&scenario, &topology, name, keep, every);
        transports.par_iter().map(run).collect::<Result<_, Failure>>()?
    };
    // After the simulations, and one by one: live runs are timed by this machine's clock, and would
    // take processor time from each other.
    for name in &args.live {
        let bar = progress::bar(scenario.flow_count(), format!("{name}{}", packets::LIVE), "flows begun");
        let run = mix::run(&scenario, &topology, name, outputs.has_flows(), &|| bar.inc(1));
        bar.finish_and_clear();
        runs.push(run.map_err(not_moved)?);
    }
    println!("\n{}", packets::times_table(&runs));
    for table in [packets::ratio_table(&runs), Some(packets::work_table(&runs)), packets::live_table(&runs)] {
        table.into_iter().for_each(|table| println!("\n{table}"));
    }
    if let Some(report) = &outputs.report {
        let page = render_packets(&packets::page(&scenario, &runs));
        report.write(|output| Ok(output.write_all(page.as_bytes())?))?;
    }
    if let Some(json) = &outputs.json {
        json.write(|output| {
            serde_json::to_writer(&mut *output, &packets::results(&scenario, &runs))?;
            Ok(writeln!(output)?)
        })?;
    }
    if let Some(csv) = &outputs.csv {
        csv.write(|output| Ok(packets::write_csv(output, &runs)?))?;
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

/// Why flows are not moved by real bytes: what was asked for is the user's to mend.
fn not_moved(error: MixError) -> Failure {
    match error {
        MixError::Transport { name, reason } => Failure::Input(format!("--live {name}: {reason}")),
        MixError::Scenario(reason) => Failure::Input(format!("--live: {reason}")),
        MixError::Failed(error) => Failure::Run(error),
    }
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

/// A bar of all flows, moved by each that is complete.
fn with_bar<T>(
    scenario: &Scenario,
    transport: &str,
    work: impl FnOnce(&mut dyn FnMut(&FlowRecord)) -> T,
) -> T {
    let bar = progress::bar(scenario.flow_count(), transport, "flows");
    let done = work(&mut |record| {
        if record.number.is_multiple_of(FLOWS_PER_STEP) {
            bar.inc(FLOWS_PER_STEP);
        }
    });
    bar.finish_and_clear();
    done
}

fn plain(
    scenario: &Scenario,
    topology: &Topology,
    name: &str,
    keep: bool,
    every: Option<Picos>,
) -> Result<Run, Failure> {
    let mut received = every.map(Received::new);
    let observer = received.as_mut().map(|received| received as &mut dyn Observer);
    let transport = named(name)?;
    let run = with_bar(scenario, name, |completed| {
        packets::simulate(scenario, topology, name, transport, observer, Sink::new(keep, completed))
    })?;
    Ok(Run { received: received.unwrap_or_default(), ..run })
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
        let transport = named(name)?;
        run = Some(with_bar(scenario, name, |completed| {
            let sink = Sink::new(outputs.has_flows(), completed);
            packets::simulate(scenario, topology, name, transport, Some(&mut observers), sink)
        })?);
        let (recorder, capture) = observers;
        recorder.map(Recorder::finish).transpose()?;
        capture.map(Capture::finish).transpose()?;
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
