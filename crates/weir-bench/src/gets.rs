//! `weir bench gets`: the processor time of a flow, by who takes it.

use super::daemons::{self, AgentPlace, Daemon};
use super::receive::cpu_seconds;
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use weir_client::{Client, CoflowOptions, GetOptions};
use weir_console::Failure;
use weir_console::Files;
use weir_console::find_for_hosts;
use weir_model::Rate;
use weir_results::{median, table, text};
use weir_testbed::live::RunFolder;

/// How long agents may take to listen.
const START_LIMIT: Duration = Duration::from_secs(15);
/// How long a get may take.
const LIMIT: Duration = Duration::from_secs(60);

/// A shuffle of small blocks, again and again: every host puts a block for every other one, and then all are got at once. Counted
/// is the processor time from the first get to the last, of the coordinator, of all agents, and of the receivers, which are
/// this command.
///
/// Processes are real, on loopback. The kernel's work for a socket counts for the process that has it done.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct GetsArgs {
    /// Hosts, each with an agent: as many gets at once as there are pairs of different ones
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(2..=64))]
    hosts: u32,
    /// Bytes of each block
    #[arg(long, value_name = "BYTES[,BYTES...]", value_delimiter = ',', default_value = "4096,262144",
        value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    block_bytes: Vec<u64>,
    /// Shuffles in each measurement
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    shuffles: u32,
    /// Measurements of each kind, in turn; medians are shown
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// The coordinator's policy
    #[arg(long, value_name = "NAME", default_value = "varys")]
    policy: String,
    /// Rate of each host's link, as the coordinator plans with it
    #[arg(long, value_name = "RATE", default_value = "10gbit")]
    link_rate: Rate,
    /// Write the figures to a file
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,
}

/// Microseconds of processor time per get, and gets a second.
#[derive(Clone, Copy, Debug, Serialize)]
struct Cost {
    coordinator_us: f64,
    agents_us: f64,
    receivers_us: f64,
    gets_per_s: f64,
}

#[derive(Debug, Serialize)]
struct Row {
    block_bytes: u64,
    #[serde(flatten)]
    cost: Cost,
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    hosts: u32,
    policy: String,
    shuffles: u32,
    rounds: u32,
    rows: Vec<Row>,
}

pub(crate) fn gets(args: &GetsArgs) -> Result<(), Failure> {
    find_for_hosts(&args.policy)?;
    let output = Files::default().may_write("--json", args.json.as_ref())?;
    daemons::raise_descriptors()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut seen = vec![Vec::new(); args.block_bytes.len()];
    let bed = runtime.block_on(Bed::start(args))?;
    for _ in 0..args.rounds {
        for (&bytes, seen) in args.block_bytes.iter().zip(&mut seen) {
            seen.push(runtime.block_on(bed.measure(args.shuffles, bytes))?);
        }
    }
    let rows = args.block_bytes.iter().zip(&seen).map(|(&block_bytes, seen)| {
        let of = |pick: fn(&Cost) -> f64| median(seen.iter().map(pick));
        let cost = Cost {
            coordinator_us: of(|cost| cost.coordinator_us),
            agents_us: of(|cost| cost.agents_us),
            receivers_us: of(|cost| cost.receivers_us),
            gets_per_s: of(|cost| cost.gets_per_s),
        };
        Row { block_bytes, cost }
    });
    let rows: Vec<Row> = rows.collect();
    let heads = ["block bytes", "coordinator, us", "agents, us", "receivers, us", "together, us", "gets/s"];
    let mut shown = table(&heads, 0);
    for Row { block_bytes, cost } in &rows {
        let parts = [cost.coordinator_us, cost.agents_us, cost.receivers_us];
        let numbers = parts.into_iter().chain([parts.iter().sum(), cost.gets_per_s]);
        let cells = numbers.map(|number| format!("{number:.0}"));
        shown.add_row(std::iter::once(block_bytes.to_string()).chain(cells).collect::<Vec<_>>());
    }
    println!("{} gets at once under {}\n{}", bed.pairs().count(), args.policy, text(&shown));
    if let Some(output) = output {
        let GetsArgs { hosts, policy, shuffles, rounds, .. } = args;
        let (hosts, policy, shuffles, rounds) = (*hosts, policy.clone(), *shuffles, *rounds);
        let report = Report { schema: 1, hosts, policy, shuffles, rounds, rows };
        output.write(|file| Ok(writeln!(file, "{}", serde_json::to_string_pretty(&report)?)?))?;
    }
    Ok(())
}

/// A coordinator and an agent for each host.
struct Bed {
    coordinator: Daemon,
    agents: Vec<Daemon>,
    clients: Vec<Client>,
    dir: RunFolder,
}

impl Bed {
    async fn start(args: &GetsArgs) -> anyhow::Result<Bed> {
        let dir = RunFolder::create()?;
        let path: &Path = dir.path();
        let address = weir_testbed::free_address()?;
        let rate = format!("{}bit", args.link_rate.bits_per_sec());
        let options = ["--policy", &args.policy, "--link-rate", &rate].map(str::to_owned);
        let coordinator = daemons::coordinator(address, args.hosts, &options)?;
        let places = (0..args.hosts).map(|host| AgentPlace::new(host, path, Some(address)));
        let places = places.collect::<Result<Vec<_>, _>>()?;
        let agents = places.iter().map(|place| place.start(path)).collect::<Result<Vec<_>, _>>()?;
        let end = Instant::now() + START_LIMIT;
        while !places.iter().all(|place| place.spool.join("agent.sock").exists()) {
            anyhow::ensure!(Instant::now() < end, "an agent does not listen within {START_LIMIT:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let clients = places.iter().map(AgentPlace::client).collect();
        Ok(Bed { coordinator, agents, clients, dir })
    }

    fn pairs(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let hosts = self.clients.len();
        (0..hosts).flat_map(move |from| (0..hosts).filter(move |&to| to != from).map(move |to| (from, to)))
    }

    /// Seconds of processor time so far: of the coordinator, the agents, and this process.
    fn cpu(&self) -> anyhow::Result<[f64; 3]> {
        let agents = self.agents.iter().map(Daemon::cpu_seconds).sum::<anyhow::Result<f64>>()?;
        Ok([self.coordinator.cpu_seconds()?, agents, cpu_seconds("self")?])
    }

    async fn measure(&self, shuffles: u32, bytes: u64) -> anyhow::Result<Cost> {
        let file = self.dir.path().join(format!("block-{bytes}"));
        tokio::fs::write(&file, vec![7; bytes as usize]).await?;
        let (mut spent, mut seconds) = ([0.0; 3], 0.0);
        for _ in 0..shuffles {
            let driver = &self.clients[0];
            // Announced: the coordinator takes the coflow in once all its gets were asked for, not
            // flow by flow as they come.
            let flows = self.pairs().count() as u64;
            let coflow = driver.register(CoflowOptions { flows, ..CoflowOptions::default() }).await?;
            for (from, to) in self.pairs() {
                self.clients[from].put_file(coflow, &format!("{from}-{to}"), &file, 0, bytes).await?;
            }
            // From here on: registering and puts are no part of what a get costs.
            let (before, begun) = (self.cpu()?, Instant::now());
            let mut running = JoinSet::new();
            for (from, to) in self.pairs() {
                let client = self.clients[to].clone();
                let options = GetOptions { time_limit: LIMIT, ..GetOptions::default() };
                running.spawn(async move {
                    let mut reader = client.get(coflow, &format!("{from}-{to}"), options);
                    while reader.next().await?.is_some() {}
                    anyhow::Ok(())
                });
            }
            while let Some(done) = running.join_next().await {
                done??;
            }
            seconds += begun.elapsed().as_secs_f64();
            let after = self.cpu()?;
            spent
                .iter_mut()
                .zip(after.iter().zip(before))
                .for_each(|(sum, (after, before))| *sum += after - before);
            driver.unregister(coflow).await?;
        }
        let gets = f64::from(shuffles) * self.pairs().count() as f64;
        let [coordinator_us, agents_us, receivers_us] = spent.map(|seconds| seconds * 1e6 / gets);
        Ok(Cost { coordinator_us, agents_us, receivers_us, gets_per_s: gets / seconds })
    }
}
