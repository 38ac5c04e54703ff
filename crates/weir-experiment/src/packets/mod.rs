//! Experiments on the packet-level simulator: flows that arrive one by one, under transports.
//!
//! A point's setup names a scenario and what differs from it ([`PacketSetup`]); the experiment's policies are transports
//! then. Times are milliseconds, here and in results.

mod coflows;
pub(crate) mod measures;
mod order;
mod setup;

pub use coflows::CoflowTraffic;
use measures::{FACTOR, LESS};
pub use setup::PacketSetup;

use crate::measure::half_width;
use crate::measures::INTERVAL;
use crate::run::{RunError, by_seed, six_digits};
use crate::runs::Runs;
use crate::{Experiment, Measures, Point, PointResult, PolicyResult, Results};
use rayon::prelude::*;
use std::path::Path;
use weir_packet::{Completion, Gathered, Picos, Simulation, Summary, transport};

/// What results are called where a trace would be named.
pub const PACKETS: &str = "packets";

/// A run: which point, which seed, which transport, by place.
type Task = (usize, usize, usize);

/// Runs an experiment on packets, on all cores, but for `runs` that are done. `folder` is where its file lies; `progress`
/// is called after each run.
///
/// # Errors
/// A point's setup or a transport is none.
pub fn run_packets(
    experiment: &Experiment,
    folder: &Path,
    runs: &Runs,
    progress: &(dyn Fn() + Sync),
) -> Result<Results, RunError> {
    check_seeds(experiment, folder)?;
    let points = &experiment.point;
    let transports = |point: &Point| experiment.policies_of(point).len();
    let tasks: Vec<Task> = (0..points.len())
        .flat_map(|point| (0..experiment.seeds.len()).map(move |seed| (point, seed)))
        .flat_map(|(point, seed)| (0..transports(&points[point])).map(move |at| (point, seed, at)))
        .collect();
    let measures: Vec<Measures> = tasks
        .par_iter()
        .map(|&(point, seed, at)| {
            let (point, seed) = (&points[point], experiment.seeds[seed]);
            let setup = point.setup.over(&experiment.setup).as_table();
            let run =
                format!("{}, seed {seed}, {}", toml::Value::Table(setup), experiment.policies_of(point)[at]);
            let measures = runs.get(&run, || simulate(experiment, folder, point, seed, at));
            progress();
            measures
        })
        .collect::<Result<_, _>>()?;
    let of = |task: Task| tasks.iter().position(|other| *other == task).map(|at| &measures[at]);
    let points = points.iter().enumerate().map(|(index, point)| {
        let names = experiment.policies_of(point);
        let base = names.iter().position(|name| experiment.baseline.as_ref() == Some(name));
        let policies = names.iter().enumerate().map(|(at, name)| {
            let seeds = (0..experiment.seeds.len()).map(|seed| {
                let base = base.and_then(|base| of((index, seed, base)));
                of((index, seed, at)).map(|own| compared(experiment, own, base)).unwrap_or_default()
            });
            let seeds: Vec<Measures> = seeds.collect();
            let by_seed = by_seed(experiment, &seeds);
            PolicyResult { policy: name.clone(), measures: means(&seeds), by_seed, links: Vec::new() }
        });
        PointResult::of(experiment, point, policies.collect())
    });
    Ok(Results::of(experiment, PACKETS, points.collect()))
}

/// Flows that a scenario lists one by one are the same under every seed: means over several would be those of one run.
fn check_seeds(experiment: &Experiment, folder: &Path) -> Result<(), RunError> {
    if experiment.seeds.len() < 2 {
        return Ok(());
    }
    for point in &experiment.point {
        let setup = point.setup.over(&experiment.setup).packets.unwrap_or_default();
        let failed = |reason| RunError::Work { point: point.name.clone(), reason };
        if setup.prepare(folder, experiment.seeds[0]).map_err(failed)?.traffic.is_none() {
            let reason = "the scenario lists its flows one by one";
            let (point, seeds) = (point.name.clone(), experiment.seeds.clone());
            return Err(RunError::Seeds { point, seeds, reason });
        }
    }
    Ok(())
}

pub(crate) fn simulate(
    experiment: &Experiment,
    folder: &Path,
    point: &Point,
    seed: u64,
    at: usize,
) -> Result<Measures, RunError> {
    let name = &experiment.policies_of(point)[at];
    let bad = |reason: String| RunError::Work { point: point.name.clone(), reason };
    let setup = point.setup.over(&experiment.setup).packets.unwrap_or_default();
    let scenario = setup.prepare(folder, seed).map_err(bad)?;
    if let Some(traffic) = &setup.coflows {
        return coflows::simulate(traffic, scenario, name, seed).map_err(bad);
    }
    let transport = transport::named(name).map_err(|error| bad(error.to_string()))?;
    let topology = scenario.topology().map_err(|error| bad(error.to_string()))?;
    let arrivals = scenario.arrivals().map_err(|error| bad(error.to_string()))?;
    let network = scenario.network(&topology);
    let (mut gathered, mut timeouts, mut again, mut segments) = (Gathered::default(), 0, 0, 0);
    let mut simulation = Simulation::new(&topology, transport, network, arrivals);
    let measured = setup.measured.map_or(0..u64::MAX, |(first, end)| first..end);
    if setup.measured.is_some() {
        simulation.end_with(measured.clone());
    }
    let mut finished = 0_u64;
    let counts = simulation.run(scenario.until.unwrap_or(Picos::MAX), &mut |record| {
        if !measured.contains(&record.number) {
            return;
        }
        finished += 1;
        gathered.add(&record);
        timeouts += u64::from(record.timeouts);
        again += u64::from(record.retransmitted);
        segments += record.flow.size.0.div_ceil(u64::from(weir_packet::SEGMENT_BYTES));
    });
    let unfinished = simulation.unfinished().filter(|open| measured.contains(&open.number));
    unfinished.for_each(|open| gathered.add_unfinished(&open, counts.end));
    let mut measures = of_summary(&gathered.summary());
    let mut note = |name: &str, value: f64| measures.insert(name.to_owned(), value);
    note("timeouts", 1e3 * timeouts as f64 / finished.max(1) as f64);
    note("retransmitted", 1e3 * again as f64 / segments.max(1) as f64);
    note("dropped", 1e6 * counts.dropped as f64 / counts.hops.max(1) as f64);
    Ok(measures)
}

fn of_summary(summary: &Summary) -> Measures {
    let mut measures = Measures::new();
    let mut group = |class: &str, completion: &Completion| {
        if completion.flows == 0 {
            return;
        }
        let mut note = |name: &str, value: f64| measures.insert(format!("{name}{class}"), value);
        note("fct avg", completion.average_s * 1e3);
        note("fct p95", completion.p95_s * 1e3);
        note("fct p99", completion.p99_s * 1e3);
    };
    group("", &summary.others);
    for (class, completion) in [" small", " middle", " large"].iter().zip(&summary.by_size) {
        group(class, completion);
    }
    if summary.others.flows > 0 {
        measures.insert("fct slowdown".to_owned(), summary.others.average_slowdown);
    }
    let deadlines = &summary.deadlines;
    let all = deadlines.feasible + deadlines.infeasible;
    if all > 0 {
        measures.insert("deadline fct avg".to_owned(), summary.with_deadline.average_s * 1e3);
        measures.insert("missed".to_owned(), 100.0 * deadlines.miss_rate());
        measures.insert("infeasible".to_owned(), 100.0 * deadlines.infeasible as f64 / all as f64);
    }
    if summary.used.flows > 0 {
        measures.insert("deadline used".to_owned(), 100.0 * summary.used.average);
        measures.insert("deadline used least".to_owned(), 100.0 * summary.used.least);
    }
    if summary.open.flows > 0 {
        measures.insert("open rate".to_owned(), summary.open.rate.bits_per_sec() / 1e6);
    }
    measures
}

/// Adds each measure over the baseline's of the same seed, and less that where the experiment shows it.
fn compared(experiment: &Experiment, own: &Measures, base: Option<&Measures>) -> Measures {
    let mut all = own.clone();
    for (name, base) in base.into_iter().flatten() {
        let Some(own) = own.get(name) else { continue };
        if *base > 0.0 {
            all.insert(format!("{FACTOR}{name}"), own / base);
        }
        let less = format!("{LESS}{name}");
        if experiment.show.contains(&less) {
            all.insert(less, own - base);
        }
    }
    all
}

/// Means over seeds, and half of their confidence intervals where there are several.
fn means(of_seeds: &[Measures]) -> Measures {
    let mut all = Measures::new();
    let names = of_seeds.iter().flat_map(Measures::keys);
    for name in names {
        // Over the seeds that have the measure: under one of them a class of sizes may have no
        // flow.
        let values: Vec<f64> = of_seeds.iter().filter_map(|measures| measures.get(name)).copied().collect();
        all.insert(name.clone(), six_digits(values.iter().sum::<f64>() / values.len() as f64));
        if let Some(half) = half_width(&values) {
            all.insert(format!("{name}{INTERVAL}"), six_digits(half));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(setup: &str, seeds: &str) -> Results {
        let text = format!(
            r#"title = "t"
            source = "s"
            why = "w"
            baseline = "pfabric-edf"
            policies = ["pfabric-edf", "dctcp"]
            seeds = {seeds}
            show = ["fct avg", "factor fct avg", "less missed"]
            plot = {{ measure = "fct avg" }}
            setup = {{ packets = {{ scenario = "../../scenarios/packets/sixteen-hosts.toml", deadline_bytes = 0.2, within = ["40ms", "80ms"], {setup} }} }}
            [[point]]
            name = "p""#
        );
        let experiment = Experiment::parse(&text).expect("an experiment");
        run_packets(&experiment, Path::new(env!("CARGO_MANIFEST_DIR")), &Runs::unkept(), &|| ())
            .expect("results")
    }

    #[test]
    fn values_are_kept_by_seed_and_compare_in_pairs() {
        let of_both = results("flows = 300", "[1, 2]");
        let alone = [results("flows = 300", "[1]"), results("flows = 300", "[2]")];
        let dctcp = |results: &Results| results.points[0].policies[1].clone();
        for (name, values) in &dctcp(&of_both).by_seed {
            assert_eq!(values.len(), 2);
            for (value, one) in values.iter().zip(&alone) {
                assert_eq!(*value, dctcp(one).measures[name], "{name}");
            }
        }
        assert_eq!(dctcp(&of_both).by_seed.len(), 3);
        assert!(dctcp(&alone[0]).by_seed.is_empty());
        let missed = |at: usize| alone[0].points[0].policies[at].measures["missed"];
        let less = dctcp(&alone[0]).measures["less missed"];
        assert!((less - (missed(1) - missed(0))).abs() < 1e-3 && less > 0.0, "{less}");
    }

    #[test]
    fn flows_outside_of_those_measured_are_moved_and_not_counted() {
        // Those that are measured meet what comes before and after them, whatever else is counted.
        let window = results("flows = 3000, measured = [200, 300]", "[1]");
        let longer = results("flows = 4000, measured = [200, 300]", "[1]");
        assert_eq!(window.points, {
            let mut points = longer.points;
            points[0].setup = window.points[0].setup.clone();
            points
        });
        let all = results("flows = 300", "[1]");
        let average = |results: &Results| results.points[0].policies[0].measures["fct avg"];
        assert!(average(&window) != average(&all));
    }
}
