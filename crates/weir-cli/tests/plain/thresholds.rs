//! `weir thresholds` as a user meets it.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use serde_json::Value;
use std::process::{Command, Output};

fn weir(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir")).arg("thresholds").args(arguments).output().unwrap()
}

/// The one line of a refusal.
#[track_caller]
fn refused(arguments: &[&str]) -> String {
    let output = weir(arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    assert_eq!((said.lines().count(), output.stdout.len()), (1, 0), "{arguments:?}: {said}");
    said
}

/// What is printed, and what is written.
#[track_caller]
fn results(arguments: &[&str]) -> (String, Value) {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("out.json");
    let output = weir(&[arguments, &["--json", json.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    let written = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    (String::from_utf8(output.stdout).unwrap(), written)
}

fn choice<'a>(traffic: &'a Value, thresholds: &str) -> &'a Value {
    let choices = traffic["choices"].as_array().unwrap();
    choices.iter().find(|choice| choice["thresholds"] == thresholds).unwrap()
}

#[test]
fn known_figures_come_out_against_those_published() {
    let (said, written) = results(&["--cdf", "web-search-packets", "--load", "0.8", "--against", "pias"]);
    assert_eq!((&written["schema"], &written["levels"], &written["seed"]), (&1.into(), &8.into(), &1.into()));
    let mean = |thresholds| {
        let mean = &choice(&written["traffics"][0], thresholds)["mean_fct_packets"];
        mean.as_f64().unwrap().round()
    };
    assert_eq!((mean("one level"), mean("PIAS")), (15_678.0, 5724.0));
    assert!((4463.0..=4465.0).contains(&mean("optimised")), "{}", mean("optimised"));
    assert!(said.contains("15678") && said.contains("5724") && said.contains("demotion"), "{said}");
    assert!(!said.contains("splitting") && !said.contains("made for"), "{said}");
    // A packet time is 1500 bytes at 10 Gbit/s, 1.2 us.
    let one = choice(&written["traffics"][0], "one level");
    let secs = one["mean_fct_packets"].as_f64().unwrap() * 1.2e-6;
    assert!((one["mean_fct_s"].as_f64().unwrap() / secs - 1.0).abs() < 1e-9);
    let found = choice(&written["traffics"][0], "optimised");
    assert!(found["cpu_s"].as_f64().unwrap() >= 0.0 && found["judged"].as_u64().unwrap() > 1000);
    assert_eq!(found["demotion_bytes"].as_array().unwrap().len(), 7);
    assert_eq!(found["levels"].as_array().unwrap().len(), 8);
}

#[test]
fn levels_that_share_are_forecast_on_request() {
    let (said, written) =
        results(&["--cdf", "web-search", "--load", "0.8", "--against", "pias", "--levels", "shared"]);
    assert!(said.contains("shared by their flows"), "{said}");
    assert_eq!(written["service"], "shared");
    let mean = |thresholds| choice(&written["traffics"][0], thresholds)["mean_fct_packets"].as_f64().unwrap();
    // Processor sharing of 1 711 250 bytes on average at load 0.8: 5 * 1172.1 packets.
    assert!((mean("one level") - 5860.4).abs() < 0.1, "{}", mean("one level"));
    assert!(mean("optimised") < mean("PIAS") && mean("PIAS") < mean("one level"));
}

#[test]
fn flows_with_a_deadline_take_a_queue_and_several_traffics_are_judged_on_all() {
    let mix = ["--cdf", "web-search,data-mining", "--load", "0.5,0.8", "--mix", "known=0.5,deadline=0.2"];
    let (said, written) = results(&mix);
    assert_eq!((&written["queues"], &written["levels"]), (&8.into(), &7.into()));
    assert_eq!(written["traffics"].as_array().unwrap().len(), 4);
    for (row, ratios) in written["robustness"].as_array().unwrap().iter().enumerate() {
        for (column, ratio) in ratios.as_array().unwrap().iter().enumerate() {
            let ratio = ratio.as_f64().unwrap();
            assert!(if row == column { ratio == 1.0 } else { ratio > 0.999 }, "{row} {column}: {ratio}");
        }
    }
    assert!(said.contains("splitting") && said.contains("data-mining 0.8"), "{said}");
    let again = results(&mix).1;
    let thresholds = |run: &Value| choice(&run["traffics"][3], "optimised")["splitting_bytes"].clone();
    assert_eq!(thresholds(&written).as_array().unwrap().len(), 6);
    assert_eq!(thresholds(&again), thresholds(&written));
}

#[test]
fn bursts_of_flows_with_a_deadline_delay_others_by_their_size() {
    let bursts =
        ["--cdf", "web-search", "--load", "0.5", "--queues", "3", "--mix", "deadline=0.2", "--bursts"];
    let mean = |more: &[&str]| {
        let (said, written) = results(&[&bursts[..], more].concat());
        (said, choice(&written["traffics"][0], "optimised")["mean_fct_s"].as_f64().unwrap())
    };
    let ((_, as_others), (said, small)) = (mean(&[]), mean(&["--deadline-size", "80kB"]));
    assert!(small < 0.9 * as_others && said.contains("in bursts of 80.0 kB"), "{small} {as_others} {said}");
}

#[test]
fn bad_input_is_refused_in_one_line_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let bad = folder.path().join("bad.cdf");
    std::fs::write(&bad, "0 0\n100 0.5\n").unwrap();
    let json = folder.path().join("out.json");
    let json = json.to_str().unwrap();
    for (arguments, wanted) in [
        (vec!["--cdf", "no-such", "--load", "0.8"], "no-such: neither a file that can be read"),
        (vec!["--cdf", bad.to_str().unwrap(), "--load", "0.8"], "bad.cdf: line 2, column 1: the table ends"),
        (vec!["--cdf", "web-search", "--load", "0.5,1"], "the load is 1: it must be above 0 and below 1"),
        (vec!["--cdf", "web-search", "--load", "-1"], "the load is -1"),
        (vec!["--cdf", "web-search", "--load", "0.5", "--mix", "deadline=1"], "all bytes are of flows"),
        (vec!["--cdf", "web-search", "--load", "0.5", "--mix", "known=3"], "`known=3` has no share"),
        (vec!["--cdf", "web-search", "--load", "0.5", "--queues", "0"], "--queues"),
        (
            vec!["--cdf", "web-search", "--load", "0.5", "--queues", "1", "--mix", "deadline=0.1"],
            "the others need one too",
        ),
        (vec!["--cdf", "web-search", "--load", "0.6", "--against", "pias"], "for web-search at load 0.6"),
        (
            vec!["--cdf", "web-search", "--load", "0.5", "--queues", "4", "--against", "pias"],
            "its thresholds are for --queues 8",
        ),
        (vec!["--load", "0.5"], "--cdf"),
        (vec!["--cdf", "web-search", "--load", "0.5", "--deadline-size", "80kB"], "--bursts"),
        (
            vec!["--cdf", "web-search", "--load", "0.5", "--bursts", "--deadline-size", "0B"],
            "have a size of 0",
        ),
    ] {
        let said = refused(&[&arguments[..], &["--json", json]].concat());
        assert!(said.contains(wanted), "{arguments:?}: {said}");
        assert!(!std::path::Path::new(json).exists(), "{arguments:?}");
    }
}
