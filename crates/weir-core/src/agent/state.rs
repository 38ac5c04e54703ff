//! The agent's state machine.

use super::pacer::{Pacer, Pacing};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use weir_model::{Rate, Span, Time};
use weir_proto::data::{FRAME_BYTES, Request, Status};
use weir_proto::{limits, v1};

/// Samples of each latency that are kept.
const MAX_SAMPLES: usize = 65_536;

/// Fixed facts and times of one agent.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// This host in the coordinator's fabric.
    pub host: u32,
    /// ip:port of the data plane, as receivers reach it.
    pub data_address: String,
    /// Differs each time the process starts.
    pub incarnation: u64,
    /// How long a new flow waits for its first plan while the lease holds; then TCP's share.
    pub first_plan_wait: Span,
    /// How often progress of moving flows is reported.
    pub report_interval: Span,
}

/// A block this agent can serve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockEntry {
    /// Its coflow.
    pub coflow: u64,
    /// Its name, unique within the coflow.
    pub block: String,
    /// Absolute path of the file that holds it.
    pub path: String,
    /// First byte within the file.
    pub offset: u64,
    /// Length in bytes.
    pub size: u64,
    /// The file is the agent's own and goes with the block.
    pub spooled: bool,
    /// Checksums of its frames, if the producer computed them.
    pub frame_checksums: Vec<u32>,
}

/// A fact that must survive the process; replayed through [`Agent::restore`] in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JournalEntry {
    /// A block was put.
    Put(BlockEntry),
    /// A coflow exists. The encoded note is a protobuf `weir.v1.CoflowNote`, with `age_ns` counted at
    /// `noted_ns` on the coordinator-independent clock the driver passes as `now`.
    Coflow {
        /// The coflow.
        coflow: u64,
        /// Encoded note.
        note: Vec<u8>,
        /// When it was noted.
        noted_ns: u64,
    },
    /// A flow of this coflow was served to its end.
    Done {
        /// The coflow.
        coflow: u64,
        /// Bytes of the flow.
        bytes: u64,
    },
    /// The coflow ended; its blocks are gone.
    Ended(u64),
}

/// A flow that was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedFlow {
    /// Its id at this agent.
    pub flow: u64,
    /// The block it reads.
    pub block: BlockEntry,
    /// Where it starts within the block.
    pub offset: u64,
}

/// Permission to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The flow.
    pub flow: u64,
    /// At most this many payload bytes.
    pub bytes: u64,
}

/// Why a block was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PutError {
    /// The name is empty or too long.
    #[error("block names have 1 to {max} bytes", max = limits::MAX_BLOCK_NAME_BYTES)]
    Name,
    /// A block is at least one byte.
    #[error("a block must have at least one byte")]
    Empty,
    /// The coflow has a block of this name with other bytes.
    #[error("coflow {coflow} already has another block named `{block}`")]
    Taken {
        /// The coflow.
        coflow: u64,
        /// The name.
        block: String,
    },
    /// The coflow was unregistered.
    #[error("coflow {0} has ended")]
    Ended(u64),
    /// The agent holds as many blocks as it may.
    #[error("this agent already holds {max} blocks", max = limits::MAX_BLOCKS_PER_AGENT)]
    Full,
}

/// How long control took, in microseconds, oldest first; the latest 65,536 of each.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// From a get to its first byte, of flows whose first plan let them send.
    pub first_byte_us: VecDeque<u32>,
    /// From a flow's last byte to the plan that follows from it, in force at this agent.
    pub replan_us: VecDeque<u32>,
}

fn sample(samples: &mut VecDeque<u32>, span: Span) {
    if samples.len() >= MAX_SAMPLES {
        samples.pop_front();
    }
    samples.push_back((span.nanos() / 1000).min(u64::from(u32::MAX)) as u32);
}

#[derive(Debug)]
struct Flow {
    coflow: u64,
    block: String,
    destination: u32,
    group: u32,
    size: u64,
    sent: u64,
    reported: u64,
    grant: f64,
    /// Rate that the coflow's drain gave it when it last changed, in bytes per second,
    base: f64,
    /// and when it ends if it keeps to that.
    due: Time,
    planned: bool,
    /// Its first plan gave it a rate and nothing was sent yet.
    starting: bool,
    opened: Time,
}

/// A flow that fell behind its plan may go this much faster to end in time with its coflow.
const CATCH_UP: f64 = 1.25;
/// Falling behind by less than this share is left alone.
const BEHIND: f64 = 0.03;

impl Flow {
    /// The rate at which it still ends when its coflow should, if it fell behind the one it has. All flows
    /// of a coflow are needed, so one that lost time to its host or its transport holds up the others.
    fn catch_up(&self, now: Time) -> Option<Rate> {
        let left_s = self.due.since(now).as_secs();
        if self.base <= 0.0 || self.left() == 0 || left_s <= 0.0 {
            return None;
        }
        let needed = self.left() as f64 / left_s;
        let total = self.base + self.grant;
        (needed > total * (1.0 + BEHIND)).then(|| Rate::from_bytes_per_sec(needed.min(total * CATCH_UP)))
    }

    fn left(&self) -> u64 {
        self.size - self.sent
    }
}

#[derive(Debug, Default)]
struct CoflowEntry {
    note: v1::CoflowNote,
    noted: Time,
    first_opened: Option<Time>,
    flows: BTreeSet<u64>,
}

/// An agent. Call order: see the crate's documentation.
#[derive(Debug)]
pub struct Agent {
    config: AgentConfig,
    blocks: BTreeMap<(u64, String), BlockEntry>,
    coflows: BTreeMap<u64, CoflowEntry>,
    ended: BTreeSet<u64>,
    flows: BTreeMap<u64, Flow>,
    waiting: BTreeSet<(Time, u64)>,
    pacer: Pacer,
    next_flow: u64,
    session: bool,
    epoch: u64,
    lease_end: Option<Time>,
    next_report: Time,
    messages: VecDeque<v1::AgentMessage>,
    journal: VecDeque<JournalEntry>,
    aborts: VecDeque<u64>,
    discards: VecDeque<String>,
    stale_dropped: u64,
    latencies: Latencies,
    /// When a flow's last byte was sent, if the plan that follows from it is still to come.
    ended_at: Option<Time>,
}

fn message(kind: v1::agent_message::Kind) -> v1::AgentMessage {
    v1::AgentMessage { kind: Some(kind) }
}

impl Agent {
    /// An agent that holds nothing and has no coordinator.
    pub fn new(config: AgentConfig) -> Agent {
        Agent {
            blocks: BTreeMap::new(),
            coflows: BTreeMap::new(),
            ended: BTreeSet::new(),
            flows: BTreeMap::new(),
            waiting: BTreeSet::new(),
            pacer: Pacer::new(config.host.into()),
            config,
            next_flow: 1,
            session: false,
            epoch: 0,
            lease_end: None,
            next_report: Time::MAX,
            messages: VecDeque::new(),
            journal: VecDeque::new(),
            aborts: VecDeque::new(),
            discards: VecDeque::new(),
            stale_dropped: 0,
            latencies: Latencies::default(),
            ended_at: None,
        }
    }

    /// Takes back what an earlier process of this host wrote to its journal.
    pub fn restore(&mut self, entry: JournalEntry) {
        match entry {
            JournalEntry::Put(block) => {
                self.blocks.insert((block.coflow, block.block.clone()), block);
            }
            JournalEntry::Coflow { coflow, note, noted_ns } => {
                if let Ok(note) = weir_proto::decode_note(&note) {
                    let entry = self.coflows.entry(coflow).or_default();
                    entry.note = note;
                    entry.noted = Time::from_nanos(noted_ns);
                }
            }
            JournalEntry::Done { coflow, bytes } => self.count_done(coflow, bytes),
            JournalEntry::Ended(coflow) => self.forget(coflow),
        }
    }

    /// Notes a block. Putting the same bytes under the same name again is not an error.
    pub fn handle_put(&mut self, block: BlockEntry) -> Result<(), PutError> {
        if block.block.is_empty() || block.block.len() > limits::MAX_BLOCK_NAME_BYTES {
            return Err(PutError::Name);
        }
        if block.size == 0 {
            return Err(PutError::Empty);
        }
        if self.ended.contains(&block.coflow) {
            return Err(PutError::Ended(block.coflow));
        }
        let key = (block.coflow, block.block.clone());
        if let Some(held) = self.blocks.get(&key) {
            return if *held == block {
                Ok(())
            } else {
                Err(PutError::Taken { coflow: block.coflow, block: block.block })
            };
        }
        if self.blocks.len() >= limits::MAX_BLOCKS_PER_AGENT {
            return Err(PutError::Full);
        }
        self.send(v1::agent_message::Kind::BlockAdded(v1::BlockAdded {
            coflow: block.coflow,
            block: block.block.clone(),
            size: block.size,
        }));
        self.journal.push_back(JournalEntry::Put(block.clone()));
        self.blocks.insert(key, block);
        Ok(())
    }

    /// Whether a coflow is known to have ended.
    pub fn has_ended(&self, coflow: u64) -> bool {
        self.ended.contains(&coflow)
    }

    /// A receiver asks for a block.
    pub fn handle_request(&mut self, now: Time, request: &Request) -> Result<OpenedFlow, Status> {
        if self.ended.contains(&request.coflow) {
            return Err(Status::CoflowEnded);
        }
        let key = (request.coflow, request.block.clone());
        let block = self.blocks.get(&key).ok_or(Status::NoSuchBlock)?.clone();
        if request.offset >= block.size || !request.offset.is_multiple_of(FRAME_BYTES) {
            return Err(Status::BadRequest);
        }
        let id = self.next_flow;
        self.next_flow += 1;
        let flow = Flow {
            coflow: request.coflow,
            block: request.block.clone(),
            destination: request.destination,
            group: request.group,
            size: block.size,
            sent: request.offset,
            reported: request.offset,
            grant: 0.0,
            base: 0.0,
            due: Time::MAX,
            planned: false,
            starting: false,
            opened: now,
        };
        self.send(v1::agent_message::Kind::FlowOpened(opened(id, &flow)));
        let scheduled = self.lease_holds(now);
        let pacing = if scheduled { Pacing::Paused } else { Pacing::Unscheduled };
        self.pacer.insert(now, id, flow.left(), pacing);
        if scheduled {
            self.waiting.insert((now + self.config.first_plan_wait, id));
        }
        let coflow = self.coflows.entry(request.coflow).or_default();
        coflow.first_opened.get_or_insert(now);
        coflow.flows.insert(id);
        self.flows.insert(id, flow);
        Ok(OpenedFlow { flow: id, block, offset: request.offset })
    }

    /// `bytes` payload bytes of a flow were handed to its socket.
    pub fn handle_sent(&mut self, now: Time, flow: u64, bytes: u64) {
        let Some(entry) = self.flows.get_mut(&flow) else { return };
        entry.sent += bytes;
        if bytes > 0 && std::mem::take(&mut entry.starting) {
            sample(&mut self.latencies.first_byte_us, now.since(entry.opened));
        }
        self.pacer.sent(now, flow, bytes);
        if entry.planned
            && let Some(rate) = entry.catch_up(now)
        {
            self.pacer.set(now, flow, Pacing::Rated(rate));
        }
        if entry.sent == entry.size {
            // All is handed over: report at once, for the port is free from now on.
            self.next_report = now;
            self.ended_at.get_or_insert(now);
        } else if self.session && self.next_report == Time::MAX {
            self.next_report = now + self.config.report_interval;
        }
    }

    /// The flow's socket takes no more for now.
    pub fn handle_blocked(&mut self, now: Time, flow: u64) {
        self.pacer.blocked(now, flow);
    }

    /// The flow's socket takes bytes again.
    pub fn handle_writable(&mut self, now: Time, flow: u64) {
        self.pacer.writable(now, flow);
    }

    /// The receiver acknowledged the last byte (`done`), or the connection ended before.
    pub fn handle_closed(&mut self, flow: u64, done: bool) {
        let Some(entry) = self.flows.remove(&flow) else { return };
        self.pacer.remove(flow);
        self.waiting.remove(&(entry.opened + self.config.first_plan_wait, flow));
        if let Some(coflow) = self.coflows.get_mut(&entry.coflow) {
            coflow.flows.remove(&flow);
        }
        if done {
            self.count_done(entry.coflow, entry.size);
            self.journal.push_back(JournalEntry::Done { coflow: entry.coflow, bytes: entry.size });
        }
        let closed = v1::FlowClosed { flow, sent: entry.sent, done };
        self.send(v1::agent_message::Kind::FlowClosed(closed));
    }

    /// A session with a coordinator begins: everything it must know comes first.
    pub fn handle_session_up(&mut self, now: Time) {
        self.session = true;
        self.epoch = 0;
        self.messages.clear();
        let note = |(&coflow, entry): (&u64, &CoflowEntry)| {
            let mut note = entry.note.clone();
            note.coflow = coflow;
            note.age_ns += now.since(entry.noted).nanos();
            note.moving_age_ns = entry.first_opened.map_or(0, |at| now.since(at).nanos().max(1));
            note
        };
        let hello = v1::Hello {
            version: 1,
            host: self.config.host,
            data_address: self.config.data_address.clone(),
            incarnation: self.config.incarnation,
            coflows: self.coflows.iter().map(note).collect(),
            blocks: self
                .blocks
                .values()
                .map(|block| v1::BlockAdded {
                    coflow: block.coflow,
                    block: block.block.clone(),
                    size: block.size,
                })
                .collect(),
            flows: self.flows.iter().map(|(&id, flow)| opened(id, flow)).collect(),
            ended: self.ended.iter().rev().take(limits::MAX_ENDED_TOLD).copied().collect(),
        };
        self.messages.push_back(message(v1::agent_message::Kind::Hello(hello)));
    }

    /// The session ended. The last plan holds until its lease ends.
    pub fn handle_session_lost(&mut self) {
        self.session = false;
        self.ended_at = None;
        self.messages.clear();
    }

    /// A message of the coordinator. Stale epochs are dropped and counted.
    pub fn handle_coordinator(&mut self, now: Time, message: v1::CoordinatorMessage) {
        use v1::coordinator_message::Kind;
        if message.epoch <= self.epoch {
            self.stale_dropped += 1;
            return;
        }
        self.epoch = message.epoch;
        self.lease_end = Some(now + Span::from_millis(message.lease_ms));
        match message.kind {
            Some(Kind::Plan(plan)) => {
                self.apply(now, &plan);
                if plan.follows_completion
                    && let Some(ended) = self.ended_at.take()
                {
                    sample(&mut self.latencies.replan_us, now.since(ended));
                }
            }
            Some(Kind::CoflowNote(note)) => self.note_coflow(now, note),
            Some(Kind::CoflowEnded(ended)) if self.ended.contains(&ended.coflow) => {}
            Some(Kind::CoflowEnded(ended)) => {
                self.journal.push_back(JournalEntry::Ended(ended.coflow));
                self.forget(ended.coflow);
            }
            Some(Kind::Keepalive(_) | Kind::Refused(_)) | None => {}
        }
    }

    /// Lets time pass: leases lapse, waits end, progress becomes due.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.lease_end.is_some_and(|end| end <= now) {
            self.lease_end = None;
            self.waiting.clear();
            for (&id, flow) in &mut self.flows {
                flow.planned = false;
                self.pacer.set(now, id, Pacing::Unscheduled);
            }
        }
        while let Some(&(until, flow)) = self.waiting.first().filter(|&&(until, _)| until <= now) {
            self.waiting.remove(&(until, flow));
            self.pacer.set(now, flow, Pacing::Unscheduled);
        }
        if self.next_report <= now {
            self.report();
        }
    }

    /// The next flow that may write. Answer with `handle_sent` and, if the socket was full,
    /// `handle_blocked`.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Transmit> {
        let (flow, bytes) = self.pacer.poll(now)?;
        Some(Transmit { flow, bytes })
    }

    /// The next message for the coordinator.
    pub fn poll_message(&mut self) -> Option<v1::AgentMessage> {
        self.messages.pop_front()
    }

    /// The next fact to append to the journal.
    pub fn poll_journal(&mut self) -> Option<JournalEntry> {
        self.journal.pop_front()
    }

    /// The next flow whose connection is to be closed because its coflow ended.
    pub fn poll_abort(&mut self) -> Option<u64> {
        self.aborts.pop_front()
    }

    /// The next spooled file to remove because its block is gone.
    pub fn poll_discard(&mut self) -> Option<String> {
        self.discards.pop_front()
    }

    /// When to call [`Agent::handle_timeout`] and poll again, if nothing happens before.
    pub fn next_timeout(&self) -> Option<Time> {
        let waiting = self.waiting.first().map(|&(until, _)| until);
        let report = (self.next_report < Time::MAX).then_some(self.next_report);
        [self.pacer.next_timeout(), self.lease_end, waiting, report].into_iter().flatten().min()
    }

    /// Flows now open.
    pub fn open_flows(&self) -> usize {
        self.flows.len()
    }

    /// How long control took so far.
    pub fn latencies(&self) -> &Latencies {
        &self.latencies
    }

    /// Messages dropped because their epoch was stale.
    pub fn stale_dropped(&self) -> u64 {
        self.stale_dropped
    }

    /// The pacing in force for a flow.
    pub fn pacing(&self, flow: u64) -> Option<Pacing> {
        self.pacer.pacing(flow)
    }

    fn lease_holds(&self, now: Time) -> bool {
        self.lease_end.is_some_and(|end| end > now)
    }

    fn send(&mut self, kind: v1::agent_message::Kind) {
        if self.session {
            self.messages.push_back(message(kind));
        }
    }

    fn count_done(&mut self, coflow: u64, bytes: u64) {
        let note = &mut self.coflows.entry(coflow).or_default().note;
        note.done_flows += 1;
        note.done_bytes += bytes;
    }

    fn note_coflow(&mut self, now: Time, note: v1::CoflowNote) {
        let coflow = note.coflow;
        let entry = self.coflows.entry(coflow).or_default();
        let (done_flows, done_bytes) = (entry.note.done_flows, entry.note.done_bytes);
        // What this agent served is its own to count.
        entry.note = v1::CoflowNote { done_flows, done_bytes, ..note };
        entry.noted = now;
        let encoded = weir_proto::encode_note(&entry.note);
        self.journal.push_back(JournalEntry::Coflow { coflow, note: encoded, noted_ns: now.nanos() });
    }

    fn forget(&mut self, coflow: u64) {
        if let Some(entry) = self.coflows.remove(&coflow) {
            self.aborts.extend(entry.flows);
        }
        let end = (coflow + 1, String::new());
        let gone: Vec<_> =
            self.blocks.range((coflow, String::new())..end).map(|(key, _)| key.clone()).collect();
        for key in gone {
            if let Some(block) = self.blocks.remove(&key).filter(|block| block.spooled) {
                self.discards.push_back(block.path);
            }
        }
        self.ended.insert(coflow);
        if self.ended.len() > limits::MAX_ENDED_COFLOWS {
            self.ended.pop_first();
        }
    }

    fn apply(&mut self, now: Time, plan: &v1::Plan) {
        if plan.complete {
            // Flows the coordinator does not name are not its own yet: they keep waiting.
            for flow in self.flows.values_mut() {
                (flow.base, flow.grant) = (0.0, 0.0);
            }
        }
        let mut touched = BTreeSet::new();
        for rate in &plan.coflows {
            let Some(coflow) = self.coflows.get(&rate.coflow) else { continue };
            for id in &coflow.flows {
                if let Some(flow) = self.flows.get_mut(id) {
                    let drain = sane(rate.drain_per_s);
                    flow.base = drain * flow.left() as f64;
                    flow.due = now + Span::from_secs_ceil(1.0 / drain);
                    flow.planned = true;
                    touched.insert(*id);
                }
            }
        }
        for grant in &plan.grants {
            if let Some(flow) = self.flows.get_mut(&grant.flow) {
                flow.grant = sane(grant.bytes_per_s);
                touched.insert(grant.flow);
            }
        }
        for id in touched {
            let Some(flow) = self.flows.get_mut(&id) else { continue };
            if flow.planned {
                if self.waiting.remove(&(flow.opened + self.config.first_plan_wait, id)) {
                    flow.starting = flow.base + flow.grant > 0.0;
                }
                let rate = Rate::from_bytes_per_sec(flow.base + flow.grant);
                self.pacer.set(now, id, Pacing::Rated(rate));
            }
        }
    }

    fn report(&mut self) {
        self.next_report = Time::MAX;
        let mut flows = Vec::new();
        for (&id, flow) in &mut self.flows {
            if flow.sent != flow.reported {
                flow.reported = flow.sent;
                flows.push(v1::FlowProgress { flow: id, sent: flow.sent });
            }
        }
        if !flows.is_empty() {
            self.send(v1::agent_message::Kind::Progress(v1::Progress { flows }));
        }
    }
}

/// A rate from the wire: what is not a number above zero pauses.
fn sane(value: f64) -> f64 {
    if value.is_finite() && value > 0.0 { value } else { 0.0 }
}

fn opened(id: u64, flow: &Flow) -> v1::FlowOpened {
    v1::FlowOpened {
        flow: id,
        coflow: flow.coflow,
        block: flow.block.clone(),
        destination: flow.destination,
        size: flow.size,
        offset: flow.sent,
        group: flow.group,
    }
}
