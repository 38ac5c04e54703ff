//! What measured and simulated runs come to, side by side.

use crate::{Pair, Work};
use weir_model::CoflowId;
use weir_results::{CoflowRow, Run, fixed, mean, number, percentile, table, text};

/// Simulated completion times below this are compared by difference, others by ratio.
const SHORT_S: f64 = 0.1;
/// Coflows of fewer bytes are small: for them the coordinator's round trip counts, and queues behind large ones.
const SMALL_BYTES: u64 = 1_000_000;

/// What became of the deadlines of a run, if it had any.
fn deadlines(run: &Run) -> Option<String> {
    let (met, late) = (run.summary.deadlines_met?, run.summary.admitted_late?);
    let admitted = met + late;
    let stated = run.coflows.iter().filter(|row| row.met.is_some()).count();
    let percent = |of: usize| 100.0 * met as f64 / of.max(1) as f64;
    Some(format!(
        "deadlines {}: {admitted} of {stated} let in; met by {met}, {:.1} % of those and {:.1} % of all",
        run.mode,
        percent(admitted),
        percent(stated)
    ))
}

/// Completion times of jobs, where they are more than bare coflows.
fn jobs(pair: &Pair) -> Option<String> {
    let (live, simulated) = (pair.live.summary.jobs?, pair.simulated.summary.jobs?);
    let (measured, exact) = (live.avg_jct_s, simulated.avg_jct_s);
    let ratio = measured / exact;
    let ([measured, exact], ratio) = ([measured, exact].map(seconds_of), fixed(ratio, 3, "x"));
    Some(format!("{} jobs: average JCT {measured} s live, {exact} s simulated, {ratio}", live.jobs))
}

/// What else there is to say of a pair, a line each: expected beside measured completion times of a scenario, what became of
/// deadlines, and jobs.
pub fn notes(work: &Work, pair: &Pair) -> Vec<String> {
    let of_deadlines = [&pair.live, &pair.simulated].into_iter().filter_map(deadlines);
    expected(work, pair).into_iter().chain(of_deadlines).chain(jobs(pair)).collect()
}

fn expected(work: &Work, pair: &Pair) -> Vec<String> {
    let Some(expected) = work.expect.get(pair.twin()) else { return Vec::new() };
    let line = |row: &CoflowRow| {
        let seconds = expected.get(&CoflowId(row.id))?;
        Some(format!(
            "coflow {}: expected {} s, live {} s ({})",
            row.id,
            seconds_of(*seconds),
            seconds_of(row.cct_s),
            fixed(row.cct_s / seconds, 3, "x")
        ))
    };
    pair.live.coflows.iter().filter_map(line).collect()
}

/// Ratios of simulated completion times that are not short, and differences (ms) of those that are.
fn deviations(pair: &Pair) -> (Vec<f64>, Vec<f64>) {
    let (mut ratios, mut extra_ms) = (Vec::new(), Vec::new());
    let simulated: std::collections::BTreeMap<u64, f64> =
        pair.simulated.completed().map(|row| (row.id, row.cct_s)).collect();
    for row in pair.live.completed() {
        let Some(&expected) = simulated.get(&row.id) else { continue };
        if expected > SHORT_S {
            ratios.push(row.cct_s / expected);
        } else {
            extra_ms.push((row.cct_s - expected) * 1e3);
        }
    }
    ratios.sort_by(f64::total_cmp);
    extra_ms.sort_by(f64::total_cmp);
    (ratios, extra_ms)
}

/// One line on a pair: averages, and processor time.
pub fn line(label: &str, pair: &Pair) -> String {
    let (live, simulated) = (pair.live.summary.avg_cct_s, pair.simulated.summary.avg_cct_s);
    format!(
        "{label}: average CCT {} live, {} simulated ({}), {}",
        seconds_of(live) + " s",
        seconds_of(simulated) + " s",
        pair.simulated.policy,
        fixed(live / simulated, 3, "x")
    ) + &format!(
        "; CPU s: coordinator {:.1}, agents {:.1}, tasks {:.1}",
        pair.cpu_secs[0], pair.cpu_secs[1], pair.cpu_secs[2]
    )
}

/// Tables over all pairs: a row for each policy, the first of which is what others are compared with.
pub fn tables(policies: &[String], pairs: &[Pair]) -> String {
    let mut rows = Vec::new();
    let mut baseline: Option<(f64, f64)> = None;
    for policy in policies {
        let of = |value: fn(&Pair) -> f64| -> Vec<f64> {
            pairs.iter().filter(|pair| pair.policy == *policy).map(value).collect()
        };
        let live = of(|pair| pair.live.summary.avg_cct_s);
        let simulated = of(|pair| pair.simulated.summary.avg_cct_s)[0];
        let average = mean(&live);
        let (base_live, base_simulated) = *baseline.get_or_insert((average, simulated));
        let p95 = mean(&of(|pair| pair.live.summary.p95_cct_s));
        let (mut ratios, mut extra) = (Vec::new(), Vec::new());
        for pair in pairs.iter().filter(|pair| pair.policy == *policy) {
            let (more_ratios, more_extra) = deviations(pair);
            ratios.extend(more_ratios);
            extra.extend(more_extra);
        }
        ratios.sort_by(f64::total_cmp);
        extra.sort_by(f64::total_cmp);
        rows.push(vec![
            policy.clone(),
            interval(&live),
            seconds_of(simulated),
            fixed(average / simulated, 3, ""),
            seconds_of(p95),
            fixed(base_live / average, 2, "x"),
            fixed(base_simulated / simulated, 2, "x"),
            two_percentiles(&ratios, 2),
            two_percentiles(&extra, 1),
        ]);
    }
    let header = [
        "policy",
        "live avg CCT s",
        "simulated s",
        "live/sim",
        "live p95 s",
        "live gain",
        "sim gain",
        "per coflow > 0.1 s: p50 / p95",
        "below: extra ms p50 / p95",
    ];
    let mut shown = table(&header, 1);
    for row in rows {
        shown.add_row(row);
    }
    let mut parts = vec![text(&shown)];
    if let Some(first) = policies.first() {
        parts.push(format!("gain: average CCT of {first} / average CCT of the policy"));
    }
    parts.extend(small_table(policies, pairs).map(|table| format!("\n{table}")));
    parts.extend(latencies(pairs));
    parts.join("\n")
}

/// Completion times in milliseconds of coflows of less than a megabyte, if there are both these and larger ones: an average over all of
/// them says little of those.
fn small_table(policies: &[String], pairs: &[Pair]) -> Option<String> {
    let first = pairs.first()?;
    let small = first.simulated.coflows.iter().filter(|row| is_small(row)).count();
    if small == 0 || small == first.simulated.coflows.len() {
        return None;
    }
    let title = format!("{small} coflows of less than 1 MB");
    let mut shown =
        table(&[&title, "live avg CCT ms", "live p95 ms", "simulated ms", "live gain", "sim gain"], 1);
    let mut baseline: Option<(f64, f64)> = None;
    for policy in policies {
        let (mut means, mut all, mut simulated) = (Vec::new(), Vec::new(), f64::NAN);
        for pair in pairs.iter().filter(|pair| pair.policy == *policy) {
            let live = small_ccts_ms(&pair.live);
            means.push(mean(&live));
            all.extend(live);
            simulated = mean(&small_ccts_ms(&pair.simulated));
        }
        all.sort_by(f64::total_cmp);
        let average = mean(&means);
        let (base_live, base_simulated) = *baseline.get_or_insert((average, simulated));
        shown.add_row([
            policy.clone(),
            interval(&means),
            number(percentile(&all, 0.95)),
            number(simulated),
            fixed(base_live / average, 2, "x"),
            fixed(base_simulated / simulated, 2, "x"),
        ]);
    }
    Some(text(&shown))
}

fn is_small(row: &CoflowRow) -> bool {
    row.bytes < SMALL_BYTES
}

fn small_ccts_ms(run: &Run) -> Vec<f64> {
    run.completed().filter(|row| is_small(row)).map(|row| row.cct_s * 1e3).collect()
}

/// Seconds to the millisecond, and of less than a tenth of a second four digits; `-` of nothing.
fn seconds_of(value: f64) -> String {
    if value.abs() < SHORT_S { number(value) } else { fixed(value, 3, "") }
}

/// Median and 95th percentile; `-` of nothing.
fn two_percentiles(sorted: &[f64], digits: usize) -> String {
    if sorted.is_empty() {
        return "-".to_owned();
    }
    format!("{:.digits$} / {:.digits$}", percentile(sorted, 0.5), percentile(sorted, 0.95))
}

/// Mean, with the 95 % confidence interval of several runs (Student's t).
fn interval(values: &[f64]) -> String {
    let average = mean(values);
    match weir_experiment::half_width(values) {
        Some(half) => format!("{average:.3} ± {half:.3}"),
        None => seconds_of(average),
    }
}

fn latencies(pairs: &[Pair]) -> Vec<String> {
    let all = |of: fn(&Pair) -> &Vec<u32>| -> Vec<f64> {
        let mut values: Vec<f64> =
            pairs.iter().flat_map(|pair| of(pair).iter().map(|&us| f64::from(us) / 1e3)).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let measured = [
        ("a coflow's last get to its first paced byte", all(|pair| &pair.first_byte_us)),
        ("completion to next plan in force", all(|pair| &pair.replan_us)),
    ];
    let line = |(what, values): (&str, Vec<f64>)| {
        let [median, p95] = [0.5, 0.95].map(|share| percentile(&values, share));
        format!("{what}: {median:.2} ms median, {p95:.2} ms p95 ({} samples)", values.len())
    };
    measured.into_iter().filter(|(_, values)| !values.is_empty()).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_results::Mode;
    use weir_results::report::LinkUse;

    fn pair(policy: &str, small_s: f64, bytes: [u64; 2]) -> Pair {
        let row = |(id, bytes, cct_s)| CoflowRow {
            id,
            arrival_s: 0.0,
            cct_s,
            isolation_s: 0.001,
            width: 1,
            bytes,
            bin: 1,
            admitted: true,
            deadline_s: None,
            met: None,
        };
        let rows = |small_s| [(1, bytes[0], small_s), (2, bytes[1], 9.0)].map(row).to_vec();
        Pair {
            policy: policy.to_owned(),
            live: Run::new(policy, Mode::Live, rows(small_s), 0.0),
            simulated: Run::new(policy, Mode::Simulated, rows(small_s / 2.0), 0.0),
            cpu_secs: [0.0; 3],
            first_byte_us: Vec::new(),
            replan_us: Vec::new(),
            link_use: LinkUse::default(),
        }
    }

    #[test]
    fn small_coflows_have_averages_of_their_own_where_there_are_larger_ones() {
        let policies = ["tcp", "varys"].map(str::to_owned);
        let pairs = [("tcp", 0.02), ("varys", 0.005)];
        let of = |bytes| small_table(&policies, &pairs.map(|(policy, secs)| pair(policy, secs, bytes)));
        let shown = of([999_999, 1_000_000]).expect("a table");
        let row: Vec<&str> = shown.lines().nth(2).expect("two rows").split_whitespace().collect();
        assert_eq!(row, ["varys", "5.000", "5.000", "2.500", "4.00x", "4.00x"]);
        assert!(shown.starts_with(" 1 coflows of less than 1 MB"), "{shown}");
        assert_eq!((of([1_000_000, 1_000_000]), of([1, 1])), (None, None));
    }

    #[test]
    fn short_times_keep_their_digits() {
        assert_eq!(
            [1.23456, 0.0123456, 2e-6, f64::NAN].map(seconds_of),
            ["1.235", "0.01235", "2.000e-6", "-"]
        );
    }
}
