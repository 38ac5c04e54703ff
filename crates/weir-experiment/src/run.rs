//! Runs an experiment.

use crate::measure::{compare, of_run};
use crate::workload::{Work, prepare};
use crate::{Experiment, Measures, Point};
use serde::{Deserialize, Serialize};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use weir_sim::{Options, Outcome, Replan};
use weir_trace::Workload;

/// Numbers of an experiment on one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Version of this format.
    pub schema: u32,
    /// The workload's name.
    pub workload: String,
    /// In the order of the experiment.
    pub points: Vec<PointResult>,
}

/// Numbers of one point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PointResult {
    /// Its name.
    pub name: String,
    /// In the order of the experiment.
    pub policies: Vec<PolicyResult>,
}

/// Numbers of one policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyResult {
    /// Its name, with settings.
    pub policy: String,
    /// Means over seeds, to six significant digits.
    pub measures: Measures,
}

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
type Simulated = Result<(Outcome, Measures), RunError>;

/// Runs all points, on all processors. `progress` hears of every simulation that is done.
pub fn run(
    experiment: &Experiment,
    workload: &Workload,
    progress: &(dyn Fn() + Sync),
) -> Result<Results, RunError> {
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
        simulate(point, &experiment.policies_of(point)[at], work, &options)
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
        let (outcome, measures) = outcome.unwrap_or_else(|| Err(lost()))?;
        done.push((*task, outcome, measures));
    }
    Ok(collect(experiment, workload, done))
}

fn simulate(point: &Point, policy: &str, work: Work, options: &Options) -> Simulated {
    let failed =
        |reason: String| RunError::Run { point: point.name.clone(), policy: policy.to_owned(), reason };
    let mut instance = weir_policy::create(policy).map_err(|error| failed(error.to_string()))?;
    let outcome = weir_sim::simulate(&work.fabric, work.coflows.clone(), instance.as_mut(), options);
    let outcome = outcome.map_err(|error| failed(error.to_string()))?;
    let measures = of_run(&outcome, &work.coflows, &work.classes);
    Ok((outcome, measures))
}

/// Compares with the baseline of the same point and seed, and takes means over seeds.
fn collect(experiment: &Experiment, workload: &Workload, done: Vec<(Task, Outcome, Measures)>) -> Results {
    let find = |point: usize, seed: u64, name: &str| {
        let at = experiment.policies_of(&experiment.point[point]).iter().position(|policy| policy == name)?;
        done.iter().find(|(task, _, _)| *task == (point, seed, at))
    };
    let points = experiment.point.iter().enumerate().map(|(index, point)| {
        let policies = experiment.policies_of(point).iter().map(|policy| {
            let mut sums = Measures::new();
            for &seed in &experiment.seeds {
                let Some((_, own, measures)) = find(index, seed, policy) else { continue };
                let Some((_, base, baseline)) = find(index, seed, &experiment.baseline) else { continue };
                let fair = find(index, seed, "fair").map(|(_, fair, _)| fair);
                let mut measures = measures.clone();
                compare(&mut measures, baseline, own, base, fair);
                for (name, value) in measures {
                    *sums.entry(name).or_default() += value / experiment.seeds.len() as f64;
                }
            }
            sums.values_mut().for_each(|value| *value = six_digits(*value));
            PolicyResult { policy: policy.clone(), measures: sums }
        });
        PointResult { name: point.name.clone(), policies: policies.collect() }
    });
    Results { schema: 1, workload: workload.name.clone(), points: points.collect() }
}

/// Rounded to six significant digits, so that the last digits of sums are no difference.
fn six_digits(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}
