//! Connections that blocks go over: what is under way, and when it is there.

use crate::content::Part;
use crate::events::Event;
use crate::messages::RelayEnd;
use crate::serving::Served;
use crate::world::World;
use std::collections::VecDeque;
use weir_core::receiver::Link;
use weir_core::relay::HopId;
use weir_core::serving::Conversation;
use weir_model::{Span, Time};

/// What a socket takes that is not acknowledged.
pub(crate) const BUFFER_BYTES: u64 = 512 << 10;
/// What a receiver's socket takes that was not read.
const UNREAD_BYTES: u64 = 256 << 10;
/// After how long, in milliseconds, a kernel finds out that the machine at the other end of a connection is gone.
/// Measured: 25 s by probes alone (a relay that is dialled), 61 s where there is a user timeout.
const KEEPALIVE: (u64, u64) = (10_000, 65_000);
/// Of a full segment.
pub(crate) const SEGMENT_BYTES: u32 = 1_448;

/// When the links of a machine are free.
#[derive(Clone, Copy, Default)]
pub(crate) struct Port {
    up_free: Time,
    down_free: Time,
}

/// The end of a connection that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    Sender,
    Reader,
}

/// Who is at the ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// An agent, and a receiver that dialled it.
    Serving,
    /// A relay, and a receiver that dialled it.
    Delivery,
    /// An agent, and a relay that it dialled for the flow that was asked for on this connection.
    Upload(u64),
    /// A relay, and a neighbour that it dialled.
    Hop(HopId),
}

impl Role {
    /// Whether the end that sends flows has dialled.
    pub(crate) fn is_dialled_by_sender(self) -> bool {
        matches!(self, Role::Upload(_) | Role::Hop(_))
    }
}

/// A connection: one end sends flows, the other reads them.
pub(crate) struct Connection {
    pub(crate) role: Role,
    /// The machines of the sender and of the reader.
    pub(crate) from: u32,
    pub(crate) to: u32,
    /// Which get of a receiver's process has it, and what for; none while it waits for another get.
    pub(crate) get: Option<(usize, Link)>,
    /// Whether the reader has it open, and whether nothing comes on it any more.
    pub(crate) is_open: bool,
    pub(crate) is_broken: bool,
    /// Whether the sender has it open; where a receiver dialled an agent, its end of it instead.
    pub(crate) sends: bool,
    pub(crate) talk: Option<Conversation>,
    /// What the agent serves on it, and the connection by which it does so, if that is another one.
    pub(crate) served: Option<Served>,
    pub(crate) upload: Option<u64>,
    /// A stranger dialled it, who lies.
    pub(crate) is_liar: bool,
    /// What relays at its ends have of it.
    pub(crate) relay: RelayEnd,
    /// What was written and is not acknowledged.
    pub(crate) in_flight: u64,
    pub(crate) is_blocked: bool,
    /// What is at the receiver and was not read; how much of it its sender does not know of, since when that is so, and for
    /// how long it was before.
    pub(crate) unread: VecDeque<Part>,
    unread_bytes: u64,
    owed: u64,
    full_since: Time,
    was_full: Span,
    /// When what the receiver said last is there.
    said: Time,
}

impl Connection {
    fn new(role: Role, from: u32, to: u32) -> Connection {
        Connection {
            role,
            from,
            to,
            get: None,
            is_open: !role.is_dialled_by_sender(),
            is_broken: false,
            sends: role.is_dialled_by_sender(),
            talk: None,
            served: None,
            upload: None,
            is_liar: false,
            relay: RelayEnd::default(),
            in_flight: 0,
            is_blocked: false,
            unread: VecDeque::new(),
            unread_bytes: 0,
            owed: 0,
            full_since: Time::ZERO,
            was_full: Span::ZERO,
            said: Time::ZERO,
        }
    }

    /// Whether anything is at the end that sends.
    pub(crate) fn has_sender(&self) -> bool {
        self.sends || self.talk.is_some()
    }

    /// The neighbour that it leads to, of a machine that made it.
    pub(crate) fn hop_of(&self, machine: u32) -> Option<HopId> {
        match self.role {
            Role::Hop(hop) if self.to != machine => Some(hop),
            _ => None,
        }
    }

    /// Whether a relay reads it.
    pub(crate) fn is_read_by_relay(&self) -> bool {
        self.role.is_dialled_by_sender()
    }
}

impl World {
    /// A receiver's process dials an agent, or a relay.
    pub(crate) fn dial_for(&mut self, get: usize, link: Link, from: u32, to: u32) -> u64 {
        let role = if self.relay_of(from).is_some() { Role::Delivery } else { Role::Serving };
        let number = self.dial(role, from, to);
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.get = Some((get, link));
        }
        number
    }

    /// A process dials another one. Flows will go from one machine to the other, whichever of the two dials.
    pub(crate) fn dial(&mut self, role: Role, from: u32, to: u32) -> u64 {
        let number = self.number();
        self.connections.insert(number, Connection::new(role, from, to));
        let path = if role.is_dialled_by_sender() { (from, to) } else { (to, from) };
        let at = self.comes(path.0, path.1);
        self.queue.push(at, Event::Dialled { connection: number });
        number
    }

    /// It is there: the kernel of the machine that was dialled takes it.
    pub(crate) fn dialled(&mut self, number: u64) {
        let now = self.now;
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let (from, to) = (connection.from, connection.to);
        let by_sender = connection.role.is_dialled_by_sender();
        let machine = if by_sender { connection.to } else { connection.from };
        let (is_down, runs) = match self.hosts.get(machine as usize) {
            Some(host) => (host.is_down, host.agent.is_some()),
            // An address without a machine answers nothing.
            None => match self.relays.get(machine as usize - self.hosts.len()) {
                Some(relay) => (relay.is_down, relay.core.is_some()),
                None => return,
            },
        };
        match (is_down, runs, by_sender) {
            // A machine that is down answers nothing: the end that dialled gives up by a limit of
            // its own. Where only the process is missing, the kernel refuses.
            (true, ..) => return,
            (false, false, false) => return self.lose_receiver(number),
            (false, false, true) => return self.lose_sender(number),
            (false, true, true) => connection.is_open = true,
            (false, true, false) => match self.hosts.get(machine as usize) {
                Some(host) => connection.talk = Some(Conversation::new(host.now(now))),
                None => connection.sends = true,
            },
        }
        let path = if by_sender { (to, from) } else { (from, to) };
        let at = self.comes(path.0, path.1);
        self.queue.push(at, Event::Connected { connection: number });
    }

    /// When a word that is said now comes from a machine to another: where nothing comes through, it is said again until it does.
    fn comes(&mut self, from: u32, to: u32) -> Time {
        let at = self.now + self.delay();
        self.cut_until.get(&(from, to)).map_or(at, |until| at.max(*until))
    }

    /// The process that dialled hears that the connection is there.
    pub(crate) fn connected(&mut self, number: u64) {
        let Some(connection) = self.connections.get(&number) else { return };
        match connection.role {
            Role::Serving | Role::Delivery => {
                if let Some((get, link)) = connection.get {
                    self.receiver_connected(get, link);
                }
            }
            Role::Upload(of) => self.upload_connected(of),
            Role::Hop(hop) => self.hop_connected(connection.from, hop, number),
        }
    }

    /// A reader says something, after what it said before.
    pub(crate) fn say(&mut self, number: u64, bytes: Vec<u8>) {
        let at = self.said_by(number);
        self.queue.push(at, Event::Said { connection: number, bytes });
    }

    /// A reader's process closes a connection, after what it said.
    pub(crate) fn close(&mut self, number: u64) {
        let at = self.said_by(number);
        if let Some(connection) = self.connections.get_mut(&number) {
            (connection.is_open, connection.get) = (false, None);
            connection.unread.clear();
            self.queue.push(at, Event::SenderLoses { connection: number });
        }
    }

    fn said_by(&mut self, number: u64) -> Time {
        let path = self.connections.get(&number).map(|connection| (connection.to, connection.from));
        let at = path.map_or(self.now, |(from, to)| self.comes(from, to));
        let Some(connection) = self.connections.get_mut(&number) else { return at };
        // A connection keeps its order, whatever delays are drawn.
        connection.said = connection.said.max(at);
        connection.said
    }

    /// A sender's process closes a connection, after what it wrote.
    pub(crate) fn close_sender(&mut self, number: u64) {
        if let Some(connection) = self.connections.get_mut(&number)
            && connection.has_sender()
        {
            (connection.sends, connection.talk) = (false, None);
            self.send(number, vec![Part::End]);
            self.forget_if_over(number);
        }
    }

    /// Puts on their way what a sender wrote, at the rate of its uplink.
    pub(crate) fn send(&mut self, number: u64, parts: Vec<Part>) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let bytes = parts.iter().map(Part::len).sum();
        connection.in_flight += bytes;
        let port = &mut self.ports[connection.from as usize];
        // All connections of a machine share its line, in the order in which they were written to.
        let free = port.up_free.max(self.now) + self.settings.time_for(bytes);
        port.up_free = free;
        self.queue.push(free, Event::Left { connection: number, parts });
    }

    /// It has left the sender's uplink.
    pub(crate) fn left(&mut self, number: u64, mut parts: Vec<Part>) {
        let Some(connection) = self.connections.get(&number) else { return };
        let (from, to) = (connection.from, connection.to);
        if let Some(&until) = self.cut_until.get(&(from, to)).filter(|until| **until > self.now) {
            return self.queue.push(until, Event::Left { connection: number, parts });
        }
        // Only once it has left for good: parts held back by a cut pass here again, and would be
        // damaged more often.
        self.may_damage(&mut parts);
        let bytes = parts.iter().map(Part::len).sum();
        let at = self.crossed(from, to, bytes) + self.delay();
        let port = &mut self.ports[to as usize];
        let free = port.down_free.max(at) + self.settings.time_for(bytes);
        port.down_free = free;
        self.queue.push(free, Event::Arrived { connection: number, parts });
    }

    /// It is at its receiver, and waits to be read. The sender hears that it is there, while there is room.
    pub(crate) fn arrived(&mut self, number: u64, parts: Vec<Part>) {
        let now = self.now;
        let comes = |connection: &&mut Connection| connection.is_open && !connection.is_broken;
        let Some(connection) = self.connections.get_mut(&number).filter(comes) else { return };
        let bytes: u64 = parts.iter().map(Part::len).sum();
        connection.unread.extend(parts);
        connection.unread_bytes += bytes;
        // Once bytes are owed all that follow are owed too, so that acknowledgements stay in order.
        if connection.owed == 0 && connection.unread_bytes <= UNREAD_BYTES {
            self.acknowledge(number, bytes);
        } else if bytes > 0 {
            if connection.owed == 0 {
                connection.full_since = now;
            }
            connection.owed += bytes;
        }
        self.tell_reader(number);
    }

    /// Something is there for a reader.
    fn tell_reader(&mut self, number: u64) {
        let Some(connection) = self.connections.get(&number) else { return };
        match connection.get {
            Some((get, _)) => self.receiver_acts(get),
            None if connection.is_read_by_relay() => self.relay_may_read(connection.to, number),
            // An idle connection is looked at when it is used again.
            None => {}
        }
    }

    /// A reader took bytes out of its socket.
    pub(crate) fn was_read(&mut self, number: u64, bytes: u64) {
        let now = self.now;
        let Some(connection) = self.connections.get_mut(&number) else { return };
        connection.unread_bytes -= bytes;
        if connection.owed > 0 && connection.unread_bytes <= UNREAD_BYTES {
            let owed = std::mem::take(&mut connection.owed);
            connection.was_full = connection.was_full + now.since(connection.full_since);
            self.acknowledge(number, owed);
        }
    }

    fn acknowledge(&mut self, number: u64, bytes: u64) {
        let path = self.connections.get(&number).map(|connection| (connection.to, connection.from));
        if let Some((from, to)) = path.filter(|_| bytes > 0) {
            let at = self.comes(from, to);
            self.queue.push(at, Event::Acknowledged { connection: number, bytes });
        }
    }

    /// For how long a flow's receiver had no room.
    pub(crate) fn waited(&self, number: u64) -> Span {
        let Some(connection) = self.connections.get(&number) else { return Span::ZERO };
        let is_full = connection.owed > 0;
        let now = if is_full { self.now.since(connection.full_since) } else { Span::ZERO };
        connection.was_full + now
    }

    pub(crate) fn acknowledged(&mut self, number: u64, bytes: u64) {
        let at = self.now;
        let Some(connection) = self.connections.get_mut(&number) else { return };
        connection.in_flight -= bytes;
        // As a kernel does, which wakes a writer when a good part of its buffer is free, and not
        // for every acknowledgement.
        if !connection.is_blocked || connection.in_flight > BUFFER_BYTES / 2 {
            return;
        }
        let (machine, role) = (connection.from, connection.role);
        let flow_of = |connection: &Connection| connection.talk.as_ref().and_then(Conversation::flow);
        let flow = match role {
            Role::Delivery | Role::Hop(_) => {
                connection.is_blocked = false;
                return self.relay_may_write(machine, number);
            }
            Role::Serving => flow_of(connection),
            Role::Upload(of) => self.connections.get(&of).and_then(flow_of),
        };
        let Some(flow) = flow else { return };
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.is_blocked = false;
        }
        let side = &mut self.hosts[machine as usize];
        let now = side.now(at);
        if let Some(agent) = &mut side.agent {
            agent.handle_writable(now, flow);
        }
        self.settle_agent(machine);
    }

    /// The sender's end is gone, with what it wrote last: the reader learns of that.
    pub(crate) fn lose_receiver(&mut self, number: u64) {
        let after = self.notice_of_loss();
        self.later(after, Event::ReceiverLoses { connection: number });
    }

    /// The reader's end is gone, with what it said last: the sender learns of that.
    pub(crate) fn lose_sender(&mut self, number: u64) {
        let after = self.notice_of_loss();
        self.later(after, Event::SenderLoses { connection: number });
    }

    fn notice_of_loss(&mut self) -> Span {
        use rand::RngExt;
        // Now and then a reset is lost as well, and the loss is seen later, after what both ends
        // did since.
        if self.rng.random_range(0..8) == 0 { self.millis(1, 3_000) } else { self.delay() }
    }

    /// The machine of one end is gone, and says nothing: the kernel at the other one finds out.
    pub(crate) fn fall_silent(&mut self, number: u64, lost: Lost) {
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.is_broken = true;
            let after = self.millis(KEEPALIVE.0, KEEPALIVE.1);
            let event = match lost {
                Lost::Sender => Event::ReceiverLoses { connection: number },
                Lost::Reader => Event::SenderLoses { connection: number },
            };
            self.later(after, event);
        }
    }

    /// The reader's kernel hears that nothing comes on it any more.
    pub(crate) fn receiver_loses(&mut self, number: u64) {
        if let Some(connection) = self.connections.get_mut(&number) {
            (connection.talk, connection.sends) = (None, false);
            self.end_for_receiver(number);
        }
    }

    /// A connection breaks between its ends: what is under way on it is lost.
    pub(crate) fn break_connection(&mut self, number: u64) {
        let delay = self.delay();
        self.later(delay, Event::SenderLoses { connection: number });
        self.end_for_receiver(number);
    }

    /// Nothing comes any more.
    fn end_for_receiver(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        connection.is_broken = true;
        // A reset throws away what the reader had not read yet.
        connection.unread = VecDeque::from([Part::End]);
        match connection.get {
            Some((get, _)) => self.receiver_acts(get),
            None if connection.is_read_by_relay() && connection.is_open => {
                let machine = connection.to;
                self.relay_may_read(machine, number);
            }
            None => self.forget_if_over(number),
        }
    }

    /// Forgets a connection that neither end has any more.
    pub(crate) fn forget_if_over(&mut self, number: u64) {
        let is_over = |connection: &Connection| !connection.is_open && !connection.has_sender();
        if self.connections.get(&number).is_some_and(is_over) {
            self.connections.remove(&number);
        }
    }
}
