//! `weir bench relay`: what a relay costs over loopback, beside a forwarder that only splices.
//!
//! Throughput: sources write to one relay, or to the forwarder, which hands on to sinks that read and discard. Both
//! take turns, so that whatever else the machine does hits both.
//!
//! Head of line: flows go through two relays over the same few connections. In every other run the receiver of one
//! of them takes nothing.

mod flows;
mod forwarder;

use clap::Args;
use flows::{Flows, RelayThread};
use forwarder::Forwarder;
use serde::Serialize;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use weir_console::Failure;
use weir_console::Files;
use weir_results::median;

/// What comes before a measurement: connections are made, windows grow.
const WARM_UP: Duration = Duration::from_millis(300);

/// Measures what a relay costs on this machine's loopback, and prints
///
/// through one relay, and through a plain splice forwarder: throughput in the same run, and their ratio; medians of
/// all rounds.
///
/// head of line: the rate of all flows but one through two relays, with that one moving nothing because its receiver
/// takes nothing, over their rate without it; median of all rounds.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct RelayArgs {
    /// Numbers of flows to measure throughput with, each 1 to 64
    #[arg(long, value_name = "N[,N...]", value_delimiter = ',', default_value = "1,4",
          value_parser = clap::value_parser!(u32).range(1..=64))]
    flows: Vec<u32>,
    /// Flows that share links with one that is stuck, 1 to 255
    #[arg(long, value_name = "N", default_value_t = 31, value_parser = clap::value_parser!(u32).range(1..=255))]
    others: u32,
    /// Length of one measurement in seconds, 0.1 to 60
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    seconds: f64,
    /// Measurements of each kind
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Write the figures to a file
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,
}

/// Rates by round in bytes per second, and the median of their ratios.
#[derive(Debug, Serialize)]
struct Row {
    what: &'static str,
    flows: u32,
    bytes_per_s: Vec<f64>,
    beside_bytes_per_s: Vec<f64>,
    ratio: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    seconds: f64,
    rows: Vec<Row>,
}

pub(crate) fn relay(args: &RelayArgs) -> Result<(), Failure> {
    if !(0.1..=60.0).contains(&args.seconds) {
        return Err(Failure::Input(format!("--seconds {} is not between 0.1 and 60", args.seconds)));
    }
    let output = Files::default().may_write("--json", args.json.as_ref())?;
    let mut report = Report { schema: 1, seconds: args.seconds, rows: Vec::new() };
    let length = Duration::from_secs_f64(args.seconds);
    println!("flows  what                                    Gbit/s    beside   ratio");
    for &flows in &args.flows {
        let row = rounds(args.rounds, "through one relay, beside splice alone", flows, || {
            Ok((through_relay(flows, length)?, through_forwarder(flows, length)?))
        })?;
        report.rows.push(row);
    }
    let row = rounds(args.rounds, "beside a stuck flow, and without one", args.others, || {
        Ok((past_a_stuck_flow(args.others, true, length)?, past_a_stuck_flow(args.others, false, length)?))
    })?;
    report.rows.push(row);
    if let Some(output) = output {
        output.write(|file| Ok(writeln!(file, "{}", serde_json::to_string_pretty(&report)?)?))?;
    }
    Ok(())
}

fn rounds(
    rounds: u32,
    what: &'static str,
    flows: u32,
    mut measure: impl FnMut() -> anyhow::Result<(f64, f64)>,
) -> anyhow::Result<Row> {
    let measured = (0..rounds).map(|_| measure()).collect::<anyhow::Result<Vec<_>>>()?;
    let (bytes_per_s, beside_bytes_per_s): (Vec<f64>, Vec<f64>) = measured.iter().copied().unzip();
    let ratio = median(measured.iter().map(|(own, beside)| own / beside));
    let gigabits = |rates: &[f64]| median(rates.iter().copied()) * 8.0 / 1e9;
    println!(
        "{flows:>5}  {what:<38} {:>7.2}   {:>7.2}   {ratio:>5.3}",
        gigabits(&bytes_per_s),
        gigabits(&beside_bytes_per_s)
    );
    Ok(Row { what, flows, bytes_per_s, beside_bytes_per_s, ratio })
}

fn through_relay(flows: u32, length: Duration) -> anyhow::Result<f64> {
    let relay = RelayThread::start("only", 0)?;
    let mut running = Flows::default();
    for number in 0..flows {
        running.add_relayed(number, relay.address(), relay.address())?;
    }
    running.measure(WARM_UP, length)
}

fn through_forwarder(flows: u32, length: Duration) -> anyhow::Result<f64> {
    let (_forwarder, ends) = Forwarder::start(flows)?;
    let mut running = Flows::default();
    for (source, sink) in ends {
        running.add_plain(source, sink)?;
    }
    running.measure(WARM_UP, length)
}

/// The rate of so many flows from one relay to another, beside a further one that is stuck if `stuck`.
fn past_a_stuck_flow(others: u32, stuck: bool, length: Duration) -> anyhow::Result<f64> {
    let near = RelayThread::start("near", 0)?;
    let far = RelayThread::start("far", 1)?;
    let (near, far): (SocketAddr, SocketAddr) = (near.address(), far.address());
    let mut running = Flows::default();
    if stuck {
        running.add_stuck(others, near, far)?;
    }
    for number in 0..others {
        running.add_relayed(number, near, far)?;
    }
    running.measure(WARM_UP, length)
}
