//! `weir agent --controls`: coflows with deadlines go by MCP where the coordinator says classes and no rates.

use super::WEIR;
use rustix::process::{Pid, Signal, kill_process};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use weir_client::{Client, ClientConfig, CoflowOptions, GetOptions};
use weir_testbed::{Bed, Place};

/// The agent's port, by which its connection is found.
const PORT: u16 = 7071;
/// 80 ms at the link's rate.
const BYTES: usize = 10_000_000;
const DEADLINE_MS: u64 = 1_000;

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// Ends it as its operator would.
fn end(mut child: Child) {
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    child.wait().unwrap();
}

/// What the kernel says of the agent's connections.
fn connections(bed: &Bed) -> String {
    let filter = format!("sport = :{PORT}");
    let output =
        bed.run_at(Place::Host(0), || Command::new("ss").args(["-tinoH", &filter]).output()).unwrap();
    String::from_utf8(output.unwrap().stdout).unwrap()
}

/// Gets the same bytes twice: in a coflow without a deadline, which is as fast as the link, and in one that has a second. Beside that
/// another one has the rest of the link.
pub(super) fn ended_just_before_the_deadline(bed: &Bed) {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("agent.sock");
    let coordinator = std::net::SocketAddr::new(bed.address(1).into(), 7070);
    let listen = std::net::SocketAddr::new(bed.address(0).into(), PORT);
    // Both ends agree upon ECN where the one that connects asks for it.
    bed.run_at(Place::Host(1), || std::fs::write("/proc/sys/net/ipv4/tcp_ecn", "1")).unwrap().unwrap();
    let mut command = bed.command(Place::Host(1), WEIR).unwrap();
    command.args(["coordinator", "--policy", "by-class", "--listen", &coordinator.to_string()]);
    let coordinating = bed.spawn(command).unwrap();
    let mut command = bed.command(Place::Host(0), WEIR).unwrap();
    command.args(["agent", "--host", "0", "--interface", "none", "--link-rate", "1gbit"]);
    command.args(["--listen", &listen.to_string(), "--coordinator", &coordinator.to_string()]);
    command.args(["--tag", "eth0", "--controls", "--spool"]).arg(dir.path());
    let mut serving = bed.spawn(command).unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while !socket.exists() {
        assert!(serving.try_wait().unwrap().is_none() && Instant::now() < until, "the agent does not start");
        std::thread::sleep(Duration::from_millis(10));
    }
    let client = |host, agent: Option<&PathBuf>| {
        let (coordinator, agent) = (Some(coordinator.into()), agent.cloned());
        Client::new(ClientConfig { coordinator, agent, host })
    };
    let put = |deadline_ms, bytes: usize| {
        let options = CoflowOptions { flows: 1, deadline_ms, ..CoflowOptions::default() };
        let coflow = bed.run_at(Place::Host(1), || run(async { client(1, None).register(options).await }));
        let coflow = coflow.unwrap().unwrap();
        let put = || run(async { client(0, Some(&socket)).put_bytes(coflow, "b", &vec![1; bytes]).await });
        bed.run_at(Place::Host(0), put).unwrap().unwrap();
        coflow
    };
    let got = |coflow| {
        let began = Instant::now();
        let get = || run(async { client(1, None).get_bytes(coflow, "b", GetOptions::default()).await });
        let bytes = bed.run_at(Place::Host(1), get).unwrap().unwrap().len();
        let took = began.elapsed();
        bed.run_at(Place::Host(1), || run(async { client(1, None).unregister(coflow).await }))
            .unwrap()
            .unwrap();
        (bytes, took)
    };
    let alone = got(put(0, BYTES));
    let (due, other) = (put(DEADLINE_MS, BYTES), put(0, BYTES / 2));
    let (just_in_time, beside, seen) = std::thread::scope(|scope| {
        let getting = scope.spawn(|| got(due));
        std::thread::sleep(Duration::from_millis(DEADLINE_MS / 10));
        let beside = got(other);
        let seen = connections(bed);
        assert!(!getting.is_finished(), "what is due later does not wait for it");
        (getting.join().unwrap(), beside, seen)
    });
    println!(
        "{BYTES} bytes without a deadline {:?}, with one of {DEADLINE_MS} ms {:?}, and beside it half as many {:?}",
        alone.1, just_in_time.1, beside.1
    );
    assert_eq!((alone.0, just_in_time.0, beside.0), (BYTES, BYTES, BYTES / 2));
    // Without ECN it would have fallen back to Reno.
    assert!(seen.contains(" ecn ") && seen.contains(" weir_karuna "), "{seen}");
    // By its window and no faster. How long it takes beyond that is the machine's to say as well.
    assert!(just_in_time.1 > Duration::from_millis(DEADLINE_MS / 2), "{just_in_time:?}");
    end(serving);
    end(coordinating);
}
