//! Peers that lie: strangers who dial agents and relays and say what they like, of flows that are under way and of none.

use crate::content::Part;
use crate::data::Role;
use crate::events::Event;
use crate::world::World;
use rand::{Rng, RngExt};
use weir_proto::data::{Identity, Request};
use weir_proto::relay::{
    FlowKey, HELLO_BYTES, HOP_LIMIT, Header, Hello, Kind, OPEN_BYTES, Open, Role as Says,
};

/// Of how many flows a stranger may have heard, the last ones.
const HEARD_OF: usize = 20;

impl World {
    /// A flow goes by relays.
    pub(crate) fn note_key(&mut self, key: FlowKey) {
        if self.keys.len() == HEARD_OF {
            self.keys.pop_front();
        }
        self.keys.push_back(key);
    }

    /// A stranger dials somebody.
    pub(crate) fn lie(&mut self) {
        let host = self.some_host();
        let relay = self.some_relay().filter(|_| self.rng.random_range(0..4) > 0);
        let number = match relay {
            None => self.dial(Role::Serving, host, host),
            Some(relay) if self.rng.random() => self.dial(Role::Delivery, self.settings.hosts + relay, host),
            // Of no flow: no connection has this number.
            Some(relay) => self.dial(Role::Upload(0), host, self.settings.hosts + relay),
        };
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.is_liar = true;
        }
        for _ in 0..3 {
            let after = self.millis(2, 50);
            self.later(after, Event::Lies { connection: number });
        }
        let after = self.millis(50, 200);
        self.later(after, Event::LiarLeaves { connection: number });
    }

    /// It says something.
    pub(crate) fn say_lie(&mut self, number: u64) {
        let Some(role) = self.connections.get(&number).map(|connection| connection.role) else { return };
        let mut bytes = match role {
            Role::Serving => self.request_of_nobody(),
            _ => self.some_word(role),
        };
        if self.rng.random_range(0..4) == 0 {
            let at = self.rng.random_range(0..bytes.len());
            bytes[at] ^= 1 << self.rng.random_range(0..8);
        }
        if self.rng.random_range(0..4) == 0 {
            let kept = self.rng.random_range(1..=bytes.len());
            bytes.truncate(kept);
        }
        match role {
            Role::Serving | Role::Delivery => self.say(number, bytes),
            _ => self.send(number, vec![Part::Bytes(bytes)]),
        }
    }

    pub(crate) fn liar_leaves(&mut self, number: u64) {
        match self.connections.get(&number).map(|connection| connection.role) {
            Some(Role::Serving | Role::Delivery) => self.close(number),
            Some(_) => self.close_sender(number),
            None => {}
        }
    }

    /// For a block of a coflow that nobody has registered.
    fn request_of_nobody(&mut self) -> Vec<u8> {
        let request = Request {
            coflow: self.rng.random(),
            offset: 0,
            destination: self.some_host(),
            group: 0,
            identity: Identity::UNKNOWN,
            block: "b0".to_owned(),
        };
        request.encode()
    }

    /// Something that is said to relays, of a flow that the stranger has heard of.
    fn some_word(&mut self, role: Role) -> Vec<u8> {
        let unheard = FlowKey { coflow: self.rng.random(), reducer: 0, mapper: self.rng.random() };
        let heard = self.keys.len().checked_sub(1).map(|most| self.keys[self.rng.random_range(0..=most)]);
        let key = heard.unwrap_or(unheard);
        let says = match role {
            Role::Delivery => Says::Receiver,
            _ if self.rng.random() => Says::Host,
            _ => Says::Relay,
        };
        let hello = Hello { role: says, connections: 1, session: self.rng.random() };
        let number = self.rng.random_range(0..1_000_000);
        let relay = self.some_relay().unwrap_or_default();
        let open = Open {
            source_site: self.rng.random_range(0..3),
            destination_site: self.rng.random_range(0..3),
            destination: crate::relays::relay_address(relay),
        };
        let lead = |kind, length| Header { length, ..Header::about(key, kind, number) }.encode().to_vec();
        match self.rng.random_range(0..8) {
            0..3 => [&lead(Kind::Hello, HELLO_BYTES as u32)[..], &hello.encode()].concat(),
            3 => [&lead(Kind::Open, OPEN_BYTES as u32)[..], &open.encode()].concat(),
            4 => {
                let mut payload = vec![0; self.rng.random_range(1..2_000)];
                self.rng.fill_bytes(&mut payload);
                [&Header::data(key, HOP_LIMIT, number, payload.len() as u32).encode()[..], &payload].concat()
            }
            _ => {
                let kinds = [Kind::Subscribe, Kind::Credit, Kind::End, Kind::Reset, Kind::Alive];
                lead(kinds[self.rng.random_range(0..kinds.len())], 0)
            }
        }
    }
}
