//! Tables for people.

use crate::{Results, Run, mean};
use crate::{fixed, number, ratio, table, text};

fn title(run: &Run, results: &Results) -> String {
    let mixed = results.runs.iter().any(|other| other.mode != run.mode);
    if mixed { format!("{} {}", run.policy, run.mode) } else { run.policy.clone() }
}

/// One row per run; `avg gain`, `p95 gain` and `JCT gain` are the first run's completion time over
/// this one's.
pub fn summary_table(results: &Results) -> String {
    let Some(first) = results.runs.first() else { return String::new() };
    let deadlines = results.runs.iter().any(|run| run.summary.deadlines_met.is_some());
    let first_jct = first.summary.jobs.map(|jobs| jobs.avg_jct_s);
    let mut header = vec![
        "policy",
        "avg CCT s",
        "p50 s",
        "p95 s",
        "p99 s",
        "slowdown",
        "makespan s",
        "avg gain",
        "p95 gain",
    ];
    if deadlines {
        header.extend(["deadlines met", "admitted", "late"]);
    }
    if first_jct.is_some() {
        header.extend(["avg JCT s", "p95 JCT s", "JCT gain"]);
    }
    header.push("CPU s");
    let mut table = table(&header, 1);
    for run in &results.runs {
        let summary = &run.summary;
        let mut row = vec![
            title(run, results),
            number(summary.avg_cct_s),
            number(summary.p50_cct_s),
            number(summary.p95_cct_s),
            number(summary.p99_cct_s),
            fixed(summary.avg_slowdown, 2, ""),
            number(summary.makespan_s),
            ratio(first.summary.avg_cct_s, summary.avg_cct_s),
            ratio(first.summary.p95_cct_s, summary.p95_cct_s),
        ];
        if deadlines {
            let stated = run.coflows.iter().filter(|row| row.met.is_some()).count();
            let share = |met: usize| {
                format!("{met} of {stated} ({:.1} %)", 100.0 * met as f64 / stated.max(1) as f64)
            };
            row.push(summary.deadlines_met.map_or("-".to_owned(), share));
            row.push(summary.admitted.to_string());
            row.push(summary.admitted_late.map_or("-".to_owned(), |late| late.to_string()));
        }
        if let (Some(first), Some(jobs)) = (first_jct, summary.jobs) {
            row.extend([number(jobs.avg_jct_s), number(jobs.p95_jct_s), ratio(first, jobs.avg_jct_s)]);
        }
        row.push(format!("{:.2}", summary.cpu_s));
        table.add_row(row);
    }
    text(&table)
}

/// Names of the bins of Varys' Table 4.
pub const BINS: [&str; 4] = ["1 short narrow", "2 long narrow", "3 short wide", "4 long wide"];

/// Mean completion time of the coflows of one bin, if it has any.
pub fn bin_average(run: &Run, bin: u8) -> Option<f64> {
    let ccts: Vec<f64> = run.completed().filter(|row| row.bin == bin).map(|row| row.cct_s).collect();
    (!ccts.is_empty()).then(|| mean(&ccts))
}

/// Average completion time per bin, with the gain over the first run.
pub fn bins_table(results: &Results) -> String {
    let Some(first) = results.runs.first() else { return String::new() };
    let count = |bin: u8| first.coflows.iter().filter(|row| row.bin == bin).count();
    let header: Vec<String> = std::iter::once("avg CCT s (gain)".to_owned())
        .chain((1..=4).map(|bin| format!("bin {} ({})", BINS[usize::from(bin) - 1], count(bin))))
        .collect();
    let mut table = table(&header.iter().map(String::as_str).collect::<Vec<_>>(), 1);
    for run in &results.runs {
        let cell = |bin| match (bin_average(first, bin), bin_average(run, bin)) {
            (Some(base), Some(value)) => format!("{} ({})", number(value), ratio(base, value)),
            _ => "-".to_owned(),
        };
        table.add_row(std::iter::once(title(run, results)).chain((1..=4).map(cell)).collect::<Vec<_>>());
    }
    text(&table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CoflowRow, Mode};

    #[test]
    fn nothing_has_no_average_in_tables_and_none_in_json() {
        let mut results = Results::new("t", "1gbit".parse().unwrap(), None);
        results.runs.push(Run::new("fair", Mode::Simulated, Vec::new(), 0.0));
        let text = summary_table(&results);
        let row: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(row, ["fair", "-", "-", "-", "-", "-", "-", "-", "-", "0.00"]);
        let json = serde_json::to_string(&results).unwrap();
        assert!(json.contains(r#""avg_cct_s":null,"p50_cct_s":null,"#), "{json}");
        assert!(json.contains(r#""avg_slowdown":null,"makespan_s":null"#), "{json}");
    }

    #[test]
    fn gains_count_against_the_first_run() {
        let row = |cct_s| CoflowRow {
            id: 1,
            arrival_s: 0.0,
            cct_s,
            isolation_s: 1.0,
            width: 1,
            bytes: 1,
            bin: 2,
            admitted: true,
            deadline_s: None,
            met: None,
        };
        let mut results = Results::new("t", "1gbit".parse().unwrap(), None);
        results.runs.push(Run::new("fair", Mode::Simulated, vec![row(6.0)], 0.0));
        results.runs.push(Run::new("varys", Mode::Simulated, vec![row(2.0)], 0.0));
        let text = summary_table(&results);
        assert!(text.lines().nth(1).unwrap().contains("1.00x"), "{text}");
        assert!(text.lines().nth(2).unwrap().contains("3.00x"), "{text}");
        let text = bins_table(&results);
        assert!(text.contains("bin 2 long narrow (1)") && text.contains("2.000 (3.00x)"), "{text}");
    }
}
