//! Connections to and from other relays: several at a time, which live and end together. Drivers name a connection by a number.

use super::facts::{HopId, UpstreamId};
use std::collections::BTreeMap;
use weir_model::{Span, Time};
use weir_proto::relay::FlowKey;

/// How long connecting to a neighbour may take.
const DIAL_LIMIT: Span = Span::from_millis(2_000);

/// The connections that this relay made to a neighbour.
#[derive(Debug)]
struct Dialled {
    links: Vec<u64>,
    /// How many of them are not there yet, and until when that is waited for.
    missing: usize,
    until: Time,
}

/// The connections that a neighbour made to this relay.
#[derive(Debug)]
struct Accepted {
    session: u64,
    links: Vec<u64>,
}

/// Connections of a relay to its neighbours and from its upstreams.
#[derive(Debug, Default)]
pub struct Neighbours {
    dialled: BTreeMap<HopId, Dialled>,
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
    /// These connections to a neighbour are being made.
    pub fn dial(&mut self, now: Time, hop: HopId, links: Vec<u64>) {
        let missing = links.len();
        self.dialled.insert(hop, Dialled { links, missing, until: now + DIAL_LIMIT });
    }

    /// Another one of them is there. Whether all are now.
    pub fn handle_connected(&mut self, hop: HopId) -> bool {
        let Some(dialled) = self.dialled.get_mut(&hop) else { return false };
        let was_missing = dialled.missing > 0;
        dialled.missing = dialled.missing.saturating_sub(1);
        was_missing && dialled.missing == 0
    }

    /// Neighbours that connections were made to, or are being made.
    pub fn hops(&self) -> impl Iterator<Item = HopId> {
        self.dialled.keys().copied()
    }

    /// The connections to a neighbour.
    pub fn links(&self, hop: HopId) -> &[u64] {
        self.dialled.get(&hop).map_or(&[], |dialled| &dialled.links)
    }

    /// Forgets the connections to a neighbour, which are to be closed.
    pub fn hang_up(&mut self, hop: HopId) -> Vec<u64> {
        self.dialled.remove(&hop).map(|dialled| dialled.links).unwrap_or_default()
    }

    /// Notes a connection of a neighbour's session; the upstream that it belongs to, new with its first one.
    pub fn accept(&mut self, session: u64, link: u64, new: UpstreamId) -> UpstreamId {
        let upstream = *self.sessions.entry(session).or_insert(new);
        let accepted = self.accepted.entry(upstream);
        accepted.or_insert_with(|| Accepted { session, links: Vec::new() }).links.push(link);
        upstream
    }

    /// Forgets a neighbour's session; its connections.
    pub fn forget(&mut self, upstream: UpstreamId) -> Vec<u64> {
        let Some(accepted) = self.accepted.remove(&upstream) else { return Vec::new() };
        self.sessions.remove(&accepted.session);
        accepted.links
    }

    /// The connection by which something is said to an upstream of a flow.
    pub fn back_to(&self, upstream: UpstreamId, key: FlowKey) -> Option<u64> {
        link_of(&self.accepted.get(&upstream)?.links, key)
    }

    /// The connection by which something is said to a next hop of a flow.
    pub fn on_to(&self, hop: HopId, key: FlowKey) -> Option<u64> {
        link_of(self.links(hop), key)
    }

    /// Neighbours that could not be connected to in time.
    pub fn late(&self, now: Time) -> Vec<HopId> {
        let late = self.dialled.iter().filter(|(_, dialled)| dialled.missing > 0 && dialled.until <= now);
        late.map(|(&hop, _)| hop).collect()
    }

    /// When the next one of them is late.
    pub fn next_late(&self) -> Option<Time> {
        let missing = self.dialled.values().filter(|dialled| dialled.missing > 0);
        missing.map(|dialled| dialled.until).min()
    }
}
