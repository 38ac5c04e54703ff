//! Several relays in one test: what one says to another arrives later, and in an order that a seed draws.

use super::super::facts::{HopId, Output, RelayConfig, SubscriberId, UpstreamId, UpstreamKind};
use super::super::state::{ALIVE_INTERVAL, Relay};
use super::super::window::WINDOW_BYTES;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use weir_model::{Span, Time};
use weir_proto::relay::{FlowKey, HOP_LIMIT, Header, Kind, OPEN_BYTES, Open};
use weir_proto::v1;

/// A payload is the offset that it was made with: what arrives can be told from what was sent.
pub(super) type Bytes = u64;

/// On the way from one relay to another.
#[derive(Clone, Debug)]
enum Passing {
    Down { from: usize, to: usize, header: Header, open: Option<Open>, payload: Bytes },
    Up { from: usize, to: usize, header: Header },
}

/// A receiver: what it got in order, and whether its flow was reset.
#[derive(Debug, Default)]
pub(super) struct Receiver {
    pub(super) bytes: u64,
    pub(super) reset: bool,
    /// Whether it has stopped taking bytes.
    pub(super) stuck: bool,
}

/// A source: a flow that a host hands to its relay as far as it may.
#[derive(Debug)]
struct Source {
    relay: usize,
    key: FlowKey,
    bytes: u64,
    sent: u64,
    granted: u64,
    closed: bool,
}

pub(super) struct Network {
    pub(super) now: Time,
    pub(super) relays: Vec<Relay<Bytes>>,
    alive: Vec<bool>,
    /// By relay, its neighbours that are connected.
    hops: Vec<BTreeMap<HopId, usize>>,
    wire: Vec<VecDeque<Passing>>,
    sources: BTreeMap<UpstreamId, Source>,
    pub(super) receivers: BTreeMap<SubscriberId, Receiver>,
    random: u64,
    /// Bytes that went from one relay to another.
    pub(super) carried: BTreeMap<(usize, usize), u64>,
    epoch: u64,
}

/// Lanes between relays: within one, order is kept, as in a connection.
const LANES: usize = 4;
/// 192 of them are more than the windows of all relays on a way.
pub(super) const MESSAGE: u32 = 128 << 10;

pub(super) fn address(relay: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 7000 + relay as u16))
}

pub(super) fn key(flow: u32) -> FlowKey {
    FlowKey { coflow: 1, reducer: flow, mapper: 0 }
}

impl Network {
    /// A relay at each of so many sites, which know of each other.
    pub(super) fn new(relays: usize, seed: u64) -> Network {
        let config = |relay| RelayConfig {
            name: format!("r{relay}"),
            site: relay as u32,
            address: address(relay),
            started_ms: 0,
            window_bytes: WINDOW_BYTES,
        };
        let mut network = Network {
            now: Time::from_millis(1),
            relays: (0..relays).map(|relay| Relay::new(config(relay))).collect(),
            alive: vec![true; relays],
            hops: vec![BTreeMap::new(); relays],
            wire: vec![VecDeque::new(); LANES],
            sources: BTreeMap::new(),
            receivers: BTreeMap::new(),
            random: seed | 1,
            carried: BTreeMap::new(),
            epoch: 0,
        };
        let entry = |relay| v1::RelayEntry {
            relay: format!("r{relay}"),
            site: relay as u32,
            data_address: address(relay).to_string(),
        };
        let list = v1::RelayList { relays: (0..relays).map(entry).collect() };
        let message = v1::ToRelay { kind: Some(v1::to_relay::Kind::Relays(list)) };
        let now = network.now;
        for relay in &mut network.relays {
            relay.handle_session_up();
            relay.handle_controller(now, &message);
        }
        network.act();
        network
    }

    fn draw(&mut self, below: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as usize % below
    }

    /// At one relay: flows of coflow 1 go to these, with these weights.
    pub(super) fn set_rule(&mut self, at: usize, to: &[(usize, f64)], rank: u64) {
        self.set_rule_of(at, to, rank, false);
    }

    /// The same, of flows that enter there alone.
    pub(super) fn set_entering_rule(&mut self, at: usize, to: &[(usize, f64)]) {
        self.set_rule_of(at, to, 0, true);
    }

    fn set_rule_of(&mut self, at: usize, to: &[(usize, f64)], rank: u64, entering: bool) {
        self.epoch += 1;
        let next_hops = to.iter().map(|&(relay, weight)| v1::NextHop {
            to: Some(v1::next_hop::To::Relay(format!("r{relay}"))),
            weight,
        });
        let prefix = Some(v1::FlowPrefix { coflow: Some(1), reducer: None, mapper: None });
        let rule = v1::Rule { prefix, next_hops: next_hops.collect(), rank, weight: 1.0, entering };
        let rules = v1::Rules { epoch: self.epoch, set: vec![rule], ..v1::Rules::default() };
        let message = v1::ToRelay { kind: Some(v1::to_relay::Kind::Rules(rules)) };
        self.relays[at].handle_controller(self.now, &message);
        self.act();
    }

    /// A host at relay `from` begins a flow to a receiver at relay `to`.
    pub(super) fn begin(&mut self, flow: u32, from: usize, to: usize, bytes: u64) -> SubscriberId {
        let subscriber = SubscriberId(u64::from(flow));
        self.receivers.insert(subscriber, Receiver::default());
        self.relays[to].handle_subscribe(self.now, subscriber, key(flow));
        let upstream = UpstreamId(1000 + u64::from(flow));
        let header = Header {
            kind: Kind::Open,
            hop_limit: HOP_LIMIT,
            length: OPEN_BYTES as u32,
            key: key(flow),
            number: bytes,
        };
        let open = Open { source_site: from as u32, destination_site: to as u32, destination: address(to) };
        let source = Source { relay: from, key: key(flow), bytes, sent: 0, granted: 0, closed: false };
        self.sources.insert(upstream, source);
        self.relays[from].handle_open(self.now, upstream, UpstreamKind::Host, &header, open);
        self.act();
        subscriber
    }

    pub(super) fn act(&mut self) {
        for relay in 0..self.relays.len() {
            while let Some(output) = self.relays[relay].poll_output() {
                self.do_output(relay, output);
            }
        }
    }

    fn do_output(&mut self, relay: usize, output: Output) {
        match output {
            Output::Dial { hop, address: to, .. } => {
                let to = (to.port() - 7000) as usize;
                if self.alive[to] {
                    self.hops[relay].insert(hop, to);
                    self.relays[relay].handle_hop_up(self.now, hop);
                } else {
                    self.relays[relay].handle_hop_down(self.now, hop);
                }
            }
            Output::Hangup(hop) => drop(self.hops[relay].remove(&hop)),
            Output::ToHop { hop, header, open } => {
                if let Some(&to) = self.hops[relay].get(&hop) {
                    self.pass(Passing::Down { from: relay, to, header, open, payload: 0 });
                }
            }
            Output::ToUpstream { upstream, header } => match self.sources.get_mut(&upstream) {
                Some(source) if header.kind == Kind::Credit => source.granted = header.number,
                Some(source) => source.closed = true,
                None => self.pass(Passing::Up { from: relay, to: upstream.0 as usize, header }),
            },
            Output::ToSubscriber { subscriber, header } => {
                if let Some(receiver) = self.receivers.get_mut(&subscriber) {
                    receiver.reset |= header.kind == Kind::Reset;
                }
            }
            Output::Deliver(_) | Output::Report(_) => {}
        }
    }

    /// What is said of a flow keeps its order; messages go by any lane.
    fn pass(&mut self, passing: Passing) {
        let control = match &passing {
            Passing::Down { header, .. } => header.kind != Kind::Data,
            Passing::Up { .. } => true,
        };
        let lane = if control { 0 } else { self.draw(LANES) };
        self.wire[lane].push_back(passing);
    }

    /// One thing happens, whichever is drawn: a message arrives, a relay sends one on, a receiver takes one, or a
    /// source hands one over.
    pub(super) fn step(&mut self) {
        match self.draw(4) {
            0 => {
                let lane = self.draw(LANES);
                if let Some(passing) = self.wire[lane].pop_front() {
                    self.arrive(passing);
                }
            }
            1 => self.send_on(),
            2 => self.deliver(),
            _ => self.feed(),
        }
        self.act();
    }

    /// What is on its way arrives, and what is said then too, but at most so many messages. How many did.
    pub(super) fn arrivals(&mut self, most: usize) -> usize {
        let mut arrived = 0;
        while let Some(passing) = self.wire.iter_mut().find_map(VecDeque::pop_front)
            && arrived < most
        {
            self.arrive(passing);
            self.act();
            arrived += 1;
        }
        arrived
    }

    fn arrive(&mut self, passing: Passing) {
        let now = self.now;
        match passing {
            Passing::Down { from, to, header, open, payload } if self.alive[from] && self.alive[to] => {
                let (relay, upstream) = (&mut self.relays[to], UpstreamId(from as u64));
                match (header.kind, open) {
                    (Kind::Open, Some(open)) => {
                        relay.handle_open(now, upstream, UpstreamKind::Relay, &header, open);
                    }
                    (Kind::Data, _) => relay.handle_data(now, upstream, &header, payload),
                    (Kind::Alive, _) => relay.handle_alive(now, upstream, &header),
                    (Kind::End, _) => relay.handle_end(upstream, header.key, header.number),
                    (Kind::Reset, _) => relay.handle_upstream_reset(upstream, header.key),
                    other => panic!("{other:?}"),
                }
            }
            Passing::Up { from, to, header } if self.alive[from] && self.alive[to] => {
                let Some(hop) = self.hops[to].iter().find(|(_, relay)| **relay == from).map(|(&hop, _)| hop)
                else {
                    return;
                };
                match header.kind {
                    Kind::Credit => self.relays[to].handle_credit(hop, header.key, header.number),
                    Kind::Reset => self.relays[to].handle_hop_reset(hop, header.key),
                    other => panic!("{other:?}"),
                }
            }
            // It was on its way when one of them died.
            Passing::Down { .. } | Passing::Up { .. } => {}
        }
    }

    fn send_on(&mut self) {
        let from = self.draw(self.relays.len());
        let hops: Vec<_> = self.hops[from].iter().map(|(&hop, &to)| (hop, to)).collect();
        if hops.is_empty() || !self.alive[from] {
            return;
        }
        let (hop, to) = hops[self.draw(hops.len())];
        if !self.relays[from].is_ready(hop) {
            return;
        }
        let message = self.relays[from].poll_message(hop).expect("a hop that is ready has a message");
        *self.carried.entry((from, to)).or_default() += u64::from(message.length);
        let header = message.header();
        self.pass(Passing::Down { from, to, header, open: None, payload: message.payload });
    }

    fn deliver(&mut self) {
        let subscribers: Vec<_> = self.receivers.keys().copied().collect();
        let subscriber = subscribers[self.draw(subscribers.len())];
        for relay in (0..self.relays.len()).filter(|&relay| self.alive[relay]) {
            let Some(receiver) = self.receivers.get_mut(&subscriber).filter(|receiver| !receiver.stuck)
            else {
                return;
            };
            if let Some(message) = self.relays[relay].poll_delivery(subscriber) {
                assert_eq!(
                    (message.offset, message.payload),
                    (receiver.bytes, receiver.bytes),
                    "in order, and whole"
                );
                receiver.bytes += u64::from(message.length);
            }
        }
    }

    fn feed(&mut self) {
        let upstreams: Vec<_> = self.sources.keys().copied().collect();
        if !upstreams.is_empty() {
            let upstream = upstreams[self.draw(upstreams.len())];
            self.hand_over(upstream);
        }
    }

    /// A source hands over all that it may.
    pub(super) fn fill(&mut self, flow: u32) {
        while self.hand_over(UpstreamId(1000 + u64::from(flow))) {}
        self.act();
    }

    /// A source hands over its next message; false if it has none, or may not.
    fn hand_over(&mut self, upstream: UpstreamId) -> bool {
        let Some(source) = self.sources.get_mut(&upstream) else { return false };
        let length = u64::from(MESSAGE).min(source.bytes - source.sent);
        if source.closed || length == 0 || source.sent + length > source.granted || !self.alive[source.relay]
        {
            return false;
        }
        let header = Header::data(source.key, HOP_LIMIT, source.sent, length as u32);
        let (relay, payload) = (source.relay, source.sent);
        source.sent += length;
        self.relays[relay].handle_data(self.now, upstream, &header, payload);
        true
    }

    /// The receivers that have all say so to their hosts, which end the flows.
    pub(super) fn acknowledge(&mut self) {
        let done = self.sources.iter().filter(|(upstream, source)| {
            let receiver = &self.receivers[&SubscriberId(upstream.0 - 1000)];
            receiver.bytes == source.bytes
        });
        let done: Vec<_> = done.map(|(&upstream, source)| (upstream, source.relay)).collect();
        for (upstream, relay) in done {
            self.sources.remove(&upstream);
            if self.alive[relay] {
                self.relays[relay].handle_upstream_closed(upstream);
            }
        }
        self.act();
    }

    /// A relay dies: its neighbours see their connections to and from it end.
    pub(super) fn kill(&mut self, dead: usize) {
        self.alive[dead] = false;
        for relay in (0..self.relays.len()).filter(|&relay| relay != dead) {
            let hop = self.hops[relay].iter().find(|(_, to)| **to == dead).map(|(&hop, _)| hop);
            if let Some(hop) = hop {
                self.hops[relay].remove(&hop);
                self.relays[relay].handle_hop_down(self.now, hop);
            }
            self.relays[relay].handle_upstream_closed(UpstreamId(dead as u64));
        }
        self.act();
    }

    pub(super) fn pass_time(&mut self, span: Span) {
        let end = self.now + span;
        // A longer step is one in which no relay ran.
        while self.now < end {
            self.now = end.min(self.now + ALIVE_INTERVAL);
            for relay in &mut self.relays {
                relay.handle_timeout(self.now);
            }
        }
        self.act();
    }

    /// So many steps, with what receivers acknowledge between.
    pub(super) fn run(&mut self, steps: usize) {
        for step in 0..steps {
            self.step();
            if step % 50 == 0 {
                self.acknowledge();
            }
        }
        self.acknowledge();
    }

    /// Flows that some living relay still knows.
    pub(super) fn open_flows(&self) -> usize {
        let living = self.relays.iter().zip(&self.alive).filter(|(_, alive)| **alive);
        living.map(|(relay, _)| relay.flows.len()).sum()
    }
}
