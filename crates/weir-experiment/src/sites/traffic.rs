//! What crosses the links between sites while a run lasts, and when reducers have read.

use super::links::{self, LinkUse, RegionNet};
use crate::Measures;
use std::collections::BTreeMap;
use weir_model::{CoflowId, CoflowSpec, Fabric, FlowSpec, HostId, LinkId, Span, Time};
use weir_policy::{CoflowTable, Detour, FlowRef, Plan};
use weir_sim::{FlowRecord, Observer, mean, percentile};

/// A reducer: its coflow, the site's host, and its number there.
type Reducer = (CoflowId, HostId, u32);

/// Counts bytes by link while a run is simulated.
pub(crate) struct Traffic<'a> {
    fabric: &'a Fabric,
    coflows: BTreeMap<CoflowId, &'a CoflowSpec>,
    /// Bytes by way of relays.
    relayed: f64,
    /// Bytes by link; where a relay takes some, those that it keeps from the direct link count below 0 until the flow
    /// has ended.
    crossed: Vec<f64>,
    /// When the last flow to each reducer ended.
    reads: BTreeMap<Reducer, Time>,
}

impl<'a> Traffic<'a> {
    pub(crate) fn of(fabric: &'a Fabric, coflows: &'a [CoflowSpec]) -> Traffic<'a> {
        let coflows = coflows.iter().map(|coflow| (coflow.id, coflow)).collect();
        let crossed = vec![0.0; fabric.links().len()];
        Traffic { fabric, coflows, relayed: 0.0, crossed, reads: BTreeMap::new() }
    }

    /// Adds what was seen of links, and gives their use, one by one, where the last coflow ended after so long.
    pub(crate) fn note_links(
        &self,
        regions: &RegionNet,
        lasted: Span,
        measures: &mut Measures,
    ) -> Vec<LinkUse> {
        let uses = links::uses(self.fabric, regions, &self.crossed, lasted);
        links::note(self.fabric, regions, &self.crossed, &uses, measures);
        uses
    }

    /// Moves bytes from the direct link of a flow to those by way of a relay.
    fn relay(&mut self, flow: &FlowSpec, relay: u32, bytes: f64) {
        let ends = (self.fabric.site_of(flow.source), self.fabric.site_of(flow.destination));
        let (Some(from), Some(to)) = ends else { return };
        let mut add = |link: Option<LinkId>, bytes: f64| {
            if let Some(link) = link {
                self.crossed[link.index()] += bytes;
            }
        };
        add(self.fabric.between(from, to), -bytes);
        add(self.fabric.between(from, relay), bytes);
        add(self.fabric.between(relay, to), bytes);
    }

    /// Adds what was seen of reads.
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
        let moving = || plan.detours.iter().filter(|detour| is_live(detour.flow));
        let rates = moving().map(|detour| detour.bytes_per_sec);
        self.relayed += rates.sum::<f64>() * span.as_secs();
        for &Detour { flow, relay, bytes_per_sec } in moving() {
            let coflow = self.coflows.get(&table.coflow(flow.coflow).id()).copied();
            if let Some(spec) = coflow.and_then(|coflow| coflow.flows.get(flow.flow as usize)) {
                self.relay(spec, relay, bytes_per_sec * span.as_secs());
            }
        }
    }

    fn flow_completed(&mut self, flow: FlowRecord) {
        let Some(coflow) = self.coflows.get(&flow.coflow) else { return };
        let spec = &coflow.flows[flow.index];
        let end = self.reads.entry((flow.coflow, spec.destination, spec.group)).or_insert(Time::ZERO);
        *end = (*end).max(flow.completed);
        for link in self.fabric.path(spec.source, spec.destination).iter().flat_map(|path| path.iter()) {
            self.crossed[link.index()] += spec.size.0 as f64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::{Bytes, Rate, SiteSpec};
    use weir_trace::wan::Excerpt;

    #[test]
    fn a_relayed_byte_crosses_two_links_and_is_paid_for_twice() {
        let grid = Excerpt::SkyplaneGcp5.read().expect("a table").grid("2022-01-24", &[]).expect("a grid");
        // asia-east1, asia-northeast1 and europe-west1, all at 100 MB/s.
        let regions = RegionNet::of(&grid.regions[..3]).expect("prices");
        let rates = vec![vec![Rate::from_bytes_per_sec(1e8); 3]; 3];
        let spec = SiteSpec { hosts_per_site: vec![1; 3], host_rate: None, rates };
        let fabric = Fabric::sites(&spec).expect("a fabric");
        let flow =
            FlowSpec { source: HostId(0), destination: HostId(2), size: Bytes(2_000_000_000), group: 0 };
        let coflows = vec![CoflowSpec::new(CoflowId(1), Time::ZERO, vec![flow])];
        let run = |policy: &str| {
            let mut traffic = Traffic::of(&fabric, &coflows);
            let mut policy = weir_policy::create(policy).expect("a policy");
            let (given, options) = (coflows.clone(), weir_sim::Options::default());
            let outcome =
                weir_sim::simulate_observed(&fabric, given, policy.as_mut(), &options, &mut traffic);
            let mut measures = Measures::new();
            let lasted = outcome.expect("an end").makespan - Time::ZERO;
            let uses = traffic.note_links(&regions, lasted, &mut measures);
            let rounded = |value: f64| (value * 1e3).round() / 1e3;
            let gb: Vec<f64> = uses.iter().map(|link| rounded(link.gb)).collect();
            let of = |name: &str| rounded(measures[name]);
            (gb, rounded(uses[1].used), of("egress"), of("busiest"), of("used"))
        };
        // Links 0>1, 0>2, 1>0, 1>2, 2>0, 2>1. All goes directly: 20 s, at 8 cents a GB.
        assert_eq!(run("fair"), (vec![0.0, 2.0, 0.0, 0.0, 0.0, 0.0], 100.0, 0.16, 100.0, 16.667));
        // A half by way of 1: 10 s, and it costs 5 cents on its first link and 8 on its second.
        assert_eq!(run("siphon"), (vec![1.0, 1.0, 0.0, 1.0, 0.0, 0.0], 100.0, 0.21, 33.333, 50.0));
    }
}
