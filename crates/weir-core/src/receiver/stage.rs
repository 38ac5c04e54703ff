//! What a receiver is doing, as data: who is asked, or where frames come from.

use super::facts::ReceiverError;
use super::relayed::RelayedFlow;
use super::taken::Offer;
use std::collections::VecDeque;
use std::net::SocketAddr;
use weir_model::Time;
use weir_proto::data::{RESPONSE_BYTES, Request};
use weir_proto::relay::{FlowKey, RelayPath};

/// Where a frame begins in the buffer: behind the holder's answer, which may come with it.
pub(super) const FRAME_AT: usize = RESPONSE_BYTES;

/// What is under way.
pub(super) enum Stage {
    /// Nothing: it goes on at the timer, or when the first byte is wanted.
    Paused,
    /// The coordinator is asked.
    Locating,
    Asking(Round),
    Receiving(Source),
    /// None came for a while: the holder is asked whether it is there.
    Probing(Source, Probe),
    /// All were handed out, and the acknowledgement is on its way.
    Acknowledging(Source),
    /// The get is over, with this result.
    Over(Result<(), ReceiverError>),
}

/// Holders, each of which is asked once.
pub(super) struct Round {
    /// Holders that are still to be asked.
    pub(super) queue: VecDeque<SocketAddr>,
    pub(super) holds: Vec<SocketAddr>,
    /// The holder that broke the flow off, if the coordinator did not name it.
    pub(super) broke: Option<SocketAddr>,
    pub(super) ask: Ask,
}

/// The holder that is asked.
pub(super) struct Ask {
    pub(super) holder: SocketAddr,
    /// A way by relays that is offered with the request.
    pub(super) way: Option<Way>,
    /// Its connection comes from an earlier get. It may have died meanwhile: then a new one is tried at once.
    pub(super) pooled: bool,
    pub(super) step: Step,
}

pub(super) struct Way {
    pub(super) path: RelayPath,
    /// Why its connection ended, if it did.
    pub(super) broken: Option<String>,
}

pub(super) enum Step {
    /// The agent of this host is asked for relays.
    Describing,
    /// A relay is connected to.
    ReachingRelay(RelayPath),
    /// The holder is connected to.
    Connecting,
    /// It was sent the request.
    Answering(Answering),
    /// It said that the coflow was refused: the coordinator is asked why.
    Explaining,
    /// It accepted, and sends by relays: the one here is told to hand its messages on.
    Subscribing(Offer, FlowKey),
}

pub(super) struct Answering {
    pub(super) request: Request,
    /// Bytes that came: of the answer, and then of the first frame.
    pub(super) filled: usize,
}

impl Round {
    pub(super) fn has_connection(&self) -> bool {
        !matches!(self.ask.step, Step::Describing | Step::ReachingRelay(_))
    }

    pub(super) fn has_relay(&self) -> bool {
        self.ask.way.is_some() || matches!(self.ask.step, Step::ReachingRelay(_))
    }
}

/// Where frames come from.
pub(super) struct Source {
    pub(super) holder: SocketAddr,
    /// The messages that carry them, if not the holder's own connection.
    pub(super) relayed: Option<RelayedFlow>,
    /// Room for what a holder must not say while relays carry its frames.
    pub(super) unasked: [u8; 1],
}

impl Source {
    pub(super) fn new(holder: SocketAddr, relayed: Option<RelayedFlow>) -> Source {
        Source { holder, relayed, unasked: [0] }
    }

    pub(super) fn restart_silence(&mut self, now: Time) {
        if let Some(relayed) = &mut self.relayed {
            relayed.silence.restart(now);
        }
    }
}

/// A question to a silent holder.
#[derive(Debug, Default)]
pub(super) struct Probe {
    pub(super) asked: bool,
    pub(super) answer: [u8; 1],
}
