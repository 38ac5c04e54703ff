//! Transports: how a flow is controlled and tagged at its sender, and what switches have to do for it.
//!
//! A transport is a [`Transport`] in the registry [`named`]; the simulator knows no other way to treat a flow.

mod beside;
mod d3;
mod hosts;
mod karuna;
mod known;
mod ordered;
mod planned;
mod rated;
mod settings;
mod windowed;

pub use crate::setup::{Recovery, Setup, Timeouts};
pub use beside::{Beside, Guide};
pub use hosts::{HostClasses, HostControl, OnHosts};
pub use known::{SETTINGS, SettingInfo};
pub use ordered::{ByTold, Ordered, Told};
pub use planned::{Planned, Plans, RatePlan};
pub use rated::{ByRateTold, RateTold, Rated};
pub use settings::SettingsError;

use crate::control::Control;
use crate::packet::{HEADER_BYTES, SEGMENT_BYTES};
use crate::setup::Buffer;
use crate::tagging::Tagging;
use crate::time::Picos;
use settings::Settings;
use thiserror::Error;
use weir_model::{Bytes, Rate};
use weir_trace::{FlowArrival, FlowKind, FlowSizes, Mix};

/// Flows that are to come, as thresholds are made for them.
#[derive(Clone, Debug)]
pub struct TrafficFacts {
    /// How large they are.
    pub sizes: FlowSizes,
    /// Load of hosts' links, above 0; from 1 on, queues grow without end.
    pub load: f64,
    /// Shares of flows with deadlines and with known sizes.
    pub mix: Mix,
}

/// What a transport may know of the network.
#[derive(Clone, Debug)]
pub struct Network {
    /// Of every host's link.
    pub host_rate: Rate,
    /// The longest round trip of a full segment where nothing waits.
    pub round_trip: Picos,
    /// Packets of a flow may overtake each other.
    pub reorders: bool,
    /// What switches have for each port, if the transport does not ask for another.
    pub buffer: Buffer,
    /// Above this queue DCTCP and its kin are marked.
    pub marking: Bytes,
    /// The minimum of retransmission timeouts, where the transport has no other.
    pub least_timeout: Picos,
    /// The window that a flow begins with, where the transport has no other.
    pub initial_window: f64,
    /// What is known of the flows that will come.
    pub traffic: Option<TrafficFacts>,
}

impl Network {
    /// Full segments that are on their way when a path is just full.
    pub fn segments_in_flight(&self) -> f64 {
        let bytes = self.host_rate.bytes_per_sec() * self.round_trip.as_secs();
        (bytes / f64::from(SEGMENT_BYTES + HEADER_BYTES)).ceil()
    }
}

/// How one flow is sent.
pub struct Sending {
    /// Its congestion control, made for this flow alone.
    pub control: Box<dyn Control>,
    /// How its packets get their class or rank.
    pub tagging: Tagging,
    /// How its losses are found.
    pub recovery: Recovery,
    /// How long it waits.
    pub timeouts: Timeouts,
}

/// How flows are sent, and what switches and receivers do for them.
pub trait Transport: Send + Sync {
    /// Gets ready for a network, before all else.
    fn prepare(&mut self, _network: &Network) {}
    /// What it needs of switches and receivers.
    fn setup(&self, network: &Network) -> Setup;
    /// The last class that it has: where what may wait goes. No packet of it is of a later one.
    fn last_class(&self) -> u8;
    /// How it sends a flow.
    fn sending(&self, flow: &FlowArrival, network: &Network) -> Sending;
    /// The same for real hosts and switches; none where these cannot do it.
    fn on_hosts(&self, _network: &Network) -> Option<OnHosts> {
        None
    }
}

/// Why there is no such transport.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TransportError {
    /// The name is not in the registry.
    #[error("no transport is called `{name}`; {}there are {}", weir_model::meant(name, names()), names().collect::<Vec<_>>().join(", "))]
    Unknown {
        /// The name asked for.
        name: String,
    },
    /// A setting behind the name is wrong.
    #[error("transport `{name}`: {error}")]
    Setting {
        /// Name of the transport asked for.
        name: String,
        /// Which of its settings is wrong, and why.
        error: SettingsError,
    },
}

/// Makes a transport of its settings.
type Make = fn(&mut Settings<'_>) -> Result<Box<dyn Transport>, SettingsError>;

/// A line of the registry.
struct Entry {
    name: &'static str,
    summary: &'static str,
    make: Make,
}

const REGISTRY: [Entry; 8] = [
    Entry { name: "tcp", summary: "TCP: one queue, loss alone (RFC 5681, 6675)", make: windowed::tcp },
    Entry {
        name: "dctcp",
        summary: "DCTCP: marks above a threshold, windows shrink by their share (SIGCOMM 2010)",
        make: windowed::dctcp,
    },
    Entry {
        name: "d3",
        summary: "D3: flows ask switches for the rate that meets their deadline, first come first served (SIGCOMM 2011)",
        make: d3::d3,
    },
    Entry {
        name: "d2tcp",
        summary: "D2TCP: DCTCP with an exponent for urgency (SIGCOMM 2012)",
        make: windowed::d2tcp,
    },
    Entry {
        name: "pias",
        summary: "PIAS: DCTCP, classes by bytes sent; knows no size (NSDI 2015)",
        make: windowed::pias,
    },
    Entry {
        name: "pfabric",
        summary: "pFabric: ports order and drop by what is left of a flow (SIGCOMM 2013)",
        make: windowed::pfabric,
    },
    Entry {
        name: "pfabric-edf",
        summary: "pFabric: flows with deadlines first, by deadline; the others by what is left",
        make: windowed::pfabric_edf,
    },
    Entry {
        name: "karuna",
        summary: "Karuna: deadlines just in time in the first class, others by size or by bytes sent (SIGCOMM 2016)",
        make: karuna::karuna,
    },
];

/// When a flow has to be done.
pub(crate) fn deadline_of(flow: &FlowArrival) -> Option<Picos> {
    match flow.kind {
        FlowKind::Deadline { within } => Some(Picos::from(flow.arrival) + Picos::from(within)),
        FlowKind::Known | FlowKind::Unknown | FlowKind::Planned(_) => None,
    }
}

/// The names of all transports.
pub fn names() -> impl Iterator<Item = &'static str> {
    REGISTRY.iter().map(|entry| entry.name)
}

/// Name and one line of each transport.
pub fn summaries() -> impl Iterator<Item = (&'static str, &'static str)> {
    REGISTRY.iter().map(|entry| (entry.name, entry.summary))
}

/// The transport of a name, with its settings behind it: `dctcp`, `dctcp:marking=30kB:init=10`.
///
/// # Errors
/// No transport has the name, it has no such setting, or the setting no such value.
pub fn named(text: &str) -> Result<Box<dyn Transport>, TransportError> {
    let mut parts = text.split(':');
    let name = parts.next().unwrap_or_default();
    let entry = REGISTRY
        .iter()
        .find(|entry| entry.name == name)
        .ok_or_else(|| TransportError::Unknown { name: name.to_owned() })?;
    let wrong = |error| TransportError::Setting { name: name.to_owned(), error };
    let mut settings = Settings::read(parts).map_err(wrong)?;
    let transport = (entry.make)(&mut settings).map_err(wrong)?;
    // After the transport has asked for all settings that it has: what is left over it does not
    // know.
    settings.end().map_err(wrong)?;
    Ok(transport)
}
