//! Karuna (Chen, Chen, Bai, Alizadeh, SIGCOMM 2016): three types of flows in one network, decided at their senders.
//!
//! Flows with deadlines (type 1) go in the first class, at the pace of MCP. Others follow DCTCP in the classes below:
//! those of known size (type 2) by size, those of unknown size (type 3) by bytes sent. Both age: after
//! [`AGES_AFTER`] timeouts in a row a flow of type 3 is put first again, one of type 2 rises by a class.

use super::hosts::{HostClasses, HostControl, OnHosts};
use super::settings::{Settings, SettingsError};
use super::windowed::{Marked, few_enough, kept, service, thresholds_for};
use super::{Network, Sending, Setup, Transport, deadline_of};
use crate::control::{Control, JustInTime, Late};
use crate::packet::{HEADER_BYTES, SEGMENT_BYTES, segments_of};
use crate::setup::{Discipline, Marking};
use crate::time::Picos;
use std::sync::Arc;
use weir_endhost::mcp::{Params, Variant};
use weir_endhost::tagging::{CLASSES, ClassLaw};
use weir_endhost::thresholds::{Service, Thresholds};
use weir_model::{Bytes, Span};
use weir_trace::{FlowArrival, FlowKind};

/// Timeouts in a row after which a flow ages.
const AGES_AFTER: f64 = 3.0;
/// Only the first class may fill so many times its marking threshold of a port's buffer, so that bursts of others do not
/// cost it packets.
const RESERVED_THRESHOLDS: u64 = 2;
/// The class of the others' first.
const OTHERS: u8 = 1;
/// Marks of the first class begin at this share of the usual threshold: paced flows need a short queue, and the law
/// yields best there (`docs/mcp.md`). At 1 Gbit/s that is 5 segments.
const FIRST_CLASS_SHARE: f64 = 0.25;

struct Karuna {
    marked: Marked,
    variant: Variant,
    margin_rtts: Option<f64>,
    ahead: Option<f64>,
    first_marking: Option<Bytes>,
    reserved: Option<Bytes>,
    late: Late,
    ages_after: Option<u32>,
    service: Service,
    demotion: Option<Arc<[Bytes]>>,
    splitting: Option<Arc<[Bytes]>>,
}

pub(super) fn karuna(settings: &mut Settings<'_>) -> Result<Box<dyn Transport>, SettingsError> {
    let marked = Marked::read(settings)?;
    let variant = match settings.word("law", &["yielding", "normalised", "published", "prototype"])? {
        "normalised" => Variant::Normalised,
        "published" => Variant::Published,
        "prototype" => Variant::Prototype,
        _ => Variant::Yielding,
    };
    let demotion = settings.sizes("thresholds")?;
    let splitting = settings.sizes("splits")?;
    for (key, sizes) in [("thresholds", &demotion), ("splits", &splitting)] {
        if let Some(sizes) = sizes {
            few_enough(key, sizes, CLASSES - usize::from(OTHERS))?;
        }
    }
    let late = match settings.word("late", &["demote", "trickle"])? {
        "trickle" => Late::Trickle,
        _ => Late::Demote,
    };
    let ages_after = settings.number("ageing", 0.0..=1e6)?.unwrap_or(AGES_AFTER) as u32;
    Ok(Box::new(Karuna {
        marked,
        variant,
        margin_rtts: settings.number("margin", 0.0..=100.0)?,
        ahead: settings.number("ahead", 0.0..=0.9)?,
        first_marking: settings.quantity("first-marking")?,
        reserved: settings.quantity_or_none("reserved")?,
        late,
        ages_after: (ages_after > 0).then_some(ages_after),
        service: service(settings, Service::Fifo)?,
        // Who gives one kind of thresholds means both.
        demotion: demotion.clone().or_else(|| splitting.clone()).map(Arc::from),
        splitting: splitting.or(demotion).map(Arc::from),
    }))
}

impl Karuna {
    fn params(&self, network: &Network) -> Params {
        let round_trip = Span::from_nanos(network.round_trip.0 / 1000);
        let mut params = Params::new(self.variant, round_trip);
        params.margin_rtts = self.margin_rtts.unwrap_or(params.margin_rtts);
        params.ahead = self.ahead.unwrap_or(params.ahead);
        let segment = f64::from(SEGMENT_BYTES + HEADER_BYTES);
        params.mark_threshold_segments = self.first_marking(network).0 as f64 / segment;
        params
    }

    fn first_marking(&self, network: &Network) -> Bytes {
        let usual = self.marked.threshold(network).0 as f64 * FIRST_CLASS_SHARE;
        self.first_marking.unwrap_or(Bytes(usual as u64))
    }

    /// What only the first class may fill of a port's buffer. Nothing where no deadlines are expected.
    fn reserved(&self, network: &Network) -> Bytes {
        let none = network.traffic.as_ref().is_some_and(|traffic| traffic.mix.deadline_bytes == 0.0);
        let usual = Bytes(self.first_marking(network).0.saturating_mul(RESERVED_THRESHOLDS));
        kept(self.reserved.unwrap_or(if none { Bytes(0) } else { usual }), network.buffer)
    }

    fn by_size(&self, flow: &FlowArrival) -> ClassLaw {
        ClassLaw::by_size(flow.size, self.splitting.as_deref().unwrap_or_default(), OTHERS)
    }
}

impl Transport for Karuna {
    fn prepare(&mut self, network: &Network) {
        if self.demotion.is_none() {
            // The first class is that of deadlines; thresholds divide flows among those below it.
            let classes = CLASSES - usize::from(OTHERS);
            let best = thresholds_for(network.traffic.as_ref(), classes, self.service);
            self.demotion = Some(best.demotion().into());
            self.splitting = Some(best.splitting().into());
        }
    }

    fn setup(&self, network: &Network) -> Setup {
        let first = Marking::PerQueue(self.first_marking(network));
        let others = self.marked.marking(network);
        let discipline = Discipline::Classes { first, others, reserved: self.reserved(network) };
        let setup = self.marked.common.setup(network, first, others);
        Setup { discipline, ages_after: self.ages_after, ..setup }
    }

    fn last_class(&self) -> u8 {
        (CLASSES - 1) as u8
    }

    fn sending(&self, flow: &FlowArrival, network: &Network) -> Sending {
        let dctcp = self.marked.control(network, None);
        let (control, tagging): (Box<dyn Control>, ClassLaw) = match (flow.kind, deadline_of(flow)) {
            (_, Some(deadline)) => {
                let now = Picos::from(flow.arrival);
                let segments = segments_of(flow.size.0);
                let params = self.params(network);
                let control =
                    JustInTime::new(&params, now, segments, deadline, network.host_rate, self.late, dctcp);
                // The first class while the deadline can be met; after that the class of the flow's size.
                let both = (ClassLaw::Fixed(0), self.by_size(flow));
                let tagging = ClassLaw::UntilGivenUp(Box::new(both));
                return self.marked.common.sending(Box::new(control), tagging, network);
            }
            (FlowKind::Unknown, None) => {
                let thresholds = self.demotion.clone().unwrap_or_default();
                (Box::new(dctcp), ClassLaw::by_sent(&thresholds, OTHERS))
            }
            _ => (Box::new(dctcp), self.by_size(flow)),
        };
        self.marked.common.sending(control, tagging, network)
    }

    fn on_hosts(&self, network: &Network) -> Option<OnHosts> {
        let marking = [self.first_marking(network), self.marked.threshold(network)];
        let (demotion, splitting) = (self.demotion.as_deref()?.to_vec(), self.splitting.as_deref()?.to_vec());
        let thresholds = Thresholds::new(demotion, splitting).ok()?;
        let classes = HostClasses { thresholds, best: OTHERS, told: true, ages_after: self.ages_after };
        let control = HostControl::Karuna(self.params(network));
        Some(OnHosts { control, classes: Some(classes), marking: Some(marking) })
    }
}
