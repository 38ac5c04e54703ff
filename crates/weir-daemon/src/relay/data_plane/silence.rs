//! Connections that say nothing, and what should be rare.

use super::Running;
use super::peers::Peer;
use std::io;
use weir_core::relay::{Role, UpstreamKind};
use weir_model::{Span, Time};

/// A connection that does not say what it is for is closed after so long.
const FIRST_WORD_LIMIT: Span = Span::from_millis(10_000);

impl Running {
    /// Closes connections that never said what they are for.
    pub(super) fn close_silent(&mut self, now: Time) {
        let silent =
            |peer: &Peer| peer.contact.role() == Role::New && now.since(peer.heard) >= FIRST_WORD_LIMIT;
        let tokens: Vec<u64> =
            self.peers.iter().filter(|(_, peer)| silent(peer)).map(|(&token, _)| token).collect();
        for token in tokens {
            self.close(token, &io::ErrorKind::TimedOut.into());
        }
    }

    /// Closes the connection without a flow that was heard of least recently. False if every one has a flow.
    pub(super) fn make_room(&mut self) -> bool {
        let idle = |peer: &Peer| match peer.contact.role() {
            Role::New => true,
            Role::Upstream(upstream, UpstreamKind::Host) => !self.relay.has_flows(upstream),
            Role::Receiver(subscriber) => !self.relay.is_subscribed(subscriber),
            Role::Upstream(_, UpstreamKind::Relay) | Role::Hop(_) => false,
        };
        let oldest = self.peers.iter().filter(|(_, peer)| idle(peer)).min_by_key(|(_, peer)| peer.heard);
        let Some(token) = oldest.map(|(&token, _)| token) else { return false };
        tracing::debug!(token, "an idle connection makes room for another");
        self.close(token, &io::Error::other("it made room for another"));
        true
    }

    /// Says what should be rare, if there is more of it.
    pub(super) fn tell_counters(&mut self) {
        let counters = self.relay.counters();
        if counters != self.counters {
            self.counters = counters;
            tracing::info!(?counters, held_bytes = self.relay.held(), "what should be rare happened");
        }
    }
}
