//! What is measured of a run, by name.

use crate::jobs::{Classes, JOB_CLASSES};
use crate::measures::{INTERVAL, Measures};
use std::collections::BTreeMap;
use weir_model::{CoflowId, CoflowSpec};
use weir_sim::{CoflowRecord, Outcome, mean, percentile};

/// Adds what Siphon's paper reports besides, the 90th percentiles; and what no policy can beat, if that is known.
pub(crate) fn between_sites(outcome: &Outcome, bound: Option<f64>, measures: &mut Measures) {
    if let Some(bound) = bound {
        measures.insert("bound".to_owned(), bound);
        let average = measures.get("avg").copied().unwrap_or(0.0);
        measures.insert("over bound".to_owned(), average / bound);
    }
    let under_way: f64 = outcome.coflows.iter().map(|record| record.cct.as_secs()).sum();
    measures.insert("active".to_owned(), under_way / outcome.makespan.as_secs().max(1e-9));
    // Bin 0 stands for the coflows of all bins.
    for bin in 0..=4u8 {
        let of_bin = outcome.coflows.iter().filter(|record| bin == 0 || record.bin == bin);
        let mut ccts: Vec<f64> = of_bin.map(|record| record.cct.as_secs()).collect();
        if ccts.is_empty() {
            continue;
        }
        ccts.sort_by(f64::total_cmp);
        let name = if bin == 0 { "p90".to_owned() } else { format!("p90 bin {bin}") };
        measures.insert(name, percentile(&ccts, 0.9));
    }
}

/// Measures of one run on its own.
pub(crate) fn of_run(outcome: &Outcome, coflows: &[CoflowSpec], classes: &Classes) -> Measures {
    let mut measures = Measures::new();
    let completed: Vec<&CoflowRecord> = outcome.coflows.iter().filter(|record| record.admitted).collect();
    // Bin 0 stands for the coflows of all bins.
    for bin in 0..=4u8 {
        let of_bin = completed.iter().filter(|record| bin == 0 || record.bin == bin);
        let mut ccts: Vec<f64> = of_bin.map(|record| record.cct.as_secs()).collect();
        // A bin without coflows has no average: a 0 would look like a completion time, and a 1 like a factor.
        if ccts.is_empty() {
            continue;
        }
        ccts.sort_by(f64::total_cmp);
        let mut note = |name: &str, value: f64| {
            let name = if bin == 0 { name.to_owned() } else { format!("{name} bin {bin}") };
            measures.insert(name, value);
        };
        note("avg", mean(&ccts));
        note("p50", percentile(&ccts, 0.5));
        note("p95", percentile(&ccts, 0.95));
    }
    let slowdown = |record: &&CoflowRecord| record.cct.as_secs() / record.isolation.as_secs().max(1e-9);
    if !completed.is_empty() {
        measures.insert("slowdown".to_owned(), mean(&completed.iter().map(slowdown).collect::<Vec<_>>()));
    }
    measures.insert("makespan".to_owned(), outcome.makespan.as_secs());
    if coflows.iter().any(|coflow| coflow.deadline.is_some()) {
        deadlines(outcome, coflows, &mut measures);
    }
    if !classes.is_empty() {
        jobs(outcome, classes, &mut measures);
    }
    measures
}

/// Completion times of jobs, of all and by class.
fn jobs(outcome: &Outcome, classes: &Classes, measures: &mut Measures) {
    let mut jcts = outcome.jcts_secs();
    jcts.sort_by(f64::total_cmp);
    if !jcts.is_empty() {
        measures.insert("jct".to_owned(), mean(&jcts));
        measures.insert("jct p95".to_owned(), percentile(&jcts, 0.95));
    }
    for (class, (name, _)) in JOB_CLASSES.iter().enumerate() {
        let of_class = outcome.jobs.iter().filter(|job| classes.get(&job.id) == Some(&class));
        let jcts: Vec<f64> = of_class.filter_map(|job| Some(job.jct?.as_secs())).collect();
        if !jcts.is_empty() {
            measures.insert(format!("jct {name}"), mean(&jcts));
        }
    }
}

/// Shares of all coflows by how they stand to their deadlines.
fn deadlines(outcome: &Outcome, coflows: &[CoflowSpec], measures: &mut Measures) {
    let stated = coflows.iter().filter_map(|coflow| Some((coflow.id, coflow.deadline?.as_secs())));
    let stated: BTreeMap<CoflowId, f64> = stated.collect();
    // How much of its deadline each coflow needed.
    let needed = outcome.coflows.iter().filter(|record| record.admitted);
    let needed = needed.filter_map(|record| Some(record.cct.as_secs() / stated.get(&record.id)?));
    let needed: Vec<f64> = needed.collect();
    let share = |wanted: &dyn Fn(f64) -> bool| {
        100.0 * needed.iter().filter(|needed| wanted(**needed)).count() as f64 / stated.len() as f64
    };
    // Ends and deadlines are whole nanoseconds, and at least 0.2 s: their ratio says exactly who is late.
    for (name, value) in [
        ("met", share(&|needed| needed <= 1.0)),
        ("admitted", share(&|_| true)),
        ("late", share(&|needed| needed > 1.0)),
        ("within 50 %", share(&|needed| needed > 1.0 && needed <= 1.5)),
        ("within 100 %", share(&|needed| needed > 1.0 && needed <= 2.0)),
    ] {
        measures.insert(name.to_owned(), value);
    }
}

/// Adds the measures that compare with the baseline's run of the same work.
pub(crate) fn compare(
    measures: &mut Measures,
    baseline: &Measures,
    own: &Outcome,
    base: &Outcome,
    fair: Option<&Outcome>,
) {
    for name in ["avg", "p90", "p95", "makespan"] {
        for bin in 0..=4 {
            let name = if bin == 0 { name.to_owned() } else { format!("{name} bin {bin}") };
            if let (Some(own), Some(base)) = (measures.get(&name), baseline.get(&name)) {
                // A baseline of zero seconds gives no factor.
                let factor = (*base > 0.0).then(|| own / base);
                measures.extend(factor.map(|factor| (format!("factor {name}"), factor)));
            }
        }
    }
    let of_jobs: Vec<String> = baseline.keys().filter(|name| name.starts_with("jct")).cloned().collect();
    for name in of_jobs {
        let factor = measures.get(&name).filter(|_| baseline[&name] > 0.0).map(|own| own / baseline[&name]);
        measures.extend(factor.map(|factor| (format!("factor {name}"), factor)));
    }
    let Some(fair) = fair else { return };
    for (class, share) in JOB_CLASSES {
        let times = |outcome: &Outcome| mean(&job_times(outcome, fair, share));
        measures.insert(format!("job {class}"), times(own) / times(base));
    }
}

/// Adds how far means over seeds are known, of measures that are asked for with ` +-` behind them, if there are several.
pub(crate) fn confidence<'a>(
    means: &mut Measures,
    of_seeds: &[Measures],
    asked: impl Iterator<Item = &'a str>,
) {
    for name in asked {
        let Some(stem) = name.strip_suffix(INTERVAL) else { continue };
        let values: Vec<f64> = of_seeds.iter().filter_map(|measures| measures.get(stem)).copied().collect();
        if let Some(half) = half_width(&values) {
            means.insert(name.to_owned(), half);
        }
    }
}

/// Half of the 95 % confidence interval of the mean of several values (Student's t); none of fewer than two.
pub fn half_width(values: &[f64]) -> Option<f64> {
    // Student's t at 97.5 %, by degrees of freedom from 1; beyond, from the normal distribution's (Abramowitz and Stegun, 26.7.5).
    const T: [f64; 20] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
        2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    ];
    let count = values.len();
    if count < 2 {
        return None;
    }
    let middle = mean(values);
    let squares: f64 = values.iter().map(|value| (value - middle) * (value - middle)).sum();
    // The sample's deviation, with n - 1, as Student's t asks for.
    let deviation = (squares / (count - 1) as f64).sqrt();
    let freedom = (count - 1) as f64;
    let beyond = 1.959_96 + 2.3723 / freedom + 2.8225 / (freedom * freedom);
    let t = T.get(count - 2).copied().unwrap_or(beyond);
    Some(t * deviation / (count as f64).sqrt())
}

/// Adds the measures that need the same coflows' runs under several seeds: how far a coflow's CCT can be foretold. Only
/// coflows that were let in under more than one seed count.
pub(crate) fn spread(measures: &mut Measures, of_seeds: &[&Outcome]) {
    let mut ccts: BTreeMap<CoflowId, Vec<f64>> = BTreeMap::new();
    for record in of_seeds.iter().flat_map(|outcome| &outcome.coflows).filter(|record| record.admitted) {
        ccts.entry(record.id).or_default().push(record.cct.as_secs());
    }
    let mut spreads: Vec<f64> = ccts
        .values()
        .filter(|ccts| ccts.len() > 1)
        .map(|ccts| 100.0 * coefficient_of_variation(ccts))
        .collect();
    if spreads.is_empty() {
        return;
    }
    spreads.sort_by(f64::total_cmp);
    measures.insert("spread".to_owned(), mean(&spreads));
    measures.insert("spread p95".to_owned(), percentile(&spreads, 0.95));
}

/// Standard deviation over mean; 0 where all values are.
fn coefficient_of_variation(values: &[f64]) -> f64 {
    let mean_value = mean(values);
    let squares: Vec<f64> = values.iter().map(|value| (value - mean_value) * (value - mean_value)).collect();
    if mean_value > 0.0 { mean(&squares).sqrt() / mean_value } else { 0.0 }
}

/// Completion times of jobs that compute and then communicate, so that communication is `share` of their time under
/// fair sharing.
fn job_times(outcome: &Outcome, fair: &Outcome, share: f64) -> Vec<f64> {
    let fair: BTreeMap<CoflowId, f64> =
        fair.coflows.iter().map(|record| (record.id, record.cct.as_secs())).collect();
    // By id: where coflows follow on each other, the order of their arrivals is not that of the other run.
    let admitted = outcome.coflows.iter().filter(|own| own.admitted);
    admitted.filter_map(|own| Some(own.cct.as_secs() + fair.get(&own.id)? * (1.0 - share) / share)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::{Bytes, JobId, Span, Time};
    use weir_sim::JobRecord;

    fn record(id: u64, cct_ms: u64, bin: u8) -> CoflowRecord {
        CoflowRecord {
            id: CoflowId(id),
            arrival: Time::ZERO,
            admitted: true,
            cct: Span::from_millis(cct_ms),
            isolation: Span::from_millis(1000),
            width: 1,
            bytes: Bytes(1),
            bin,
        }
    }

    fn outcome(ccts_ms: &[u64]) -> Outcome {
        let records = (1..).zip(ccts_ms).map(|(id, &cct)| record(id, cct, 1 + (id % 2) as u8));
        Outcome { coflows: records.collect(), ..Outcome::default() }
    }

    #[test]
    fn lateness_is_measured_by_the_deadline() {
        // Deadlines of 1 s: in time, late by 40 %, by 90 %, by 200 %.
        let coflows: Vec<CoflowSpec> = (1..=4)
            .map(|id| CoflowSpec {
                deadline: Some(Span::from_millis(1000)),
                ..CoflowSpec::new(CoflowId(id), Time::ZERO, Vec::new())
            })
            .collect();
        let measures = of_run(&outcome(&[1000, 1400, 1900, 3000]), &coflows, &Classes::new());
        let of = |name: &str| measures[name];
        assert_eq!((of("met"), of("late"), of("within 50 %"), of("within 100 %")), (25.0, 75.0, 25.0, 50.0));
        assert_eq!((of("avg"), of("avg bin 2"), of("p50"), of("slowdown")), (1.825, 1.45, 1.65, 1.825));
    }

    #[test]
    fn an_empty_bin_has_neither_a_time_nor_a_factor() {
        // One coflow, of bin 2.
        let run = outcome(&[1000]);
        let mut measures = of_run(&run, &[], &Classes::new());
        let baseline = measures.clone();
        compare(&mut measures, &baseline, &run, &run, None);
        assert_eq!((measures["avg bin 2"], measures["factor avg bin 2"]), (1.0, 1.0));
        assert!(
            ["avg bin 1", "p95 bin 3", "factor avg bin 4"].iter().all(|name| !measures.contains_key(*name))
        );
    }

    #[test]
    fn spread_is_that_of_each_coflow_over_seeds() {
        // 1 and 3 s: mean 2, deviation 1, a half. 2 and 2 s: none. On average a quarter; at rank 0.95 of 0..1 47.5 %.
        let (first, mut second) = (outcome(&[1000, 2000, 5000]), outcome(&[3000, 2000, 9000]));
        // Refused once: it has nothing to compare.
        second.coflows[2].admitted = false;
        let mut measures = Measures::new();
        spread(&mut measures, &[&first, &second]);
        assert_eq!((measures["spread"], measures["spread p95"]), (25.0, 47.5));
        let mut none = Measures::new();
        spread(&mut none, &[&first]);
        assert!(none.is_empty());
    }

    #[test]
    fn the_confidence_of_a_mean_is_students_and_given_where_asked_for() {
        // 1, 2 and 3: deviation 1; 4.303 / sqrt(3).
        let of_seeds = [1.0, 2.0, 3.0].map(|value| Measures::from([("met".to_owned(), value)]));
        let asked = || ["met +-", "avg +-", "met"].into_iter();
        let mut measures = Measures::new();
        confidence(&mut measures, &of_seeds, asked());
        assert!(measures.len() == 1 && (measures["met +-"] - 2.4843).abs() < 1e-4);
        let mut none = Measures::new();
        confidence(&mut none, &of_seeds[..1], asked());
        assert!(none.is_empty());
    }

    #[test]
    fn a_job_gains_what_its_share_of_communication_lets_it() {
        // Under fair sharing 2 s, else 1 s. At a share of 1/8 the job computes for 14 s: 16 over 15.
        let (fair, base) = (outcome(&[2000]), outcome(&[1000]));
        let (mut own, baseline) = (of_run(&fair, &[], &Classes::new()), of_run(&base, &[], &Classes::new()));
        compare(&mut own, &baseline, &fair, &base, Some(&fair));
        assert_eq!((own["factor avg"], own["job <25 %"]), (2.0, 16.0 / 15.0));
    }

    #[test]
    fn students_t_goes_on_beyond_its_table() {
        // As many values of 1 as of -1: the deviation is sqrt(n / (n - 1)).
        let t = |count: usize| {
            let values: Vec<f64> = (0..count).map(|at| if at % 2 == 0 { 1.0 } else { -1.0 }).collect();
            half_width(&values).unwrap() * ((count - 1) as f64).sqrt()
        };
        for (count, expected) in [(22, 2.080), (32, 2.040), (62, 2.000), (1002, 1.962)] {
            assert!((t(count) - expected).abs() < 0.0007, "{count}: {}", t(count));
        }
    }

    #[test]
    fn coflows_of_two_runs_are_paired_by_their_ids() {
        let (own, fair) = (outcome(&[1000, 5000]), outcome(&[2000, 8000]));
        let mut turned = fair.clone();
        turned.coflows.reverse();
        assert_eq!(job_times(&own, &turned, 0.5), job_times(&own, &fair, 0.5));
        assert_eq!(job_times(&own, &fair, 0.5), [3.0, 13.0]);
    }

    #[test]
    fn completion_times_of_jobs_are_averaged_by_class() {
        let job = |id, secs: Option<u64>| JobRecord {
            id: JobId(id),
            arrival: Time::ZERO,
            jct: secs.map(|secs| Span::from_millis(1000 * secs)),
            coflows: 2,
        };
        let classes = Classes::from([(JobId(1), 0), (JobId(2), 0), (JobId(3), 3), (JobId(4), 3)]);
        let of = |jcts: [Option<u64>; 4]| {
            let jobs = (1..).zip(jcts).map(|(id, secs)| job(id, secs)).collect();
            let outcome = Outcome { jobs, ..outcome(&[1000]) };
            (of_run(&outcome, &[], &classes), outcome)
        };
        // One was refused and has no completion time.
        let ((mut own, outcome), (baseline, base)) =
            (of([Some(2), Some(4), Some(9), None]), of([Some(1), Some(3), Some(8), Some(8)]));
        compare(&mut own, &baseline, &outcome, &base, None);
        assert_eq!(
            (own["jct"], own["jct <25 %"], own["jct >=75 %"], own.get("jct 25-49 %")),
            (5.0, 3.0, 9.0, None)
        );
        assert_eq!(
            (own["factor jct"], own["factor jct <25 %"], own.get("factor jct 25-49 %")),
            (1.0, 1.5, None)
        );
    }
}
