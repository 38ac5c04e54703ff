//! D3 (Wilson, Ballani, Karagiannis, Rowstron, "Better Never than Late", SIGCOMM 2011): senders ask for rates, ports give
//! them, first come first served. One queue, no marks: rates keep queues short.

use super::settings::{Settings, SettingsError};
use super::windowed::{recovery, recovery_in};
use super::{Network, Recovery, Sending, Setup, Timeouts, Transport, deadline_of};
use crate::control::{AsksRate, Hopeless};
use crate::packet::HEADER_BYTES;
use crate::receiver::Acknowledging;
use crate::setup::{Discipline, Giving, Marking};
use crate::time::Picos;
use weir_endhost::tagging::ClassLaw;
use weir_model::{Bytes, Rate, Span};
use weir_trace::FlowArrival;

/// The paper's weights of capacity unused and of the queue (from memory of it).
const ALPHA: f64 = 0.1;
const BETA: f64 = 1.0;

struct D3 {
    hopeless: Hopeless,
    alpha: f64,
    beta: f64,
    least_timeout: Option<Picos>,
    recovery: Option<Recovery>,
}

pub(super) fn d3(settings: &mut Settings<'_>) -> Result<Box<dyn Transport>, SettingsError> {
    Ok(Box::new(D3 {
        hopeless: match settings.word("late", &["stop", "share"])? {
            "share" => Hopeless::Share,
            _ => Hopeless::Stop,
        },
        alpha: settings.number("alpha", 0.0..=1.0)?.unwrap_or(ALPHA),
        beta: settings.number("beta", 0.0..=10.0)?.unwrap_or(BETA),
        least_timeout: settings.quantity::<Span>("rto")?.map(Picos::from),
        recovery: recovery(settings)?,
    }))
}

/// One header a round trip.
fn base(network: &Network) -> Rate {
    Rate::from_bytes_per_sec(f64::from(HEADER_BYTES) / network.round_trip.as_secs())
}

impl Transport for D3 {
    fn setup(&self, network: &Network) -> Setup {
        let giving = Giving {
            round_trip: network.round_trip,
            alpha: self.alpha,
            beta: self.beta,
            base: base(network),
        };
        Setup {
            discipline: Discipline::Classes { first: Marking::Off, others: Marking::Off, reserved: Bytes(0) },
            buffer: network.buffer,
            acknowledging: Acknowledging::Each,
            ages_after: None,
            probes_after: None,
            gives: Some(giving),
        }
    }

    fn last_class(&self) -> u8 {
        0
    }
    fn sending(&self, flow: &FlowArrival, network: &Network) -> Sending {
        let deadline = deadline_of(flow);
        let control =
            AsksRate::new(deadline, self.hopeless, network.host_rate, base(network), network.round_trip);
        Sending {
            control: Box::new(control),
            tagging: ClassLaw::Fixed(0).into(),
            recovery: recovery_in(network, self.recovery),
            timeouts: Timeouts::AtLeast(self.least_timeout.unwrap_or(network.least_timeout)),
        }
    }
}
