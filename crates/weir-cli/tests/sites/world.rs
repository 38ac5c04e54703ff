//! Three sites with a host each, the relays between them, and a controller of several processes around a Redis.

use super::plan::{CONTROLLERS, RELAYS, SITES, Victim};
use crate::support::process::{Process, weir};
use crate::support::proxy::Link;
use crate::support::redis::RedisServer;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use weir_client::{Client, ClientConfig};
use weir_controller::store::RedisStore;
use weir_testbed::free_address;

/// A process that can be started again as it was.
struct Daemon {
    arguments: Vec<String>,
    process: Option<Process>,
}

pub(crate) struct World {
    dir: PathBuf,
    redis: RedisServer,
    daemons: BTreeMap<Victim, Daemon>,
    /// By relay: agents, receivers and other relays reach it by its link alone.
    links: Vec<Link>,
    agents: Vec<Process>,
    agent_addresses: Vec<SocketAddr>,
}

impl World {
    /// All of it. Without a Redis on this machine: none.
    pub(crate) async fn start(dir: &Path, bytes_per_sec: f64) -> Option<World> {
        let redis = RedisServer::start()?;
        let mut world = World {
            dir: dir.to_owned(),
            redis,
            daemons: BTreeMap::new(),
            links: Vec::new(),
            agents: Vec::new(),
            agent_addresses: Vec::new(),
        };
        let servers = world.start_controller();
        for (number, (name, site)) in RELAYS.into_iter().enumerate() {
            let listen = free_address().unwrap();
            let link = Link::paced(listen, bytes_per_sec).await;
            let options = format!(
                "relay --name {name} --site {site} --listen {listen} --advertise {} --controller {servers}",
                link.address
            );
            world.links.push(link);
            world.start_daemon(Victim::Relay(number), &options);
        }
        (0..SITES as u32).for_each(|site| world.start_agent(site));
        Some(world)
    }

    /// Servers and decision makers; where the servers are.
    fn start_controller(&mut self) -> String {
        let (store, mut servers) = (self.redis.url(), Vec::new());
        for number in 0..CONTROLLERS {
            let listen = free_address().unwrap();
            let options = format!("controller serve --store {store} --listen {listen} --lease-ms 200");
            self.start_daemon(Victim::Server(number), &options);
            let options = format!("controller decide --store {store} --seed {}", number + 1);
            self.start_daemon(Victim::Decider(number), &options);
            servers.push(listen.to_string());
        }
        servers.join(",")
    }

    fn start_agent(&mut self, site: u32) {
        let listen = free_address().unwrap();
        let relays = RELAYS.iter().zip(&self.links).filter(|((_, at), _)| *at == site);
        let relays: Vec<String> = relays.map(|(_, link)| link.address.to_string()).collect();
        let mut arguments: Vec<String> = ["agent", "--host", &site.to_string(), "--site", &site.to_string()]
            .into_iter()
            .map(str::to_owned)
            .collect();
        arguments.extend(["--listen".to_owned(), listen.to_string(), "--relay".to_owned(), relays.join(",")]);
        arguments.extend(["--spool".to_owned(), self.spool(site).to_string_lossy().into_owned()]);
        let process = self.spawn(&arguments);
        self.agents.push(process);
        self.agent_addresses.push(listen);
    }

    fn start_daemon(&mut self, name: Victim, options: &str) {
        let arguments: Vec<String> = options.split(' ').map(str::to_owned).collect();
        let process = Some(self.spawn(&arguments));
        self.daemons.insert(name, Daemon { arguments, process });
    }

    fn spawn(&self, arguments: &[String]) -> Process {
        let log = OpenOptions::new().create(true).append(true).open(self.dir.join("log")).unwrap();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut command = weir(&arguments);
        Process::spawn(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log))
    }

    /// It is gone from one moment to the next.
    pub(crate) fn fail(&mut self, victim: Victim) {
        match victim {
            Victim::Redis => self.redis.kill(),
            Victim::Link(number) => self.links[number].take_down(),
            daemon => self.daemons.get_mut(&daemon).unwrap().process = None,
        }
    }

    /// It is there again, and knows nothing of before.
    pub(crate) fn restore(&mut self, victim: Victim) {
        match victim {
            Victim::Redis => self.redis.resume(),
            Victim::Link(number) => self.links[number].mend(),
            daemon => {
                let process = self.spawn(&self.daemons[&daemon].arguments);
                self.daemons.get_mut(&daemon).unwrap().process = Some(process);
            }
        }
    }

    /// What servers and decision makers have in common.
    pub(crate) fn store(&self) -> RedisStore {
        RedisStore::new(&self.redis.url(), "weir:").unwrap()
    }

    /// A client at the host of a site.
    pub(crate) fn client(&self, site: u32) -> Client {
        let agent = Some(self.spool(site).join("agent.sock"));
        Client::new(ClientConfig { coordinator: None, agent, host: site })
    }

    /// Where the agent of a site's host serves.
    pub(crate) fn agent(&self, site: u32) -> SocketAddr {
        self.agent_addresses[site as usize]
    }

    fn spool(&self, site: u32) -> PathBuf {
        self.dir.join(format!("spool-{site}"))
    }

    /// What the processes had to say.
    pub(crate) fn log(&self) -> String {
        let text = std::fs::read(self.dir.join("log")).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Ends everything in good order and names what did not end well, or had ended before.
    pub(crate) fn end(&mut self) -> Vec<String> {
        let agents = std::mem::take(&mut self.agents).into_iter();
        let agents = agents.map(|process| ("agent".to_owned(), process));
        let daemons = std::mem::take(&mut self.daemons).into_iter();
        let daemons = daemons.filter_map(|(name, daemon)| Some((format!("{name:?}"), daemon.process?)));
        let ended = agents.chain(daemons).map(|(name, process)| (name, process.end(Some(Signal::TERM))));
        ended.filter_map(|(name, how)| Some(format!("{name}: {}", how.err()?))).collect()
    }
}
