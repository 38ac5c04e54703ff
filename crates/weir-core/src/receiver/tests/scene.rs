//! A receiver among holders and relays, in virtual time: what is due happens at once, and time jumps where nothing is.

use super::peers::{Connection, Holder, Relay};
use crate::ids::HostNumber;
use crate::receiver::{Link, Located, Output, Receiver, ReceiverConfig, ReceiverError, RelaysOfHost};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use weir_model::{CoflowId, Span, Time};
use weir_proto::data::ACK;
use weir_proto::relay::FlowKey;

/// More events than any test takes.
const MAX_EVENTS: usize = 2_000_000;
/// The time limit of a get, unless a test says otherwise.
pub(super) const LIMIT: Span = Span::from_millis(60_000);
pub(super) const BEGIN: Time = Time::from_millis(1_000);

/// The address of a holder, by its number.
pub(super) fn holder(number: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 7000 + number))
}

pub(super) fn relay() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 2], 7072))
}

pub(super) fn config(holders: usize) -> ReceiverConfig {
    ReceiverConfig {
        coflow: CoflowId(7),
        block: "block".to_owned(),
        host: HostNumber(3),
        group: 0,
        holders: (0..holders as u16).map(holder).collect(),
        verify_whole: false,
        end: BEGIN + LIMIT,
        avoided: BTreeMap::new(),
    }
}

pub(super) struct Scene {
    pub(super) receiver: Receiver,
    pub(super) now: Time,
    pub(super) holders: BTreeMap<SocketAddr, Holder>,
    /// The relay that the host uses, if it uses any.
    pub(super) relay: Option<Relay>,
    pub(super) flows: BTreeMap<FlowKey, Vec<u8>>,
    pub(super) links: BTreeMap<Link, (SocketAddr, Connection)>,
    /// Connections that earlier gets left.
    pub(super) pool: BTreeMap<SocketAddr, Connection>,
    /// Answers of the coordinator, the last of which stays; empty: it does not answer.
    pub(super) located: Vec<Located>,
    /// Bytes of each read at most, again and again.
    pub(super) cuts: Vec<usize>,
    /// What else is called between events, again and again: 1 `handle_timeout`, 2 `handle_wanted`.
    pub(super) calls: Vec<u8>,
    pub(super) got: Vec<u8>,
    pub(super) log: Vec<(Time, Output)>,
    pub(super) events: usize,
    pub(super) reads: usize,
}

/// What a receiver waited for.
enum Came {
    Frame,
    End(Result<(), ReceiverError>),
    Nothing,
}

impl Scene {
    /// A receiver that knows these holders.
    pub(super) fn with(holders: Vec<Holder>) -> Scene {
        Scene::of(config(holders.len()), holders)
    }

    /// A receiver that asks a coordinator, which names them.
    pub(super) fn coordinated(holders: Vec<Holder>) -> Scene {
        let located = vec![Located::Holders(config(holders.len()).holders)];
        Scene { located, ..Scene::of(config(0), holders) }
    }

    pub(super) fn of(config: ReceiverConfig, holders: Vec<Holder>) -> Scene {
        Scene {
            receiver: Receiver::new(config, Vec::new()),
            now: BEGIN,
            holders: (0..).map(holder).zip(holders).collect(),
            relay: None,
            flows: BTreeMap::new(),
            links: BTreeMap::new(),
            pool: BTreeMap::new(),
            located: Vec::new(),
            cuts: vec![usize::MAX],
            calls: vec![0],
            got: Vec::new(),
            log: Vec::new(),
            events: 0,
            reads: 0,
        }
    }

    pub(super) fn holder(&self, number: u16) -> &Holder {
        &self.holders[&holder(number)]
    }

    /// Gets the whole block: how it ended.
    pub(super) fn run(&mut self) -> Result<(), ReceiverError> {
        loop {
            if let Some(end) = self.next() {
                return end;
            }
        }
    }

    /// Gets the next frame; `Some` at the end.
    pub(super) fn next(&mut self) -> Option<Result<(), ReceiverError>> {
        self.receiver.handle_wanted(self.now);
        match self.go_on(Time::MAX) {
            Came::Frame => None,
            Came::End(end) => Some(end),
            Came::Nothing => panic!("it waits for something that never comes"),
        }
    }

    /// Waits for the next frame until then, and no frame comes.
    pub(super) fn wait(&mut self, until: Time) {
        assert!(matches!(self.go_on(until), Came::Nothing));
    }

    fn go_on(&mut self, until: Time) -> Came {
        loop {
            while let Some(output) = self.receiver.poll_output() {
                self.log.push((self.now, output.clone()));
                match output {
                    Output::Verified { length } => {
                        self.got.extend_from_slice(self.receiver.frame(length));
                        return Came::Frame;
                    }
                    Output::End(end) => return Came::End(end),
                    output => self.obey(output),
                }
            }
            self.events += 1;
            assert!(self.events < MAX_EVENTS, "it does not end");
            match self.calls[self.events % self.calls.len()] {
                1 => self.receiver.handle_timeout(self.now),
                2 => self.receiver.handle_wanted(self.now),
                _ => {}
            }
            if self.feed() {
                continue;
            }
            let Some(due) = self.receiver.next_timeout().filter(|&due| due <= until) else {
                self.now = until;
                return Came::Nothing;
            };
            assert!(due >= self.now);
            self.now = due;
            self.receiver.handle_timeout(due);
        }
    }

    fn obey(&mut self, output: Output) {
        let (receiver, now) = (&mut self.receiver, self.now);
        match output {
            Output::Locate { .. } => {
                let answer = if self.located.len() > 1 {
                    Some(self.located.remove(0))
                } else {
                    self.located.first().cloned()
                };
                answer.into_iter().for_each(|located| receiver.handle_located(now, located));
            }
            Output::Describe => {
                let relays = self.relay.as_ref().map(|_| RelaysOfHost { site: 1, addresses: vec![relay()] });
                let mapper = self.log.len() as u32;
                receiver.handle_described(now, relays.as_ref(), mapper);
            }
            Output::Explain => receiver.handle_explained(now, "too late".to_owned()),
            Output::Connect { link, address, pooled } => self.connect(link, address, pooled),
            Output::Write { link, bytes } => self.write(link, &bytes),
            Output::GiveBack { link } => {
                let (address, connection) = self.links.remove(&link).expect("nothing to give back");
                self.pool.insert(address, connection);
            }
            Output::Close { link } => drop(self.links.remove(&link)),
            Output::Verified { .. } | Output::End(_) => unreachable!("the caller takes them"),
        }
    }

    fn connect(&mut self, link: Link, address: SocketAddr, pooled: bool) {
        let idle = if pooled { self.pool.remove(&address) } else { None };
        if let Some(connection) = idle {
            self.links.insert(link, (address, connection));
            return self.receiver.handle_connected(self.now, link, true);
        }
        let mut connection = Connection::default();
        let reachable = match (self.holders.get(&address), &self.relay) {
            (Some(holder), _) => {
                connection.sent.extend(&holder.greeting);
                holder.reachable
            }
            (None, Some(relay)) => relay.reachable,
            (None, None) => Some(false),
        };
        match reachable {
            Some(true) => {
                self.links.insert(link, (address, connection));
                self.receiver.handle_connected(self.now, link, false);
            }
            Some(false) => self.receiver.handle_closed(self.now, link, Some("refused".to_owned())),
            None => {}
        }
    }

    fn write(&mut self, link: Link, bytes: &[u8]) {
        let Some((address, connection)) = self.links.get_mut(&link) else {
            panic!("{link:?} is not connected")
        };
        connection.written.extend_from_slice(bytes);
        match (self.holders.get_mut(address), &mut self.relay) {
            (Some(holder), _) if holder.dies_at_the_end && bytes == [ACK] => {
                self.links.remove(&link);
                return self.receiver.handle_closed(self.now, link, Some("broken pipe".to_owned()));
            }
            (Some(holder), _) => holder.react(connection, &mut self.flows),
            (None, Some(relay)) => relay.react(connection, &mut self.flows),
            (None, None) => {}
        }
        self.receiver.handle_written(self.now, link);
    }

    /// Reads once, or tells that a connection has ended; false if there is nothing to tell.
    fn feed(&mut self) -> bool {
        for link in [Link::Relay, Link::Holder, Link::Probe] {
            let Some((_, connection)) = self.links.get_mut(&link) else { continue };
            let room = self.receiver.room(link);
            if room.is_empty() {
                continue;
            }
            let cut = self.cuts[self.events % self.cuts.len()];
            let unread = &connection.sent[connection.read..];
            let count = room.len().min(cut).min(unread.len());
            if count > 0 {
                room[..count].copy_from_slice(&unread[..count]);
                connection.read += count;
                self.reads += 1;
                self.receiver.handle_read(self.now, link, count);
                return true;
            }
            if connection.closes {
                self.links.remove(&link);
                self.receiver.handle_closed(self.now, link, None);
                return true;
            }
        }
        false
    }

    /// The peer closes a connection.
    pub(super) fn close(&mut self, link: Link) {
        self.links.get_mut(&link).unwrap().1.closes = true;
    }

    /// The peer says something unasked.
    pub(super) fn send(&mut self, link: Link, bytes: &[u8]) {
        self.links.get_mut(&link).unwrap().1.sent.extend_from_slice(bytes);
    }

    /// When connections of a kind were begun.
    pub(super) fn connects(&self, wanted: Link) -> Vec<Time> {
        let at = |(at, output): &(Time, Output)| match output {
            Output::Connect { link, .. } if *link == wanted => Some(*at),
            _ => None,
        };
        self.log.iter().filter_map(at).collect()
    }
}
