//! A neighbour: what waits for it and is under way to it.

use super::flight::Flight;
use super::meter::LinkMeter;
use super::queue::NextHopQueue;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use weir_model::Time;
use weir_proto::relay::FlowKey;

/// A relay that this one sends to.
#[derive(Debug)]
pub(super) struct Hop<P> {
    pub(super) address: SocketAddr,
    pub(super) site: u32,
    pub(super) state: HopState,
    pub(super) queue: NextHopQueue<P>,
    pub(super) meter: LinkMeter,
    pub(super) flight: Flight,
    /// Flows with a place in the queue.
    pub(super) flows: BTreeSet<FlowKey>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HopState {
    /// Its connections are being made for the first time.
    Connecting,
    /// It can be sent to.
    Up,
    /// It failed; it is tried again from then on.
    Down(Time),
    /// It failed, and its connections are being made again.
    Retrying,
}

impl<P> Hop<P> {
    /// Whether it can be sent to, and a message waits that its neighbour has room for.
    pub(super) fn has_ready(&self) -> bool {
        self.state == HopState::Up && self.queue.is_ready()
    }

    /// Whether a message waits because of what is under way.
    pub(super) fn is_crowded(&self) -> bool {
        self.flight.is_held() && self.has_ready()
    }
}
