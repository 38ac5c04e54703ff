//! Experiments on the packet-level simulator: flows that arrive one by one, under transports.
//!
//! A point's setup names a scenario and what differs from it ([`PacketSetup`]); the experiment's policies are transports
//! then. Times are milliseconds, here and in results.

mod coflows;
mod order;

pub use coflows::CoflowTraffic;

use crate::measure::{Described, INTERVAL, RATIO, half_width};
use crate::run::{RunError, by_seed, six_digits};
use crate::runs::Runs;
use crate::{Experiment, Measures, Point, PointResult, PolicyResult, Results};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::path::Path;
use weir_model::{Bytes, Span};
use weir_packet::scenario::ENDLESS;
use weir_packet::{Completion, Gathered, Picos, Scenario, Simulation, Summary, transport};
use weir_trace::{FlowSizes, PoissonSpec};

/// What results are called where a trace would be named.
pub const PACKETS: &str = "packets";

/// Flows of a packet-level run: a scenario, and what differs from it.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PacketSetup {
    /// The scenario's file, seen from the folder of the experiment.
    pub scenario: Option<String>,
    /// How large flows are.
    pub sizes: Option<String>,
    /// Load of hosts' links.
    pub load: Option<f64>,
    /// Number of flows, if not the scenario's.
    pub flows: Option<u64>,
    /// Flows that are measured, by number in order of arrival, from one to before another; all unless said. Before them
    /// queues fill up, and a run ends when they are done: flows that arrive later keep its links busy until then.
    pub measured: Option<(u64, u64)>,
    /// Share of bytes with deadlines.
    pub deadline_bytes: Option<f64>,
    /// How large flows with deadlines are, if not as others.
    pub deadline_size: Option<String>,
    /// Deadlines are uniform between these.
    pub within: Option<(String, String)>,
    /// Share of the other flows whose size is known.
    pub known: Option<f64>,
    /// What switches have for each port.
    pub buffer: Option<String>,
    /// Coflows and flows with deadlines instead of the scenario's traffic.
    pub coflows: Option<CoflowTraffic>,
}

/// What is measured of every run.
pub(crate) const MEASURES: &[Described] = &[
    ("fct avg", "average completion time of flows without deadlines", "ms"),
    ("fct p95", "95th percentile of completion times of flows without deadlines", "ms"),
    ("fct p99", "99th percentile of completion times of flows without deadlines", "ms"),
    (
        "fct slowdown",
        "average of completion time over that of the flow alone, flows without deadlines",
        RATIO,
    ),
    ("fct avg small", "average completion time of flows up to 100 kB", "ms"),
    ("fct p95 small", "95th percentile of completion times of flows up to 100 kB", "ms"),
    ("fct p99 small", "99th percentile of completion times of flows up to 100 kB", "ms"),
    ("fct avg middle", "average completion time of flows of 100 kB to 10 MB", "ms"),
    ("fct p99 middle", "99th percentile of completion times of flows of 100 kB to 10 MB", "ms"),
    ("fct avg large", "average completion time of flows above 10 MB", "ms"),
    ("deadline fct avg", "average completion time of flows with deadlines", "ms"),
    ("missed", "deadlines missed", "% of those that the flow could meet alone"),
    ("infeasible", "deadlines that the flow could not meet alone", "% of all"),
    (
        "deadline used",
        "completion time over the time until the deadline, of flows that met theirs, average",
        "%",
    ),
    (
        "deadline used least",
        "completion time over the time until the deadline, of flows that met theirs, least",
        "%",
    ),
    (
        "open rate",
        "what flows received that were still going when the run ended, over the whole run",
        "Mbit/s",
    ),
    ("cct avg small", "average completion time of small coflows", "ms"),
    ("cct p95 small", "95th percentile of completion times of small coflows", "ms"),
    ("cct p99 small", "99th percentile of completion times of small coflows", "ms"),
    ("cct avg large", "average completion time of large coflows", "ms"),
    ("cct over plan", "completion time of large coflows over what was planned for them, average", RATIO),
    ("timeouts", "retransmission timeouts", "per 1000 flows"),
    ("retransmitted", "segments sent again", "per 1000 segments"),
    ("dropped", "packets dropped", "per million packet-hops"),
];

/// What begins the name of a measure over the baseline's,
const FACTOR: &str = "factor ";
/// and of a measure less the baseline's: both of the same seed, so that their intervals are those of pairs.
const LESS: &str = "less ";

/// What a name says of a measure besides: how it is compared with the baseline's; and the measure.
fn parts(name: &str) -> (&str, &str) {
    let name = name.strip_suffix(INTERVAL).unwrap_or(name);
    let compared = [FACTOR, LESS].into_iter().find_map(|how| Some((how, name.strip_prefix(how)?)));
    compared.unwrap_or(("", name))
}

/// Whether there is such a measure.
pub(crate) fn check(name: &str) -> Result<(), String> {
    let (_, stem) = parts(name);
    if MEASURES.iter().any(|(known, _, _)| *known == stem) {
        return Ok(());
    }
    Err(format!("`{name}` is no measure of packets"))
}

/// What a measure is, in words, and its unit; none if it is none of packets.
pub(crate) fn words(name: &str) -> Option<(String, &'static str)> {
    let (how, stem) = parts(name);
    let (_, what, unit) = MEASURES.iter().find(|(known, _, _)| *known == stem)?;
    Some(match how {
        FACTOR => (format!("{what}, over the baseline's"), RATIO),
        LESS => (format!("{what}, less the baseline's"), unit),
        _ => ((*what).to_owned(), unit),
    })
}

impl PacketSetup {
    /// These values, and where one is absent that of `base`.
    pub(crate) fn over(&self, base: Option<&PacketSetup>) -> PacketSetup {
        let Some(base) = base else { return self.clone() };
        PacketSetup {
            scenario: self.scenario.clone().or_else(|| base.scenario.clone()),
            sizes: self.sizes.clone().or_else(|| base.sizes.clone()),
            load: self.load.or(base.load),
            flows: self.flows.or(base.flows),
            measured: self.measured.or(base.measured),
            deadline_bytes: self.deadline_bytes.or(base.deadline_bytes),
            deadline_size: self.deadline_size.clone().or_else(|| base.deadline_size.clone()),
            within: self.within.clone().or_else(|| base.within.clone()),
            known: self.known.or(base.known),
            buffer: self.buffer.clone().or_else(|| base.buffer.clone()),
            coflows: self.coflows.clone().or_else(|| base.coflows.clone()),
        }
    }

    /// The scenario as this setup has it.
    fn prepare(&self, folder: &Path, seed: u64) -> Result<Scenario, String> {
        let name = self.scenario.as_deref().ok_or("packets: it names no scenario")?;
        let path = folder.join(name);
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = weir_trace::read_text(&path).map_err(|error| failed(&error))?;
        let mut scenario = Scenario::from_text(&text).map_err(|error| failed(&error))?;
        if let Some(buffer) = &self.buffer {
            let size: Bytes = buffer.parse().map_err(|error| format!("packets: buffer: {error}"))?;
            scenario.buffer = weir_packet::Buffer::PerPort(size);
        }
        match &mut scenario.traffic {
            Some(traffic) => {
                self.change(traffic)?;
                traffic.seed = seed;
            }
            // Flows that are listed one by one have nothing to change, and no seed.
            None if self.changes_traffic() => {
                return Err(failed(&"it has no [traffic] that could be changed"));
            }
            None => {}
        }
        if let Some((first, end)) = self.measured {
            let flows = scenario.traffic.as_ref().map_or(0, |traffic| traffic.flows);
            if first >= end || end > flows || self.coflows.is_some() {
                return Err(format!(
                    "packets: measured = [{first}, {end}] has to be a part of the {flows} flows of [traffic]"
                ));
            }
        }
        Ok(scenario)
    }

    /// Something differs from the scenario's traffic.
    fn changes_traffic(&self) -> bool {
        let PacketSetup { sizes, load, flows, deadline_bytes, deadline_size, within, known, coflows, .. } =
            self;
        let texts = sizes.is_some() || deadline_size.is_some() || within.is_some() || coflows.is_some();
        texts || flows.is_some() || [load, deadline_bytes, known].iter().any(|number| number.is_some())
    }

    fn change(&self, traffic: &mut PoissonSpec) -> Result<(), String> {
        if let Some(sizes) = &self.sizes {
            traffic.sizes = FlowSizes::load(sizes).map_err(|error| format!("packets: sizes: {error}"))?;
        }
        traffic.load = self.load.unwrap_or(traffic.load);
        traffic.flows = self.flows.unwrap_or(traffic.flows);
        traffic.mix.deadline_bytes = self.deadline_bytes.unwrap_or(traffic.mix.deadline_bytes);
        if let Some(text) = &self.deadline_size {
            let failed = |error: &dyn std::fmt::Display| format!("packets: deadline_size: {error}");
            let size: Bytes = text.parse().map_err(|error| failed(&error))?;
            if size == Bytes(0) || size > ENDLESS {
                return Err(failed(&format!("`{text}` has to be above 0 and at most {ENDLESS}")));
            }
            traffic.mix.deadline_size = Some(size);
        }
        traffic.mix.known = self.known.unwrap_or(traffic.mix.known);
        if let Some((least, most)) = &self.within {
            let span =
                |text: &String| text.parse::<Span>().map_err(|error| format!("packets: within: {error}"));
            traffic.mix.within = (span(least)?, span(most)?);
        }
        Ok(())
    }
}

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

    fn prepare(setup: &str, scenario: &str) -> Result<Scenario, String> {
        let mut setup: PacketSetup = toml::from_str(setup).expect("a setup");
        setup.scenario = Some(format!("../../scenarios/packets/{scenario}.toml"));
        setup.prepare(Path::new(env!("CARGO_MANIFEST_DIR")), 7)
    }

    #[test]
    fn a_setup_may_give_deadline_flows_a_size_of_their_own() {
        let own = r#"deadline_bytes = 0.1
            deadline_size = "80kB"
            within = ["5ms", "6ms"]"#;
        let traffic = prepare(own, "sixteen-hosts").unwrap().traffic.unwrap();
        assert_eq!((traffic.mix.deadline_size, traffic.seed), (Some(Bytes(80_000)), 7));
        let drawn = prepare("deadline_bytes = 0.1", "sixteen-hosts").unwrap().traffic.unwrap();
        assert_eq!(drawn.mix.deadline_size, None);
        for (text, reason) in [
            ("0", "`0` has to be above 0 and at most 4.4 TB"),
            ("7TB", "`7TB` has to be above 0 and at most 4.4 TB"),
            ("big", "`big` is not a size in bytes such as 4096, 10MB or 10MiB"),
        ] {
            let error = prepare(&format!("deadline_size = \"{text}\""), "sixteen-hosts").unwrap_err();
            assert_eq!(error, format!("packets: deadline_size: {reason}"));
        }
    }

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
        for bad in ["[5, 5]", "[0, 601]", "[7, 6]"] {
            let own = format!("flows = 600\nmeasured = {bad}");
            let error = prepare(&own, "sixteen-hosts").unwrap_err();
            assert!(error.ends_with("has to be a part of the 600 flows of [traffic]"), "{error}");
        }
    }

    #[test]
    fn flows_listed_one_by_one_run_as_they_are_and_have_nothing_to_change() {
        assert_eq!(prepare("buffer = \"90kB\"", "four-flows").unwrap().flows.len(), 5);
        for change in ["load = 0.5", "flows = 3", "deadline_size = \"80kB\"", "sizes = \"web-search\""] {
            let error = prepare(change, "four-flows").unwrap_err();
            assert!(error.ends_with("four-flows.toml: it has no [traffic] that could be changed"), "{error}");
        }
    }
}
