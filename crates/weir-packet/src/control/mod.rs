//! How much of a flow may be in the network: windows, and gaps between packets.

mod d3;
mod dctcp;
mod just_in_time;
mod pfabric;
mod planned;
mod reno;
mod told;

pub(crate) use d3::{AsksRate, Hopeless};
pub(crate) use dctcp::{Dctcp, Urgency};
pub(crate) use just_in_time::{JustInTime, Late};
pub(crate) use pfabric::LineRate;
pub(crate) use planned::ByPlan;
pub(crate) use reno::Reno;
pub(crate) use told::ByToldRate;
pub use told::ToldRate;

use crate::time::Picos;
use weir_endhost::mcp::WindowFacts;
use weir_model::{Bytes, Rate};

/// What an acknowledgement brought, and what it says of the path.
#[derive(Clone, Copy, Debug)]
pub struct Acked {
    /// When the acknowledgement came to the sender.
    pub now: Picos,
    /// Segments that are acknowledged for the first time.
    pub segments: u32,
    /// Losses are being repaired, so that the window does not grow.
    pub recovering: bool,
    /// Whether they say that a queue was above its threshold.
    pub marked: bool,
    /// The first segment that is not acknowledged.
    pub unacked: u32,
    /// One after the last segment that was ever sent.
    pub sent: u32,
    /// Segments that are on their way.
    pub in_flight: u32,
    /// Segments not acknowledged yet.
    pub left: u32,
    /// The round trip of the segment answered.
    pub rtt: Picos,
    /// The smoothed round trip.
    pub smoothed_rtt: Picos,
    /// All segments that had been sent when the last round was over are acknowledged: once per round trip.
    pub round_over: bool,
}

/// What was in flight when losses showed.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// Segments on their way, lost ones too, as far as the sender knew.
    pub flight: u32,
    /// The first segment that is not acknowledged.
    pub unacked: u32,
    /// One after the last segment that was ever sent.
    pub sent: u32,
}

/// What a flow may do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Allowance {
    /// Segments in the network at a time: 0 is none, and less than one counts as one.
    pub window: f64,
    /// From the beginning of one segment to that of the next at least.
    pub gap: Picos,
}

/// What a flow asks of the ports on its way, where they give rates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ask {
    /// This rate, on the wire, and its share of what no flow asks for. Zero asks for the share alone.
    Rate(Rate),
    /// Nothing any more: the flow ends without having sent all.
    Leave,
}

/// What a control decided when a window, a round trip or so of acknowledgements, had ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowEnded {
    /// Segments that were acknowledged in it.
    pub acked: u32,
    /// Those of them that met a queue above its threshold.
    pub marked: u32,
    /// What followed from that.
    pub decided: Decided,
}

/// By which law a control goes on, and with what.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decided {
    /// DCTCP's estimate of the share of its segments that is marked, 0 to 1.
    Alpha(f64),
    /// MCP's window. A flow's first one is decided when it begins, before anything is acknowledged.
    Mcp {
        /// What the law was told.
        facts: WindowFacts,
        /// The window that ended, in segments.
        window: f64,
        /// The deadline cannot be met.
        gave_up: bool,
    },
}

/// The congestion control of one flow.
pub trait Control: Send {
    /// What the flow may do now.
    fn allowance(&self) -> Allowance;
    /// Segments were acknowledged for the first time.
    fn on_ack(&mut self, acked: &Acked);
    /// A segment was lost and others came through: once per window.
    fn on_loss(&mut self, lost: &Loss);
    /// Nothing came back for a retransmission timeout; `first` of those in a row.
    fn on_timeout(&mut self, lost: &Loss, first: bool);
    /// Nothing had been lost when timeouts said so: what was sent before them arrived late.
    fn on_spurious_timeout(&mut self) {}
    /// What it asks for now, with so many bytes on the wire still to be sent. Only where ports give rates
    /// ([`crate::transport::Setup::gives`]), once a round trip.
    fn ask(&mut self, _unsent: Bytes, _now: Picos) -> Ask {
        Ask::Rate(Rate::ZERO)
    }
    /// The least rate that ports on its way gave it.
    fn on_given(&mut self, _rate: Rate) {}
    /// It may send no segment until it is given another rate.
    fn is_paused(&self) -> bool {
        false
    }
    /// When what the flow may do changes next by a plan. Asked when the flow begins and when such a time has come.
    fn next_change(&mut self, _now: Picos) -> Option<Picos> {
        None
    }
    /// The window that ended last, if there was one since this was asked last.
    fn take_window(&mut self) -> Option<WindowEnded> {
        None
    }
    /// The flow no longer tries to meet its deadline.
    fn has_given_up(&self) -> bool {
        false
    }
}
