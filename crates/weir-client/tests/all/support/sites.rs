//! Sites with relays and one host each, on loopback.

use super::proxy::Link;
use std::net::{SocketAddr, TcpListener};
use tokio::sync::oneshot;
use weir_client::{Client, ClientConfig};
use weir_daemon::agent::{AgentOptions, SiteRelays};
use weir_daemon::relay::RelayOptions;
use weir_model::Rate;

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// A relay, behind a link that can be cut.
pub(crate) struct RunningRelay {
    options: RelayOptions,
    pub(crate) listens: SocketAddr,
    pub(crate) link: Link,
    stop: Option<oneshot::Sender<()>>,
    ended: Option<tokio::task::JoinHandle<anyhow::Result<()>>>,
}

impl RunningRelay {
    async fn start(name: &str, site: u32, controllers: &[SocketAddr]) -> RunningRelay {
        let listener = weir_net::data_listener(any_port()).unwrap();
        let listens = listener.local_addr().unwrap();
        let link = Link::to(listens).await;
        let advertise = Some(link.address);
        let controllers = controllers.to_vec();
        let options = RelayOptions { controllers, advertise, ..RelayOptions::new(name, site) };
        let mut relay = RunningRelay { options, listens, link, stop: None, ended: None };
        relay.serve(listener);
        relay
    }

    fn serve(&mut self, listener: TcpListener) {
        let (stop, stopped) = oneshot::channel::<()>();
        let serve = weir_daemon::relay::serve(self.options.clone(), listener, async move {
            let _ = stopped.await;
        });
        (self.stop, self.ended) = (Some(stop), Some(tokio::spawn(serve)));
    }

    /// Ends it without a word to anyone: its connections close, as those of a process that is killed.
    pub(crate) async fn kill(&mut self) {
        self.stop = None;
        if let Some(ended) = self.ended.take() {
            ended.await.unwrap().unwrap();
        }
    }

    /// A new process with one connection to each neighbour, which carries so much.
    pub(crate) async fn restart_with(&mut self, rate: Rate) {
        self.kill().await;
        self.options.connections = 1;
        self.options.connection_rates.others = Some(rate);
        self.restart();
    }

    /// After it was killed: a new process at the same place.
    pub(crate) fn restart(&mut self) {
        self.serve(weir_net::data_listener(self.listens).unwrap());
    }
}

/// One host per site. Relays are named by site and number: `0-0`, `0-1`, `1-0`.
pub(crate) struct Sites {
    dir: tempfile::TempDir,
    agents: Vec<SocketAddr>,
    relays: Vec<RunningRelay>,
}

impl Sites {
    /// So many relays at each site.
    pub(crate) async fn start(relays: &[usize], controllers: &[SocketAddr]) -> Sites {
        let dir = tempfile::tempdir().unwrap();
        let (mut agents, mut running) = (Vec::new(), Vec::new());
        for (site, &count) in (0u32..).zip(relays) {
            let mut addresses = Vec::new();
            for number in 0..count {
                let relay = RunningRelay::start(&format!("{site}-{number}"), site, controllers).await;
                addresses.push(relay.link.address);
                running.push(relay);
            }
            let listener = weir_net::data_listener(any_port()).unwrap();
            agents.push(listener.local_addr().unwrap());
            let mut options = AgentOptions::new(site, dir.path().join(format!("spool-{site}")));
            options.allow = vec![dir.path().to_owned()];
            options.relays = Some(SiteRelays { site, addresses });
            tokio::spawn(weir_daemon::agent::serve(options, listener, std::future::pending()));
        }
        Sites { dir, agents, relays: running }
    }

    /// A client at the host of a site.
    pub(crate) fn client(&self, site: u32) -> Client {
        let agent = self.dir.path().join(format!("spool-{site}")).join("agent.sock");
        Client::new(ClientConfig { coordinator: None, agent: Some(agent), host: site })
    }

    /// The relay of that name.
    pub(crate) fn relay(&mut self, name: &str) -> &mut RunningRelay {
        self.relays.iter_mut().find(|relay| relay.options.name == name).unwrap()
    }

    /// Where the agent of a site's host serves.
    pub(crate) fn agent(&self, site: usize) -> SocketAddr {
        self.agents[site]
    }
}

/// Bytes that a seed stands for.
pub(crate) fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let next = |state: &mut u64| {
        *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (*state >> 56) as u8
    };
    (0..length).map(|_| next(&mut state)).collect()
}
