//! A connection of a relay: whom it leads to, what may come by it, and what ends with it.

use super::facts::{HopId, SubscriberId, UpstreamId, UpstreamKind};
use super::neighbours::Neighbours;
use super::state::Relay;
use weir_model::Time;
use weir_proto::relay::{Header, Hello, Kind, MAX_DATA_BYTES, Open, Role as Says};

/// Which kind of peer a connection leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The peer has not sent its `Hello` yet.
    New,
    /// Flows come by it.
    Upstream(UpstreamId, UpstreamKind),
    /// A receiver takes flows by it.
    Receiver(SubscriberId),
    /// This relay made it, to send flows on.
    Hop(HopId),
}

/// A whole message that came.
#[derive(Debug)]
pub enum Received<P> {
    /// First message of a connection: which kind of peer is at the other end.
    Hello(Hello),
    /// A flow is opened.
    Open(Header, Open),
    /// Bytes of a flow.
    Data(Header, P),
    /// Any message without a body.
    About(Header),
}

/// A message does not belong on its connection, which is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind:?} does not belong on a connection of {role:?}")]
pub struct OutOfPlace {
    role: Role,
    kind: Kind,
}

/// One connection to or from this relay: which messages belong on it, and how much of a host's flow may be read.
#[derive(Debug)]
pub struct Contact {
    role: Role,
    /// Of a host's flow: bytes that may be read in all, and that were.
    granted: u64,
    received: u64,
}

impl Contact {
    /// A connection that a peer made; its `Hello` will say which kind of peer it is.
    pub fn accepted() -> Contact {
        // Room for one message, so that the hello and the opening are read before any credit is
        // given.
        Contact { role: Role::New, granted: MAX_DATA_BYTES as u64, received: 0 }
    }

    /// A connection that this relay made to a neighbour.
    pub fn dialled(hop: HopId) -> Contact {
        Contact { role: Role::Hop(hop), ..Contact::accepted() }
    }

    /// Which kind of peer is at its other end.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Whether there is room for what the next message may be. A host's connection has no other flow to hold up.
    pub fn may_read(&self, is_between_messages: bool) -> bool {
        let is_host = matches!(self.role, Role::Upstream(_, UpstreamKind::Host));
        // The next message may be as long as any: once its header is read, all of it must be taken.
        let next = self.received.saturating_add(MAX_DATA_BYTES as u64);
        !is_host || !is_between_messages || next <= self.granted
    }

    /// A host is told by how much is read of its connection. False if its flow was given up: the connection is to be closed.
    pub fn handle_told(&mut self, header: &Header) -> bool {
        let is_credit = header.kind == Kind::Credit;
        if is_credit {
            self.granted = header.number;
        }
        is_credit
    }
}

impl<P> Relay<P> {
    /// A message came by a connection that the driver calls `link`.
    ///
    /// # Errors
    /// It does not belong there.
    pub fn handle_received(
        &mut self,
        now: Time,
        neighbours: &mut Neighbours,
        (link, contact): (u64, &mut Contact),
        received: Received<P>,
    ) -> Result<(), OutOfPlace> {
        let odd = |kind| Err(OutOfPlace { role: contact.role, kind });
        match (contact.role, received) {
            (Role::New, Received::Hello(hello)) => {
                contact.role = match hello.role {
                    Says::Host => Role::Upstream(UpstreamId(link), UpstreamKind::Host),
                    Says::Receiver => Role::Receiver(SubscriberId(link)),
                    Says::Relay => {
                        let upstream = neighbours.accept(hello.session, link, UpstreamId(link));
                        Role::Upstream(upstream, UpstreamKind::Relay)
                    }
                };
            }
            (Role::Upstream(from, kind), Received::Open(header, open)) => {
                self.handle_open(now, from, kind, &header, open);
            }
            (Role::Upstream(from, _), Received::Data(header, payload)) => {
                contact.received = contact.received.saturating_add(header.length.into());
                self.handle_data(now, from, &header, payload);
            }
            (Role::Upstream(from, UpstreamKind::Relay), Received::About(header)) => match header.kind {
                Kind::Alive => self.handle_alive(now, from, &header),
                Kind::End => self.handle_end(from, header.key, header.number),
                Kind::Reset => self.handle_upstream_reset(from, header.key),
                kind => return odd(kind),
            },
            (Role::Receiver(subscriber), Received::About(Header { kind: Kind::Subscribe, key, .. })) => {
                self.handle_subscribe(now, subscriber, key);
            }
            (Role::Hop(hop), Received::About(header)) => match header.kind {
                Kind::Credit => self.handle_credit(hop, header.key, header.number),
                Kind::Reset => self.handle_hop_reset(hop, header.key),
                kind => return odd(kind),
            },
            (_, Received::Hello(_)) => return odd(Kind::Hello),
            (_, Received::Open(header, _) | Received::Data(header, _) | Received::About(header)) => {
                return odd(header.kind);
            }
        }
        Ok(())
    }

    /// A connection ended, and what it stood for with it. The others that end with it.
    pub fn handle_closed(&mut self, now: Time, neighbours: &mut Neighbours, role: Role) -> Vec<u64> {
        match role {
            Role::New => Vec::new(),
            Role::Receiver(subscriber) => {
                self.handle_subscriber_closed(subscriber);
                Vec::new()
            }
            Role::Upstream(upstream, _) => {
                let links = neighbours.forget(upstream);
                self.handle_upstream_closed(upstream);
                links
            }
            Role::Hop(hop) => {
                let links = neighbours.hang_up(hop);
                self.handle_hop_down(now, hop);
                links
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::{RelayConfig, WINDOW_BYTES};
    use weir_proto::relay::FlowKey;

    const KEY: FlowKey = FlowKey { coflow: 1, reducer: 2, mapper: 3 };

    fn received(kind: Kind) -> Received<()> {
        let header = Header { length: 1, ..Header::about(KEY, kind, 5) };
        let destination = ([10, 0, 0, 1], 1).into();
        match kind {
            Kind::Hello => Received::Hello(Hello { role: Says::Host, connections: 1, session: 9 }),
            Kind::Open => Received::Open(header, Open { source_site: 0, destination_site: 0, destination }),
            Kind::Data => Received::Data(header, ()),
            _ => Received::About(header),
        }
    }

    /// What belongs on a connection, of all kinds of messages.
    fn belongs(contact: impl Fn() -> Contact) -> Vec<Kind> {
        let all = [
            Kind::Hello,
            Kind::Open,
            Kind::Data,
            Kind::End,
            Kind::Credit,
            Kind::Reset,
            Kind::Subscribe,
            Kind::Alive,
        ];
        let takes = |kind: &Kind| {
            let (name, address) = ("r".to_owned(), ([10, 0, 0, 9], 1).into());
            let config = RelayConfig { name, site: 0, address, started_ms: 1, window_bytes: WINDOW_BYTES };
            let link = (7, &mut contact());
            Relay::new(config)
                .handle_received(Time::ZERO, &mut Neighbours::default(), link, received(*kind))
                .is_ok()
        };
        all.into_iter().filter(takes).collect()
    }

    #[test]
    fn each_connection_takes_what_belongs_there_and_nothing_else() {
        let of = |role| move || Contact { role, ..Contact::accepted() };
        let upstream = |kind| of(Role::Upstream(UpstreamId(7), kind));
        assert_eq!(belongs(Contact::accepted), [Kind::Hello]);
        assert_eq!(belongs(upstream(UpstreamKind::Host)), [Kind::Open, Kind::Data]);
        assert_eq!(
            belongs(upstream(UpstreamKind::Relay)),
            [Kind::Open, Kind::Data, Kind::End, Kind::Reset, Kind::Alive]
        );
        assert_eq!(belongs(of(Role::Receiver(SubscriberId(7)))), [Kind::Subscribe]);
        assert_eq!(belongs(|| Contact::dialled(HopId(7))), [Kind::Credit, Kind::Reset]);
    }

    #[test]
    fn of_a_host_no_more_is_read_than_there_is_room_for_the_largest_message() {
        let largest = MAX_DATA_BYTES as u64;
        let host = |granted, received| Contact {
            role: Role::Upstream(UpstreamId(7), UpstreamKind::Host),
            granted,
            received,
        };
        assert!(host(largest, 0).may_read(true) && host(2 * largest, largest).may_read(true));
        assert!(!host(largest, 1).may_read(true) && host(largest, 1).may_read(false));
        assert!(!host(u64::MAX - 1, u64::MAX).may_read(true));
        // Credits let more in, anything else ends it; other connections are read in any case.
        let mut contact = host(largest, largest);
        assert!(
            contact.handle_told(&Header::about(KEY, Kind::Credit, 2 * largest)) && contact.may_read(true)
        );
        assert!(!contact.handle_told(&Header::about(KEY, Kind::Reset, 0)));
        assert!(Contact { received: u64::MAX, ..Contact::dialled(HopId(1)) }.may_read(true));
    }
}
