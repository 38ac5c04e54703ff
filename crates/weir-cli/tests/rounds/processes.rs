//! The processes of a round: started, killed, started again at the same address, and ended.

use super::plan::{Plan, Victim};
use super::receiver::{ENTRY, ORDERS, Orders, Said};
use crate::support::process::{Process, weir};
use crate::support::redis::free_address;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tokio::sync::mpsc;

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
        let mut weir = weir(&[command]);
        weir.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        weir
    }

    /// What the daemons had to say.
    pub(crate) fn log(&self) -> PathBuf {
        self.dir.join("log")
    }
}
