//! What agent and coordinator say to each other: sessions, plans, progress.

use super::coflow::{FirstByte, Treatment};
use super::facts::{JournalEntry, Output};
use super::flow::Flow;
use super::hello::said;
use super::state::Agent;
use crate::ids::{FlowNumber, HostNumber};
use std::collections::BTreeSet;
use weir_model::{CoflowId, Rate, Span, Time};
use weir_proto::{limits, v1};

/// How often flows that should move are reported though they did not.
pub(super) const FULL_REPORT_INTERVAL: Span = Span::from_nanos(250_000_000);

/// A coordinator that says something hears so often at most what the agent's clock shows: twice as often as it says something
/// when it has nothing to say.
const CLOCKS_PER_LEASE: u64 = 8;

/// What an agent can say for being its host's, to a coordinator that does not know.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Standing {
    /// Sessions begun by this process.
    pub(super) sessions: u64,
    /// When a coordinator took it last, by its clock; 0 if none did, or one refused it since.
    pub(super) accepted_ns: u64,
    /// Its host had another agent when it came last.
    pub(super) refused: bool,
}

impl Agent {
    /// A session with a coordinator begins: everything it must know comes first.
    pub fn handle_session_up(&mut self, now: Time) {
        self.session = true;
        self.standing.sessions = self.standing.sessions.saturating_add(1);
        // Epochs grow within a session only: a coordinator that began anew counts from 1.
        self.epoch = 0;
        self.last_message = Time::ZERO;
        self.room = true;
        self.events.clear();
        self.forget_interface();
        self.begin_introduction(now);
        self.forget_told_limits();
        self.expect_report(now + FULL_REPORT_INTERVAL);
    }

    /// The session ended. The last plan holds until its lease ends.
    pub fn handle_session_lost(&mut self) {
        self.session = false;
        self.introduction = None;
        self.sent_whole.clear();
        self.forget_interface();
        self.events.clear();
    }

    /// The coordinator has another agent for this host.
    pub fn handle_refused(&mut self) {
        self.standing = Standing { accepted_ns: 0, refused: true, ..self.standing };
    }

    /// Whether it takes no more blocks.
    pub fn is_draining(&self) -> bool {
        self.draining
    }

    /// The number of this host.
    pub fn host(&self) -> HostNumber {
        self.config.host
    }

    /// The coordinator has another host with this one's number: this one has another number from the next session on.
    pub fn renumber(&mut self, host: HostNumber) {
        self.config.host = host;
    }

    /// The host's links carry this much from now on, up and down, headers included.
    pub fn handle_link_rates(&mut self, links: [Option<Rate>; 2]) {
        if std::mem::replace(&mut self.config.links, links) != links && self.session {
            self.send(v1::agent_event::Kind::LinkRates(v1::LinkRates {
                up_bytes_per_s: said(links[0]),
                down_bytes_per_s: said(links[1]),
            }));
        }
    }

    /// A message of the coordinator. Stale epochs are dropped and counted.
    pub fn handle_coordinator(&mut self, now: Time, message: v1::CoordinatorMessage) {
        use v1::coordinator_message::Kind;
        if message.epoch <= self.epoch {
            self.stale_dropped = self.stale_dropped.saturating_add(1);
            return;
        }
        self.epoch = message.epoch;
        if self.lease_end.is_none() {
            self.disturb();
        }
        self.renew_lease(now, &message);
        match message.kind {
            Some(Kind::Plan(plan)) => {
                self.apply(now, &plan);
                if let Some(at) = self.sent_whole.remove(&FlowNumber(plan.completed_flow)) {
                    self.latencies.note_replan(now.since(at));
                }
            }
            Some(Kind::Queues(queues)) => self.handle_queues(queues),
            Some(Kind::CoflowNote(note)) => self.note_coflow(now, note),
            Some(Kind::CoflowNotes(notes)) => {
                notes.notes.into_iter().for_each(|note| self.note_coflow(now, note));
            }
            Some(Kind::CoflowEnded(v1::CoflowEnded { coflow })) => {
                self.note_ended(CoflowId(coflow), CoflowId(coflow));
            }
            Some(Kind::CoflowsEnded(ended)) => {
                for range in &ended.ranges {
                    self.note_ended(CoflowId(range.first), CoflowId(range.last));
                }
            }
            Some(Kind::CoflowEnding(ending)) => self.settle(now, CoflowId(ending.coflow)),
            Some(Kind::Offer(offer)) => self.outputs.push_back(Output::Offer(offer)),
            Some(Kind::Drain(drain)) => self.drain(drain.on),
            Some(Kind::Notice(notice)) => self.outputs.push_back(Output::Notice(notice.text)),
            Some(Kind::Accepted(accepted)) => {
                self.standing = Standing { accepted_ns: accepted.at_ns, refused: false, ..self.standing };
                self.forget_changed();
            }
            Some(Kind::Refused(refused)) => {
                self.handle_refused();
                self.outputs.push_back(Output::Notice(refused.reason));
            }
            Some(Kind::Keepalive(_)) | None => {}
        }
    }

    fn drain(&mut self, on: bool) {
        if std::mem::replace(&mut self.draining, on) != on {
            self.write_down(JournalEntry::Draining(on));
            let what = if on { "takes no more blocks: it is being drained" } else { "takes blocks again" };
            self.outputs.push_back(Output::Notice(format!("this host {what}")));
        }
        self.send(v1::agent_event::Kind::Drain(v1::Drain { on }));
    }

    /// What became of a file that the coordinator asked for.
    pub fn handle_offered(&mut self, answer: v1::OfferAnswer) {
        self.send(v1::agent_event::Kind::OfferAnswer(answer));
    }

    /// A message renews the lease from when its coordinator heard of this agent last, so one that was long on its way
    /// does not pass for a new one.
    fn renew_lease(&mut self, now: Time, message: &v1::CoordinatorMessage) {
        let lease = Span::from_millis(message.lease_ms);
        if message.heard_ns == 0 {
            self.lease_end = Some(now + lease);
            return self.account.hold(now);
        }
        // By this agent's own clock, which the message gives back; `min`, as no message can have heard of a time to come.
        let until = Time::from_nanos(message.heard_ns).min(now) + lease;
        self.lease_end = Some(until);
        if until > now {
            self.account.hold(now);
        }
        let enough = Span::from_nanos(lease.nanos() / CLOCKS_PER_LEASE);
        self.owes_clock |= now.since(self.clock_told) >= enough;
    }

    /// What this agent's clock shows, as the coordinator is told; never 0.
    pub(super) fn tell_clock(&mut self, now: Time) -> u64 {
        self.owes_clock = false;
        self.clock_told = now;
        now.nanos().max(1)
    }

    /// Coflows have ended. Only what is new goes to the journal.
    fn note_ended(&mut self, first: CoflowId, last: CoflowId) {
        if first > last || self.ended.contains_range(&v1::IdRange { first: first.0, last: last.0 }) {
            return;
        }
        self.write_down(JournalEntry::EndedRange(first, last));
        self.forget(first, last);
    }

    /// What a later coordinator must know of a coflow. Only what is new goes to the journal: a coordinator that comes
    /// back tells of many coflows again.
    fn note_coflow(&mut self, now: Time, note: v1::CoflowNote) {
        let coflow = CoflowId(note.coflow);
        if self.ended.contains(coflow) {
            return;
        }
        let entry = self.coflows.entry(coflow).or_default();
        let known = &entry.note;
        let same = entry.noted > Time::ZERO
            && known.options == note.options
            && (known.sealed, known.request_key, &known.refused, known.admitted)
                == (note.sealed, note.request_key, &note.refused, note.admitted);
        if same {
            return;
        }
        let (done_flows, done_bytes) = (known.done_flows, known.done_bytes);
        // What this agent served is its own to count.
        entry.note = v1::CoflowNote { done_flows, done_bytes, ..note };
        entry.noted = now;
        if entry.is_stopped() {
            self.outputs.extend(entry.flows.iter().map(|&flow| Output::Abort(flow)));
        }
        // Flows that were done have entries of their own.
        let note = v1::CoflowNote { done_flows: 0, done_bytes: 0, ..entry.note.clone() };
        let encoded = weir_proto::encode_note(&note);
        self.write_down(JournalEntry::Coflow { coflow, note: encoded, noted_ns: now.nanos() });
    }

    fn apply(&mut self, now: Time, plan: &v1::Plan) {
        if plan.complete {
            for flow in self.flows.values_mut() {
                (flow.base, flow.grant) = (0.0, 0.0);
            }
            for coflow in self.coflows.values_mut().filter(|coflow| coflow.treatment == Treatment::Bypassed) {
                coflow.treatment = Treatment::Unknown;
            }
            if plan.uplink > 0.0 && plan.uplink.is_finite() {
                self.planned_uplink = plan.uplink;
                self.pacer.set_uplink(plan.uplink);
            }
            let named: BTreeSet<u64> = plan.classes.iter().map(|class| class.coflow).collect();
            self.take_from_classes(|coflow| !named.contains(&coflow.0));
            self.bypass_bytes = plan.bypass_bytes;
            self.ready_wait = Span::from_nanos(plan.ready_wait_ns);
        }
        for &coflow in &plan.bypassed {
            self.bypass(now, CoflowId(coflow));
        }
        for class in &plan.classes {
            let due = (class.due_in_ns > 0).then(|| now + Span::from_nanos(class.due_in_ns));
            self.put_in_class(now, CoflowId(class.coflow), class.class, due);
        }
        let mut touched = BTreeSet::new();
        for rate in &plan.coflows {
            let Some(coflow) = self.coflows.get_mut(&CoflowId(rate.coflow)) else { continue };
            coflow.treatment = Treatment::Scheduled;
            let drain = sane(rate.drain_per_s);
            // Flows that came after the plan was made are not in it: they keep waiting.
            for id in coflow.flows.range(..=FlowNumber(plan.latest_flow)) {
                if let Some(flow) = self.flows.get_mut(id) {
                    flow.base = sane(drain * flow.left() as f64);
                    flow.due = now + Span::from_secs_ceil(1.0 / drain);
                    flow.planned = true;
                    touched.insert(*id);
                }
            }
        }
        for grant in &plan.grants {
            let id = FlowNumber(grant.flow);
            if let Some(flow) = self.flows.get_mut(&id) {
                flow.grant = sane(grant.bytes_per_s);
                touched.insert(id);
            }
        }
        for &id in &touched {
            let Some(flow) = self.flows.get(&id) else { continue };
            if flow.planned {
                self.waiting.remove(&(flow.wait_until, id));
                let rate = flow.rate();
                self.pace(now, id, rate);
            }
        }
        let named = plan.coflows.iter().map(|rate| (CoflowId(rate.coflow), rate.whole));
        let granted = touched.iter().filter_map(|id| self.flows.get(id)).map(|flow| (flow.coflow, false));
        for (coflow, whole) in named.chain(granted).collect::<BTreeSet<_>>() {
            self.note_whole(coflow, whole);
        }
    }

    /// All flows of a coflow that are here go as fast as TCP has them go, and later ones do so at once.
    fn bypass(&mut self, now: Time, id: CoflowId) {
        let Some(coflow) = self.coflows.get_mut(&id) else { return };
        coflow.treatment = Treatment::Bypassed;
        let flows: Vec<FlowNumber> = coflow.flows.iter().copied().collect();
        for id in flows {
            if let Some(flow) = self.flows.get_mut(&id) {
                (flow.base, flow.grant, flow.planned) = (0.0, 0.0, false);
                self.waiting.remove(&(flow.wait_until, id));
            }
            self.unschedule(now, id);
        }
    }

    /// All flows of a coflow that are here, and later ones, go in a class of priority, as fast as TCP has them go; or just before
    /// they are due, if they have a congestion control that knows how.
    fn put_in_class(&mut self, now: Time, id: CoflowId, class: u32, due: Option<Time>) {
        let Some(coflow) = self.coflows.get_mut(&id) else { return };
        let class = u8::try_from(class).unwrap_or(u8::MAX);
        // A deadline stays what it is: said again it is a little later or earlier, by how long the message took.
        let due = due.map(|due| coflow.due.unwrap_or(due));
        let before = (coflow.class.replace(class), std::mem::replace(&mut coflow.due, due));
        if before != (Some(class), due) {
            self.outputs.extend(coflow.flows.iter().map(|&flow| Output::Class(flow, class)));
        }
        self.bypass(now, id);
        let Some(coflow) = self.coflows.get(&id) else { return };
        coflow.flows.iter().for_each(|&flow| self.pacer.place(flow, Some(class)));
    }

    /// The coordinator has said no class of these coflows. Packets of what moves keep theirs.
    pub(super) fn take_from_classes(&mut self, of: impl Fn(CoflowId) -> bool) {
        for (_, coflow) in self.coflows.iter_mut().filter(|(id, _)| of(**id)) {
            let Some(class) = coflow.class.take() else { continue };
            coflow.flows.iter().for_each(|&flow| self.pacer.place(flow, None));
            // What went no faster than a deadline takes does so no more.
            if coflow.due.take().is_some() {
                self.outputs.extend(coflow.flows.iter().map(|&flow| Output::Class(flow, class)));
            }
        }
    }

    /// No coordinator says any more which coflow is first: TCP shares this host's link. Packets keep their classes.
    pub(super) fn forget_order(&mut self) {
        self.flows.keys().for_each(|&flow| self.pacer.place(flow, None));
    }

    /// The class of priority in which a flow is sent, counted from 0; `None` where the coordinator has said none of its coflow.
    pub fn class_of(&self, flow: FlowNumber) -> Option<u8> {
        self.coflows.get(&self.flows.get(&flow)?.coflow)?.class
    }

    /// When a flow is to have arrived, by the agent's clock, and not much sooner; `None` where it goes as fast as it can.
    pub fn due_of(&self, flow: FlowNumber) -> Option<Time> {
        self.coflows.get(&self.flows.get(&flow)?.coflow)?.due
    }

    /// Bytes of a flow that were not handed to its socket yet.
    pub fn left_of(&self, flow: FlowNumber) -> Option<u64> {
        Some(self.flows.get(&flow)?.left())
    }

    /// The next byte of a coflow that is `whole` is the first that all its gets led to, unless the plan lets
    /// none of its flows begin here.
    fn note_whole(&mut self, coflow: CoflowId, whole: bool) {
        let Some(entry) = self.coflows.get_mut(&coflow) else { return };
        if (entry.first_byte == FirstByte::NotWhole && whole) || entry.first_byte == FirstByte::Due {
            // A flow's first bytes go out at once, later ones as its rate has it.
            let begins = |flow: &Flow| flow.sent == 0 && flow.rate() > 0.0;
            let moves = entry.flows.iter().any(|id| self.flows.get(id).is_some_and(begins));
            entry.first_byte = if moves { FirstByte::Due } else { FirstByte::Past };
        }
    }

    /// The coordinator, if there is one, is to hear of progress by `at`.
    pub(super) fn expect_report(&mut self, at: Time) {
        if self.session {
            self.next_report = self.next_report.min(at);
        }
    }

    /// Tells the coordinator how far flows came: those that moved, and from time to time also those that
    /// should have and did not, for it assumes that plans are followed.
    pub(super) fn report(&mut self, now: Time) {
        let all = self.next_full_report <= now;
        if all {
            self.next_full_report = now + FULL_REPORT_INTERVAL;
        }
        if self.sender.is_some() {
            self.next_report = Time::MAX;
            if !self.flows.is_empty() {
                self.expect_report(self.next_full_report);
            }
            return self.report_attained();
        }
        let mut flows = Vec::new();
        for (&id, flow) in &mut self.flows {
            let stalled = all && flow.left() > 0 && flow.rate() > 0.0;
            if flow.sent != flow.reported || stalled {
                flow.reported = flow.sent;
                flows.push(v1::FlowProgress { flow: id.0, sent: flow.sent });
            }
        }
        self.next_report = Time::MAX;
        if !self.flows.is_empty() {
            self.expect_report(self.next_full_report);
        }
        for flows in flows.chunks(limits::MAX_ENTRIES_PER_MESSAGE) {
            self.send(v1::agent_event::Kind::Progress(v1::Progress { flows: flows.to_vec() }));
        }
    }

    /// Has ends of flows that the coordinator does not wait for gather until something else is said, 5 ms at most.
    pub fn gather_ends(&mut self) {
        self.patience = ENDS_GATHER;
    }

    /// Says that a flow is over: soon, unless it may wait for what is said next.
    pub(super) fn send_end(&mut self, closed: v1::FlowClosed, may_wait: bool) {
        // Taken before `send`, which sets it for every event.
        let hurries = self.hurries || !may_wait;
        self.send(v1::agent_event::Kind::FlowClosed(closed));
        self.hurries = hurries;
    }

    pub(super) fn send(&mut self, kind: v1::agent_event::Kind) {
        if self.session {
            self.hurries = true;
            self.events.push_back(v1::AgentEvent { kind: Some(kind) });
        }
    }
}

/// No link carries more, in bytes per second: sums and products of what a coordinator says stay numbers.
const FASTEST: f64 = 1e15;
/// How long ends of flows that the coordinator does not wait for gather.
const ENDS_GATHER: Span = Span::from_millis(5);

/// A rate from the wire: what is not a number above zero pauses.
fn sane(value: f64) -> f64 {
    if value.is_finite() && value > 0.0 { value.min(FASTEST) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::super::{AgentConfig, BlockEntry};
    use super::*;
    use weir_proto::data::{Identity, Request};

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    fn put(agent: &mut Agent, name: &str) {
        let identity = Identity::drawn([1; 16]);
        let entry = BlockEntry::of_file(CoflowId(1), name.to_owned(), "/data".to_owned(), 10, identity);
        agent.handle_put(entry).unwrap();
    }

    fn get(agent: &mut Agent, now: Time, name: &str) -> FlowNumber {
        let (identity, block) = (Identity::UNKNOWN, name.to_owned());
        let request = Request { coflow: 1, offset: 0, destination: 1, group: 0, identity, block };
        agent.handle_request(now, &request).unwrap().flow
    }

    /// Events that are said now.
    fn said(agent: &mut Agent, now: Time) -> usize {
        std::iter::from_fn(|| agent.poll_message(now)).map(|message| message.events.len()).sum()
    }

    #[test]
    fn ends_of_flows_wait_for_what_is_said_next_but_not_that_of_the_last_one() {
        let mut agent = Agent::new(AgentConfig {
            incarnation: 1,
            spool_identity: 1,
            batch: Span::from_millis(1),
            ..AgentConfig::default()
        });
        agent.gather_ends();
        ["a", "b", "c", "d"].into_iter().for_each(|name| put(&mut agent, name));
        agent.handle_session_up(ms(1));
        assert!(said(&mut agent, ms(1)) > 0);
        let flows = ["a", "b", "c", "d"].map(|name| get(&mut agent, ms(10), name));
        assert_eq!(said(&mut agent, ms(10)), 4);
        flows.into_iter().take(3).for_each(|flow| agent.handle_sent(ms(20), flow, 10));
        agent.handle_timeout(ms(20));
        assert_eq!(said(&mut agent, ms(20)), 1, "one report of three flows");
        agent.handle_closed(flows[0], true);
        assert_eq!((said(&mut agent, ms(24)), agent.message_due()), (0, Some(ms(25))));
        assert_eq!(said(&mut agent, ms(25)), 1);
        // It goes along with a block that was put.
        agent.handle_closed(flows[1], true);
        put(&mut agent, "e");
        assert_eq!(said(&mut agent, ms(26)), 2);
        // One that was cut off is said at once, and so is the last one.
        agent.handle_closed(flows[3], false);
        assert_eq!(said(&mut agent, ms(27)), 1);
        agent.handle_closed(flows[2], true);
        assert_eq!(said(&mut agent, ms(28)), 1);
    }
}
