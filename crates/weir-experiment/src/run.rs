//! Runs an experiment.

use crate::characteristics::of_workload;
use crate::measure::{between_sites, compare, confidence, of_run, spread};
use crate::sites::{LinkUse, Traffic, add_links, least_average_secs};
use crate::spec::WORKLOAD;
use crate::workload::{Work, prepare};
use crate::{Experiment, Measures, Point, PointResult, PolicyResult, Results};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use weir_model::Time;
use weir_sim::{Observer, Options, Outcome, Replan};
use weir_trace::Workload;

/// Why an experiment cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The workload cannot be changed as a point asks.
    #[error("point {point}: {reason}")]
    Work {
        /// The point.
        point: String,
        /// Why not.
        reason: String,
    },
    /// A run did not come to its end.
    #[error("point {point}, {policy}: {reason}")]
    Run {
        /// The point.
        point: String,
        /// The policy.
        policy: String,
        /// Why not.
        reason: String,
    },
}

/// One simulation: which point, seed and policy.
type Task = (usize, u64, usize);
/// What it gives.
type Simulated = Result<Done, RunError>;

/// A simulation that came to its end.
#[derive(Clone)]
struct Done {
    outcome: Outcome,
    measures: Measures,
    links: Vec<LinkUse>,
}

/// Runs all points, on all processors. `progress` hears of every simulation that is done.
pub fn run(
    experiment: &Experiment,
    workload: &Workload,
    progress: &(dyn Fn() + Sync),
) -> Result<Results, RunError> {
    if experiment.is_of_workload() {
        return measure_workload(experiment, workload, progress);
    }
    let coflows = workload.coflows();
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
        let work = prepare(&coflows, workload.hosts, &setup, seed)
            .map_err(|reason| RunError::Work { point: point.name.clone(), reason })?;
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

/// Measures the work of every point instead of running it.
fn measure_workload(
    experiment: &Experiment,
    workload: &Workload,
    progress: &(dyn Fn() + Sync),
) -> Result<Results, RunError> {
    let coflows = workload.coflows();
    let mut points = Vec::with_capacity(experiment.point.len());
    for point in &experiment.point {
        let setup = point.setup.over(&experiment.setup);
        let mut sums = Measures::new();
        for &seed in &experiment.seeds {
            let work = prepare(&coflows, workload.hosts, &setup, seed)
                .map_err(|reason| RunError::Work { point: point.name.clone(), reason })?;
            add_part(&mut sums, of_workload(&work.coflows, workload.hosts), experiment.seeds.len());
            progress();
        }
        sums.values_mut().for_each(|value| *value = six_digits(*value));
        let policies = vec![PolicyResult { policy: WORKLOAD.to_owned(), measures: sums, links: Vec::new() }];
        points.push(PointResult::of(experiment, point, policies));
    }
    Ok(Results::of(experiment, &workload.name, points))
}

/// Adds the part of one seed to a mean over so many.
fn add_part(means: &mut Measures, measures: Measures, seeds: usize) {
    for (name, value) in measures {
        *means.entry(name).or_default() += value / seeds as f64;
    }
}

fn simulate(point: &Point, policy: &str, work: Work, options: &Options, count_links: bool) -> Simulated {
    let failed =
        |reason: String| RunError::Run { point: point.name.clone(), policy: policy.to_owned(), reason };
    let mut instance = weir_policy::create(policy).map_err(|error| failed(error.to_string()))?;
    let Work { fabric, coflows, changes, bins, reads, regions, classes } = work;
    // Of the coflows as they are simulated.
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
fn collect(experiment: &Experiment, workload: &Workload, done: Vec<(Task, Done)>) -> Results {
    let find = |point: usize, seed: u64, name: &str| {
        let at = experiment.policies_of(&experiment.point[point]).iter().position(|policy| policy == name)?;
        done.iter().find(|(task, _)| *task == (point, seed, at)).map(|(_, done)| done)
    };
    let points = experiment.point.iter().enumerate().map(|(index, point)| {
        let policies = experiment.policies_of(point).iter().map(|policy| {
            let (mut sums, mut links) = (Measures::new(), Vec::new());
            let mut of_seeds = Vec::with_capacity(experiment.seeds.len());
            let mut factors = Vec::with_capacity(experiment.seeds.len());
            for &seed in &experiment.seeds {
                let Some(own) = find(index, seed, policy) else { continue };
                let base = experiment.baseline.as_ref().and_then(|name| find(index, seed, name));
                let Some(base) = base else { continue };
                let fair = find(index, seed, "fair").map(|fair| &fair.outcome);
                of_seeds.push(&own.outcome);
                let mut measures = own.measures.clone();
                compare(&mut measures, &base.measures, &own.outcome, &base.outcome, fair);
                add_links(&mut links, &own.links, experiment.seeds.len());
                factors.extend(measures.get("factor avg"));
                add_part(&mut sums, measures, experiment.seeds.len());
            }
            if point.setup.over(&experiment.setup).sites.is_some() {
                confidence(&mut sums, &factors);
            }
            // Elsewhere seeds draw other coflows, or give an id to another one.
            if point.setup.over(&experiment.setup).jitter.is_some() {
                spread(&mut sums, &of_seeds);
            }
            sums.values_mut().for_each(|value| *value = six_digits(*value));
            for link in &mut links {
                (link.gb, link.used) = (six_digits(link.gb), six_digits(link.used));
            }
            PolicyResult { policy: policy.clone(), measures: sums, links }
        });
        PointResult::of(experiment, point, policies.collect())
    });
    Results::of(experiment, &workload.name, points.collect())
}

/// Rounded to six significant digits, so that the last digits of sums are no difference.
pub(crate) fn six_digits(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}
