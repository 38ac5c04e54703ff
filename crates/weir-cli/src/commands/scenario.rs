//! Scenario files: what they run, and whether completion times are what they expect.

use super::simulation::{Simulation, find_policies};
use std::collections::BTreeMap;
use std::path::Path;
use weir_console::Failure;
use weir_model::{CoflowId, Rate};
use weir_results::{Results, Run, Spec, table, text};
use weir_sim::Options;
use weir_trace::{Expected, Scenario};

/// A simulated completion time may differ from the expected one by this many units of time, or this share
/// of it: every completion is rounded up to a nanosecond, and sizes to a byte.
const TOLERANCE: f64 = 1e-5;

/// Reads a scenario and makes a simulation of it. Without policies, those the file has expectations for.
/// Also gives the seconds a unit of time takes.
pub(crate) fn prepare(
    path: &Path,
    policies: &[String],
    link_rate: Rate,
    options: Options,
) -> Result<(Scenario, Simulation, f64), Failure> {
    let scenario = Scenario::load(path).map_err(|error| Failure::Input(format!("--scenario {error}")))?;
    let input = |reason: String| Failure::Input(format!("--scenario {}: {reason}", path.display()));
    let stated: Vec<String> = scenario.expect.keys().cloned().collect();
    for name in &stated {
        weir_policy::find(name).map_err(|error| input(format!("expect: {error}")))?;
    }
    let names = if policies.is_empty() { &stated } else { policies };
    if names.is_empty() {
        return Err(input("it expects nothing of any policy; say which with --policy".to_owned()));
    }
    let scaled = scenario.changing_at(link_rate, scenario.unit_bytes);
    let scaled = scaled.map_err(|error| input(error.to_string()))?;
    let simulation = Simulation {
        name: scenario.name.clone(),
        seed: None,
        cut: None,
        link_rate,
        topology: None,
        policies: find_policies(names)?,
        spec: Spec { fabric: scaled.fabric, coflows: scaled.coflows, changes: scaled.changes, options },
    };
    Ok((scenario, simulation, scaled.unit_secs))
}

/// Prints expected and simulated completion times, in units; an error if they differ.
pub(crate) fn check(scenario: &Scenario, results: &Results, unit_secs: f64) -> Result<(), Failure> {
    println!("{}: {}\n{}\n", scenario.name, scenario.about, scenario.source);
    let mut table = table(&["policy", "coflow", "expected", "simulated", ""], 1);
    let (mut stated, mut wrong) = (0, 0);
    for run in &results.runs {
        let expected = expectations(scenario, run);
        for row in &run.coflows {
            let simulated = match row.admitted {
                true => Expected::CompletesAfter(row.cct_s / unit_secs),
                false => Expected::Refused,
            };
            let expected = expected.get(&CoflowId(row.id)).copied();
            let verdict = match expected {
                None => "",
                Some(expected) if same(expected, simulated) => "ok",
                Some(_) => "DIFFERS",
            };
            stated += usize::from(expected.is_some());
            wrong += usize::from(verdict == "DIFFERS");
            let cells = [
                run.policy.clone(),
                row.id.to_string(),
                expected.map_or("-".to_owned(), units),
                units(simulated),
                verdict.to_owned(),
            ];
            table.add_row(cells);
        }
    }
    println!("{}", text(&table));
    if wrong > 0 {
        let reason =
            format!("{wrong} of {stated} completion times differ from what {} expects", scenario.name);
        return Err(Failure::Run(anyhow::anyhow!(reason)));
    }
    Ok(())
}

/// Whether it came as expected, up to the rounding of times.
fn same(expected: Expected, simulated: Expected) -> bool {
    match (expected, simulated) {
        (Expected::CompletesAfter(expected), Expected::CompletesAfter(simulated)) => {
            (simulated - expected).abs() <= TOLERANCE * expected.max(1.0)
        }
        (expected, simulated) => expected == simulated,
    }
}

fn expectations(scenario: &Scenario, run: &Run) -> BTreeMap<CoflowId, Expected> {
    scenario.expect.get(&run.policy).into_iter().flatten().copied().collect()
}

/// Units of time with the decimals that mean something.
fn units(value: Expected) -> String {
    let Expected::CompletesAfter(value) = value else { return "refused".to_owned() };
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
