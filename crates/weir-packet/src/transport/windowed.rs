//! Transports of windows in the manner of TCP: NewReno, DCTCP, D2TCP, PIAS, pFabric.

use super::hosts::{HostClasses, HostControl, OnHosts};
use super::settings::{Settings, SettingsError};
use super::{Network, Recovery, Sending, Setup, Timeouts, TrafficFacts, Transport, deadline_of};
use crate::control::{Dctcp, LineRate, Reno, Urgency};
use crate::packet::{HEADER_BYTES, SEGMENT_BYTES};
use crate::receiver::Acknowledging;
use crate::setup::{Buffer, Discipline, Marking};
use crate::tagging::Tagging;
use crate::time::{PerByte, Picos};
use std::num::NonZeroUsize;
use std::sync::Arc;
use weir_endhost::tagging::{CLASSES, ClassLaw};
use weir_endhost::thresholds::{self, Service, Thresholds, Traffic, Urgent};
use weir_model::{Bytes, Span};
use weir_trace::{FlowArrival, Mix};

/// The paper's weight of the newest round (DCTCP, section 3.3).
const DCTCP_GAIN: f64 = 1.0 / 16.0;
/// How long a receiver may hold an acknowledgement back.
const DELAYED_ACK: Picos = Picos::from_micros(500);
/// pFabric: buffers and timeouts in round trips' worth (sections 4.3 and 5.2).
const PFABRIC_BUFFER_ROUND_TRIPS: f64 = 2.0;
const PFABRIC_TIMEOUT_ROUND_TRIPS: f64 = 3.0;
/// pFabric: timeouts in a row before a flow probes (section 4.2).
const PFABRIC_PROBES_AFTER: u32 = 5;
/// Whose thresholds are taken where traffic is not known.
const PUBLISHED_FOR: (&str, f64) = ("web-search", 0.8);
const THRESHOLD_SEED: u64 = 1;
const LARGEST_WINDOW: f64 = 1e6;

/// The setting `recovery`: how losses are found; none where the network decides.
pub(super) fn recovery(settings: &mut Settings<'_>) -> Result<Option<Recovery>, SettingsError> {
    Ok(match settings.word("recovery", &["auto", "sack", "newreno", "selective", "timed"])? {
        "sack" => Some(Recovery::Sack),
        "newreno" => Some(Recovery::NewReno),
        "selective" => Some(Recovery::Selective),
        "timed" => Some(Recovery::Timed),
        _ => None,
    })
}

/// How losses are found where the setting leaves it to the network: where packets overtake each other their order says
/// nothing.
pub(super) fn recovery_in(network: &Network, set: Option<Recovery>) -> Recovery {
    set.unwrap_or(if network.reorders { Recovery::Timed } else { Recovery::Sack })
}

/// What all transports of this file can be told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Common {
    initial: Option<f64>,
    least_timeout: Option<Picos>,
    acknowledging: Acknowledging,
    recovery: Option<Recovery>,
}

impl Common {
    pub(super) fn read(settings: &mut Settings<'_>) -> Result<Common, SettingsError> {
        Ok(Common {
            initial: settings.number("init", 1.0..=LARGEST_WINDOW)?,
            least_timeout: settings.quantity::<Span>("rto")?.map(Picos::from),
            acknowledging: match settings.word("acks", &["each", "delayed"])? {
                "delayed" => Acknowledging::Delayed(DELAYED_ACK),
                _ => Acknowledging::Each,
            },
            recovery: recovery(settings)?,
        })
    }

    /// The window to begin with.
    pub(super) fn initial(&self, network: &Network) -> f64 {
        self.initial.unwrap_or(network.initial_window)
    }
    pub(super) fn timeouts(&self, network: &Network) -> Timeouts {
        Timeouts::AtLeast(self.least_timeout.unwrap_or(network.least_timeout))
    }
    /// `first` and `others` are where packets of the first class and of others are marked.
    pub(super) fn setup(&self, network: &Network, first: Marking, others: Marking) -> Setup {
        Setup {
            discipline: Discipline::Classes { first, others, reserved: Bytes(0) },
            buffer: network.buffer,
            acknowledging: self.acknowledging,
            ages_after: None,
            probes_after: None,
            gives: None,
        }
    }
    pub(super) fn sending(
        &self,
        control: Box<dyn crate::control::Control>,
        tagging: impl Into<Tagging>,
        network: &Network,
    ) -> Sending {
        Sending {
            control,
            tagging: tagging.into(),
            recovery: recovery_in(network, self.recovery),
            timeouts: self.timeouts(network),
        }
    }
}

struct Tcp(Common);

pub(super) fn tcp(settings: &mut Settings<'_>) -> Result<Box<dyn Transport>, SettingsError> {
    Ok(Box::new(Tcp(Common::read(settings)?)))
}

impl Transport for Tcp {
    fn setup(&self, network: &Network) -> Setup {
        self.0.setup(network, Marking::Off, Marking::Off)
    }
    fn last_class(&self) -> u8 {
        0
    }
    fn sending(&self, _: &FlowArrival, network: &Network) -> Sending {
        self.0.sending(Box::new(Reno::new(self.0.initial(network))), ClassLaw::Fixed(0), network)
    }
    fn on_hosts(&self, _: &Network) -> Option<OnHosts> {
        Some(OnHosts { control: HostControl::Reno, classes: None, marking: None })
    }
}

/// What transports that are marked can be told beside.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marked {
    pub(super) common: Common,
    threshold: Option<Bytes>,
    gain: f64,
    /// Marks go by all classes of a port.
    per_port: bool,
}

impl Marked {
    pub(super) fn read(settings: &mut Settings<'_>) -> Result<Marked, SettingsError> {
        Ok(Marked {
            common: Common::read(settings)?,
            threshold: settings.quantity("marking")?,
            gain: settings.number("gain", 1e-3..=1.0)?.unwrap_or(DCTCP_GAIN),
            per_port: settings.word("marks", &["port", "queue"])? == "port",
        })
    }
    /// The queue above which packets are marked.
    pub(super) fn threshold(&self, network: &Network) -> Bytes {
        self.threshold.unwrap_or(network.marking)
    }
    pub(super) fn setup(&self, network: &Network) -> Setup {
        let marking = self.marking(network);
        self.common.setup(network, marking, marking)
    }
    /// Where packets are marked.
    pub(super) fn marking(&self, network: &Network) -> Marking {
        let threshold = self.threshold(network);
        if self.per_port { Marking::PerPort(threshold) } else { Marking::PerQueue(threshold) }
    }
    pub(super) fn control(&self, network: &Network, urgency: Option<Urgency>) -> Dctcp {
        Dctcp::new(self.common.initial(network), self.gain, urgency)
    }
}

struct DctcpTransport {
    marked: Marked,
    /// Whether it is D2TCP, which heeds deadlines.
    heeds_deadlines: bool,
}

pub(super) fn dctcp(settings: &mut Settings<'_>) -> Result<Box<dyn Transport>, SettingsError> {
    Ok(Box::new(DctcpTransport { marked: Marked::read(settings)?, heeds_deadlines: false }))
}

pub(super) fn d2tcp(settings: &mut Settings<'_>) -> Result<Box<dyn Transport>, SettingsError> {
    Ok(Box::new(DctcpTransport { marked: Marked::read(settings)?, heeds_deadlines: true }))
}

impl Transport for DctcpTransport {
    fn setup(&self, network: &Network) -> Setup {
        self.marked.setup(network)
    }
    fn last_class(&self) -> u8 {
        0
    }
    fn sending(&self, flow: &FlowArrival, network: &Network) -> Sending {
        let urgency = deadline_of(flow).filter(|_| self.heeds_deadlines).map(|deadline| Urgency { deadline });
        let control = Box::new(self.marked.control(network, urgency));
        self.marked.common.sending(control, ClassLaw::Fixed(0), network)
    }
    fn on_hosts(&self, network: &Network) -> Option<OnHosts> {
        let marking = self.marked.threshold(network);
        let rules = OnHosts { control: HostControl::Dctcp, classes: None, marking: Some([marking; 2]) };
        // Real sockets have no D2TCP here: `HostControl` knows none.
        (!self.heeds_deadlines).then_some(rules)
    }
}

/// The best thresholds in theory for the traffic that comes, or PIAS's own for web search at load 0.8 if none is known,
/// for so many classes, at least one, each with this service in theory.
pub(super) fn thresholds_for(traffic: Option<&TrafficFacts>, classes: usize, service: Service) -> Thresholds {
    let published = || {
        let mut sizes = thresholds::pias(PUBLISHED_FOR.0, PUBLISHED_FOR.1)
            .map_or_else(Vec::new, |published| published.demotion().to_vec());
        // So many classes have one threshold less.
        sizes.truncate(classes - 1);
        Thresholds::same(sizes)
    };
    let (Some(facts), Some(levels)) = (traffic, NonZeroUsize::new(classes)) else { return published() };
    match Traffic::new(facts.sizes.clone(), facts.load, &facts.mix, Urgent::Paced) {
        Ok(traffic) => thresholds::optimise(&traffic.served(service), levels, THRESHOLD_SEED).thresholds,
        // At a load of 1 and more there is no theory of completion times.
        Err(_) => published(),
    }
}

/// The setting `levels`: for which service of a level thresholds are made.
pub(super) fn service(settings: &mut Settings<'_>, usual: Service) -> Result<Service, SettingsError> {
    let words = match usual {
        Service::Fifo => ["fifo", "shared"],
        Service::Shared => ["shared", "fifo"],
    };
    Ok(if settings.word("levels", &words)? == "fifo" { Service::Fifo } else { Service::Shared })
}

struct Pias {
    marked: Marked,
    /// What only the first class may fill of a port's buffer.
    reserved: Option<Bytes>,
    service: Service,
    /// None until it is known for which traffic.
    thresholds: Option<Arc<[Bytes]>>,
}

pub(super) fn pias(settings: &mut Settings<'_>) -> Result<Box<dyn Transport>, SettingsError> {
    let marked = Marked::read(settings)?;
    let service = service(settings, Service::Shared)?;
    let thresholds = settings.sizes("thresholds")?;
    if let Some(thresholds) = &thresholds {
        few_enough("thresholds", thresholds, CLASSES)?;
    }
    let reserved = settings.quantity_or_none("reserved")?;
    Ok(Box::new(Pias { marked, reserved, service, thresholds: thresholds.map(Arc::from) }))
}

/// What can be kept of a port's buffer for the first class: at most half of it, and nothing where ports share a memory, of
/// which many ports' parts could leave nothing to others.
pub(super) fn kept(asked: Bytes, buffer: Buffer) -> Bytes {
    match buffer {
        Buffer::PerPort(all) => asked.min(Bytes(all.0 / 2)),
        Buffer::Shared { .. } => Bytes(0),
    }
}

/// So many classes need one threshold less.
pub(super) fn few_enough(
    key: &'static str,
    thresholds: &[Bytes],
    classes: usize,
) -> Result<(), SettingsError> {
    if thresholds.len() < classes {
        return Ok(());
    }
    let problem = format!("{} thresholds are too many for {classes} classes", thresholds.len());
    Err(SettingsError::Value { key: key.to_owned(), problem })
}

impl Transport for Pias {
    fn prepare(&mut self, network: &Network) {
        if self.thresholds.is_none() {
            let unknown =
                // PIAS knows no sizes and no deadlines: thresholds are made as if all flows were of unknown size.
                network.traffic.as_ref().map(|traffic| TrafficFacts { mix: Mix::UNKNOWN, ..traffic.clone() });
            let best = thresholds_for(unknown.as_ref(), CLASSES, self.service);
            self.thresholds = Some(best.demotion().into());
        }
    }
    fn setup(&self, network: &Network) -> Setup {
        let marking = self.marked.marking(network);
        let reserved = kept(self.reserved.unwrap_or_default(), network.buffer);
        let discipline = Discipline::Classes { first: marking, others: marking, reserved };
        Setup { discipline, ..self.marked.setup(network) }
    }
    fn last_class(&self) -> u8 {
        (CLASSES - 1) as u8
    }
    fn sending(&self, _: &FlowArrival, network: &Network) -> Sending {
        let tagging = match &self.thresholds {
            Some(thresholds) => ClassLaw::by_sent(thresholds, 0),
            None => ClassLaw::Fixed(0),
        };
        self.marked.common.sending(Box::new(self.marked.control(network, None)), tagging, network)
    }
    fn on_hosts(&self, network: &Network) -> Option<OnHosts> {
        let marking = self.marked.threshold(network);
        let thresholds = Thresholds::same(self.thresholds.as_deref()?.to_vec());
        let classes = HostClasses { thresholds, best: 0, told: false, ages_after: None };
        Some(OnHosts { control: HostControl::Dctcp, classes: Some(classes), marking: Some([marking; 2]) })
    }
}

struct Pfabric {
    initial: Option<f64>,
    timeout: Option<Picos>,
    buffer: Option<Bytes>,
    heeds_deadlines: bool,
}

fn read_pfabric(
    settings: &mut Settings<'_>,
    heeds_deadlines: bool,
) -> Result<Box<dyn Transport>, SettingsError> {
    Ok(Box::new(Pfabric {
        initial: settings.number("init", 1.0..=LARGEST_WINDOW)?,
        timeout: settings.quantity::<Span>("rto")?.map(Picos::from),
        buffer: settings.quantity("buffer")?,
        heeds_deadlines,
    }))
}

pub(super) fn pfabric(settings: &mut Settings<'_>) -> Result<Box<dyn Transport>, SettingsError> {
    read_pfabric(settings, false)
}

pub(super) fn pfabric_edf(settings: &mut Settings<'_>) -> Result<Box<dyn Transport>, SettingsError> {
    read_pfabric(settings, true)
}

impl Pfabric {
    fn window(&self, network: &Network) -> f64 {
        self.initial.unwrap_or_else(|| network.segments_in_flight())
    }
}

impl Transport for Pfabric {
    fn setup(&self, network: &Network) -> Setup {
        let packets = self.window(network) * PFABRIC_BUFFER_ROUND_TRIPS;
        let usual = Bytes((packets * f64::from(SEGMENT_BYTES + HEADER_BYTES)) as u64);
        Setup {
            discipline: Discipline::Ranked,
            buffer: Buffer::PerPort(self.buffer.unwrap_or(usual)),
            acknowledging: Acknowledging::Each,
            ages_after: None,
            probes_after: Some(PFABRIC_PROBES_AFTER),
            gives: None,
        }
    }
    fn last_class(&self) -> u8 {
        0
    }
    fn sending(&self, flow: &FlowArrival, network: &Network) -> Sending {
        let tagging = if self.heeds_deadlines {
            let per_segment = PerByte::at(network.host_rate).of(SEGMENT_BYTES + HEADER_BYTES);
            Tagging::ByDeadline { deadline: deadline_of(flow), per_segment }
        } else {
            Tagging::ByRemaining
        };
        Sending {
            control: Box::new(LineRate::new(self.window(network))),
            tagging,
            // Ports drop by rank, so the order of what arrives says nothing of losses; timeouts
            // alone find them (pFabric, section 4.2).
            recovery: Recovery::Selective,
            timeouts: Timeouts::Fixed(
                self.timeout.unwrap_or_else(|| network.round_trip.times(PFABRIC_TIMEOUT_ROUND_TRIPS)),
            ),
        }
    }
}
