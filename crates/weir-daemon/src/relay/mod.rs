//! The relay process: takes flows from hosts of its site and from other relays, and sends them on.
//!
//! One thread owns the state machine and all connections (`data_plane`). The async side keeps a session with the
//! controller, and hands what it says to the thread through a queue of `Command`s. Payload goes from socket to pipe
//! to socket by splice.

mod data_plane;
mod link;
mod metrics;
mod rules_file;
mod session;

pub use metrics::METRICS;
pub use rules_file::{RulesError, StaticRules};

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use tokio::sync::{mpsc, oneshot};
use weir_core::relay::{RelayConfig, WINDOW_BYTES};
use weir_model::Rate;
use weir_net::{Clock, Poller, Waker};
use weir_proto::v1;

/// What a relay process needs to know.
#[derive(Clone, Debug)]
pub struct RelayOptions {
    /// Its name, unique among all relays.
    pub name: String,
    /// Number of the site that it stands in.
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
    /// Where metrics are served.
    pub metrics: Option<SocketAddr>,
}

/// The most that one connection to a neighbour carries; where nothing is said, all it can.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConnectionRates {
    /// To sites that are not in `sites`.
    pub others: Option<Rate>,
    /// To neighbours in these sites, by number of the site.
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
            metrics: None,
        }
    }
}

/// Commands that wait for the thread. A controller that says more is not read until the thread has taken some: each
/// message may have up to 64 MiB.
const MAX_WAITING_COMMANDS: usize = 16;

/// What the async side tells the thread.
enum Command {
    SessionUp(mpsc::Sender<v1::FromRelay>),
    SessionLost,
    Controller(v1::ToRelay),
    Observe(oneshot::Sender<metrics::Said>),
    Stop,
}

/// The way to the thread.
#[derive(Clone)]
struct Commands {
    queue: mpsc::Sender<Command>,
    waker: Waker,
}

impl Commands {
    /// The way to a thread that `waker` wakes, and what the thread takes commands from.
    fn new(waker: Waker) -> (Commands, mpsc::Receiver<Command>) {
        let (queue, inbox) = mpsc::channel(MAX_WAITING_COMMANDS);
        (Commands { queue, waker }, inbox)
    }

    /// Waits while the queue is full. False if the thread is gone.
    async fn send(&self, command: Command) -> bool {
        let sent = self.queue.send(command).await.is_ok();
        self.waker.wake();
        sent
    }
}

/// Serves `listener` (see [`weir_net::data_listener`]) until `stop` resolves.
///
/// # Errors
/// The listener or the address for metrics cannot be used, or the relay's thread fails.
pub async fn serve(
    options: RelayOptions,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send,
) -> anyhow::Result<()> {
    let address = options.advertise.map_or_else(|| listener.local_addr(), Ok)?;
    let clock = Clock::start();
    let started_ms = clock.now().nanos() / 1_000_000;
    let config = RelayConfig {
        name: options.name,
        site: options.site,
        address,
        started_ms,
        window_bytes: WINDOW_BYTES,
    };
    let poller = Poller::new()?;
    let (commands, inbox) = Commands::new(poller.waker());
    let watched = crate::watching::listen(options.metrics).await?.map(|listener| {
        let commands = commands.clone();
        tokio::spawn(weir_metrics::serve(listener, metrics::ALL, move || metrics::look(&commands)))
    });
    let edge = data_plane::Edge {
        clock,
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
    // Only now that the thread takes them: there may be more rules than the queue holds.
    for message in options.rules.iter().flat_map(StaticRules::messages) {
        commands.send(Command::Controller(message)).await;
    }
    let session = tokio::spawn(crate::session::keep(
        options.controllers.into_iter().map(Into::into).collect(),
        commands.clone(),
    ));
    tokio::select! {
        _ = thread_end => {}
        () = stop => {}
    }
    session.abort();
    watched.into_iter().for_each(|watched| watched.abort());
    commands.send(Command::Stop).await;
    let joined = tokio::task::spawn_blocking(move || thread.join()).await?;
    joined.map_err(|_| anyhow::anyhow!("the relay's thread panicked"))??;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::task::Poll;

    /// 16 messages wait; the 17th is sent only once the thread has taken one.
    #[tokio::test]
    async fn controller_waits_while_the_thread_takes_no_commands() -> anyhow::Result<()> {
        let poller = Poller::new()?;
        let (commands, mut inbox) = Commands::new(poller.waker());
        for _ in 0..MAX_WAITING_COMMANDS {
            assert!(commands.send(Command::Controller(v1::ToRelay::default())).await);
        }
        let mut seventeenth = Box::pin(commands.send(Command::Controller(v1::ToRelay::default())));
        let waits = poll_fn(|context| Poll::Ready(seventeenth.as_mut().poll(context).is_pending())).await;
        assert!(waits);
        assert!(inbox.try_recv().is_ok());
        assert!(seventeenth.await);
        Ok(())
    }
}
