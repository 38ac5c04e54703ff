//! The processes of a round: started, killed, started again at the same address, and ended.

use super::driver;
use super::plan::{Plan, Stopped, Victim};
use super::receiver::{ENTRY, ORDERS, Orders, Said};
use crate::support::process::{Process, weir};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use tokio::sync::mpsc;
use weir_proto::limits::MIN_COFLOW_LEASE_MS;
use weir_testbed::free_address;

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
    driver: Option<Process>,
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
            ("--coflow-lease", (MIN_COFLOW_LEASE_MS / 1_000).to_string()),
        ];
        let processes = Processes {
            dir: dir.to_owned(),
            options: options.map(|(option, value)| format!("{option}={value}")).to_vec(),
            coordinator_address: free_address().unwrap(),
            agent_addresses: (0..hosts).map(|_| free_address().unwrap()).collect(),
            coordinator: None,
            agents: BTreeMap::new(),
            receivers: BTreeMap::new(),
            driver: None,
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
        let (process, output) = child(ENTRY, ORDERS, &serde_json::to_string(orders).unwrap());
        self.next_life += 1;
        let (host, life, said) = (orders.host, self.next_life, self.said.clone());
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if let Some(message) = message(&line)
                    && said.send(Heard { host, life, said: message }).is_err()
                {
                    return;
                }
            }
        });
        self.receivers.insert(host, (life, process));
        life
    }

    /// Starts the driver that is a process of its own, and returns its coflows once it has registered them.
    pub(crate) fn start_driver(&mut self, seed: u64) -> Vec<u64> {
        let orders = driver::Orders { seed, coordinator: self.coordinator_address };
        let (process, output) =
            child(driver::ENTRY, driver::ORDERS, &serde_json::to_string(&orders).unwrap());
        self.driver = Some(process);
        let said = output.lines().map_while(Result::ok).find_map(|line| message(&line));
        said.map_or_else(Vec::new, |driver::Registered { coflows }| coflows)
    }

    /// Sends a signal to those that run; tells whether any does.
    pub(crate) fn signal(&self, whom: Stopped, signal: Signal) -> bool {
        let processes: Vec<&Process> = match whom {
            Stopped::One(Victim::Coordinator) => self.coordinator.iter().collect(),
            Stopped::One(Victim::Agent(host)) => self.agents.get(&host).into_iter().collect(),
            Stopped::One(Victim::Receiver(host)) => {
                self.receivers.get(&host).map(|(_, process)| process).into_iter().collect()
            }
            Stopped::Driver => self.driver.iter().collect(),
            Stopped::All => {
                let receivers = self.receivers.values().map(|(_, process)| process);
                let daemons = self.coordinator.iter().chain(self.agents.values());
                daemons.chain(receivers).chain(&self.driver).collect()
            }
        };
        for process in &processes {
            let _ = kill_process(Pid::from_child(&process.0), signal);
        }
        !processes.is_empty()
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
        if let Some(process) = self.driver.take() {
            end("driver".to_owned(), process, None);
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
        let mut weir = weir(&[command]);
        weir.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        weir
    }

    /// What the daemons had to say.
    pub(crate) fn log(&self) -> PathBuf {
        self.dir.join("log")
    }
}

/// A child that is a test of this program, with its orders, and what it says.
fn child(entry: &str, variable: &str, orders: &str) -> (Process, BufReader<ChildStdout>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([entry, "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .env(variable, orders)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    let mut process = Process::spawn(&mut command);
    let output = process.0.stdout.take().unwrap();
    (process, BufReader::new(output))
}

/// The message of a line: the test harness prints lines of its own, and does not end the last of them.
fn message<T: serde::de::DeserializeOwned>(line: &str) -> Option<T> {
    serde_json::from_str(&line[line.find('{')?..]).ok()
}
