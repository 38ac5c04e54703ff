//! The schema of `weir packet --json`.

use super::{On, Run};
use crate::Provenance;
use weir_packet::{Completion, LARGE, PortCounts, SIZE_CLASSES, Scenario};

/// One line on network and flows.
pub fn setting(scenario: &Scenario) -> String {
    let listed = scenario.flows.len();
    let mut flows = Vec::new();
    if listed > 0 {
        flows.push(format!("{listed} flows"));
    }
    if let Some(traffic) = &scenario.traffic {
        let (flows_drawn, sizes) = (traffic.flows, traffic.sizes.name());
        flows.push(format!("{flows_drawn} flows of {sizes} at load {}", traffic.load));
    }
    format!(
        "{}: {} over {} hosts at {}",
        scenario.name,
        flows.join(" and "),
        scenario.hosts(),
        scenario.host_rate()
    )
}

/// Ports by number, those of which nothing was sent or dropped left out.
fn ports(counts: &[PortCounts]) -> serde_json::Value {
    let used = counts.iter().enumerate().filter(|(_, port)| port.sent + port.dropped > 0);
    let rows = used.map(|(number, port)| {
        serde_json::json!({
            "port": number, "sent": port.sent, "bytes": port.bytes, "marked": port.marked, "dropped": port.dropped,
        })
    });
    serde_json::Value::Array(rows.collect())
}

/// What makes the results, with the seed of the traffic if there is any.
pub(super) fn made_by(scenario: &Scenario) -> Provenance {
    Provenance::of_this_run(scenario.traffic.as_ref().map(|traffic| traffic.seed))
}

/// The schema of `--json`, version 1, field by field in docs/json.md. Times are seconds; a completion time (FCT) counts from arrival to the last byte at
/// the receiver. `flows` of a summary are those without deadlines.
pub fn results(scenario: &Scenario, runs: &[Run]) -> serde_json::Value {
    let completion = |group: &Completion| {
        let known = |value: f64| (group.flows > 0).then_some(value);
        serde_json::json!({
            "flows": group.flows, "avg_fct_s": known(group.average_s), "p95_fct_s": known(group.p95_s),
            "p99_fct_s": known(group.p99_s), "avg_slowdown": known(group.average_slowdown),
        })
    };
    let runs: Vec<_> = runs
        .iter()
        .map(|run| {
            let (summary, counts) = (&run.summary, &run.counts);
            let counted = |value: u64| matches!(run.on, On::Simulator).then_some(value);
            let names = SIZE_CLASSES.map(|(name, _)| name).into_iter().chain([LARGE]);
            let by_size: serde_json::Map<_, _> = names
                .zip(&summary.by_size)
                .map(|(name, group)| (name.to_owned(), completion(group)))
                .collect();
            serde_json::json!({
                "transport": run.transport,
                "summary": {
                    "without_deadline": completion(&summary.others),
                    "by_size": by_size,
                    "with_deadline": completion(&summary.with_deadline),
                    "deadlines_feasible": summary.deadlines.feasible,
                    "deadlines_infeasible": summary.deadlines.infeasible,
                    "deadlines_missed": summary.deadlines.missed,
                    "begun": counts.begun, "finished": counts.finished, "dropped": counted(counts.dropped),
                    "marked": counts.marked, "retransmitted": run.retransmitted, "timeouts": counted(run.timeouts),
                    "packet_hops": counted(counts.hops), "events": counted(counts.events),
                    "most_live_flows": counted(counts.most_flows), "most_live_packets": counted(counts.most_packets),
                    "makespan_s": counts.end.as_secs(), "cpu_s": run.cpu_s,
                },
                "live": match &run.on { On::Simulator => None, On::Bed(machine) => Some(machine) },
                "flows": run.flows,
                "ports": ports(&run.ports),
            })
        })
        .collect();
    let rate = scenario.host_rate().bits_per_sec().round() as u64;
    serde_json::json!({
        "schema": 1, "made_by": made_by(scenario), "scenario": scenario.name, "link_rate_bps": rate, "runs": runs,
    })
}
