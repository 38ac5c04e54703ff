//! State and events of the coordinator.

use super::admission::{Awaited, Verdict};
use super::callers::Callers;
use super::changes::Tuning;
use super::differences::{Places, Told};
use super::directory::{Answer, Blocks};
use super::draining::Drains;
use super::dues::Dues;
use super::ending::Endings;
use super::expected::{Expectations, Expected};
use super::foreign::{Traffic, Wire};
use super::holders::Promises;
use super::known::Joining;
use super::network::Network;
use super::observing::{EVENTS, Ends};
use super::offers::Offers;
use super::outbox::{EndedLog, Outbox};
use super::pauses::Hearing;
use super::readiness::{Demand, Stage};
use super::senders::{Heard, Senders, UNKNOWN_SIZE};
use super::sessions::Arrival;
use super::sweeping::Sweep;
use super::witnesses::Witnesses;
use crate::id_set::IdSet;
use crate::ids::{BlockKey, FlowNumber, HostNumber};
use crate::marks::receiver_mark;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use weir_model::{CoflowId, Fabric, FlowId, JobId, Span, Time};
use weir_policy::{Chosen, CoflowTable, FlowRef, Plan, Policy, PolicyInfo};
use weir_proto::{limits, v1};

/// One agent's connection, numbered by the driver; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionId(pub u64);

/// Fixed facts and times of a coordinator.
#[derive(Clone, Debug)]
pub struct CoordinatorConfig {
    /// The network that the policy schedules, in payload bytes per second. Its hosts have the numbers 0, 1 and so on.
    pub fabric: Fabric,
    /// How other hosts may join it; none may without.
    pub joining: Option<Joining>,
    /// How long a plan holds at an agent that hears nothing more.
    pub lease: Span,
    /// First coflow id to give, such that no other process gave any of the [`IDS_AT_ONCE`](super::IDS_AT_ONCE) ids
    /// from it on; see [`first_coflow`](super::first_coflow).
    pub first_coflow: CoflowId,
    /// How long a coflow is kept without a sign of life, if its driver did not say. [`Span::MAX`]: for ever.
    pub coflow_lease: Span,
    /// What interfaces count, for agents that measure.
    pub wire: Wire,
    /// What may be another while coflows move.
    pub tuning: Tuning,
}

#[derive(Debug)]
pub(super) struct AgentEntry {
    pub(super) host: HostNumber,
    pub(super) data_address: String,
    /// Of the spool that the agent keeps its blocks in; 0 if it did not say.
    pub(super) spool_identity: u64,
    /// Differs each time the agent's process starts.
    pub(super) incarnation: u64,
    /// Number of this session among those of the agent's process.
    pub(super) number: u64,
    /// When a coordinator had taken it before, as it said; 0 if none had.
    pub(super) claim_ns: u64,
    /// When it was last told that another agent says it is its host.
    pub(super) noticed: Option<Time>,
    /// Until all parts of its Hello are there.
    pub(super) arrival: Option<Box<Arrival>>,
    pub(super) blocks: u64,
    pub(super) flows: BTreeSet<FlowKey>,
    pub(super) last_message: Time,
    /// What it said last of its clock; 0 if it said nothing.
    pub(super) clock_ns: u64,
    /// When it was last sent a plan that repeats everything.
    pub(super) planned: Option<Time>,
    /// The latest of its flows, by its own ids.
    pub(super) latest_flow: FlowNumber,
    /// The first of its flows, by its own ids, that ended since the last plan.
    pub(super) completed: Option<FlowNumber>,
    /// Where senders decide: what it heard last.
    pub(super) heard: Heard,
    /// Coflows with flows there that it was told to leave to TCP.
    pub(super) bypassed: BTreeSet<CoflowId>,
    /// What it is to hear with the next message.
    pub(super) outbox: Outbox,
    /// Whether it takes no more blocks.
    pub(super) draining: bool,
}

#[derive(Debug, Default)]
pub(super) struct CoflowEntry {
    pub(super) options: v1::CoflowOptions,
    pub(super) request_key: u64,
    pub(super) registered: Time,
    /// When its first flow was opened: the arrival that policies and records count from.
    pub(super) arrived: Option<Time>,
    pub(super) sealed: bool,
    /// No driver or agent told how it was registered: its options are not known.
    pub(super) adopted: bool,
    /// Hosts that have its note.
    pub(super) knowing: BTreeSet<HostNumber>,
    /// When something last showed that it is still used,
    pub(super) renewed: Time,
    /// and when it is looked at next whether its lease has ended.
    pub(super) expiry: Option<Time>,
    /// Which receivers asked for which blocks, by [`receiver_mark`].
    pub(super) marks: BTreeSet<u64>,
    /// Number of those: flows that were opened, each counted once however often it was resumed.
    pub(super) opened: u64,
    /// Its open flows, by key.
    pub(super) flows: BTreeSet<FlowKey>,
    /// Per serving host, flows done and their bytes.
    pub(super) done: BTreeMap<HostNumber, (u64, u64)>,
    /// Bytes of the largest flow that is done.
    pub(super) longest: u64,
    /// Where senders decide: per serving host, bytes sent.
    pub(super) attained: BTreeMap<HostNumber, u64>,
    /// Where senders decide: what orders it within a queue, once it has arrived,
    pub(super) place: Option<Time>,
    /// and what its ancestors had of that when it was registered.
    pub(super) inherited_place: Option<Time>,
    /// The first coflow that it descends from, as known when it was registered.
    pub(super) root: Option<JobId>,
    /// Live flows (scheduled or all sent but not yet acknowledged), by serving host.
    pub(super) live: BTreeMap<HostNumber, u64>,
    pub(super) last_done: Option<Time>,
    pub(super) complete: bool,
    pub(super) stage: Stage,
    pub(super) verdict: Verdict,
    /// What is known of its bytes until it is scheduled.
    pub(super) demand: Demand,
    /// What is to come of it, as its driver says.
    pub(super) expected: Expected,
    /// Its live flows that the policy does not see, by key.
    pub(super) outside: BTreeSet<FlowKey>,
    /// What its agents do by the last plans, all of them but those in `news`.
    pub(super) told: Option<Told>,
    /// Hosts that must hear of it again even if nothing changed.
    pub(super) news: BTreeSet<HostNumber>,
    /// Where coflows go by order alone: its class by the last plan, and whether it goes no faster than its deadline takes,
    pub(super) class: Option<(u32, bool)>,
    /// and what each host was told.
    pub(super) classes: BTreeMap<HostNumber, (u32, bool)>,
}

impl CoflowEntry {
    pub(super) fn done_flows(&self) -> u64 {
        self.done.values().fold(0, |sum, &(flows, _)| sum.saturating_add(flows))
    }
    pub(super) fn done_bytes(&self) -> u64 {
        self.done.values().fold(0, |sum, &(_, bytes)| sum.saturating_add(bytes))
    }
    pub(super) fn attained_bytes(&self) -> u64 {
        self.attained.values().fold(0, |sum, &bytes| sum.saturating_add(bytes))
    }
    pub(super) fn live_flows(&self) -> u64 {
        self.live.values().fold(0, |sum, &flows| sum.saturating_add(flows))
    }
}

#[derive(Debug)]
pub(super) struct FlowEntry {
    pub(super) coflow: CoflowId,
    pub(super) host: HostNumber,
    pub(super) destination: HostNumber,
    pub(super) group: u32,
    pub(super) size: u64,
    /// Offset reached, as last reported.
    pub(super) sent: u64,
    /// Its id in the policy's table, where ids are never given twice.
    pub(super) id: FlowId,
    /// Where it stands in the policy's table; `None` while it is not there, or once all its bytes are sent.
    pub(super) at: Option<FlowRef>,
}

impl FlowEntry {
    pub(super) fn left(&self) -> u64 {
        self.size.saturating_sub(self.sent)
    }
}

/// A coordinator. Call order: see the crate's documentation; after a batch of events call
/// [`Coordinator::poll_plan`] once.
pub struct Coordinator {
    pub(super) config: CoordinatorConfig,
    pub(super) network: Network,
    pub(super) traffic: Traffic,
    pub(super) policy_name: String,
    pub(super) policy_info: &'static PolicyInfo,
    pub(super) policy: Box<dyn Policy>,
    /// Where senders decide and plans are not sent.
    pub(super) senders: Option<Senders>,
    pub(super) table: CoflowTable,
    pub(super) plan: Plan,
    /// As of when the table of live coflows is.
    pub(super) planned_at: Time,
    /// When the last plan was made.
    pub(super) last_plan: Option<Time>,
    /// When the next plan is wanted, if anything changed since the last one.
    pub(super) plan_due: Option<Time>,
    pub(super) epoch: u64,
    pub(super) agents: BTreeMap<SessionId, AgentEntry>,
    pub(super) hosts: BTreeMap<HostNumber, SessionId>,
    /// Hosts whose sessions a change ended, and that have not introduced themselves since.
    pub(super) returning: BTreeSet<HostNumber>,
    pub(super) dues: Dues,
    pub(super) coflows: BTreeMap<CoflowId, CoflowEntry>,
    /// Coflows that wait for announced flows, by the end of their wait.
    pub(super) gathering: BTreeSet<(Time, CoflowId)>,
    pub(super) flows: BTreeMap<FlowKey, FlowEntry>,
    /// What agents do with the flows of the policy's table.
    pub(super) places: Places,
    /// What flows can use of their rates, where that is less.
    pub(super) limits: BTreeMap<FlowKey, f64>,
    /// What flows of the table have on top of the plan in force.
    pub(super) gifts: BTreeMap<FlowRef, f64>,
    pub(super) next_flow: FlowId,
    pub(super) expectations: Expectations,
    /// Blocks by coflow and name.
    pub(super) directory: BTreeMap<CoflowId, Blocks>,
    pub(super) promises: Promises,
    pub(super) sweep: Sweep,
    pub(super) request_keys: BTreeMap<u64, CoflowId>,
    pub(super) next_coflow: CoflowId,
    /// Coflows of this process that have ended: there are no more gaps than live ones.
    pub(super) ended: IdSet,
    /// Coflows of other processes that have ended, as agents or drivers told; bounded.
    pub(super) ended_elsewhere: IdSet,
    /// Coflows that were unregistered here and that no agent has told of; bounded apart, for a driver can name ids that
    /// no coordinator gave.
    pub(super) ended_unseen: IdSet,
    pub(super) ended_log: EndedLog,
    pub(super) endings: Endings,
    /// When leases of coflows may end.
    pub(super) expiries: BTreeSet<(Time, CoflowId)>,
    pub(super) expired: VecDeque<CoflowId>,
    pub(super) witnesses: Witnesses,
    pub(super) hearing: Hearing,
    /// Sessions that newer ones of the same agents replaced.
    pub(super) closed: VecDeque<SessionId>,
    /// Receivers that wait for blocks, with their hosts.
    pub(super) waiting: Callers<BlockKey, HostNumber>,
    pub(super) answers: VecDeque<Answer>,
    pub(super) awaited: Awaited,
    pub(super) offers: Offers,
    pub(super) drains: Drains,
    pub(super) messages: VecDeque<(SessionId, v1::CoordinatorMessage)>,
    pub(super) completed: VecDeque<v1::CoflowRecord>,
    pub(super) ends: Ends,
    pub(super) counters: BTreeMap<&'static str, u64>,
}

/// What is left of a flow may differ by this share from what was believed before a plan follows,
const CORRECTED: f64 = 0.5;
/// so long after the first report that says so.
const CORRECTIONS_TOGETHER: Span = Span::from_millis(20);

/// Bits of a flow's key that hold the agent's own flow id.
const FLOW_BITS: u32 = 40;

/// A flow at the coordinator: the serving host and the agent's own id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FlowKey(u64);

/// The key of a flow.
pub(super) fn flow_key(host: HostNumber, flow: FlowNumber) -> FlowKey {
    FlowKey((u64::from(host.0) << FLOW_BITS) | (flow.0 & ((1 << FLOW_BITS) - 1)))
}

/// The serving host in a flow's key.
pub(super) fn host_of(key: FlowKey) -> HostNumber {
    HostNumber((key.0 >> FLOW_BITS) as u32)
}

/// The agent's own id of a flow.
pub(super) fn agent_flow(key: FlowKey) -> FlowNumber {
    FlowNumber(key.0 & ((1 << FLOW_BITS) - 1))
}

impl Coordinator {
    /// A coordinator without agents and coflows.
    pub fn new(config: CoordinatorConfig, policy: &Chosen) -> Coordinator {
        let network = Network::new(&config.fabric, config.joining.as_ref());
        Coordinator {
            table: CoflowTable::new(network.left()),
            network,
            traffic: Traffic::new(),
            next_coflow: config.first_coflow,
            policy_name: policy.name.clone(),
            policy_info: policy.info,
            policy: policy.create_for_coordinator(),
            senders: Senders::new(&config.tuning, policy),
            config,
            plan: Plan::default(),
            planned_at: Time::ZERO,
            last_plan: None,
            plan_due: None,
            epoch: 0,
            agents: BTreeMap::new(),
            hosts: BTreeMap::new(),
            returning: BTreeSet::new(),
            dues: Dues::default(),
            coflows: BTreeMap::new(),
            gathering: BTreeSet::new(),
            flows: BTreeMap::new(),
            places: Places::default(),
            limits: BTreeMap::new(),
            gifts: BTreeMap::new(),
            next_flow: FlowId(0),
            expectations: Expectations::default(),
            directory: BTreeMap::new(),
            promises: Promises::default(),
            sweep: Sweep::default(),
            request_keys: BTreeMap::new(),
            ended: IdSet::default(),
            ended_elsewhere: IdSet::default(),
            ended_unseen: IdSet::default(),
            ended_log: EndedLog::default(),
            endings: Endings::default(),
            expiries: BTreeSet::new(),
            expired: VecDeque::new(),
            witnesses: Witnesses::default(),
            hearing: Hearing::default(),
            closed: VecDeque::new(),
            waiting: Callers::default(),
            answers: VecDeque::new(),
            awaited: Awaited::default(),
            offers: Offers::default(),
            drains: Drains::default(),
            messages: VecDeque::new(),
            completed: VecDeque::new(),
            ends: Ends::default(),
            counters: BTreeMap::new(),
        }
    }

    /// A receiver began, or goes on, to read a block.
    pub(super) fn handle_opened(&mut self, now: Time, session: SessionId, mut flow: v1::FlowOpened) {
        let Some(host) = self.agents.get(&session).map(|agent| agent.host) else { return };
        let (id, destination) = (CoflowId(flow.coflow), HostNumber(flow.destination));
        if self.has_ended(id) {
            self.tell_of_end(session, id);
            return self.count("flows_of_ended_coflows");
        }
        if self.senders.is_some() {
            flow.size = UNKNOWN_SIZE;
        }
        let sound = flow.offset <= flow.size && flow.size <= limits::MAX_BLOCK_BYTES;
        let inside = sound && self.expect(now, host, destination);
        let full = self.flows.len() >= limits::MAX_LIVE_FLOWS;
        if !inside || full || self.was_never_given(id) || !self.adopt(now, id) {
            self.count("flows_not_scheduled");
            return;
        }
        self.advance(now);
        let key = flow_key(host, FlowNumber(flow.flow));
        self.drop_flow(key);
        let mark = receiver_mark(&flow.block, destination, flow.group);
        let Some(coflow) = self.coflows.get_mut(&id) else { return };
        let is_new = coflow.marks.insert(mark);
        coflow.opened = coflow.opened.saturating_add(u64::from(is_new));
        coflow.flows.insert(key);
        coflow.news.insert(host);
        coflow.arrived.get_or_insert(now);
        coflow.complete = false;
        let sum = coflow.live.entry(host).or_default();
        *sum = sum.saturating_add(1);
        if coflow.options.flows > 0 && coflow.opened >= coflow.options.flows {
            coflow.sealed = true;
        }
        if is_new {
            self.take_expected(id, host, flow.size);
        }
        if self.senders.is_some() {
            self.take_place(id);
        }
        let in_table = self.next_flow;
        self.next_flow.0 = self.next_flow.0.saturating_add(1);
        self.promises.keep(destination, id, &flow.block);
        let v1::FlowOpened { group, size, offset, .. } = flow;
        let entry =
            FlowEntry { coflow: id, host, destination, group, size, sent: offset, id: in_table, at: None };
        self.flows.insert(key, entry);
        if let Some(agent) = self.agents.get_mut(&session) {
            agent.flows.insert(key);
            agent.latest_flow = agent.latest_flow.max(FlowNumber(flow.flow));
            self.dues.moves(session, agent);
        }
        self.takes_part(host, id);
        self.renew(now, id);
        self.take_in(now, key);
    }

    /// Flows of an agent came this far.
    pub(super) fn handle_progress(&mut self, now: Time, session: SessionId, progress: &v1::Progress) {
        let Some(host) = self.agents.get(&session).map(|agent| agent.host) else { return };
        if self.senders.is_some() {
            return self.count("messages_out_of_place");
        }
        self.advance(now);
        let (mut ended, mut off) = (None, false);
        let mut moved = BTreeSet::new();
        for report in &progress.flows {
            let number = FlowNumber(report.flow);
            let key = flow_key(host, number);
            let Some(flow) = self.flows.get_mut(&key) else { continue };
            if report.sent > flow.sent {
                moved.insert(flow.coflow);
            }
            flow.sent = report.sent.min(flow.size);
            let left = flow.left();
            let Some(at) = flow.at else { continue };
            if left == 0 {
                flow.at = None;
                self.places.leave(at);
                self.gifts.remove(&at);
                self.table.finish_flow(at);
                let coflow = flow.coflow;
                self.drop_idle_coflow(coflow);
                ended.get_or_insert(number);
            } else {
                let (believed, left) = (self.table.remaining(at), left as f64);
                off |= (believed - left).abs() > CORRECTED * left;
                self.table.set_remaining(at, left);
            }
        }
        moved.into_iter().for_each(|coflow| self.renew(now, coflow));
        if off {
            // Rates that were made for other amounts are wrong. Reports come in bursts: one plan for several.
            self.count("corrections");
            self.want_plan(now + CORRECTIONS_TOGETHER);
        }
        if ended.is_some() {
            self.want_plan(now);
            if let Some(agent) = self.agents.get_mut(&session) {
                agent.completed = agent.completed.or(ended);
            }
        }
    }

    /// A flow ended at its agent.
    pub(super) fn handle_closed(&mut self, now: Time, session: SessionId, closed: &v1::FlowClosed) {
        let Some(host) = self.agents.get(&session).map(|agent| agent.host) else { return };
        self.note_size(host, closed);
        let key = flow_key(host, FlowNumber(closed.flow));
        let Some(flow) = self.flows.get_mut(&key) else { return };
        flow.sent = if closed.done { flow.size } else { closed.sent.min(flow.size) };
        let (coflow, size) = (flow.coflow, flow.size);
        let seen_by_policy = !self.is_bypassed(coflow);
        self.advance(now);
        self.drop_flow(key);
        if let Some(agent) = self.agents.get_mut(&session) {
            agent.flows.remove(&key);
        }
        self.renew(now, coflow);
        if closed.done
            && !closed.again
            && let Some(entry) = self.coflows.get_mut(&coflow)
        {
            let (flows, bytes) = entry.done.entry(host).or_default();
            *flows = flows.saturating_add(1);
            *bytes = bytes.saturating_add(size);
            entry.longest = entry.longest.max(size);
            entry.last_done = Some(now);
            self.check_complete(now, coflow);
        }
        if seen_by_policy {
            self.want_plan(now);
        }
    }

    /// Takes a flow out of everything but its agent's list. Expects the table at `now`.
    pub(super) fn drop_flow(&mut self, key: FlowKey) {
        self.disturb_senders();
        self.forget_demand(key);
        self.limits.remove(&key);
        let Some(flow) = self.flows.remove(&key) else { return };
        if let Some(at) = flow.at {
            self.gifts.remove(&at);
            self.places.leave(at);
            self.table.remove_flow(at);
        }
        if let Some(coflow) = self.coflows.get_mut(&flow.coflow) {
            coflow.outside.remove(&key);
            coflow.flows.remove(&key);
            if let Some(count) = coflow.live.get_mut(&flow.host) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    coflow.live.remove(&flow.host);
                }
            }
        }
        self.drop_idle_coflow(flow.coflow);
    }

    /// A coflow without live flows is nothing to plan for.
    fn drop_idle_coflow(&mut self, coflow: CoflowId) {
        if let Some(slot) = self.table.find_coflow(coflow)
            && self.table.coflow(slot).live_flows() == 0
        {
            self.table.remove(slot);
            if let Some(coflow) = self.coflows.get_mut(&coflow) {
                coflow.told = None;
                coflow.class = None;
                coflow.classes.clear();
            }
        }
    }

    /// A coflow is complete when no more flows join and its last one is done.
    pub(super) fn check_complete(&mut self, now: Time, id: CoflowId) {
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
        // After a restart the time at which its last flow was done is not known; every caller is told this one from now on.
        coflow.last_done.get_or_insert(now);
        if coflow.verdict == Verdict::Undecided {
            // All of it had moved before any plan could count it.
            coflow.verdict = Verdict::Admitted;
            self.answer_awaited(id);
        }
        let record = self.record(now, id);
        // It may have seemed complete before: to a coordinator whose agents were not all back.
        self.completed.retain(|other| other.coflow != id.0);
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
        debug_assert!(EVENTS.binary_search_by_key(&name, |(known, _)| known).is_ok(), "{name} is no event");
        let sum = self.counters.entry(name).or_default();
        *sum = sum.saturating_add(count);
    }
}
