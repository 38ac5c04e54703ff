//! The event loop.

use crate::completions::{Completions, Due, New};
use crate::isolation::isolation;
use crate::jobs::{Jobs, set_tails};
use crate::windows::{Request, Windows, request_bytes};
use crate::{CoflowRecord, FlowRecord, Observer, Outcome, RefusedCoflow};
use weir_model::{
    Arrivals, Bytes, CapacityChange, CoflowId, CoflowSpec, Fabric, FabricError, FlowId, FlowSpec, Span, Time,
};
use weir_policy::{ClassId, CoflowTable, FlowRef, Plan, Policy, Refusal, Slot};

/// When the policy plans again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replan {
    /// At every arrival of a coflow and every completion of a flow.
    #[default]
    FlowCompletions,
    /// Only at arrivals and completions of coflows, as Varys' own simulator and master did. Rates are
    /// frozen in between: what a completed flow leaves idles. (Also when nothing moves any more, as under a
    /// policy that serves single flows.)
    CoflowEvents,
}

/// How a run plans, and when its coflows arrive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// When the policy plans again.
    pub replan: Replan,
    /// All coflows arrive at the beginning.
    pub offline: bool,
    /// Arrival times are multiplied by this: 0.5 compresses a trace twofold. Finite, not negative.
    pub arrival_scale: f64,
    /// What receivers ask for at a time; without it, all flows of a coflow open as it arrives.
    pub window: Option<Window>,
}

/// Receivers ask for a part of their data at a time, as tasks of Spark do: in requests of a fifth of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Bytes that a receiver has asked for and not got, at most. At least 1.
    pub bytes: Bytes,
    /// Whether the policy is told what is to come, by source ([`CoflowTable::expect`]).
    pub expected: bool,
    /// Whether a flow is a block, which is asked for whole.
    pub blocks: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { replan: Replan::default(), offline: false, arrival_scale: 1.0, window: None }
    }
}

impl Window {
    /// Number of requests that the receivers of a coflow make.
    pub fn requests(self, coflow: &CoflowSpec) -> u64 {
        let request = request_bytes(self.bytes, self.blocks);
        coflow.flows.iter().map(|flow| flow.size.0.div_ceil(request)).fold(0, u64::saturating_add)
    }
}

/// Arrivals up to here leave coflows centuries to move in until the clock of 64 bits of nanoseconds ends.
const LATEST_ARRIVAL_SECS: f64 = 1e9;

/// Why a run cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimError {
    /// Nothing will ever happen again though flows are live: the policy starves them.
    #[error("at {at_secs} s the policy leaves {flows} flows without rate for ever, first of coflow {coflow}")]
    Stalled {
        /// Seconds since the beginning, as text.
        at_secs: String,
        /// Number of flows that are left.
        flows: usize,
        /// The first coflow left.
        coflow: CoflowId,
    },
    /// A link is to get a capacity that none can have.
    #[error(transparent)]
    Capacity(#[from] FabricError),
    /// A coflow arrives so late that times after it could not be told from each other.
    #[error(
        "coflow {coflow} arrives {at_secs} s after the beginning; at most 10^9 s (31 years) can be simulated"
    )]
    TooLate {
        /// The first of them.
        coflow: CoflowId,
        /// Its arrival in seconds, as text.
        at_secs: String,
    },
    /// Coflows wait for each other in a circle.
    #[error("coflow {coflow} waits for coflows that never complete")]
    NeverArrives {
        /// The first of them.
        coflow: CoflowId,
    },
}

/// Runs coflows (in any order) through a fresh policy until all are complete. A coflow that waits for others (see
/// [`weir_model::Dependencies`]) arrives when they are complete and its stage has computed.
///
/// # Errors
/// A coflow arrives later than 10^9 s after the beginning or waits for others that never complete, or live flows have no rate for ever.
pub fn simulate(
    fabric: &Fabric,
    coflows: Vec<CoflowSpec>,
    policy: &mut dyn Policy,
    options: &Options,
) -> Result<Outcome, SimError> {
    simulate_observed(fabric, coflows, policy, options, &mut ())
}

/// [`simulate`] with an observer.
///
/// # Errors
/// As [`simulate`].
pub fn simulate_observed(
    fabric: &Fabric,
    coflows: Vec<CoflowSpec>,
    policy: &mut dyn Policy,
    options: &Options,
    observer: &mut dyn Observer,
) -> Result<Outcome, SimError> {
    simulate_changing(fabric, Vec::new(), coflows, policy, options, observer)
}

/// [`simulate_observed`] on links whose capacities change: the fabric is as at the beginning, and changes come in any
/// order. The policy plans at each, and learns of none before it comes. Isolation times are those
/// of the capacities at arrival. Panics on a link that the fabric does not have.
///
/// # Errors
/// As [`simulate`]; besides, a capacity is not a finite number above 0.
pub fn simulate_changing(
    fabric: &Fabric,
    changes: Vec<CapacityChange>,
    mut coflows: Vec<CoflowSpec>,
    policy: &mut dyn Policy,
    options: &Options,
    observer: &mut dyn Observer,
) -> Result<Outcome, SimError> {
    let at_the_beginning = fabric;
    let mut fabric = fabric.clone();
    for change in &changes {
        // Refused now rather than when it comes.
        fabric.set_capacity(change.link, change.capacity)?;
    }
    // Changes were tried on the copy only to find out whether they can be.
    fabric.clone_from(at_the_beginning);
    for coflow in &mut coflows {
        let scale = if options.offline { 0.0 } else { options.arrival_scale };
        // The clock ends 584 years after the beginning and stays there: what arrived then took no time at all.
        let at_secs = coflow.arrival.as_secs() * scale;
        if at_secs > LATEST_ARRIVAL_SECS {
            return Err(SimError::TooLate { coflow: coflow.id, at_secs: at_secs.to_string() });
        }
        // An arrival that is not scaled stays as it is: by way of a double it could lose
        // nanoseconds.
        if scale != 1.0 {
            coflow.arrival = Time::ZERO + Span::from_secs_ceil(coflow.arrival.as_secs() * scale);
        }
    }
    set_tails(&fabric, &mut coflows);
    let jobs = Jobs::of(&coflows);
    let mut engine = Engine::new(fabric, Arrivals::new(coflows), policy, options, observer);
    engine.changes = changes;
    // The next one last; of two changes of a link at one time the later of the list counts.
    engine.changes.reverse();
    engine.changes.sort_by_key(|change| std::cmp::Reverse(change.at));
    let mut outcome = engine.run()?;
    outcome.jobs = jobs.records(&outcome.coflows);
    Ok(outcome)
}

/// A coflow whose receivers ask for a part at a time.
#[derive(Clone, Debug)]
struct Windowed {
    windows: Windows,
    /// Which flow of the coflow each request in the table is of.
    flows: Vec<usize>,
}

struct Engine<'a> {
    fabric: Fabric,
    /// Changes of capacities to come, the next one last.
    changes: Vec<CapacityChange>,
    policy: &'a mut dyn Policy,
    replan: Replan,
    window: Option<Window>,
    observer: &'a mut dyn Observer,
    arrivals: Arrivals,
    table: CoflowTable,
    plan: Plan,
    completions: Completions,
    now: Time,
    wakeup: Time,
    /// What is known of live coflows besides the table, by slot.
    live: Vec<Option<CoflowRecord>>,
    arrived: Vec<Slot>,
    /// By slot, what is not asked for yet.
    windows: Vec<Option<Windowed>>,
    /// Flows that joined live coflows since the last plan.
    joined: Vec<FlowRef>,
    touched: Vec<ClassId>,
    /// Whether something happened after which the policy plans.
    stale: bool,
    next_flow: u64,
    outcome: Outcome,
}

impl<'a> Engine<'a> {
    fn new(
        fabric: Fabric,
        arrivals: Arrivals,
        policy: &'a mut dyn Policy,
        options: &Options,
        observer: &'a mut dyn Observer,
    ) -> Engine<'a> {
        Engine {
            table: CoflowTable::new(&fabric),
            fabric,
            changes: Vec::new(),
            policy,
            replan: options.replan,
            window: options.window,
            observer,
            arrivals,
            plan: Plan::default(),
            completions: Completions::default(),
            now: Time::ZERO,
            wakeup: Time::MAX,
            live: Vec::new(),
            arrived: Vec::new(),
            windows: Vec::new(),
            joined: Vec::new(),
            touched: Vec::new(),
            stale: false,
            next_flow: 0,
            outcome: Outcome::default(),
        }
    }

    fn run(mut self) -> Result<Outcome, SimError> {
        let mut due = Due::default();
        loop {
            let arrival = self.arrivals.next_arrival();
            let next = arrival.min(self.completions.next(self.now, &self.table)).min(self.wakeup);
            if next == Time::MAX {
                if self.is_frozen() {
                    self.make_plan();
                    continue;
                }
                break;
            }
            // After the test for the end: a change of capacity alone is no reason to go on.
            let next = next.min(self.changes.last().map_or(Time::MAX, |change| change.at));
            self.move_to(next);
            self.completions.take_due(self.now, &self.table, &mut due);
            // Completions before arrivals of the same instant, so that a stage released by one arrives with it; and one plan for all.
            self.complete(&due);
            while let Some(coflow) = self.arrivals.pop(self.now) {
                self.arrive(&coflow);
            }
            self.change_capacities();
            self.stale |= self.wakeup <= self.now;
            if self.stale {
                self.make_plan();
            }
        }
        if let Some((_, coflow)) = self.table.coflows().next() {
            return Err(SimError::Stalled {
                at_secs: self.now.as_secs().to_string(),
                flows: self.table.live_flows(),
                coflow: coflow.id(),
            });
        }
        if let Some(coflow) = self.arrivals.any_waiting() {
            return Err(SimError::NeverArrives { coflow });
        }
        self.outcome.coflows.sort_by_key(|record| (record.arrival, record.id));
        Ok(self.outcome)
    }

    /// Whether flows are left that the last plan gave nothing, and flows ended since it was made.
    fn is_frozen(&self) -> bool {
        let ended = !self.table.changes().ended.is_empty() || self.table.changes().disturbed;
        self.replan == Replan::CoflowEvents && self.table.live_flows() > 0 && ended
    }

    fn move_to(&mut self, to: Time) {
        self.outcome.counters.events += 1;
        if to > self.now {
            self.observer.moved(self.now, to, &self.table, &self.plan);
            self.table.advance(&self.plan, to - self.now);
            self.now = to;
        }
    }

    fn change_capacities(&mut self) {
        while let Some(change) = self.changes.pop_if(|change| change.at <= self.now) {
            let done = self.fabric.set_capacity(change.link, change.capacity);
            done.expect("a capacity that was tried before");
            self.stale = true;
        }
    }

    fn complete(&mut self, due: &Due) {
        for &slot in &due.coflows {
            if self.is_windowed(slot) {
                self.complete_requests(slot);
                continue;
            }
            for flow in 0..self.table.coflow(slot).flows().len() as u32 {
                if self.table.coflow(slot).flows()[flow as usize].live() {
                    self.record_flow(FlowRef { coflow: slot, flow });
                }
            }
            self.table.remove(slot);
            self.record_coflow(slot);
        }
        for &flow in &due.flows {
            self.record_flow(flow);
            self.table.finish_flow(flow);
            self.ask_for_more(flow);
            self.stale |= self.replan == Replan::FlowCompletions;
            if self.table.coflow(flow.coflow).live_flows() == 0 {
                self.table.remove(flow.coflow);
                self.record_coflow(flow.coflow);
            }
        }
    }

    fn record_flow(&mut self, at: FlowRef) {
        let coflow = self.table.coflow(at.coflow);
        let flow = &coflow.flows()[at.flow as usize];
        let windowed = self.windows.get(at.coflow.0 as usize).and_then(Option::as_ref);
        // With windows the table's flows are requests: a record names the flow of the workload that a request is part of.
        let index = windowed.map_or(at.flow as usize, |windowed| windowed.flows[at.flow as usize]);
        self.outcome.delivered += flow.size();
        self.outcome.counters.flows += 1;
        self.observer.flow_completed(FlowRecord {
            id: flow.id(),
            coflow: coflow.id(),
            index,
            completed: self.now,
            size: flow.size(),
        });
    }

    /// Records a coflow that has left the table.
    fn record_coflow(&mut self, slot: Slot) {
        let mut record = self.live[slot.0 as usize].take().expect("every live coflow is known");
        record.cct = self.now - record.arrival;
        self.observer.coflow_completed(&record);
        self.outcome.coflows.push(record);
        self.arrivals.complete(record.id, self.now);
        // Coflows end in order of time: the last one to be recorded is the one that counts.
        self.outcome.makespan = self.now;
        self.stale = true;
    }

    fn arrive(&mut self, coflow: &CoflowSpec) {
        let slot = match self.window {
            None => self.insert(coflow),
            Some(window) => self.insert_windowed(coflow, window),
        };
        self.live.resize(self.table.slot_bound(), None);
        self.live[slot.0 as usize] = Some(self.record_of(coflow));
        self.arrived.push(slot);
        self.stale = true;
        self.complete_linkless(slot);
        let counters = &mut self.outcome.counters;
        counters.most_coflows = counters.most_coflows.max(self.table.slots().len());
        counters.most_flows = counters.most_flows.max(self.table.live_flows());
    }

    fn insert(&mut self, coflow: &CoflowSpec) -> Slot {
        let first = FlowId(self.next_flow);
        self.next_flow += coflow.flows.len() as u64;
        self.table.insert(coflow, first, &self.fabric)
    }

    /// Puts in what receivers ask for first.
    fn insert_windowed(&mut self, coflow: &CoflowSpec, window: Window) -> Slot {
        let mut windows = Windows::new(coflow, &self.fabric, window.bytes, window.blocks);
        let crosses = |flow: &FlowSpec| self.fabric.path(flow.source, flow.destination).is_some();
        // Flows inside a host are complete as the coflow arrives and take nothing of a window.
        let linkless = coflow.flows.iter().enumerate().filter(|(_, flow)| !crosses(flow));
        let linkless = linkless.map(|(flow, spec)| Request { flow, spec: *spec });
        let first: Vec<Request> = linkless.chain(windows.begin()).collect();
        let flows = first.iter().map(|request| request.flow).collect();
        let open = first.into_iter().map(|request| request.spec).collect();
        let slot = self.insert(&CoflowSpec { flows: open, ..coflow.clone() });
        self.windows.resize(self.table.slot_bound(), None);
        self.windows[slot.0 as usize] = Some(Windowed { windows, flows });
        self.tell_expected(slot);
        slot
    }

    fn is_windowed(&self, slot: Slot) -> bool {
        self.window.is_some() && self.windows[slot.0 as usize].is_some()
    }

    /// All requests of a coflow that were open have ended together.
    fn complete_requests(&mut self, slot: Slot) {
        for flow in 0..self.table.coflow(slot).flows().len() as u32 {
            let at = FlowRef { coflow: slot, flow };
            if self.table.flow(at).live() {
                self.record_flow(at);
                self.table.finish_flow(at);
                self.ask_for_more(at);
            }
        }
        self.stale = true;
        if self.table.coflow(slot).live_flows() == 0 {
            self.table.remove(slot);
            self.record_coflow(slot);
        }
    }

    /// A request has ended; its receiver asks for what fits into its window.
    fn ask_for_more(&mut self, ended: FlowRef) {
        let slot = ended.coflow;
        let windowed = self.windows.get_mut(slot.0 as usize).and_then(Option::as_mut);
        let Some((windowed, class)) = windowed.zip(self.table.flow(ended).class()) else { return };
        let class = &self.table.classes()[class.index()];
        // The request is finished; the table still knows what it was.
        let flow = self.table.flow(ended);
        let spec = FlowSpec {
            source: class.source(),
            destination: class.destination(),
            size: flow.size(),
            group: flow.group(),
        };
        let next = windowed.windows.next(&spec);
        if next.is_empty() {
            return;
        }
        for request in next {
            windowed.flows.push(request.flow);
            let id = FlowId(self.next_flow);
            self.next_flow += 1;
            self.joined.push(self.table.add_flow(slot, id, &request.spec, &self.fabric));
        }
        self.stale = true;
        self.tell_expected(slot);
    }

    fn tell_expected(&mut self, slot: Slot) {
        if self.window.is_some_and(|window| window.expected)
            && let Some(windowed) = &self.windows[slot.0 as usize]
        {
            self.table.expect(slot, windowed.windows.to_come(&self.fabric));
        }
    }

    fn record_of(&self, coflow: &CoflowSpec) -> CoflowRecord {
        CoflowRecord {
            id: coflow.id,
            arrival: coflow.arrival,
            admitted: true,
            cct: Span::ZERO,
            isolation: isolation(&self.fabric, coflow),
            width: coflow.width(),
            bytes: coflow.bytes(),
            bin: coflow.bin(),
        }
    }

    /// Flows that cross no link, and coflows without flows, are complete at once.
    fn complete_linkless(&mut self, coflow: Slot) {
        for flow in 0..self.table.coflow(coflow).flows().len() as u32 {
            if self.table.coflow(coflow).flows()[flow as usize].class().is_none() {
                let at = FlowRef { coflow, flow };
                self.record_flow(at);
                self.table.finish_flow(at);
            }
        }
        if self.table.coflow(coflow).live_flows() == 0 {
            self.table.remove(coflow);
            self.record_coflow(coflow);
            // It has left again before any plan, and its slot may be given to the next arrival.
            self.arrived.retain(|&slot| slot != coflow);
        }
    }

    fn make_plan(&mut self) {
        self.policy.plan(self.now, &self.fabric, &self.table, &mut self.plan);
        // `adopt` forgets changes, and completions need these after it.
        self.touched.clone_from(&self.table.changes().classes);
        self.table.adopt(&self.plan);
        let new = New { coflows: &self.arrived, flows: &self.joined };
        self.completions.adopt(self.now, &self.table, &self.plan, &new, &self.touched);
        self.joined.clear();
        self.observer.planned(&self.table, &self.plan, &self.arrived);
        self.arrived.clear();
        // Not at this moment again: what a policy waits for may round down to it, and would then do so for ever.
        let soonest = self.now + Span::from_nanos(1);
        let wakeup = self.policy.next_wakeup(self.now, &self.table);
        self.wakeup = wakeup.map_or(Time::MAX, |wakeup| wakeup.max(soonest));
        self.stale = false;
        self.outcome.counters.plans += 1;
        self.outcome.counters.grants += self.plan.grants.len() as u64;
        // Only now: completions and the observer above still look at all coflows that arrived, refused ones too.
        for refusal in std::mem::take(&mut self.plan.refused) {
            self.refuse(&refusal);
        }
    }

    /// Lets a coflow leave as it came, and with it those that wait for it: their stages never begin. The plan gives
    /// it nothing, so it needs no other.
    fn refuse(&mut self, refusal: &Refusal) {
        let record = self.live[refusal.coflow.0 as usize].take().expect("every live coflow is known");
        self.table.remove(refusal.coflow);
        self.record_refusal(record, refusal.to_string());
        for coflow in self.arrivals.refuse(record.id) {
            let waiting = CoflowRecord { arrival: self.now, ..self.record_of(&coflow) };
            self.record_refusal(
                waiting,
                format!("its stage would follow on coflow {}, which was refused", record.id),
            );
        }
    }

    fn record_refusal(&mut self, mut record: CoflowRecord, reason: String) {
        (record.admitted, record.cct) = (false, self.now - record.arrival);
        self.observer.coflow_refused(&record);
        self.outcome.refused.push(RefusedCoflow { id: record.id, reason });
        self.outcome.coflows.push(record);
    }
}
