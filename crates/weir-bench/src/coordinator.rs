//! `weir bench coordinator`: a coordinator process and the sessions of many agents, over the real control plane.
//! One process plays all agents, without data plane: their flows move exactly as plans say.

use super::daemons::{Daemon, open_coordinator, raise_descriptors};
use super::load::{Load, LoadFlow};
use super::played::PlayedAgent;
use super::rounds::Rounds;
use clap::Args;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use weir_client::{Client, ClientConfig, CoflowOptions, StatusReply};
use weir_console::Failure;
use weir_console::find_for_hosts;
use weir_model::{Rate, Time};
use weir_proto::v1::coordinator_client::CoordinatorClient;
use weir_proto::{limits, v1};
use weir_results::percentile;
use weir_testbed::free_address;

/// Messages that wait for one session of a played agent.
const QUEUE: usize = 64;
/// Of these, so many are used to send as fast as it goes: events of flows must find room.
const FLOOD: usize = 4;
/// Bytes of a flow of the smallest coflows.
const LEAST_BYTES: f64 = 4e6;
/// Agents look for ends of flows so often.
const TICK: Duration = Duration::from_millis(1);
/// Time to begin before anything is measured.
const WARM_UP: Duration = Duration::from_secs(2);

/// First flows move as plans say, and agents report every `--report-interval`. Then, for as long again, the same while
/// /metrics are read once a second; with `--join` and `--leave` while agents come, and go; at last every
/// agent also sends reports of single flows as fast as its session takes them. Printed are
///
/// planning time: what the coordinator's process measured of its latest plans, 4,096 at most: the policy, and
/// working out what every agent is told. Encoding and sending is not in it.
///
/// distribution time: from the moment the message of an event (flows ended, a coflow arrived) is handed to its
/// agent's session, to the moment the last agent that the plan is told to has decoded it. It includes the time that
/// the played agents, which share one thread, take to get to it. Ends that change nothing for their own agent are
/// not counted.
///
/// messages a second: those of agents' sessions, counted by the coordinator, by direction. An event is one entry of
/// an agent's message: flows opened, closed, or one report of all its flows that moved.
///
/// memory: the resident set of the coordinator's process; CPU: its processor time over the time measured. Both
/// only for a coordinator started by this command.
#[derive(Args, Clone)]
#[command(verbatim_doc_comment)]
pub(crate) struct CoordinatorArgs {
    /// Sessions; agents are numbered from 0
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(2..=1000))]
    agents: u32,
    /// Live coflows: one that completes makes room for another
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    coflows: u32,
    /// Live flows, when all coflows are at their beginning
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    flows: u32,
    /// Coflows that are registered, and have no flows
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=90_000))]
    idle_coflows: u32,
    /// Agents that join while coflows move, one after the other
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=5_000))]
    join: u32,
    /// Time in which they join
    #[arg(long, value_name = "S", default_value_t = 10.0)]
    join_seconds: f64,
    /// Agents that leave then within a second, the last ones first, with whatever they serve
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    leave: u32,
    /// Length of each measurement
    #[arg(long, value_name = "S", default_value_t = 5.0)]
    seconds: f64,
    /// Policy of the coordinator that is started
    #[arg(long, default_value = "varys")]
    policy: String,
    /// A coordinator that runs already, with at least as many hosts and no other agents
    #[arg(long, value_name = "IP:PORT")]
    coordinator: Option<SocketAddr>,
    /// Rate of each agent's link
    #[arg(long, value_name = "RATE", default_value = "1gbit")]
    link_rate: Rate,
    /// How often an agent reports how far its flows came, in milliseconds, as real agents do
    #[arg(long, value_name = "MS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    report_interval_ms: u64,
    /// Seed of the coflows
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// One played agent and the way to its session.
struct Session {
    agent: PlayedAgent,
    outbound: mpsc::Sender<v1::AgentMessage>,
    next_end: Time,
}

/// Everything that the tasks of one thread share.
struct World {
    clock: weir_net::Clock,
    sessions: Vec<Session>,
    rounds: Rounds,
    load: Load,
    /// Flows left of each live coflow.
    left: BTreeMap<u64, usize>,
    /// Coflows that are complete.
    over: Vec<u64>,
    /// Messages that a full session could not take.
    held_back: u64,
}

type Shared = Rc<RefCell<World>>;

impl World {
    fn send(&mut self, host: usize, events: Vec<v1::AgentEvent>) {
        if !events.is_empty() && self.sessions[host].outbound.try_send(v1::AgentMessage { events }).is_err() {
            self.held_back += 1;
        }
    }

    fn end_flows(&mut self, host: usize, now: Time) {
        // A full session takes no event. Ends that were taken out of the agent then would never be
        // told, so they wait for a later tick.
        if self.sessions[host].next_end > now || self.sessions[host].outbound.capacity() == 0 {
            return;
        }
        let (events, flows) = self.sessions[host].agent.take_ends(now);
        self.sessions[host].next_end = self.sessions[host].agent.next_end();
        if let Some(&(first, _)) = flows.first() {
            self.rounds.ended(host as u32, first, now);
        }
        for (_, coflow) in flows {
            self.flow_ended(coflow);
        }
        self.send(host, events);
    }

    fn flow_ended(&mut self, coflow: u64) {
        let Some(left) = self.left.get_mut(&coflow) else { return };
        *left -= 1;
        if *left == 0 {
            self.left.remove(&coflow);
            self.over.push(coflow);
        }
    }

    fn report(&mut self, host: usize, now: Time) {
        if self.sessions[host].outbound.capacity() > 0 {
            let events = self.sessions[host].agent.progress(now).into_iter().collect();
            self.send(host, events);
        }
    }

    fn receive(&mut self, host: usize, message: &v1::CoordinatorMessage) {
        let now = self.clock.now();
        // An agent that has left hears nothing any more.
        let Some(Session { agent, .. }) = self.sessions.get_mut(host) else { return };
        let answer = agent.apply(now, message);
        self.send(host, answer.into_iter().collect());
        let Session { agent, next_end, .. } = &mut self.sessions[host];
        if let Some(v1::coordinator_message::Kind::Plan(plan)) = &message.kind {
            *next_end = agent.next_end();
            let whole = plan.coflows.iter().filter(|rate| rate.whole).map(|rate| rate.coflow);
            self.rounds.planned(plan.number, host as u32, plan.completed_flow, whole, now);
        }
    }
}

/// Connects one more agent; its messages are taken in by a task of its own.
async fn connect_one(world: &Shared, address: SocketAddr) -> anyhow::Result<()> {
    let host = world.borrow().sessions.len();
    let agent = PlayedAgent::new(host as u32);
    let (outbound, queue) = mpsc::channel(QUEUE);
    let hello = v1::AgentEvent { kind: Some(v1::agent_event::Kind::Hello(agent.hello())) };
    // Before the call: `Hello` has to be the first message of a session.
    outbound.try_send(v1::AgentMessage { events: vec![hello] })?;
    let mut client = CoordinatorClient::new(weir_net::coordinator_channel(address))
        .max_decoding_message_size(limits::MAX_CONTROL_MESSAGE_BYTES);
    world.borrow_mut().sessions.push(Session { agent, outbound, next_end: Time::MAX });
    let mut inbound = client.attach(ReceiverStream::new(queue)).await?.into_inner();
    let world = Rc::clone(world);
    tokio::task::spawn_local(async move {
        while let Ok(Some(message)) = inbound.message().await {
            world.borrow_mut().receive(host, &message);
        }
    });
    Ok(())
}

/// Agents join one after the other; what they serve is told them as it comes.
async fn join(world: Shared, args: CoordinatorArgs, address: SocketAddr) -> anyhow::Result<()> {
    let mut timer = tokio::time::interval(Duration::from_secs_f64(args.join_seconds / f64::from(args.join)));
    for joined in 1..=args.join {
        timer.tick().await;
        connect_one(&world, address).await?;
        world.borrow_mut().load.set_ports(args.agents + joined);
    }
    Ok(())
}

/// Agents leave within a second. Their flows are lost; coflows that have no others are over.
async fn leave(world: Shared, agents: u32) {
    let mut timer = tokio::time::interval(Duration::from_secs_f64(1.0 / f64::from(agents)));
    for _ in 0..agents {
        timer.tick().await;
        let mut world = world.borrow_mut();
        // The last one: a session's place in the list is its host's number, and the numbers of the
        // hosts that stay must not change.
        let Some(mut session) = world.sessions.pop() else { return };
        let left = world.sessions.len() as u32;
        world.load.set_ports(left);
        for coflow in session.agent.leave() {
            world.flow_ended(coflow);
        }
    }
}

/// Reads the metrics once a second, and says how long the last answer took and how long it was.
async fn scrape(address: SocketAddr, seen: Rc<RefCell<Vec<(f64, usize)>>>) -> anyhow::Result<()> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut timer = tokio::time::interval(Duration::from_secs(1));
    loop {
        timer.tick().await;
        let began = Instant::now();
        let mut stream = tokio::net::TcpStream::connect(address).await?;
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        // OpenMetrics ends a text so: an answer that was cut off would otherwise count as a fast
        // one.
        anyhow::ensure!(answer.ends_with(b"# EOF\n"), "the metrics were not read whole");
        seen.borrow_mut().push((began.elapsed().as_secs_f64(), answer.len()));
    }
}

async fn connect(args: &CoordinatorArgs, address: SocketAddr) -> anyhow::Result<Shared> {
    let width = (args.flows / args.coflows).max(1) as usize;
    let world = Rc::new(RefCell::new(World {
        clock: weir_net::Clock::start(),
        sessions: Vec::new(),
        rounds: Rounds::default(),
        load: Load::new(args.seed, args.agents, width, LEAST_BYTES),
        left: BTreeMap::new(),
        over: Vec::new(),
        held_back: 0,
    }));
    for _ in 0..args.agents {
        connect_one(&world, address).await?;
    }
    Ok(world)
}

/// Registers a coflow and lets all its flows be asked for at once.
async fn arrive(world: &Shared, client: &Client) -> anyhow::Result<()> {
    let flows = world.borrow_mut().load.next();
    let options = CoflowOptions { flows: flows.len() as u64, ..CoflowOptions::default() };
    let coflow = client.register(options).await?;
    let mut world = world.borrow_mut();
    let now = world.clock.now();
    // Hosts may have left since.
    let hosts = world.sessions.len();
    let flows: Vec<LoadFlow> = flows.into_iter().filter(|flow| (flow.source as usize) < hosts).collect();
    world.left.insert(coflow, flows.len());
    let mut opened: BTreeMap<u32, Vec<v1::AgentEvent>> = BTreeMap::new();
    for flow in flows {
        let session = &mut world.sessions[flow.source as usize];
        let event = session.agent.open(now, coflow, flow.destination, flow.bytes);
        opened.entry(flow.source).or_default().push(event);
    }
    for (host, events) in opened {
        world.send(host as usize, events);
    }
    world.rounds.arrived(coflow, now);
    Ok(())
}

/// Lets flows end and agents report, for as long as the process lives.
async fn play(world: Shared, client: Client, report_ticks: usize) {
    let mut timer = tokio::time::interval(TICK);
    timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for tick in 0.. {
        timer.tick().await;
        let over = {
            let mut world = world.borrow_mut();
            let now = world.clock.now();
            for host in 0..world.sessions.len() {
                world.end_flows(host, now);
                // Spread over ticks, so that agents do not report all at once.
                if (tick + host) % report_ticks == 0 {
                    world.report(host, now);
                }
            }
            std::mem::take(&mut world.over)
        };
        for coflow in over {
            let (world, client) = (Rc::clone(&world), client.clone());
            tokio::task::spawn_local(async move {
                // Its error is not told: if the coordinator does not answer, the registration says
                // so.
                let _ = client.unregister(coflow).await;
                if let Err(error) = arrive(&world, &client).await {
                    eprintln!("weir: {error:#}");
                }
            });
        }
    }
}

/// Sends reports of single flows as fast as the session takes them.
async fn flood(world: Shared, host: usize) {
    loop {
        let (outbound, report) = {
            let world = world.borrow();
            let session = &world.sessions[host];
            (session.outbound.clone(), session.agent.one_report())
        };
        let Some(event) = report.filter(|_| outbound.capacity() > QUEUE - FLOOD) else {
            tokio::time::sleep(TICK).await;
            continue;
        };
        if outbound.send(v1::AgentMessage { events: vec![event] }).await.is_err() {
            return;
        }
        // The task that writes the session's socket runs on this thread. Without a turn for it the
        // few places would be full at once, and the flood would wait a whole tick each time.
        tokio::task::yield_now().await;
    }
}

fn counter(status: &StatusReply, name: &str) -> f64 {
    status.counters.iter().find(|counter| counter.name == name).map_or(0.0, |counter| counter.value as f64)
}

/// Waits and prints what the coordinator did meanwhile.
async fn measure(
    what: &str,
    world: &Shared,
    client: &Client,
    process: Option<&Daemon>,
    seconds: f64,
) -> anyhow::Result<()> {
    let cpu = || process.map(Daemon::cpu_seconds).transpose();
    let (before, start, cpu_before) = (client.status().await?, Instant::now(), cpu()?);
    world.borrow_mut().rounds.clear();
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    let (after, taken, cpu_after) = (client.status().await?, start.elapsed().as_secs_f64(), cpu()?);
    let per_second = |name: &str| (counter(&after, name) - counter(&before, name)) / taken;
    let live: u64 = after.coflows.iter().map(|coflow| coflow.live_flows).sum();
    println!(
        "{what}: {} agents, {} coflows, {live} flows live at the end",
        after.agents.len(),
        after.coflows.len() as u64 + after.hidden_coflows
    );
    let planning = after.planning.unwrap_or_default();
    println!(
        "  planning time: {:.3} ms median, {:.3} ms p95; {:.0} plans a second",
        planning.median_us / 1e3,
        planning.p95_us / 1e3,
        per_second("plans")
    );
    let millis = world.borrow().rounds.millis();
    println!(
        "  distribution time, event to plan in force at the last agent: {:.2} ms median, {:.2} ms p95 ({} events)",
        percentile(&millis, 0.5),
        percentile(&millis, 0.95),
        millis.len()
    );
    let (inward, outward) = (per_second("agent_messages"), per_second("coordinator_messages"));
    println!(
        "  messages a second: {:.0}, of which {inward:.0} from agents with {:.0} events, and {outward:.0} to agents",
        inward + outward,
        per_second("agent_events")
    );
    if let (Some(process), Some(before), Some(after)) = (process, cpu_before, cpu_after) {
        let memory = process.memory()? / f64::from(1 << 20);
        println!(
            "  coordinator: {:.0} % of a processor, {memory:.0} MiB of memory",
            100.0 * (after - before) / taken
        );
    }
    Ok(())
}

pub(crate) fn coordinator(args: &CoordinatorArgs) -> Result<(), Failure> {
    if args.flows < args.coflows {
        return Err(Failure::Input(format!("--flows {} is below --coflows {}", args.flows, args.coflows)));
    }
    if !(args.seconds >= 0.1 && args.seconds <= 3600.0) {
        return Err(Failure::Input(format!("--seconds {} is not between 0.1 and 3600", args.seconds)));
    }
    if !(args.join_seconds >= 0.1 && args.join_seconds <= 3600.0) {
        return Err(Failure::Input(format!(
            "--join-seconds {} is not between 0.1 and 3600",
            args.join_seconds
        )));
    }
    if args.leave > 0 && args.leave + 2 > args.agents + args.join {
        return Err(Failure::Input(format!("--leave {}: two agents stay", args.leave)));
    }
    if args.coordinator.is_some() && args.join > 0 {
        return Err(Failure::Input("--join needs a coordinator that is started here".to_owned()));
    }
    find_for_hosts(&args.policy)?;
    // Every session is a socket, here and in the coordinator.
    raise_descriptors()?;
    let watched = free_address()?;
    let (process, address) = match args.coordinator {
        Some(address) => (None, address),
        None => {
            let (address, rate) = (free_address()?, format!("{}bit", args.link_rate.bits_per_sec()));
            let watched = watched.to_string();
            let options = ["--policy", &args.policy, "--link-rate", &rate, "--metrics", &watched];
            let mut options = options.map(str::to_owned).to_vec();
            // `--hosts` closes the network: the coordinator would refuse the agents that join
            // later.
            if args.join == 0 {
                options.extend(["--hosts".to_owned(), args.agents.to_string()]);
            }
            (Some(open_coordinator(address, &options)?), address)
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let client = Client::new(ClientConfig { coordinator: Some(address.into()), agent: None, host: 0 });
        let world = connect(args, address).await?;
        for _ in 0..args.idle_coflows {
            client.register(CoflowOptions::default()).await?;
        }
        for _ in 0..args.coflows {
            arrive(&world, &client).await?;
        }
        // A tick is a millisecond (`TICK`), so that there are as many ticks as milliseconds.
        let report_ticks = args.report_interval_ms as usize;
        tokio::task::spawn_local(play(Rc::clone(&world), client.clone(), report_ticks));
        tokio::time::sleep(WARM_UP).await;
        println!("{} agents, policy {}", args.agents, client.status().await?.policy);
        measure("as planned", &world, &client, process.as_ref(), args.seconds).await?;
        if process.is_some() {
            let seen = Rc::default();
            let scraping = tokio::task::spawn_local(scrape(watched, Rc::clone(&seen)));
            measure("metrics read once a second", &world, &client, process.as_ref(), args.seconds).await?;
            // It ends by itself only where it failed: its figures would then be of part of the time.
            if scraping.is_finished() {
                scraping.await??;
            } else {
                scraping.abort();
            }
            let seen = seen.take();
            let millis: Vec<f64> = seen.iter().map(|(secs, _)| secs * 1e3).collect();
            let bytes = seen.last().map_or(0, |&(_, bytes)| bytes);
            println!("  an answer: {:.2} ms median, {bytes} bytes", percentile(&millis, 0.5));
            // The load changes as coflows go: what reading costs lies between the two.
            measure("as planned, metrics not read", &world, &client, process.as_ref(), args.seconds).await?;
        }
        if args.join > 0 {
            let joining = tokio::task::spawn_local(join(Rc::clone(&world), args.clone(), address));
            let what = format!("{} agents join within {} s", args.join, args.join_seconds);
            measure(&what, &world, &client, process.as_ref(), args.join_seconds).await?;
            joining.await??;
        }
        if args.leave > 0 {
            tokio::task::spawn_local(leave(Rc::clone(&world), args.leave));
            let what = format!("{} agents leave within a second", args.leave);
            measure(&what, &world, &client, process.as_ref(), args.seconds).await?;
        }
        let hosts = world.borrow().sessions.len();
        for host in 0..hosts {
            tokio::task::spawn_local(flood(Rc::clone(&world), host));
        }
        measure("as fast as it goes", &world, &client, process.as_ref(), args.seconds).await?;
        let held_back = world.borrow().held_back;
        anyhow::ensure!(held_back == 0, "{held_back} messages did not fit into their sessions' queues");
        Ok::<(), anyhow::Error>(())
    })?;
    Ok(())
}
