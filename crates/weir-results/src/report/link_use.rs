//! How busy links are over time, from a simulation or from measured transfers.

use std::collections::BTreeMap;
use weir_model::{CoflowSpec, Fabric, HostId, Time};
use weir_policy::{Class, CoflowTable, FlowRef, Plan};
use weir_sim::{FlowRecord, Observer};

/// Samples kept, at most; when they are used up they are taken twice as far apart.
const SAMPLES: usize = 512;
/// A link counts as full from this share of its capacity on.
const FULL: f64 = 0.9;

/// Use of a fabric's links between moments.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkUse {
    /// Moments in seconds, rising; one more than there are intervals.
    pub edges_s: Vec<f64>,
    /// Per interval, mean use of all links as a share of their capacity.
    pub mean: Vec<f64>,
    /// Per interval, the share of links that are at least 90 % used.
    pub full: Vec<f64>,
}

/// A measured transfer, in seconds since the run's start.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// The host whose uplink it crossed.
    pub source: HostId,
    /// The host whose downlink it crossed.
    pub destination: HostId,
    /// When its first byte was received.
    pub start_s: f64,
    /// When its last byte was received.
    pub end_s: f64,
    /// Payload that was moved between the two.
    pub bytes: u64,
}

impl LinkUse {
    /// From bytes that crossed each link up to each moment.
    fn from_totals(fabric: &Fabric, samples: &[(f64, Vec<f64>)]) -> LinkUse {
        let mut result = LinkUse::default();
        let capacities: Vec<f64> = fabric.links().iter().map(|link| link.capacity.bytes_per_sec()).collect();
        result.edges_s.extend(samples.first().map(|sample| sample.0));
        for pair in samples.windows(2) {
            let secs = pair[1].0 - pair[0].0;
            if secs <= 0.0 {
                continue;
            }
            let moved = pair[1].1.iter().zip(&pair[0].1).map(|(after, before)| after - before);
            let shares: Vec<f64> = moved.zip(&capacities).map(|(bytes, rate)| bytes / secs / rate).collect();
            let links = shares.len().max(1) as f64;
            result.edges_s.push(pair[1].0);
            result.mean.push(shares.iter().sum::<f64>() / links);
            result.full.push(shares.iter().filter(|&&share| share >= FULL).count() as f64 / links);
        }
        result
    }

    /// From measured transfers, each counted as moving evenly from start to end.
    pub fn from_transfers(fabric: &Fabric, transfers: &[Transfer]) -> LinkUse {
        let end = transfers.iter().map(|transfer| transfer.end_s).fold(0.0, f64::max);
        let intervals = 256;
        let edge = |index: usize| end * index as f64 / intervals as f64;
        // Bytes per link in each interval first, running totals after.
        let mut totals = vec![vec![0.0; fabric.links().len()]; intervals + 1];
        for transfer in transfers {
            let Some(path) = fabric.path(transfer.source, transfer.destination) else { continue };
            // A small flow may end in the moment of its first byte: no division by zero.
            let secs = (transfer.end_s - transfer.start_s).max(1e-9);
            let first = (transfer.start_s / end * intervals as f64) as usize;
            for index in first..intervals {
                if edge(index) >= transfer.end_s {
                    break;
                }
                // Rounding may have `first` one interval too early: nothing overlaps there.
                let overlap = transfer.end_s.min(edge(index + 1)) - transfer.start_s.max(edge(index));
                let overlap = overlap.max(0.0);
                // Place 0 stays zeros: the totals at the start, from which the first interval is
                // counted.
                for link in path.iter() {
                    totals[index + 1][link.index()] += transfer.bytes as f64 * overlap / secs;
                }
            }
        }
        for index in 1..totals.len() {
            let (before, after) = totals.split_at_mut(index);
            after[0].iter_mut().zip(&before[index - 1]).for_each(|(total, previous)| *total += previous);
        }
        let samples: Vec<(f64, Vec<f64>)> =
            totals.into_iter().enumerate().map(|(index, total)| (edge(index), total)).collect();
        if end > 0.0 { LinkUse::from_totals(fabric, &samples) } else { LinkUse::default() }
    }
}

/// Collects link use while a simulation runs.
///
/// Every so often it notes how many bytes have crossed each link: those of completed flows, and what live
/// ones have moved. Between two notes the mean is exact. Each note visits all live flows.
pub struct LinkRecorder<'a> {
    fabric: &'a Fabric,
    /// Ends of every flow, coflow by coflow.
    ends: Vec<(HostId, HostId)>,
    /// Where a coflow's flows begin there.
    first_flow: BTreeMap<u64, usize>,
    completed: Vec<f64>,
    /// What relays passed on, as more on their links and less on the direct ones, up to now.
    detoured: Vec<f64>,
    last_completed: Time,
    samples: Vec<(f64, Vec<f64>)>,
    step_s: f64,
    next_s: f64,
}

impl<'a> LinkRecorder<'a> {
    /// For a run of these coflows.
    pub fn new(fabric: &'a Fabric, coflows: &[CoflowSpec]) -> LinkRecorder<'a> {
        let mut ends = Vec::new();
        let mut first_flow = BTreeMap::new();
        for coflow in coflows {
            first_flow.insert(coflow.id.0, ends.len());
            ends.extend(coflow.flows.iter().map(|flow| (flow.source, flow.destination)));
        }
        LinkRecorder {
            fabric,
            ends,
            first_flow,
            completed: vec![0.0; fabric.links().len()],
            detoured: vec![0.0; fabric.links().len()],
            last_completed: Time::ZERO,
            samples: vec![(0.0, vec![0.0; fabric.links().len()])],
            step_s: 1e-3,
            next_s: 1e-3,
        }
    }

    /// Adds bytes to the links a flow crosses.
    fn add(fabric: &Fabric, (source, destination): (HostId, HostId), bytes: f64, totals: &mut [f64]) {
        for link in fabric.path(source, destination).iter().flat_map(|path| path.iter()) {
            totals[link.index()] += bytes;
        }
    }

    /// What links carried of flows that are complete, and of detours.
    fn carried(&self) -> Vec<f64> {
        self.completed.iter().zip(&self.detoured).map(|(direct, more)| direct + more).collect()
    }

    /// Moves bytes from the direct link of a flow to those by way of a relay.
    fn detour(&mut self, class: &Class, relay: u32, bytes: f64) {
        let ends = (self.fabric.site_of(class.source()), self.fabric.site_of(class.destination()));
        let (Some(from), Some(to)) = ends else { return };
        for (from, to, bytes) in [(from, to, -bytes), (from, relay, bytes), (relay, to, bytes)] {
            if let Some(link) = self.fabric.between(from, to) {
                self.detoured[link.index()] += bytes;
            }
        }
    }

    fn note(&mut self, at_s: f64, table: &CoflowTable) {
        let mut totals = self.carried();
        for (slot, coflow) in table.coflows() {
            for (index, flow) in (0..).zip(coflow.flows()).filter(|(_, flow)| flow.live()) {
                let left = table.remaining(FlowRef { coflow: slot, flow: index });
                // By the path that the table knows: where receivers have windows its flows are requests, and
                // their places say nothing of the workload's flows.
                let path = flow.class().map(|class| table.classes()[class.index()].path());
                for link in path.iter().flat_map(|path| path.iter()) {
                    totals[link.index()] += flow.size().0 as f64 - left;
                }
            }
        }
        self.samples.push((at_s, totals));
        while self.samples.len() > SAMPLES {
            self.step_s *= 2.0;
            self.thin();
        }
        self.next_s = at_s + self.step_s;
    }

    /// Keeps samples that are a step apart. Where little happened they already are.
    fn thin(&mut self) {
        let (step, mut next) = (self.step_s, 0.0);
        self.samples.retain(|&(at_s, _)| {
            let keep = at_s >= next;
            if keep {
                next = at_s + step;
            }
            keep
        });
    }

    /// What links carried up to the last event.
    pub fn finish(mut self) -> LinkUse {
        self.samples.push((self.last_completed.as_secs(), self.carried()));
        LinkUse::from_totals(self.fabric, &self.samples)
    }
}

impl Observer for LinkRecorder<'_> {
    fn moved(&mut self, from: Time, to: Time, table: &CoflowTable, plan: &Plan) {
        if from.as_secs() >= self.next_s {
            self.note(from.as_secs(), table);
        }
        for detour in &plan.detours {
            let flow = table.flow(detour.flow);
            if let Some(class) = flow.class().filter(|_| flow.live()) {
                let class = table.classes()[class.index()].clone();
                self.detour(&class, detour.relay, detour.bytes_per_sec * to.since(from).as_secs());
            }
        }
    }

    fn flow_completed(&mut self, flow: FlowRecord) {
        self.last_completed = flow.completed;
        let first = self.first_flow.get(&flow.coflow.0).copied().unwrap_or(0);
        if let Some(&ends) = self.ends.get(first + flow.index) {
            LinkRecorder::add(self.fabric, ends, flow.size.0 as f64, &mut self.completed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::{Bytes, CoflowId, FlowSpec, Rate};
    use weir_sim::{Options, simulate_observed};

    #[test]
    fn transfers_fill_their_links_while_they_last() {
        // 100 bytes in the first half at capacity: uplink 0 and downlink 1 of 4 links are full.
        let fabric = Fabric::big_switch(2, Rate::from_bytes_per_sec(100.0)).unwrap();
        let transfer = |start_s, end_s, bytes| Transfer {
            source: HostId(0),
            destination: HostId(1),
            start_s,
            end_s,
            bytes,
        };
        let found = LinkUse::from_transfers(&fabric, &[transfer(0.0, 1.0, 100), transfer(1.0, 2.0, 20)]);
        assert_eq!((found.mean.len(), found.edges_s.len()), (256, 257));
        assert!(found.mean[..128].iter().all(|mean| (mean - 0.5).abs() < 1e-9));
        assert!(found.mean[128..].iter().all(|mean| (mean - 0.1).abs() < 1e-9));
        assert_eq!((found.full[0], found.full[200]), (0.5, 0.0));
    }

    #[test]
    fn a_transfer_that_begins_at_an_edge_counts_however_that_is_rounded() {
        let fabric = Fabric::big_switch(2, Rate::from_bytes_per_sec(100.0)).unwrap();
        let (source, destination) = (HostId(0), HostId(1));
        for end in [3.0, 7.1, 0.3, 1e-3, 12345.678] {
            for index in 0..256 {
                let start_s = end * f64::from(index) / 256.0;
                let found = LinkUse::from_transfers(
                    &fabric,
                    &[Transfer { source, destination, start_s, end_s: end, bytes: 100 }],
                );
                let spans = found.edges_s.windows(2).map(|pair| pair[1] - pair[0]);
                let moved: f64 = spans.zip(&found.mean).map(|(secs, mean)| secs * mean * 4.0 * 100.0).sum();
                assert!((moved / 200.0 - 1.0).abs() < 1e-6, "from {start_s} to {end}: {moved}");
            }
        }
    }

    #[test]
    fn what_relays_pass_on_counts_on_their_links() {
        // Directly 0.1 MB/s, by the third site 1 MB/s: three links are full until the end.
        let rate = |from, to| Rate::from_bytes_per_sec(if (from, to) == (0, 1) { 1e5 } else { 1e6 });
        let rates = (0..3).map(|from| (0..3).map(|to| rate(from, to)).collect()).collect();
        let spec = weir_model::SiteSpec { hosts_per_site: vec![1; 3], host_rate: None, rates };
        let fabric = Fabric::sites(&spec).unwrap();
        let flow = FlowSpec { source: HostId(0), destination: HostId(1), size: Bytes(1_100_000), group: 0 };
        // One that ends in between has the links looked at.
        let short = FlowSpec { source: HostId(2), destination: HostId(0), size: Bytes(500_000), group: 0 };
        let coflows = vec![
            CoflowSpec::new(CoflowId(1), Time::ZERO, vec![flow]),
            CoflowSpec::new(CoflowId(2), Time::ZERO, vec![short]),
        ];
        let mut recorder = LinkRecorder::new(&fabric, &coflows);
        let mut policy = weir_policy::create("sebf-routed").unwrap();
        simulate_observed(&fabric, coflows.clone(), policy.as_mut(), &Options::default(), &mut recorder)
            .unwrap();
        let found = recorder.finish();
        let last = found.full.last().unwrap() * fabric.links().len() as f64;
        assert!((last - 3.0).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn requests_count_on_the_links_of_their_flow() {
        let fabric = Fabric::big_switch(4, Rate::from_bytes_per_sec(1e6)).unwrap();
        let flow = |source, destination, size| FlowSpec {
            source: HostId(source),
            destination: HostId(destination),
            size: Bytes(size),
            group: 0,
        };
        // One flow in many requests keeps two of eight links full; small ones make events in between.
        let small = |id| CoflowSpec::new(CoflowId(id), Time::from_millis(7 * id), vec![flow(2, 3, 1)]);
        let large = CoflowSpec::new(CoflowId(0), Time::ZERO, vec![flow(0, 1, 1_000_000)]);
        let coflows: Vec<CoflowSpec> = (1..100).map(small).chain([large]).collect();
        let window = Some(weir_sim::Window { bytes: Bytes(100_000), blocks: false, expected: false });
        let mut recorder = LinkRecorder::new(&fabric, &coflows);
        let mut policy = weir_policy::create("fair").unwrap();
        let options = Options { window, ..Options::default() };
        simulate_observed(&fabric, coflows.clone(), policy.as_mut(), &options, &mut recorder).unwrap();
        let found = recorder.finish();
        assert!(found.mean.len() > 50);
        assert!(found.mean.iter().all(|mean| (mean - 0.25).abs() < 1e-3), "{:?}", found.mean);
    }

    #[test]
    fn a_simulation_is_sampled_without_losing_bytes() {
        let fabric = Fabric::big_switch(2, Rate::from_bytes_per_sec(1e6)).unwrap();
        let flow = |size| FlowSpec { source: HostId(0), destination: HostId(1), size: Bytes(size), group: 0 };
        let coflows: Vec<CoflowSpec> = (0..1500)
            .map(|id| CoflowSpec::new(CoflowId(id), Time::from_millis(7 * id), vec![flow(5000 + id)]))
            .collect();
        for policy in ["fair", "varys"] {
            let mut recorder = LinkRecorder::new(&fabric, &coflows);
            let mut policy = weir_policy::create(policy).unwrap();
            simulate_observed(&fabric, coflows.clone(), policy.as_mut(), &Options::default(), &mut recorder)
                .unwrap();
            let found = recorder.finish();
            assert!(found.mean.len() <= SAMPLES && found.mean.len() >= SAMPLES / 4);
            let spans = found.edges_s.windows(2).map(|pair| pair[1] - pair[0]);
            let moved: f64 = spans.zip(&found.mean).map(|(secs, mean)| secs * mean * 4.0 * 1e6).sum();
            let sent: u64 = coflows.iter().map(|coflow| coflow.bytes().0).sum();
            assert!(found.edges_s.windows(2).all(|pair| pair[1] - pair[0] < 0.2), "no long gap");
            assert!((moved / (2.0 * sent as f64) - 1.0).abs() < 1e-9, "{moved}");
        }
    }
}
