//! The agent process of one host.
//!
//! One thread owns the state machine and all data connections (`data_plane`), another the journal (`scribe`). The async side
//! keeps a session with the coordinator and serves the host's tasks on a Unix socket; it reaches the
//! thread through a queue of `Command`s and never blocks it.

mod blocks;
mod connection;
mod data_plane;
mod files;
mod identity;
mod jobs;
mod journal;
mod log;
mod metrics;
mod naming;
mod places;
mod round_trips;
mod scribe;
mod service;
mod serving;
mod session;
mod spool;
mod stores;
mod tagging;
mod tags;
mod upload;
mod uploads;

pub use metrics::METRICS;
use naming::Naming;
use rustix::process::Signal;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
pub use tags::Tags;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use weir_core::agent::{AgentConfig, BlockEntry, Latencies, Place, PutError, StoreEntry, StoreError};
use weir_core::ids::{BlockKey, HostNumber};
use weir_model::{CoflowId, Rate, Span};
use weir_net::{Address, Clock, Interface, Poller, Waker};
use weir_proto::gather::Token;
use weir_proto::host::Host;
use weir_proto::{limits, v1};

/// What an agent process needs to know.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// This host's number or name, by which receivers know it.
    pub host: Host,
    /// Address that receivers reach the data plane at, if not the one it listens on.
    pub advertise: Option<Address>,
    /// Coordinator; without one every flow gets TCP's share.
    pub coordinator: Option<Address>,
    /// Directory of the journal, of spooled blocks and of the Unix socket `agent.sock`; the agent's alone.
    pub spool: PathBuf,
    /// Directories below which tasks may name files to serve.
    pub allow: Vec<PathBuf>,
    /// Directories below which files are put for receivers at other hosts that name them.
    pub share: Vec<PathBuf>,
    /// How long a new flow waits for its first plan before it takes TCP's share.
    pub first_plan_wait: Span,
    /// How often progress of moving flows is reported.
    pub report_interval: Span,
    /// A first event goes to the coordinator at once; those that follow within this time go together.
    pub batch: Span,
    /// Its rack, as the coordinator's topology calls it; empty if it is in none, or the topology says which.
    pub rack: String,
    /// What the host is like, each `key=value`.
    pub labels: Vec<String>,
    /// What the host's links carry, up and down, headers included. Where it is not said it is what a physical interface
    /// says, or as the coordinator has it.
    pub link_rates: [Option<Rate>; 2],
    /// Interface at which foreign traffic is measured.
    pub interface: InterfaceChoice,
    /// Relays that carry flows to and from other sites.
    pub relays: Option<SiteRelays>,
    /// What a put that was answered for outlives.
    pub durability: Durability,
    /// Number of the group whose members may be tasks of this host; without one, they run as the agent's own user.
    pub group: Option<u32>,
    /// Where metrics are served.
    pub metrics: Option<SocketAddr>,
    /// Who tells switches of what it serves.
    pub tags: Option<Arc<dyn Tags>>,
}

/// What a put that was answered for outlives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The agent's process. The journal is on the disk about a second later, and the block's bytes when the kernel writes them.
    #[default]
    Process,
    /// The machine: the block's bytes and the journal are on the disk before the put is answered.
    Machine,
}

/// The host's site, and the relays there that serve it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteRelays {
    /// Number of the host's site.
    pub site: u32,
    /// The relays' addresses, one at least.
    pub addresses: Vec<SocketAddr>,
}

/// Which interface stands for the host's link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterfaceChoice {
    /// None: nothing is measured.
    None,
    /// The one that leads to the coordinator; none, with a warning, where that cannot be told.
    Routed,
    /// The one of that name; it must exist.
    Named(String),
}

impl InterfaceChoice {
    fn open(&self, coordinator: Option<&Address>) -> std::io::Result<Option<Interface>> {
        let resolved = coordinator.map(Address::resolve);
        match (self, resolved) {
            (InterfaceChoice::None, _) | (_, None) => Ok(None),
            (InterfaceChoice::Named(name), _) => Ok(Some(Interface::named(name)?)),
            (InterfaceChoice::Routed, Some(Err(error))) => {
                tracing::warn!(%error, "foreign traffic is not measured: the coordinator's name is not known");
                Ok(None)
            }
            // Agents that share a machine share its loopback: there is no link to measure.
            (InterfaceChoice::Routed, Some(Ok(address))) if address.ip().is_loopback() => Ok(None),
            (InterfaceChoice::Routed, Some(Ok(address))) => Ok(Interface::towards(address)
                .inspect_err(|error| tracing::warn!(%address, %error, "foreign traffic is not measured"))
                .ok()),
        }
    }
}

impl AgentOptions {
    /// Options with the defaults of the command line, except that no interface is measured.
    pub fn new(host: impl Into<Host>, spool: PathBuf) -> AgentOptions {
        AgentOptions {
            host: host.into(),
            advertise: None,
            coordinator: None,
            spool,
            allow: Vec::new(),
            share: Vec::new(),
            first_plan_wait: Span::from_millis(100),
            report_interval: Span::from_millis(20),
            batch: Span::from_millis(1),
            rack: String::new(),
            labels: Vec::new(),
            link_rates: [None; 2],
            interface: InterfaceChoice::None,
            relays: None,
            durability: Durability::default(),
            group: None,
            metrics: None,
            tags: None,
        }
    }

    /// Where the host's tasks reach the agent.
    pub fn socket_path(&self) -> PathBuf {
        self.spool.join(SOCKET)
    }
}

/// Name of the socket in the spool.
const SOCKET: &str = "agent.sock";
/// Permissions of a socket that is open to a group.
const SOCKET_MODE: u32 = 0o660;
/// How often it is looked whether the host's links have become faster or slower.
const LINK_RATE_INTERVAL: Duration = Duration::from_secs(10);
/// Commands that may wait for the data-plane thread; a sender with another one waits.
const MAX_QUEUED_COMMANDS: usize = 4_096;

/// What the async side asks of the data-plane thread.
pub(crate) enum Command {
    Put(Box<BlockEntry>, oneshot::Sender<Result<(), PutError>>),
    /// The files of a block.
    Places(BlockKey, oneshot::Sender<Vec<BlockEntry>>),
    /// A file of a block is not what was put any more.
    PlaceGone(BlockKey, Place),
    /// An executor's files are to be served, or no longer.
    Attach(Box<StoreEntry>, oneshot::Sender<Result<(), StoreError>>),
    Detach(String, String, Token, oneshot::Sender<Result<(), StoreError>>),
    HasEnded(CoflowId, oneshot::Sender<bool>),
    Latencies(oneshot::Sender<Latencies>),
    Observe(oneshot::Sender<metrics::Said>),
    /// What became of a file that the coordinator asked for.
    Offered(v1::OfferAnswer),
    SessionUp(mpsc::Sender<v1::AgentMessage>, v1::TermsReply),
    SessionLost,
    /// The host has another agent.
    Refused,
    /// Another host has this one's number: it has another one from now on.
    Renumber(HostNumber),
    /// What the host's links carry has become another rate.
    LinkRates([Option<Rate>; 2]),
    Coordinator(v1::CoordinatorMessage),
    Stop,
}

/// How fast the host's links are said to be.
#[derive(Clone)]
struct Measured {
    /// The interface that stands for them,
    name: Option<String>,
    /// and what the process that started the agent said.
    said: [Option<Rate>; 2],
}

impl Measured {
    /// What is known now. A driver may take its time.
    async fn rates(self) -> [Option<Rate>; 2] {
        let said = self.said;
        let Some(name) = self.name.filter(|_| said.contains(&None)) else { return said };
        let speed = tokio::task::spawn_blocking(move || weir_net::link_speed(&name)).await;
        let of_interface = speed.ok().flatten().map(|bits| Rate::from_bytes_per_sec(bits as f64 / 8.0));
        said.map(|rate| rate.or(of_interface))
    }

    /// Tells what becomes of it, for as long as the agent lives.
    async fn watch(self, mut known: [Option<Rate>; 2], commands: Commands) {
        loop {
            tokio::time::sleep(LINK_RATE_INTERVAL).await;
            let rates = self.clone().rates().await;
            if rates != known && !commands.send(Command::LinkRates(rates)).await {
                return;
            }
            known = rates;
        }
    }
}

/// The way to the data-plane thread.
#[derive(Clone)]
pub(crate) struct Commands {
    queue: mpsc::Sender<Command>,
    waker: Waker,
}

impl Commands {
    /// Waits for room in the queue. False if the thread is gone.
    pub(crate) async fn send(&self, command: Command) -> bool {
        let sent = self.queue.send(command).await.is_ok();
        self.waker.wake();
        sent
    }
}

/// Serves `listener` (see [`weir_net::data_listener`]) until `stop` resolves.
///
/// # Errors
/// The spool, the interface, the address for metrics or the Unix socket cannot be used, the journal cannot be opened,
/// or the data-plane thread ends with an error.
pub async fn serve(
    options: AgentOptions,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send,
) -> anyhow::Result<()> {
    let (spool, lock) = spool::Spool::prepare(&options.spool, options.group)?;
    let data_address = match &options.advertise {
        Some(address) => address.clone(),
        None => listener.local_addr()?.into(),
    };
    // A limit on the size of files (ulimit -f) is a disk without room, and no reason to end: a signal that has a handler does not end the process.
    let _too_large = signal(SignalKind::from_raw(Signal::XFSZ.as_raw()))?;
    let clock = Clock::start();
    let interface = options.interface.open(options.coordinator.as_ref())?;
    let naming = Arc::new(Naming::new(options.host.clone(), &spool.own));
    let measured = Measured {
        name: interface.as_ref().map(|interface| interface.name().to_owned()),
        said: options.link_rates,
    };
    let links = measured.clone().rates().await;
    let config = AgentConfig {
        host: naming.number(),
        name: naming.name(),
        rack: options.rack.clone(),
        labels: options.labels.clone(),
        links,
        data_address: data_address.to_string(),
        incarnation: clock.now().nanos(),
        spool_identity: identity::of_spool(&spool.own)?,
        first_plan_wait: options.first_plan_wait,
        report_interval: options.report_interval,
        batch: options.batch,
        uplink: options.link_rates[0].map(Rate::payload),
        measures_interface: interface.is_some(),
    };
    let poller = Poller::new()?;
    let (queue, inbox) = mpsc::channel(MAX_QUEUED_COMMANDS);
    let commands = Commands { queue, waker: poller.waker() };
    let watched = crate::watching::listen(options.metrics).await?.map(|listener| {
        let (commands, disk) = (commands.clone(), metrics::Disk::new(options.spool.clone()));
        let has_coordinator = options.coordinator.is_some();
        let look = move || metrics::look(&commands, &disk, has_coordinator);
        tokio::spawn(weir_metrics::serve(listener, metrics::ALL, look))
    });
    let (relays, tags) = (options.relays.clone(), options.tags.clone());
    let runtime = tokio::runtime::Handle::current();
    let (asked, offers) = mpsc::channel(limits::MAX_OFFERS_PER_AGENT);
    let edge = data_plane::Edge { clock, listener, poller, runtime, interface, relays, tags, asked };
    let data_plane = data_plane::DataPlane::start(config, (&spool, lock), options.durability, edge, inbox)?;
    let (ended, thread_end) = oneshot::channel();
    let thread = std::thread::Builder::new().name("weir-data".to_owned()).spawn(move || {
        let result = data_plane.run();
        let _ = ended.send(());
        result
    })?;
    let coordinator = options.coordinator.clone().into_iter().collect();
    let sessions = session::Sessions { commands: commands.clone(), naming: Arc::clone(&naming) };
    let session = tokio::spawn(crate::session::keep(coordinator, sessions));
    let watch = tokio::spawn(measured.watch(links, commands.clone()));
    let local = service::serve(&options, &spool, (naming, data_address), commands.clone(), offers);
    let result = tokio::select! {
        result = local => result,
        _ = thread_end => Ok(()),
        () = stop => Ok(()),
    };
    session.abort();
    watch.abort();
    watched.into_iter().for_each(|watched| watched.abort());
    commands.send(Command::Stop).await;
    let joined = tokio::task::spawn_blocking(move || thread.join()).await?;
    joined.map_err(|_| anyhow::anyhow!("the data-plane thread panicked"))??;
    // Only once the thread has ended: until then tasks may still get answers.
    let _ = std::fs::remove_file(spool.socket());
    result
}
