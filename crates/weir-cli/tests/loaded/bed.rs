//! A cluster under load: a coordinator and agents as processes, with thousands of coflows that nobody has finished.

use super::clocks::Clocks;
use super::member;
use crate::support::chance::{Chance, fill};
use crate::support::process::{Process, weir};
use crate::support::small_disk::SmallDisk;
use crate::support::verdict::Failure;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use weir_client::{Client, ClientConfig, CoflowOptions, GetOptions, StatusReply};
use weir_testbed::free_address;

/// Honest hosts; the coordinator has room for one more, which lies.
pub(crate) const HOSTS: u32 = 4;
/// The host whose spool is on a small disk.
pub(crate) const SMALL: u32 = HOSTS - 1;
/// Coflows that are live all the time, besides those of the rounds.
const LIVE_COFLOWS: u64 = 5_100;
/// Bytes of the one block that each of them has.
const IDLE_BYTES: u64 = 1_000;
/// One of them is drawn for a bed.
const POLICIES: &[&str] =
    &["varys", "varys-deadline", "dclas", "dclas-strict", "fair", "fair-coflows", "fifo", "smallest-flow"];
/// Calls under way at once while all is set up.
const CALLS_AT_ONCE: usize = 64;
/// Their lease, and that of the rounds' coflows: long enough for everything that is stopped or away here.
const LEASE_MS: u64 = 120_000;
/// What is in a file that nobody put.
const PRECIOUS: &[u8] = &[b'!'; 4_096];
/// How long the cluster may take to be whole again after what happened.
const WHOLE_LIMIT: Duration = Duration::from_secs(40);
/// How often it is looked whether it is.
const LOOK: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Daemon {
    Coordinator,
    Agent(u32),
}

impl Daemon {
    fn name(self) -> String {
        match self {
            Daemon::Coordinator => "coordinator".to_owned(),
            Daemon::Agent(host) => format!("agent-{host}"),
        }
    }
}

/// One of the coflows that are live all the time; the bytes of its block depend on its id.
struct Idle {
    coflow: u64,
    host: u32,
}

pub(crate) struct Bed {
    dir: tempfile::TempDir,
    clocks: Clocks,
    pub(crate) disk: Option<SmallDisk>,
    policy: &'static str,
    pub(crate) coordinator: SocketAddr,
    pub(crate) agents: Vec<SocketAddr>,
    pub(crate) clients: Vec<Client>,
    running: BTreeMap<Daemon, Process>,
    idle: Vec<Idle>,
    /// Whether agents are open to a group, of which others are members: that takes root.
    pub(crate) has_members: bool,
}

impl Bed {
    /// Starts everything and registers the load.
    pub(crate) async fn start(seed: u64) -> Result<Bed, Failure> {
        let chance = &mut Chance::new(seed);
        let dir = tempfile::tempdir().unwrap();
        let disk = SmallDisk::mount(&dir.path().join("disk"), "64m");
        std::fs::create_dir(dir.path().join("data")).unwrap();
        let coordinator = free_address().unwrap();
        let mut bed = Bed {
            clocks: Clocks::new(dir.path()),
            dir,
            disk,
            policy: chance.of(POLICIES),
            coordinator,
            agents: (0..HOSTS).map(|_| free_address().unwrap()).collect(),
            clients: Vec::new(),
            running: BTreeMap::new(),
            idle: Vec::new(),
            has_members: rustix::process::geteuid().is_root(),
        };
        bed.make_place_for_members();
        bed.clients = (0..HOSTS).map(|host| bed.client(host)).collect();
        bed.launch(Daemon::Coordinator, false);
        (0..HOSTS).for_each(|host| bed.launch(Daemon::Agent(host), false));
        let there = |status: &StatusReply| status.agents.len() == HOSTS as usize;
        bed.wait_for("all agents at the coordinator", there).await?;
        bed.load().await?;
        Ok(bed)
    }

    /// A client of a host's tasks.
    pub(crate) fn client(&self, host: u32) -> Client {
        let agent = Some(self.spool(host).join("agent.sock"));
        Client::new(ClientConfig { coordinator: Some(self.coordinator.into()), agent, host })
    }

    pub(crate) fn spool(&self, host: u32) -> PathBuf {
        match &self.disk {
            Some(disk) if host == SMALL => disk.path().join("spool"),
            _ => self.dir.path().join(format!("spool-{host}")),
        }
    }

    /// Where tasks have their files.
    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Files that members may reach, and one that they may not.
    fn make_place_for_members(&self) {
        let open = |path: &Path, mode| {
            std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        };
        if !self.has_members {
            eprintln!("SKIPPED: members of a group, who are other users: they take root");
            return;
        }
        open(self.dir.path(), 0o755);
        let orders = self.orders_of_member(0, 0, 0);
        std::fs::create_dir(&orders.shared).unwrap();
        open(&orders.shared, 0o1777);
        for (path, mode) in [(&orders.precious, 0o600), (&orders.common, 0o666)] {
            std::fs::write(path, PRECIOUS).unwrap();
            open(path, mode);
        }
        // Others may not come by where this program is.
        std::fs::copy(std::env::current_exe().unwrap(), self.member_program()).unwrap();
    }

    pub(crate) fn member_program(&self) -> PathBuf {
        self.dir.path().join("member")
    }

    /// What a member is to do to the agent of a host.
    pub(crate) fn orders_of_member(&self, host: u32, coflow: u64, seed: u64) -> member::Orders {
        member::Orders {
            seed,
            coordinator: self.coordinator,
            spool: self.spool(host),
            shared: self.data().join("shared"),
            precious: self.dir.path().join("precious"),
            common: self.dir.path().join("common"),
            coflow,
        }
    }

    /// The file of the agents' user is as it was, and has no other name.
    pub(crate) fn check_precious(&self) -> Result<(), Failure> {
        if !self.has_members {
            return Ok(());
        }
        let path = self.orders_of_member(0, 0, 0).precious;
        let found = std::fs::symlink_metadata(&path).unwrap();
        let kept =
            found.is_file() && found.nlink() == 1 && found.uid() == 0 && found.mode() & 0o7777 == 0o600;
        if kept && std::fs::read(&path).is_ok_and(|bytes| bytes == PRECIOUS) {
            return Ok(());
        }
        Err(Failure::Wrong("the file of the agents' user is not what it was".to_owned()))
    }

    /// Registers the coflows that nobody finishes, and puts their blocks.
    async fn load(&mut self) -> Result<(), Failure> {
        let mut calls = JoinSet::new();
        let mut ids = Vec::new();
        for _ in 0..LIVE_COFLOWS {
            if calls.len() == CALLS_AT_ONCE {
                ids.extend(calls.join_next().await);
            }
            let driver = self.clients[0].clone();
            calls.spawn(async move { register(&driver).await });
        }
        ids.extend(calls.join_all().await.into_iter().map(Ok));
        for (id, host) in ids.into_iter().zip((0..HOSTS).cycle()) {
            self.idle.push(Idle { coflow: id.unwrap()?, host });
        }
        let mut puts: JoinSet<Result<(), Failure>> = JoinSet::new();
        for (index, idle) in (0u64..).zip(&self.idle) {
            if puts.len() == CALLS_AT_ONCE {
                puts.join_next().await.unwrap().unwrap()?;
            }
            let (client, coflow, path) = (self.clients[idle.host as usize].clone(), idle.coflow, self.data());
            puts.spawn(async move {
                let path = path.join(format!("idle-{}", index % 100));
                if !path.exists() {
                    let mut bytes = vec![0; IDLE_BYTES as usize];
                    fill(index % 100, 0, &mut bytes);
                    std::fs::write(&path, bytes).unwrap();
                }
                let put = client.put_file(coflow, "idle", &path, 0, IDLE_BYTES).await;
                put.map_err(|error| Failure::Lost(format!("put of an idle block: {error}")))
            });
        }
        puts.join_all().await.into_iter().collect()
    }

    /// A command that runs a daemon: with a clock of its own, and what it says in the log.
    fn command(&self, arguments: &[&str], name: &str) -> Command {
        let log = OpenOptions::new().create(true).append(true).open(self.log()).unwrap();
        let mut command = weir(arguments);
        self.clocks.give(&mut command, name);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command
    }

    fn agent(&self, host: u32, address: SocketAddr, spool: &Path) -> Command {
        let (number, listen, coordinator) =
            (host.to_string(), address.to_string(), self.coordinator.to_string());
        let arguments = ["agent", "--host", &number, "--listen", &listen, "--coordinator", &coordinator];
        let mut command = self.command(&arguments, &Daemon::Agent(host).name());
        command.arg("--spool").arg(spool).arg("--allow").arg(self.data());
        if self.has_members {
            command.args(["--group", &member::GROUP.to_string()]);
        }
        command
    }

    /// Starts a daemon that does not run; with `few`, it has few descriptors.
    pub(crate) fn launch(&mut self, daemon: Daemon, few: bool) {
        if self.running.contains_key(&daemon) {
            return;
        }
        let mut command = match daemon {
            Daemon::Agent(host) => self.agent(host, self.agents[host as usize], &self.spool(host)),
            Daemon::Coordinator => {
                let (listen, hosts) = (self.coordinator.to_string(), (HOSTS + 1).to_string());
                let mut arguments = vec!["coordinator", "--listen", &listen, "--hosts", &hosts];
                arguments.extend(["--link-rate", "400mbit", "--lease-ms", "400", "--coflow-lease", "4"]);
                arguments.extend(["--policy", self.policy]);
                self.command(&arguments, &daemon.name())
            }
        };
        if few {
            command = limited(&command, if daemon == Daemon::Coordinator { 128 } else { 64 }, self.log());
        }
        self.running.insert(daemon, Process::spawn(&mut command));
    }

    pub(crate) fn kill(&mut self, daemon: Daemon) {
        self.running.remove(&daemon);
    }

    pub(crate) fn signal(&self, daemon: Daemon, signal: Signal) {
        if let Some(process) = self.running.get(&daemon) {
            let _ = kill_process(Pid::from_child(&process.0), signal);
        }
    }

    pub(crate) fn set_clock(&self, daemon: Daemon, seconds: i64) {
        self.clocks.set(&daemon.name(), seconds);
    }

    /// A second agent of a host, on the same spool or one of its own.
    pub(crate) fn second_agent(&self, host: u32, same_spool: bool) -> Process {
        let address = free_address().unwrap();
        let own = self.dir.path().join(format!("second-{host}-{}", address.port()));
        let spool = if same_spool { self.spool(host) } else { own };
        Process::spawn(&mut self.agent(host, address, &spool))
    }

    pub(crate) fn runs(&self, daemon: Daemon) -> bool {
        self.running.contains_key(&daemon)
    }

    /// No daemon ended by itself, and none of their threads panicked.
    pub(crate) fn check_running(&mut self) -> Result<(), Failure> {
        for (daemon, process) in &mut self.running {
            if let Some(status) = process.0.try_wait().unwrap() {
                return Err(Failure::Ended(format!("{}: {status}", daemon.name())));
            }
        }
        let log = std::fs::read(self.log()).unwrap_or_default();
        if log.windows(8).any(|word| word == b"panicked") {
            return Err(Failure::Ended("a thread panicked".to_owned()));
        }
        Ok(())
    }

    /// The coordinator knows the load, these coflows and their blocks of each host, within bounds, and nothing else.
    pub(crate) async fn check_whole(&self, coflows: &[u64], blocks: &[(u64, u64)]) -> Result<(), Failure> {
        let expected: BTreeSet<u64> =
            self.idle.iter().map(|idle| idle.coflow).chain(coflows.iter().copied()).collect();
        let idle_blocks = |host| self.idle.iter().filter(|idle| idle.host == host).count() as u64;
        let what = format!("{} live coflows, blocks {blocks:?} besides the load's", expected.len());
        self.wait_for(&what, |status| {
            let shown: BTreeSet<u64> = status.coflows.iter().map(|coflow| coflow.coflow).collect();
            let done: BTreeSet<u64> = status.completed.iter().map(|record| record.coflow).collect();
            let whole = status.agents.iter().all(|agent| {
                let (host, idle) = (agent.host as usize, idle_blocks(agent.host));
                let &(least, most) = blocks.get(host).unwrap_or(&(0, 0));
                self.agents.get(host).is_some_and(|at| at.to_string() == agent.data_address)
                    && (idle + least..=idle + most).contains(&agent.blocks)
                    && agent.flows == 0
            });
            let known = expected.iter().all(|id| shown.contains(id) || done.contains(id));
            status.agents.len() == HOSTS as usize && whole && known && shown.is_subset(&expected)
        })
        .await
    }

    /// Some blocks of the load still come as they were put.
    pub(crate) async fn check_sample(&self, chance: &mut Chance) -> Result<(), Failure> {
        for _ in 0..5 {
            let index = chance.below(self.idle.len() as u64);
            let idle = &self.idle[index as usize];
            let mut right = vec![0; IDLE_BYTES as usize];
            fill(index % 100, 0, &mut right);
            let options = GetOptions { time_limit: WHOLE_LIMIT, ..GetOptions::default() };
            let receiver = &self.clients[((idle.host + 1) % HOSTS) as usize];
            match receiver.get_bytes(idle.coflow, "idle", options).await {
                Ok(bytes) if bytes == right => {}
                Ok(_) => return Err(Failure::Wrong(format!("the block of idle coflow {}", idle.coflow))),
                Err(error) => {
                    return Err(Failure::Lost(format!("the block of idle coflow {}: {error}", idle.coflow)));
                }
            }
        }
        Ok(())
    }

    pub(crate) async fn wait_for(
        &self,
        what: &str,
        reached: impl Fn(&StatusReply) -> bool,
    ) -> Result<(), Failure> {
        let end = Instant::now() + WHOLE_LIMIT;
        let mut last = "no status".to_owned();
        while Instant::now() < end {
            match timeout(WHOLE_LIMIT, self.clients[0].status()).await {
                Ok(Ok(status)) if reached(&status) => return Ok(()),
                Ok(Ok(status)) => last = self.summary(&status),
                Ok(Err(error)) => last = error.to_string(),
                Err(_) => {}
            }
            tokio::time::sleep(LOOK).await;
        }
        Err(Failure::Left(format!("not reached: {what}; at the end: {last}")))
    }

    /// A status without the load.
    fn summary(&self, status: &StatusReply) -> String {
        let idle: BTreeSet<u64> = self.idle.iter().map(|idle| idle.coflow).collect();
        let others: Vec<_> = status.coflows.iter().filter(|coflow| !idle.contains(&coflow.coflow)).collect();
        let there = status.coflows.len() - others.len();
        let completed: Vec<u64> = status.completed.iter().map(|record| record.coflow).collect();
        format!("agents {:?}; {there} of the load, others {others:?}; completed {completed:?}", status.agents)
    }

    /// Ends everything in good order.
    pub(crate) fn end(&mut self) -> Result<(), Failure> {
        self.check_running()?;
        let ended = std::mem::take(&mut self.running).into_iter().rev();
        for (daemon, process) in ended {
            let end = process.end(Some(Signal::TERM));
            end.map_err(|how| Failure::Left(format!("{}: {how}", daemon.name())))?;
        }
        Ok(())
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    /// The last of what the daemons had to say.
    pub(crate) fn said(&self) -> String {
        let log = String::from_utf8_lossy(&std::fs::read(self.log()).unwrap_or_default()).into_owned();
        let lines: Vec<&str> = log.lines().collect();
        format!("policy {}\n{}", self.policy, lines[lines.len().saturating_sub(60)..].join("\n"))
    }
}

/// A coflow whose driver lives.
pub(crate) async fn register(driver: &Client) -> Result<u64, Failure> {
    let options = CoflowOptions { lease_ms: LEASE_MS, ..CoflowOptions::default() };
    let id = driver.register(options).await;
    id.map_err(|error| Failure::Hang(format!("register: {error}")))
}

/// The same command, with at most so many descriptors.
fn limited(command: &Command, descriptors: u32, log: PathBuf) -> Command {
    let mut limited = Command::new("sh");
    limited.args(["-c", &format!("ulimit -n {descriptors} && exec \"$0\" \"$@\"")]);
    limited.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        limited.env(name, value.unwrap_or_default());
    }
    let log = OpenOptions::new().append(true).open(log).unwrap();
    limited.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    limited
}
