//! Processes that a measurement starts: a coordinator and agents of this binary, on loopback.

use super::receive::cpu_seconds;
use anyhow::Context;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use weir_client::{Client, ClientConfig};
use weir_testbed::free_address;
use weir_testbed::live::OwnChild;

/// How long a process may take to serve.
const START_LIMIT: Duration = Duration::from_secs(15);
/// How often it is looked whether it does.
const LOOK: Duration = Duration::from_millis(5);

/// A process that outlives neither this value nor this program.
pub(super) struct Daemon(OwnChild);

/// A command of this program for [`Daemon::start`].
pub(super) fn own_command() -> io::Result<Command> {
    OwnChild::command(&std::env::current_exe()?)
}

impl Daemon {
    /// Starts a process without input.
    pub(super) fn start(mut command: Command) -> anyhow::Result<Daemon> {
        let child = OwnChild::start(command.stdin(Stdio::null()));
        Ok(Daemon(child.with_context(|| format!("{} cannot be started", command.get_program().display()))?))
    }

    /// Starts a process and waits until `serves`.
    pub(super) fn start_serving(command: Command, serves: impl Fn() -> bool) -> anyhow::Result<Daemon> {
        let name = format!("{command:?}");
        let mut process = Daemon::start(command)?;
        let end = Instant::now() + START_LIMIT;
        while !serves() {
            let ended = process.ended()?;
            anyhow::ensure!(ended.is_none(), "{name}: ended, {}", ended.unwrap_or_default());
            anyhow::ensure!(Instant::now() < end, "{name}: does not serve within {START_LIMIT:?}");
            std::thread::sleep(LOOK);
        }
        Ok(process)
    }

    /// Its exit status, if it has ended.
    pub(super) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.0.ended()
    }

    pub(super) fn cpu_seconds(&self) -> anyhow::Result<f64> {
        cpu_seconds(&self.0.id().to_string())
    }

    /// Resident memory, in bytes.
    pub(super) fn memory(&self) -> anyhow::Result<f64> {
        let process = self.0.id().to_string();
        weir_metrics::resident_bytes(&process)
            .with_context(|| format!("/proc/{process}/statm cannot be read"))
    }
}

/// Starts `weir coordinator` on an address for so many hosts, silent.
pub(super) fn coordinator(address: SocketAddr, hosts: u32, options: &[String]) -> anyhow::Result<Daemon> {
    open_coordinator(address, &[&["--hosts".to_owned(), hosts.to_string()], options].concat())
}

/// The same for hosts that join.
pub(super) fn open_coordinator(address: SocketAddr, options: &[String]) -> anyhow::Result<Daemon> {
    let mut command = own_command()?;
    command.args(["coordinator", "--bypass", "0", "--listen", &address.to_string()]);
    command.args(options).stderr(Stdio::null());
    Daemon::start_serving(command, || TcpStream::connect(address).is_ok())
}

/// An agent's place: where it listens, and its spool.
pub(super) struct AgentPlace {
    pub(super) host: u32,
    pub(super) address: SocketAddr,
    pub(super) spool: PathBuf,
    coordinator: Option<SocketAddr>,
}

impl AgentPlace {
    /// A new place below `dir`.
    pub(super) fn new(host: u32, dir: &Path, coordinator: Option<SocketAddr>) -> io::Result<AgentPlace> {
        let spool = dir.join(format!("spool-{host}"));
        Ok(AgentPlace { host, address: free_address()?, spool, coordinator })
    }

    /// Starts the agent, silent, which may serve all files below `allow`.
    pub(super) fn start(&self, allow: &Path) -> anyhow::Result<Daemon> {
        self.start_with(allow, &[])
    }

    /// Starts the agent so with more arguments.
    pub(super) fn start_with(&self, allow: &Path, arguments: &[&str]) -> anyhow::Result<Daemon> {
        let mut command = own_command()?;
        command.args(["agent", "--interface", "none", "--host", &self.host.to_string()]);
        command.args(["--listen", &self.address.to_string()]).arg("--spool").arg(&self.spool);
        if let Some(coordinator) = self.coordinator {
            command.args(["--coordinator", &coordinator.to_string()]);
        }
        command.arg("--allow").arg(allow).args(arguments).stderr(Stdio::null());
        Daemon::start(command)
    }

    /// A client of this host's tasks.
    pub(super) fn client(&self) -> Client {
        let agent = Some(self.spool.join("agent.sock"));
        Client::new(ClientConfig { coordinator: self.coordinator.map(Into::into), agent, host: self.host })
    }

    /// Bytes of its journal.
    pub(super) fn journal_bytes(&self) -> io::Result<u64> {
        Ok(std::fs::metadata(self.spool.join("own/journal.jsonl"))?.len())
    }
}

/// Raises the limit of descriptors as far as it goes; processes started from here inherit it.
pub(super) fn raise_descriptors() -> io::Result<()> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}
