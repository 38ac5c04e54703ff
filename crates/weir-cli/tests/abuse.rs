//! Real processes under what strangers do to them: full disks, few descriptors, stopped holders, readers that stop, two
//! agents for one host, damaged journals.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use rustix::process::{Pid, Signal, kill_process};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::process::{Process, weir};
use support::small_disk::SmallDisk;
use weir_client::{Client, ClientConfig, CoflowOptions, GetOptions};
use weir_testbed::free_address;

/// Nothing here takes longer.
const LIMIT: Duration = Duration::from_secs(60);

/// Waits until something holds.
#[track_caller]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

struct Cluster {
    dir: tempfile::TempDir,
    coordinator: SocketAddr,
    agents: Vec<(SocketAddr, PathBuf)>,
    processes: Vec<Process>,
}

impl Cluster {
    fn start(hosts: u32, coordinator_options: &[&str]) -> Cluster {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("data")).unwrap();
        let coordinator = free_address().unwrap();
        let mut cluster = Cluster { dir, coordinator, agents: Vec::new(), processes: Vec::new() };
        let process = Process::spawn(&mut cluster.coordinator(hosts, coordinator_options));
        cluster.processes.push(process);
        for host in 0..hosts {
            let spool = cluster.dir.path().join(format!("spool-{host}"));
            let address = free_address().unwrap();
            cluster.agents.push((address, spool));
            let process = Process::spawn(&mut cluster.agent(host));
            cluster.processes.push(process);
        }
        cluster.wait_for_agents();
        cluster
    }

    fn coordinator(&self, hosts: u32, options: &[&str]) -> Command {
        let (listen, hosts) = (self.coordinator.to_string(), hosts.to_string());
        let arguments = ["coordinator", "--listen", &listen, "--hosts", &hosts, "--link-rate", "400mbit"];
        let mut command = weir(&[&arguments[..], options].concat());
        command.env("WEIR_LOG", "info").stderr(log(self.dir.path(), "coordinator"));
        command
    }

    fn agent(&self, host: u32) -> Command {
        let (address, spool) = &self.agents[host as usize];
        self.agent_at(host, *address, spool)
    }

    fn agent_at(&self, host: u32, address: SocketAddr, spool: &Path) -> Command {
        let (listen, coordinator, host) =
            (address.to_string(), self.coordinator.to_string(), host.to_string());
        let data = self.dir.path().join("data");
        let mut command =
            weir(&["agent", "--host", &host, "--listen", &listen, "--coordinator", &coordinator]);
        command.arg("--spool").arg(spool).arg("--allow").arg(data);
        let name = spool.file_name().unwrap().to_str().unwrap();
        command.env("WEIR_LOG", "info").stderr(log(self.dir.path(), name));
        command
    }

    fn said(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(format!("{name}.log"))).unwrap()
    }

    fn wait_for_agents(&self) {
        let attached = || self.said("coordinator").matches("agent attached").count();
        eventually("all agents attach", || attached() >= self.agents.len());
        eventually("all agents listen", || {
            self.agents.iter().all(|(_, spool)| spool.join("agent.sock").exists())
        });
    }

    fn client(&self, host: u32) -> Client {
        let agent = Some(self.agents[host as usize].1.join("agent.sock"));
        Client::new(ClientConfig { coordinator: Some(self.coordinator.into()), agent, host })
    }

    fn signal(&self, process: usize, signal: Signal) {
        kill_process(Pid::from_child(&self.processes[process].0), signal).unwrap();
    }
}

fn log(dir: &Path, name: &str) -> Stdio {
    let path = dir.join(format!("{name}.log"));
    std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap().into()
}

fn limited() -> GetOptions {
    GetOptions { time_limit: LIMIT, ..GetOptions::default() }
}

fn run(work: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(work);
}

#[test]
fn a_reader_that_stops_keeps_no_uplink_from_others() {
    let cluster = Cluster::start(3, &["--bypass", "0"]);
    run(async {
        let (sender, slow, other) = (cluster.client(0), cluster.client(1), cluster.client(2));
        let (small, large) = (coflow(&sender).await, coflow(&sender).await);
        sender.put_bytes(small, "b", &vec![1; 20_000_000]).await.unwrap();
        sender.put_bytes(large, "b", &vec![2; 60_000_000]).await.unwrap();
        let mut stopped = slow.get(small, "b", limited());
        assert!(stopped.next().await.unwrap().is_some());
        // It reads no more, and its coflow comes first. The other one took a minute then.
        let limited = GetOptions { time_limit: Duration::from_secs(30), ..GetOptions::default() };
        assert_eq!(other.get_bytes(large, "b", limited).await.unwrap().len(), 60_000_000);
        for coflow in &sender.status().await.unwrap().coflows {
            assert!(coflow.rate_bytes_per_s <= 50e6, "{coflow:?}");
        }
        // And it goes on where it stopped.
        let mut rest = 0;
        while let Some(part) = stopped.next().await.unwrap() {
            rest += part.len();
        }
        assert_eq!(rest, 20_000_000 - 262_144);
    });
}

async fn coflow(client: &Client) -> u64 {
    client.register(CoflowOptions { flows: 1, ..CoflowOptions::default() }).await.unwrap()
}

#[test]
fn a_get_leaves_a_holder_that_was_stopped_for_a_replica() {
    let cluster = Cluster::start(3, &[]);
    run(async {
        let bytes: Vec<u8> = (0..30_000_000u32).map(|at| (at % 251) as u8).collect();
        let id = coflow(&cluster.client(0)).await;
        cluster.client(0).put_bytes(id, "b", &bytes).await.unwrap();
        let (receiver, mut got) = (cluster.client(2), Vec::new());
        let mut reader = receiver.get(id, "b", limited());
        got.extend_from_slice(reader.next().await.unwrap().unwrap());
        cluster.client(1).put_bytes(id, "b", &bytes).await.unwrap();
        cluster.signal(1, Signal::STOP);
        while let Some(part) = reader.next().await.unwrap() {
            got.extend_from_slice(part);
        }
        cluster.signal(1, Signal::CONT);
        assert!(got == bytes);
    });
}

#[test]
fn a_second_agent_of_a_host_is_refused_and_everybody_says_so() {
    let mut cluster = Cluster::start(2, &[]);
    let spool = cluster.dir.path().join("other");
    let (address, first) = (free_address().unwrap(), cluster.agents[0].0.to_string());
    let mut second = Process::spawn(&mut cluster.agent_at(0, address, &spool));
    eventually("the second agent says why it is refused", || {
        let said = cluster.said("other");
        said.contains("refused the session") && said.contains(&first)
    });
    eventually("the first one hears of it", || cluster.said("spool-0").contains(&address.to_string()));
    assert!(cluster.said("coordinator").contains("agent refused"));
    // Once the first is gone, the second serves the host.
    cluster.processes[1].kill();
    eventually("the second agent attaches", || cluster.said("other").contains("attached to the coordinator"));
    assert!(second.0.try_wait().unwrap().is_none());
    second.kill();
}

#[test]
fn a_hundred_idle_connections_and_few_descriptors_leave_room_for_a_get() {
    let mut cluster = Cluster::start(2, &[]);
    cluster.processes[1].kill();
    let agent = cluster.agent(0);
    let mut few = Command::new("sh");
    few.args(["-c", "ulimit -n 64 && exec \"$0\" \"$@\""]).arg(agent.get_program()).args(agent.get_args());
    few.env("WEIR_LOG", "info").stderr(log(cluster.dir.path(), "few"));
    let _ = std::fs::remove_file(cluster.agents[0].1.join("agent.sock"));
    cluster.processes[1] = Process::spawn(&mut few);
    eventually("the agent attaches", || cluster.said("few").contains("attached"));
    assert!(cluster.said("few").contains("few descriptors"), "it says so");
    let idle: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(cluster.agents[0].0).unwrap()).collect();
    run(async {
        let id = coflow(&cluster.client(0)).await;
        cluster.client(0).put_bytes(id, "b", &[7; 1_000_000]).await.unwrap();
        assert_eq!(cluster.client(1).get_bytes(id, "b", limited()).await.unwrap(), [7; 1_000_000]);
    });
    drop(idle);
}

#[test]
fn an_agent_with_a_full_disk_refuses_puts_serves_on_starts_again_and_comes_back_by_itself() {
    let mut cluster = Cluster::start(2, &[]);
    let Some(disk) = SmallDisk::mount(&cluster.dir.path().join("disk"), "8m") else { return };
    let spool = disk.path().join("spool");
    std::fs::create_dir(&spool).unwrap();
    cluster.processes[1].kill();
    cluster.agents[0].1.clone_from(&spool);
    let start = |cluster: &mut Cluster| {
        let _ = std::fs::remove_file(spool.join("agent.sock"));
        cluster.processes[1] = Process::spawn(&mut cluster.agent(0));
        eventually("the agent listens", || spool.join("agent.sock").exists());
    };
    start(&mut cluster);
    let outside = cluster.dir.path().join("data/file");
    std::fs::write(&outside, [5; 1000]).unwrap();
    let name = |number: usize| format!("{number:0200}");
    run(async {
        let client = cluster.client(0);
        let id = client.register(CoflowOptions::default()).await.unwrap();
        client.put_bytes(id, "before", &[3; 300_000]).await.unwrap();
        disk.fill();
        assert!(client.put_bytes(id, "memory", &[3; 300_000]).await.is_err());
        // Files elsewhere need room in the journal alone, of which a reserve is left for everything else.
        let mut refused = None;
        for number in 0..20_000 {
            if let Err(error) = client.put_file(id, &name(number), &outside, 0, 1000).await {
                refused = Some((number, error.to_string()));
                break;
            }
        }
        let (held, reason) = refused.unwrap();
        assert!(reason.contains("no room"), "{reason}");
        for restarted in [false, true] {
            if restarted {
                cluster.processes[1].kill();
                start(&mut cluster);
            }
            // A receiver with no connections kept from before.
            let receiver = cluster.client(1);
            assert_eq!(receiver.get_bytes(id, "before", limited()).await.unwrap(), [3; 300_000]);
            assert_eq!(receiver.get_bytes(id, &name(held - 1), limited()).await.unwrap(), [5; 1000]);
        }
        disk.free();
        let client = cluster.client(0);
        client.put_file(id, &name(held), &outside, 0, 1000).await.unwrap();
        client.put_bytes(id, "memory", &[4; 300_000]).await.unwrap();
        assert_eq!(cluster.client(1).get_bytes(id, "memory", limited()).await.unwrap(), [4; 300_000]);
    });
    cluster.processes.truncate(0);
}

#[test]
fn a_damaged_line_of_the_journal_costs_one_block_and_is_told() {
    let mut cluster = Cluster::start(2, &[]);
    let spool = cluster.agents[0].1.clone();
    run(async {
        let id = cluster.client(0).register(CoflowOptions::default()).await.unwrap();
        let file = cluster.dir.path().join("data/file");
        std::fs::write(&file, [5; 1000]).unwrap();
        for number in 0..500 {
            cluster.client(0).put_file(id, &format!("block-{number}"), &file, 0, 1000).await.unwrap();
        }
        // A driver that lives while the agent is away.
        let driver = cluster.client(1);
        cluster.processes[1].kill();
        let journal = std::fs::read(spool.join("own/journal.jsonl")).unwrap();
        let at = journal.windows(10).position(|window| window == b"\"block-250").unwrap();
        let mut damaged = journal;
        damaged[at + 3] = b'?';
        std::fs::write(spool.join("own/journal.jsonl"), &damaged).unwrap();
        let _ = std::fs::remove_file(spool.join("agent.sock"));
        cluster.processes[1] = Process::spawn(&mut cluster.agent(0));
        eventually("the agent listens", || spool.join("agent.sock").exists());
        assert!(cluster.said("spool-0").contains("a damaged line of the journal was skipped"));
        for number in [0, 249, 251, 499] {
            let got = driver.get_bytes(id, &format!("block-{number}"), limited()).await.unwrap();
            assert_eq!(got, [5; 1000]);
        }
    });
}

#[test]
fn options_that_would_stop_a_cluster_are_refused_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let spool = dir.path().join("spool");
    let spool = spool.to_str().unwrap();
    let coordinator = |option: &str, value: &str| {
        let option = format!("{option}={value}");
        support::process::refused(&[
            "coordinator",
            "--listen",
            "127.0.0.1:0",
            "--link-rate",
            "1gbit",
            &option,
        ])
    };
    for (option, value) in [("--hosts", "4000000000"), ("--hosts", "0")] {
        assert!(coordinator(option, value).contains("--hosts"), "{option} {value}");
    }
    for (option, value) in
        [("--lease-ms", "0"), ("--coflow-lease", "-1"), ("--coflow-lease", "2"), ("--plan-share", "2")]
    {
        let option_value = format!("{option}={value}");
        let said = support::process::refused(&[
            "coordinator",
            "--hosts",
            "2",
            "--link-rate",
            "1gbit",
            &option_value,
        ]);
        assert!(said.contains(option) && said.contains(value), "{said}");
    }
    for (option, value) in
        [("--advertise", "0.0.0.0:7071"), ("--coordinator", "10.0.0.1"), ("--coordinator", "no port:1")]
    {
        let said = support::process::refused(&[
            "agent",
            "--host",
            "0",
            "--listen",
            "127.0.0.1:0",
            "--spool",
            spool,
            option,
            value,
        ]);
        assert!(said.contains(option) && said.contains(value), "{said}");
    }
    let output = weir(&[
        "agent",
        "--host",
        "0",
        "--listen",
        "127.0.0.1:0",
        "--spool",
        spool,
        "--allow",
        "/no/such/folder",
    ])
    .output()
    .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("--allow /no/such/folder"), "{said}");
}

/// A driver with coflows of which each has a block at host 0.
async fn driver_with_coflows(cluster: &Cluster, coflows: usize) -> (Client, Vec<u64>) {
    let driver = cluster.client(0);
    let mut ids = Vec::new();
    for _ in 0..coflows {
        let id = coflow(&driver).await;
        driver.put_bytes(id, "b", b"bytes").await.unwrap();
        ids.push(id);
    }
    (driver, ids)
}

/// All blocks can be got, and nobody ended anything.
async fn assert_all_live(cluster: &Cluster, coflows: &[u64]) {
    for &id in coflows {
        assert_eq!(cluster.client(1).get_bytes(id, "b", limited()).await.unwrap(), b"bytes");
    }
    assert!(!cluster.said("coordinator").contains("lease ran out"), "{}", cluster.said("coordinator"));
}

#[test]
fn a_stopped_coordinator_that_goes_on_has_ended_nothing() {
    let cluster = Cluster::start(2, &["--coflow-lease", "4"]);
    run(async {
        let (_driver, coflows) = driver_with_coflows(&cluster, 20).await;
        cluster.signal(0, Signal::STOP);
        // Three leases; agents and driver lose their sessions meanwhile.
        tokio::time::sleep(Duration::from_secs(13)).await;
        cluster.signal(0, Signal::CONT);
        tokio::time::sleep(Duration::from_secs(8)).await;
        assert_all_live(&cluster, &coflows).await;
    });
}

#[test]
fn drivers_keep_coflows_whose_lease_the_coordinator_chose() {
    let cluster = Cluster::start(2, &["--coflow-lease", "3"]);
    run(async {
        let (driver, coflows) = driver_with_coflows(&cluster, 3).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_all_live(&cluster, &coflows).await;
        drop(driver);
    });
    eventually("without their driver they end", || {
        cluster.said("coordinator").matches("lease ran out").count() == 3
    });
}

#[test]
fn after_restarts_of_the_coordinator_the_agent_that_was_attached_before_has_its_host_again() {
    let mut cluster = Cluster::start(2, &[]);
    let mut id = 0;
    run(async {
        id = coflow(&cluster.client(0)).await;
        cluster.client(0).put_bytes(id, "b", b"bytes").await.unwrap();
    });
    let (spool, address) = (cluster.dir.path().join("other"), free_address().unwrap());
    let attached = |cluster: &Cluster, address: SocketAddr| {
        let of = format!("address=\"{address}\"");
        let said = cluster.said("coordinator");
        said.lines().filter(|line| line.contains("agent attached") && line.contains(&of)).count()
    };
    for round in 1..=2 {
        // The right one is held up, so that the other one, which was never refused, comes first.
        cluster.signal(1, Signal::STOP);
        cluster.processes[0].kill();
        cluster.processes[0] = Process::spawn(&mut cluster.coordinator(2, &[]));
        let _second = Process::spawn(&mut cluster.agent_at(0, address, &spool));
        eventually("the other one attaches", || attached(&cluster, address) == round);
        cluster.signal(1, Signal::CONT);
        eventually("the right one is back", || attached(&cluster, cluster.agents[0].0) > round);
        eventually("the other one is told", || {
            cluster.said("other").contains("was host 0 before, and is again")
        });
        run(async {
            assert_eq!(cluster.client(1).get_bytes(id, "b", limited()).await.unwrap(), b"bytes");
        });
    }
}

/// Whether the other side has not closed a connection on which it says nothing.
fn is_open(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    stream.peek(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

#[test]
fn connections_that_say_nothing_keep_nobody_from_a_coordinator_with_few_descriptors() {
    let mut cluster = Cluster::start(2, &[]);
    cluster.processes[0].kill();
    let coordinator = cluster.coordinator(2, &[]);
    let mut few = Command::new("sh");
    few.args(["-c", "ulimit -n 512 && exec \"$0\" \"$@\""]);
    few.arg(coordinator.get_program()).args(coordinator.get_args());
    few.env("WEIR_LOG", "info").stderr(log(cluster.dir.path(), "coordinator"));
    cluster.processes[0] = Process::spawn(&mut few);
    eventually("agents attach", || cluster.said("coordinator").matches("agent attached").count() == 4);
    let done = AtomicBool::new(false);
    let mut registered = Ok(());
    std::thread::scope(|scope| {
        // A stranger keeps 600 of them up: as soon as some are closed there are others.
        scope.spawn(|| {
            let mut silent: Vec<TcpStream> = Vec::new();
            while !done.load(Ordering::Relaxed) {
                silent.retain(is_open);
                let connect = |_| TcpStream::connect(cluster.coordinator).ok();
                silent.extend((silent.len()..600).filter_map(connect));
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        std::thread::sleep(Duration::from_secs(1));
        run(async {
            for _ in 0..20 {
                let result = cluster.client(1).register(CoflowOptions::default()).await;
                registered = std::mem::replace(&mut registered, Ok(())).and(result.map(drop));
            }
        });
        done.store(true, Ordering::Relaxed);
    });
    registered.unwrap();
}
