//! `weir bench puts`: what it costs that a block which was put outlives the machine.

use super::daemons::AgentPlace;
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use weir_client::{Client, GetOptions};
use weir_console::Failure;
use weir_console::Files;
use weir_results::{median, table, text};
use weir_testbed::live::RunFolder;

/// A coflow that no coordinator need know.
const COFLOW: u64 = 1;
/// How long the agent may take to listen.
const START_LIMIT: Duration = Duration::from_secs(15);
/// What agents are started with, in turn.
const KINDS: [&str; 2] = ["process", "machine"];

/// Tasks put files of their own as fast as they are answered, and each get of one in sixteen blocks is timed from before its
/// put to its first byte. The agent is started with each `--durable` in turn.
///
/// Processes are real. The disk is that of --dir: a file system in memory shows nothing.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct PutsArgs {
    /// Folder on the disk in question, in which a folder is made and removed again
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Bytes of each block
    #[arg(long, value_name = "BYTES[,BYTES...]", value_delimiter = ',', default_value = "4096,1048576",
        value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    block_bytes: Vec<u64>,
    /// Tasks that put at once
    #[arg(long, value_name = "N[,N...]", value_delimiter = ',', default_value = "1,16",
        value_parser = clap::value_parser!(u32).range(1..=1024))]
    tasks: Vec<u32>,
    /// Puts of each task
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    puts: u32,
    /// Measurements of each kind, in turn; medians are shown
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Write the figures to a file
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Row {
    durable: &'static str,
    block_bytes: u64,
    tasks: u32,
    puts_per_s: f64,
    first_byte_ms: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    puts_per_task: u32,
    rounds: u32,
    rows: Vec<Row>,
}

pub(crate) fn puts(args: &PutsArgs) -> Result<(), Failure> {
    let output = Files::default().may_write("--json", args.json.as_ref())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut rows = Vec::new();
    for &block_bytes in &args.block_bytes {
        for &tasks in &args.tasks {
            let mut seen = [Vec::new(), Vec::new()];
            for _ in 0..args.rounds {
                // In turn, so that a disk that is slower for a while is slower for both kinds.
                for (durable, seen) in KINDS.iter().zip(&mut seen) {
                    seen.push(runtime.block_on(measure(args, durable, block_bytes, tasks))?);
                }
            }
            rows.extend(KINDS.iter().zip(&seen).map(|(durable, seen)| {
                let of = |pick: fn(&(f64, f64)) -> f64| median(seen.iter().map(pick));
                let (puts_per_s, first_byte_ms) = (of(|at| at.0), of(|at| at.1));
                Row { durable, block_bytes, tasks, puts_per_s, first_byte_ms }
            }));
        }
    }
    let mut shown = table(&["durable", "block bytes", "tasks", "puts/s", "put to first byte, ms"], 1);
    for row in &rows {
        shown.add_row([
            row.durable.to_owned(),
            row.block_bytes.to_string(),
            row.tasks.to_string(),
            format!("{:.0}", row.puts_per_s),
            format!("{:.2}", row.first_byte_ms),
        ]);
    }
    println!("{}", text(&shown));
    if let Some(output) = output {
        let report = Report { schema: 1, puts_per_task: args.puts, rounds: args.rounds, rows };
        output.write(|file| Ok(writeln!(file, "{}", serde_json::to_string_pretty(&report)?)?))?;
    }
    Ok(())
}

/// Puts a second, and the median time to a first byte in milliseconds.
async fn measure(args: &PutsArgs, durable: &str, block_bytes: u64, tasks: u32) -> anyhow::Result<(f64, f64)> {
    let dir = RunFolder::create_in(&args.dir.canonicalize()?)?;
    let path = dir.path().to_owned();
    let place = AgentPlace::new(0, &path, None)?;
    let agent = place.start_with(&path, &["--durable", durable])?;
    let socket = place.spool.join("agent.sock");
    let end = Instant::now() + START_LIMIT;
    while !socket.exists() {
        anyhow::ensure!(Instant::now() < end, "the agent does not listen within {START_LIMIT:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let begun = Instant::now();
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let (client, path, count) = (place.client(), path.clone(), args.puts);
        let holders = vec![place.address];
        running.spawn(async move { put_all(&client, &path, task, count, block_bytes, holders).await });
    }
    let mut first_bytes = Vec::new();
    while let Some(done) = running.join_next().await {
        first_bytes.extend(done??);
    }
    let took = begun.elapsed().as_secs_f64();
    drop(agent);
    Ok((f64::from(tasks * args.puts) / took, median(first_bytes.into_iter())))
}

/// Milliseconds to the first byte of the blocks that were got too.
async fn put_all(
    client: &Client,
    dir: &Path,
    task: u32,
    count: u32,
    bytes: u64,
    holders: Vec<std::net::SocketAddr>,
) -> anyhow::Result<Vec<f64>> {
    let mut first_bytes = Vec::new();
    for number in 0..count {
        let name = format!("{task}-{number}");
        let path = dir.join(&name);
        tokio::fs::write(&path, vec![task as u8; bytes as usize]).await?;
        // Only now: writing the file is the task's own work, however the agent keeps the block.
        let begun = Instant::now();
        client.put_file(COFLOW, &name, &path, 0, bytes).await?;
        if number % 16 == 0 {
            let options = GetOptions { holders: holders.clone(), ..GetOptions::default() };
            let mut reader = client.get(COFLOW, &name, options);
            while reader.next().await?.is_some() {}
            first_bytes.extend(reader.first_byte().map(|at| (at - begun).as_secs_f64() * 1e3));
        }
    }
    Ok(first_bytes)
}
