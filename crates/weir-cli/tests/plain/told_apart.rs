//! Every policy has a scenario that would notice if another policy stood in its place.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use weir_model::{CoflowId, Rate};
use weir_policy::{find, registry};
use weir_trace::{Expected, Scenario};

type Times = BTreeMap<CoflowId, Option<f64>>;

/// Completion times in units, none where a coflow was refused.
fn simulated(scenario: &Scenario, policy: &str) -> Times {
    let rate = Rate::from_bits_per_sec(1e9);
    let scaled = scenario.changing_at(rate, scenario.unit_bytes).expect("a fabric");
    let mut policy = find(policy).expect("a policy").create();
    let (fabric, options) = (&scaled.fabric, Default::default());
    let outcome = weir_sim::simulate_changing(
        fabric,
        scaled.changes,
        scaled.coflows,
        policy.as_mut(),
        &options,
        &mut (),
    );
    let units = |secs: f64| secs / scaled.unit_secs;
    let records = outcome.expect("nobody starves").coflows;
    records.iter().map(|record| (record.id, record.admitted.then(|| units(record.cct.as_secs())))).collect()
}

fn differ(expected: &[(CoflowId, Expected)], simulated: &Times) -> bool {
    expected.iter().any(|(id, expected)| match (expected, simulated[id]) {
        (Expected::CompletesAfter(expected), Some(simulated)) => (expected - simulated).abs() > 1e-3,
        (expected, simulated) => (*expected == Expected::Refused) != simulated.is_none(),
    })
}

#[test]
fn every_policy_is_told_apart_from_every_other() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let files = std::fs::read_dir(folder)
        .expect("the scenarios")
        .map(|entry| entry.expect("a file").path())
        .filter(|path| path.is_file());
    let scenarios: Vec<Scenario> = files.map(|file| Scenario::load(&file).expect("a scenario")).collect();
    let names: BTreeSet<&str> = registry().iter().map(|info| info.name).collect();
    // What a policy may be taken for as long as no scenario says otherwise.
    let mut alike: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for name in &names {
        alike.insert(name, names.iter().filter(|&other| other != name).copied().collect());
    }
    for scenario in &scenarios {
        let mut runs: BTreeMap<&str, Times> = BTreeMap::new();
        for (stated, expected) in &scenario.expect {
            let name = stated.split(':').next().expect("a name");
            alike.get_mut(name).expect("a policy").retain(|other| {
                !differ(expected, runs.entry(other).or_insert_with(|| simulated(scenario, other)))
            });
        }
    }
    alike.retain(|_, others| !others.is_empty());
    assert!(alike.is_empty(), "no scenario tells these from those: {alike:#?}");
}

/// Ancestry makes a difference to whom it is meant for.
#[test]
fn ancestry_off_is_told_apart_from_ancestry_on() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/pipeline.toml");
    let scenario = Scenario::load(&file).expect("a scenario");
    for (policy, other) in [("varys", "varys:ancestry=off"), ("varys:ancestry=off", "varys")] {
        assert!(differ(&scenario.expect[policy], &simulated(&scenario, other)), "{policy}");
        assert!(!differ(&scenario.expect[policy], &simulated(&scenario, policy)), "{policy}");
    }
}

#[test]
fn policies_are_listed_with_what_can_be_set() {
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).arg("policies").output().expect("weir runs");
    let said = String::from_utf8_lossy(&output.stdout);
    for info in registry() {
        assert!(said.contains(info.summary), "{}: {said}", info.name);
        assert!(
            info.parameters.iter().all(|parameter| said.contains(parameter.about)),
            "{}: {said}",
            info.name
        );
    }
    for setting in weir_packet::transport::SETTINGS {
        assert!(said.contains(setting.about), "{}: {said}", setting.name);
    }
}

#[test]
fn the_version_names_the_commit_that_results_name() {
    let said = |arguments: &[&str]| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let version = said(&["--version"]);
    let commit = version.split("(commit ").nth(1).and_then(|rest| rest.split(')').next()).unwrap().to_owned();
    let results = said(&["thresholds", "--cdf", "web-search", "--load", "0.5", "--json", "-"]);
    let results: serde_json::Value = serde_json::from_str(&results).unwrap();
    assert_eq!(results["made_by"]["commit"], commit.as_str());
}
