//! Tables of runs for the terminal.

use super::{On, Run};
use crate::{number, table, text};
use weir_packet::Completion;

/// What the name of a live run ends in.
pub const LIVE: &str = " live";

/// Milliseconds, or a dash where there were no flows.
pub(super) fn ms(completion: &Completion, value: f64) -> String {
    if completion.flows == 0 { "-".to_owned() } else { number(value * 1e3) }
}

/// Completion times of flows without deadlines by size, and deadlines missed.
pub fn times_table(runs: &[Run]) -> String {
    let deadlines = runs.iter().any(|run| run.summary.with_deadline.flows > 0);
    let mut header = vec![
        "transport",
        "flows",
        "avg ms",
        "p95 ms",
        "p99 ms",
        "slowdown",
        "small avg",
        "small p99",
        "middle avg",
        "large avg",
    ];
    if deadlines {
        header.extend(["deadlines", "infeasible", "missed", "missed %"]);
    }
    let mut table = table(&header, 1);
    for run in runs {
        let summary = &run.summary;
        let [small, middle, large] = &summary.by_size;
        let others = &summary.others;
        let mut row = vec![
            run.transport.clone(),
            others.flows.to_string(),
            ms(others, others.average_s),
            ms(others, others.p95_s),
            ms(others, others.p99_s),
            if others.flows == 0 { "-".to_owned() } else { format!("{:.2}", others.average_slowdown) },
            ms(small, small.average_s),
            ms(small, small.p99_s),
            ms(middle, middle.average_s),
            ms(large, large.average_s),
        ];
        if deadlines {
            let deadlines = &summary.deadlines;
            row.push((deadlines.feasible + deadlines.infeasible).to_string());
            row.push(deadlines.infeasible.to_string());
            row.push(deadlines.missed.to_string());
            row.push(format!("{:.2}", deadlines.miss_rate() * 100.0));
        }
        table.add_row(row);
    }
    text(&table)
}

/// What simulated runs did and took.
pub fn work_table(runs: &[Run]) -> String {
    let header = [
        "transport",
        "complete",
        "retransmitted",
        "timeouts",
        "dropped",
        "marked",
        "packet-hops",
        "events",
        "flows at once",
        "packets at once",
        "CPU s",
        "M hops/CPU s",
        "M events/CPU s",
    ];
    let mut table = table(&header, 1);
    for run in runs.iter().filter(|run| matches!(run.on, On::Simulator)) {
        let counts = &run.counts;
        let per_s = |value: u64| format!("{:.2}", value as f64 / run.cpu_s / 1e6);
        table.add_row([
            run.transport.clone(),
            format!("{}/{}", counts.finished, counts.begun),
            run.retransmitted.to_string(),
            run.timeouts.to_string(),
            counts.dropped.to_string(),
            counts.marked.to_string(),
            counts.hops.to_string(),
            counts.events.to_string(),
            counts.most_flows.to_string(),
            counts.most_packets.to_string(),
            format!("{:.2}", run.cpu_s),
            per_s(counts.hops),
            per_s(counts.events),
        ]);
    }
    text(&table)
}

/// What live runs did, and what they took of the machine.
pub fn live_table(runs: &[Run]) -> Option<String> {
    let header = [
        "transport",
        "complete",
        "segments sent again",
        "pieces marked",
        "begun late, avg ms",
        "at most ms",
        "processors busy %",
    ];
    let mut rows = table(&header, 1);
    let live = runs.iter().filter_map(|run| match run.on {
        On::Bed(machine) => Some((run, machine)),
        On::Simulator => None,
    });
    for (run, machine) in live {
        rows.add_row([
            run.transport.clone(),
            format!("{}/{}", run.counts.finished, run.counts.begun),
            run.retransmitted.to_string(),
            run.counts.marked.to_string(),
            number(machine.begun_late_avg_s * 1e3),
            number(machine.begun_late_max_s * 1e3),
            format!("{:.0}", machine.processors_busy * 100.0),
        ]);
    }
    runs.iter().any(|run| matches!(run.on, On::Bed(_))).then(|| text(&rows))
}

/// Average completion times of live runs over those of the same transport simulated, by size.
pub fn ratio_table(runs: &[Run]) -> Option<String> {
    let mut rows =
        table(&["live over simulated, averages", "all", "small", "middle", "large", "deadlines"], 1);
    let mut any = false;
    for run in runs {
        let Some(name) = run.transport.strip_suffix(LIVE) else { continue };
        // The first of those simulated, whatever its settings.
        let bare = |run: &&Run| run.transport.split(':').next() == Some(name);
        let Some(twin) = runs.iter().find(bare) else { continue };
        let groups = |run: &Run| {
            let [small, middle, large] = run.summary.by_size;
            [run.summary.others, small, middle, large, run.summary.with_deadline]
        };
        let ratios = groups(run).into_iter().zip(groups(twin)).map(|(live, simulated)| {
            if live.flows == 0 || simulated.flows == 0 {
                return "-".to_owned();
            }
            format!("{:.2}", live.average_s / simulated.average_s)
        });
        rows.add_row(std::iter::once(twin.transport.clone()).chain(ratios));
        any = true;
    }
    any.then(|| text(&rows))
}
