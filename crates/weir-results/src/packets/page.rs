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

/// What flows received, interval by interval.
#[derive(Clone, Debug, Default)]
pub struct Received {
    /// Length of an interval.
    pub every: Picos,
    /// By the flow's number.
    pub by_flow: BTreeMap<u64, Vec<u64>>,
}

impl Observer for Received {
    fn delivered(&mut self, flow: u64, bytes: u32, now: Picos) {
        let bins = self.by_flow.entry(flow).or_default();
        let bin = (now.0 / self.every.0) as usize;
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
pub fn page(scenario: &Scenario, runs: &[Run], every: Picos) -> PacketReport {
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
            rates: rates(scenario, run, every),
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

fn rates(scenario: &Scenario, run: &Run, every: Picos) -> Vec<FlowRate> {
    let secs = every.as_secs();
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
    fn a_flow_is_drawn_from_its_beginning_on() {
        // It begins after 2.5 intervals of 1 ms, and gets 1250 bytes (10 kbit) in the fourth.
        assert_eq!(points(2.5, 1e-3, &[0, 0, 0, 1250]), [(2.5, 0.0), (3.0, 0.0), (4.0, 10.0)]);
        assert_eq!(points(0.0, 1e-3, &[125]), [(0.0, 0.0), (1.0, 1.0)]);
    }
}
