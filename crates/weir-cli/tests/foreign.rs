//! Plain TCP that nobody told Weir of, on the link of a host that a coflow needs: the plan makes room for it,
//! and takes the room back. Real processes and links, so only for root.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use weir_client::{Client, ClientConfig, CoflowOptions, GetOptions, StatusReply};
use weir_model::Rate;
use weir_testbed::{Bed, BedLinks, Place};

const LINK_RATE_BPS: u64 = 100_000_000;
/// What the coordinator plans with on a free link, in payload bytes per second.
const WHOLE: f64 = LINK_RATE_BPS as f64 / 8.0 * Rate::PAYLOAD_SHARE * 0.985;
/// More than moves while the test runs.
const BLOCK_BYTES: u64 = 4 << 30;
/// What the coflow moves alone first: several seconds' worth, so that its own bytes could pass for foreign ones.
const ALONE_BYTES: u64 = 40_000_000;
/// A step that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// The daemons of a bed; they end with it.
struct Weir {
    _daemons: Vec<Child>,
    coordinator: SocketAddr,
}

impl Weir {
    fn start(bed: &Bed, dir: &Path) -> Weir {
        let coordinator = SocketAddr::new(bed.control_address().into(), 7070);
        let mut command = bed.command(Place::Control, env!("CARGO_BIN_EXE_weir")).unwrap();
        command.args(["coordinator", "--link-rate", "100mbit", "--listen", &coordinator.to_string()]);
        command.args(["--hosts", &bed.hosts().to_string()]);
        let mut daemons = vec![bed.spawn(command).unwrap()];
        for host in 0..bed.hosts() {
            let mut command = bed.command(Place::Host(host), env!("CARGO_BIN_EXE_weir")).unwrap();
            command.args(["agent", "--host", &host.to_string(), "--coordinator", &coordinator.to_string()]);
            command.args(["--listen", &format!("{}:7071", bed.address(host)), "--spool"]);
            command.arg(dir.join(format!("spool-{host}"))).arg("--allow").arg(dir);
            daemons.push(bed.spawn(command).unwrap());
        }
        Weir { _daemons: daemons, coordinator }
    }

    /// A client of a host, and the runtime that keeps its connections at that host.
    fn client(&self, bed: &Bed, dir: &Path, host: usize) -> (Runtime, Client) {
        let runtime = bed.run_at(Place::Host(host), || {
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()
        });
        let runtime = runtime.unwrap().unwrap();
        let config = ClientConfig {
            coordinator: Some(self.coordinator.into()),
            agent: Some(dir.join(format!("spool-{host}")).join("agent.sock")),
            host: host as u32,
        };
        let client = runtime.block_on(async { Client::new(config) });
        (runtime, client)
    }
}

/// TCP from one host to another until dropped.
struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Load {
    fn start(bed: &Bed, from: usize, to: usize) -> Load {
        let address = SocketAddr::new(bed.address(to).into(), 9000);
        let listener = bed.run_at(Place::Host(to), || TcpListener::bind(address)).unwrap().unwrap();
        let mut sender = bed.run_at(Place::Host(from), || TcpStream::connect(address)).unwrap().unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let send = move || {
            while !stopped.load(Ordering::Relaxed) && sender.write_all(&[0; 65_536]).is_ok() {}
        };
        let receive = move || {
            let mut bytes = [0; 65_536];
            while receiver.read(&mut bytes).is_ok_and(|count| count > 0) {}
        };
        Load { stop, threads: vec![std::thread::spawn(send), std::thread::spawn(receive)] }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Asks for the status until it is as wanted: rate of the one coflow, foreign bytes per second towards host 1.
fn wait_for(runtime: &Runtime, client: &Client, what: &str, wanted: impl Fn(f64, f64) -> bool) {
    let start = Instant::now();
    loop {
        let asked = client.clone();
        // Connections are made where the task runs: on the runtime's own thread.
        let status: StatusReply =
            runtime.block_on(runtime.spawn(async move { asked.status().await })).unwrap().unwrap();
        let foreign = status.agents.iter().find(|agent| agent.host == 1);
        let foreign = foreign.map_or(0.0, |agent| agent.foreign_received_per_s);
        let rate = status.coflows.first().map_or(0.0, |coflow| coflow.rate_bytes_per_s);
        if wanted(rate, foreign) {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{what}: rate {rate}, foreign {foreign}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_plan_makes_room_for_traffic_that_nobody_told_weir_of() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: network namespaces with shaped links need root here");
    }
    let bed = Bed::create(&BedLinks::equal(3, LINK_RATE_BPS)).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let weir = Weir::start(&bed, dir.path());
    let (runtime, receiver) = weir.client(&bed, dir.path(), 1);
    let (sending, sender) = weir.client(&bed, dir.path(), 0);
    let data = dir.path().join("data");
    std::fs::File::create(&data).unwrap().set_len(BLOCK_BYTES).unwrap();
    let coflow = sending.block_on(sending.spawn(async move {
        let coflow = sender.register(CoflowOptions { flows: 1, ..CoflowOptions::default() }).await?;
        sender.put_file(coflow, "block", &data, 0, BLOCK_BYTES).await?;
        Ok::<_, weir_client::Error>(coflow)
    }));
    let coflow = coflow.unwrap().unwrap();
    let arrived = Arc::new(AtomicU64::new(0));
    let (got, arriving) = (receiver.clone(), Arc::clone(&arrived));
    let get = runtime.spawn(async move {
        let mut reader = got.get(coflow, "block", GetOptions::default());
        while let Ok(Some(part)) = reader.next().await {
            arriving.fetch_add(part.len() as u64, Ordering::Relaxed);
        }
    });

    wait_for(&runtime, &receiver, "alone", |rate, foreign| {
        assert!(foreign < 0.05 * WHOLE, "of Weir's own bytes {foreign} a second are taken for foreign ones");
        rate > 0.99 * WHOLE && arrived.load(Ordering::Relaxed) > ALONE_BYTES
    });
    // The other way around the switch than the coflow, but into the same host.
    let load = Load::start(&bed, 2, 1);
    wait_for(&runtime, &receiver, "with other traffic", |rate, foreign| {
        foreign > 0.05 * WHOLE && rate < 0.96 * WHOLE && rate > 0.2 * WHOLE
    });
    drop(load);
    wait_for(&runtime, &receiver, "alone again", |rate, foreign| rate > 0.99 * WHOLE && foreign == 0.0);
    get.abort();
}
