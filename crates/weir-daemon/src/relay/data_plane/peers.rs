//! Who is at the other end of a connection.

use crate::relay::link::Link;
use weir_core::relay::{HopId, SubscriberId, UpstreamId, UpstreamKind};
use weir_model::Time;
use weir_proto::relay::MAX_DATA_BYTES;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It has not said.
    New,
    /// Flows come by it.
    Upstream(UpstreamId, UpstreamKind),
    /// A receiver takes flows by it.
    Receiver(SubscriberId),
    /// This relay made it, to send flows on.
    Hop(HopId),
}

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) link: Link,
    pub(super) role: Role,
    /// The connection is not there yet.
    pub(super) connecting: bool,
    /// When it was there, or said something last.
    pub(super) heard: Time,
    /// The socket takes no more for now.
    pub(super) blocked: bool,
    /// Of a host's flow: bytes that may be read in all, and that were.
    pub(super) granted: u64,
    pub(super) received: u64,
}

impl Peer {
    pub(super) fn new(now: Time, link: Link, role: Role, connecting: bool) -> Peer {
        Peer {
            link,
            role,
            connecting,
            heard: now,
            blocked: false,
            granted: MAX_DATA_BYTES as u64,
            received: 0,
        }
    }

    /// Whether there is room for what the next message may be. A host's connection has no other flow to hold up.
    pub(super) fn may_read(&self) -> bool {
        let held = matches!(self.role, Role::Upstream(_, UpstreamKind::Host));
        !held || !self.link.is_between_messages() || self.received + MAX_DATA_BYTES as u64 <= self.granted
    }
}
