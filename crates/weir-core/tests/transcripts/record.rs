//! Makes a transcript: a receiver and agents that talk to each other.

use crate::agents::{self, Act, COFLOW, NOW, RECEIVERS_SITE, Served, Side};
use crate::cases::{self, Case};
use crate::text::{self, Cuts, Line, Who};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use weir_core::receiver::{Link, Output, Receiver, ReceiverConfig, ReceiverError, RelaysOfHost};
use weir_core::serving::Outlet;
use weir_model::{Span, Time};
use weir_proto::relay::{HEADER_BYTES, HELLO_BYTES, Header, Kind, OPEN_BYTES};

/// The number that the receiver draws for a way by relays.
pub(crate) const MAPPER: u32 = 5;

/// The receiver of a case's get.
pub(crate) fn receiver(case: &Case, block: &str, now: Time) -> Receiver {
    let config = ReceiverConfig {
        coflow: COFLOW,
        block: block.to_owned(),
        host: 3,
        group: 0,
        holders: (0..case.agents.len()).map(cases::agent).collect(),
        verify_whole: false,
        end: now + Span::from_millis(60_000),
        avoided: BTreeMap::new(),
    };
    Receiver::new(config, Vec::new())
}

pub(crate) fn described(case: &Case) -> Option<RelaysOfHost> {
    case.relays.then(|| RelaysOfHost { site: RECEIVERS_SITE, addresses: vec![cases::relay(true)] })
}

pub(crate) fn how(end: &Result<(), ReceiverError>) -> &'static str {
    match end {
        Ok(()) => "ok",
        Err(ReceiverError::CoflowEnded) => "ended",
        Err(ReceiverError::Changed { .. }) => "changed",
        Err(ReceiverError::Gone) => "gone",
        Err(other) => panic!("{other}"),
    }
}

/// A connection of the receiver.
struct Connection {
    number: u32,
    to: SocketAddr,
    /// At an agent; none at a relay.
    served: Option<Served>,
    /// What its peer said, and whether it closed.
    said: VecDeque<u8>,
    has_closed: bool,
}

/// An agent's connection to its relay: its number, what was said on it, and how much of that the receiver's relay passed on.
#[derive(Default)]
struct Upload {
    number: u32,
    said: Vec<u8>,
    passed_on: usize,
}

struct Recorder<'a> {
    case: &'a Case,
    sides: Vec<Side>,
    lines: Vec<Line>,
    numbers: u32,
    links: BTreeMap<Link, Connection>,
    idle: Vec<Connection>,
    /// Connections of agents to their relay, by that of the receiver; and what was said on them.
    uploads: BTreeMap<u32, Upload>,
    /// What the receiver's relay has, and whether the receiver subscribed there.
    relayed: Vec<u8>,
    has_subscribed: bool,
    now: Time,
}

pub(crate) fn record(case: &Case) -> String {
    let mut recorder = Recorder {
        case,
        sides: agents::sides(case),
        lines: Vec::new(),
        numbers: 0,
        links: BTreeMap::new(),
        idle: Vec::new(),
        uploads: BTreeMap::new(),
        relayed: Vec::new(),
        has_subscribed: false,
        now: NOW,
    };
    for (block, end) in case.gets.iter().zip(&case.ends) {
        assert_eq!(recorder.get(block), *end, "{}", case.name);
    }
    let mut text = format!("# {}\n", case.about);
    for (number, of) in case.agents.iter().enumerate() {
        for held in &of.holds {
            text += &format!(
                "# Agent {} holds block {} of coflow {COFLOW}: {} bytes of seed {}, identity {}\n",
                cases::agent(number),
                held.name,
                held.size,
                held.seed,
                held.identity.0.map(|byte| format!("{byte:02x}")).concat(),
            );
        }
    }
    text + &text::print(&recorder.lines)
}

impl Recorder<'_> {
    fn get(&mut self, block: &str) -> &'static str {
        self.lines.push(Line::Get(format!("block {block} of coflow {COFLOW} for host 3, group 0")));
        let mut receiver = receiver(self.case, block, self.now);
        receiver.handle_wanted(self.now);
        loop {
            while let Some(output) = receiver.poll_output() {
                match output {
                    Output::End(end) => {
                        self.lines.push(Line::Ends(how(&end).to_owned()));
                        return how(&end);
                    }
                    output => self.obey(&mut receiver, output),
                }
            }
            if !self.feed(&mut receiver) {
                self.now = receiver.next_timeout().unwrap();
                receiver.handle_timeout(self.now);
            }
        }
    }

    fn obey(&mut self, receiver: &mut Receiver, output: Output) {
        let now = self.now;
        match output {
            Output::Describe => receiver.handle_described(now, described(self.case).as_ref(), MAPPER),
            Output::Connect { link, address, pooled } => self.connect(receiver, link, address, pooled),
            Output::Write { link, bytes } => {
                self.write(link, &bytes);
                receiver.handle_written(now, link);
            }
            Output::GiveBack { link } => self.idle.extend(self.links.remove(&link)),
            Output::Close { link } => self.close(link),
            Output::Verified { .. } => receiver.handle_wanted(now),
            other => panic!("{other:?}"),
        }
    }

    fn connect(&mut self, receiver: &mut Receiver, link: Link, address: SocketAddr, pooled: bool) {
        let idle = self.idle.iter().position(|idle| pooled && idle.to == address);
        if let Some(connection) = idle.map(|at| self.idle.remove(at)) {
            self.lines.push(Line::Reuses(connection.number));
            self.links.insert(link, connection);
            return receiver.handle_connected(self.now, link, true);
        }
        let dead = |side: usize| cases::agent(side) == address && self.sides[side].is_dead;
        if (0..self.sides.len()).any(dead) {
            self.lines.push(Line::Fails(address));
            return receiver.handle_closed(self.now, link, Some("refused".to_owned()));
        }
        self.numbers += 1;
        let number = self.numbers;
        self.lines.push(Line::Connects(number, Who::Receiver, address));
        let side = (0..self.sides.len()).find(|&number| cases::agent(number) == address);
        let served = side.map(|side| self.sides[side].accept());
        let connection = Connection { number, to: address, served, said: VecDeque::new(), has_closed: false };
        self.links.insert(link, connection);
        receiver.handle_connected(self.now, link, false);
    }

    fn write(&mut self, link: Link, bytes: &[u8]) {
        let connection = self.links.get_mut(&link).unwrap();
        say(&mut self.lines, connection.number, Who::Receiver, bytes);
        if connection.served.is_some() {
            self.serve(link, bytes, false);
        } else if bytes
            .first_chunk()
            .is_some_and(|head| Header::decode(head).unwrap().kind == Kind::Subscribe)
        {
            self.has_subscribed = true;
            self.pass_on();
        }
    }

    /// Lets the agent at the end of a link act.
    fn serve(&mut self, link: Link, bytes: &[u8], closes: bool) {
        let mut connection = self.links.remove(&link).unwrap();
        let side = (0..self.sides.len()).find(|&number| cases::agent(number) == connection.to).unwrap();
        let served = connection.served.as_mut().unwrap();
        for act in self.sides[side].hear(served, bytes, closes, &mut Cuts::new(0)) {
            match act {
                Act::Says(Outlet::Receiver, said) => {
                    say(&mut self.lines, connection.number, Who::Agent, &said);
                    connection.said.extend(said);
                }
                Act::Says(Outlet::Relay, said) => self.upload(connection.number, &said),
                Act::Dials(relay) => {
                    self.numbers += 1;
                    self.lines.push(Line::Connects(self.numbers, Who::Agent, relay));
                    let upload = Upload { number: self.numbers, ..Upload::default() };
                    self.uploads.insert(connection.number, upload);
                }
                Act::HangsUp => {
                    let upload = self.uploads.remove(&connection.number).unwrap();
                    self.lines.push(Line::Closes(upload.number, Who::Agent));
                }
                Act::Closes if !closes => {
                    self.lines.push(Line::Closes(connection.number, Who::Agent));
                    connection.has_closed = true;
                }
                Act::Closes => {}
            }
        }
        if !closes {
            self.links.insert(link, connection);
        }
    }

    /// An agent says something to its relay: the relay of the receiver has the flow's messages with another hop limit.
    fn upload(&mut self, connection: u32, bytes: &[u8]) {
        let Upload { number, said, passed_on } = self.uploads.get_mut(&connection).unwrap();
        said.extend_from_slice(bytes);
        say(&mut self.lines, *number, Who::Agent, bytes);
        let mut left = &said[..];
        let mut messages = Vec::new();
        while let Some((head, rest)) = left.split_first_chunk::<HEADER_BYTES>() {
            let header = Header::decode(head).unwrap();
            let length = match header.kind {
                Kind::Hello => HELLO_BYTES,
                Kind::Open => OPEN_BYTES,
                _ => header.length as usize,
            };
            let Some((body, rest)) = rest.split_at_checked(length) else { break };
            if header.kind == Kind::Data {
                let hop_limit = header.hop_limit - 2;
                messages.extend(Header { hop_limit, ..header }.encode());
                messages.extend_from_slice(body);
            }
            left = rest;
        }
        let new = messages.split_off(*passed_on);
        *passed_on += new.len();
        self.relayed.extend(new);
        self.pass_on();
    }

    /// A relay says what it has of a flow once its receiver subscribed.
    fn pass_on(&mut self) {
        let Some(relay) = self.links.get_mut(&Link::Relay).filter(|_| self.has_subscribed) else { return };
        let new = std::mem::take(&mut self.relayed);
        say(&mut self.lines, relay.number, Who::Relay, &new);
        relay.said.extend(new);
    }

    fn close(&mut self, link: Link) {
        let Some(connection) = self.links.get(&link) else { return };
        if connection.has_closed {
            self.links.remove(&link);
            return;
        }
        self.lines.push(Line::Closes(connection.number, Who::Receiver));
        if connection.served.is_some() {
            self.serve(link, &[], true);
        } else {
            self.links.remove(&link);
        }
    }

    /// The receiver reads what there is; false if there is nothing.
    fn feed(&mut self, receiver: &mut Receiver) -> bool {
        for link in [Link::Relay, Link::Holder] {
            let Some(connection) = self.links.get_mut(&link) else { continue };
            let room = receiver.room(link);
            let count = room.len().min(connection.said.len());
            if count > 0 {
                room[..count]
                    .iter_mut()
                    .zip(connection.said.drain(..count))
                    .for_each(|(room, said)| *room = said);
                receiver.handle_read(self.now, link, count);
                return true;
            }
            if connection.has_closed {
                self.links.remove(&link);
                receiver.handle_closed(self.now, link, None);
                return true;
            }
        }
        false
    }
}

fn say(lines: &mut Vec<Line>, number: u32, who: Who, said: &[u8]) {
    match lines.last_mut() {
        Some(Line::Says(before, by, bytes)) if (*before, *by) == (number, who) => {
            bytes.extend_from_slice(said)
        }
        _ => lines.push(Line::Says(number, who, said.to_vec())),
    }
}
