//! `weir packet --report`: from runs to what the page shows.

use super::json::made_by;
use super::tables::ms;
use super::{Run, setting};
use crate::report::{FlowRate, PacketReport, PacketRun};
use std::collections::BTreeMap;
use weir_packet::scenario::ENDLESS;
use weir_packet::{Completion, Observer, Picos, Scenario};
use weir_trace::FlowKind;

/// Flows that a chart can have a line each for.
const MOST_LINES: usize = 12;

/// Intervals of one flow, at most: more than a page has pixels, and no more memory for a run that is longer than was thought.
const MOST_INTERVALS: usize = 1 << 16;

/// What flows received, interval by interval.
#[derive(Clone, Debug, Default)]
pub struct Received {
    /// Length of an interval; none where nothing is observed.
    every: Picos,
    /// Bytes by the flow's number.
    by_flow: BTreeMap<u64, Vec<u64>>,
}

impl Received {
    /// Nothing yet. Intervals are of this length, a picosecond at least; twice as long, and again, once there are 65,536 of them.
    pub fn new(every: Picos) -> Received {
        Received { every: every.max(Picos(1)), by_flow: BTreeMap::new() }
    }

    /// Has intervals twice as long.
    fn coarsen(&mut self) {
        self.every = Picos(self.every.0.saturating_mul(2));
        for bins in self.by_flow.values_mut() {
            *bins = bins.chunks(2).map(|pair| pair.iter().sum()).collect();
        }
    }
}

impl Observer for Received {
    fn delivered(&mut self, flow: u64, bytes: u32, now: Picos) {
        // `Default`, which observes nothing, has intervals of no length: hence the 1.
        while now.0 / self.every.0.max(1) >= MOST_INTERVALS as u64 {
            self.coarsen();
        }
        let bin = (now.0 / self.every.0.max(1)) as usize;
        let bins = self.by_flow.entry(flow).or_default();
        if bins.len() <= bin {
            bins.resize(bin + 1, 0);
        }
        bins[bin] += u64::from(bytes);
    }
}

/// Whether each flow can have a line of its own.
pub fn has_few(scenario: &Scenario) -> bool {
    scenario.traffic.is_none() && scenario.flows.len() <= MOST_LINES
}

/// What the report shows.
pub fn page(scenario: &Scenario, runs: &[Run]) -> PacketReport {
    let of = |run: &Run| {
        let summary = &run.summary;
        let (others, deadlines) = (&summary.others, &summary.deadlines);
        let mut cells = vec![("flows", others.flows.to_string())];
        cells.push(("average ms", ms(others, others.average_s)));
        cells.push(("95th perc. ms", ms(others, others.p95_s)));
        cells.push(("99th perc. ms", ms(others, others.p99_s)));
        cells.push(("small, 99th ms", ms(&summary.by_size[0], summary.by_size[0].p99_s)));
        cells.push(("deadlines", (deadlines.feasible + deadlines.infeasible).to_string()));
        cells.push(("infeasible", deadlines.infeasible.to_string()));
        cells.push(("missed", deadlines.missed.to_string()));
        let named = ["small", "middle", "large"].into_iter().zip(&summary.by_size).chain([("all", others)]);
        let average = |group: &Completion| (group.flows > 0).then_some(group.average_s * 1e3);
        PacketRun {
            name: run.transport.clone(),
            cells,
            completions_ms: run
                .flows
                .iter()
                .filter(|flow| flow.deadline_s.is_none())
                .map(|flow| flow.fct_s * 1e3)
                .collect(),
            deadlines: {
                let missed = deadlines.missed.min(deadlines.feasible);
                [deadlines.feasible - missed, missed, deadlines.infeasible].map(|count| count as usize)
            },
            used: run
                .flows
                .iter()
                .filter_map(|flow| Some(flow.fct_s / flow.deadline_s.filter(|deadline| *deadline > 0.0)?))
                .collect(),
            averages_ms: named.map(|(name, group)| (name, average(group))).collect(),
            rates: rates(scenario, run),
        }
    };
    PacketReport {
        title: scenario.name.clone(),
        setting: format!("{}. {}", setting(scenario), scenario.about.trim()),
        made_by: made_by(scenario),
        runs: runs.iter().map(of).collect(),
    }
}

/// What a flow received in the intervals since its beginning, in Mbit/s at their ends in milliseconds. There is nothing
/// before: a flow that has not begun does not stand still.
fn points(begins_ms: f64, every_s: f64, bins: &[u64]) -> Vec<(f64, f64)> {
    let intervals = (1..).zip(bins).map(|(end, bytes)| {
        let ends_ms = f64::from(end) * every_s * 1e3;
        (ends_ms, *bytes as f64 * 8e-6 / every_s)
    });
    std::iter::once((begins_ms, 0.0)).chain(intervals.filter(|(ends_ms, _)| *ends_ms > begins_ms)).collect()
}

fn rates(scenario: &Scenario, run: &Run) -> Vec<FlowRate> {
    let secs = run.received.every.as_secs();
    let of = |(flow, bins): (&u64, &Vec<u64>)| {
        let arrival = scenario.flows.get(*flow as usize);
        let deadline_ms = arrival.and_then(|flow| match flow.kind {
            FlowKind::Deadline { within } => Some((flow.arrival.as_secs() + within.as_secs()) * 1e3),
            FlowKind::Known | FlowKind::Unknown | FlowKind::Planned(_) => None,
        });
        let ends = arrival.map_or_else(String::new, |flow| {
            let endless = if flow.size == ENDLESS { ", endless" } else { "" };
            format!(": {} to {}{endless}", flow.source.0, flow.destination.0)
        });
        let begins_ms = arrival.map_or(0.0, |flow| flow.arrival.as_secs() * 1e3);
        // Numbered as in JSON and tables.
        FlowRate { name: format!("flow {flow}{ends}"), deadline_ms, points: points(begins_ms, secs, bins) }
    };
    run.received.by_flow.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_grow_where_a_run_is_longer_than_they_were_made_for_and_bytes_stay() {
        let mut received = Received::new(Picos(0));
        for at in [0, 1, 65_535, 65_536, 1 << 40] {
            received.delivered(3, 10, Picos(at));
        }
        received.delivered(4, 7, Picos(1 << 40));
        // 2^40 is the first of what then is half of all intervals.
        assert_eq!(received.every, Picos(1 << 25));
        let bins = &received.by_flow[&3];
        assert_eq!((bins.len(), bins[0], bins[1 << 15]), ((1 << 15) + 1, 40, 10));
        assert_eq!(received.by_flow[&4].iter().sum::<u64>(), 7);
    }

    #[test]
    fn a_flow_is_drawn_from_its_beginning_on() {
        // It begins after 2.5 intervals of 1 ms, and gets 1250 bytes (10 kbit) in the fourth.
        assert_eq!(points(2.5, 1e-3, &[0, 0, 0, 1250]), [(2.5, 0.0), (3.0, 0.0), (4.0, 10.0)]);
        assert_eq!(points(0.0, 1e-3, &[125]), [(0.0, 0.0), (1.0, 1.0)]);
    }
}
