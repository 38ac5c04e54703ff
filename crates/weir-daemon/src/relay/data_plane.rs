//! The relay's thread: connections on one side, the state machine on the other.

mod peers;
mod silence;
#[cfg(test)]
mod tests;
mod writing;

use super::link::Link;
use super::metrics::Said;
use super::{Command, ConnectionRates};
use peers::Peer;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use tokio::sync::mpsc;
use weir_core::relay::{
    Contact, HopId, Neighbours, Output, Received, Relay, RelayConfig, RelayCounters, Role, UpstreamId,
    UpstreamKind,
};
use weir_model::{Span, Time};
use weir_net::{Clock, Event, Payload, PipePool, Poller};
use weir_proto::relay::{FlowKey, HELLO_BYTES, Header, Hello, Kind, Role as Says};
use weir_proto::{limits, v1};

const LISTENER: u64 = 0;
/// How often connections that say nothing are looked for, and what should be rare is told.
const SWEEP_INTERVAL: Span = Span::from_millis(1_000);
/// Messages read from one connection before the others have their turn.
const READS_PER_TURN: usize = 8;

/// What the thread has of the operating system.
pub(super) struct Edge {
    pub(super) clock: Clock,
    pub(super) listener: TcpListener,
    pub(super) poller: Poller,
    /// Parallel connections to each neighbour.
    pub(super) connections: u8,
    pub(super) connection_rates: ConnectionRates,
}

/// Everything the thread owns but what is not sent between threads.
pub(super) struct DataPlane {
    edge: Edge,
    config: RelayConfig,
    inbox: mpsc::Receiver<Command>,
}

impl DataPlane {
    pub(super) fn start(
        config: RelayConfig,
        edge: Edge,
        inbox: mpsc::Receiver<Command>,
    ) -> io::Result<DataPlane> {
        edge.poller.add(&edge.listener, LISTENER)?;
        Ok(DataPlane { edge, config, inbox })
    }

    /// Runs until told to stop.
    pub(super) fn run(self) -> io::Result<()> {
        let mut running = Running::new(self);
        let mut events = Vec::new();
        while let Some(timeout) = running.turn(events.drain(..)) {
            running.edge.poller.wait(Some(timeout), &mut events)?;
        }
        Ok(())
    }
}

struct Running {
    edge: Edge,
    relay: Relay<Payload>,
    inbox: mpsc::Receiver<Command>,
    pool: PipePool,
    peers: BTreeMap<u64, Peer>,
    neighbours: Neighbours,
    /// Connections that may have more to read.
    readable: BTreeSet<u64>,
    /// Connections that may have something to write.
    writable: BTreeSet<u64>,
    session: Option<mpsc::Sender<v1::FromRelay>>,
    next_token: u64,
    accept_again: bool,
    /// How often a connection could not be accepted.
    not_accepted: u64,
    /// How many connections there may be.
    most_connections: usize,
    /// When connections that say nothing are looked for next.
    next_sweep: Time,
    counters: RelayCounters,
}

impl Running {
    fn new(DataPlane { edge, config, inbox }: DataPlane) -> Running {
        Running {
            edge,
            relay: Relay::new(config),
            inbox,
            pool: PipePool::default(),
            peers: BTreeMap::new(),
            neighbours: Neighbours::default(),
            readable: BTreeSet::new(),
            writable: BTreeSet::new(),
            session: None,
            next_token: LISTENER + 1,
            accept_again: false,
            not_accepted: 0,
            most_connections: weir_net::connections_within_limit(limits::MAX_RELAY_CONNECTIONS),
            next_sweep: Time::ZERO,
            counters: RelayCounters::default(),
        }
    }

    /// Does what there is to do after these events. How long to wait for the next; `None` once the thread is to end.
    fn turn(&mut self, events: impl Iterator<Item = Event>) -> Option<Span> {
        if !self.take_commands() {
            return None;
        }
        for event in events {
            self.handle_event(event);
        }
        if std::mem::take(&mut self.accept_again) {
            self.accept();
        }
        self.read_turn();
        self.pass_time();
        self.act();
        let more = self.write_turn();
        self.act();
        Some(if more || !self.readable.is_empty() || !self.writable.is_empty() {
            Span::ZERO
        } else if self.accept_again {
            Span::from_millis(5)
        } else {
            let next = self.relay.next_timeout().unwrap_or(Time::MAX);
            let next = next.min(self.neighbours.next_late().unwrap_or(Time::MAX)).min(self.next_sweep);
            next.since(self.edge.clock.now()).max(Span::from_nanos(100_000))
        })
    }

    /// False once the thread is to end.
    fn take_commands(&mut self) -> bool {
        loop {
            match self.inbox.try_recv() {
                Ok(Command::SessionUp(session)) => {
                    self.session = Some(session);
                    self.relay.handle_session_up();
                }
                Ok(Command::Observe(reply)) => {
                    let _ = reply.send(Said {
                        session: self.session.is_some(),
                        rules: self.relay.rules(),
                        held: self.relay.held(),
                        connections: self.peers.len(),
                        counters: self.relay.counters(),
                    });
                }
                Ok(Command::SessionLost) => self.lose_session(),
                Ok(Command::Controller(message)) => {
                    self.relay.handle_controller(self.edge.clock.now(), &message);
                }
                Ok(Command::Stop) | Err(mpsc::error::TryRecvError::Disconnected) => return false,
                Err(mpsc::error::TryRecvError::Empty) => return true,
            }
        }
    }

    fn lose_session(&mut self) {
        self.session = None;
        self.relay.handle_session_lost();
    }

    /// Hands on what the controller is to know.
    fn report(&mut self, report: v1::FromRelay) {
        if self.session.as_ref().is_some_and(|session| session.try_send(report).is_err()) {
            // The controller does not keep up or is gone. The session task sees its queue close, and a new session begins
            // with everything.
            self.lose_session();
        }
    }

    fn pass_time(&mut self) {
        let now = self.edge.clock.now();
        for hop in self.neighbours.late(now) {
            self.end(Role::Hop(hop), &io::Error::from(io::ErrorKind::TimedOut));
        }
        if self.relay.next_timeout().is_some_and(|next| next <= now) {
            self.relay.handle_timeout(now);
        }
        if self.next_sweep <= now {
            self.next_sweep = now + SWEEP_INTERVAL;
            self.close_silent(now);
            self.tell_counters();
        }
        if self.relay.wants_samples(now) {
            let unacknowledged = self.neighbours.hops().map(|hop| {
                let peers = self.neighbours.links(hop).iter().filter_map(|link| self.peers.get(link));
                let waits = peers.filter_map(|peer| weir_net::unacknowledged(peer.link.stream()).ok());
                (hop, waits.sum())
            });
            let unacknowledged = unacknowledged.collect();
            self.relay.handle_samples(now, &unacknowledged);
        }
    }

    fn handle_event(&mut self, event: Event) {
        if event.token == LISTENER {
            return self.accept();
        }
        let Some(peer) = self.peers.get_mut(&event.token) else { return };
        if peer.connecting {
            return self.check_dialled(event.token);
        }
        if event.writable {
            peer.blocked = false;
            self.writable.insert(event.token);
        }
        if event.readable {
            self.readable.insert(event.token);
        }
    }

    fn accept(&mut self) {
        loop {
            let stream = match self.edge.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    // Out of descriptors, most likely: idle connections make room. Those waiting are tried again shortly.
                    if !self.make_room() {
                        self.not_accepted += 1;
                        // Accepting is tried hundreds of times a second: only each doubling of the count is told.
                        if self.not_accepted.is_power_of_two() {
                            let failed = self.not_accepted;
                            tracing::warn!(%error, failed, "cannot accept a connection");
                        }
                    }
                    self.accept_again = true;
                    return;
                }
            };
            let full = self.peers.len() >= self.most_connections && !self.make_room();
            let ready = stream.set_nonblocking(true).is_ok() && weir_net::tune_served(&stream).is_ok();
            if !full && ready {
                self.add_peer(stream, Contact::accepted(), false);
            }
        }
    }

    /// Watches a connection; its token.
    fn add_peer(&mut self, stream: TcpStream, contact: Contact, connecting: bool) -> Option<u64> {
        let token = self.next_token;
        self.next_token += 1;
        self.edge.poller.add(&stream, token).ok()?;
        self.peers.insert(token, Peer::new(self.now(), Link::new(stream), contact, connecting));
        Some(token)
    }

    fn read_turn(&mut self) {
        for token in self.readable.iter().copied().collect::<Vec<_>>() {
            for _ in 0..READS_PER_TURN {
                let Some(peer) = self.peers.get_mut(&token).filter(|peer| peer.may_read()) else {
                    self.readable.remove(&token);
                    break;
                };
                match peer.link.read(&self.pool) {
                    Ok(Some(received)) => {
                        peer.heard = self.edge.clock.now();
                        self.handle_received(token, received);
                    }
                    Ok(None) => {
                        self.readable.remove(&token);
                        break;
                    }
                    Err(error) => {
                        tracing::debug!(token, %error, "a connection ended");
                        self.close(token, &error);
                    }
                }
            }
        }
    }

    fn handle_received(&mut self, token: u64, received: Received<Payload>) {
        let now = self.edge.clock.now();
        let Some(peer) = self.peers.get_mut(&token) else { return };
        let is_hello = matches!(received, Received::Hello(_));
        let link = (token, &mut peer.contact);
        if let Err(error) = self.relay.handle_received(now, &mut self.neighbours, link, received) {
            return self.close_odd(token, &error.to_string());
        }
        if is_hello && matches!(peer.contact.role(), Role::Upstream(_, UpstreamKind::Relay)) {
            // This end sends credits and acknowledgements alone, which are not to wait behind what goes the other way.
            let stream = peer.link.stream();
            if weir_net::tune_relay(stream).and_then(|()| weir_net::mark_control(stream)).is_err() {
                self.close_odd(token, "a connection that cannot be marked");
            }
        }
    }

    fn close_odd(&mut self, token: u64, what: &str) {
        let error = io::Error::new(io::ErrorKind::InvalidData, what);
        tracing::warn!(token, %error, "a connection is closed");
        self.close(token, &error);
    }

    /// A connection ended: what it stood for ends with it.
    fn close(&mut self, token: u64, error: &io::Error) {
        let Some(peer) = self.peers.remove(&token) else { return };
        self.end(peer.contact.role(), error);
    }

    /// Whom connections led to is gone, and they with it.
    fn end(&mut self, role: Role, error: &io::Error) {
        for link in self.relay.handle_closed(self.edge.clock.now(), &mut self.neighbours, role) {
            self.peers.remove(&link);
        }
        if let Role::Hop(hop) = role {
            tracing::info!(hop = hop.0, %error, "a neighbour failed");
        }
    }

    fn dial(&mut self, hop: HopId, address: SocketAddr, site: u32) {
        let now = self.edge.clock.now();
        let rate = self.edge.connection_rates.to_site(site);
        let mut links = Vec::new();
        for _ in 0..self.edge.connections.max(1) {
            let dial = || {
                let stream = weir_net::dial(address)?;
                weir_net::tune_relay(&stream)?;
                rate.map_or(Ok(()), |rate| weir_net::limit_rate(&stream, rate))?;
                Ok(stream)
            };
            let stream = match dial() {
                Ok(stream) => stream,
                Err(error) => {
                    // Noted before `end`, which closes the connections to this neighbour that were begun.
                    self.neighbours.dial(now, hop, links);
                    return self.end(Role::Hop(hop), &error);
                }
            };
            links.extend(self.add_peer(stream, Contact::dialled(hop), true));
        }
        let has_none = links.is_empty();
        self.neighbours.dial(now, hop, links);
        if has_none {
            self.end(Role::Hop(hop), &io::Error::other("no connection to it can be watched"));
        }
    }

    /// A connection to a neighbour may be there now, or may have failed.
    fn check_dialled(&mut self, token: u64) {
        let Some(peer) = self.peers.get_mut(&token) else { return };
        let Role::Hop(hop) = peer.contact.role() else { return };
        match weir_net::connected(peer.link.stream()) {
            Ok(false) => return,
            Ok(true) => peer.connecting = false,
            Err(error) => return self.end(Role::Hop(hop), &error),
        }
        // Hello goes out once all connections to the neighbour are there.
        if !self.neighbours.handle_connected(hop) {
            return;
        }
        let connections = self.edge.connections.max(1);
        let hello = Hello { role: Says::Relay, connections, session: rand::random() }.encode();
        let key = FlowKey { coflow: 0, reducer: 0, mapper: 0 };
        // Hello is about no flow: its key is all zeros.
        let header = Header { length: HELLO_BYTES as u32, ..Header::about(key, Kind::Hello, 0) };
        for link in self.neighbours.links(hop) {
            if let Some(peer) = self.peers.get_mut(link) {
                peer.link.say(&header, &hello);
                self.writable.insert(*link);
                self.readable.insert(*link);
            }
        }
        self.relay.handle_hop_up(self.edge.clock.now(), hop);
    }

    fn hang_up(&mut self, hop: HopId) {
        for link in self.neighbours.hang_up(hop) {
            self.peers.remove(&link);
        }
    }

    /// Does what the state machine says.
    fn act(&mut self) {
        while let Some(output) = self.relay.poll_output() {
            match output {
                Output::Dial { hop, address, site } => self.dial(hop, address, site),
                Output::Hangup(hop) => self.hang_up(hop),
                Output::ToHop { hop, header, open } => {
                    let body = open.map(|open| open.encode());
                    let body = body.as_ref().map_or(&[][..], |body| &body[..]);
                    self.say(self.neighbours.on_to(hop, header.key), &header, body);
                }
                Output::ToUpstream { upstream, header } => {
                    match self.neighbours.back_to(upstream, header.key) {
                        Some(link) => self.say(Some(link), &header, &[]),
                        None => self.tell_host(upstream, &header),
                    }
                }
                Output::ToSubscriber { subscriber, header } => self.say(Some(subscriber.0), &header, &[]),
                Output::Deliver(subscriber) => {
                    self.writable.insert(subscriber.0);
                }
                Output::Report(report) => self.report(report),
            }
        }
    }

    fn say(&mut self, link: Option<u64>, header: &Header, body: &[u8]) {
        if let Some(link) = link
            && let Some(peer) = self.peers.get_mut(&link)
        {
            peer.link.say(header, body);
            // Here, for a connection that takes nothing is not written to.
            if peer.link.is_overfull() {
                return self.close(link, &io::Error::other("a peer that takes nothing"));
            }
            self.writable.insert(link);
        }
    }

    /// A host is told by what is read of its connection: its flow's, and no other's.
    fn tell_host(&mut self, upstream: UpstreamId, header: &Header) {
        let Some(peer) = self.peers.get_mut(&upstream.0) else { return };
        if peer.contact.handle_told(header) {
            self.readable.insert(upstream.0);
        } else {
            self.close(upstream.0, &io::Error::other("the flow was given up"));
        }
    }

    fn now(&self) -> Time {
        self.edge.clock.now()
    }
}
