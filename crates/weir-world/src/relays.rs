//! Relays: the real machines, what they read and write, and how they die.

use crate::content::{Part, take_parts};
use crate::data::{BUFFER_BYTES, Lost, Role};
use crate::events::Event;
use crate::world::World;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use weir_core::relay::{
    Contact, HopId, Neighbours, Output, Received, Relay, RelayConfig, SubscriberId, UnderWay, UpstreamId,
    WINDOW_BYTES,
};
use weir_model::{Span, Time};
use weir_proto::relay::{FlowKey, HELLO_BYTES, Header, Hello, Kind, Role as Says};
use weir_proto::v1;

/// Messages that are read from one connection before the others have their turn.
const READS_PER_TURN: usize = 8;
/// Windows of half of the runs: flows of this world fill them.
const SMALL_WINDOW_BYTES: u64 = 600_000;

/// A relay, or the place of one.
pub(crate) struct RelaySide {
    pub(crate) core: Option<Relay<Vec<Part>>>,
    pub(crate) is_down: bool,
    pub(crate) stopped_until: Time,
    neighbours: Neighbours,
    /// Connections that may have something to read, and that may take something.
    readable: BTreeSet<u64>,
    writable: BTreeSet<u64>,
    wakes: Time,
    ahead: Span,
    /// Number of the stream to its controller, while it has one.
    pub(crate) stream: Option<u64>,
    /// Parallel connections to each neighbour.
    connections: u8,
    window_bytes: u64,
}

impl RelaySide {
    pub(crate) fn drawn(rng: &mut ChaCha8Rng) -> RelaySide {
        RelaySide {
            core: None,
            is_down: false,
            stopped_until: Time::ZERO,
            neighbours: Neighbours::default(),
            readable: BTreeSet::new(),
            writable: BTreeSet::new(),
            wakes: Time::MAX,
            ahead: Span::from_nanos(rng.random_range(0..10_000_000_000)),
            stream: None,
            connections: rng.random_range(1..=2),
            window_bytes: if rng.random() { WINDOW_BYTES } else { SMALL_WINDOW_BYTES },
        }
    }

    fn now(&self, now: Time) -> Time {
        now + self.ahead
    }
}

/// Where a relay listens.
pub(crate) fn relay_address(relay: u32) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::from(0x0a01_0000 + relay)), 7_072)
}

pub(crate) fn name_of(relay: u32) -> String {
    format!("r{relay}")
}

impl World {
    /// The relay whose machine it is, if it is one's.
    pub(crate) fn relay_of(&self, machine: u32) -> Option<u32> {
        machine.checked_sub(self.settings.hosts)
    }

    fn side(&mut self, relay: u32) -> &mut RelaySide {
        &mut self.relays[relay as usize]
    }

    /// A process of a relay starts; it knows what it is told.
    pub(crate) fn start_relay(&mut self, relay: u32) {
        let (now, site) = (self.now, self.site_of_relay(relay));
        let side = self.side(relay);
        let now = side.now(now);
        let config = RelayConfig {
            name: name_of(relay),
            site,
            address: relay_address(relay),
            started_ms: now.nanos() / 1_000_000,
            window_bytes: side.window_bytes,
        };
        let core = Relay::new(config);
        (side.core, side.is_down, side.wakes) = (Some(core), false, Time::MAX);
        if self.settings.is_controlled() {
            self.attach_later(relay);
        } else {
            self.tell_rules(relay);
        }
        self.settle_relay(relay);
    }

    /// It is killed: what it held is gone.
    pub(crate) fn kill_relay(&mut self, relay: u32, is_silent: bool) {
        let machine = self.settings.hosts + relay;
        self.has_lost_relay |= is_silent;
        self.drop_stream(relay, is_silent);
        let side = self.side(relay);
        (side.core, side.is_down, side.stopped_until) = (None, is_silent, Time::ZERO);
        side.neighbours = Neighbours::default();
        side.readable.clear();
        side.writable.clear();
        let (mut of_senders, mut of_readers) = (Vec::new(), Vec::new());
        for (&number, connection) in &mut self.connections {
            if connection.from == machine && std::mem::take(&mut connection.sends) {
                connection.relay.waiting.clear();
                of_senders.push(number);
            }
            if connection.to == machine && std::mem::take(&mut connection.is_open) {
                connection.unread.clear();
                of_readers.push(number);
            }
        }
        let lost = of_senders.into_iter().map(|number| (number, Lost::Sender));
        let lost = lost.chain(of_readers.into_iter().map(|number| (number, Lost::Reader)));
        for (number, end) in lost.collect::<Vec<_>>() {
            match end {
                _ if is_silent => self.fall_silent(number, end),
                Lost::Sender => self.lose_receiver(number),
                Lost::Reader => self.lose_sender(number),
            }
        }
    }

    pub(crate) fn tell_relay(&mut self, relay: u32, message: &v1::ToRelay) {
        let at = self.now;
        let side = self.side(relay);
        let now = side.now(at);
        if let Some(core) = &mut side.core {
            core.handle_controller(now, message);
        }
    }

    pub(crate) fn wake_relay(&mut self, relay: u32) {
        let now = self.now;
        let side = self.side(relay);
        if side.wakes <= now {
            side.wakes = Time::MAX;
            self.settle_relay(relay);
        }
    }

    fn wake_relay_at(&mut self, relay: u32, at: Time) {
        let side = self.side(relay);
        if at < side.wakes {
            side.wakes = at;
            self.queue.push(at, Event::RelayWakes { relay });
        }
    }

    /// Something is there to read on a connection to a relay's machine.
    pub(crate) fn relay_may_read(&mut self, machine: u32, number: u64) {
        let Some(relay) = self.relay_of(machine) else { return };
        self.side(relay).readable.insert(number);
        let now = self.now;
        self.wake_relay_at(relay, now);
    }

    /// A connection of a relay takes something again.
    pub(crate) fn relay_may_write(&mut self, machine: u32, number: u64) {
        let Some(relay) = self.relay_of(machine) else { return };
        self.side(relay).writable.insert(number);
        self.settle_relay(relay);
    }

    /// A reader said something to a relay.
    pub(crate) fn relay_hears(&mut self, number: u64, bytes: Vec<u8>) {
        let Some(connection) = self.connections.get_mut(&number).filter(|connection| connection.sends) else {
            return;
        };
        connection.relay.heard.push_back(Part::Bytes(bytes));
        let machine = connection.from;
        self.relay_may_read(machine, number);
    }

    /// Lets a relay act, and does what it wants done.
    pub(crate) fn settle_relay(&mut self, relay: u32) {
        let at = self.now;
        loop {
            let side = self.side(relay);
            if side.core.is_none() {
                return;
            }
            for number in std::mem::take(&mut side.readable) {
                self.relay_reads(relay, number);
            }
            self.pass_time_of_relay(relay);
            self.relay_acts(relay);
            for number in std::mem::take(&mut self.side(relay).writable) {
                self.relay_writes(relay, number);
            }
            self.write_to_hops(relay);
            self.relay_acts(relay);
            let side = self.side(relay);
            if side.readable.is_empty() && side.writable.is_empty() {
                break;
            }
        }
        let side = self.side(relay);
        let next = side.core.as_ref().and_then(Relay::next_timeout);
        let next = [next, side.neighbours.next_late()].into_iter().flatten().min();
        let ahead = side.ahead.nanos();
        if let Some(next) = next {
            let next = Time::from_nanos(next.nanos().saturating_sub(ahead)).max(at);
            let next = self.not_at_once(next);
            self.wake_relay_at(relay, next);
        }
    }

    fn pass_time_of_relay(&mut self, relay: u32) {
        let at = self.now;
        let side = self.side(relay);
        let now = side.now(at);
        for hop in side.neighbours.late(now) {
            self.fail_hop(relay, hop);
        }
        let side = &mut self.relays[relay as usize];
        let Some(core) = &mut side.core else { return };
        if core.next_timeout().is_some_and(|next| next <= now) {
            core.handle_timeout(now);
        }
        if core.wants_samples(now) {
            let in_flight = |link: &u64| self.connections.get(link).map(|connection| connection.in_flight);
            let of_hop = |hop| side.neighbours.links(hop).iter().filter_map(in_flight).sum();
            let unacknowledged: BTreeMap<HopId, u64> =
                side.neighbours.hops().map(|hop| (hop, of_hop(hop))).collect();
            core.handle_samples(now, &unacknowledged);
        }
    }

    /// Reads some messages of a connection.
    fn relay_reads(&mut self, relay: u32, number: u64) {
        for _ in 0..READS_PER_TURN {
            let Some(connection) = self.connections.get_mut(&number) else { return };
            let mut taken = 0;
            let is_reader = connection.is_read_by_relay() && self.settings.hosts + relay == connection.to;
            let end = &mut connection.relay;
            if !is_reader && !connection.sends {
                // This end was closed, and what it had not read is lost.
                return;
            }
            let message = if !is_reader {
                end.back.next(&mut end.heard, &mut taken)
            } else if !connection.is_open || !end.may_read() {
                return;
            } else if let Some(Part::End) = connection.unread.front() {
                return self.relay_closes(relay, number);
            } else {
                end.forth.next(&mut connection.unread, &mut taken)
            };
            if is_reader && taken > 0 {
                self.was_read(number, taken);
            }
            match message {
                Ok(Some(message)) => self.relay_takes(relay, number, message),
                Ok(None) if taken > 0 => {}
                Ok(None) => return,
                Err(error) => return self.close_odd(relay, number, &error.to_string()),
            }
        }
        self.side(relay).readable.insert(number);
    }

    fn relay_takes(&mut self, relay: u32, number: u64, message: Received<Vec<Part>>) {
        let at = self.now;
        let machine = self.settings.hosts + relay;
        let side = &mut self.relays[relay as usize];
        let now = side.now(at);
        let (Some(core), Some(connection)) = (&mut side.core, self.connections.get_mut(&number)) else {
            return;
        };
        if let Received::Data(header, _) = &message {
            self.report.relayed += u64::from(header.length);
        }
        let mut own = connection.hop_of(machine).map(Contact::dialled);
        let contact = own.as_mut().unwrap_or(&mut connection.relay.contact);
        if let Err(odd) = core.handle_received(now, &mut side.neighbours, (number, contact), message) {
            self.close_odd(relay, number, &odd.to_string());
        }
    }

    /// A relay reads what makes no sense. Strangers alone say so.
    fn close_odd(&mut self, relay: u32, number: u64, what: &str) {
        match self.connections.get(&number) {
            Some(connection) if connection.is_liar => self.relay_closes(relay, number),
            _ => self.violate(format!("relay {relay} reads {what}")),
        }
    }

    /// An end of a connection at a relay is over, and what it stood for with it.
    fn relay_closes(&mut self, relay: u32, number: u64) {
        let at = self.now;
        let machine = self.settings.hosts + relay;
        let Some(connection) = self.connections.get(&number) else { return };
        let role = match connection.hop_of(machine) {
            Some(hop) => return self.fail_hop(relay, hop),
            None => connection.relay.contact.role(),
        };
        if connection.role == Role::Delivery {
            self.close_sender(number);
        } else {
            self.close(number);
        }
        let side = self.side(relay);
        let now = side.now(at);
        let Some(core) = &mut side.core else { return };
        let others = core.handle_closed(now, &mut side.neighbours, role);
        others.into_iter().filter(|&link| link != number).for_each(|link| self.close(link));
    }

    /// The reader of what a relay sends is gone.
    pub(crate) fn relay_loses(&mut self, machine: u32, number: u64) {
        let Some(relay) = self.relay_of(machine) else { return };
        if self.connections.get(&number).is_some_and(|connection| connection.sends) {
            self.relay_closes(relay, number);
            self.settle_relay(relay);
        }
    }

    fn dial_hop(&mut self, relay: u32, hop: HopId, address: SocketAddr) {
        let (from, to) = (self.settings.hosts + relay, self.machine_of(address));
        let links = (0..self.side(relay).connections).map(|_| self.dial(Role::Hop(hop), from, to)).collect();
        let at = self.now;
        let side = self.side(relay);
        let now = side.now(at);
        side.neighbours.dial(now, hop, links);
    }

    /// A connection to a neighbour is there.
    pub(crate) fn hop_connected(&mut self, machine: u32, hop: HopId, number: u64) {
        let at = self.now;
        let Some(relay) = self.relay_of(machine) else { return };
        let session = self.rng.random();
        let side = &mut self.relays[relay as usize];
        let (now, connections) = (side.now(at), side.connections);
        if !side.neighbours.links(hop).contains(&number) || !side.neighbours.handle_connected(hop) {
            return;
        }
        let hello = Hello { role: Says::Relay, connections, session };
        for &link in side.neighbours.links(hop) {
            if let Some(connection) = self.connections.get_mut(&link) {
                let key = FlowKey { coflow: 0, reducer: 0, mapper: 0 };
                let header = Header { length: HELLO_BYTES as u32, ..Header::about(key, Kind::Hello, 0) };
                connection
                    .relay
                    .waiting
                    .push_back(Part::Bytes([&header.encode()[..], &hello.encode()].concat()));
                side.writable.insert(link);
            }
        }
        if let Some(core) = &mut side.core {
            core.handle_hop_up(now, hop);
        }
        self.settle_relay(relay);
    }

    fn fail_hop(&mut self, relay: u32, hop: HopId) {
        let at = self.now;
        let side = self.side(relay);
        let now = side.now(at);
        let Some(core) = &mut side.core else { return };
        let links = core.handle_closed(now, &mut side.neighbours, weir_core::relay::Role::Hop(hop));
        links.into_iter().for_each(|link| self.close_sender(link));
    }

    fn hang_up_hop(&mut self, relay: u32, hop: HopId) {
        let links = self.side(relay).neighbours.hang_up(hop);
        links.into_iter().for_each(|link| self.close_sender(link));
    }

    /// Does what the machine says.
    fn relay_acts(&mut self, relay: u32) {
        while let Some(output) = self.side(relay).core.as_mut().and_then(Relay::poll_output) {
            let side = &mut self.relays[relay as usize];
            match output {
                Output::Dial { hop, address, .. } => self.dial_hop(relay, hop, address),
                Output::Hangup(hop) => self.hang_up_hop(relay, hop),
                Output::ToHop { hop, header, open } => {
                    let body = open.map(|open| open.encode());
                    let body = body.as_ref().map_or(&[][..], |body| &body[..]);
                    let link = side.neighbours.on_to(hop, header.key);
                    self.relay_says(relay, link, [&header.encode()[..], body].concat());
                }
                Output::ToUpstream { upstream, header } => {
                    match side.neighbours.back_to(upstream, header.key) {
                        Some(link) => self.say(link, header.encode().to_vec()),
                        None => self.tell_host(relay, upstream, &header),
                    }
                }
                Output::ToSubscriber { subscriber, header } => {
                    self.relay_says(relay, Some(subscriber.0), header.encode().to_vec());
                }
                Output::Deliver(subscriber) => _ = side.writable.insert(subscriber.0),
                Output::Report(message) => self.say_to_controller(relay, message),
            }
        }
    }

    fn relay_says(&mut self, relay: u32, link: Option<u64>, bytes: Vec<u8>) {
        let Some(connection) = link.and_then(|link| self.connections.get_mut(&link)) else { return };
        connection.relay.waiting.push_back(Part::Bytes(bytes));
        self.side(relay).writable.extend(link);
    }

    /// A host is told by what is read of its connection.
    fn tell_host(&mut self, relay: u32, upstream: UpstreamId, header: &Header) {
        let Some(connection) = self.connections.get_mut(&upstream.0).filter(|connection| connection.is_open)
        else {
            return;
        };
        if connection.relay.contact.handle_told(header) {
            self.side(relay).readable.insert(upstream.0);
        } else {
            self.relay_closes(relay, upstream.0);
        }
    }

    /// Tells a relay what is under way to a neighbour, if that decides whether a message may go.
    fn look_at_hop(&mut self, relay: u32, hop: HopId) {
        let at = self.now;
        let side = &mut self.relays[relay as usize];
        let now = side.now(at);
        let Some(core) = side.core.as_mut().filter(|core| core.wants_look(now, hop)) else { return };
        let mut seen = UnderWay { round_trip: self.settings.delay, ..UnderWay::default() };
        for connection in side.neighbours.links(hop).iter().filter_map(|link| self.connections.get(link)) {
            seen.unacknowledged += connection.in_flight;
            seen.unwritten += connection.relay.waiting.iter().map(Part::len).sum::<u64>();
        }
        core.handle_under_way(now, hop, seen);
    }

    fn write_to_hops(&mut self, relay: u32) {
        for hop in self.side(relay).neighbours.hops().collect::<Vec<_>>() {
            self.look_at_hop(relay, hop);
        }
        let side = self.side(relay);
        let Some(core) = &side.core else { return };
        let ready: Vec<u64> = side
            .neighbours
            .hops()
            .filter(|&hop| core.is_ready(hop))
            .flat_map(|hop| side.neighbours.links(hop).iter().copied())
            .collect();
        ready.into_iter().for_each(|link| self.relay_writes(relay, link));
    }

    /// Writes what a connection takes.
    fn relay_writes(&mut self, relay: u32, number: u64) {
        let mut written = 0;
        let role = loop {
            let Some(connection) = self.connections.get_mut(&number).filter(|connection| connection.sends)
            else {
                return;
            };
            let room = BUFFER_BYTES.saturating_sub(connection.in_flight);
            if !connection.relay.waiting.is_empty() {
                if room == 0 {
                    connection.is_blocked = true;
                    break connection.role;
                }
                let parts = take_parts(&mut connection.relay.waiting, room);
                written += parts.iter().map(Part::len).sum::<u64>();
                self.send(number, parts);
                continue;
            }
            let role = connection.role;
            let message = match role {
                Role::Hop(hop) => {
                    self.note_written(relay, hop, std::mem::take(&mut written));
                    self.look_at_hop(relay, hop);
                    self.side(relay).core.as_mut().and_then(|core| core.poll_message(hop))
                }
                _ => {
                    let core = self.side(relay).core.as_mut();
                    core.and_then(|core| core.poll_delivery(SubscriberId(number)))
                }
            };
            let (Some(message), Some(connection)) = (message, self.connections.get_mut(&number)) else {
                break role;
            };
            connection.relay.waiting.push_back(Part::Bytes(message.header().encode().to_vec()));
            connection.relay.waiting.extend(message.payload);
        };
        if let Role::Hop(hop) = role {
            self.note_written(relay, hop, written);
        }
    }

    fn note_written(&mut self, relay: u32, hop: HopId, written: u64) {
        let at = self.now;
        let side = &mut self.relays[relay as usize];
        let now = side.now(at);
        let is_blocked =
            |link: &u64| self.connections.get(link).is_some_and(|connection| connection.is_blocked);
        let is_waited_for = side.neighbours.links(hop).iter().all(is_blocked);
        if let Some(core) = &mut side.core {
            core.handle_written(now, hop, written, is_waited_for);
        }
    }
}
