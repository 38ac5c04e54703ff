//! Messages out: whenever a connection can take one, the state machine says which.

use super::peers::Peer;
use super::{HopId, Running};
use std::io;
use weir_core::relay::{Message, Role, UnderWay};
use weir_model::Span;
use weir_net::Payload;

/// Messages written to one connection before the others have their turn.
const WRITES_PER_TURN: usize = 8;

impl Running {
    /// Writes to all connections that can take something. True if some of them may take more at once.
    pub(super) fn write_turn(&mut self) -> bool {
        let mut more = false;
        // Those of a held neighbour too: what a connection has begun to send counts as under way, and the neighbour may be held for
        // just that.
        for token in std::mem::take(&mut self.writable) {
            if self.write_to(token) {
                self.writable.insert(token);
                more = true;
            }
        }
        for hop in self.neighbours.hops().collect::<Vec<_>>() {
            self.look(hop);
            if !self.relay.is_ready(hop) {
                continue;
            }
            for token in self.neighbours.links(hop).to_vec() {
                more |= self.write_to(token);
            }
        }
        more
    }

    /// Writes some messages to one connection. True if it may take more at once.
    fn write_to(&mut self, token: u64) -> bool {
        let mut wrote = 0;
        loop {
            let Some(peer) = self.peers.get(&token).filter(|peer| !peer.blocked && !peer.connecting) else {
                return false;
            };
            let (role, is_free) = (peer.contact.role(), peer.link.is_free());
            if is_free && wrote == WRITES_PER_TURN {
                return true;
            }
            let next = if is_free { self.next_message(role) } else { None };
            wrote += 1;
            let idle = is_free && next.is_none();
            // Whether the kernel should wait for more before it sends a packet (MSG_MORE); true without more to come would delay the last one.
            let more = !idle && wrote < WRITES_PER_TURN && self.has_more(role);
            let Some(peer) = self.peers.get_mut(&token) else { return false };
            if let Some(message) = next {
                peer.link.send(&message.header(), message.payload);
            }
            let written = match peer.link.flush(more) {
                Ok(written) => written,
                Err(error) => return self.fail_write(token, &error),
            };
            peer.blocked = written.blocked;
            self.note_written(role, written.bytes);
            if idle || written.blocked {
                return false;
            }
        }
    }

    /// The message that goes next to the other end of a free connection.
    fn next_message(&mut self, role: Role) -> Option<Message<Payload>> {
        match role {
            Role::Hop(hop) => {
                self.look(hop);
                self.relay.poll_message(hop)
            }
            Role::Receiver(subscriber) => self.relay.poll_delivery(subscriber),
            Role::New | Role::Upstream(..) => None,
        }
    }

    /// Whether another message for the other end of a connection goes at once.
    fn has_more(&self, role: Role) -> bool {
        match role {
            Role::Hop(hop) => self.relay.is_ready(hop) && !self.relay.wants_look(self.now(), hop),
            Role::Receiver(subscriber) => self.relay.is_deliverable(subscriber),
            Role::New | Role::Upstream(..) => false,
        }
    }

    /// Tells what is under way to a neighbour, if that decides whether a message may go.
    fn look(&mut self, hop: HopId) {
        let now = self.now();
        if !self.relay.wants_look(now, hop) {
            return;
        }
        let mut seen = UnderWay::default();
        let mut round_trip: Option<Span> = None;
        for Peer { link, .. } in self.peers_to(hop) {
            seen.unwritten += link.unwritten();
            seen.unacknowledged += weir_net::unacknowledged(link.stream()).unwrap_or(0);
            let path = weir_net::tcp_path(link.stream()).ok().map(|path| path.round_trip);
            round_trip = round_trip.into_iter().chain(path.filter(|trip| *trip > Span::ZERO)).min();
        }
        seen.round_trip = round_trip.unwrap_or(Span::ZERO);
        self.relay.handle_under_way(now, hop, seen);
    }

    fn fail_write(&mut self, token: u64, error: &io::Error) -> bool {
        tracing::debug!(token, %error, "a connection ended");
        self.close(token, error);
        false
    }

    fn note_written(&mut self, role: Role, bytes: u64) {
        if let Role::Hop(hop) = role {
            let waiting = self.is_waited_for(hop);
            self.relay.handle_written(self.now(), hop, bytes, waiting);
        }
    }

    /// Whether all connections to a neighbour took less than there was for them. While one of them is free nothing
    /// waits for the link: those that are not may recover from a loss.
    fn is_waited_for(&self, hop: HopId) -> bool {
        let mut peers = self.peers_to(hop).peekable();
        peers.peek().is_some() && peers.all(|peer| peer.blocked)
    }

    /// The connections to a neighbour.
    fn peers_to(&self, hop: HopId) -> impl Iterator<Item = &Peer> {
        self.neighbours.links(hop).iter().filter_map(|link| self.peers.get(link))
    }
}
