//! The agent's state machine.

use super::coflow::{CoflowEntry, FirstByte, Treatment};
use super::control::{FULL_REPORT_INTERVAL, Standing};
use super::facts::{AgentConfig, BlockEntry, Crowd, JournalEntry, OpenedFlow, Output, StoreEntry, Transmit};
use super::flow::Flow;
use super::hello::Introduction;
use super::latencies::Latencies;
use super::meter::Meter;
use super::observing::Account;
use super::pacer::{Pacer, Pacing};
use super::sender::Sender;
use super::turns::Turns;
use crate::id_set::IdSet;
use crate::ids::{BlockKey, FlowNumber, HostNumber};
use crate::marks::receiver_mark;
use crate::planted::{Defect, is_planted};
use crate::portions::Portion;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use weir_model::{CoflowId, Span, Time};
use weir_policy::rules::Offer;
use weir_proto::data::{FRAME_BYTES, Request, Status};
use weir_proto::{limits, v1};

/// Ends of flows remembered for the plan that counts them; only measurements need them.
const MAX_SENT_WHOLE: usize = 4096;

/// What a receiver is to get.
pub(super) struct Wanted<'r> {
    pub(super) coflow: CoflowId,
    pub(super) block: &'r str,
    /// Its host and its group.
    pub(super) receiver: (HostNumber, u32),
    pub(super) size: u64,
    pub(super) offset: u64,
    pub(super) takes_turns: bool,
}

/// An agent. Call order: see the crate's documentation.
#[derive(Debug)]
pub struct Agent {
    pub(super) config: AgentConfig,
    pub(super) blocks: BTreeMap<BlockKey, BlockEntry>,
    /// Other files with the bytes of a block, in the order of their puts; never empty.
    pub(super) spares: BTreeMap<BlockKey, VecDeque<BlockEntry>>,
    /// Bytes of all blocks of a coflow.
    pub(super) held: BTreeMap<CoflowId, u64>,
    /// Blocks of the spooled files, by path.
    pub(super) owners: BTreeMap<String, BlockKey>,
    /// The name of the machine's start in which the journal was written last.
    pub(super) boot: Option<String>,
    /// Whether it takes no more blocks, for the host is to be stopped.
    pub(super) draining: bool,
    /// Blocks whose files changed since they were put.
    pub(super) changed: BTreeSet<BlockKey>,
    /// Stores of executors, by application and executor.
    pub(super) stores: BTreeMap<(String, String), StoreEntry>,
    pub(super) coflows: BTreeMap<CoflowId, CoflowEntry>,
    pub(super) ended: IdSet,
    pub(super) flows: BTreeMap<FlowNumber, Flow>,
    pub(super) waiting: BTreeSet<(Time, FlowNumber)>,
    pub(super) pacer: Pacer,
    pub(super) turns: Turns,
    next_flow: FlowNumber,
    pub(super) session: bool,
    pub(super) standing: Standing,
    /// What of Hello is still to be said.
    pub(super) introduction: Option<Introduction>,
    /// When coflows that are about to end are settled at the latest.
    pub(super) settling: BTreeSet<(Time, CoflowId)>,
    pub(super) epoch: u64,
    pub(super) lease_end: Option<Time>,
    /// When the coordinator was last told what the clock shows,
    pub(super) clock_told: Time,
    /// and whether it is to be told anew.
    pub(super) owes_clock: bool,
    /// A coflow that no plan named is bypassed while fewer bytes of it are known here.
    pub(super) bypass_bytes: u64,
    /// How long the coordinator may wait for the announced flows of a coflow.
    pub(super) ready_wait: Span,
    pub(super) next_report: Time,
    pub(super) next_full_report: Time,
    pub(super) events: VecDeque<v1::AgentEvent>,
    /// Whether one of them is to be said soon, and how long they may wait otherwise.
    pub(super) hurries: bool,
    pub(super) patience: Span,
    pub(super) outputs: VecDeque<Output>,
    /// When the last message was said, and whether its session takes more.
    pub(super) last_message: Time,
    pub(super) room: bool,
    pub(super) stale_dropped: u64,
    pub(super) latencies: Latencies,
    pub(super) meter: Meter,
    /// What planned flows do with their rates.
    pub(super) offers: BTreeMap<FlowNumber, Offer>,
    /// Flows that take less than they are offered: it is to be found out whether their receivers have no room.
    pub(super) suspects: VecDeque<FlowNumber>,
    pub(super) last_look: Time,
    /// Bytes per second that the host's uplink carries, as the coordinator says; infinite until it did.
    pub(super) planned_uplink: f64,
    /// Where rates are decided here.
    pub(super) sender: Option<Sender>,
    /// It heard a coordinator's terms; agents of versions without terms did not.
    pub(super) asked_terms: bool,
    pub(super) account: Account,
    /// When flows were handed over whole, until a plan counts it or newer ones push them out.
    pub(super) sent_whole: BTreeMap<FlowNumber, Time>,
}

impl Agent {
    /// An agent that holds nothing and has no coordinator.
    pub fn new(config: AgentConfig) -> Agent {
        Agent {
            blocks: BTreeMap::new(),
            spares: BTreeMap::new(),
            held: BTreeMap::new(),
            owners: BTreeMap::new(),
            boot: None,
            draining: false,
            changed: BTreeSet::new(),
            stores: BTreeMap::new(),
            coflows: BTreeMap::new(),
            ended: IdSet::default(),
            flows: BTreeMap::new(),
            waiting: BTreeSet::new(),
            pacer: Pacer::new(config.host.0.into()),
            turns: Turns::default(),
            config,
            next_flow: FlowNumber(1),
            session: false,
            standing: Standing::default(),
            introduction: None,
            settling: BTreeSet::new(),
            epoch: 0,
            lease_end: None,
            clock_told: Time::ZERO,
            owes_clock: false,
            bypass_bytes: 0,
            ready_wait: Span::ZERO,
            next_report: Time::MAX,
            next_full_report: Time::ZERO,
            events: VecDeque::new(),
            hurries: false,
            patience: Span::ZERO,
            outputs: VecDeque::new(),
            last_message: Time::ZERO,
            room: true,
            stale_dropped: 0,
            latencies: Latencies::default(),
            meter: Meter::default(),
            offers: BTreeMap::new(),
            suspects: VecDeque::new(),
            last_look: Time::ZERO,
            planned_uplink: f64::INFINITY,
            sender: None,
            asked_terms: false,
            account: Account::default(),
            sent_whole: BTreeMap::new(),
        }
    }

    /// Takes back what an earlier process of this host wrote to its journal.
    pub fn restore(&mut self, entry: JournalEntry) {
        match entry {
            JournalEntry::Put(block) => self.restore_put(block),
            JournalEntry::Coflow { coflow, note, noted_ns } => {
                if let Ok(note) = weir_proto::decode_note(&note) {
                    let entry = self.coflows.entry(coflow).or_default();
                    // Flows that were done have entries of their own.
                    let (done_flows, done_bytes) = (entry.note.done_flows, entry.note.done_bytes);
                    entry.note = v1::CoflowNote { done_flows, done_bytes, ..note };
                    entry.noted = Time::from_nanos(noted_ns);
                }
            }
            JournalEntry::Done { coflow, bytes, mark } => {
                if self.count_done(coflow, bytes, mark) {
                    let entry = self.coflows.entry(coflow).or_default();
                    entry.sent_bytes = entry.sent_bytes.saturating_add(bytes);
                }
            }
            JournalEntry::Served { coflow, flows, bytes, marks } => {
                let entry = self.coflows.entry(coflow).or_default();
                // Whatever was said before is part of it.
                entry.note.done_flows = flows.max(entry.note.done_flows);
                entry.note.done_bytes = bytes.max(entry.note.done_bytes);
                entry.sent_bytes = bytes.max(entry.sent_bytes);
                entry.done.extend(marks);
            }
            JournalEntry::Gone { coflow, block } => {
                let key = BlockKey { coflow, name: block };
                self.take_places(&key, |_| true);
                self.note_changed(key);
            }
            JournalEntry::PlaceGone { coflow, block, place } => {
                self.take_places(&BlockKey { coflow, name: block }, |held| held.place() == place);
            }
            JournalEntry::Ended(coflow) => self.forget(coflow, coflow),
            JournalEntry::EndedRange(first, last) => self.forget(first, last),
            JournalEntry::Boot(boot) => self.boot = Some(boot),
            JournalEntry::Draining(on) => self.draining = on,
            JournalEntry::Store(store) => self.restore_store(store),
            JournalEntry::StoreGone { application, executor } => {
                self.stores.remove(&(application, executor));
            }
        }
    }

    /// Whether a coflow is known to have ended.
    pub fn has_ended(&self, coflow: CoflowId) -> bool {
        self.ended.contains(coflow)
    }

    /// A receiver asks for a block.
    ///
    /// # Errors
    /// The coflow has ended or was refused; the block is not here, its file changed or it has other bytes; or the offset is not that of a frame.
    pub fn handle_request(&mut self, now: Time, request: &Request) -> Result<OpenedFlow, Status> {
        let coflow = CoflowId(request.coflow);
        self.may_move(coflow)?;
        let key = BlockKey { coflow, name: request.block.clone() };
        let block = self.blocks.get(&key).ok_or_else(|| self.missing(&key))?.clone();
        if request.identity.is_known() && request.identity != block.identity {
            return Err(Status::OtherBytes);
        }
        let offset = request.offset;
        let wanted = Wanted {
            coflow,
            block: &request.block,
            receiver: (HostNumber(request.destination), request.group),
            size: block.size,
            offset,
            takes_turns: false,
        };
        let flow = self.open_flow(now, &wanted)?;
        let offset = if is_planted(Defect::OffsetForgotten) { 0 } else { offset };
        Ok(OpenedFlow { flow, block, offset })
    }

    /// Whether anything of a coflow may move.
    pub(super) fn may_move(&self, coflow: CoflowId) -> Result<(), Status> {
        if self.ended.contains(coflow) {
            return Err(Status::CoflowEnded);
        }
        if self.coflows.get(&coflow).is_some_and(CoflowEntry::is_stopped) {
            return Err(Status::CoflowRefused);
        }
        Ok(())
    }

    /// Begins to serve a block, from a frame on.
    pub(super) fn open_flow(&mut self, now: Time, wanted: &Wanted<'_>) -> Result<FlowNumber, Status> {
        let Wanted { coflow, block, receiver: (destination, group), size, offset, takes_turns } = *wanted;
        // A block of no bytes has one place to begin at.
        let inside = offset < size || (offset, size) == (0, 0);
        if !inside || !offset.is_multiple_of(FRAME_BYTES) {
            return Err(Status::BadRequest);
        }
        let id = self.next_flow;
        self.next_flow.0 = self.next_flow.0.saturating_add(1);
        let left = size.saturating_sub(offset);
        let planned = self.sender.is_none() && self.lease_holds(now) && !self.is_small(coflow, left);
        let scheduled = planned || (self.decides(now) && !self.is_left_to_tcp(coflow));
        let flow = Flow {
            coflow,
            block: block.to_owned(),
            destination,
            group,
            size,
            sent: offset,
            reported: offset,
            grant: 0.0,
            base: 0.0,
            due: Time::MAX,
            planned: false,
            wait_until: now + self.config.first_plan_wait + self.ready_wait,
            takes_turns,
        };
        self.send(v1::agent_event::Kind::FlowOpened(flow.opened(id, self.told_size(flow.size))));
        self.pacer.insert(now, id, flow.left(), Pacing::Paused);
        if planned {
            self.waiting.insert((flow.wait_until, id));
        }
        self.disturb();
        let coflow = self.coflows.entry(coflow).or_default();
        coflow.first_opened.get_or_insert(now);
        coflow.flows.insert(id);
        // Where no coordinator says an order any more there is none.
        self.pacer.place(id, coflow.class.filter(|_| self.lease_end.is_some()));
        coflow.opened_bytes = coflow.opened_bytes.saturating_add(left);
        self.flows.insert(id, flow);
        if !scheduled {
            self.unschedule(now, id);
        }
        self.expect_report(now + FULL_REPORT_INTERVAL);
        Ok(id)
    }

    /// `bytes` payload bytes of a flow were handed to its socket.
    pub fn handle_sent(&mut self, now: Time, flow: FlowNumber, bytes: u64) {
        let Some(entry) = self.flows.get_mut(&flow) else { return };
        // No more than there is, whatever a driver says.
        let bytes = bytes.min(entry.left());
        entry.sent = entry.sent.saturating_add(bytes);
        if let Some(coflow) = self.coflows.get_mut(&entry.coflow) {
            coflow.sent_bytes = coflow.sent_bytes.saturating_add(bytes);
            if coflow.first_byte == FirstByte::Due && bytes > 0 {
                coflow.first_byte = FirstByte::Past;
                self.latencies.note_first_byte(entry.coflow, now);
            }
        }
        let (id, destination) = (entry.coflow, entry.destination);
        let (whole, behind) = (entry.sent == entry.size, entry.catch_up(now).filter(|_| entry.planned));
        self.account.send(bytes, self.pacer.pacing(flow));
        self.pacer.sent(now, flow, bytes);
        self.note_turn(now, flow, bytes);
        if let Some(rate) = behind {
            self.pace(now, flow, rate.bytes_per_sec());
        }
        if whole && self.sender.is_some() {
            self.pacer.set(now, flow, Pacing::Paused);
            self.disturb();
            self.expect_report(now + self.report_interval());
        } else if whole {
            // All is handed over: report at once, for the port is free from now on.
            self.next_report = now;
            self.sent_whole.insert(flow, now);
            if self.sent_whole.len() > MAX_SENT_WHOLE {
                self.sent_whole.pop_first();
            }
        } else {
            self.expect_report(now + self.report_interval());
        }
        self.note_taken(id, flow, bytes);
        self.meter_handed(destination, bytes);
    }

    /// Nothing was written: more of the flow is unacknowledged than its [`Transmit`] allows.
    pub fn handle_crowded(&mut self, now: Time, flow: FlowNumber, crowd: Crowd) {
        self.pacer.crowded(now, flow, crowd);
        self.offer(flow).into_iter().for_each(Offer::hold_up);
    }

    /// The flow's socket takes no more for now.
    pub fn handle_blocked(&mut self, now: Time, flow: FlowNumber) {
        self.pacer.blocked(now, flow);
        self.offer(flow).into_iter().for_each(|offer| offer.set_blocked(true));
    }

    /// The flow's socket takes bytes again.
    pub fn handle_writable(&mut self, now: Time, flow: FlowNumber) {
        self.pacer.writable(now, flow);
        self.offer(flow).into_iter().for_each(|offer| offer.set_blocked(false));
    }

    /// The receiver acknowledged the last byte (`done`), or the connection ended before.
    pub fn handle_closed(&mut self, flow: FlowNumber, done: bool) {
        let Some(entry) = self.flows.remove(&flow) else { return };
        self.end_turn(flow, &entry);
        self.pacer.remove(flow);
        self.account.close(done);
        self.offers.remove(&flow);
        self.waiting.remove(&(entry.wait_until, flow));
        if let Some(coflow) = self.coflows.get_mut(&entry.coflow) {
            coflow.flows.remove(&flow);
        }
        let mut again = false;
        if done {
            let (coflow, bytes) = (entry.coflow, entry.size);
            let mark = receiver_mark(&entry.block, entry.destination, entry.group);
            again = !self.count_done(coflow, bytes, mark);
            if !again {
                self.write_down(JournalEntry::Done { coflow, bytes, mark });
            }
        }
        self.disturb();
        let closed = v1::FlowClosed { flow: flow.0, sent: entry.sent, done, again };
        if !is_planted(Defect::CloseNotTold) {
            // That all was handed over was said. The end of a coflow is not to come late.
            let others = self.coflows.get(&entry.coflow).is_some_and(|coflow| !coflow.flows.is_empty());
            self.send_end(closed, done && entry.reported == entry.size && others);
        }
        self.settle_if_due(entry.coflow);
    }

    /// Lets time pass: leases lapse, waits end, progress becomes due.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.lease_end.is_some_and(|end| end <= now) {
            self.lease_end = None;
            self.account.lapse(now);
            self.waiting.clear();
            self.forget_limits();
            self.forget_order();
            self.flows.values_mut().for_each(|flow| flow.planned = false);
            if !is_planted(Defect::PausedForGood) {
                let flows: Vec<FlowNumber> = self.flows.keys().copied().collect();
                flows.into_iter().for_each(|flow| self.unschedule(now, flow));
            }
            self.offers.clear();
        }
        while let Some(&(until, flow)) = self.waiting.first().filter(|&&(until, _)| until <= now) {
            self.waiting.remove(&(until, flow));
            self.unschedule(now, flow);
        }
        if self.next_report <= now {
            self.report(now);
        }
        self.end_settling(now);
        self.look_at_offers(now);
        self.look_at_turns(now);
        self.decide(now);
    }

    /// The next flow that may write. Answer with `handle_crowded`, or with `handle_sent` and, if the socket
    /// was full, `handle_blocked`.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Transmit> {
        self.decide(now);
        self.pacer.poll(now)
    }

    /// Whether the session takes another message of an introduction: those are large, and wait in the agent, which has no
    /// second copy of them, until it does.
    pub fn handle_room(&mut self, room: bool) {
        self.room = room;
    }

    /// The next thing to do.
    pub fn poll_output(&mut self, now: Time) -> Option<Output> {
        let output = self.outputs.pop_front();
        let output = output.or_else(|| self.suspects.pop_front().map(Output::Suspect));
        output.or_else(|| self.poll_message(now).map(Output::Message))
    }

    /// Whether there is something to say to the coordinator.
    fn has_message(&self) -> bool {
        self.introduction.is_some() || !self.events.is_empty() || (self.session && self.owes_clock)
    }

    /// When there is something to say: a first event at once, and those that follow it soon together.
    pub(super) fn message_due(&self) -> Option<Time> {
        let hurries = self.hurries || self.introduction.is_some() || self.owes_clock;
        let wait = if hurries { self.config.batch } else { self.config.batch.max(self.patience) };
        self.has_message().then(|| self.last_message + wait)
    }

    /// The next message for the coordinator, if it is time.
    pub(crate) fn poll_message(&mut self, now: Time) -> Option<v1::AgentMessage> {
        // What does not fit one message goes at the same moment.
        let due = self.message_due()?;
        if now < due && now != self.last_message {
            return None;
        }
        self.last_message = now;
        if self.introduces() && !self.room {
            return None;
        }
        if let Some(kind) = self.introduce(now) {
            return Some(v1::AgentMessage { events: vec![v1::AgentEvent { kind: Some(kind) }] });
        }
        if self.session && self.owes_clock {
            let at_ns = self.tell_clock(now);
            self.events
                .push_front(v1::AgentEvent { kind: Some(v1::agent_event::Kind::Clock(v1::Clock { at_ns })) });
        }
        let mut portion = Portion::of(limits::MAX_EVENTS_PER_MESSAGE);
        let count = self.events.iter().take_while(|event| portion.take(*event)).count();
        let events: Vec<_> = self.events.drain(..count).collect();
        self.hurries &= !self.events.is_empty();
        (count > 0).then_some(v1::AgentMessage { events })
    }

    /// Has a fact appended to the journal.
    pub(super) fn write_down(&mut self, entry: JournalEntry) {
        self.outputs.push_back(Output::Journal(entry));
    }

    /// When to call [`Agent::handle_timeout`] and poll again, if nothing happens before.
    pub fn next_timeout(&self) -> Option<Time> {
        let waiting = self.waiting.first().map(|&(until, _)| until);
        let report = (self.next_report < Time::MAX).then_some(self.next_report);
        let settles = self.settling.first().map(|&(until, _)| until);
        let disturbed = self.is_disturbed().then_some(Time::ZERO);
        let times = [
            disturbed,
            self.pacer.next_timeout(),
            self.lease_end,
            waiting,
            report,
            settles,
            self.interface_due(),
            self.next_look(),
            self.turns.due(),
            self.message_due(),
        ];
        times.into_iter().flatten().min()
    }

    /// Number of flows that are open now, scheduled or not.
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
    pub fn pacing(&self, flow: FlowNumber) -> Option<Pacing> {
        self.pacer.pacing(flow)
    }

    pub(super) fn lease_holds(&self, now: Time) -> bool {
        self.lease_end.is_some_and(|end| end > now)
    }

    /// Whether a flow with `left` bytes starts without a plan, for what is known here of its coflow is little.
    /// Many hosts may each know little of a large coflow: the coordinator, which knows all, then says so.
    fn is_small(&self, coflow: CoflowId, left: u64) -> bool {
        let entry = self.coflows.get(&coflow);
        match entry.map(|entry| entry.treatment).unwrap_or_default() {
            Treatment::Bypassed => true,
            Treatment::Scheduled => false,
            // No coflow waits for the coordinator: it says classes, not rates.
            Treatment::Unknown if self.bypass_bytes == u64::MAX => true,
            Treatment::Unknown => {
                let held = self.held.get(&coflow).copied().unwrap_or(0);
                let opened = entry.map_or(0, |entry| entry.opened_bytes).saturating_add(left);
                // Until its note is here it is not known whether it has a deadline: the coordinator says what to do.
                let options = entry.and_then(|entry| entry.note.options.as_ref());
                let deadline = options.is_none_or(|options| options.deadline_ms > 0);
                !deadline && held.max(opened) < self.bypass_bytes
            }
        }
    }

    /// Coflows have ended: their flows are cut off, their blocks go.
    pub(super) fn forget(&mut self, first: CoflowId, last: CoflowId) {
        if last < first {
            return;
        }
        for coflow in self.coflows.range(first..=last).map(|(&id, _)| id).collect::<Vec<_>>() {
            if let Some(entry) = self.coflows.remove(&coflow) {
                self.outputs.extend(entry.flows.into_iter().map(Output::Abort));
                entry.settles.into_iter().for_each(|until| _ = self.settling.remove(&(until, coflow)));
            }
            self.forget_heard(coflow);
        }
        self.drop_blocks(first, last);
        self.outputs.push_back(Output::Ended(first, last));
        self.ended.insert_range(first, last);
        self.ended.shrink_to(limits::MAX_ENDED_RANGES);
    }
}
