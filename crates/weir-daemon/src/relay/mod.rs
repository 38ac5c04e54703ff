//! The relay process: takes flows from hosts of its site and from other relays, and sends them on.
//!
//! One thread owns the state machine and all connections (`data_plane`). The async side keeps a session with the
//! controller, and hands what it says to the thread through a queue of `Command`s. Payload goes from socket to pipe
//! to socket by splice.

mod data_plane;
mod link;
mod neighbours;
mod rules_file;
mod session;

pub use rules_file::{RulesError, StaticRules};

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc as sync_mpsc;
use tokio::sync::{mpsc, oneshot};
use weir_core::relay::RelayConfig;
use weir_model::Rate;
use weir_net::{Clock, Poller, Waker};
use weir_proto::v1;

/// What a relay process needs to know.
#[derive(Clone, Debug)]
pub struct RelayOptions {
    /// Its name, unique among all relays.
    pub name: String,
    /// Its site.
    pub site: u32,
    /// Where other relays and hosts reach it, if not the address it listens on.
    pub advertise: Option<SocketAddr>,
    /// Servers of the controller, which says which way flows go; the first that can be reached is taken. Without any,
    /// `rules` or the direct way.
    pub controllers: Vec<SocketAddr>,
    /// Relays and rules that hold until a controller says others.
    pub rules: Option<StaticRules>,
    /// Parallel connections to each neighbour.
    pub connections: u8,
    /// The most that one of them carries.
    pub connection_rates: ConnectionRates,
}

/// The most that one connection to a neighbour carries; where nothing is said, all it can.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConnectionRates {
    /// To sites that are not in `sites`.
    pub others: Option<Rate>,
    /// To these sites.
    pub sites: BTreeMap<u32, Rate>,
}

impl ConnectionRates {
    fn to_site(&self, site: u32) -> Option<Rate> {
        self.sites.get(&site).copied().or(self.others)
    }
}

impl RelayOptions {
    /// Options with the defaults of the command line.
    pub fn new(name: &str, site: u32) -> RelayOptions {
        RelayOptions {
            name: name.to_owned(),
            site,
            advertise: None,
            controllers: Vec::new(),
            rules: None,
            connections: 4,
            connection_rates: ConnectionRates::default(),
        }
    }
}

/// What the async side tells the thread.
enum Command {
    SessionUp(mpsc::Sender<v1::FromRelay>),
    SessionLost,
    Controller(v1::ToRelay),
    Stop,
}

/// The way to the thread.
#[derive(Clone)]
struct Commands {
    queue: sync_mpsc::Sender<Command>,
    waker: Waker,
}

impl Commands {
    /// False if the thread is gone.
    fn send(&self, command: Command) -> bool {
        let sent = self.queue.send(command).is_ok();
        self.waker.wake();
        sent
    }
}

/// Serves `listener` (see [`weir_net::data_listener`]) until `stop` resolves.
pub async fn serve(
    options: RelayOptions,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send,
) -> anyhow::Result<()> {
    let address = options.advertise.map_or_else(|| listener.local_addr(), Ok)?;
    let config = RelayConfig { name: options.name, site: options.site, address };
    let poller = Poller::new()?;
    let (queue, inbox) = sync_mpsc::channel();
    let commands = Commands { queue, waker: poller.waker() };
    for message in options.rules.iter().flat_map(StaticRules::messages) {
        commands.send(Command::Controller(message));
    }
    let edge = data_plane::Edge {
        clock: Clock::start(),
        listener,
        poller,
        connections: options.connections,
        connection_rates: options.connection_rates,
    };
    let data_plane = data_plane::DataPlane::start(config, edge, inbox)?;
    let (ended, thread_end) = oneshot::channel();
    let thread = std::thread::Builder::new().name("weir-relay".to_owned()).spawn(move || {
        let result = data_plane.run();
        let _ = ended.send(());
        result
    })?;
    let session = tokio::spawn(crate::session::keep(
        options.controllers.into_iter().map(Into::into).collect(),
        commands.clone(),
    ));
    tokio::select! {
        _ = thread_end => {}
        () = stop => {}
    }
    session.abort();
    commands.send(Command::Stop);
    let joined = tokio::task::spawn_blocking(move || thread.join()).await?;
    joined.map_err(|_| anyhow::anyhow!("the relay's thread panicked"))??;
    Ok(())
}
