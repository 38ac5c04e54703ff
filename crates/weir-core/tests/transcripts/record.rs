//! Makes a transcript: a receiver and agents that talk to each other.

use crate::agents::{self, Act, COFLOW, Served, Side};
use crate::cases::{self, AGENTS_RELAY, Case, RECEIVERS_RELAY};
use crate::play::{self, NOW, Play};
use crate::relay_side::{self, RelaySide};
use crate::text::{self, Cuts, Line, Who};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use weir_core::ids::HostNumber;
use weir_core::receiver::{Link, Output, Receiver, ReceiverConfig, ReceiverError, RelaysOfHost};
use weir_core::serving::Outlet;
use weir_model::{CoflowId, Span, Time};

/// The number that the receiver draws for a way by relays.
pub(crate) const MAPPER: u32 = 5;

/// The receiver of a case's get.
pub(crate) fn receiver(case: &Case, block: &str, now: Time) -> Receiver {
    let config = ReceiverConfig {
        coflow: CoflowId(COFLOW),
        block: block.to_owned(),
        host: HostNumber(3),
        group: 0,
        holders: (0..case.agents.len()).map(cases::agent).collect(),
        verify_whole: false,
        end: now + Span::from_millis(60_000),
        avoided: BTreeMap::new(),
    };
    Receiver::new(config, Vec::new())
}

pub(crate) fn described(case: &Case) -> Option<RelaysOfHost> {
    let (site, addresses) = (relay_side::site(RECEIVERS_RELAY), vec![relay_side::address(RECEIVERS_RELAY)]);
    case.relays.then_some(RelaysOfHost { site, addresses })
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

/// The relays of a case.
pub(crate) fn relays(case: &Case) -> Vec<Box<dyn play::Side>> {
    let relays = [AGENTS_RELAY, RECEIVERS_RELAY].into_iter().filter(|_| case.relays);
    relays.map(|relay| -> Box<dyn play::Side> { Box::new(RelaySide::new(relay, None)) }).collect()
}

struct Recorder<'a> {
    case: &'a Case,
    sides: Vec<Side>,
    play: Play,
    links: BTreeMap<Link, Connection>,
    idle: Vec<Connection>,
    /// Connections of agents to their relay, by that of the receiver.
    uploads: BTreeMap<u32, u32>,
    now: Time,
}

pub(crate) fn record(case: &Case) -> String {
    let mut recorder = Recorder {
        case,
        sides: agents::sides(case),
        play: Play::new(relays(case)),
        links: BTreeMap::new(),
        idle: Vec::new(),
        uploads: BTreeMap::new(),
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
    text + &text::print(&recorder.play.lines)
}

impl Recorder<'_> {
    /// Somebody does something; the receiver has then what relays said to it.
    fn act(&mut self, line: Line) {
        for done in self.play.act(line) {
            let (Line::Says(number, Who::Relay(_), _) | Line::Closes(number, Who::Relay(_))) = done else {
                continue;
            };
            let relay = self.links.get_mut(&Link::Relay).filter(|relay| relay.number == number);
            match (relay, done) {
                (Some(relay), Line::Says(_, _, said)) => relay.said.extend(said),
                (Some(relay), _) => relay.has_closed = true,
                (None, _) => {}
            }
        }
    }

    fn get(&mut self, block: &str) -> &'static str {
        self.act(Line::Get(format!("block {block} of coflow {COFLOW} for host 3, group 0")));
        let mut receiver = receiver(self.case, block, self.now);
        receiver.handle_wanted(self.now);
        loop {
            while let Some(output) = receiver.poll_output() {
                match output {
                    Output::End(end) => {
                        self.act(Line::Ends(how(&end).to_owned()));
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
            self.act(Line::Reuses(connection.number));
            self.links.insert(link, connection);
            return receiver.handle_connected(self.now, link, true);
        }
        let dead = |side: usize| cases::agent(side) == address && self.sides[side].is_dead;
        if (0..self.sides.len()).any(dead) {
            self.act(Line::Fails(address));
            return receiver.handle_closed(self.now, link, Some("refused".to_owned()));
        }
        let number = self.play.connect(Who::Receiver, address);
        let side = (0..self.sides.len()).find(|&number| cases::agent(number) == address);
        let served = side.map(|side| self.sides[side].accept());
        let connection = Connection { number, to: address, served, said: VecDeque::new(), has_closed: false };
        self.links.insert(link, connection);
        receiver.handle_connected(self.now, link, false);
    }

    fn write(&mut self, link: Link, bytes: &[u8]) {
        let connection = &self.links[&link];
        let (number, is_served) = (connection.number, connection.served.is_some());
        self.act(Line::Says(number, Who::Receiver, bytes.to_vec()));
        if is_served {
            self.serve(link, bytes, false);
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
                    connection.said.extend(&said);
                    self.act(Line::Says(connection.number, Who::Agent, said));
                }
                Act::Says(Outlet::Relay, said) => {
                    self.act(Line::Says(self.uploads[&connection.number], Who::Agent, said));
                }
                Act::Dials(relay) => {
                    let upload = self.play.connect(Who::Agent, relay);
                    self.uploads.insert(connection.number, upload);
                }
                Act::HangsUp => {
                    let upload = self.uploads.remove(&connection.number).unwrap();
                    self.act(Line::Closes(upload, Who::Agent));
                }
                Act::Closes if !closes => {
                    self.act(Line::Closes(connection.number, Who::Agent));
                    connection.has_closed = true;
                }
                Act::Closes => {}
            }
        }
        if !closes {
            self.links.insert(link, connection);
        }
    }

    fn close(&mut self, link: Link) {
        let Some(connection) = self.links.get(&link) else { return };
        if connection.has_closed {
            self.links.remove(&link);
            return;
        }
        let (number, is_served) = (connection.number, connection.served.is_some());
        self.act(Line::Closes(number, Who::Receiver));
        if is_served {
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
