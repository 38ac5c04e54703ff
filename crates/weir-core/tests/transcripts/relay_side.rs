//! A relay without sockets: its connections, and what it reads and writes on each.

use crate::messages;
use crate::play::{Side, message_line};
use crate::text::{Cuts, Event, Line, Who};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use weir_core::relay::{Contact, HopId, Neighbours, Output, Received, Relay, RelayConfig, WINDOW_BYTES};
use weir_model::Time;
use weir_proto::relay::{FlowKey, HEADER_BYTES, HELLO_BYTES, Header, Hello, Kind, Open, Role as Says};

/// Where a relay listens; each has a site of its own.
pub(crate) fn address(relay: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, relay, 9], 7072))
}

/// The site of a relay.
pub(crate) fn site(relay: u8) -> u32 {
    u32::from(relay) + 1
}

#[derive(Debug)]
struct Peer {
    contact: Contact,
    unread: Vec<u8>,
}

pub(crate) struct RelaySide {
    number: u8,
    relay: Relay<Vec<u8>>,
    neighbours: Neighbours,
    /// Connections by number; and neighbours that are being connected to.
    peers: BTreeMap<u32, Peer>,
    dialled: VecDeque<HopId>,
    /// The call of its controller.
    session: Option<u32>,
    acts: VecDeque<Line>,
}

impl RelaySide {
    pub(crate) fn new(number: u8, window_bytes: Option<u64>) -> RelaySide {
        let config = RelayConfig {
            name: format!("relay-{}", char::from(b'a' + number)),
            site: site(number),
            address: address(number),
            started_ms: 1_000,
            window_bytes: window_bytes.unwrap_or(WINDOW_BYTES),
        };
        RelaySide {
            number,
            relay: Relay::new(config),
            neighbours: Neighbours::default(),
            peers: BTreeMap::new(),
            dialled: VecDeque::new(),
            session: None,
            acts: VecDeque::new(),
        }
    }

    /// Reads what there is of whole messages, as far as a host's flow may be read.
    fn read(&mut self, now: Time, number: u32) {
        while let Some(peer) = self.peers.get_mut(&number).filter(|peer| peer.contact.may_read(true)) {
            let Some((head, rest)) = peer.unread.split_first_chunk::<HEADER_BYTES>() else { return };
            let Ok(header) = Header::decode(head) else { return self.close(now, number) };
            let Some(body) = rest.get(..header.length as usize).map(<[u8]>::to_vec) else { return };
            peer.unread.drain(..HEADER_BYTES + body.len());
            self.handle(now, number, &header, body);
            self.act(now);
        }
    }

    fn handle(&mut self, now: Time, number: u32, header: &Header, body: Vec<u8>) {
        let received = match (header.kind, &body[..]) {
            (Kind::Hello, body) => Hello::decode(body.first_chunk().unwrap()).map(Received::Hello),
            (Kind::Open, body) => {
                Open::decode(body.first_chunk().unwrap()).map(|open| Received::Open(*header, open))
            }
            (Kind::Data, _) => Ok(Received::Data(*header, body)),
            _ => Ok(Received::About(*header)),
        };
        let (Some(peer), Ok(received)) = (self.peers.get_mut(&number), received) else {
            return self.close(now, number);
        };
        let link = (number.into(), &mut peer.contact);
        if self.relay.handle_received(now, &mut self.neighbours, link, received).is_err() {
            self.close(now, number);
        }
    }

    /// The peer of a connection closes it.
    fn close(&mut self, now: Time, number: u32) {
        self.acts.push_back(Line::Closes(number, self.who()));
        self.forget(now, number);
    }

    /// A connection is closed: what it stood for ends with it.
    fn forget(&mut self, now: Time, number: u32) {
        let Some(peer) = self.peers.remove(&number) else { return };
        for link in self.relay.handle_closed(now, &mut self.neighbours, peer.contact.role()) {
            self.peers.remove(&(link as u32));
        }
    }

    /// Does what the machine says.
    fn act(&mut self, now: Time) {
        while let Some(output) = self.relay.poll_output() {
            match output {
                Output::Dial { hop, address, .. } => {
                    self.dialled.push_back(hop);
                    self.acts.push_back(Line::Connects(0, self.who(), address));
                }
                Output::ToHop { hop, header, open } => {
                    let link = self.neighbours.on_to(hop, header.key);
                    self.say(link, &header, open.map(|open| open.encode()).as_ref().map_or(&[], |open| open));
                }
                Output::ToUpstream { upstream, header } => {
                    let host = upstream.0 as u32;
                    match self.neighbours.back_to(upstream, header.key) {
                        Some(link) => self.say(Some(link), &header, &[]),
                        None => match self.peers.get_mut(&host).map(|it| it.contact.handle_told(&header)) {
                            Some(true) => self.read(now, host),
                            Some(false) => self.close(now, host),
                            None => {}
                        },
                    }
                }
                Output::ToSubscriber { subscriber, header } => self.say(Some(subscriber.0), &header, &[]),
                Output::Deliver(subscriber) => {
                    while let Some(message) = self.relay.poll_delivery(subscriber) {
                        self.say(Some(subscriber.0), &message.header(), &message.payload);
                    }
                }
                Output::Report(report) => {
                    let session = self.session.unwrap();
                    self.acts.push_back(message_line(session, self.who(), &report));
                }
                Output::Hangup(hop) => panic!("{hop:?}"),
            }
        }
        for hop in self.neighbours.hops().collect::<Vec<_>>() {
            while self.relay.is_ready(hop)
                && let Some(message) = self.relay.poll_message(hop)
            {
                let link = self.neighbours.on_to(hop, message.key);
                self.say(link, &message.header(), &message.payload);
                self.relay.handle_written(now, hop, message.length.into(), false);
            }
        }
    }

    fn say(&mut self, link: Option<u64>, header: &Header, body: &[u8]) {
        if let Some(number) = link.map(|link| link as u32).filter(|link| self.peers.contains_key(link)) {
            let said = [&header.encode()[..], body].concat();
            self.acts.push_back(Line::Says(number, self.who(), said));
        }
    }

    fn add_peer(&mut self, number: u32, contact: Contact) {
        self.peers.insert(number, Peer { contact, unread: Vec::new() });
    }

    /// A connection to a neighbour is there.
    fn introduce(&mut self, now: Time, number: u32) {
        let hop = self.dialled.pop_front().unwrap();
        self.add_peer(number, Contact::dialled(hop));
        self.neighbours.dial(now, hop, vec![number.into()]);
        self.neighbours.handle_connected(hop);
        let hello = Hello { role: Says::Relay, connections: 1, session: number.into() }.encode();
        let key = FlowKey { coflow: 0, reducer: 0, mapper: 0 };
        let header = Header { length: HELLO_BYTES as u32, ..Header::about(key, Kind::Hello, 0) };
        self.say(Some(number.into()), &header, &hello);
        self.relay.handle_hop_up(now, hop);
    }
}

impl Side for RelaySide {
    fn who(&self) -> Who {
        Who::Relay(self.number)
    }

    fn hear(&mut self, now: Time, line: &Line, cuts: &mut Cuts) {
        let own = self.who();
        match line {
            Line::Connects(number, who, _) if *who == own => self.introduce(now, *number),
            Line::Connects(number, _, to) if *to == address(self.number) => {
                self.add_peer(*number, Contact::accepted());
            }
            Line::Says(number, who, bytes) if *who != own => {
                let mut left = &bytes[..];
                while let Some(peer) = self.peers.get_mut(number).filter(|_| !left.is_empty()) {
                    let (part, rest) = left.split_at(cuts.next(left.len()));
                    peer.unread.extend_from_slice(part);
                    left = rest;
                    self.read(now, *number);
                }
            }
            Line::Closes(number, who) if *who != own => self.forget(now, *number),
            Line::Happens(who, Event::Attaches) if *who == own => {
                self.acts.push_back(Line::Calls(0, own, Who::Controller, "Attach".to_owned()));
            }
            Line::Calls(number, who, ..) if *who == own => {
                self.session = Some(*number);
                self.relay.handle_session_up();
            }
            Line::Refuses(number, ..) if self.session == Some(*number) => {
                self.session = None;
                self.relay.handle_session_lost();
            }
            Line::Message(number, who, _, bytes) if *who != own && self.session == Some(*number) => {
                self.relay.handle_controller(now, &messages::decode(bytes));
            }
            _ => {}
        }
        self.act(now);
    }

    fn poll(&mut self, now: Time) -> Option<Line> {
        self.act(now);
        self.acts.pop_front()
    }

    fn pass_time(&mut self, now: Time) {
        if self.relay.next_timeout().is_some_and(|next| next <= now) {
            self.relay.handle_timeout(now);
        }
        if self.relay.wants_samples(now) {
            self.relay.handle_samples(now, &BTreeMap::new());
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        self.relay.next_timeout()
    }
}
