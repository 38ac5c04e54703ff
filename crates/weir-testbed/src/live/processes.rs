//! The processes of one run: started, waited for until they serve, and ended with the run.

use super::error::LiveError;
use super::leftovers;
use super::network::{Network, relay_address};
use super::options::LiveOptions;
use super::protocol::{FromTask, ToTask};
use crate::Place;
use crate::topology::HOST_LINK;
use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use weir_model::Span;

/// Port of the coordinator, and of agents in a bed; on loopback agents count up from theirs.
const COORDINATOR_PORT: u16 = 7070;
const DATA_PORT: u16 = 7071;
/// How long the processes may take to serve.
pub(super) const START_LIMIT: Duration = Duration::from_secs(30);

/// What a process of a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The coordinator, or the controller of relays.
    Coordinator,
    /// A host's agent, or a site's relay.
    Agent,
    /// A host's task: the application.
    Task,
}

impl Role {
    /// Here all hosts share one machine's processors. Where hosts are machines, the coordinator has one of its
    /// own, and agents are services that go before jobs.
    fn niceness(self) -> i32 {
        match self {
            Role::Coordinator => -10,
            Role::Agent => -5,
            Role::Task => 0,
        }
    }
}

/// Every process of a run. Dropping ends them.
pub(super) struct Processes {
    children: Vec<(Role, Child)>,
    inputs: Vec<ChildStdin>,
    pub(super) coordinator: Option<SocketAddr>,
    /// The controller of relays.
    pub(super) controller: Option<SocketAddr>,
    pub(super) agents: Vec<SocketAddr>,
    /// Unix sockets of the agents, by host.
    pub(super) sockets: Vec<PathBuf>,
    pub(super) said: mpsc::Receiver<(usize, io::Result<FromTask>)>,
}

impl Processes {
    /// Starts coordinator (unless the transport alone shares the network), agents and tasks.
    pub(super) fn start(
        options: &LiveOptions,
        network: &Network,
        dir: &Path,
        data: &Path,
    ) -> Result<Processes, LiveError> {
        let (send, said) = mpsc::channel();
        let mut all = Processes {
            children: Vec::new(),
            inputs: Vec::new(),
            coordinator: None,
            controller: None,
            agents: Vec::new(),
            sockets: Vec::new(),
            said,
        };
        if let Some(policy) = &options.policy {
            let address = SocketAddr::new(network.control_address(), network.port(COORDINATOR_PORT)?);
            let mut command = network.command(Place::Control, &options.program)?;
            command
                .arg("coordinator")
                .args(["--bare-policy", "--policy", policy])
                .args(["--listen", &address.to_string()])
                .args(["--plan-share", &options.plan_share.to_string()])
                .args(["--bypass", &options.bypass.as_secs().to_string()])
                .args(["--batch-window", &millis(options.batch_window)])
                .args(["--ready-wait", &millis(options.ready_wait)])
                .args(["--sync-interval", &millis(options.sync_interval)])
                .args(["--deadline-margin", &options.deadline_margin.0.to_string()])
                .args(["--deadline-margin-ms", &millis(options.deadline_margin.1)])
                .stdin(Stdio::null());
            if let Some(rate) = options.links.one_rate_bps() {
                command.args(["--hosts", &options.links.hosts.len().to_string()]);
                command.args(["--link-rate", &format!("{rate}bit")]);
            } else {
                let topology = dir.join("topology.toml");
                std::fs::write(&topology, options.links.topology())?;
                command.arg("--topology").arg(topology);
            }
            all.spawn(network, Role::Coordinator, command)?;
            all.coordinator = Some(address);
        }
        all.start_relays(options, network)?;
        for (host, of_host) in options.links.hosts.iter().enumerate() {
            let address = SocketAddr::new(network.address(host), network.port(DATA_PORT)?);
            let spool = dir.join(format!("spool-{host}"));
            let mut command = network.command(Place::Host(host), &options.program)?;
            command
                .arg("agent")
                .args(["--host", &host.to_string()])
                .args(["--listen", &address.to_string()])
                .args(["--batch-window", &millis(options.batch_window)])
                .args(["--link-rate", &format!("{}bit", of_host.rates.up_bps)])
                .args(["--downlink-rate", &format!("{}bit", of_host.rates.down_bps)])
                .args(["--interface", if options.foreign_traffic { "auto" } else { "none" }])
                .arg("--spool")
                .arg(&spool)
                .arg("--allow")
                .arg(dir)
                .stdin(Stdio::null());
            if let Some(coordinator) = all.coordinator {
                command.args(["--coordinator", &coordinator.to_string()]);
            }
            if options.tags {
                command.args(["--tag", HOST_LINK]);
            }
            if options.relays.is_some() {
                let bed = network.sites()?;
                let site = bed.site_of(host);
                command.args(["--site", &site.to_string()]);
                command.args(["--relay", &relay_address(bed, site).to_string()]);
            }
            all.spawn(network, Role::Agent, command)?;
            all.agents.push(address);
            all.sockets.push(spool.join("agent.sock"));
        }
        // After all agents were started, which then begin side by side. A clone, as each task that
        // is started changes `all`.
        for (host, socket) in all.sockets.clone().iter().enumerate() {
            wait_for(socket)?;
            let mut command = network.command(Place::Host(host), &options.program)?;
            command.arg("task").args(["--host", &host.to_string()]);
            command.arg("--agent").arg(socket).arg("--data").arg(data);
            if let Some(coordinator) = all.coordinator {
                command.args(["--coordinator", &coordinator.to_string()]);
            }
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            all.spawn_task(network, command, host, send.clone())?;
        }
        Ok(all)
    }

    /// Tells a host's task what to do.
    pub(super) fn tell(&mut self, host: usize, message: &ToTask) -> Result<(), LiveError> {
        let mut line = serde_json::to_vec(message).map_err(io::Error::from)?;
        line.push(b'\n');
        self.inputs[host]
            .write_all(&line)
            .map_err(|error| LiveError::Task { host, reason: error.to_string() })
    }

    pub(super) fn spawn(
        &mut self,
        network: &Network,
        role: Role,
        mut command: Command,
    ) -> Result<&mut Child, LiveError> {
        // Daemons would log that they begin and end, which the run says itself.
        if std::env::var_os("WEIR_LOG").is_none() {
            command.env("WEIR_LOG", "warn");
        }
        let child = leftovers::start_child(|| network.spawn(command))?;
        // Only root may raise priorities; for other users all processes stay equal.
        let _ = rustix::process::setpriority_process(leftovers::pid_of(&child), role.niceness());
        self.children.push((role, child));
        Ok(&mut self.children.last_mut().expect("a child was just pushed").1)
    }

    /// Processor seconds that the processes of a role have used so far.
    pub(super) fn cpu_secs(&self, role: Role) -> f64 {
        let ticks_per_sec = rustix::param::clock_ticks_per_second() as f64;
        let ticks = |child: &Child| -> Option<u64> {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).ok()?;
            // After the name in parentheses, fields count from 3; user and system time are 14 and 15.
            let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
            Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
        };
        let of_role = self.children.iter().filter(|(other, _)| *other == role);
        of_role.filter_map(|(_, child)| ticks(child)).sum::<u64>() as f64 / ticks_per_sec
    }

    fn spawn_task(
        &mut self,
        network: &Network,
        command: Command,
        host: usize,
        send: mpsc::Sender<(usize, io::Result<FromTask>)>,
    ) -> Result<(), LiveError> {
        let child = self.spawn(network, Role::Task, command)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(LiveError::Task { host, reason: "it has no standard input or output".to_owned() });
        };
        self.inputs.push(input);
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let message = line.and_then(|line| Ok(serde_json::from_str(&line)?));
                if send.send((host, message)).is_err() {
                    return;
                }
            }
            // A task that ended says nothing more: without this the driver would wait until it
            // calls that silence.
            let _ = send.send((host, Err(io::ErrorKind::UnexpectedEof.into())));
        });
        Ok(())
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.inputs.clear();
        // All at once, tasks first: a process that outlived the coordinator would report that it lost it.
        for (_, child) in self.children.iter_mut().rev() {
            let _ = child.kill();
        }
        for (_, child) in &mut self.children {
            leftovers::end_child(child);
        }
    }
}

fn millis(span: Span) -> String {
    (span.as_secs() * 1e3).to_string()
}

/// Waits until an agent serves its Unix socket.
fn wait_for(socket: &PathBuf) -> Result<(), LiveError> {
    let end = Instant::now() + START_LIMIT;
    while std::os::unix::net::UnixStream::connect(socket).is_err() {
        if Instant::now() > end {
            return Err(LiveError::NotServing(socket.clone()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
