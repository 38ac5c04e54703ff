//! `weir bench loopback`: how fast one agent serves one receiver over loopback when nothing is
//! scheduled, beside iperf3 in the same run.
//!
//! Both sides of both are separate processes, use cubic and the same number of connections, and take
//! turns, so that whatever else the machine does hits both. Weir's receiver verifies every checksum.
//! Three kinds of blocks:
//! - `cached`: small enough for the processor's caches, as is the one buffer that iperf3 sends again and
//!   again;
//! - `large`: in the page cache, but every byte has to come from memory once;
//! - `first`: as `large`, and the agent does not know its checksums yet, as of a file that no receiver got before.

use super::daemons::{AgentPlace, Daemon, own_command};
use super::receive::Received;
use anyhow::Context;
use clap::Args;
use serde::Serialize;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use weir_console::Failure;
use weir_console::Files;
use weir_model::Bytes;
use weir_proto::limits::MAX_BLOCK_BYTES;
use weir_results::median;
use weir_testbed::free_address;
use weir_testbed::live::{self, OwnChild, RunFolder};

/// Blocks of the `first` kind: more than all rounds can begin.
const FIRST_BLOCKS: u64 = 4_000;
/// Size of the block of the `cached` kind.
const CACHED_BYTES: u64 = 8 << 20;
const COFLOW: u64 = 1;
/// How long a process may take beyond its measurement.
const GRACE: Duration = Duration::from_secs(15);

#[derive(Args)]
pub(crate) struct LoopbackArgs {
    /// Numbers of streams to measure with
    #[arg(long, value_name = "N[,N...]", value_delimiter = ',', default_value = "1,4")]
    streams: Vec<u64>,
    /// Length of one measurement in seconds
    #[arg(long, value_name = "S", default_value_t = 3.0)]
    seconds: f64,
    /// Measurements of each kind; medians are shown
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// Size of a large block in MB
    #[arg(long, value_name = "MB", default_value_t = 256)]
    block_mb: u64,
    /// Write the figures to a file
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,
}

/// One process pair's measurement.
#[derive(Clone, Copy, Debug, Serialize)]
struct Measured {
    gbit_per_s: f64,
    sender_cpu_s_per_gb: f64,
    receiver_cpu_s_per_gb: f64,
}

#[derive(Debug, Serialize)]
struct Row {
    streams: u64,
    what: &'static str,
    median: Measured,
    /// Median over rounds of Weir's throughput to iperf3's in the same round.
    ratio_to_iperf3: f64,
    rounds: Vec<Measured>,
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    seconds: f64,
    cached_block_bytes: u64,
    large_block_bytes: u64,
    rows: Vec<Row>,
}

pub(crate) fn loopback(args: &LoopbackArgs) -> Result<(), Failure> {
    if args.rounds == 0 || args.block_mb == 0 || args.seconds.is_nan() || args.seconds < 0.1 {
        return Err(Failure::Input("--rounds and --block-mb are at least 1, --seconds at least 0.1".into()));
    }
    if args.streams.iter().any(|streams| !(1..=64).contains(streams)) {
        return Err(Failure::Input("--streams takes numbers from 1 to 64".to_owned()));
    }
    check_room(args.block_mb)?;
    if Command::new("iperf3").arg("--version").stdout(Stdio::null()).status().is_err() {
        return Err(Failure::Input("iperf3 is not installed; it is in the Debian package `iperf3`".into()));
    }
    let output = Files::default().may_write("--json", args.json.as_ref())?;
    let dir = RunFolder::create()?;
    let bench = Bench::start(args, dir.path())?;
    let mut report = Report {
        schema: 1,
        seconds: args.seconds,
        cached_block_bytes: CACHED_BYTES,
        large_block_bytes: args.block_mb << 20,
        rows: Vec::new(),
    };
    println!("streams  what            Gbit/s  of iperf3  CPU s/GB: sender  receiver   both");
    for &streams in &args.streams {
        let mut iperf = Vec::new();
        let mut kinds = [
            ("weir, cached", "cached-", 1, Vec::new()),
            ("weir, large", "large-", 1, Vec::new()),
            ("weir, first", "first-", FIRST_BLOCKS, Vec::new()),
        ];
        for round in 0..args.rounds {
            iperf.push(bench.iperf3(streams)?);
            for (_, prefix, blocks, measured) in &mut kinds {
                let start = round as u64 * FIRST_BLOCKS / args.rounds as u64;
                measured.push(bench.weir(streams, prefix, *blocks, start)?);
            }
        }
        let kinds = kinds.map(|(what, _, _, rounds)| (what, rounds));
        for (what, rounds) in std::iter::once(("iperf3", iperf.clone())).chain(kinds) {
            let ratios = rounds.iter().zip(&iperf).map(|(own, other)| own.gbit_per_s / other.gbit_per_s);
            let row = Row {
                streams,
                what,
                median: Measured {
                    gbit_per_s: median(rounds.iter().map(|round| round.gbit_per_s)),
                    sender_cpu_s_per_gb: median(rounds.iter().map(|round| round.sender_cpu_s_per_gb)),
                    receiver_cpu_s_per_gb: median(rounds.iter().map(|round| round.receiver_cpu_s_per_gb)),
                },
                ratio_to_iperf3: median(ratios),
                rounds,
            };
            let cpu = (row.median.sender_cpu_s_per_gb, row.median.receiver_cpu_s_per_gb);
            println!(
                "{streams:>7}  {what:<12} {:>9.1} {:>10.2} {:>17.3} {:>9.3} {:>6.3}",
                row.median.gbit_per_s,
                row.ratio_to_iperf3,
                cpu.0,
                cpu.1,
                cpu.0 + cpu.1
            );
            report.rows.push(row);
        }
    }
    if let Some(output) = output {
        output.write(|file| Ok(writeln!(file, "{}", serde_json::to_string_pretty(&report)?)?))?;
    }
    Ok(())
}

/// The file of large blocks stands in the folder for temporary files.
fn check_room(block_mb: u64) -> Result<(), Failure> {
    let refuse = |reason: String| Failure::Input(format!("--block-mb {block_mb}: {reason}"));
    if block_mb > MAX_BLOCK_BYTES >> 20 {
        return Err(refuse(format!("a block has at most {} MB", MAX_BLOCK_BYTES >> 20)));
    }
    let (needed, folder) = (Bytes(block_mb << 20), std::env::temp_dir());
    match live::free_room(&folder).filter(|free| *free < needed) {
        Some(free) => Err(refuse(format!(
            "needs {needed} in {}, which has {free} free; take less, or name another folder in TMPDIR",
            folder.display()
        ))),
        None => Ok(()),
    }
}

struct Bench {
    agent: Daemon,
    holder: SocketAddr,
    seconds: f64,
}

impl Bench {
    /// Starts an agent without a coordinator, and puts the blocks.
    fn start(args: &LoopbackArgs, dir: &Path) -> Result<Bench, Failure> {
        let data = dir.join("data");
        write_data(&data, args.block_mb)?;
        let place = AgentPlace::new(0, dir, None)?;
        let (agent, holder) = (place.start(dir)?, place.address);
        let size = args.block_mb << 20;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let client = place.client();
            client.put_file(COFLOW, "cached-0", &data, 0, CACHED_BYTES.min(size)).await?;
            client.put_file(COFLOW, "large-0", &data, 0, size).await?;
            for index in 0..FIRST_BLOCKS {
                client.put_file(COFLOW, &format!("first-{index}"), &data, 0, size).await?;
            }
            Ok::<(), weir_client::Error>(())
        })?;
        let bench = Bench { agent, holder, seconds: args.seconds };
        // One whole get each, so that the agent knows the checksums of these kinds.
        bench.receive(1, "cached-", 1, 0, 0.5)?;
        bench.receive(1, "large-", 1, 0, args.block_mb as f64 / 400.0 + 1.0)?;
        Ok(bench)
    }

    fn weir(&self, streams: u64, prefix: &str, blocks: u64, start: u64) -> anyhow::Result<Measured> {
        let before = self.agent.cpu_seconds()?;
        let received = self.receive(streams, prefix, blocks, start, self.seconds)?;
        let sender = self.agent.cpu_seconds()? - before;
        Ok(measured(received.bytes as f64, received.seconds, sender, received.cpu_s))
    }

    fn receive(
        &self,
        streams: u64,
        prefix: &str,
        blocks: u64,
        start: u64,
        seconds: f64,
    ) -> anyhow::Result<Received> {
        let mut command = own_command()?;
        command
            .args(["bench", "receive", "--holder", &self.holder.to_string()])
            .args(["--coflow", &COFLOW.to_string(), "--prefix", prefix])
            .args(["--blocks", &blocks.to_string(), "--start", &start.to_string()])
            .args(["--streams", &streams.to_string()])
            .args(["--seconds", &seconds.to_string()]);
        Ok(serde_json::from_slice(&output_of(command, seconds)?)?)
    }

    /// One client against a server of its own that serves once.
    fn iperf3(&self, streams: u64) -> anyhow::Result<Measured> {
        let address = free_address()?;
        let port = address.port().to_string();
        let mut server = OwnChild::command("iperf3".as_ref())?;
        server.args(["-s", "-1", "-B", "127.0.0.1", "-p", &port]).stdout(Stdio::null());
        let server = Daemon::start_serving(server, || TcpListener::bind(address).is_err())?;
        let seconds = self.seconds.ceil().to_string();
        let mut client = OwnChild::command("iperf3".as_ref())?;
        client.args(["-c", "127.0.0.1", "-p", &port, "-C", "cubic", "--json"]).args([
            "-P",
            &streams.to_string(),
            "-t",
            &seconds,
        ]);
        let said: serde_json::Value = serde_json::from_slice(&output_of(client, self.seconds.ceil())?)?;
        drop(server);
        let number = |path: &str| {
            said.pointer(path)
                .and_then(serde_json::Value::as_f64)
                .with_context(|| format!("iperf3: no {path}"))
        };
        let (bytes, seconds) = (number("/end/sum_received/bytes")?, number("/end/sum_received/seconds")?);
        let sender = number("/end/cpu_utilization_percent/host_total")? / 100.0 * seconds;
        let receiver = number("/end/cpu_utilization_percent/remote_total")? / 100.0 * seconds;
        Ok(measured(bytes, seconds, sender, receiver))
    }
}

fn measured(bytes: f64, seconds: f64, sender_s: f64, receiver_s: f64) -> Measured {
    let gb = bytes / 1e9;
    Measured {
        gbit_per_s: gb * 8.0 / seconds,
        sender_cpu_s_per_gb: sender_s / gb,
        receiver_cpu_s_per_gb: receiver_s / gb,
    }
}

/// The standard output of a process that ends well within its time.
fn output_of(mut command: Command, seconds: f64) -> anyhow::Result<Vec<u8>> {
    let name = format!("{command:?}");
    let end = Instant::now() + Duration::from_secs_f64(seconds) + GRACE;
    // A file: a pipe that is read only at the end could fill, and the child would not end.
    let output = tempfile::tempfile()?;
    command.stdout(output.try_clone()?);
    let mut child = Daemon::start(command)?;
    loop {
        if let Some(status) = child.ended()? {
            anyhow::ensure!(status.success(), "{name}: {status}");
            break;
        }
        anyhow::ensure!(Instant::now() < end, "{name} does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut bytes = Vec::new();
    std::io::Seek::rewind(&mut &output)?;
    std::io::Read::read_to_end(&mut &output, &mut bytes)?;
    Ok(bytes)
}

/// Bytes that do not compress and are soon made.
fn write_data(path: &Path, megabytes: u64) -> std::io::Result<()> {
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut chunk = vec![0; 1 << 20];
    for _ in 0..megabytes {
        for word in chunk.chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        file.write_all(&chunk)?;
    }
    file.flush()
}
