//! State and events of the coordinator.

use super::admission::{Awaited, DeadlineMargin, Verdict};
use super::differences::{Places, Told};
use super::directory::{Answer, Waiting};
use super::foreign::{Traffic, Wire};
use super::holders::Promises;
use super::readiness::{Demand, Stage};
use super::senders::{Heard, Senders, UNKNOWN_SIZE};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use weir_model::{CoflowId, Fabric, Span, Time};
use weir_policy::{Chosen, CoflowTable, FlowRef, Plan, Policy};
use weir_proto::{limits, v1};

/// One agent's connection, numbered by the driver; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionId(pub u64);

/// Fixed facts and times of a coordinator.
#[derive(Clone, Debug)]
pub struct CoordinatorConfig {
    /// The network that the policy schedules, in payload bytes per second.
    pub fabric: Fabric,
    /// How long a plan holds at an agent that hears nothing more.
    pub lease: Span,
    /// First coflow id to give; later than every id an earlier process of this coordinator gave.
    pub first_coflow: u64,
    /// Coflows whose bottleneck on the empty fabric takes less than this are left to TCP. Zero: none is.
    pub bypass: Span,
    /// How long a coflow waits for the rest of its announced flows, from its first get on.
    pub ready_wait: Span,
    /// What deadlines are shortened by for the policy.
    pub deadline_margin: DeadlineMargin,
    /// What interfaces count, for agents that measure.
    pub wire: Wire,
    /// Where senders decide: how often they are told queues.
    pub sync_interval: Span,
}

/// Why an agent's session was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// It speaks another version.
    #[error("this coordinator speaks version 1 of the control plane, the agent version {0}")]
    Version(u32),
    /// Its host is not in the fabric.
    #[error(
        "host {host} is outside the fabric of {hosts} hosts; check the agent's --host and the coordinator's --hosts"
    )]
    Host {
        /// What the agent said.
        host: u32,
        /// Hosts of the fabric.
        hosts: u32,
    },
}

#[derive(Debug)]
pub(super) struct AgentEntry {
    pub(super) host: u32,
    pub(super) data_address: String,
    pub(super) blocks: u64,
    pub(super) flows: BTreeSet<u64>,
    pub(super) last_message: Time,
    /// When it was last sent a plan that repeats everything.
    pub(super) planned: Option<Time>,
    /// The latest of its flows, by its own ids.
    pub(super) latest_flow: u64,
    /// The first of its flows, by its own ids, that ended since the last plan.
    pub(super) completed: Option<u64>,
    /// Where senders decide: what it heard last.
    pub(super) heard: Heard,
    /// Coflows with flows there that it was told to leave to TCP.
    pub(super) bypassed: BTreeSet<u64>,
}

#[derive(Debug, Default)]
pub(super) struct CoflowEntry {
    pub(super) options: v1::CoflowOptions,
    pub(super) request_key: u64,
    pub(super) registered: Time,
    /// When its first flow was opened: the arrival that policies and records count from.
    pub(super) arrived: Option<Time>,
    pub(super) sealed: bool,
    pub(super) opened: u64,
    /// Per serving host, flows done and their bytes.
    pub(super) done: BTreeMap<u32, (u64, u64)>,
    /// Where senders decide: per serving host, bytes sent.
    pub(super) attained: BTreeMap<u32, u64>,
    /// Where senders decide: what orders it within a queue, once it has arrived,
    pub(super) place: Option<Time>,
    /// and what its ancestors had of that when it was registered.
    pub(super) inherited_place: Option<Time>,
    /// The first coflow that it descends from, as known when it was registered.
    pub(super) root: Option<u64>,
    /// Live flows (scheduled or all sent but not yet acknowledged), by serving host.
    pub(super) live: BTreeMap<u32, u64>,
    pub(super) last_done: Option<Time>,
    pub(super) complete: bool,
    pub(super) stage: Stage,
    pub(super) verdict: Verdict,
    /// What is known of its bytes until it is scheduled.
    pub(super) demand: Demand,
    /// Its live flows that the policy does not see, by key.
    pub(super) outside: BTreeSet<u64>,
    /// What its agents do by the last plans, all of them but those in `news`.
    pub(super) told: Option<Told>,
    /// Hosts that must hear of it again even if nothing changed.
    pub(super) news: BTreeSet<u32>,
}

impl CoflowEntry {
    pub(super) fn done_flows(&self) -> u64 {
        self.done.values().map(|&(flows, _)| flows).sum()
    }
    pub(super) fn done_bytes(&self) -> u64 {
        self.done.values().map(|&(_, bytes)| bytes).sum()
    }
    pub(super) fn attained_bytes(&self) -> u64 {
        self.attained.values().sum()
    }
    pub(super) fn live_flows(&self) -> u64 {
        self.live.values().sum()
    }
}

#[derive(Debug)]
pub(super) struct FlowEntry {
    pub(super) coflow: u64,
    pub(super) host: u32,
    pub(super) destination: u32,
    pub(super) group: u32,
    pub(super) size: u64,
    /// Offset reached, as last reported.
    pub(super) sent: u64,
    /// Its id in the policy's table, where ids are never given twice.
    pub(super) id: u64,
    /// Where it stands in the policy's table; `None` while it is not there, or once all its bytes are sent.
    pub(super) at: Option<FlowRef>,
}

impl FlowEntry {
    pub(super) fn left(&self) -> u64 {
        self.size - self.sent
    }
}

/// A coordinator. Call order: see the crate's documentation; after a batch of events call
/// [`Coordinator::poll_plan`] once.
pub struct Coordinator {
    pub(super) config: CoordinatorConfig,
    /// The network less foreign traffic: what the policy sees.
    pub(super) fabric: Fabric,
    pub(super) traffic: Traffic,
    pub(super) policy_name: String,
    pub(super) policy: Box<dyn Policy>,
    /// Where senders decide and plans are not sent.
    pub(super) senders: Option<Senders>,
    pub(super) table: CoflowTable,
    pub(super) plan: Plan,
    pub(super) planned_at: Time,
    /// When the next plan is wanted, if anything changed since the last one.
    pub(super) plan_due: Option<Time>,
    pub(super) epoch: u64,
    pub(super) agents: BTreeMap<SessionId, AgentEntry>,
    pub(super) hosts: BTreeMap<u32, SessionId>,
    pub(super) coflows: BTreeMap<u64, CoflowEntry>,
    /// Coflows that wait for announced flows, by the end of their wait.
    pub(super) gathering: BTreeSet<(Time, u64)>,
    pub(super) flows: BTreeMap<u64, FlowEntry>,
    /// What agents do with the flows of the policy's table.
    pub(super) places: Places,
    pub(super) next_flow: u64,
    pub(super) holders: BTreeMap<(u64, String), BTreeMap<u32, u64>>,
    pub(super) promises: Promises,
    pub(super) request_keys: BTreeMap<u64, u64>,
    pub(super) next_coflow: u64,
    /// Coflows that have ended, the latest of them.
    pub(super) ended: BTreeSet<u64>,
    pub(super) waiting: BTreeMap<(u64, String), Vec<Waiting>>,
    pub(super) waiting_count: usize,
    pub(super) answers: VecDeque<Answer>,
    pub(super) awaited: Awaited,
    pub(super) messages: VecDeque<(SessionId, v1::CoordinatorMessage)>,
    pub(super) completed: VecDeque<v1::CoflowRecord>,
    pub(super) counters: BTreeMap<&'static str, u64>,
}

/// Bits of a flow's key that hold the agent's own flow id.
const FLOW_BITS: u32 = 40;

/// A flow's key at the coordinator: the serving host and the agent's own id.
pub(super) fn flow_key(host: u32, flow: u64) -> u64 {
    (u64::from(host) << FLOW_BITS) | (flow & ((1 << FLOW_BITS) - 1))
}

/// The serving host in a flow's key.
pub(super) fn host_of(key: u64) -> u32 {
    (key >> FLOW_BITS) as u32
}

/// The agent's own id of a flow.
pub(super) fn agent_flow(key: u64) -> u64 {
    key & ((1 << FLOW_BITS) - 1)
}

impl Coordinator {
    /// A coordinator that knows nobody yet.
    pub fn new(mut config: CoordinatorConfig, policy: &Chosen) -> Coordinator {
        let senders = Senders::new(&config, policy);
        if senders.is_some() {
            // Who is small is not known, and no sender waits for others.
            (config.bypass, config.ready_wait) = (Span::ZERO, Span::ZERO);
        }
        Coordinator {
            table: CoflowTable::new(&config.fabric),
            fabric: config.fabric.clone(),
            traffic: Traffic::new(),
            next_coflow: config.first_coflow,
            policy_name: policy.name.clone(),
            policy: policy.create(),
            senders,
            config,
            plan: Plan::default(),
            planned_at: Time::ZERO,
            plan_due: None,
            epoch: 0,
            agents: BTreeMap::new(),
            hosts: BTreeMap::new(),
            coflows: BTreeMap::new(),
            gathering: BTreeSet::new(),
            flows: BTreeMap::new(),
            places: Places::default(),
            next_flow: 0,
            holders: BTreeMap::new(),
            promises: Promises::default(),
            request_keys: BTreeMap::new(),
            ended: BTreeSet::new(),
            waiting: BTreeMap::new(),
            waiting_count: 0,
            answers: VecDeque::new(),
            awaited: Awaited::default(),
            messages: VecDeque::new(),
            completed: VecDeque::new(),
            counters: BTreeMap::new(),
        }
    }

    /// An agent's first message: all it knows. A newer session of a host replaces the older one.
    pub fn handle_hello(
        &mut self,
        now: Time,
        session: SessionId,
        hello: v1::Hello,
    ) -> Result<(), HelloError> {
        if hello.version != 1 {
            return Err(HelloError::Version(hello.version));
        }
        let hosts = self.config.fabric.hosts();
        if hello.host >= hosts {
            return Err(HelloError::Host { host: hello.host, hosts });
        }
        if let Some(&old) = self.hosts.get(&hello.host) {
            self.handle_session_lost(now, old);
        }
        self.hosts.insert(hello.host, session);
        let entry = AgentEntry {
            host: hello.host,
            data_address: hello.data_address,
            blocks: 0,
            flows: BTreeSet::new(),
            last_message: now,
            planned: None,
            latest_flow: 0,
            completed: None,
            heard: Heard::default(),
            bypassed: BTreeSet::new(),
        };
        self.agents.insert(session, entry);
        let mut named: BTreeSet<u64> = hello.coflows.iter().map(|note| note.coflow).collect();
        named.extend(hello.blocks.iter().map(|block| block.coflow));
        named.extend(hello.flows.iter().map(|flow| flow.coflow));
        for coflow in hello.ended {
            self.end(now, coflow);
        }
        for note in hello.coflows {
            self.restore_coflow(now, hello.host, note);
        }
        for block in hello.blocks {
            self.handle_block(now, session, block);
        }
        for flow in hello.flows {
            self.handle_opened(now, session, flow);
        }
        for coflow in named.into_iter().filter(|coflow| self.ended.contains(coflow)).collect::<Vec<_>>() {
            self.tell_of_end(now, session, coflow);
        }
        let notes: Vec<u64> = self.coflows.iter().filter(|(_, c)| !c.complete).map(|(&id, _)| id).collect();
        for coflow in notes {
            self.send_note(now, session, coflow);
            self.check_complete(now, coflow);
        }
        self.want_plan(now);
        Ok(())
    }

    /// Any later message of an agent. One from a session that has ended is dropped.
    pub fn handle_agent(&mut self, now: Time, session: SessionId, message: v1::AgentMessage) {
        use v1::agent_event::Kind;
        if !self.agents.contains_key(&session) {
            self.count("messages_from_ended_sessions");
            return;
        }
        self.count("agent_messages");
        self.count_many("agent_events", message.events.len() as u64);
        for event in message.events {
            match event.kind {
                Some(Kind::BlockAdded(block)) => self.handle_block(now, session, block),
                Some(Kind::FlowOpened(flow)) => self.handle_opened(now, session, flow),
                Some(Kind::FlowClosed(flow)) => self.handle_closed(now, session, &flow),
                Some(Kind::Progress(progress)) => self.handle_progress(now, session, &progress),
                Some(Kind::Attained(attained)) => self.handle_attained(now, session, &attained),
                Some(Kind::Interface(report)) => self.handle_interface(now, session, &report),
                Some(Kind::Hello(_)) | None => self.count("messages_out_of_place"),
            }
        }
    }

    /// An agent's session ended: its flows leave the plan and its blocks cannot be located until it is
    /// back. What it has served stays counted.
    pub fn handle_session_lost(&mut self, now: Time, session: SessionId) {
        let Some(agent) = self.agents.remove(&session) else { return };
        self.advance(now);
        self.hosts.remove(&agent.host);
        self.forget_traffic(now, agent.host);
        for &key in &agent.flows {
            self.drop_flow(key);
        }
        self.holders.retain(|_, hosts| {
            hosts.remove(&agent.host);
            !hosts.is_empty()
        });
        self.want_plan(now);
    }

    fn restore_coflow(&mut self, now: Time, host: u32, note: v1::CoflowNote) {
        let key = note.request_key;
        if key != 0 && self.request_keys.get(&key).is_some_and(|&other| other != note.coflow) {
            // Its registration was repeated before any agent told of it: its driver knows only the other.
            self.end(now, note.coflow);
        }
        if self.ended.contains(&note.coflow) {
            return;
        }
        if !self.coflows.contains_key(&note.coflow) && self.coflows.len() >= limits::MAX_LIVE_COFLOWS {
            self.count("coflows_over_bound");
            return;
        }
        let registered = Time::from_nanos(now.nanos().saturating_sub(note.age_ns));
        self.next_coflow = self.next_coflow.max(note.coflow + 1);
        let entry = self.coflows.entry(note.coflow).or_insert_with(|| CoflowEntry {
            options: note.options.clone().unwrap_or_default(),
            request_key: key,
            registered,
            ..CoflowEntry::default()
        });
        entry.sealed |= note.sealed;
        if !note.refused.is_empty() && matches!(entry.stage, Stage::Bypassed | Stage::Refused) {
            (entry.stage, entry.verdict) = (Stage::Refused, Verdict::Refused(note.refused));
        }
        if note.moving_age_ns > 0 {
            let opened = Time::from_nanos(now.nanos().saturating_sub(note.moving_age_ns));
            entry.arrived = Some(entry.arrived.map_or(opened, |at| at.min(opened)));
        }
        let before = entry.done.insert(host, (note.done_flows, note.done_bytes)).unwrap_or_default();
        self.note_served(host, note.coflow, note.done_bytes.saturating_sub(before.1));
        self.note_attained(host, note.coflow, note.done_bytes);
        if key != 0 {
            self.request_keys.insert(key, note.coflow);
        }
    }

    fn handle_block(&mut self, now: Time, session: SessionId, block: v1::BlockAdded) {
        let Some(agent) = self.agents.get_mut(&session) else { return };
        if block.block.len() > limits::MAX_BLOCK_NAME_BYTES {
            self.count("messages_out_of_place");
            return;
        }
        if self.ended.contains(&block.coflow) {
            self.count("blocks_of_ended_coflows");
            return;
        }
        agent.blocks += 1;
        let host = agent.host;
        let key = (block.coflow, block.block);
        self.holders.entry(key.clone()).or_default().insert(host, block.size);
        self.answer_waiting(now, &key);
    }

    fn handle_opened(&mut self, now: Time, session: SessionId, mut flow: v1::FlowOpened) {
        let Some(host) = self.agents.get(&session).map(|agent| agent.host) else { return };
        if self.ended.contains(&flow.coflow) {
            self.count("flows_of_ended_coflows");
            return;
        }
        if self.senders.is_some() {
            flow.size = UNKNOWN_SIZE;
        }
        let inside = flow.destination < self.config.fabric.hosts() && flow.offset <= flow.size;
        let known = self.coflows.contains_key(&flow.coflow);
        let full = self.flows.len() >= limits::MAX_LIVE_FLOWS
            || (!known && self.coflows.len() >= limits::MAX_LIVE_COFLOWS);
        if !inside || full {
            self.count("flows_not_scheduled");
            return;
        }
        self.advance(now);
        let key = flow_key(host, flow.flow);
        self.drop_flow(key);
        let coflow = self.coflows.entry(flow.coflow).or_insert_with(|| {
            // Registered at a coordinator that no agent told us about: adopted as it comes.
            CoflowEntry { registered: now, ..CoflowEntry::default() }
        });
        coflow.opened += 1;
        coflow.news.insert(host);
        coflow.arrived.get_or_insert(now);
        coflow.complete = false;
        *coflow.live.entry(host).or_default() += 1;
        if coflow.options.flows > 0 && coflow.opened >= coflow.options.flows {
            coflow.sealed = true;
        }
        if self.senders.is_some() {
            self.take_place(flow.coflow);
        }
        let id = self.next_flow;
        self.next_flow += 1;
        self.promises.keep(flow.destination, flow.coflow, &flow.block);
        let v1::FlowOpened { destination, group, size, offset, .. } = flow;
        let entry =
            FlowEntry { coflow: flow.coflow, host, destination, group, size, sent: offset, id, at: None };
        self.flows.insert(key, entry);
        if let Some(agent) = self.agents.get_mut(&session) {
            agent.flows.insert(key);
            agent.latest_flow = agent.latest_flow.max(flow.flow);
        }
        self.take_in(now, key);
    }

    fn handle_progress(&mut self, now: Time, session: SessionId, progress: &v1::Progress) {
        let Some(host) = self.agents.get(&session).map(|agent| agent.host) else { return };
        if self.senders.is_some() {
            return self.count("messages_out_of_place");
        }
        self.advance(now);
        let mut ended = None;
        for report in &progress.flows {
            let key = flow_key(host, report.flow);
            let Some(flow) = self.flows.get_mut(&key) else { continue };
            flow.sent = report.sent.min(flow.size);
            let left = flow.left();
            let Some(at) = flow.at else { continue };
            if left == 0 {
                flow.at = None;
                self.places.leave(at);
                self.table.finish_flow(at);
                let coflow = flow.coflow;
                self.drop_idle_coflow(coflow);
                ended.get_or_insert(report.flow);
            } else {
                self.table.set_remaining(at, left as f64);
            }
        }
        if ended.is_some() {
            self.want_plan(now);
            if let Some(agent) = self.agents.get_mut(&session) {
                agent.completed = agent.completed.or(ended);
            }
        }
    }

    fn handle_closed(&mut self, now: Time, session: SessionId, closed: &v1::FlowClosed) {
        let Some(host) = self.agents.get(&session).map(|agent| agent.host) else { return };
        self.note_size(host, closed);
        let key = flow_key(host, closed.flow);
        let Some(flow) = self.flows.get_mut(&key) else { return };
        flow.sent = if closed.done { flow.size } else { closed.sent.min(flow.size) };
        let (coflow, size) = (flow.coflow, flow.size);
        let seen_by_policy = !self.is_bypassed(coflow);
        self.advance(now);
        self.drop_flow(key);
        if let Some(agent) = self.agents.get_mut(&session) {
            agent.flows.remove(&key);
        }
        if closed.done
            && let Some(entry) = self.coflows.get_mut(&coflow)
        {
            let (flows, bytes) = entry.done.entry(host).or_default();
            *flows += 1;
            *bytes += size;
            entry.last_done = Some(now);
            self.check_complete(now, coflow);
        }
        if seen_by_policy {
            self.want_plan(now);
        }
    }

    /// Takes a flow out of everything but its agent's list. Expects the table at `now`.
    pub(super) fn drop_flow(&mut self, key: u64) {
        self.forget_demand(key);
        let Some(flow) = self.flows.remove(&key) else { return };
        if let Some(at) = flow.at {
            self.places.leave(at);
            self.table.remove_flow(at);
        }
        if let Some(coflow) = self.coflows.get_mut(&flow.coflow) {
            coflow.outside.remove(&key);
            if let Some(count) = coflow.live.get_mut(&flow.host) {
                *count -= 1;
                if *count == 0 {
                    coflow.live.remove(&flow.host);
                }
            }
        }
        self.drop_idle_coflow(flow.coflow);
    }

    /// A coflow without live flows is nothing to plan for.
    fn drop_idle_coflow(&mut self, coflow: u64) {
        if let Some(slot) = self.table.find_coflow(CoflowId(coflow))
            && self.table.coflow(slot).live_flows() == 0
        {
            self.table.remove(slot);
            if let Some(coflow) = self.coflows.get_mut(&coflow) {
                coflow.told = None;
            }
        }
    }

    /// A coflow is complete when no more flows join and its last one is done.
    pub(super) fn check_complete(&mut self, now: Time, id: u64) {
        let Some(coflow) = self.coflows.get_mut(&id) else { return };
        // Flows done count and not flows opened: those done before a restart are not opened again.
        let all = match coflow.options.flows {
            0 => coflow.sealed && coflow.done_flows() > 0,
            flows => coflow.done_flows() >= flows,
        };
        if coflow.complete || !all || coflow.live_flows() > 0 {
            return;
        }
        coflow.sealed = true;
        coflow.complete = true;
        if coflow.verdict == Verdict::Undecided {
            // All of it had moved before any plan could count it.
            coflow.verdict = Verdict::Admitted;
            self.answer_awaited(id);
        }
        let record = self.record(now, id);
        // It may have seemed complete before: to a coordinator whose agents were not all back.
        self.completed.retain(|other| other.coflow != id);
        self.completed.push_front(record);
        self.completed.truncate(limits::MAX_COMPLETED_RECORDS);
    }

    /// Something changed that the plan must follow by `at`.
    pub(super) fn want_plan(&mut self, at: Time) {
        let at = self.senders.as_ref().map_or(at, |senders| senders.sync_due(at));
        self.plan_due = Some(self.plan_due.map_or(at, |due| due.min(at)));
    }

    pub(super) fn count(&mut self, name: &'static str) {
        self.count_many(name, 1);
    }

    pub(super) fn count_many(&mut self, name: &'static str, count: u64) {
        *self.counters.entry(name).or_default() += count;
    }
}
