//! Runs an experiment.

use crate::characteristics::of_workload;
use crate::measure::{between_sites, compare, confidence, of_run, spread};
use crate::sites::{LinkUse, Traffic, add_links, least_average_secs};
use crate::spec::WORKLOAD;
use crate::workload::{Work, prepare};
use crate::{Experiment, Measures, Point, PointResult, PolicyResult, Results, Source};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use weir_model::Time;
use weir_sim::{Observer, Options, Outcome, Replan};

/// Why an experiment cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// Several seeds, and no run would differ from another.
    #[error(
        "point {point}: seeds {seeds:?} change nothing: {reason}. Leave out `seeds`, or draw something by them \
         (concurrent, mix, jitter, skew, deadlines, jobs or sites in the setup, or a synthetic workload)"
    )]
    Seeds {
        /// Name of the point at fault.
        point: String,
        /// Seeds of the experiment, several.
        seeds: Vec<u64>,
        /// Why the seeds change nothing.
        reason: &'static str,
    },
    /// The workload cannot be changed as a point asks.
    #[error("point {point}: {reason}")]
    Work {
        /// Name of the point at fault.
        point: String,
        /// Why its workload cannot be changed so.
        reason: String,
    },
    /// A run did not come to its end.
    #[error("point {point}, {policy}: {reason}")]
    Run {
        /// Name of the point that was run.
        point: String,
        /// Name of the policy that was run.
        policy: String,
        /// Why the run did not end.
        reason: String,
    },
}

/// One simulation: which point, seed and policy.
type Task = (usize, u64, usize);
pub(crate) type Simulated = Result<Done, RunError>;

/// A simulation that came to its end.
#[derive(Clone)]
pub(crate) struct Done {
    outcome: Outcome,
    pub(crate) measures: Measures,
    links: Vec<LinkUse>,
}

/// Runs all points, on all processors. `progress` hears of every simulation that is done.
///
/// # Errors
/// The workload is the same under several seeds, it cannot be changed as a point asks, or a simulation fails. Of
/// several failures the first is returned, in the order of points, seeds and policies.
pub fn run(
    experiment: &Experiment,
    workload: &Source,
    progress: &(dyn Fn() + Sync),
) -> Result<Results, RunError> {
    check_seeds(experiment, workload)?;
    if experiment.is_of_workload() {
        return measure_workload(experiment, workload, progress);
    }
    let points = &experiment.point;
    let tasks: Vec<Task> = (0..points.len())
        .flat_map(|point| experiment.seeds.iter().map(move |&seed| (point, seed)))
        .flat_map(|(point, seed)| {
            (0..experiment.policies_of(&points[point]).len()).map(move |at| (point, seed, at))
        })
        .collect();
    let next = AtomicUsize::new(0);
    let outcomes: Mutex<Vec<Option<Simulated>>> = Mutex::new(vec![None; tasks.len()]);
    let work = |&(point, seed, at): &Task| {
        let point = &points[point];
        let setup = point.setup.over(&experiment.setup);
        let work = work_of(experiment, workload, point, seed)?;
        let options = Options {
            replan: if setup.plan_at_coflows == Some(true) {
                Replan::CoflowEvents
            } else {
                Replan::default()
            },
            arrival_scale: setup.arrival_scale.unwrap_or(1.0),
            ..Options::default()
        };
        simulate(point, &experiment.policies_of(point)[at], work, &options, experiment.links)
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                // Each thread takes the next task that is open: simulations differ in length, so
                // that fixed shares would leave processors idle.
                while let Some((at, task)) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, tasks.get(at)?)))
                {
                    let result = work(task);
                    if let Ok(mut outcomes) = outcomes.lock() {
                        outcomes[at] = Some(result);
                    }
                    progress();
                }
            });
        }
    });
    let outcomes = outcomes.into_inner().unwrap_or_default();
    let mut done = Vec::with_capacity(tasks.len());
    for (task, outcome) in tasks.iter().zip(outcomes) {
        let lost = || RunError::Run {
            point: points[task.0].name.clone(),
            policy: experiment.policies_of(&points[task.0])[task.2].clone(),
            reason: "it gave no result".to_owned(),
        };
        done.push((*task, outcome.unwrap_or_else(|| Err(lost()))?));
    }
    Ok(collect(experiment, workload, done))
}

/// The work of a point under a seed.
pub(crate) fn work_of(
    experiment: &Experiment,
    workload: &Source,
    point: &Point,
    seed: u64,
) -> Result<Work, RunError> {
    let setup = point.setup.over(&experiment.setup);
    // Where arrivals are jittered, completion times of the same coflows are compared over seeds: other coflows under
    // every seed would have nothing in common but their ids.
    let drawn_by = if setup.jitter.is_some() { experiment.seeds[0] } else { seed };
    let failed = |reason| RunError::Work { point: point.name.clone(), reason };
    let coflows = workload.coflows(drawn_by).map_err(failed)?;
    prepare(&coflows, workload.hosts(), &setup, seed).map_err(failed)
}

/// Of several seeds, the second has to give other work than the first: else means over them are those of one run.
fn check_seeds(experiment: &Experiment, workload: &Source) -> Result<(), RunError> {
    let [first, second, ..] = experiment.seeds.as_slice() else { return Ok(()) };
    for point in &experiment.point {
        // Jobs are always drawn by the seed, and making them takes a simulation: they are not compared here.
        if point.setup.over(&experiment.setup).jobs.is_some() {
            continue;
        }
        let [one, other] = [first, second].map(|&seed| work_of(experiment, workload, point, seed));
        let (one, other) = (one?, other?);
        if (one.coflows, one.changes, one.fabric) == (other.coflows, other.changes, other.fabric) {
            let reason = "the workload is the same under each of them";
            let (point, seeds) = (point.name.clone(), experiment.seeds.clone());
            return Err(RunError::Seeds { point, seeds, reason });
        }
    }
    Ok(())
}

/// Measures the work of every point instead of running it.
fn measure_workload(
    experiment: &Experiment,
    workload: &Source,
    progress: &(dyn Fn() + Sync),
) -> Result<Results, RunError> {
    let mut points = Vec::with_capacity(experiment.point.len());
    for point in &experiment.point {
        let mut measured = Vec::with_capacity(experiment.seeds.len());
        for &seed in &experiment.seeds {
            let work = work_of(experiment, workload, point, seed)?;
            measured.push(of_workload(&work.coflows, workload.hosts()));
            progress();
        }
        let mut sums = means(&measured);
        sums.values_mut().for_each(|value| *value = six_digits(*value));
        let policies = vec![PolicyResult {
            policy: WORKLOAD.to_owned(),
            measures: sums,
            by_seed: by_seed(experiment, &measured),
            links: Vec::new(),
        }];
        points.push(PointResult::of(experiment, point, policies));
    }
    Ok(Results::of(experiment, workload.name(), points))
}

/// Means of every measure over the seeds that have it: a bin may be empty under one of them.
fn means(of_seeds: &[Measures]) -> Measures {
    let seeds_with = |name: &String| of_seeds.iter().filter(|measures| measures.contains_key(name)).count();
    let mut means = Measures::new();
    for (name, value) in of_seeds.iter().flatten() {
        *means.entry(name.clone()).or_default() += value / seeds_with(name) as f64;
    }
    means
}

pub(crate) fn simulate(
    point: &Point,
    policy: &str,
    work: Work,
    options: &Options,
    count_links: bool,
) -> Simulated {
    let failed =
        |reason: String| RunError::Run { point: point.name.clone(), policy: policy.to_owned(), reason };
    let mut instance = weir_policy::create(policy).map_err(|error| failed(error.to_string()))?;
    let Work { fabric, coflows, changes, bins, reads, regions, classes } = work;
    // The bound is that of coflows that arrive as given: with scaled arrivals other coflows would be simulated.
    let as_given = options.arrival_scale == 1.0;
    let bound = least_average_secs(&fabric, &changes, &coflows).filter(|_| as_given);
    let mut traffic = Traffic::of(&fabric, &coflows);
    let observer: &mut dyn Observer = if reads { &mut traffic } else { &mut () };
    let (policy, given) = (instance.as_mut(), coflows.clone());
    let outcome = weir_sim::simulate_changing(&fabric, changes, given, policy, options, observer);
    let mut outcome = outcome.map_err(|error| failed(error.to_string()))?;
    for record in &mut outcome.coflows {
        record.bin = bins.get(&record.id).copied().unwrap_or(record.bin);
    }
    let mut measures = of_run(&outcome, &coflows, &classes);
    if !bins.is_empty() {
        between_sites(&outcome, bound, &mut measures);
    }
    let mut links = Vec::new();
    if reads && count_links {
        links = traffic.note_links(&regions, outcome.makespan - Time::ZERO, &mut measures);
    }
    if reads {
        traffic.note(&mut measures);
    }
    Ok(Done { outcome, measures, links })
}

/// Compares with the baseline of the same point and seed, and takes means over seeds.
fn collect(experiment: &Experiment, workload: &Source, done: Vec<(Task, Done)>) -> Results {
    let find = |point: usize, seed: u64, name: &str| {
        let at = experiment.policies_of(&experiment.point[point]).iter().position(|policy| policy == name)?;
        done.iter().find(|(task, _)| *task == (point, seed, at)).map(|(_, done)| done)
    };
    let points = experiment.point.iter().enumerate().map(|(index, point)| {
        let policies = experiment.policies_of(point).iter().map(|policy| {
            let (mut measured, mut links) = (Vec::new(), Vec::new());
            let mut of_seeds = Vec::with_capacity(experiment.seeds.len());
            for &seed in &experiment.seeds {
                let Some(own) = find(index, seed, policy) else { continue };
                let base = experiment.baseline.as_ref().and_then(|name| find(index, seed, name));
                let Some(base) = base else { continue };
                let fair = find(index, seed, "fair").map(|fair| &fair.outcome);
                of_seeds.push(&own.outcome);
                let mut measures = own.measures.clone();
                compare(&mut measures, &base.measures, &own.outcome, &base.outcome, fair);
                add_links(&mut links, &own.links, experiment.seeds.len());
                measured.push(measures);
            }
            let by_seed = by_seed(experiment, &measured);
            let mut sums = means(&measured);
            let of_sites = point.setup.over(&experiment.setup).sites.is_some().then_some("factor avg +-");
            confidence(&mut sums, &measured, experiment.show.iter().map(String::as_str).chain(of_sites));
            // Without jitter seeds draw other coflows, or give an id to another one.
            if point.setup.over(&experiment.setup).jitter.is_some() {
                spread(&mut sums, &of_seeds);
            }
            sums.values_mut().for_each(|value| *value = six_digits(*value));
            for link in &mut links {
                (link.gb, link.used) = (six_digits(link.gb), six_digits(link.used));
            }
            PolicyResult { policy: policy.clone(), measures: sums, by_seed, links }
        });
        PointResult::of(experiment, point, policies.collect())
    });
    Results::of(experiment, workload.name(), points.collect())
}

/// What an experiment shows of a row, seed by seed, where there are several and each has it.
pub(crate) fn by_seed(experiment: &Experiment, measured: &[Measures]) -> BTreeMap<String, Vec<f64>> {
    let of_each = |name: &String| {
        let values: Vec<f64> =
            measured.iter().filter_map(|own| own.get(name).copied().map(six_digits)).collect();
        (values.len() == measured.len()).then(|| (name.clone(), values))
    };
    if measured.len() < 2 { BTreeMap::new() } else { experiment.show.iter().filter_map(of_each).collect() }
}

/// Rounded to six significant digits, so that the last digits of sums are no difference.
pub(crate) fn six_digits(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two points over three seeds; `setup` is that of the second.
    fn experiment(setup: &str) -> Experiment {
        let text = format!(
            r#"title = "t"
            source = "s"
            why = "w"
            baseline = "fair"
            policies = ["fair"]
            show = ["avg"]
            plot = {{ measure = "avg" }}
            seeds = [1, 2, 3]
            [[point]]
            name = "drawn"
            setup = {{ jitter = 1.0 }}
            [[point]]
            name = "other"
            setup = {{ {setup} }}"#
        );
        Experiment::parse(&text).expect("an experiment")
    }

    const SMALL: &str = "fb2010,hosts=8,coflows=20,seconds=60";

    fn as_file() -> Source {
        Source::file(weir_trace::synthetic::generate(SMALL, 1).expect("a workload"))
    }

    #[test]
    fn seeds_that_change_nothing_at_a_point_are_refused() {
        for setup in ["", "concurrent = 20", "jitter = 0.0", "arrival_scale = 0.5"] {
            let said = run(&experiment(setup), &as_file(), &|| ()).expect_err(setup).to_string();
            assert!(said.contains("point other: seeds [1, 2, 3] change nothing"), "{setup}: {said}");
        }
        assert!(run(&experiment("concurrent = 10"), &as_file(), &|| ()).is_ok());
    }

    #[test]
    fn seeds_draw_a_synthetic_workload_and_its_average_is_that_over_draws() {
        let source = Source::synthetic(SMALL).expect("a workload");
        let results = run(&experiment(""), &source, &|| ()).expect("results");
        let own = |seed| {
            let mut one = experiment("");
            (one.seeds, one.point) = (vec![seed], one.point.split_off(1));
            run(&one, &source, &|| ()).expect("results").points[0].policies[0].measures["avg"]
        };
        let (first, second, third) = (own(1), own(2), own(3));
        assert!(first != second && second != third);
        // Each is rounded to six digits, and so is their mean.
        let mean = (first + second + third) / 3.0;
        let of_all = results.points[1].policies[0].measures["avg"];
        assert!((of_all / mean - 1.0).abs() < 2e-5, "{of_all} is not {mean}");
    }

    #[test]
    fn more_coflows_at_once_than_there_are_are_refused() {
        let said = run(&experiment("concurrent = 21"), &as_file(), &|| ()).expect_err("too many").to_string();
        assert!(said.contains("concurrent = 21: the workload has 20 coflows"), "{said}");
    }

    #[test]
    fn delays_are_drawn_over_one_workload() {
        // A synthetic workload too: the spread of a coflow's completion time is that of the same coflow.
        let source = Source::synthetic(SMALL).expect("a workload");
        let experiment = experiment("jitter = 5.0");
        let ids_and_sizes = |seed| {
            let work = work_of(&experiment, &source, &experiment.point[1], seed).expect("work");
            let mut sizes: Vec<_> = work.coflows.iter().map(|coflow| (coflow.id, coflow.bytes())).collect();
            sizes.sort_unstable();
            sizes
        };
        assert_eq!(ids_and_sizes(1), ids_and_sizes(3));
    }
}
