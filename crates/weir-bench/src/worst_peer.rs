//! `weir bench worst-peer`: what one peer at its worst costs the calls and the flows of others.

use super::daemons::{AgentPlace, Daemon, coordinator, raise_descriptors};
use clap::Args;
use serde::Serialize;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use weir_client::{Client, CoflowOptions, GetOptions};
use weir_console::Failure;
use weir_console::Files;
use weir_model::Rate;
use weir_proto::v1::agent_event::Kind;
use weir_proto::v1::coordinator_client::CoordinatorClient;
use weir_proto::{limits, v1};
use weir_results::{percentile, table, text};
use weir_testbed::free_address;
use weir_testbed::live::RunFolder;

/// Sender and receiver of the flow that is watched.
const HOSTS: u32 = 2;
/// Host that the worst peer says it is.
const STRANGER: u32 = HOSTS;
/// Bytes of the flow: more than moves. They are zeros that take no room on the disk.
const FLOW_BYTES: u64 = 1 << 40;
/// How often a client other than the worst peer calls.
const CALL_EVERY: Duration = Duration::from_millis(5);
/// The flow has begun, and the worst peer is at work, before anything is measured.
const SETTLED: Duration = Duration::from_secs(2);
/// Connections of the worst peer,
const CONNECTIONS: usize = 8;
/// and calls at once on each.
const CALLS: usize = 32;
/// A Locate is given up so long after it was sent.
const GIVEN_UP: Duration = Duration::from_millis(20);
/// Pollers of the status.
const POLLERS: usize = 10;
/// Blocks of one message of a Hello that never ends.
const BLOCKS: u64 = 10_000;

/// A coordinator with many live coflows and two agents between which a flow moves. Beside it, one at a time, a peer that sends
/// messages as large as they may be as fast as it can (parts of a Hello that never ends), one that registers and unregisters
/// coflows, one that asks for blocks and gives up, and ten pollers of the status. Printed are times of others' calls (a Locate
/// that is answered at once), the longest time in which the flow did not move, and what the coordinator takes.
///
/// Processes are real, on loopback; the peer is a thread of this command and takes processor time from all of them.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct WorstPeerArgs {
    /// Live coflows besides the flow's
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(0..=90_000))]
    coflows: u32,
    /// Length of one measurement in seconds
    #[arg(long, value_name = "S", default_value_t = 5.0)]
    seconds: f64,
    /// Rate of each host's link
    #[arg(long, value_name = "RATE", default_value = "200mbit")]
    link_rate: Rate,
    /// Write the figures to a file
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug)]
enum Peer {
    Nobody,
    LargeMessages,
    Calls,
    Locates,
    Pollers,
}

impl Peer {
    const ALL: [Peer; 5] = [Peer::Nobody, Peer::LargeMessages, Peer::Calls, Peer::Locates, Peer::Pollers];

    fn name(self) -> &'static str {
        match self {
            Peer::Nobody => "nobody",
            Peer::LargeMessages => "large messages",
            Peer::Calls => "register, unregister",
            Peer::Locates => "locates given up",
            Peer::Pollers => "ten pollers of status",
        }
    }
}

#[derive(Debug, Serialize)]
struct Row {
    peer: &'static str,
    calls: usize,
    call_p50_ms: f64,
    call_p95_ms: f64,
    call_max_ms: f64,
    flow_longest_gap_ms: f64,
    coordinator_cpu_share: f64,
    coordinator_bytes: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    coflows: u32,
    seconds: f64,
    rows: Vec<Row>,
}

pub(crate) fn worst_peer(args: &WorstPeerArgs) -> Result<(), Failure> {
    if !(0.5..=600.0).contains(&args.seconds) {
        return Err(Failure::Input(format!("--seconds {}: 0.5 to 600", args.seconds)));
    }
    let output = Files::default().may_write("--json", args.json.as_ref())?;
    raise_descriptors()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let rows = runtime.block_on(async {
        let dir = RunFolder::create()?;
        let bed = Bed::start(args, dir.path()).await?;
        let mut rows = Vec::new();
        for peer in Peer::ALL {
            let row = bed.measure(args, peer).await?;
            eprintln!("{}: p95 {:.2} ms", row.peer, row.call_p95_ms);
            rows.push(row);
        }
        anyhow::Ok(rows)
    })?;
    let heads = ["peer", "calls", "p50 ms", "p95 ms", "max ms", "flow's gap ms", "CPU", "MiB"];
    let mut shown = table(&heads, 1);
    for row in &rows {
        let times = [row.call_p50_ms, row.call_p95_ms, row.call_max_ms].map(|ms| format!("{ms:.2}"));
        let mut cells = vec![row.peer.to_owned(), row.calls.to_string()];
        cells.extend(times);
        cells.push(format!("{:.0}", row.flow_longest_gap_ms));
        cells.push(format!("{:.0} %", row.coordinator_cpu_share * 100.0));
        cells.push(format!("{:.0}", row.coordinator_bytes / f64::from(1 << 20)));
        shown.add_row(cells);
    }
    println!("{}", text(&shown));
    if let Some(output) = output {
        let report = Report { schema: 1, coflows: args.coflows, seconds: args.seconds, rows };
        output.write(|file| Ok(writeln!(file, "{}", serde_json::to_string_pretty(&report)?)?))?;
    }
    Ok(())
}

/// A coordinator, two agents, and a flow between them.
struct Bed {
    coordinator: Daemon,
    _agents: Vec<Daemon>,
    address: SocketAddr,
    coflow: u64,
    /// When bytes of the flow arrived last, and the longest time between two arrivals since it was asked last.
    gaps: Arc<Mutex<(Instant, Duration)>>,
    reader: JoinHandle<()>,
    /// Renews the coflows' leases while it lives.
    _driver: Client,
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Bed {
    async fn start(args: &WorstPeerArgs, dir: &Path) -> anyhow::Result<Bed> {
        let address = free_address()?;
        let rate = format!("{}bit", args.link_rate.bits_per_sec());
        // One host more than there are agents: the network is closed, and the worst peer's Hello is
        // to be taken in, not refused for its number.
        let coordinator = coordinator(address, HOSTS + 1, &["--link-rate".to_owned(), rate])?;
        let (mut agents, mut clients) = (Vec::new(), Vec::new());
        for host in 0..HOSTS {
            let place = AgentPlace::new(host, dir, Some(address))?;
            agents.push(place.start(dir)?);
            clients.push(place.client());
        }
        let zeros = dir.join("zeros");
        std::fs::File::create(&zeros)?.set_len(FLOW_BYTES)?;
        let driver = clients[0].clone();
        for _ in 0..args.coflows {
            driver.register(CoflowOptions::default()).await?;
        }
        let coflow = driver.register(CoflowOptions { flows: 1, ..CoflowOptions::default() }).await?;
        driver.put_file(coflow, "b", &zeros, 0, FLOW_BYTES).await?;
        let gaps = Arc::new(Mutex::new((Instant::now(), Duration::ZERO)));
        let (noted, mut reader) = (Arc::clone(&gaps), clients[1].get(coflow, "b", GetOptions::default()));
        let reader = tokio::spawn(async move {
            while let Ok(Some(_)) = reader.next().await {
                let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
                let now = Instant::now();
                *noted = (now, noted.1.max(now - noted.0));
            }
        });
        sleep(SETTLED).await;
        Ok(Bed { coordinator, _agents: agents, address, coflow, gaps, reader, _driver: driver })
    }

    /// The longest time without a byte of the flow since this was asked last.
    fn longest_gap(&self) -> Duration {
        let mut noted = self.gaps.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        // A gap that has not ended yet counts as well: a flow that stands still notes nothing.
        let longest = noted.1.max(now - noted.0);
        *noted = (now, Duration::ZERO);
        longest
    }

    async fn measure(&self, args: &WorstPeerArgs, peer: Peer) -> anyhow::Result<Row> {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, address) = (Arc::clone(&stop), self.address);
        // With a runtime of its own: on that of the calls that are timed, its work would hold them
        // up in this process, before the coordinator had any part in it.
        let at_work = std::thread::Builder::new().name("worst-peer".to_owned()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(trouble(peer, address, &stopped));
            runtime.shutdown_timeout(Duration::from_secs(1));
            std::io::Result::Ok(())
        })?;
        sleep(SETTLED).await;
        // Counted anew from here: what the peer's beginning cost is no part of the row.
        self.longest_gap();
        let mut client = connect(self.address)?;
        let (begun, cpu) = (Instant::now(), self.coordinator.cpu_seconds()?);
        let mut times = Vec::new();
        while begun.elapsed().as_secs_f64() < args.seconds {
            let at = Instant::now();
            let request =
                v1::LocateRequest { coflow: self.coflow, block: "b".to_owned(), wait_ms: 0, host: 1 };
            client.locate(request).await?;
            times.push(at.elapsed().as_secs_f64() * 1e3);
            sleep(CALL_EVERY).await;
        }
        let took = begun.elapsed().as_secs_f64();
        let flow_longest_gap_ms = self.longest_gap().as_secs_f64() * 1e3;
        anyhow::ensure!(!self.reader.is_finished(), "the flow's get ended early");
        times.sort_by(f64::total_cmp);
        let row = Row {
            peer: peer.name(),
            calls: times.len(),
            call_p50_ms: percentile(&times, 0.5),
            call_p95_ms: percentile(&times, 0.95),
            call_max_ms: percentile(&times, 1.0),
            flow_longest_gap_ms,
            coordinator_cpu_share: (self.coordinator.cpu_seconds()? - cpu) / took,
            coordinator_bytes: self.coordinator.memory()?,
        };
        stop.store(true, Ordering::Relaxed);
        at_work.join().map_err(|_| anyhow::anyhow!("the worst peer panicked"))??;
        Ok(row)
    }
}

fn connect(address: SocketAddr) -> anyhow::Result<CoordinatorClient<Channel>> {
    Ok(CoordinatorClient::new(weir_net::coordinator_channel(address)))
}

/// Troubles the coordinator until told to stop. What it is answered does not matter.
async fn trouble(peer: Peer, address: SocketAddr, stop: &AtomicBool) {
    let Ok(clients) = (0..CONNECTIONS).map(|_| connect(address)).collect::<anyhow::Result<Vec<_>>>() else {
        return;
    };
    let mut work = JoinSet::new();
    match peer {
        Peer::Nobody => {}
        Peer::LargeMessages => _ = work.spawn(never_ending_hello(clients[0].clone())),
        Peer::Calls => {
            for client in clients.iter().flat_map(|client| std::iter::repeat_n(client, CALLS)) {
                work.spawn(register_for_ever(client.clone()));
            }
        }
        Peer::Locates => {
            for client in clients.iter().flat_map(|client| std::iter::repeat_n(client, CALLS)) {
                work.spawn(locate_for_ever(client.clone()));
            }
        }
        Peer::Pollers => {
            for client in clients.iter().cycle().take(POLLERS) {
                work.spawn(poll_for_ever(client.clone()));
            }
        }
    }
    while !stop.load(Ordering::Relaxed) {
        sleep(Duration::from_millis(50)).await;
    }
    work.shutdown().await;
}

async fn never_ending_hello(mut client: CoordinatorClient<Channel>) {
    let mut next = 0;
    loop {
        let (sender, messages) = mpsc::channel(4);
        let hello = v1::Hello {
            version: 1,
            host: STRANGER,
            data_address: "127.0.0.1:1".to_owned(),
            incarnation: 1,
            spool_identity: 7,
            // The last part of the Hello never comes.
            more: true,
            ..v1::Hello::default()
        };
        let event = |kind| v1::AgentMessage { events: vec![v1::AgentEvent { kind: Some(kind) }] };
        let _ = sender.send(event(Kind::Hello(hello))).await;
        let talk = async {
            loop {
                let block = |number| v1::BlockAdded {
                    coflow: 1 << 40,
                    block: format!("{number:0>width$}", width = limits::MAX_BLOCK_NAME_BYTES),
                    size: 1_000,
                    identity: Vec::new(),
                };
                let blocks = (next..next + BLOCKS).map(block).collect();
                next += BLOCKS;
                let part = v1::HelloPart { blocks, ..v1::HelloPart::default() };
                if sender.send(event(Kind::HelloPart(part))).await.is_err() {
                    return;
                }
            }
        };
        let listen = async {
            let Ok(answer) = client.attach(ReceiverStream::new(messages)).await else { return };
            let mut answer = answer.into_inner();
            while let Ok(Some(_)) = answer.message().await {}
        };
        tokio::select! {
            () = talk => {}
            () = listen => {}
        }
        sleep(Duration::from_millis(1)).await;
    }
}

async fn register_for_ever(mut client: CoordinatorClient<Channel>) {
    loop {
        let request = v1::RegisterRequest {
            options: Some(CoflowOptions::default()),
            request_key: rand::random_range(1..=u64::MAX),
        };
        match client.register(request).await {
            Ok(reply) => {
                let coflow = reply.into_inner().coflow;
                let _ = client.unregister(v1::UnregisterRequest { coflow }).await;
            }
            Err(_) => sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn locate_for_ever(mut client: CoordinatorClient<Channel>) {
    loop {
        let block = format!("{:032x}", rand::random::<u128>());
        let wait_ms = limits::MAX_LOCATE_WAIT_MS;
        let request = v1::LocateRequest { coflow: 1 << 40, block, wait_ms, host: 1 };
        if let Ok(Err(_)) = timeout(GIVEN_UP, client.locate(request)).await {
            sleep(Duration::from_millis(10)).await;
        }
    }
}

async fn poll_for_ever(mut client: CoordinatorClient<Channel>) {
    loop {
        if client.status(v1::StatusRequest::default()).await.is_err() {
            sleep(Duration::from_millis(10)).await;
        }
    }
}
