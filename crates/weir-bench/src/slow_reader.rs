//! `weir bench slow-reader`: what a receiver that reads slowly, or has stopped, costs the others on its uplink.

use super::daemons::{AgentPlace, Daemon, coordinator};
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};
use weir_client::{Client, CoflowOptions, GetOptions};
use weir_console::Failure;
use weir_console::Files;
use weir_console::find_for_hosts;
use weir_model::Rate;
use weir_results::{median, table, text};
use weir_testbed::free_address;
use weir_testbed::live::RunFolder;

/// The sender, the slow receiver and the other one.
const HOSTS: u32 = 3;
/// Bytes of the slow receiver's coflow: more than sockets hold, and far fewer than the other coflow's.
const SMALL_BYTES: u64 = 64 << 20;
/// Bytes of the other coflow: more than moves. Both are zeros that take no room on the disk.
const LARGE_BYTES: u64 = 1 << 40;
/// The slow receiver is there first,
const HEAD_START: Duration = Duration::from_millis(200);
/// and measuring begins once sockets are full and rates have followed.
const SETTLED: Duration = Duration::from_secs(3);
/// A reader that has stopped goes on after this: never.
const NEVER: Duration = Duration::from_secs(86_400);

/// On one uplink, a receiver of a smaller coflow, which came first, reads slowly or stops, and another receiver of a
/// larger coflow takes all it gets. Printed is what the other one gets: alone, and beside each slow one.
///
/// Processes are real, on loopback; links are what the coordinator plans with.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct SlowReaderArgs {
    /// Policies, by name; all that are not for links between sites, unless set
    #[arg(long, value_name = "NAME[,NAME...]", value_delimiter = ',')]
    policy: Vec<String>,
    /// What the slow receiver reads, in bytes per second; 0: it reads a little and stops
    #[arg(long, value_name = "BYTES[,BYTES...]", value_delimiter = ',', default_value = "0,100000")]
    reader_rates: Vec<u64>,
    /// Rate of each host's link
    #[arg(long, value_name = "RATE", default_value = "100mbit")]
    link_rate: Rate,
    /// Length of one measurement in seconds
    #[arg(long, value_name = "S", default_value_t = 3.0)]
    seconds: f64,
    /// Measurements of each kind, in turn; medians are shown
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Write the figures to a file
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Row {
    policy: String,
    alone_bytes_per_s: f64,
    beside: Vec<Beside>,
}

#[derive(Debug, Serialize)]
struct Beside {
    reader_bytes_per_s: u64,
    bytes_per_s: f64,
    /// To what it was alone.
    ratio: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    seconds: f64,
    rounds: u32,
    link_bits_per_s: f64,
    rows: Vec<Row>,
}

pub(crate) fn slow_reader(args: &SlowReaderArgs) -> Result<(), Failure> {
    if !(0.1..=600.0).contains(&args.seconds) {
        return Err(Failure::Input(format!("--seconds {}: 0.1 to 600", args.seconds)));
    }
    let for_hosts = || weir_policy::registry().iter().filter(|info| !info.between_sites);
    let known = || for_hosts().map(|info| info.name.to_owned()).collect();
    let policies: Vec<String> = if args.policy.is_empty() { known() } else { args.policy.clone() };
    for name in &policies {
        find_for_hosts(name)?;
    }
    let output = Files::default().may_write("--json", args.json.as_ref())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let rows = policies.iter().map(|policy| {
        let row = runtime.block_on(measure(args, policy))?;
        eprintln!("{policy}: {:.1} MB/s alone, {}", row.alone_bytes_per_s / 1e6, ratios(&row.beside));
        Ok(row)
    });
    let rows = rows.collect::<anyhow::Result<Vec<_>>>()?;
    let rates: Vec<String> = args.reader_rates.iter().map(|&rate| beside(rate)).collect();
    let heads = rates.iter().map(String::as_str);
    let mut shown = table(&["policy", "alone MB/s"].into_iter().chain(heads).collect::<Vec<_>>(), 1);
    for row in &rows {
        let mut cells = vec![row.policy.clone(), format!("{:.2}", row.alone_bytes_per_s / 1e6)];
        cells.extend(row.beside.iter().map(|at| format!("{:.2} ({:.3})", at.bytes_per_s / 1e6, at.ratio)));
        shown.add_row(cells);
    }
    println!("{}", text(&shown));
    let lowest = rows.iter().flat_map(|row| row.beside.iter().map(move |at| (at.ratio, &row.policy, at)));
    if let Some((ratio, policy, at)) = lowest.min_by(|one, other| one.0.total_cmp(&other.0)) {
        println!("lowest: {ratio:.3} under {policy}, {}", beside(at.reader_bytes_per_s));
    }
    if let Some(output) = output {
        let report = Report {
            schema: 1,
            seconds: args.seconds,
            rounds: args.rounds,
            link_bits_per_s: args.link_rate.bits_per_sec(),
            rows,
        };
        output.write(|file| Ok(writeln!(file, "{}", serde_json::to_string_pretty(&report)?)?))?;
    }
    Ok(())
}

fn beside(rate: u64) -> String {
    if rate == 0 { "beside a stopped one".to_owned() } else { format!("beside {} kB/s", rate as f64 / 1e3) }
}

fn ratios(beside: &[Beside]) -> String {
    let each = beside.iter().map(|at| format!("{:.3} beside {} B/s", at.ratio, at.reader_bytes_per_s));
    each.collect::<Vec<_>>().join(", ")
}

/// A coordinator and three agents.
struct Bed {
    _daemons: Vec<Daemon>,
    clients: Vec<Client>,
    zeros: PathBuf,
}

impl Bed {
    fn start(args: &SlowReaderArgs, policy: &str, dir: &Path) -> anyhow::Result<Bed> {
        let address = free_address()?;
        let rate = format!("{}bit", args.link_rate.bits_per_sec());
        let options = ["--policy", policy, "--link-rate", &rate].map(str::to_owned);
        let mut daemons = vec![coordinator(address, HOSTS, &options)?];
        let mut clients = Vec::new();
        for host in 0..HOSTS {
            let place = AgentPlace::new(host, dir, Some(address))?;
            daemons.push(place.start(dir)?);
            clients.push(place.client());
        }
        let zeros = dir.join("zeros");
        std::fs::File::create(&zeros)?.set_len(LARGE_BYTES)?;
        Ok(Bed { _daemons: daemons, clients, zeros })
    }

    /// Begins a get of a coflow of one block; counts what arrives.
    async fn get(&self, to: usize, bytes: u64, pace: Option<u64>) -> anyhow::Result<(u64, Reader)> {
        let driver = &self.clients[0];
        let coflow = driver.register(CoflowOptions { flows: 1, ..CoflowOptions::default() }).await?;
        driver.put_file(coflow, "b", &self.zeros, 0, bytes).await?;
        let received = Arc::new(AtomicU64::new(0));
        let (counted, mut reader) =
            (Arc::clone(&received), self.clients[to].get(coflow, "b", GetOptions::default()));
        let task = tokio::spawn(async move {
            let (begun, mut at) = (Instant::now(), 0);
            while let Ok(Some(part)) = reader.next().await {
                at += part.len() as u64;
                counted.store(at, Ordering::Relaxed);
                match pace {
                    None => {}
                    Some(0) => sleep(NEVER).await,
                    Some(rate) => sleep_until(begun + Duration::from_secs_f64(at as f64 / rate as f64)).await,
                }
            }
        });
        Ok((coflow, Reader { received, task }))
    }

    /// What the other receiver gets in bytes per second.
    async fn measure(&self, seconds: f64, slow: Option<u64>) -> anyhow::Result<f64> {
        let mut coflows = Vec::new();
        let mut slow_reader = None;
        if slow.is_some() {
            let (coflow, reader) = self.get(1, SMALL_BYTES, slow).await?;
            (coflows, slow_reader) = (vec![coflow], Some(reader));
            sleep(HEAD_START).await;
        }
        let (coflow, other) = self.get(2, LARGE_BYTES, None).await?;
        coflows.push(coflow);
        sleep(SETTLED).await;
        let (begun, before) = (Instant::now(), other.received.load(Ordering::Relaxed));
        sleep(Duration::from_secs_f64(seconds)).await;
        let moved = other.received.load(Ordering::Relaxed) - before;
        let rate = moved as f64 / begun.elapsed().as_secs_f64();
        anyhow::ensure!(!other.task.is_finished(), "the other receiver's get ended early");
        drop((other, slow_reader));
        for coflow in coflows {
            self.clients[0].unregister(coflow).await?;
        }
        Ok(rate)
    }
}

/// A get that goes on until it is dropped.
struct Reader {
    received: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn measure(args: &SlowReaderArgs, policy: &str) -> anyhow::Result<Row> {
    let dir = RunFolder::create()?;
    let bed = Bed::start(args, policy, dir.path())?;
    let (mut alone, mut beside) = (Vec::new(), vec![Vec::new(); args.reader_rates.len()]);
    for _ in 0..args.rounds {
        alone.push(bed.measure(args.seconds, None).await?);
        for (rates, &reader) in beside.iter_mut().zip(&args.reader_rates) {
            rates.push(bed.measure(args.seconds, Some(reader)).await?);
        }
    }
    let alone = median(alone.into_iter());
    let beside = beside.into_iter().zip(&args.reader_rates).map(|(rates, &reader_bytes_per_s)| {
        let bytes_per_s = median(rates.into_iter());
        Beside { reader_bytes_per_s, bytes_per_s, ratio: bytes_per_s / alone }
    });
    Ok(Row { policy: policy.to_owned(), alone_bytes_per_s: alone, beside: beside.collect() })
}
