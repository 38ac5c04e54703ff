//! Messages out: whenever a connection can take one, the state machine says which.

use super::peers::Role;
use super::{HopId, Payload, Relay, Running};
use std::io;

/// Messages written to one connection before the others have their turn.
const WRITES_PER_TURN: usize = 8;

/// Whether another message for the other end of a connection may go.
fn has_more(relay: &Relay<Payload>, role: Role) -> bool {
    match role {
        Role::Hop(hop) => relay.is_ready(hop),
        Role::Receiver(subscriber) => relay.is_deliverable(subscriber),
        Role::New | Role::Upstream(..) => false,
    }
}

impl Running {
    /// Writes to whoever can take something. True if some of them may take more at once.
    pub(super) fn write_turn(&mut self) -> bool {
        let mut more = false;
        for token in std::mem::take(&mut self.writable) {
            match self.peers.get(&token).map(|peer| peer.role) {
                Some(Role::Hop(hop)) if self.relay.is_ready(hop) => {}
                Some(_) if self.write_to(token) => {
                    self.writable.insert(token);
                    more = true;
                }
                Some(_) => {}
                None => {}
            }
        }
        let ready = self.neighbours.dialled.keys().copied().filter(|&hop| self.relay.is_ready(hop));
        for hop in ready.collect::<Vec<_>>() {
            let links = self.neighbours.dialled.get(&hop).map(|dialled| dialled.links.clone());
            for token in links.unwrap_or_default() {
                more |= self.write_to(token);
            }
        }
        more
    }

    /// Writes some messages to one connection. True if it may take more at once.
    fn write_to(&mut self, token: u64) -> bool {
        let (mut bytes, mut wrote) = (0, 0);
        let result = loop {
            let Some(peer) = self.peers.get_mut(&token).filter(|peer| !peer.blocked && !peer.connecting)
            else {
                break Ok(false);
            };
            let next = match peer.role {
                _ if !peer.link.is_free() => None,
                _ if wrote == WRITES_PER_TURN => break Ok(true),
                Role::Hop(hop) => self.relay.poll_message(hop),
                Role::Receiver(subscriber) => self.relay.poll_delivery(subscriber),
                Role::New | Role::Upstream(..) => None,
            };
            wrote += 1;
            let idle = peer.link.is_free() && next.is_none();
            if let Some(message) = next {
                peer.link.send(&message.header(), message.payload);
            }
            let more = !idle && wrote < WRITES_PER_TURN && has_more(&self.relay, peer.role);
            match peer.link.flush(more) {
                Ok(written) => {
                    bytes += written.bytes;
                    peer.blocked = written.blocked;
                    if idle || written.blocked {
                        break Ok(false);
                    }
                }
                Err(error) => break Err(error),
            }
        };
        self.note_written(token, bytes);
        result.unwrap_or_else(|error| self.fail_write(token, &error))
    }

    fn fail_write(&mut self, token: u64, error: &io::Error) -> bool {
        tracing::debug!(token, %error, "a connection ended");
        self.close(token, error);
        false
    }

    fn note_written(&mut self, token: u64, bytes: u64) {
        if let Some(Role::Hop(hop)) = self.peers.get(&token).map(|peer| peer.role) {
            let waiting = self.is_waited_for(hop);
            self.relay.handle_written(self.now(), hop, bytes, waiting);
        }
    }

    /// Whether all connections to a neighbour took less than there was for them. While one of them is free nothing
    /// waits for the link: those that are not may recover from a loss.
    fn is_waited_for(&self, hop: HopId) -> bool {
        let links = self.neighbours.dialled.get(&hop).map_or(&[][..], |dialled| &dialled.links);
        let mut peers = links.iter().filter_map(|link| self.peers.get(link)).peekable();
        peers.peek().is_some() && peers.all(|peer| peer.blocked)
    }
}
