//! The processes of one run: started, waited for until they serve, and ended with the run.

use super::protocol::{FromTask, ToTask};
use super::run::{LiveError, LiveOptions, Network};
use crate::Place;
use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Port of the coordinator, and of agents in a bed; on loopback agents count up from theirs.
const COORDINATOR_PORT: u16 = 7070;
const DATA_PORT: u16 = 7071;
/// How long the processes may take to serve.
const START_LIMIT: Duration = Duration::from_secs(30);

/// Every process of a run. Dropping ends them.
pub(super) struct Processes {
    children: Vec<Child>,
    inputs: Vec<ChildStdin>,
    pub(super) coordinator: Option<SocketAddr>,
    pub(super) agents: Vec<SocketAddr>,
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
            agents: Vec::new(),
            said,
        };
        if let Some(policy) = &options.policy {
            let address = SocketAddr::new(network.control_address(), network.port(COORDINATOR_PORT)?);
            let mut command = network.command(Place::Control, &options.program)?;
            command
                .arg("coordinator")
                .args(["--policy", policy])
                .args(["--listen", &address.to_string()])
                .args(["--hosts", &options.hosts.to_string()])
                .args(["--link-rate", &format!("{}bit", options.link_rate.bits_per_sec())])
                .args(["--plan-share", &options.plan_share.to_string()])
                .stdin(Stdio::null());
            all.spawn(network, command)?;
            all.coordinator = Some(address);
        }
        let mut sockets = Vec::new();
        for host in 0..options.hosts {
            let address = SocketAddr::new(network.address(host), network.port(DATA_PORT)?);
            let spool = dir.join(format!("spool-{host}"));
            let mut command = network.command(Place::Host(host), &options.program)?;
            command
                .arg("agent")
                .args(["--host", &host.to_string()])
                .args(["--listen", &address.to_string()])
                .arg("--spool")
                .arg(&spool)
                .arg("--allow")
                .arg(dir)
                .stdin(Stdio::null());
            if let Some(coordinator) = all.coordinator {
                command.args(["--coordinator", &coordinator.to_string()]);
            }
            all.spawn(network, command)?;
            all.agents.push(address);
            sockets.push(spool.join("agent.sock"));
        }
        for (host, socket) in sockets.iter().enumerate() {
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

    fn spawn(&mut self, network: &Network, command: Command) -> Result<&mut Child, LiveError> {
        let child = network.spawn(command)?;
        self.children.push(child);
        Ok(self.children.last_mut().expect("a child was just pushed"))
    }

    fn spawn_task(
        &mut self,
        network: &Network,
        command: Command,
        host: usize,
        send: mpsc::Sender<(usize, io::Result<FromTask>)>,
    ) -> Result<(), LiveError> {
        let child = self.spawn(network, command)?;
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
            let _ = send.send((host, Err(io::ErrorKind::UnexpectedEof.into())));
        });
        Ok(())
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.inputs.clear();
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
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
