//! A relay, its hosts, receivers, neighbours and controller.

use crate::input::Input;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use weir_core::relay::{
    Contact, HopId, Neighbours, Received, Relay, RelayConfig, SubscriberId, UnderWay, WINDOW_BYTES,
};
use weir_model::{Span, Time};
use weir_proto::relay::{FlowKey, Header, Hello, Kind, MAX_DATA_BYTES, Open, Role as Says};

fn address(at: u64) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, (at % 4) as u8], 7072))
}

/// A relay and its connections.
struct Played {
    relay: Relay<()>,
    neighbours: Neighbours,
    contacts: BTreeMap<u64, Contact>,
    now: Time,
}

/// Plays the sequence in `data` against a relay and its neighbours.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let (name, address, window_bytes) = ("r0".to_owned(), address(0), WINDOW_BYTES);
    let config = RelayConfig { name, site: 0, address, started_ms: 1, window_bytes };
    let mut played = Played {
        relay: Relay::new(config),
        neighbours: Neighbours::default(),
        contacts: BTreeMap::new(),
        now: Time::from_millis(1_000),
    };
    while played.step(&mut input).is_some() {
        while played.relay.poll_output().is_some() {}
        assert!(played.relay.held() <= weir_proto::limits::MAX_RELAY_HELD_BYTES);
        played.relay.next_timeout();
    }
    // Once all connections are closed, nothing is held any more.
    for link in 0..16 {
        played.close(link);
    }
    for _ in 0..4 {
        played.now = played.now + Span::from_millis(20_000);
        played.relay.handle_timeout(played.now);
        while played.relay.poll_output().is_some() {}
    }
}

fn key(input: &mut Input<'_>) -> Option<FlowKey> {
    let byte = u32::from(input.byte()?);
    Some(FlowKey { coflow: u64::from(byte & 1), reducer: byte >> 1 & 3, mapper: byte >> 3 & 1 })
}

fn received(input: &mut Input<'_>) -> Option<Received<()>> {
    const KINDS: [Kind; 8] = [
        Kind::Hello,
        Kind::Open,
        Kind::Data,
        Kind::End,
        Kind::Credit,
        Kind::Reset,
        Kind::Subscribe,
        Kind::Alive,
    ];
    let kind = KINDS[usize::from(input.byte()? % 8)];
    let (key, choice, number) = (key(input)?, input.byte()?, input.number()?);
    let header = Header { hop_limit: choice >> 4, ..Header::about(key, kind, number) };
    Some(match kind {
        Kind::Hello => {
            let role = [Says::Host, Says::Relay, Says::Receiver][usize::from(choice % 3)];
            Received::Hello(Hello { role, connections: 1, session: number % 4 })
        }
        Kind::Open => {
            let destination = address(u64::from(choice >> 1));
            let open = Open { source_site: 0, destination_site: u32::from(choice >> 1 & 3), destination };
            Received::Open(header, open)
        }
        Kind::Data => {
            let length = input.number()?.saturating_mul(2048).min(MAX_DATA_BYTES as u64) as u32;
            Received::Data(Header { length, ..header }, ())
        }
        _ => Received::About(header),
    })
}

impl Played {
    fn close(&mut self, link: u64) {
        let Some(contact) = self.contacts.remove(&link) else { return };
        for other in self.relay.handle_closed(self.now, &mut self.neighbours, contact.role()) {
            self.contacts.remove(&other);
        }
    }

    fn step(&mut self, input: &mut Input<'_>) -> Option<()> {
        match input.byte()? % 16 {
            0..=7 => {
                let link = input.number()? % 16;
                let contact = self.contacts.entry(link).or_insert_with(Contact::accepted);
                let said = received(input)?;
                let link_of = (link, contact);
                if self.relay.handle_received(self.now, &mut self.neighbours, link_of, said).is_err() {
                    self.close(link);
                }
            }
            8 => self.close(input.number()? % 16),
            9 => {
                let (link, hop) = (input.number()? % 16, HopId(input.number()? % 16));
                self.close(link);
                self.contacts.insert(link, Contact::dialled(hop));
                self.neighbours.dial(self.now, hop, vec![link]);
                self.relay.handle_hop_up(self.now, hop);
            }
            10 => {
                let link = input.number()? % 16;
                let header = Header::about(key(input)?, Kind::Credit, input.number()?);
                if let Some(contact) = self.contacts.get_mut(&link) {
                    contact.handle_told(&header);
                    contact.may_read(true);
                }
            }
            11 => {
                let (unacknowledged, unwritten) = (input.number()?, input.number()?);
                let round_trip = Span::from_nanos(input.number()?);
                let seen = UnderWay { unacknowledged, unwritten, round_trip };
                self.relay.handle_under_way(self.now, HopId(input.number()? % 16), seen);
            }
            12 => {
                let peer = input.number()? % 16;
                let message = self.relay.poll_message(HopId(peer));
                let bytes = message.map_or(0, |message| u64::from(message.length));
                self.relay.handle_written(self.now, HopId(peer), bytes, bytes == 0);
                self.relay.poll_delivery(SubscriberId(peer));
            }
            13 => match input.byte()? % 2 {
                0 => self.relay.handle_session_up(),
                _ => self.relay.handle_session_lost(),
            },
            14 => self.relay.handle_controller(self.now, &input.message()?),
            _ => {
                let passed = input.number()?.saturating_mul(1_000_000) % (1 << 40);
                self.now = self.now + Span::from_nanos(passed);
                self.relay.handle_timeout(self.now);
            }
        }
        Some(())
    }
}
