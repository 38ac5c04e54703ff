//! One run: put everything, start coflows when they arrive, collect when their bytes were verified.

use super::data::{BLOCK_STRIDE, DATA_SLACK, check_room, write_data};
use super::error::{LiveError, SILENCE_LIMIT};
use super::leftovers::RunFolder;
use super::network::Network;
use super::options::LiveOptions;
use super::processes::{Processes, Role};
use super::protocol::{FromTask, GetBlock, Got, PutBlock, ToTask};
use super::relays::{self, follow_changes};
use super::stages::{Stages, parents, parents_first};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};
use weir_client::{Client, ClientConfig, CoflowOptions, Pattern};
use weir_model::{Bytes, CoflowSpec, Span, Time};

/// One flow as the receiving task saw it, in time since the run's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowOutcome {
    /// Its coflow, an index into the run's coflows.
    pub coflow: usize,
    /// Its index among the coflow's flows.
    pub flow: usize,
    /// When the task called get.
    pub called: Span,
    /// When its first payload byte arrived.
    pub first_byte: Span,
    /// When its last byte was verified.
    pub done: Span,
}

/// What a run measured.
#[derive(Clone, Debug)]
pub struct LiveOutcome {
    began: Time,
    /// Per coflow: from its arrival to its last verified byte.
    pub completion: Vec<Span>,
    /// Per coflow, why it was refused, if it was: then it stopped. Stages that wait for one are refused with it.
    pub refused: Vec<Option<String>>,
    /// When each coflow arrived: when the driver told the tasks of it.
    pub arrival: Vec<Span>,
    /// All flows, in order of completion.
    pub flows: Vec<FlowOutcome>,
    /// Bytes moved and verified.
    pub bytes: Bytes,
    /// Processor seconds of the coordinator, all agents and all tasks.
    pub cpu_secs: [f64; 3],
    /// From a coflow's last get to the first byte sent under a plan that counts all its flows, in
    /// microseconds; without coflows that such a plan had wait for others.
    pub first_byte_us: Vec<u32>,
    /// From a flow's last byte to the next plan in force at its sender, in microseconds.
    pub replan_us: Vec<u32>,
    /// What the controller of the relays has learned of each link between sites, in bytes per second, oldest first.
    pub learned: BTreeMap<(u32, u32), Vec<f64>>,
}

struct Block {
    coflow: usize,
    flow: usize,
    offset: u64,
}

/// Moves the coflows' bytes. Flows inside one host are not allowed: they would cross no link.
/// `progress` is called with bytes done so far.
///
/// # Errors
/// There are relays without sites, the data does not fit into the folder for temporary files, a process cannot be
/// started, a put or get fails, or no flow ends for too long: see [`LiveError`].
pub fn run(
    options: &LiveOptions,
    network: &Network,
    coflows: &[CoflowSpec],
    mut progress: impl FnMut(u64),
) -> Result<LiveOutcome, LiveError> {
    let setup = options.relays.as_ref().map(|setup| Ok::<_, LiveError>((setup, network.sites()?)));
    let sites = setup.transpose()?;
    let warm_up = sites.and_then(|(setup, bed)| relays::warm_up(bed, setup.warm_up));
    check_room(coflows.iter().chain(&warm_up))?;
    let dir = RunFolder::create()?;
    let data = dir.path().join("data");
    write_data(&data, coflows.iter().chain(&warm_up))?;
    let mut processes = Processes::start(options, network, dir.path(), &data)?;
    let driver = Driver::connect(network, &processes)?;
    if let Some(warm_up) = warm_up {
        let warm_up = [warm_up];
        let work = Work::put(&mut processes, &driver, &warm_up)?;
        get_all(&mut processes, &driver, &work, &mut |_| {})?;
    }
    let work = Work::put(&mut processes, &driver, coflows)?;
    let over = AtomicBool::new(false);
    let mut outcome = std::thread::scope(|scope| {
        let changing = sites.map(|(setup, bed)| {
            let over = &over;
            scope.spawn(move || follow_changes(bed, &setup.changes, over))
        });
        let outcome = get_all(&mut processes, &driver, &work, &mut progress);
        over.store(true, Ordering::Relaxed);
        if let Some(Ok(changed)) = changing.map(std::thread::ScopedJoinHandle::join) {
            changed?;
        }
        outcome
    })?;
    outcome.cpu_secs = [Role::Coordinator, Role::Agent, Role::Task].map(|role| processes.cpu_secs(role));
    if options.policy.is_some() {
        driver.collect_latencies(&processes, &work.ids, &mut outcome)?;
    }
    if let Some(controller) = processes.controller {
        outcome.learned = driver.learned(controller)?;
    }
    Ok(outcome)
}

/// Coflows whose blocks are put, under the ids they have with the coordinator.
struct Work<'a> {
    coflows: &'a [CoflowSpec],
    blocks: Vec<Block>,
    ids: Vec<u64>,
}

impl Work<'_> {
    fn put<'a>(
        processes: &mut Processes,
        driver: &Driver,
        coflows: &'a [CoflowSpec],
    ) -> Result<Work<'a>, LiveError> {
        let flows = coflows.iter().enumerate();
        let flows = flows.flat_map(|(coflow, spec)| (0..spec.flows.len()).map(move |flow| (coflow, flow)));
        let block = |(index, (coflow, flow))| {
            // Blocks next to each other begin at different bytes of the file: one that is sent in
            // place of another is noticed. The file is longer than any block by the slack.
            let offset = (index as u64 * BLOCK_STRIDE) % DATA_SLACK;
            Block { coflow, flow, offset }
        };
        let blocks: Vec<Block> = flows.enumerate().map(block).collect();
        let ids = driver.register(coflows)?;
        put_all(processes, coflows, &blocks, &ids)?;
        Ok(Work { coflows, blocks, ids })
    }
}

fn one_thread_runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()
}

/// The driver's connection to the coordinator, from the control host.
struct Driver {
    runtime: tokio::runtime::Runtime,
    client: Option<Client>,
}

impl Driver {
    fn connect(network: &Network, processes: &Processes) -> Result<Driver, LiveError> {
        // Threads keep the namespace they are made in: the runtime belongs to the control host.
        let runtime = network.run_at_control(one_thread_runtime)??;
        let client = processes.coordinator.map(|coordinator| {
            let config = ClientConfig { coordinator: Some(coordinator.into()), agent: None, host: 0 };
            runtime.block_on(async { Client::new(config) })
        });
        Ok(Driver { runtime, client })
    }

    fn register(&self, coflows: &[CoflowSpec]) -> Result<Vec<u64>, LiveError> {
        let Some(client) = &self.client else {
            return Ok(coflows.iter().map(|coflow| coflow.id.0).collect());
        };
        let client = client.clone();
        let options: Vec<CoflowOptions> = coflows.iter().map(coflow_options).collect();
        let jobs: Vec<_> = coflows.iter().map(|coflow| coflow.dependencies.job).collect();
        let (order, parents) = (parents_first(coflows), parents(coflows));
        // Connections are made where the task runs: on the runtime's own thread.
        let registered = self.runtime.spawn(async move {
            let mut ids = vec![0; order.len()];
            let mut first_of = BTreeMap::new();
            for at in order {
                // An id is above 0. A parent without one comes later in the order: the coflows are
                // in a circle.
                let parents = parents[at].iter().map(|&parent| ids[parent]).filter(|&id| id > 0).collect();
                // A job is named by its first coflow, whose id is known only once that is registered: parents come first.
                let job = jobs[at].and_then(|job| first_of.get(&job).copied()).unwrap_or(0);
                ids[at] = client.register(CoflowOptions { parents, job, ..options[at].clone() }).await?;
                if let Some(job) = jobs[at] {
                    first_of.entry(job).or_insert(ids[at]);
                }
            }
            Ok::<_, weir_client::Error>(ids)
        });
        let ids = self.runtime.block_on(registered).map_err(io::Error::other)?;
        Ok(ids?)
    }

    fn collect_latencies(
        &self,
        processes: &Processes,
        ids: &[u64],
        outcome: &mut LiveOutcome,
    ) -> Result<(), LiveError> {
        let mut first_bytes: BTreeMap<u64, Time> = BTreeMap::new();
        for socket in &processes.sockets {
            let config = ClientConfig { coordinator: None, agent: Some(socket.clone()), host: 0 };
            let reply = self.runtime.block_on(async { Client::new(config).describe().await })?;
            for first in reply.first_bytes {
                let at = first_bytes.entry(first.coflow).or_insert(Time::MAX);
                *at = (*at).min(Time::from_nanos(first.at_ns));
            }
            outcome.replan_us.extend(reply.replan_us);
        }
        let mut last_gets = vec![Span::ZERO; ids.len()];
        for flow in &outcome.flows {
            last_gets[flow.coflow] = last_gets[flow.coflow].max(flow.called);
        }
        for (id, last_get) in ids.iter().zip(last_gets) {
            if let Some(&at) = first_bytes.get(id) {
                let waited = at.since(outcome.began + last_get);
                outcome.first_byte_us.push((waited.nanos() / 1000).min(u64::from(u32::MAX)) as u32);
            }
        }
        Ok(())
    }

    /// What the controller of relays knows of links.
    fn learned(&self, controller: SocketAddr) -> Result<BTreeMap<(u32, u32), Vec<f64>>, LiveError> {
        let asked = self.runtime.spawn(weir_client::controller_status(controller));
        let status = self.runtime.block_on(asked).map_err(io::Error::other)??;
        let of_link =
            |link: weir_client::LinkState| ((link.source_site, link.destination_site), link.bytes_per_s);
        Ok(status.links.into_iter().map(of_link).collect())
    }

    /// A flow, and what the coordinator says of its coflow.
    fn describe(&self, coflows: &[CoflowSpec], block: &Block, ids: &[u64]) -> String {
        let flow = &coflows[block.coflow].flows[block.flow];
        let (from, to, size) = (flow.source.index(), flow.destination.index(), flow.size.0);
        let name = format!("block {}, {size} bytes from host {from} to host {to}", block_name(block));
        let Some(client) = self.client.clone() else { return name };
        let asked = self.runtime.block_on(self.runtime.spawn(async move { client.status().await }));
        let Ok(Ok(status)) = asked else { return format!("{name}; the coordinator does not answer") };
        let coflow = status.coflows.iter().find(|coflow| coflow.coflow == ids[block.coflow]);
        match coflow {
            Some(coflow) => format!(
                "{name}; to the coordinator its coflow has {} live flows with {} bytes left, moves at {} B/s and waits \
                 for {}",
                coflow.live_flows, coflow.bytes_left, coflow.rate_bytes_per_s, coflow.waits_for
            ),
            None => format!("{name}; the coordinator does not know its coflow"),
        }
    }

    fn unregister(&self, coflow: u64) {
        if let Some(client) = self.client.clone() {
            self.runtime.spawn(async move {
                let _ = client.unregister(coflow).await;
            });
        }
    }
}

fn coflow_options(coflow: &CoflowSpec) -> CoflowOptions {
    CoflowOptions {
        name: format!("coflow {}", coflow.id),
        pattern: Pattern::Shuffle.into(),
        flows: coflow.flows.len() as u64,
        weight: coflow.weight,
        // Rounded down: met by the coordinator's clock is met. What is refused stops, as it does in a simulation.
        deadline_ms: coflow.deadline.map_or(0, |deadline| (deadline.nanos() / 1_000_000).max(1)),
        stop_if_refused: true,
        tail_us: coflow.dependencies.tail.time.nanos() / 1000,
        tail_transfer_us: coflow.dependencies.tail.transfer.nanos() / 1000,
        ..CoflowOptions::default()
    }
}

fn block_name(block: &Block) -> String {
    format!("{}/{}", block.coflow, block.flow)
}

fn put_all(
    processes: &mut Processes,
    coflows: &[CoflowSpec],
    blocks: &[Block],
    ids: &[u64],
) -> Result<(), LiveError> {
    let mut puts: BTreeMap<usize, Vec<PutBlock>> = BTreeMap::new();
    for block in blocks {
        let flow = &coflows[block.coflow].flows[block.flow];
        puts.entry(flow.source.index()).or_default().push(PutBlock {
            coflow: ids[block.coflow],
            block: block_name(block),
            offset: block.offset,
            size: flow.size.0,
        });
    }
    let waiting = puts.len();
    for (host, blocks) in puts {
        processes.tell(host, &ToTask::Put(blocks))?;
    }
    for _ in 0..waiting {
        match processes.said.recv_timeout(SILENCE_LIMIT) {
            Ok((_, Ok(FromTask::PutDone))) => {}
            Ok((host, Ok(other))) => {
                return Err(LiveError::Task { host, reason: format!("said {other:?} instead of putting") });
            }
            Ok((host, Err(error))) => return Err(LiveError::Task { host, reason: error.to_string() }),
            Err(_) => {
                return Err(LiveError::Silence { left: blocks.len(), which: "none was put".to_owned() });
            }
        }
    }
    Ok(())
}

/// Gets all blocks, coflow by coflow as they may start.
fn get_all(
    processes: &mut Processes,
    driver: &Driver,
    work: &Work<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<LiveOutcome, LiveError> {
    let Work { coflows, blocks, ids } = work;
    let (began, start_ns) = (weir_net::Clock::start().now(), weir_net::monotonic_nanos());
    let mut stages = Stages::new(coflows);
    let mut gets: BTreeMap<usize, BTreeMap<usize, Vec<GetBlock>>> = BTreeMap::new();
    for (index, block) in blocks.iter().enumerate() {
        let flow = &coflows[block.coflow].flows[block.flow];
        gets.entry(block.coflow).or_default().entry(flow.destination.index()).or_default().push(GetBlock {
            flow: index,
            coflow: ids[block.coflow],
            block: block_name(block),
            holder: processes.agents[flow.source.index()],
            group: flow.group,
            offset: block.offset,
            size: flow.size.0,
        });
    }
    let since_start = |ns: u64| Span::from_nanos(ns.saturating_sub(start_ns));
    let elapsed = || since_start(weir_net::monotonic_nanos());
    let mut arrival = vec![Span::ZERO; coflows.len()];
    let mut completion = vec![Span::ZERO; coflows.len()];
    let mut left: Vec<usize> = coflows.iter().map(|coflow| coflow.flows.len()).collect();
    let mut refused = vec![None; coflows.len()];
    let mut flows = Vec::with_capacity(blocks.len());
    let mut stopped = 0;
    let mut bytes = 0;
    let mut news = Instant::now();
    while flows.len() + stopped < blocks.len() {
        while let Some(coflow) = stages.start(elapsed()) {
            arrival[coflow] = elapsed();
            for (host, blocks) in gets.remove(&coflow).unwrap_or_default() {
                processes.tell(host, &ToTask::Get(blocks))?;
            }
            // Without flows it is complete as it starts: no task will say so.
            if left[coflow] == 0 {
                stages.complete(coflows[coflow].id, elapsed());
            }
        }
        while let Some(coflow) = stages.take_unneeded() {
            driver.unregister(ids[coflow]);
        }
        let due = stages.wait(elapsed());
        let wait = due.map_or(Duration::from_secs(1), |due| Duration::from_nanos(due.nanos()));
        let got = match processes.said.recv_timeout(wait.min(Duration::from_secs(1))) {
            Ok((_, Ok(FromTask::Got(got)))) => got,
            Ok((_, Ok(FromTask::Refused { flow, reason }))) => {
                news = Instant::now();
                let coflow = blocks[flow].coflow;
                for follower in stages.refuse(coflows[coflow].id) {
                    let id = coflows[coflow].id;
                    refused[follower] =
                        Some(format!("its stage would follow on coflow {id}, which was refused"));
                    arrival[follower] = elapsed();
                    stopped += left[follower];
                }
                refused[coflow] = Some(reason);
                stopped += 1;
                left[coflow] -= 1;
                if left[coflow] == 0 {
                    stages.end(coflows[coflow].id);
                }
                continue;
            }
            Ok((host, Ok(FromTask::Failed { flow, reason }))) => {
                let name = block_name(&blocks[flow]);
                return Err(LiveError::Task { host, reason: format!("block {name}: {reason}") });
            }
            Ok((_, Ok(FromTask::PutDone))) => continue,
            Ok((host, Err(error))) => return Err(LiveError::Task { host, reason: error.to_string() }),
            // While a coflow is still to start by itself, silence is no fault.
            Err(RecvTimeoutError::Timeout) if due.is_none() && news.elapsed() > SILENCE_LIMIT => {
                let ended: BTreeSet<(usize, usize)> =
                    flows.iter().map(|done: &FlowOutcome| (done.coflow, done.flow)).collect();
                let first = blocks.iter().find(|block| !ended.contains(&(block.coflow, block.flow)));
                let which = first.map_or_else(String::new, |block| driver.describe(coflows, block, ids));
                return Err(LiveError::Silence { left: blocks.len() - flows.len() - stopped, which });
            }
            Err(_) => continue,
        };
        news = Instant::now();
        let Got { flow, called_ns, first_byte_ns, done_ns } = got;
        let Block { coflow, flow, .. } = blocks[flow];
        let outcome = FlowOutcome {
            coflow,
            flow,
            called: since_start(called_ns),
            first_byte: since_start(first_byte_ns),
            done: since_start(done_ns),
        };
        bytes += coflows[coflow].flows[flow].size.0;
        let taken = outcome.done.nanos().saturating_sub(arrival[coflow].nanos());
        completion[coflow] = completion[coflow].max(Span::from_nanos(taken));
        flows.push(outcome);
        progress(bytes);
        left[coflow] -= 1;
        if left[coflow] == 0 {
            stages.complete(coflows[coflow].id, elapsed());
        }
    }
    while let Some(coflow) = stages.take_unneeded() {
        driver.unregister(ids[coflow]);
    }
    let bytes = Bytes(bytes);
    let (cpu_secs, first_byte_us, replan_us) = ([0.0; 3], Vec::new(), Vec::new());
    let learned = BTreeMap::new();
    Ok(LiveOutcome {
        began,
        completion,
        refused,
        arrival,
        flows,
        bytes,
        cpu_secs,
        first_byte_us,
        replan_us,
        learned,
    })
}
