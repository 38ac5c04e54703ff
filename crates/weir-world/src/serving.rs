//! The serving side of connections: what an agent's process does with its sockets and files.

use crate::content::{Content, Part};
use crate::data::{BUFFER_BYTES, Role};
use crate::events::Event;
use crate::relays::relay_address;
use crate::world::World;
use weir_core::agent::Place;
use weir_core::ids::{BlockKey, FlowNumber};
use weir_core::serving::{Conversation, Input, Late, Opening, Outlet, Range, Write};
use weir_model::{CoflowId, Span, Time};
use weir_proto::data::{FRAME_BYTES, Request, Status};
use weir_proto::relay::{FlowKey, Open, RelayPath};

/// How long opening a file takes at most.
const OPEN: Span = Span::from_millis(1);
/// How often agents look at what takes too long.
const LOOK_INTERVAL: Span = Span::from_millis(2_000);

/// A block that is served.
pub(crate) struct Served {
    coflow: CoflowId,
    pub(crate) block: String,
    place: Place,
    /// What its file has in it now.
    content: Content,
    /// Checksums of its frames, where its producer said them.
    checksums: Vec<u32>,
}

impl Served {
    fn checksum(&self, offset: u64) -> u32 {
        let known = self.checksums.get((offset / FRAME_BYTES) as usize);
        known.copied().unwrap_or_else(|| self.content.checksum(offset))
    }
}

impl World {
    /// Whether the process of a machine runs.
    fn is_up(&self, machine: u32) -> bool {
        match self.relay_of(machine) {
            Some(relay) => self.relays[relay as usize].core.is_some(),
            None => self.hosts[machine as usize].agent.is_some(),
        }
    }

    /// What a reader said is there.
    pub(crate) fn said(&mut self, number: u64, bytes: Vec<u8>) {
        let lost = self.connections.get(&number).filter(|it| it.is_broken && !it.has_sender());
        if lost.map(|connection| connection.from).is_some_and(|from| self.is_up(from)) {
            // The kernel of a machine that came back knows of no such connection, and says so.
            let delay = self.delay();
            return self.later(delay, Event::ReceiverLoses { connection: number });
        }
        if let Some(talk) = self.talk(number) {
            talk.handle_input(&bytes);
            self.listen(number);
        } else {
            self.relay_hears(number, bytes);
        }
    }

    /// The reader's end is gone.
    pub(crate) fn sender_loses(&mut self, number: u64) {
        let Some(connection) = self.connections.get(&number) else { return };
        match connection.role {
            Role::Serving => {
                if let Some(talk) = self.talk(number) {
                    talk.handle_end();
                    self.listen(number);
                }
            }
            Role::Delivery | Role::Hop(_) => self.relay_loses(connection.from, number),
            Role::Upload(of) => self.upload_lost(of, number),
        }
        self.forget_if_over(number);
    }

    /// The connection that frames of a flow go by.
    pub(crate) fn carrier(&self, number: u64) -> u64 {
        self.connections.get(&number).and_then(|connection| connection.upload).unwrap_or(number)
    }

    /// An agent has reached the relay that carries a flow.
    pub(crate) fn upload_connected(&mut self, of: u64) {
        let Some((host, now)) = self.server(of) else { return };
        let Some(talk) = self.talk(of) else { return };
        talk.handle_connected();
        let flow = talk.flow();
        if let (Some(flow), Some(agent)) = (flow, &mut self.hosts[host as usize].agent) {
            agent.handle_writable(now, flow);
        }
        self.settle_agent(host);
    }

    /// A relay that carries a flow is gone, or gave it up: the receiver sees its own connection close, and asks again.
    fn upload_lost(&mut self, of: u64, upload: u64) {
        let Some(connection) = self.connections.get(&of) else { return };
        let host = connection.from;
        if connection.upload == Some(upload) {
            self.talk(of).into_iter().for_each(Conversation::handle_relay_failed);
            self.hang_up(of);
            self.settle_agent(host);
        }
    }

    /// Begins a connection to a relay for a flow that leaves the site, if one is to carry it.
    fn begin_upload(&mut self, number: u64, host: u32, opening: &Opening) -> Option<(FlowKey, Open)> {
        let (path, at) = (opening.way()?, self.now);
        let side = &mut self.hosts[host as usize];
        let (relay, open) = side.relays.choose(side.now(at), &path)?;
        let upload = self.dial(Role::Upload(number), host, self.machine_of(relay));
        self.connections.get_mut(&number)?.upload = Some(upload);
        let key = FlowKey::of(&opening.request, &path);
        self.note_key(key);
        Some((key, open))
    }

    /// The flow of a connection is over, or its sender gives it up.
    fn end_upload(&mut self, number: u64, is_unreached: bool) {
        let at = self.now;
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let Some(upload) = connection.upload.take() else { return };
        let host = connection.from;
        if let Some(relay) = self.connections.get(&upload).filter(|_| is_unreached).map(|upload| upload.to) {
            let address = relay_address(relay - self.settings.hosts);
            let side = &mut self.hosts[host as usize];
            let now = side.now(at);
            side.relays.handle_unreachable(now, address);
        }
        self.close_sender(upload);
    }

    fn talk(&mut self, number: u64) -> Option<&mut Conversation> {
        self.connections.get_mut(&number)?.talk.as_mut()
    }

    /// When it is on the clock of the host that serves a connection, and which host that is.
    fn server(&self, number: u64) -> Option<(u32, Time)> {
        let host = self.connections.get(&number)?.from;
        Some((host, self.hosts[host as usize].now(self.now)))
    }

    /// Does what a receiver wants.
    fn listen(&mut self, number: u64) {
        let Some((host, now)) = self.server(number) else { return };
        while let Some(talk) = self.talk(number) {
            let flow = talk.flow();
            match talk.poll_input(now) {
                Input::Nothing => break,
                Input::Request(request, path) => self.take_request(number, host, request, path),
                Input::Gather(request, _) => {
                    let agent = self.hosts[host as usize].agent.as_ref();
                    let refused = agent.and_then(|agent| agent.store_of(&request).err());
                    let talk = self.talk(number);
                    talk.into_iter().for_each(|talk| talk.refuse(refused.unwrap_or(Status::NoSuchBlock)));
                    self.flush(number);
                }
                // The receiver has all of it. The connection stays, for the next request on it.
                Input::Acknowledged => {
                    let side = &mut self.hosts[host as usize];
                    if let (Some(flow), Some(agent)) = (flow, &mut side.agent) {
                        side.flows.remove(&flow);
                        agent.handle_closed(flow, true);
                    }
                    if let Some(connection) = self.connections.get_mut(&number) {
                        connection.served = None;
                    }
                    self.end_upload(number, false);
                }
                Input::Doubted(frame) => {
                    self.flush(number);
                    self.doubt(number, host, frame);
                    self.hang_up(number);
                }
                Input::Ended => {
                    self.flush(number);
                    self.hang_up(number);
                }
            }
        }
        self.settle_agent(host);
    }

    fn take_request(&mut self, number: u64, host: u32, request: Request, path: Option<RelayPath>) {
        let side = &mut self.hosts[host as usize];
        let now = side.now(self.now);
        let (Some(agent), Some(connection)) = (&mut side.agent, self.connections.get_mut(&number)) else {
            return;
        };
        let Some(talk) = &mut connection.talk else { return };
        match agent.handle_request(now, &request) {
            Ok(opened) => {
                self.report.transfers += 1;
                let flow = opened.flow;
                side.flows.insert(flow, number);
                talk.open(Opening { opened, request, path });
                // The flow writes nothing before its file is open.
                agent.handle_blocked(now, flow);
                let after = self.span(OPEN);
                self.later(after, Event::Opened { connection: number, flow: flow.0 });
            }
            Err(status) => {
                talk.refuse(status);
                self.flush(number);
            }
        }
    }

    /// The file of a block is open, or cannot be opened.
    pub(crate) fn opened(&mut self, number: u64, flow: FlowNumber) {
        let Some((host, now)) = self.server(number) else { return };
        let Some(opening) = self.talk(number).and_then(|talk| talk.take_opening(flow)) else { return };
        let block = opening.opened.block.clone();
        let (offset, size, place) = (opening.opened.offset, block.size, block.place());
        let side = &mut self.hosts[host as usize];
        let Some(agent) = &mut side.agent else { return };
        if !agent.holds(block.coflow, &block.block, &place) {
            // What the file was opened for is over: its receiver asks again, and hears what holds now.
            self.end_flow(host, flow);
            self.hang_up(number);
        } else if side.disk.files.contains_key(&place.path) {
            let content = Content::new(block.identity, size);
            let is_hollow = side.disk.hollow.contains(&place.path);
            let content = if is_hollow { content.hollow() } else { content };
            let checksums = block.frame_checksums.clone();
            let served = Served { coflow: block.coflow, block: block.block, place, content, checksums };
            let relay = self.begin_upload(number, host, &opening);
            if let Some(connection) = self.connections.get_mut(&number)
                && let Some(talk) = &mut connection.talk
            {
                talk.serve(now, flow, vec![Range { offset, size }], (size, block.identity), relay);
                connection.served = Some(served);
            }
            if let Some(agent) = &mut self.hosts[host as usize].agent {
                agent.handle_writable(now, flow);
            }
            self.flush(number);
        } else if agent.handle_changed(block.coflow, &block.block, &place) {
            self.end_flow(host, flow);
            self.hang_up(number);
        } else {
            self.end_flow(host, flow);
            if let Some(talk) = self.talk(number) {
                talk.refuse(Status::Changed);
                self.flush(number);
            }
        }
        self.settle_agent(host);
    }

    fn end_flow(&mut self, host: u32, flow: FlowNumber) {
        let side = &mut self.hosts[host as usize];
        side.flows.remove(&flow);
        if let Some(agent) = &mut side.agent {
            agent.handle_closed(flow, false);
        }
    }

    /// A receiver got a frame that does not have its checksum: the file is looked at.
    fn doubt(&mut self, number: u64, host: u32, frame: u64) {
        let Some(served) = self.connections.get(&number).and_then(|connection| connection.served.as_ref())
        else {
            return;
        };
        let offset = frame * FRAME_BYTES;
        let is_changed = served.content.checksum(offset) != served.checksum(offset);
        let (coflow, block, place) = (served.coflow, served.block.clone(), served.place.clone());
        // The file is as it was put: then the frame was damaged on its way, which only a fault may
        // do.
        if !is_changed {
            if !self.has_damaged {
                self.violate(format!("host {host} is told that frame {frame} of {block} is wrong"));
            }
            return;
        }
        if let Some(agent) = &mut self.hosts[host as usize].agent {
            agent.handle_changed(coflow, &block, &place);
        }
    }

    /// An agent closes a connection, after what it wrote.
    pub(crate) fn hang_up(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let host = connection.from;
        let side_now = self.hosts[host as usize].now(self.now);
        let Some(talk) = &connection.talk else { return };
        let (flow, is_unreached) = (talk.flow(), talk.is_relay_unreached(side_now));
        connection.served = None;
        if let Some(flow) = flow {
            self.end_flow(host, flow);
        }
        self.end_upload(number, is_unreached);
        self.close_sender(number);
    }

    /// Writes what needs no permission.
    fn flush(&mut self, number: u64) {
        let mut parts = Vec::new();
        if let Some(talk) = self.talk(number) {
            while let Write::Bytes { to: Outlet::Receiver, bytes, .. } = talk.poll_write(0) {
                let count = bytes.len();
                parts.push(Part::Bytes(bytes.to_vec()));
                talk.handle_written(Outlet::Receiver, count);
            }
        }
        if !parts.is_empty() {
            self.send(number, parts);
        }
    }

    /// Writes at most so many bytes of a block: how many it were, and whether the socket took no more.
    pub(crate) fn write_flow(&mut self, number: u64, budget: u64) -> (u64, bool) {
        let Some((_, now)) = self.server(number) else { return (0, true) };
        let carrier = self.carrier(number);
        let in_flight = self.connections.get(&carrier).map_or(0, |carrier| carrier.in_flight);
        let Some(connection) = self.connections.get_mut(&number) else { return (0, true) };
        let (Some(talk), Some(served)) = (&mut connection.talk, &connection.served) else { return (0, true) };
        // Other writes on the connection may have filled it beyond the bound: heads need no
        // permission.
        let mut room = BUFFER_BYTES.saturating_sub(in_flight);
        let (mut parts, mut sent) = (Vec::new(), 0);
        let is_blocked = loop {
            match talk.poll_write(budget - sent) {
                Write::Nothing => break false,
                Write::Waits => break true,
                Write::Bytes { .. } | Write::Payload { .. } if room == 0 => break true,
                Write::Bytes { to, bytes, .. } => {
                    let count = (bytes.len() as u64).min(room) as usize;
                    parts.push(Part::Bytes(bytes[..count].to_vec()));
                    talk.handle_written(to, count);
                    room -= count as u64;
                }
                Write::Frame { offset, .. } => talk.handle_frame(served.checksum(offset)),
                Write::Payload { offset, count, .. } => {
                    let count = count.min(room);
                    parts.push(Part::Payload { of: served.content, offset, count, is_damaged: false });
                    talk.handle_sent(now, count);
                    (sent, room) = (sent + count, room - count);
                }
            }
        };
        if let Some(carrier) = self.connections.get_mut(&carrier) {
            carrier.is_blocked |= is_blocked;
        }
        if !parts.is_empty() {
            self.send(carrier, parts);
        }
        (sent, is_blocked)
    }

    /// Ends the connections that read a block of an agent, so that their receivers ask again.
    pub(crate) fn cut_off(&mut self, host: u32, key: &BlockKey, place: Option<&Place>) {
        let reads = |number: &&u64| {
            let served = self.connections.get(number).and_then(|connection| connection.served.as_ref());
            served.is_some_and(|served| {
                let is_there = place.is_none_or(|place| served.place == *place);
                served.coflow == key.coflow && served.block == key.name && is_there
            })
        };
        // Gathered first, as each end takes its flow out of the map.
        let readers: Vec<u64> = self.hosts[host as usize].flows.values().filter(reads).copied().collect();
        readers.into_iter().for_each(|number| self.hang_up(number));
    }

    pub(crate) fn look_later(&mut self, host: u32) {
        let life = self.hosts[host as usize].life;
        self.later(LOOK_INTERVAL, Event::Looks { host, life });
    }

    /// An agent looks at what takes too long.
    pub(crate) fn look(&mut self, host: u32, life: u64) {
        let side = &self.hosts[host as usize];
        // Looks of an earlier life of the agent end here; the new life has its own.
        if side.life != life || side.agent.is_none() {
            return;
        }
        let now = side.now(self.now);
        let of_host = self.connections.iter().filter(|(_, connection)| connection.from == host);
        let late =
            of_host.filter_map(|(&number, connection)| Some((number, connection.talk.as_ref()?.late(now)?)));
        for (number, late) in late.collect::<Vec<_>>() {
            match late {
                Late::Receiver => self.hang_up(number),
                Late::Gathering => {
                    self.violate(format!("host {host} finds the files of a gather for too long"))
                }
                Late::Opening(flow) => {
                    self.violate(format!("host {host} opens the file of flow {flow} for too long"))
                }
            }
        }
        self.settle_agent(host);
        self.look_later(host);
    }
}
