//! Connections to and from other relays: several at a time, which live and end together.

use std::collections::BTreeMap;
use weir_core::relay::{HopId, UpstreamId};
use weir_model::{Span, Time};
use weir_proto::relay::FlowKey;

/// How long connecting to a neighbour may take.
pub(super) const DIAL_LIMIT: Span = Span::from_millis(2_000);

/// The connections that this relay made to a neighbour.
#[derive(Debug)]
pub(super) struct Dialled {
    pub(super) links: Vec<u64>,
    /// How many of them are not there yet, and until when that is waited for.
    pub(super) missing: usize,
    pub(super) until: Time,
}

/// The connections that a neighbour made to this relay.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) session: u64,
    pub(super) links: Vec<u64>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    pub(super) dialled: BTreeMap<HopId, Dialled>,
    accepted: BTreeMap<UpstreamId, Accepted>,
    sessions: BTreeMap<u64, UpstreamId>,
}

/// What is said of a flow goes by one connection, so that it keeps its order.
fn link_of(links: &[u64], key: FlowKey) -> Option<u64> {
    let place = key.coflow ^ u64::from(key.reducer).rotate_left(32) ^ u64::from(key.mapper);
    let index = place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
    links.get((index as usize).checked_rem(links.len())?).copied()
}

impl Neighbours {
    /// Notes a connection of a neighbour's session; the upstream that it belongs to, new with its first one.
    pub(super) fn accept(&mut self, session: u64, link: u64, new: UpstreamId) -> UpstreamId {
        let upstream = *self.sessions.entry(session).or_insert(new);
        let accepted = self.accepted.entry(upstream);
        accepted.or_insert_with(|| Accepted { session, links: Vec::new() }).links.push(link);
        upstream
    }

    /// Forgets a neighbour's session; its connections.
    pub(super) fn forget(&mut self, upstream: UpstreamId) -> Vec<u64> {
        let Some(accepted) = self.accepted.remove(&upstream) else { return Vec::new() };
        self.sessions.remove(&accepted.session);
        accepted.links
    }

    /// The connection by which something is said to an upstream of a flow.
    pub(super) fn back_to(&self, upstream: UpstreamId, key: FlowKey) -> Option<u64> {
        link_of(&self.accepted.get(&upstream)?.links, key)
    }

    /// The connection by which something is said to a next hop of a flow.
    pub(super) fn on_to(&self, hop: HopId, key: FlowKey) -> Option<u64> {
        link_of(&self.dialled.get(&hop)?.links, key)
    }

    /// Neighbours that could not be connected to in time.
    pub(super) fn late(&self, now: Time) -> Vec<HopId> {
        let late = self.dialled.iter().filter(|(_, dialled)| dialled.missing > 0 && dialled.until <= now);
        late.map(|(&hop, _)| hop).collect()
    }

    /// When the next one of them is late.
    pub(super) fn next_late(&self) -> Time {
        let missing = self.dialled.values().filter(|dialled| dialled.missing > 0);
        missing.map(|dialled| dialled.until).min().unwrap_or(Time::MAX)
    }
}
