//! Connections over which blocks move: sockets with buffers, links that serve one chunk after another.

use crate::events::Event;
use crate::world::World;
use weir_model::{Span, Time};
use weir_proto::data::{Identity, Request, Status};

/// What a socket takes that is not acknowledged.
pub(crate) const BUFFER_BYTES: u64 = 512 << 10;
/// What a receiver's socket takes that was not read.
const UNREAD_BYTES: u64 = 256 << 10;
/// Of a full segment.
pub(crate) const SEGMENT_BYTES: u32 = 1_448;

/// A connection of a receiver to an agent, for one block.
#[derive(Debug)]
pub(crate) struct Transfer {
    pub(crate) get: usize,
    pub(crate) from: u32,
    to: u32,
    request: Request,
    /// The agent's process, and its flow.
    life: u64,
    flow: Option<u64>,
    /// When the answer is at the receiver: no bytes are before.
    answered: Time,
    pub(crate) size: u64,
    /// What was written to the socket, counted from the block's beginning, and what of it is not acknowledged.
    pub(crate) sent: u64,
    pub(crate) in_flight: u64,
    pub(crate) is_blocked: bool,
    /// What is at the receiver and was not read; when it has read that, and for how long, until then, there was something.
    unread: u64,
    read_free: Time,
    waits: Span,
    /// The receiver, and the agent, hold the connection open.
    receiver_open: bool,
    sender_open: bool,
}

impl World {
    /// A receiver asks an agent for the rest of a block.
    pub(crate) fn open(&mut self, get: usize, from: u32, to: u32, request: Request) -> u64 {
        let number = self.number();
        let transfer = Transfer {
            get,
            from,
            to,
            sent: request.offset,
            request,
            life: 0,
            flow: None,
            answered: Time::ZERO,
            size: 0,
            in_flight: 0,
            is_blocked: false,
            unread: 0,
            read_free: Time::ZERO,
            waits: Span::ZERO,
            receiver_open: true,
            sender_open: false,
        };
        self.transfers.insert(number, transfer);
        self.report.transfers += 1;
        let delay = self.delay();
        self.later(delay, Event::Request { transfer: number });
        number
    }

    pub(crate) fn request(&mut self, number: u64) {
        let at = self.now;
        let Some(transfer) = self.transfers.get_mut(&number) else { return };
        let host = transfer.from;
        let side = &mut self.hosts[host as usize];
        let now = side.now(at);
        let Some(agent) = &mut side.agent else {
            return self.lose_receiver(number);
        };
        let answer = match agent.handle_request(now, &transfer.request) {
            Ok(opened) if opened.block.size > 0 && side.disk.hollow.contains(&opened.block.path) => {
                // Where there are checksums, the first frame does not have its own.
                agent.handle_closed(opened.flow, false);
                let place = opened.block.place();
                agent.handle_changed(opened.block.coflow, &opened.block.block, &place);
                if opened.block.frame_checksums.is_empty() {
                    self.violate(format!("host {host} serves {} whose bytes were lost", place.path));
                }
                // The receiver is told so, and the task runs again.
                let get = self.transfers.get(&number).map(|transfer| &self.gets[transfer.get]);
                let of = get.map(|get| (get.job, get.block));
                if of.is_some_and(|(job, block)| !self.put_again(job, block)) {
                    self.violate(format!("host {host} has lost {}, which was durable", place.path));
                }
                self.settle_agent(host);
                return self.lose_receiver(number);
            }
            Ok(opened) => {
                (transfer.life, transfer.flow, transfer.sender_open) = (side.life, Some(opened.flow), true);
                (transfer.size, transfer.sent) = (opened.block.size, opened.offset);
                side.flows.insert(opened.flow, number);
                Ok((opened.block.identity, opened.block.size))
            }
            Err(status) => Err(status),
        };
        let answered = at + self.delay();
        if let Some(transfer) = self.transfers.get_mut(&number) {
            transfer.answered = answered;
        }
        self.queue.push(answered, Event::Response { transfer: number, answer });
        self.settle_agent(host);
    }

    pub(crate) fn response(&mut self, number: u64, answer: Result<(Identity, u64), Status>) {
        let Some(transfer) = self.transfers.get(&number).filter(|transfer| transfer.receiver_open) else {
            return;
        };
        let get = transfer.get;
        if answer.is_err() {
            self.transfers.remove(&number);
        }
        if self.receiver_is_answered(get, answer) {
            self.done_later(number);
        }
    }

    pub(crate) fn left(&mut self, number: u64, offset: u64, bytes: u64) {
        let Some(transfer) = self.transfers.get(&number) else { return };
        let (to, answered) = (transfer.to as usize, transfer.answered);
        let at = (self.now + self.delay()).max(answered);
        let free = self.hosts[to].down_free.max(at) + self.settings.time_for(bytes);
        self.hosts[to].down_free = free;
        self.queue.push(free, Event::Arrived { transfer: number, offset, bytes });
    }

    /// Bytes come to a receiver. One that reads slowly, or stands, leaves them in its socket.
    pub(crate) fn arrived(&mut self, number: u64, offset: u64, bytes: u64) {
        let now = self.now;
        let Some(transfer) = self.transfers.get_mut(&number) else { return };
        let free = transfer.read_free.max(now);
        let until = self.gets[transfer.get].reads_by(free, bytes);
        if until == now && transfer.unread == 0 {
            return self.read(number, offset, bytes, true);
        }
        transfer.waits = transfer.waits + until.since(free);
        transfer.read_free = until;
        transfer.unread += bytes;
        let acknowledges = transfer.unread > UNREAD_BYTES;
        if !acknowledges {
            let delay = self.delay();
            self.later(delay, Event::Acknowledged { transfer: number, bytes });
        }
        self.queue.push(until, Event::Read { transfer: number, offset, bytes, acknowledges });
    }

    /// For how long a flow's receiver had something to read.
    pub(crate) fn waited(&self, number: u64) -> Span {
        let Some(transfer) = self.transfers.get(&number) else { return Span::ZERO };
        Span::from_nanos(transfer.waits.nanos().saturating_sub(transfer.read_free.since(self.now).nanos()))
    }

    pub(crate) fn read(&mut self, number: u64, offset: u64, bytes: u64, acknowledges: bool) {
        if acknowledges {
            let delay = self.delay();
            self.later(delay, Event::Acknowledged { transfer: number, bytes });
        }
        if let Some(transfer) = self.transfers.get_mut(&number) {
            transfer.unread = transfer.unread.saturating_sub(bytes);
        }
        let Some(transfer) = self.transfers.get(&number).filter(|transfer| transfer.receiver_open) else {
            return;
        };
        let get = transfer.get;
        if self.gets[get].transfer != Some(number) {
            return self.violate(format!("get {get} is given bytes on a connection that it has closed"));
        }
        self.report.bytes += bytes;
        if self.receiver_takes(get, offset, bytes) {
            self.done_later(number);
        }
    }

    /// A receiver has all. The connection stays open until that was heard.
    fn done_later(&mut self, number: u64) {
        let delay = self.delay();
        self.later(delay, Event::Done { transfer: number });
    }

    pub(crate) fn acknowledged(&mut self, number: u64, bytes: u64) {
        let at = self.now;
        let Some(transfer) = self.transfers.get_mut(&number).filter(|transfer| transfer.sender_open) else {
            return;
        };
        transfer.in_flight -= bytes;
        let is_free = transfer.is_blocked && transfer.in_flight <= BUFFER_BYTES / 2;
        let (host, flow) = (transfer.from, transfer.flow);
        if is_free && let Some(flow) = flow {
            transfer.is_blocked = false;
            let side = &mut self.hosts[host as usize];
            let now = side.now(at);
            if let Some(agent) = &mut side.agent {
                agent.handle_writable(now, flow);
            }
            self.settle_agent(host);
        }
    }

    /// The receiver said that it has all.
    pub(crate) fn done(&mut self, number: u64) {
        self.end_flow(number, true);
        self.transfers.remove(&number);
    }

    /// The agent's end closes; the flow is done or not.
    fn end_flow(&mut self, number: u64, done: bool) {
        let Some(transfer) = self.transfers.get_mut(&number).filter(|transfer| transfer.sender_open) else {
            return;
        };
        transfer.sender_open = false;
        let (host, life, flow) = (transfer.from, transfer.life, transfer.flow);
        let side = &mut self.hosts[host as usize];
        let (true, Some(flow)) = (side.life == life, flow) else { return };
        side.flows.remove(&flow);
        if let Some(agent) = &mut side.agent {
            agent.handle_closed(flow, done);
            self.settle_agent(host);
        }
    }

    /// An agent closes the connection of a flow.
    pub(crate) fn close_flow(&mut self, host: u32, flow: u64) {
        if let Some(number) = self.hosts[host as usize].flows.remove(&flow) {
            if let Some(transfer) = self.transfers.get_mut(&number) {
                transfer.sender_open = false;
            }
            if let Some(agent) = &mut self.hosts[host as usize].agent {
                agent.handle_closed(flow, false);
            }
            self.lose_receiver(number);
        }
    }

    /// Whoever reads a block of an agent asks again.
    pub(crate) fn cut_off(&mut self, host: u32, coflow: u64, block: &str) {
        let reads = |number: &u64| {
            let request = self.transfers.get(number).map(|transfer| &transfer.request);
            request.is_some_and(|request| request.coflow == coflow && request.block == block)
        };
        let flows = self.hosts[host as usize].flows.iter();
        let flows: Vec<u64> = flows.filter(|(_, number)| reads(number)).map(|(&flow, _)| flow).collect();
        flows.into_iter().for_each(|flow| self.close_flow(host, flow));
    }

    /// The agent's end is gone: the receiver learns of that.
    pub(crate) fn lose_receiver(&mut self, number: u64) {
        use rand::RngExt;
        let after = if self.rng.random_range(0..8) == 0 { self.millis(1, 3_000) } else { self.delay() };
        self.later(after, Event::ReceiverLoses { transfer: number });
    }

    pub(crate) fn receiver_loses(&mut self, number: u64) {
        let Some(transfer) = self.transfers.remove(&number) else { return };
        if transfer.receiver_open {
            self.receiver_is_left(transfer.get, number);
        }
    }

    /// A connection breaks between its ends.
    pub(crate) fn break_transfer(&mut self, number: u64) {
        let Some(transfer) = self.transfers.get_mut(&number).filter(|transfer| transfer.receiver_open) else {
            return;
        };
        transfer.receiver_open = false;
        let get = transfer.get;
        let delay = self.delay();
        self.later(delay, Event::SenderLoses { transfer: number });
        self.receiver_is_left(get, number);
    }

    pub(crate) fn sender_loses(&mut self, number: u64) {
        self.end_flow(number, false);
        self.transfers.remove(&number);
    }
}
