//! Receivers: each gets one block, as a process with the client library does.

use crate::content::{Content, Part, read_parts};
use crate::events::{Call, Caller, Event, Reply};
use crate::world::World;
use rand::RngExt;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use weir_core::ids::HostNumber;
use weir_core::receiver::{Link, Located, Output, Receiver, ReceiverConfig, ReceiverError};
use weir_model::{CoflowId, Rate, Span, Time};
use weir_proto::v1;

/// How long a get may take.
const TIME_LIMIT: Span = Span::from_millis(3_600_000);
/// So long after a block was put the receivers that wait for it have heard so, where nothing fails.
const ANSWERED: Span = Span::from_millis(100);
/// In the order in which they are looked at.
const LINKS: [Link; 3] = [Link::Holder, Link::Relay, Link::Probe];

/// A get of one block by a receiver's task.
pub(crate) struct Get {
    pub(crate) job: usize,
    pub(crate) block: usize,
    pub(crate) host: u32,
    /// While it is under way.
    receiver: Option<Receiver>,
    /// Whether its caller waits for the next frame.
    waits: bool,
    /// Bytes that it handed out.
    received: u64,
    pub(crate) connections: BTreeMap<Link, u64>,
    /// Its last call of the coordinator.
    call: u64,
    /// When it began; none once it knows of a holder.
    looks_since: Option<Time>,
    /// When it acts next.
    wakes: Time,
    pub(crate) is_done: bool,
    /// The task will run, and get, once more: it was thought dead.
    runs_again: bool,
    /// It reads no faster than that, and nothing until then.
    reads: Option<Rate>,
    pub(crate) stands_until: Time,
}

impl Get {
    pub(crate) fn new(job: usize, block: usize, host: u32, runs_again: bool, reads: Option<Rate>) -> Get {
        Get {
            job,
            block,
            host,
            receiver: None,
            waits: false,
            received: 0,
            connections: BTreeMap::new(),
            call: 0,
            looks_since: None,
            wakes: Time::MAX,
            is_done: false,
            runs_again,
            reads,
            stands_until: Time::ZERO,
        }
    }
}

impl std::fmt::Debug for Get {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Get { job, block, host, received, connections, .. } = self;
        write!(
            f,
            "get of block {block} of job {job} to host {host}, {received} bytes so far, {connections:?}"
        )
    }
}

/// Where the agent of a host listens.
pub(crate) fn address_of(host: u32) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + host)), 7_071)
}

impl World {
    /// A task begins to get its block.
    pub(crate) fn get(&mut self, number: usize) {
        let now = self.now;
        let get = &mut self.gets[number];
        let job = &self.jobs[get.job];
        let Some(coflow) = job.coflow.filter(|_| !job.is_over() && !get.is_done && get.receiver.is_none())
        else {
            return;
        };
        let config = ReceiverConfig {
            coflow: CoflowId(coflow),
            block: job.blocks[get.block].name.clone(),
            host: HostNumber(get.host),
            group: 0,
            holders: Vec::new(),
            verify_whole: false,
            end: now + TIME_LIMIT,
            avoided: BTreeMap::new(),
        };
        let mut receiver = Receiver::new(config, self.buffers.pop().unwrap_or_default());
        receiver.handle_wanted(now);
        (get.receiver, get.waits, get.received, get.looks_since) = (Some(receiver), true, 0, Some(now));
        self.receiver_acts(number);
    }

    fn get_later(&mut self, number: usize, after: Span) {
        self.later(after, Event::Get { get: number });
    }

    /// The coordinator answers a receiver.
    pub(crate) fn receiver_hears(&mut self, number: usize, call: u64, answer: Option<Reply>) {
        let get = &mut self.gets[number];
        let Some(receiver) = get.receiver.as_mut().filter(|_| get.call == call) else { return };
        let located = match answer {
            Some(Reply::Located(reply)) if reply.ended => Located::Ended,
            Some(Reply::Located(reply)) if !reply.refused.is_empty() => Located::Refused(reply.refused),
            Some(Reply::Located(reply)) => {
                let addresses = reply.holders.iter().map(|holder| holder.data_address.parse());
                Located::Holders(addresses.filter_map(Result::ok).collect())
            }
            _ => Located::Unavailable("the coordinator does not answer".to_owned()),
        };
        receiver.handle_located(self.now, located);
        self.receiver_acts(number);
    }

    /// A connection that a receiver dialled is there.
    pub(crate) fn receiver_connected(&mut self, get: usize, link: Link) {
        if let Some(receiver) = &mut self.gets[get].receiver {
            receiver.handle_connected(self.now, link, false);
            self.receiver_acts(get);
        }
    }

    pub(crate) fn wake_receiver(&mut self, number: usize) {
        let get = &mut self.gets[number];
        // An event that an earlier one has made needless finds a later time here.
        if get.wakes <= self.now {
            get.wakes = Time::MAX;
            self.receiver_acts(number);
        }
    }

    /// A task is ready for the next frame.
    pub(crate) fn want(&mut self, number: usize) {
        let get = &mut self.gets[number];
        if let Some(receiver) = get.receiver.as_mut().filter(|_| !get.waits) {
            receiver.handle_wanted(self.now);
            get.waits = true;
            self.receiver_acts(number);
        }
    }

    /// Lets a receiver act, and does what it wants done.
    pub(crate) fn receiver_acts(&mut self, number: usize) {
        let now = self.now;
        loop {
            let get = &mut self.gets[number];
            if get.stands_until > now {
                return self.wake_receiver_at(number, self.gets[number].stands_until);
            }
            let Some(receiver) = &mut get.receiver else { return };
            if let Some(output) = receiver.poll_output() {
                self.obey(number, output);
            } else if !get.waits {
                return;
            } else if !self.receiver_reads(number) {
                let Some(receiver) = &mut self.gets[number].receiver else { return };
                match receiver.next_timeout() {
                    Some(due) if due <= now => receiver.handle_timeout(now),
                    Some(due) => return self.wake_receiver_at(number, due),
                    None => return,
                }
            }
        }
    }

    fn wake_receiver_at(&mut self, number: usize, at: Time) {
        let get = &mut self.gets[number];
        if at < get.wakes {
            get.wakes = at;
            self.queue.push(at, Event::ReceiverWakes { get: number });
        }
    }

    /// Tells a receiver of one thing that happened on a connection. False if nothing did.
    fn receiver_reads(&mut self, number: usize) -> bool {
        let now = self.now;
        for link in LINKS {
            let get = &mut self.gets[number];
            let (Some(receiver), Some(&of)) = (&mut get.receiver, get.connections.get(&link)) else {
                continue;
            };
            let Some(connection) = self.connections.get_mut(&of) else { continue };
            let room = receiver.room(link);
            if room.is_empty() {
                // The receiver reads nothing from this link now, and so cannot see that it has ended.
                continue;
            }
            if let Some(Part::End) = connection.unread.front() {
                get.connections.remove(&link);
                self.close(of);
                let get = &mut self.gets[number];
                if let Some(receiver) = &mut get.receiver {
                    receiver.handle_closed(now, link, None);
                }
                return true;
            }
            let count = read_parts(&mut connection.unread, room);
            if count > 0 {
                receiver.handle_read(now, link, count);
                self.was_read(of, count as u64);
                return true;
            }
        }
        false
    }

    fn obey(&mut self, number: usize, output: Output) {
        let now = self.now;
        let get = &mut self.gets[number];
        let Some(receiver) = &mut get.receiver else { return };
        match output {
            Output::Locate { wait } => {
                let job = &self.jobs[get.job];
                let (block, host) = (job.blocks[get.block].name.clone(), get.host);
                let (coflow, wait_ms) = (job.coflow.unwrap_or_default(), wait.nanos() / 1_000_000);
                let call = self.number();
                // Answers to calls before this one are not heard any more.
                self.gets[number].call = call;
                let request = v1::LocateRequest { coflow, block, wait_ms, host };
                self.call(Caller::Receiver { get: number, call }, Call::Locate(request));
            }
            Output::Describe => {
                let host = get.host;
                let (relays, mapper) = (self.described(host), self.rng.random());
                if let Some(receiver) = &mut self.gets[number].receiver {
                    receiver.handle_described(now, relays.as_ref(), mapper);
                }
            }
            Output::Explain => receiver.handle_explained(now, "refused".to_owned()),
            Output::Connect { link, address, pooled } => {
                let (from, to) = (self.machine_of(address), self.gets[number].host);
                let get = &mut self.gets[number];
                if let Some(since) = get.looks_since.take() {
                    self.check_word(number, since);
                }
                let get = &mut self.gets[number];
                let Some(receiver) = &mut get.receiver else { return };
                let idle = if pooled { self.idle.get_mut(&(to, from)).and_then(Vec::pop) } else { None };
                if let Some((idle, connection)) =
                    idle.and_then(|idle| Some((idle, self.connections.get_mut(&idle)?)))
                {
                    connection.get = Some((number, link));
                    get.connections.insert(link, idle);
                    receiver.handle_connected(now, link, true);
                } else {
                    let dialled = self.dial_for(number, link, from, to);
                    self.gets[number].connections.insert(link, dialled);
                }
            }
            Output::Write { link, bytes } => {
                if let Some(&of) = get.connections.get(&link) {
                    receiver.handle_written(now, link);
                    self.say(of, bytes);
                }
            }
            Output::GiveBack { link } => {
                if let Some(of) = get.connections.remove(&link)
                    && let Some(connection) = self.connections.get_mut(&of)
                {
                    connection.get = None;
                    self.idle.entry((connection.to, connection.from)).or_default().push(of);
                }
            }
            Output::Close { link } => {
                if let Some(of) = get.connections.remove(&link) {
                    self.close(of);
                }
            }
            Output::Verified { length } => self.take_frame(number, length),
            Output::End(result) => self.get_ended(number, result),
        }
    }

    /// Where nothing fails, a receiver that waits for a block hears at once that it was put.
    fn check_word(&mut self, number: usize, since: Time) {
        let get = &self.gets[number];
        let block = &self.jobs[get.job].blocks[get.block];
        // Its agent has found the coordinator by then.
        let settled = self.hosts[block.host as usize].began + Span::from_millis(1_000);
        let due = block.put_at.max(since).max(settled) + ANSWERED;
        if self.report.faults == 0 && block.is_put && due < self.now {
            self.violate(format!("get {number} hears late of a block that was put"));
        }
    }

    /// A frame was verified. Its task looks at it, and then wants the next one.
    fn take_frame(&mut self, number: usize, length: usize) {
        let get = &mut self.gets[number];
        let block = &self.jobs[get.job].blocks[get.block];
        let offset = get.received;
        get.received += length as u64;
        self.report.bytes += length as u64;
        get.waits = false;
        let content = Content::new(block.identity, block.size);
        // Compared byte by byte with what was put: a checksum that is right for wrong bytes is
        // found too.
        let is_right = get.received <= block.size
            && get
                .receiver
                .as_ref()
                .is_some_and(|receiver| receiver.frame(length) == content.bytes(offset, length as u64));
        if !is_right {
            let (name, host) = (block.name.clone(), block.host);
            return self.violate(format!(
                "get {number} of {name} of host {host} is given {length} wrong bytes from {offset} on"
            ));
        }
        match get.reads {
            Some(rate) => {
                let takes = Span::from_secs_ceil(length as f64 / rate.bytes_per_sec());
                self.later(takes, Event::Wants { get: number });
            }
            None => self.want_at_once(number),
        }
    }

    fn want_at_once(&mut self, number: usize) {
        let get = &mut self.gets[number];
        if let Some(receiver) = &mut get.receiver {
            receiver.handle_wanted(self.now);
            get.waits = true;
        }
    }

    fn get_ended(&mut self, number: usize, result: Result<(), ReceiverError>) {
        let get = &self.gets[number];
        let (job, of, received) = (get.job, get.block, get.received);
        let size = self.jobs[job].blocks[of].size;
        self.drop_receiver(number);
        match result {
            // The receiver ended by itself: it must not report success before the last byte was
            // handed over.
            Ok(()) if received == size => self.got_block(number),
            Ok(()) => self.violate(format!("get {number} ends with {received} of {size} bytes")),
            Err(ReceiverError::CoflowEnded) if self.jobs[job].is_over() => {}
            Err(ReceiverError::CoflowEnded) => {
                self.violate(format!(
                    "the coflow of job {job}, which is live, has ended, get {number} hears"
                ));
            }
            Err(ReceiverError::CoflowRefused(_)) if self.is_refused(job) => {}
            // Its machine was lost, and the task that put it runs again.
            Err(ReceiverError::Gone) if self.all_put_again(job, of) => {
                let after = self.millis(5, 100);
                self.get_later(number, after);
            }
            Err(error) => self.violate(format!("get {number} fails: {error}")),
        }
    }

    fn got_block(&mut self, number: usize) {
        self.report.gets += 1;
        let get = &mut self.gets[number];
        if std::mem::take(&mut get.runs_again) {
            let after = self.millis(0, 200);
            return self.get_later(number, after);
        }
        get.is_done = true;
        let job = get.job;
        self.got(job);
    }

    /// A get is over, or its process is gone.
    pub(crate) fn drop_receiver(&mut self, number: usize) {
        let get = &mut self.gets[number];
        if let Some(mut receiver) = get.receiver.take() {
            // The next get takes it, so that not every get has one made.
            self.buffers.push(receiver.take_buffer());
        }
        for (link, of) in std::mem::take(&mut get.connections) {
            self.has_relayed_to_dead |= link == Link::Relay;
            self.close(of);
        }
    }
}
