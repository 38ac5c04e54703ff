//! What crosses the links between sites while a run lasts, and when reducers have read.

use crate::Measures;
use std::collections::BTreeMap;
use weir_model::{CoflowId, CoflowSpec, Fabric, HostId, Span, Time};
use weir_policy::{CoflowTable, FlowRef, Plan};
use weir_sim::{FlowRecord, Observer, mean, percentile};

/// A reducer: its coflow, the site's host, and its number there.
type Reducer = (CoflowId, HostId, u32);

/// Watches a run.
pub(crate) struct Traffic<'a> {
    fabric: &'a Fabric,
    coflows: BTreeMap<CoflowId, &'a CoflowSpec>,
    /// Bytes by way of relays.
    relayed: f64,
    /// When the last flow to each reducer ended.
    reads: BTreeMap<Reducer, Time>,
}

impl<'a> Traffic<'a> {
    /// Of these coflows.
    pub(crate) fn of(fabric: &'a Fabric, coflows: &'a [CoflowSpec]) -> Traffic<'a> {
        let coflows = coflows.iter().map(|coflow| (coflow.id, coflow)).collect();
        Traffic { fabric, coflows, relayed: 0.0, reads: BTreeMap::new() }
    }

    /// Adds what was seen.
    pub(crate) fn note(self, measures: &mut Measures) {
        let arrival = |id: &CoflowId| self.coflows.get(id).map_or(Time::ZERO, |coflow| coflow.arrival);
        let mut reads: Vec<f64> =
            self.reads.iter().map(|((coflow, ..), end)| end.since(arrival(coflow)).as_secs()).collect();
        reads.sort_by(f64::total_cmp);
        let between =
            |flow: &&weir_model::FlowSpec| self.fabric.path(flow.source, flow.destination).is_some();
        let flows = self.coflows.values().flat_map(|coflow| &coflow.flows).filter(between);
        let bytes: f64 = flows.map(|flow| flow.size.0 as f64).sum();
        measures.insert("read avg".to_owned(), mean(&reads));
        for (name, share) in
            [("read p10", 0.1), ("read p25", 0.25), ("read p50", 0.5), ("read p75", 0.75), ("read p90", 0.9)]
        {
            measures.insert(name.to_owned(), percentile(&reads, share));
        }
        measures.insert("relayed".to_owned(), if bytes > 0.0 { 100.0 * self.relayed / bytes } else { 0.0 });
    }
}

impl Observer for Traffic<'_> {
    fn moved(&mut self, from: Time, to: Time, table: &CoflowTable, plan: &Plan) {
        let span: Span = to - from;
        let is_live = |flow: FlowRef| table.flow(flow).live();
        let rates =
            plan.detours.iter().filter(|detour| is_live(detour.flow)).map(|detour| detour.bytes_per_sec);
        self.relayed += rates.sum::<f64>() * span.as_secs();
    }

    fn flow_completed(&mut self, flow: FlowRecord) {
        let Some(coflow) = self.coflows.get(&flow.coflow) else { return };
        let spec = &coflow.flows[flow.index];
        let end = self.reads.entry((flow.coflow, spec.destination, spec.group)).or_insert(Time::ZERO);
        *end = (*end).max(flow.completed);
    }
}
