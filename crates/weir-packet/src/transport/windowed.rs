//! Transports of windows in the manner of TCP: NewReno, DCTCP, D2TCP, PIAS, pFabric.

use super::settings::{Settings, SettingsError};
use super::{Network, Recovery, Sending, Setup, Timeouts, Transport, deadline_of};
use crate::control::{Dctcp, LineRate, Reno, Urgency};
use crate::port::{Buffer, Discipline, Marking};
use crate::receiver::Acknowledging;
use crate::sender::{HEADER_BYTES, SEGMENT_BYTES};
use crate::tagging::Tagging;
use crate::time::{PerByte, Picos};
use std::sync::Arc;
use weir_model::{Bytes, Span};
use weir_trace::FlowArrival;

/// The paper's weight of the newest round (DCTCP, section 3.3).
const DCTCP_GAIN: f64 = 1.0 / 16.0;
/// How long a receiver may hold an acknowledgement back.
const DELAYED_ACK: Picos = Picos::from_micros(500);
/// pFabric: buffers and timeouts in round trips' worth (sections 4.3 and 5.2).
const PFABRIC_BUFFER_ROUND_TRIPS: f64 = 2.0;
const PFABRIC_TIMEOUT_ROUND_TRIPS: f64 = 3.0;
/// pFabric: timeouts in a row before a flow probes (section 4.2).
const PFABRIC_PROBES_AFTER: u32 = 5;
const LARGEST_WINDOW: f64 = 1e6;

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
            recovery: match settings.word("recovery", &["auto", "newreno", "selective"])? {
                "newreno" => Some(Recovery::NewReno),
                "selective" => Some(Recovery::Selective),
                _ => None,
            },
        })
    }

    /// The window to begin with.
    pub(super) fn initial(&self, network: &Network) -> f64 {
        self.initial.unwrap_or(network.initial_window)
    }
    pub(super) fn timeouts(&self, network: &Network) -> Timeouts {
        Timeouts::AtLeast(self.least_timeout.unwrap_or(network.least_timeout))
    }
    /// Where packets overtake each other duplicates say nothing.
    pub(super) fn recovery(&self, network: &Network) -> Recovery {
        self.recovery.unwrap_or(if network.reorders { Recovery::Selective } else { Recovery::NewReno })
    }
    pub(super) fn setup(&self, network: &Network, marking: Marking) -> Setup {
        Setup {
            discipline: Discipline::Classes(marking),
            buffer: network.buffer,
            acknowledging: self.acknowledging,
            ages_after: None,
            probes_after: None,
        }
    }
    pub(super) fn sending(
        &self,
        control: Box<dyn crate::control::Control>,
        tagging: Tagging,
        network: &Network,
    ) -> Sending {
        Sending { control, tagging, recovery: self.recovery(network), timeouts: self.timeouts(network) }
    }
}

struct Tcp(Common);

pub(super) fn tcp(settings: &mut Settings<'_>) -> Result<Box<dyn Transport>, SettingsError> {
    Ok(Box::new(Tcp(Common::read(settings)?)))
}

impl Transport for Tcp {
    fn setup(&self, network: &Network) -> Setup {
        self.0.setup(network, Marking::Off)
    }
    fn sending(&self, _: &FlowArrival, network: &Network) -> Sending {
        self.0.sending(Box::new(Reno::new(self.0.initial(network))), Tagging::Fixed(0), network)
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
        let threshold = self.threshold(network);
        let marking = if self.per_port { Marking::PerPort(threshold) } else { Marking::PerQueue(threshold) };
        self.common.setup(network, marking)
    }
    pub(super) fn control(&self, network: &Network, urgency: Option<Urgency>) -> Dctcp {
        Dctcp::new(self.common.initial(network), self.gain, urgency)
    }
}

struct DctcpTransport {
    marked: Marked,
    /// D2TCP: heed deadlines.
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
    fn sending(&self, flow: &FlowArrival, network: &Network) -> Sending {
        let urgency = deadline_of(flow).filter(|_| self.heeds_deadlines).map(|deadline| Urgency { deadline });
        let control = Box::new(self.marked.control(network, urgency));
        self.marked.common.sending(control, Tagging::Fixed(0), network)
    }
}

struct Pias {
    marked: Marked,
    thresholds: Arc<[Bytes]>,
}

pub(super) fn pias(settings: &mut Settings<'_>) -> Result<Box<dyn Transport>, SettingsError> {
    let marked = Marked::read(settings)?;
    let thresholds = settings.sizes("thresholds")?.ok_or_else(|| SettingsError::Value {
        key: "thresholds".to_owned(),
        problem: "bytes after which a flow is demoted have to be given, as in thresholds=1MB+10MB".to_owned(),
    })?;
    few_enough(&thresholds, 1)?;
    Ok(Box::new(Pias { marked, thresholds: thresholds.into() }))
}

/// Classes are few.
pub(super) fn few_enough(thresholds: &[Bytes], classes_before: usize) -> Result<(), SettingsError> {
    let most = crate::port::CLASSES - classes_before;
    if thresholds.len() <= most {
        return Ok(());
    }
    Err(SettingsError::Value {
        key: "thresholds".to_owned(),
        problem: format!("{} thresholds need more classes than there are: at most {most}", thresholds.len()),
    })
}

impl Transport for Pias {
    fn setup(&self, network: &Network) -> Setup {
        self.marked.setup(network)
    }
    fn sending(&self, _: &FlowArrival, network: &Network) -> Sending {
        let tagging = Tagging::by_sent(&self.thresholds, 0);
        self.marked.common.sending(Box::new(self.marked.control(network, None)), tagging, network)
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
        }
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
            recovery: Recovery::Selective,
            timeouts: Timeouts::Fixed(
                self.timeout.unwrap_or_else(|| network.round_trip.times(PFABRIC_TIMEOUT_ROUND_TRIPS)),
            ),
        }
    }
}
