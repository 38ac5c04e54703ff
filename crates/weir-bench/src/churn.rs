//! `weir bench churn`: hosts join, are drained, leave, are killed and come back, as processes, while coflows move; every byte is
//! compared.

use super::daemons::{AgentPlace, Daemon, open_coordinator, raise_descriptors};
use clap::Args;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};
use weir_client::{Client, CoflowOptions, GetOptions, Host};
use weir_console::Failure;
use weir_console::find_for_hosts;
use weir_model::Rate;
use weir_results::percentile;
use weir_testbed::free_address;
use weir_testbed::live::RunFolder;

/// Drivers, each with one coflow at a time.
const DRIVERS: usize = 12;
/// Bytes of a block: from, to.
const BLOCK_BYTES: (u64, u64) = (1_000, 400_000);
/// Bytes of the file that blocks are of.
const FILE_BYTES: u64 = 1_000_003;
/// A get that takes longer hangs.
const GET_LIMIT: Duration = Duration::from_secs(60);
/// How often it is looked whether a host that is drained is empty.
const LOOK: Duration = Duration::from_millis(200);

/// Half of the hosts are there at the start. Then, every `--every` ms, one joins, or is drained and leaves once it holds
/// nothing any more (and comes back later), or is killed and comes back at once with what its spool has. Meanwhile drivers
/// register coflows, put blocks at hosts that are there, get each from two others, and compare.
///
/// A get has to end well, whatever happens to its holder; a put may be refused by a host that is just being killed or drained.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct ChurnArgs {
    /// Hosts, each a process
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(6..=1000))]
    agents: u32,
    /// How long hosts come and go, in seconds
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Time between two things that happen to hosts
    #[arg(long, value_name = "MS", default_value_t = 250, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    every: u64,
    /// Policy of the coordinator
    #[arg(long, value_name = "NAME", default_value = "varys")]
    policy: String,
    /// Rate of each host's link
    #[arg(long, value_name = "RATE", default_value = "50mbit")]
    link_rate: Rate,
    /// Seed of what happens
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Away,
    Up,
    Draining,
    /// Killed, and to come back.
    Killed,
}

#[derive(Default)]
struct Counts {
    joined: u64,
    drained: u64,
    killed: u64,
    coflows: u64,
    gets: u64,
    bytes: u64,
    refused_puts: u64,
    wrong: Vec<String>,
    waits: Vec<f64>,
}

struct Bed {
    places: Vec<AgentPlace>,
    agents: Vec<Option<Daemon>>,
    states: Vec<State>,
    counts: Counts,
    random: ChaCha8Rng,
    is_over: bool,
}

type Shared = Rc<RefCell<Bed>>;

impl Bed {
    fn hosts(&self, state: State) -> Vec<usize> {
        (0..self.states.len()).filter(|&host| self.states[host] == state).collect()
    }

    fn one(&mut self, state: State) -> Option<usize> {
        let hosts = self.hosts(state);
        hosts.choose(&mut self.random).copied()
    }

    fn start(&mut self, host: usize, dir: &Path) -> anyhow::Result<()> {
        self.agents[host] = Some(self.places[host].start(dir)?);
        self.states[host] = State::Up;
        Ok(())
    }
}

/// The byte of the file at a place.
fn byte(at: u64) -> u8 {
    (at % 251) as u8
}

pub(crate) fn churn(args: &ChurnArgs) -> Result<(), Failure> {
    find_for_hosts(&args.policy)?;
    raise_descriptors()?;
    let dir = RunFolder::create()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    let wrong = local.block_on(&runtime, run(args, dir.path()))?;
    if wrong > 0 {
        return Err(Failure::Run(anyhow::anyhow!("{wrong} gets did not end well")));
    }
    Ok(())
}

async fn run(args: &ChurnArgs, dir: &Path) -> anyhow::Result<usize> {
    let address = free_address()?;
    let rate = format!("{}bit", args.link_rate.bits_per_sec());
    let options = ["--policy", &args.policy, "--link-rate", &rate].map(str::to_owned);
    let _coordinator = open_coordinator(address, &options)?;
    let data = dir.join("data");
    std::fs::write(&data, (0..FILE_BYTES).map(byte).collect::<Vec<u8>>())?;
    let places: std::io::Result<Vec<AgentPlace>> =
        (0..args.agents).map(|host| AgentPlace::new(host, dir, Some(address))).collect();
    let count = args.agents as usize;
    let bed: Shared = Rc::new(RefCell::new(Bed {
        places: places?,
        agents: (0..count).map(|_| None).collect(),
        states: vec![State::Away; count],
        counts: Counts::default(),
        random: ChaCha8Rng::seed_from_u64(args.seed),
        is_over: false,
    }));
    for host in 0..count / 2 {
        bed.borrow_mut().start(host, dir)?;
    }
    let client = bed.borrow().places[0].client();
    let end = Instant::now() + Duration::from_secs(30);
    while client.status().await.map_or(0, |status| status.agents.len()) < count / 2 {
        anyhow::ensure!(Instant::now() < end, "not all agents attached within 30 s");
        tokio::time::sleep(LOOK).await;
    }
    println!("{count} hosts, half of them there, policy {}", args.policy);
    let drivers: Vec<_> =
        (0..DRIVERS).map(|_| tokio::task::spawn_local(drive(Rc::clone(&bed), data.clone()))).collect();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(args.seconds) {
        tokio::time::sleep(Duration::from_millis(args.every)).await;
        happen(&bed, dir, &client)?;
    }
    bed.borrow_mut().is_over = true;
    for driver in drivers {
        driver.await?;
    }
    let counts = &mut bed.borrow_mut().counts;
    counts.waits.sort_by(f64::total_cmp);
    println!(
        "{} joined, {} drained and left, {} killed; {} coflows, {} gets, {:.1} MB compared, {} puts refused by hosts on their way \
         out; a get took {:.3} s median, {:.3} s p95, {:.3} s at most; wrong, lost or hanging: {}",
        counts.joined,
        counts.drained,
        counts.killed,
        counts.coflows,
        counts.gets,
        counts.bytes as f64 / 1e6,
        counts.refused_puts,
        percentile(&counts.waits, 0.5),
        percentile(&counts.waits, 0.95),
        percentile(&counts.waits, 1.0),
        counts.wrong.len()
    );
    counts.wrong.iter().take(20).for_each(|wrong| println!("  {wrong}"));
    Ok(counts.wrong.len())
}

/// Something happens to a host.
fn happen(bed: &Shared, dir: &Path, client: &Client) -> anyhow::Result<()> {
    let mut all = bed.borrow_mut();
    let least = all.states.len() / 3;
    let few = all.hosts(State::Up).len() <= least;
    match all.random.random_range(0..4) {
        0 => {
            if let Some(host) = all.one(State::Away) {
                all.start(host, dir)?;
                all.counts.joined += 1;
                drop(all);
                // It may have been drained when it was here before.
                let (client, bed) = (client.clone(), Rc::clone(bed));
                tokio::task::spawn_local(async move {
                    while client.drain(&Host::Number(host as u32), true).await.is_err() {
                        if bed.borrow().states[host] != State::Up {
                            return;
                        }
                        tokio::time::sleep(LOOK).await;
                    }
                });
            }
        }
        1 if !few => {
            if let Some(host) = all.one(State::Up) {
                all.states[host] = State::Draining;
                drop(all);
                tokio::task::spawn_local(drain(Rc::clone(bed), client.clone(), host));
            }
        }
        _ => {
            if let Some(host) = all.one(State::Up).filter(|_| !few) {
                all.agents[host] = None;
                all.states[host] = State::Killed;
                all.counts.killed += 1;
                let pause = Duration::from_millis(all.random.random_range(20..1_500));
                drop(all);
                let (bed, dir) = (Rc::clone(bed), dir.to_owned());
                tokio::task::spawn_local(async move {
                    tokio::time::sleep(pause).await;
                    if let Err(error) = bed.borrow_mut().start(host, &dir) {
                        bed.borrow_mut().counts.wrong.push(format!("host {host} does not start: {error:#}"));
                    }
                });
            }
        }
    }
    Ok(())
}

/// Drains a host, waits until it holds nothing, and ends it.
async fn drain(bed: Shared, client: Client, host: usize) {
    while client.drain(&Host::Number(host as u32), false).await.is_err() {
        tokio::time::sleep(LOOK).await;
    }
    loop {
        tokio::time::sleep(LOOK).await;
        let Ok(status) = client.status().await else { continue };
        let agent = status.agents.iter().find(|agent| agent.host == host as u32);
        if agent.is_some_and(|agent| agent.draining && agent.blocks == 0 && agent.flows == 0) {
            break;
        }
    }
    let mut bed = bed.borrow_mut();
    bed.agents[host] = None;
    bed.states[host] = State::Away;
    bed.counts.drained += 1;
}

/// A driver: coflow after coflow.
async fn drive(bed: Shared, data: PathBuf) {
    while !bed.borrow().is_over {
        if let Err(reason) = one_coflow(&bed, &data).await {
            bed.borrow_mut().counts.wrong.push(reason);
        }
    }
}

async fn one_coflow(bed: &Shared, data: &Path) -> Result<(), String> {
    let (blocks, clients) = {
        let bed = &mut *bed.borrow_mut();
        let up = bed.hosts(State::Up);
        let count = bed.random.random_range(1..=4);
        let holders: Vec<usize> = up.sample(&mut bed.random, count).copied().collect();
        let blocks: Vec<(usize, u64, u64)> = holders
            .into_iter()
            .map(|host| {
                let length = bed.random.random_range(BLOCK_BYTES.0..BLOCK_BYTES.1);
                (host, bed.random.random_range(0..FILE_BYTES - length), length)
            })
            .collect();
        let clients: Vec<Client> = bed.places.iter().map(AgentPlace::client).collect();
        (blocks, clients)
    };
    let driver = &clients[0];
    let coflow =
        driver.register(CoflowOptions::default()).await.map_err(|error| format!("register: {error}"))?;
    let mut gets = Vec::new();
    for (number, &(host, offset, length)) in blocks.iter().enumerate() {
        let name = format!("b{number}");
        if clients[host].put_file(coflow, &name, data, offset, length).await.is_err() {
            // It is killed or drained just now.
            bed.borrow_mut().counts.refused_puts += 1;
            continue;
        }
        for step in [1, 2] {
            let receiver = clients[(host + step) % clients.len()].clone();
            let name = name.clone();
            gets.push(tokio::task::spawn_local(async move {
                let options = GetOptions { time_limit: GET_LIMIT, ..GetOptions::default() };
                let began = Instant::now();
                let bytes = receiver.get_bytes(coflow, &name, options).await;
                let bytes =
                    bytes.map_err(|error| format!("{name} of coflow {coflow} at host {host}: {error}"))?;
                let right = bytes.len() as u64 == length
                    && bytes.iter().zip(offset..).all(|(&found, at)| found == byte(at));
                if right {
                    Ok((length, began.elapsed().as_secs_f64()))
                } else {
                    Err(format!("{name} of {coflow}: other bytes"))
                }
            }));
        }
    }
    for get in gets {
        let got = get.await.map_err(|error| error.to_string())?;
        let counts = &mut bed.borrow_mut().counts;
        counts.gets += 1;
        match got {
            Ok((bytes, secs)) => {
                counts.bytes += bytes;
                counts.waits.push(secs);
            }
            Err(reason) => counts.wrong.push(reason),
        }
    }
    bed.borrow_mut().counts.coflows += 1;
    driver.unregister(coflow).await.map_err(|error| format!("unregister: {error}"))?;
    Ok(())
}
