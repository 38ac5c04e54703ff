//! `--flows`: what became of each flow.

use serde::Serialize;
use std::collections::BTreeMap;
use weir_model::{CoflowSpec, Time};
use weir_policy::{CoflowTable, FlowRef, Plan};
use weir_sim::{FlowRecord, Observer};

/// One flow of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct FlowRow {
    /// Counted from 0 over all flows of the workload, coflow by coflow as given: the same under every policy.
    pub(crate) id: u64,
    pub(crate) coflow: u64,
    pub(crate) source: u32,
    pub(crate) destination: u32,
    pub(crate) bytes: u64,
    /// When it first had a rate (live: when its first byte arrived); null if its coflow was refused.
    pub(crate) start_s: Option<f64>,
    /// When its last byte arrived; null if its coflow was refused.
    pub(crate) finish_s: Option<f64>,
    /// Its coflow's deadline, from its coflow's arrival; null without one.
    pub(crate) deadline_s: Option<f64>,
}

/// Rows of all flows, filled while a run lasts.
pub(crate) struct FlowRecorder {
    rows: Vec<FlowRow>,
    /// Where a coflow's rows begin, and how many of them have not started.
    coflows: BTreeMap<u64, (usize, usize)>,
}

impl FlowRecorder {
    pub(crate) fn new(coflows: &[CoflowSpec]) -> FlowRecorder {
        let mut recorder = FlowRecorder { rows: Vec::new(), coflows: BTreeMap::new() };
        for coflow in coflows {
            recorder.coflows.insert(coflow.id.0, (recorder.rows.len(), coflow.flows.len()));
            let first = recorder.rows.len() as u64;
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
    pub(crate) fn measured(&mut self, coflow: u64, flow: usize, start_s: f64, finish_s: f64) {
        let Some((first, _)) = self.coflows.get(&coflow) else { return };
        if let Some(row) = self.rows.get_mut(first + flow) {
            (row.start_s, row.finish_s) = (Some(start_s), Some(finish_s));
        }
    }

    pub(crate) fn finish(self) -> Vec<FlowRow> {
        self.rows
    }
}

impl Observer for FlowRecorder {
    fn moved(&mut self, from: Time, _to: Time, table: &CoflowTable, plan: &Plan) {
        for (slot, coflow) in table.coflows() {
            let Some((first, waiting)) = self.coflows.get_mut(&coflow.id().0) else { continue };
            // Most coflows have no flow that waits for its first rate: their flows are not visited.
            if *waiting == 0 {
                continue;
            }
            for (index, flow) in coflow.flows().iter().enumerate().filter(|(_, flow)| flow.live()) {
                let Some(row) = self.rows.get_mut(*first + index) else { continue };
                let at = FlowRef { coflow: slot, flow: index as u32 };
                if row.start_s.is_none() && flow.live() && plan.rate(table, at).bytes_per_sec() > 0.0 {
                    row.start_s = Some(from.as_secs());
                    *waiting -= 1;
                }
            }
        }
    }

    fn flow_completed(&mut self, flow: FlowRecord) {
        let Some((first, waiting)) = self.coflows.get_mut(&flow.coflow.0) else { return };
        let Some(row) = self.rows.get_mut(*first + flow.index) else { return };
        let finish = flow.completed.as_secs();
        // A flow of no bytes, or within a host, ends without ever having had a rate.
        if row.start_s.is_none() {
            row.start_s = Some(finish);
            *waiting -= 1;
        }
        row.finish_s = Some(finish);
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
}
