//! The processes of a round: started, killed, started again at the same address, and ended.

use super::plan::{Plan, Victim};
use super::receiver::{ENTRY, ORDERS, Orders, Said};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// How long a process may take to end once it is asked to.
const END_LIMIT: Duration = Duration::from_secs(5);
/// Ports below those the kernel gives to outgoing connections: a listener that comes back finds its port
/// free, and nobody who tries to reach it meanwhile connects to itself.
const PORTS: (u16, u16) = (12_000, 32_000);

/// A free port of this machine that nothing else picks by itself.
pub(crate) fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let span = PORTS.1 - PORTS.0;
    let start = (std::process::id() % u32::from(span)) as u16;
    for _ in 0..span {
        let port = PORTS.0 + (start + NEXT.fetch_add(1, Ordering::Relaxed) % span) % span;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
    panic!("no free port between {} and {}", PORTS.0, PORTS.1);
}

/// A process that does not outlive this value.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn spawn(command: &mut Command) -> Process {
        Process(command.spawn().unwrap())
    }

    /// SIGKILL: the process has no say in it.
    pub(crate) fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    /// Asks it to end, by a signal or by closing its input, and tells whether it did so in time and well.
    pub(crate) fn end(mut self, signal: Option<Signal>) -> Result<(), String> {
        drop(self.0.stdin.take());
        if let Some(signal) = signal {
            let _ = kill_process(Pid::from_child(&self.0), signal);
        }
        let end = Instant::now() + END_LIMIT;
        while Instant::now() < end {
            match self.0.try_wait().unwrap() {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("{status}")),
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        }
        Err("still running".to_owned())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What a receiver said, and which one of a host's receivers it was.
pub(crate) struct Heard {
    pub(crate) host: u32,
    pub(crate) life: u64,
    pub(crate) said: Said,
}

/// All processes of a round.
pub(crate) struct Processes {
    dir: PathBuf,
    /// Options of the coordinator.
    options: Vec<String>,
    pub(crate) coordinator_address: SocketAddr,
    pub(crate) agent_addresses: Vec<SocketAddr>,
    coordinator: Option<Process>,
    agents: BTreeMap<u32, Process>,
    receivers: BTreeMap<u32, (u64, Process)>,
    next_life: u64,
    said: mpsc::UnboundedSender<Heard>,
}

impl Processes {
    /// Picks addresses; nothing is started yet.
    pub(crate) fn new(dir: &Path, plan: &Plan) -> (Processes, mpsc::UnboundedReceiver<Heard>) {
        let (said, heard) = mpsc::unbounded_channel();
        let hosts = plan.hosts;
        let options = [
            ("--hosts", hosts.to_string()),
            ("--link-rate", plan.link_rate.to_owned()),
            ("--lease-ms", plan.lease_ms.to_string()),
            ("--bypass", plan.bypass.to_owned()),
            ("--ready-wait", plan.ready_wait.to_owned()),
        ];
        let processes = Processes {
            dir: dir.to_owned(),
            options: options.map(|(option, value)| format!("{option}={value}")).to_vec(),
            coordinator_address: free_address(),
            agent_addresses: (0..hosts).map(|_| free_address()).collect(),
            coordinator: None,
            agents: BTreeMap::new(),
            receivers: BTreeMap::new(),
            next_life: 0,
            said,
        };
        (processes, heard)
    }

    pub(crate) fn spool(&self, host: u32) -> PathBuf {
        self.dir.join(format!("spool-{host}"))
    }

    pub(crate) fn start_coordinator(&mut self) {
        let mut command = self.weir("coordinator");
        command.args(["--listen", &self.coordinator_address.to_string()]).args(&self.options);
        self.coordinator = Some(Process::spawn(&mut command));
    }

    pub(crate) fn start_agent(&mut self, host: u32) {
        let mut command = self.weir("agent");
        command
            .args(["--host", &host.to_string()])
            .args(["--listen", &self.agent_addresses[host as usize].to_string()])
            .args(["--coordinator", &self.coordinator_address.to_string()])
            .arg("--spool")
            .arg(self.spool(host))
            .arg("--allow")
            .arg(&self.dir);
        self.agents.insert(host, Process::spawn(&mut command));
    }

    /// Starts a receiver and returns the number of this life of it.
    pub(crate) fn start_receiver(&mut self, orders: &Orders) -> u64 {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args([ENTRY, "--exact", "--ignored", "--nocapture", "--test-threads=1"])
            .env(ORDERS, serde_json::to_string(orders).unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        let mut process = Process::spawn(&mut command);
        let output = process.0.stdout.take().unwrap();
        self.next_life += 1;
        let (host, life, said) = (orders.host, self.next_life, self.said.clone());
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // The test harness prints lines of its own, and does not end the last of them.
                let line = line.find('{').map_or("", |at| &line[at..]);
                if let Ok(message) = serde_json::from_str(line)
                    && said.send(Heard { host, life, said: message }).is_err()
                {
                    return;
                }
            }
        });
        self.receivers.insert(host, (life, process));
        life
    }

    pub(crate) fn kill_coordinator(&mut self) {
        self.coordinator = None;
    }

    pub(crate) fn kill_agent(&mut self, host: u32) {
        self.agents.remove(&host);
    }

    pub(crate) fn kill_receiver(&mut self, host: u32) {
        self.receivers.remove(&host);
    }

    pub(crate) fn runs(&self, victim: Victim) -> bool {
        match victim {
            Victim::Coordinator => self.coordinator.is_some(),
            Victim::Agent(host) => self.agents.contains_key(&host),
            Victim::Receiver(host) => self.receivers.contains_key(&host),
        }
    }

    /// The current life of a host's receiver.
    pub(crate) fn life(&self, host: u32) -> Option<u64> {
        self.receivers.get(&host).map(|&(life, _)| life)
    }

    /// Ends everything in good order and names what did not end well.
    pub(crate) fn end(&mut self) -> Vec<String> {
        let mut bad = Vec::new();
        let mut end = |name: String, process: Process, signal| {
            if let Err(how) = process.end(signal) {
                bad.push(format!("{name}: {how}"));
            }
        };
        for (host, (_, process)) in std::mem::take(&mut self.receivers) {
            end(format!("receiver {host}"), process, None);
        }
        for (host, process) in std::mem::take(&mut self.agents) {
            end(format!("agent {host}"), process, Some(Signal::TERM));
        }
        if let Some(process) = self.coordinator.take() {
            end("coordinator".to_owned(), process, Some(Signal::TERM));
        }
        bad
    }

    fn weir(&self, command: &str) -> Command {
        let log = OpenOptions::new().create(true).append(true).open(self.log()).unwrap();
        let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
        weir.arg(command).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        weir
    }

    /// What the daemons had to say.
    pub(crate) fn log(&self) -> PathBuf {
        self.dir.join("log")
    }
}
