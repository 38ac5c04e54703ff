//! `weir bench restart`: a coordinator, its agents or both are killed under load and started again, as processes; or none is, and
//! the policy changes.

use super::daemons::{AgentPlace, Daemon, coordinator, raise_descriptors};
use anyhow::Context;
use clap::{Args, ValueEnum};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use weir_client::{Client, CoflowOptions, GetOptions, StatusReply};
use weir_console::Failure;
use weir_console::find_for_hosts;
use weir_model::Rate;
use weir_policy::Chosen;
use weir_proto::limits::MAX_BLOCKS_PER_AGENT;
use weir_testbed::free_address;
use weir_testbed::live::RunFolder;

/// Calls under way at once while everything is set up.
const CALLS_AT_ONCE: u64 = 64;
/// How often the coordinator is asked how far it came.
const LOOK: Duration = Duration::from_millis(20);
/// How long it may take.
const LIMIT: Duration = Duration::from_secs(120);
/// Time for journals to be written and flows to move before something is killed.
const SETTLED: Duration = Duration::from_secs(2);
/// Bytes of a block that is only held.
const HELD_BYTES: u64 = 1000;
/// Held blocks that are got and compared after every restart.
const SAMPLE: u64 = 200;
/// Bytes of a block that moves all the time: zeros that take no room on the disk.
const MOVING_BYTES: u64 = 1 << 42;

/// Agents register with blocks and flows that move; then processes are killed and started again at once, or the policy changes.
/// Printed are, from the kill, or the call to change, on, when
///
/// all agents were attached, and the coordinator knew all their blocks;
///
/// all coflows were known again;
///
/// every flow that moved before was planned for again;
///
/// where the coordinator decides and no process was killed: the sizes of all these flows were known;
///
/// besides how long the journals were before and after, and the memory of the processes. After every restart some
/// blocks are got and compared.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct RestartArgs {
    /// Number of agents, each a process
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(2..=1000))]
    agents: u32,
    /// Unfinished coflows
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    coflows: u64,
    /// Blocks that agents hold, in all; those of one agent are of all coflows in turn
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(0..=10_000_000))]
    blocks: u64,
    /// Agents that the blocks are at
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    holders: Option<u32>,
    /// Length of a block's name
    #[arg(long, value_name = "BYTES", default_value_t = 20, value_parser = clap::value_parser!(u32).range(20..=255))]
    name_bytes: u32,
    /// Flows that move all the time, each of a coflow of its own, from every agent in turn, the last first, to the next
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(0..=1000))]
    flows: u64,
    /// What is killed and started again under load
    #[arg(long, value_enum, default_value_t = Killed::Coordinator)]
    kill: Killed,
    /// How often it is killed, one time after the other
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Policy of the coordinator; with --kill nobody several, which take turns
    #[arg(long, value_name = "NAME[,NAME...]", value_delimiter = ',', default_value = "varys")]
    policy: Vec<String>,
    /// Rate of each agent's link
    #[arg(long, value_name = "RATE", default_value = "4mbit")]
    link_rate: Rate,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Killed {
    /// The coordinator
    Coordinator,
    /// Those agents that hold blocks
    Holders,
    /// The coordinator, and those agents that hold blocks
    Both,
    /// No process: the policy changes, to the next of --policy
    Nobody,
}

struct Bed<'a> {
    args: &'a RestartArgs,
    policies: Vec<Chosen>,
    dir: &'a Path,
    address: SocketAddr,
    places: Vec<AgentPlace>,
    coordinator: Option<Daemon>,
    agents: Vec<Option<Daemon>>,
    coflows: Vec<u64>,
    /// Bytes that receivers of moving flows got.
    received: Arc<AtomicU64>,
}

pub(crate) fn restart(args: &RestartArgs) -> Result<(), Failure> {
    if args.flows > args.coflows {
        return Err(Failure::Input(format!("--flows {} is above --coflows {}", args.flows, args.coflows)));
    }
    let holders = args.holders.unwrap_or(args.agents);
    if holders > args.agents {
        return Err(Failure::Input(format!("--holders {holders} is above --agents {}", args.agents)));
    }
    let moving = args.flows.div_ceil(u64::from(args.agents)).min(args.flows);
    let (most, room) = (MAX_BLOCKS_PER_AGENT as u64, u64::from(holders));
    // Senders of moving flows are the last agents, holders of blocks the first: they overlap only where flows are many.
    let moving = if args.flows > u64::from(args.agents - holders) { moving } else { 0 };
    if args.blocks > room * (most - moving) {
        return Err(Failure::Input(format!(
            "--blocks {}: an agent holds {most} blocks at most, {moving} of them to move, and there are {holders} to \
             hold them",
            args.blocks
        )));
    }
    let policies: Result<Vec<Chosen>, Failure> =
        args.policy.iter().map(|policy| find_for_hosts(policy)).collect();
    let policies = policies?;
    if args.policy.len() > 1 && args.kill != Killed::Nobody {
        return Err(Failure::Input("--policy: several take turns with --kill nobody alone".to_owned()));
    }
    raise_descriptors()?;
    let dir = RunFolder::create()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut bed = Bed::start(args, policies, dir.path())?;
        let driver = bed.places[0].client();
        bed.fill(&driver).await?;
        let mut moving = bed.move_flows().await?;
        bed.wait_for_all(&driver, Instant::now(), false).await?;
        tokio::time::sleep(SETTLED).await;
        let (journals, memory) = (bed.journal_bytes()?, bed.memory()?);
        println!("at the start   journals {:.3} MB; {memory}", journals as f64 / 1e6);
        for round in 1..=args.rounds {
            let line = bed.round(&driver, round as usize).await?;
            let what = if args.kill == Killed::Nobody { "change" } else { "restart" };
            println!("{what} {round:<5}  {line}");
        }
        if let Some(ended) = moving.try_join_next() {
            return Err(ended?.context("a flow that was to move all the time ended"));
        }
        moving.shutdown().await;
        bed.unregister(&driver).await
    })?;
    Ok(())
}

/// When the coordinator knew how much, in seconds from the kill.
#[derive(Default)]
struct Known {
    attached: Option<f64>,
    coflows: Option<f64>,
    planned: Option<f64>,
    sized: Option<f64>,
}

impl Bed<'_> {
    fn start<'a>(args: &'a RestartArgs, policies: Vec<Chosen>, dir: &'a Path) -> anyhow::Result<Bed<'a>> {
        let address = free_address()?;
        let places: std::io::Result<Vec<AgentPlace>> =
            (0..args.agents).map(|host| AgentPlace::new(host, dir, Some(address))).collect();
        let mut bed = Bed {
            args,
            policies,
            dir,
            address,
            places: places?,
            coordinator: None,
            agents: Vec::new(),
            coflows: Vec::new(),
            received: Arc::default(),
        };
        bed.start_coordinator()?;
        for place in &bed.places {
            bed.agents.push(Some(place.start(dir)?));
        }
        Ok(bed)
    }

    fn start_coordinator(&mut self) -> anyhow::Result<()> {
        let rate = format!("{}bit", self.args.link_rate.bits_per_sec());
        // No driver renews so many coflows while no coordinator serves.
        let options = ["--policy", &self.args.policy[0], "--link-rate", &rate, "--coflow-lease", "3600"];
        let options = options.map(str::to_owned);
        self.coordinator = Some(coordinator(self.address, self.args.agents, &options)?);
        Ok(())
    }

    fn holders(&self) -> usize {
        self.args.holders.unwrap_or(self.args.agents) as usize
    }

    /// Where a held block is, its coflow, and its name.
    fn held(&self, index: u64) -> (&AgentPlace, u64, String) {
        let holder = (index % self.holders() as u64) as usize;
        // Of coflows of which nothing moves, if there are any: D-CLAS serves a coflow that has sent much last, if ever.
        let (all, moving) = (self.args.coflows, self.args.flows);
        let (first, among) = if all > moving { (moving, all - moving) } else { (0, all) };
        let coflow = self.coflows[(first + (index / self.holders() as u64) % among) as usize];
        (&self.places[holder], coflow, format!("{index:0>width$}", width = self.args.name_bytes as usize))
    }

    /// The agent that a moving flow comes from: the last first, which holds blocks the last.
    fn sender(&self, flow: u64) -> usize {
        self.places.len() - 1 - (flow % self.places.len() as u64) as usize
    }

    /// A held block's bytes begin there in the file.
    fn offset(index: u64) -> u64 {
        index % 1000
    }

    fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Registers coflows and puts blocks.
    async fn fill(&mut self, driver: &Client) -> anyhow::Result<()> {
        let mut data = std::io::BufWriter::new(std::fs::File::create(self.data())?);
        for byte in 0..1000 + HELD_BYTES {
            // A prime: the pattern has no period of a power of two, as pages and frames have, at
            // which bytes from a wrong place would look right.
            data.write_all(&[(byte % 251) as u8])?;
        }
        data.flush()?;
        let began = Instant::now();
        let mut calls = JoinSet::new();
        for _ in 0..self.args.coflows {
            if calls.len() as u64 >= CALLS_AT_ONCE {
                self.coflows.extend(next::<u64>(&mut calls).await?);
            }
            let driver = driver.clone();
            calls.spawn(async move { Ok(driver.register(CoflowOptions::default()).await?) });
        }
        while let Some(coflow) = next(&mut calls).await? {
            self.coflows.push(coflow);
        }
        // Calls end in any order: by id, flows and blocks are of the coflows that were registered
        // first and after them.
        self.coflows.sort_unstable();
        let registered = began.elapsed();
        let clients: Vec<Client> = self.places.iter().map(AgentPlace::client).collect();
        let mut puts = JoinSet::new();
        for index in 0..self.args.blocks {
            if puts.len() as u64 >= CALLS_AT_ONCE {
                next::<()>(&mut puts).await?;
            }
            let (place, coflow, name) = self.held(index);
            let (client, path) = (clients[place.host as usize].clone(), self.data());
            puts.spawn(async move {
                Ok(client.put_file(coflow, &name, &path, Bed::offset(index), HELD_BYTES).await?)
            });
        }
        while next(&mut puts).await?.is_some() {}
        println!(
            "{} agents, policy {}: {} coflows registered in {:.1} s, {} blocks put in {:.1} s",
            self.args.agents,
            self.args.policy.join(", then "),
            self.args.coflows,
            registered.as_secs_f64(),
            self.args.blocks,
            (began.elapsed() - registered).as_secs_f64()
        );
        Ok(())
    }

    /// Starts gets that take what they are sent, for as long as they are let.
    async fn move_flows(&self) -> anyhow::Result<JoinSet<anyhow::Error>> {
        let zeros = self.dir.join("zeros");
        std::fs::File::create(&zeros)?.set_len(MOVING_BYTES)?;
        let mut moving = JoinSet::new();
        for flow in 0..self.args.flows {
            let from = self.sender(flow);
            let to = (from + 1) % self.places.len();
            let coflow = self.coflows[flow as usize];
            self.places[from].client().put_file(coflow, "moving", &zeros, 0, MOVING_BYTES).await?;
            // Ten hours: a get's usual limit is one, and many rounds may take longer than that.
            let options = GetOptions { time_limit: Duration::from_secs(36_000), ..GetOptions::default() };
            let (client, received) = (self.places[to].client(), Arc::clone(&self.received));
            moving.spawn(async move {
                let mut reader = client.get(coflow, "moving", options);
                loop {
                    match reader.next().await {
                        Ok(Some(part)) => received.fetch_add(part.len() as u64, Ordering::Relaxed),
                        Ok(None) => return anyhow::anyhow!("all of it arrived"),
                        Err(error) => return error.into(),
                    };
                }
            });
        }
        Ok(moving)
    }

    async fn round(&mut self, driver: &Client, round: usize) -> anyhow::Result<String> {
        let journals = self.journal_bytes()?;
        let kill = self.args.kill;
        let killed = Instant::now();
        let of_coordinator = matches!(kill, Killed::Coordinator | Killed::Both);
        if of_coordinator {
            self.coordinator = None;
        }
        let (mut what, mut with_sizes) = (String::new(), false);
        if kill == Killed::Nobody {
            let policy = &self.args.policy[round % self.args.policy.len()];
            driver.change(&[("policy".to_owned(), policy.clone())]).await?;
            // Where senders decide, the coordinator knows no sizes.
            with_sizes = self.policies[round % self.policies.len()].sender_queues().is_none();
            what = format!("to {policy}, in force {:.3} s; ", killed.elapsed().as_secs_f64());
        }
        let holders = if matches!(kill, Killed::Coordinator | Killed::Nobody) { 0 } else { self.holders() };
        for host in 0..holders {
            self.agents[host] = None;
        }
        for host in 0..holders {
            self.agents[host] = Some(self.places[host].start(self.dir)?);
        }
        if of_coordinator {
            self.start_coordinator()?;
        }
        let known = self.wait_for_all(driver, killed, with_sizes).await?;
        tokio::time::sleep(SETTLED).await;
        self.compare_some().await?;
        let moved = self.received.load(Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let moved = self.received.load(Ordering::Relaxed) - moved;
        let seconds = |at: Option<f64>| at.map_or("never".to_owned(), |at| format!("{at:.2} s"));
        let sized = match kill {
            Killed::Nobody => format!(", sizes known {}", seconds(known.sized)),
            _ => String::new(),
        };
        Ok(format!(
            "{what}attached {}, coflows known {}, planned for {}{sized}; journals {:.3} MB, then {:.3} MB; {}; {:.1} MB/s move",
            seconds(known.attached),
            seconds(known.coflows),
            seconds(known.planned),
            journals as f64 / 1e6,
            self.journal_bytes()? as f64 / 1e6,
            self.memory()?,
            moved as f64 / 1e6
        ))
    }

    /// Waits until the coordinator knows and plans everything, and says when it did.
    async fn wait_for_all(
        &mut self,
        driver: &Client,
        from: Instant,
        with_sizes: bool,
    ) -> anyhow::Result<Known> {
        let mut known = Known::default();
        loop {
            // A call fails as long as the coordinator that was killed does not serve again.
            let status = driver.status().await.ok();
            let now = from.elapsed();
            if let Some(status) = &status {
                self.note(&mut known, status, now.as_secs_f64());
            }
            let is_sized = !with_sizes || known.sized.is_some();
            if known.attached.is_some() && known.coflows.is_some() && known.planned.is_some() && is_sized {
                return Ok(known);
            }
            if now > LIMIT {
                let status = status.context("the coordinator does not answer")?;
                let blocks: u64 = status.agents.iter().map(|agent| agent.blocks).sum();
                return Err(anyhow::anyhow!(
                    "within {LIMIT:?} the coordinator knew {} agents with {blocks} blocks, {} coflows, and planned \
                     for {} of them",
                    status.agents.len(),
                    status.coflows.len() as u64 + status.hidden_coflows,
                    planned(&status)
                ));
            }
            for (host, agent) in self.agents.iter_mut().enumerate() {
                let ended = agent.as_mut().map(Daemon::ended).transpose()?.flatten();
                anyhow::ensure!(ended.is_none(), "agent {host} ended: {}", ended.unwrap_or_default());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    fn note(&self, known: &mut Known, status: &StatusReply, at: f64) {
        let blocks: u64 = status.agents.iter().map(|agent| agent.blocks).sum();
        if status.agents.len() == self.places.len() && blocks == self.args.blocks + self.args.flows {
            known.attached.get_or_insert(at);
        }
        if status.coflows.len() as u64 + status.hidden_coflows == self.args.coflows {
            known.coflows.get_or_insert(at);
        }
        if planned(status) == self.args.flows {
            known.planned.get_or_insert(at);
        }
        let sized = status.coflows.iter().filter(|coflow| coflow.bytes_total > MOVING_BYTES / 2).count();
        if sized as u64 == self.args.flows {
            known.sized.get_or_insert(at);
        }
    }

    /// Gets some of the held blocks and compares every byte.
    async fn compare_some(&self) -> anyhow::Result<()> {
        // With fewer blocks than the sample has, all are compared: a step of 0 would panic.
        let step = (self.args.blocks / SAMPLE).max(1);
        for index in (0..self.args.blocks).step_by(step as usize) {
            let (place, coflow, name) = self.held(index);
            let receiver = &self.places[(place.host as usize + 1) % self.places.len()];
            let bytes = receiver.client().get_bytes(coflow, &name, GetOptions::default()).await?;
            let right = (0..HELD_BYTES).map(|at| ((Bed::offset(index) + at) % 251) as u8);
            anyhow::ensure!(bytes.iter().copied().eq(right), "block {name} came with other bytes");
        }
        Ok(())
    }

    /// Ends all coflows, and says how long that took.
    async fn unregister(&self, driver: &Client) -> anyhow::Result<()> {
        let (began, mut calls) = (Instant::now(), JoinSet::new());
        for &coflow in &self.coflows {
            if calls.len() as u64 >= CALLS_AT_ONCE {
                next::<()>(&mut calls).await?;
            }
            let driver = driver.clone();
            calls.spawn(async move {
                driver.unregister(coflow).await?;
                Ok(())
            });
        }
        while next(&mut calls).await?.is_some() {}
        let status = driver.status().await?;
        let left = status.coflows.len() as u64 + status.hidden_coflows;
        anyhow::ensure!(left == 0, "{left} coflows are left after all were unregistered");
        println!("all coflows unregistered in {:.1} s", began.elapsed().as_secs_f64());
        Ok(())
    }

    fn journal_bytes(&self) -> std::io::Result<u64> {
        self.places.iter().map(AgentPlace::journal_bytes).sum()
    }

    fn memory(&self) -> anyhow::Result<String> {
        let coordinator = self.coordinator.as_ref().map_or(Ok(0.0), Daemon::memory)?;
        let agents: anyhow::Result<Vec<f64>> = self.agents.iter().flatten().map(Daemon::memory).collect();
        let largest = agents?.into_iter().fold(0.0, f64::max);
        let mib = f64::from(1 << 20);
        Ok(format!(
            "memory: coordinator {:.0} MiB, largest agent {:.0} MiB",
            coordinator / mib,
            largest / mib
        ))
    }
}

/// Coflows that have a rate.
fn planned(status: &StatusReply) -> u64 {
    status.coflows.iter().filter(|coflow| coflow.rate_bytes_per_s > 0.0).count() as u64
}

/// What the next call that ends says; `None` once all have ended.
async fn next<T: 'static>(calls: &mut JoinSet<anyhow::Result<T>>) -> anyhow::Result<Option<T>> {
    calls.join_next().await.map(|ended| ended?).transpose()
}
