//! What a live system does to a table and a simulator never does: flows join late, reports correct what is
//! left, and time passes beyond the moment at which a flow should have ended. Plans must stay right.

use proptest::prelude::*;
use weir_model::*;
use weir_policy::{CoflowTable, FlowRef, Plan, Policy, PolicyInfo, registry};

const HOSTS: u32 = 4;
/// Tolerance of comparisons between rates, relative to a link's capacity: rounding of sums.
const ROUNDING: f64 = 1e-6;

#[derive(Clone, Debug)]
enum Change {
    Coflow(Vec<(u32, u32, u64)>),
    Join(usize, (u32, u32, u64)),
    Report(usize, f64),
    Finish(usize),
    Drop(usize),
    Pass(u64),
    Plan,
}

fn flow() -> impl Strategy<Value = (u32, u32, u64)> {
    let size = prop_oneof![1u64..5000, 100_000u64..3_000_000, 100_000_000u64..1_000_000_000];
    (0..HOSTS, 1..HOSTS, size).prop_map(|(from, step, size)| (from, (from + step) % HOSTS, size))
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        2 => prop::collection::vec(flow(), 1..12).prop_map(Change::Coflow),
        3 => (any::<usize>(), flow()).prop_map(|(pick, flow)| Change::Join(pick, flow)),
        6 => (any::<usize>(), 0.0f64..1.2).prop_map(|(pick, share)| Change::Report(pick, share)),
        4 => any::<usize>().prop_map(Change::Finish),
        1 => any::<usize>().prop_map(Change::Drop),
        6 => prop_oneof![1u64..3000, 1_000_000u64..300_000_000].prop_map(Change::Pass),
        8 => Just(Change::Plan),
    ]
}

struct Live {
    fabric: Fabric,
    table: CoflowTable,
    plan: Plan,
    /// Flow id, where it is, bytes that an exact account says are left if reports are right.
    flows: Vec<(FlowId, FlowRef, u64)>,
    /// Coflows without flows, and when they arrived: a coordinator puts them in again once they have some.
    idle: Vec<(CoflowId, Time)>,
    next: u64,
    now: Time,
}

impl Live {
    fn new() -> Live {
        let fabric = Fabric::big_switch(HOSTS, Rate::from_bytes_per_sec(11.7e6)).expect("a fabric");
        Live {
            table: CoflowTable::new(&fabric),
            fabric,
            plan: Plan::default(),
            flows: Vec::new(),
            idle: Vec::new(),
            next: 0,
            now: Time::from_millis(1000),
        }
    }

    fn plan(&mut self, info: &PolicyInfo, policy: &mut dyn Policy) {
        self.plan.clear();
        policy.plan(self.now, &self.fabric, &self.table, &mut self.plan);
        self.table.adopt(&self.plan);
        self.check(info);
    }

    fn spec(&self, (from, to, size): (u32, u32, u64)) -> FlowSpec {
        FlowSpec { source: HostId(from), destination: HostId(to), size: Bytes(size), group: 0 }
    }

    fn join(&mut self, slot: weir_policy::Slot, flow: (u32, u32, u64)) {
        self.next += 1;
        let (id, spec) = (FlowId(self.next), self.spec(flow));
        let at = self.table.add_flow(slot, id, &spec, &self.fabric);
        self.flows.push((id, at, flow.2));
    }

    fn take(&mut self, pick: usize) -> Option<(FlowId, FlowRef, u64)> {
        (!self.flows.is_empty()).then(|| self.flows.remove(pick % self.flows.len()))
    }

    fn drop_idle(&mut self, at: FlowRef) {
        let coflow = self.table.coflow(at.coflow);
        if coflow.live_flows() == 0 {
            self.idle.push((coflow.id(), coflow.arrival()));
            self.table.remove(at.coflow);
            self.plan.drains.retain(|&(slot, _)| slot != at.coflow);
            self.plan.grants.retain(|grant| grant.flow.coflow != at.coflow);
        }
    }

    fn apply(&mut self, change: &Change) {
        match change {
            Change::Coflow(flows) => {
                self.next += 1;
                let (id, arrival) = self.idle.pop().unwrap_or((CoflowId(self.next), self.now));
                let empty = CoflowSpec::new(id, arrival, Vec::new());
                let slot = self.table.insert(&empty, FlowId(self.next), &self.fabric);
                flows.iter().for_each(|&flow| self.join(slot, flow));
            }
            Change::Join(pick, flow) => {
                if let Some(&(_, at, _)) = self.flows.get(pick % self.flows.len().max(1)) {
                    self.join(at.coflow, *flow);
                }
            }
            Change::Report(pick, share) => {
                let index = pick % self.flows.len().max(1);
                if let Some((_, at, left)) = self.flows.get_mut(index) {
                    *left = ((*left as f64 * share) as u64).max(1);
                    self.table.set_remaining(*at, *left as f64);
                }
            }
            Change::Finish(pick) => {
                if let Some((_, at, _)) = self.take(*pick) {
                    self.table.finish_flow(at);
                    self.drop_idle(at);
                }
            }
            Change::Drop(pick) => {
                if let Some((_, at, _)) = self.take(*pick) {
                    self.table.remove_flow(at);
                    self.drop_idle(at);
                }
            }
            Change::Pass(nanos) => {
                let span = Span::from_nanos(*nanos);
                self.now = self.now + span;
                self.table.advance(&self.plan, span);
            }
            Change::Plan => {}
        }
    }

    fn path(&self, at: FlowRef) -> Path {
        let class = self.table.flow(at).class().expect("every flow crosses a link");
        *self.table.classes()[class.index()].path()
    }

    fn check(&self, info: &PolicyInfo) {
        let name = info.name;
        let mut used = vec![0.0; self.fabric.links().len()];
        for &(id, at, _) in &self.flows {
            let path = self.path(at);
            let rate = self.plan.rate(&self.table, at).bytes_per_sec();
            assert!(rate >= 0.0 && rate.is_finite(), "{name}: flow {id} at {rate}");
            path.iter().for_each(|link| used[link.index()] += rate);
        }
        let part = |link: &LinkId| used[link.index()] / self.fabric.capacity(*link).bytes_per_sec();
        for &(id, at, _) in &self.flows {
            let path = self.path(at);
            let fullest = path.iter().map(part).fold(0.0, f64::max);
            assert!(fullest <= 1.0 + ROUNDING, "{name}: a link of flow {id} at {fullest} of its capacity");
            let conserving = info.claims.work_conserving;
            assert!(!conserving || fullest >= 1.0 - ROUNDING, "{name}: flow {id} could go faster: {fullest}");
        }
    }
}

proptest! {
    #[test]
    fn no_flow_is_forgotten_whatever_a_live_system_does(changes in prop::collection::vec(change(), 1..80)) {
        for info in registry() {
            let (mut policy, mut live) = (info.create(), Live::new());
            for change in &changes {
                live.apply(change);
                if matches!(change, Change::Plan) {
                    live.plan(info, policy.as_mut());
                }
            }
        }
    }
}

/// A coordinator takes a coflow without flows out, and puts it in again under its id when it has some, in the same slot and
/// with as many flows. Queues took these for the flows of before: they got nothing, or a plan ended in a panic.
#[test]
fn a_coflow_that_comes_back_with_other_flows_is_planned_anew() {
    for info in registry() {
        let (mut policy, mut live) = (info.create(), Live::new());
        let mut change = |live: &mut Live, change| {
            live.apply(&change);
            live.plan(info, policy.as_mut());
        };
        change(&mut live, Change::Coflow(vec![(0, 1, 1000), (0, 1, 1000)]));
        change(&mut live, Change::Finish(0));
        change(&mut live, Change::Finish(0));
        // As many flows, between other hosts,
        change(&mut live, Change::Coflow(vec![(2, 3, 1000), (2, 3, 1000)]));
        live.apply(&Change::Finish(0));
        change(&mut live, Change::Finish(0));
        // as many again, of which each must be served where links differ,
        change(&mut live, Change::Coflow(vec![(2, 3, 1000), (3, 2, 1000)]));
        change(&mut live, Change::Finish(0));
        change(&mut live, Change::Finish(0));
        change(&mut live, Change::Coflow(vec![(0, 1, 1000), (1, 0, 1000)]));
        change(&mut live, Change::Finish(0));
        change(&mut live, Change::Finish(0));
        // and of two, one ends before anybody plans for them.
        live.apply(&Change::Coflow(vec![(1, 0, 1000), (1, 0, 1000)]));
        change(&mut live, Change::Finish(0));
        assert_eq!(live.flows.len(), 1, "{}", info.name);
    }
}

/// Rates in proportion to what is left would have a flow come nearer and nearer to its end, one plan at a time.
#[test]
fn a_rate_for_less_than_a_thousandth_of_a_byte_ends_its_flow() {
    let fabric = Fabric::big_switch(HOSTS, Rate::from_bytes_per_sec(1e8)).expect("a fabric");
    let ends_after = |left: f64| {
        let mut table = CoflowTable::new(&fabric);
        let flow = FlowSpec { source: HostId(0), destination: HostId(1), size: Bytes(1000), group: 0 };
        let slot = table.insert(&CoflowSpec::new(CoflowId(1), Time::ZERO, vec![flow]), FlowId(1), &fabric);
        let at = FlowRef { coflow: slot, flow: 0 };
        table.set_remaining(at, left);
        let mut plan = Plan::default();
        plan.grants.push(weir_policy::Grant { flow: at, bytes_per_sec: left / 2.0 });
        table.adopt(&plan);
        table.next_end().expect("it moves")
    };
    assert_eq!(ends_after(0.01), Span::from_millis(2000));
    assert_eq!(ends_after(9e-4), Span::ZERO);
}
