//! What goes into and comes out of a relay.

use std::net::SocketAddr;
use weir_proto::relay::{FlowKey, HOP_LIMIT, Header, Open};
use weir_proto::v1;

/// Fixed facts of one relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayConfig {
    /// Its name, unique among all relays.
    pub name: String,
    /// Number of the site that it serves.
    pub site: u32,
    /// Where other relays and hosts reach it.
    pub address: SocketAddr,
    /// When it was started, in milliseconds since the Unix epoch: its sessions count on from there.
    pub started_ms: u64,
    /// Bytes of a flow that it takes beyond what goes on from it, at most: [`WINDOW_BYTES`](super::WINDOW_BYTES) unless there is a
    /// reason.
    pub window_bytes: u64,
}

/// A sender to this relay: another relay, or one flow of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UpstreamId(pub u64);

/// A relay that this one sends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HopId(pub u64);

/// A receiver's connection, numbered by the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SubscriberId(pub u64);

/// What kind of peer an upstream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamKind {
    /// The agent of a source host: its flows enter here, and end with the connection.
    Host,
    /// Another relay: flows of many hosts come over its connections.
    Relay,
}

/// A message of a flow, held here. What its bytes are is the driver's affair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message<P> {
    /// Flow that the bytes belong to.
    pub key: FlowKey,
    /// Bytes of the flow that come before it: its sequence number.
    pub offset: u64,
    /// Number of bytes that the message carries.
    pub length: u32,
    /// Relays it may still go through.
    pub hop_limit: u8,
    /// The bytes themselves, or where the driver keeps them.
    pub payload: P,
}

impl<P> Message<P> {
    /// The header it goes on with.
    pub fn header(&self) -> Header {
        Header::data(self.key, self.hop_limit.min(HOP_LIMIT), self.offset, self.length)
    }
}

/// What the driver is to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Connect to a neighbour. Answer with `handle_hop_up` or `handle_hop_down`.
    Dial {
        /// Neighbour to connect to, by this number from now on.
        hop: HopId,
        /// Address at which the neighbour takes connections.
        address: SocketAddr,
        /// Number of the neighbour's site.
        site: u32,
    },
    /// Close the connections to a neighbour; it is not spoken of again.
    Hangup(HopId),
    /// Say something to a neighbour.
    ToHop {
        /// Neighbour that the message goes to.
        hop: HopId,
        /// Header of the message to send.
        header: Header,
        /// With it, if the header is that of an `Open`.
        open: Option<Open>,
    },
    /// Say something to an upstream. A host's flow has one connection: a `Reset` closes it, and a `Credit` is
    /// kept by reading no more than that.
    ToUpstream {
        /// Upstream that the message goes to.
        upstream: UpstreamId,
        /// Header of the message to send.
        header: Header,
    },
    /// There is something to ask [`Relay::poll_delivery`](super::Relay::poll_delivery) for.
    Deliver(SubscriberId),
    /// Say something to a receiver.
    ToSubscriber {
        /// Receiver that the message goes to.
        subscriber: SubscriberId,
        /// Header of the message to send.
        header: Header,
    },
    /// Message for the relay's controller.
    Report(v1::FromRelay),
}

/// How often something happened that should not, since the relay started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayCounters {
    /// Flows given up, for whatever reason.
    pub reset: u64,
    /// Of them: their hop limit was used up.
    pub looped: u64,
    /// Of them: bytes came twice, outside the flow, or beyond what was granted.
    pub misplaced: u64,
    /// Of them: they went on least recently while what waits here was at its bound.
    pub crowded_out: u64,
    /// Flows refused because a bound was reached.
    pub refused: u64,
    /// Sets of rules whose epoch was not above the last.
    pub stale_rules: u64,
    /// Rules with an invalid prefix, or over the bound.
    pub bad_rules: u64,
}
