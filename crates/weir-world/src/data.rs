//! Connections that blocks go over: what is under way, and when it is there.

use crate::content::Part;
use crate::events::Event;
use crate::serving::Served;
use crate::world::World;
use std::collections::VecDeque;
use weir_core::receiver::Link;
use weir_core::serving::Conversation;
use weir_model::{Span, Time};

/// What a socket takes that is not acknowledged.
pub(crate) const BUFFER_BYTES: u64 = 512 << 10;
/// What a receiver's socket takes that was not read.
const UNREAD_BYTES: u64 = 256 << 10;
/// After how long, in milliseconds, a kernel finds out that the machine at the other end of a connection is gone.
const KEEPALIVE: (u64, u64) = (10_000, 25_000);
/// Of a full segment.
pub(crate) const SEGMENT_BYTES: u32 = 1_448;

/// A connection from a receiver's process to an agent.
pub(crate) struct Connection {
    /// The agent's host.
    pub(crate) from: u32,
    /// The receiver's host, which of its gets has it, and what for; none while it waits for another get.
    pub(crate) to: u32,
    pub(crate) get: Option<(usize, Link)>,
    /// Whether the receiver's process has it open, and whether nothing comes on it any more.
    pub(crate) is_open: bool,
    is_broken: bool,
    /// The agent's end, while it has it open.
    pub(crate) talk: Option<Conversation>,
    /// What the agent serves on it.
    pub(crate) served: Option<Served>,
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

impl World {
    /// A receiver's process dials an agent.
    pub(crate) fn dial(&mut self, get: usize, link: Link, from: u32, to: u32) -> u64 {
        let number = self.number();
        let connection = Connection {
            from,
            to,
            get: Some((get, link)),
            is_open: true,
            is_broken: false,
            talk: None,
            served: None,
            in_flight: 0,
            is_blocked: false,
            unread: VecDeque::new(),
            unread_bytes: 0,
            owed: 0,
            full_since: Time::ZERO,
            was_full: Span::ZERO,
            said: Time::ZERO,
        };
        self.connections.insert(number, connection);
        let delay = self.delay();
        self.later(delay, Event::Dialled { connection: number });
        number
    }

    /// It is there: the agent's kernel takes it.
    pub(crate) fn dialled(&mut self, number: u64) {
        let now = self.now;
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let side = &self.hosts[connection.from as usize];
        if side.is_down {
            return;
        }
        if side.agent.is_none() {
            return self.lose_receiver(number);
        }
        connection.talk = Some(Conversation::new(side.now(now)));
        let delay = self.delay();
        self.later(delay, Event::Connected { connection: number });
    }

    /// A receiver says something, after what it said before.
    pub(crate) fn say(&mut self, number: u64, bytes: Vec<u8>) {
        let at = self.said_by(number);
        self.queue.push(at, Event::Said { connection: number, bytes });
    }

    /// A receiver's process closes a connection, after what it said.
    pub(crate) fn close(&mut self, number: u64) {
        let at = self.said_by(number);
        if let Some(connection) = self.connections.get_mut(&number) {
            (connection.is_open, connection.get) = (false, None);
            connection.unread.clear();
            self.queue.push(at, Event::SenderLoses { connection: number });
        }
    }

    fn said_by(&mut self, number: u64) -> Time {
        let at = self.now + self.delay();
        let Some(connection) = self.connections.get_mut(&number) else { return at };
        connection.said = connection.said.max(at);
        connection.said
    }

    /// An agent writes.
    pub(crate) fn send(&mut self, number: u64, parts: Vec<Part>) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let bytes = parts.iter().map(Part::len).sum();
        connection.in_flight += bytes;
        let side = &mut self.hosts[connection.from as usize];
        let free = side.up_free.max(self.now) + self.settings.time_for(bytes);
        side.up_free = free;
        self.queue.push(free, Event::Left { connection: number, parts });
    }

    /// It has left the sender's uplink.
    pub(crate) fn left(&mut self, number: u64, mut parts: Vec<Part>) {
        self.may_damage(&mut parts);
        let Some(connection) = self.connections.get(&number) else { return };
        let to = connection.to as usize;
        let at = self.now + self.delay();
        let bytes = parts.iter().map(Part::len).sum();
        let free = self.hosts[to].down_free.max(at) + self.settings.time_for(bytes);
        self.hosts[to].down_free = free;
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
        if connection.owed == 0 && connection.unread_bytes <= UNREAD_BYTES {
            self.acknowledge(number, bytes);
        } else if bytes > 0 {
            if connection.owed == 0 {
                connection.full_since = now;
            }
            connection.owed += bytes;
        }
        match self.connections.get(&number).and_then(|connection| connection.get) {
            Some((get, _)) => self.receiver_acts(get),
            // An idle connection is looked at when it is used again.
            None => self.was_read(number, bytes),
        }
    }

    /// A receiver took bytes out of its socket.
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
        if bytes > 0 {
            let delay = self.delay();
            self.later(delay, Event::Acknowledged { connection: number, bytes });
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
        let is_free = connection.is_blocked && connection.in_flight <= BUFFER_BYTES / 2;
        let (host, flow) = (connection.from, connection.talk.as_ref().and_then(Conversation::flow));
        if is_free && let Some(flow) = flow {
            connection.is_blocked = false;
            let side = &mut self.hosts[host as usize];
            let now = side.now(at);
            if let Some(agent) = &mut side.agent {
                agent.handle_writable(now, flow);
            }
            self.settle_agent(host);
        }
    }

    /// The agent's end is gone, with what it wrote last: the receiver learns of that.
    pub(crate) fn lose_receiver(&mut self, number: u64) {
        use rand::RngExt;
        let after = if self.rng.random_range(0..8) == 0 { self.millis(1, 3_000) } else { self.delay() };
        self.later(after, Event::ReceiverLoses { connection: number });
    }

    /// The agent's machine is gone, and says nothing: the receiver's kernel finds out.
    pub(crate) fn fall_silent(&mut self, number: u64) {
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.is_broken = true;
            let after = self.millis(KEEPALIVE.0, KEEPALIVE.1);
            self.later(after, Event::ReceiverLoses { connection: number });
        }
    }

    /// The receiver's kernel hears that nothing comes on it any more.
    pub(crate) fn receiver_loses(&mut self, number: u64) {
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.talk = None;
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
        connection.unread = VecDeque::from([Part::End]);
        match connection.get {
            Some((get, _)) => self.receiver_acts(get),
            None => self.forget_if_over(number),
        }
    }

    /// Forgets a connection that nobody has any more.
    pub(crate) fn forget_if_over(&mut self, number: u64) {
        let is_over = |connection: &Connection| !connection.is_open && connection.talk.is_none();
        if self.connections.get(&number).is_some_and(is_over) {
            self.connections.remove(&number);
        }
    }
}
