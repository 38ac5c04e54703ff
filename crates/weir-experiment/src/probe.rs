//! A few numbers of every policy of an experiment on very little work: what tells that results are older than the code.
//!
//! A whole experiment takes minutes to hours, so no test runs it. Its probe takes a moment. It is stored with the results
//! when they are made; a change of a policy, a transport or a simulator that changes results changes the probe too, but for
//! changes that show only in a large workload.

use crate::measures::Probe;
use crate::run::{RunError, simulate, six_digits, work_of};
use crate::{Experiment, Measures, Point, Source, packets};
use rayon::prelude::*;
use std::path::Path;
use weir_sim::Options;

/// What is simulated in place of a trace.
const WORKLOAD: &str = "fb2010,hosts=20,coflows=40,seconds=60";
/// Most coflows that arrive at once.
const CONCURRENT: usize = 20;
/// Most coflows of a bin in a mix.
const OF_BIN: usize = 8;
/// Most shuffles between sites.
const SHUFFLES: u32 = 4;
/// Most flows, packet by packet; most large coflows there.
const FLOWS: u64 = 100;
const LARGE_COFLOWS: u32 = 3;
/// What is kept of all measures of a run. Of packets there is no measure that every run has.
const KEPT: [&str; 10] = [
    "avg",
    "slowdown",
    "jct",
    "met",
    "fct avg",
    "fct slowdown",
    "deadline fct avg",
    "open rate",
    "cct avg small",
    "cct avg large",
];

/// Runs the probe of an experiment. `folder` is where its file lies.
///
/// # Errors
/// A point's setup is none, or a run failed.
pub fn probe(experiment: &Experiment, folder: &Path) -> Result<Probe, RunError> {
    let small = reduced(experiment);
    let source = Source::synthetic(WORKLOAD)
        .map_err(|error| RunError::Work { point: "probe".to_owned(), reason: error.to_string() })?;
    let points = small.point.iter().enumerate();
    let tasks: Vec<(usize, usize)> = points
        .flat_map(|(at, point)| (0..small.policies_of(point).len()).map(move |policy| (at, policy)))
        .filter(|&(at, policy)| small.has(&small.policies_of(&small.point[at])[policy]))
        .collect();
    let run = |&(at, policy): &(usize, usize)| {
        let point = &small.point[at];
        let name = format!("{}, {}", point.name, small.policies_of(point)[policy]);
        let measures = if small.is_of_packets() {
            packets::simulate(&small, folder, point, small.seeds[0], policy)?
        } else {
            fluid(&small, &source, point, policy)?
        };
        let kept = measures.into_iter().filter(|(name, _)| KEPT.contains(&name.as_str()));
        Ok((name, kept.map(|(name, value)| (name, six_digits(value))).collect()))
    };
    tasks.par_iter().map(run).collect()
}

/// What differs between a stored probe and one that was just run, if anything: the first difference, in words. Runs
/// that only the stored one has do not count.
pub fn probe_difference(stored: &Probe, now: &Probe) -> Option<String> {
    now.iter().find_map(|(run, measures)| {
        let Some(before) = stored.get(run) else { return Some(format!("{run}: it has no probe")) };
        let name =
            before.keys().chain(measures.keys()).find(|name| before.get(*name) != measures.get(*name))?;
        let value = |of: &Measures| of.get(name).map_or("nothing".to_owned(), f64::to_string);
        Some(format!("{run}, {name}: stored {}, now {}", value(before), value(measures)))
    })
}

fn fluid(
    experiment: &Experiment,
    source: &Source,
    point: &Point,
    policy: usize,
) -> Result<Measures, RunError> {
    let work = work_of(experiment, source, point, experiment.seeds[0])?;
    let options = Options {
        arrival_scale: point.setup.over(&experiment.setup).arrival_scale.unwrap_or(1.0),
        ..Options::default()
    };
    let name = &experiment.policies_of(point)[policy];
    simulate(point, name, work, &options, false).map(|done| done.measures)
}

/// The experiment with one seed and little work.
fn reduced(experiment: &Experiment) -> Experiment {
    let mut small = experiment.clone();
    small.seeds.truncate(1);
    for setup in small.point.iter_mut().map(|point| &mut point.setup).chain([&mut small.setup]) {
        setup.concurrent = setup.concurrent.map(|count| count.min(CONCURRENT));
        setup.mix = setup.mix.map(|mix| mix.map(|count| count.min(OF_BIN)));
        if let Some(shuffles) = setup.sites.as_mut().and_then(|sites| sites.shuffles.as_mut()) {
            shuffles.count = shuffles.count.min(SHUFFLES);
        }
        if let Some(packets) = &mut setup.packets {
            packets.flows = packets.flows.map(|flows| flows.min(FLOWS));
            packets.measured = None;
            if let Some(coflows) = &mut packets.coflows {
                coflows.large = coflows.large.min(LARGE_COFLOWS);
            }
        }
    }
    small
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_differs_is_named_with_both_values() {
        let probe =
            |value| Probe::from([("a, fair".to_owned(), Measures::from([("avg".to_owned(), value)]))]);
        assert_eq!(probe_difference(&probe(1.5), &probe(1.5)), None);
        let said = probe_difference(&probe(1.5), &probe(1.25));
        assert_eq!(said.as_deref(), Some("a, fair, avg: stored 1.5, now 1.25"));
        let said = probe_difference(&Probe::new(), &probe(1.0));
        assert_eq!(said.as_deref(), Some("a, fair: it has no probe"));
    }
}
