//! `--flows`: what became of each flow.

use serde::Serialize;
use std::collections::BTreeMap;
use weir_model::{CoflowSpec, LinkId, Time};
use weir_policy::{CoflowTable, FlowRef, Form, Plan, Share, Slot};
use weir_sim::{CoflowRecord, FlowRecord, Observer};

/// One flow of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FlowRow {
    /// Counted from 0 over all flows of the workload, coflow by coflow as given: the same under every policy.
    pub id: u64,
    /// The coflow it belongs to, as the workload numbers it.
    pub coflow: u64,
    /// The host that sends, counted from 0.
    pub source: u32,
    /// The host that receives, counted from 0.
    pub destination: u32,
    /// Payload to be moved, headers not counted.
    pub bytes: u64,
    /// When it first had a rate (live: when its first byte arrived); null if its coflow was refused.
    pub start_s: Option<f64>,
    /// When its last byte arrived; null if its coflow was refused.
    pub finish_s: Option<f64>,
    /// Its coflow's deadline, from its coflow's arrival; null without one.
    pub deadline_s: Option<f64>,
}

/// Rows of all flows, filled while a run lasts.
///
/// Nearly all flows of a run wait nearly always. What one event costs here is therefore in proportion to what the plan
/// names, as it is for the policy, and not to what waits.
#[derive(Default)]
pub struct FlowRecorder {
    rows: Vec<FlowRow>,
    coflows: BTreeMap<u64, Recorded>,
    /// Coflows in the simulator's table of which a flow may not have started.
    waiting: Vec<Named<Slot>>,
    /// Flows, and coflows as a whole, to which plans gave something since the last movement.
    granted: Vec<Named<FlowRef>>,
    given: Vec<Named<Slot>>,
}

/// A coflow of the run.
#[derive(Default)]
struct Recorded {
    /// Where its rows begin.
    first: usize,
    /// How many of them have not started.
    waiting: usize,
    /// By link: whether flows that cross only such links have all started. It is what a share of the coflow gave something
    /// on when all flows were looked at: a share of less starts no flow.
    open: Vec<bool>,
}

impl Recorded {
    fn opens(&self, share: &Share) -> bool {
        let closed = |link: &LinkId| !self.open.get(link.index()).copied().unwrap_or(false);
        self.waiting > 0 && share.levels.iter().any(|(link, level)| *level > 0.0 && closed(link))
    }

    fn note(&mut self, share: &Share) {
        self.open.clear();
        for (link, _) in share.levels.iter().filter(|(_, level)| *level > 0.0) {
            self.open.resize(self.open.len().max(link.index() + 1), false);
            self.open[link.index()] = true;
        }
    }
}

/// A place in the simulator's table, and the coflow that is there: the place may become another's.
type Named<T> = (T, u64);

impl FlowRecorder {
    /// Rows of all flows of these coflows, none of which has started.
    pub fn new(coflows: &[CoflowSpec]) -> FlowRecorder {
        let mut recorder = FlowRecorder::default();
        for coflow in coflows {
            let (first, waiting) = (recorder.rows.len(), coflow.flows.len());
            recorder.coflows.insert(coflow.id.0, Recorded { first, waiting, open: Vec::new() });
            let first = first as u64;
            let deadline_s = coflow.deadline.map(weir_model::Span::as_secs);
            recorder.rows.extend((first..).zip(&coflow.flows).map(|(id, flow)| FlowRow {
                id,
                coflow: coflow.id.0,
                source: flow.source.0,
                destination: flow.destination.0,
                bytes: flow.size.0,
                start_s: None,
                finish_s: None,
                deadline_s,
            }));
        }
        recorder
    }

    /// A flow by its coflow and its number there.
    pub fn measured(&mut self, coflow: u64, flow: usize, start_s: f64, finish_s: f64) {
        let Some(Recorded { first, .. }) = self.coflows.get(&coflow) else { return };
        if let Some(row) = self.rows.get_mut(first + flow) {
            (row.start_s, row.finish_s) = (Some(start_s), Some(finish_s));
        }
    }

    /// The rows, by number of the flow.
    pub fn finish(self) -> Vec<FlowRow> {
        self.rows
    }
}

impl FlowRecorder {
    fn has_waiting(&self, coflow: u64) -> bool {
        self.coflows.get(&coflow).is_some_and(|coflow| coflow.waiting > 0)
    }

    /// Notes that a flow moves, if it does so for the first time.
    fn start(&mut self, coflow: u64, flow: usize, at_s: f64) {
        let Some(Recorded { first, waiting, .. }) = self.coflows.get_mut(&coflow) else { return };
        let Some(row) = self.rows.get_mut(*first + flow) else { return };
        if row.start_s.is_none() {
            row.start_s = Some(at_s);
            *waiting -= 1;
        }
    }

    /// A coflow has left the table.
    fn forget(&mut self, coflow: u64) {
        self.waiting.retain(|(_, id)| *id != coflow);
        self.granted.retain(|(_, id)| *id != coflow);
        self.given.retain(|(_, id)| *id != coflow);
    }
}

impl Observer for FlowRecorder {
    fn planned(&mut self, table: &CoflowTable, plan: &Plan, arrived: &[Slot]) {
        let named = |slot: Slot| (slot, table.coflow(slot).id().0);
        self.waiting.extend(arrived.iter().map(|&slot| named(slot)));
        // A whole plan takes the place of what plans gave since anything moved; one that goes on
        // adds to it.
        if !plan.continues {
            self.granted.clear();
            self.given.clear();
        }
        let used = plan.grants.iter().filter(|grant| grant.bytes_per_sec > 0.0);
        self.granted.extend(used.map(|grant| (grant.flow, table.coflow(grant.flow.coflow).id().0)));
        self.given.extend(plan.drains.iter().map(|&(slot, _)| named(slot)));
        for share in &plan.shares {
            let (slot, coflow) = named(share.coflow);
            if self.coflows.get(&coflow).is_some_and(|coflow| coflow.opens(share)) {
                self.given.push((slot, coflow));
            }
        }
        if plan.form == Form::Levels {
            // Levels are for all flows.
            let mut waiting = std::mem::take(&mut self.waiting);
            waiting.retain(|&(_, coflow)| self.has_waiting(coflow));
            self.given.extend(&waiting);
            self.waiting = waiting;
        }
    }

    fn moved(&mut self, from: Time, _to: Time, table: &CoflowTable, plan: &Plan) {
        let moves = |at: FlowRef| plan.rate(table, at).bytes_per_sec() > 0.0;
        for (at, coflow) in std::mem::take(&mut self.granted) {
            if moves(at) {
                self.start(coflow, at.flow as usize, from.as_secs());
            }
        }
        let given = std::mem::take(&mut self.given);
        for &(slot, coflow) in &given {
            if !self.has_waiting(coflow) {
                continue;
            }
            for flow in 0..table.coflow(slot).flows().len() as u32 {
                if moves(FlowRef { coflow: slot, flow }) {
                    self.start(coflow, flow as usize, from.as_secs());
                }
            }
        }
        if given.is_empty() {
            return;
        }
        for share in &plan.shares {
            let coflow = table.coflow(share.coflow).id().0;
            if given.contains(&(share.coflow, coflow)) {
                self.coflows.entry(coflow).and_modify(|coflow| coflow.note(share));
            }
        }
    }

    fn flow_completed(&mut self, flow: FlowRecord) {
        let finish = flow.completed.as_secs();
        // A flow of no bytes, or within a host, ends without ever having had a rate.
        self.start(flow.coflow.0, flow.index, finish);
        let Some(Recorded { first, .. }) = self.coflows.get(&flow.coflow.0) else { return };
        if let Some(row) = self.rows.get_mut(first + flow.index) {
            row.finish_s = Some(finish);
        }
    }

    fn coflow_completed(&mut self, coflow: &CoflowRecord) {
        self.forget(coflow.id.0);
    }

    fn coflow_refused(&mut self, coflow: &CoflowRecord) {
        self.forget(coflow.id.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::{Bytes, CoflowId, Fabric, FlowSpec, HostId, Rate, Span};
    use weir_sim::{Options, simulate_observed};

    #[test]
    fn a_flow_starts_with_its_first_rate_and_not_with_its_coflow() {
        let fabric = Fabric::big_switch(2, Rate::from_bytes_per_sec(100.0)).expect("a fabric");
        let flow = |size| FlowSpec { source: HostId(0), destination: HostId(1), size: Bytes(size), group: 0 };
        let late = CoflowSpec {
            deadline: Some(Span::from_millis(9000)),
            ..CoflowSpec::new(CoflowId(8), Time::from_millis(500), vec![flow(300)])
        };
        let coflows = vec![CoflowSpec::new(CoflowId(7), Time::ZERO, vec![flow(200)]), late];
        let mut recorder = FlowRecorder::new(&coflows);
        let mut policy = weir_policy::create("fifo").expect("a policy");
        simulate_observed(&fabric, coflows, policy.as_mut(), &Options::default(), &mut recorder)
            .expect("a run");
        let rows = recorder.finish();
        // 200 bytes at 100 a second end at 2 s; only then the second, there since 0.5 s, has the link until 5 s.
        let times: Vec<_> = rows.iter().map(|row| (row.id, row.coflow, row.start_s, row.finish_s)).collect();
        assert_eq!(times, [(0, 7, Some(0.0), Some(2.0)), (1, 8, Some(2.0), Some(5.0))]);
        assert_eq!((rows[0].deadline_s, rows[1].deadline_s, rows[1].bytes), (None, Some(9.0), 300));
    }

    /// Looks at every flow at every event.
    struct Look(BTreeMap<(u64, usize), f64>);

    impl Observer for Look {
        fn moved(&mut self, from: Time, _: Time, table: &CoflowTable, plan: &Plan) {
            for (slot, coflow) in table.coflows() {
                for flow in 0..coflow.flows().len() {
                    let at = FlowRef { coflow: slot, flow: flow as u32 };
                    if plan.rate(table, at).bytes_per_sec() > 0.0 {
                        self.0.entry((coflow.id().0, flow)).or_insert(from.as_secs());
                    }
                }
            }
        }
        fn flow_completed(&mut self, flow: FlowRecord) {
            self.0.entry((flow.coflow.0, flow.index)).or_insert(flow.completed.as_secs());
        }
    }

    /// Both, over the same run.
    struct Both(FlowRecorder, Look);

    impl Observer for Both {
        fn planned(&mut self, table: &CoflowTable, plan: &Plan, arrived: &[Slot]) {
            self.0.planned(table, plan, arrived);
        }
        fn moved(&mut self, from: Time, to: Time, table: &CoflowTable, plan: &Plan) {
            self.0.moved(from, to, table, plan);
            self.1.moved(from, to, table, plan);
        }
        fn flow_completed(&mut self, flow: FlowRecord) {
            self.0.flow_completed(flow);
            self.1.flow_completed(flow);
        }
        fn coflow_completed(&mut self, coflow: &CoflowRecord) {
            self.0.coflow_completed(coflow);
        }
        fn coflow_refused(&mut self, coflow: &CoflowRecord) {
            self.0.coflow_refused(coflow);
        }
    }

    /// Coflows that wait for each other, within hosts too, with deadlines that cannot all be met.
    fn crowd() -> Vec<CoflowSpec> {
        let mut state = 7_u64;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let coflow = |id| {
            let flows = (0..1 + draw(9)).map(|_| FlowSpec {
                source: HostId(draw(5) as u32),
                destination: HostId(draw(5) as u32),
                size: Bytes(1 + draw(400)),
                group: 0,
            });
            let flows = flows.collect();
            let deadline = Span::from_millis(2000 + 1000 * draw(20));
            let arrival = Time::from_millis(250 * draw(40));
            CoflowSpec { deadline: Some(deadline), ..CoflowSpec::new(CoflowId(id), arrival, flows) }
        };
        (0..30).map(coflow).collect()
    }

    #[test]
    fn starts_are_those_that_a_look_at_every_flow_finds_under_every_policy() {
        let fabric = Fabric::big_switch(5, Rate::from_bytes_per_sec(100.0)).expect("a fabric");
        for info in weir_policy::registry() {
            let coflows = crowd();
            let mut both = Both(FlowRecorder::new(&coflows), Look(BTreeMap::new()));
            let mut policy = weir_policy::create(info.name).expect("a policy");
            let run = simulate_observed(&fabric, coflows, policy.as_mut(), &Options::default(), &mut both);
            run.unwrap_or_else(|error| panic!("{}: {error}", info.name));
            let Both(recorder, Look(starts)) = both;
            let mut indices: BTreeMap<u64, usize> = BTreeMap::new();
            for row in recorder.finish() {
                let index = indices.entry(row.coflow).or_default();
                let expected = starts.get(&(row.coflow, *index)).copied();
                assert_eq!(row.start_s, expected, "{}: flow {index} of coflow {}", info.name, row.coflow);
                *index += 1;
            }
            assert!(!starts.is_empty(), "{}", info.name);
        }
    }
}
