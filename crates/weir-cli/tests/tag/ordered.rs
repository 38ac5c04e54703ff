//! `weir live --policy by-class`: coflows whose packets have the class of their place in the order, and no rates.

use super::{complaint, weir};
use std::path::Path;

/// The second coflow and the third share a sender, and have 3 MB each: one goes after the other, or both as equals.
pub(super) fn one_after_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("results.json");
    let scenario = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/classes-of-priority.toml");
    let words =
        ["live", "--policy", "by-class", "--link-rate", "40mbit", "--scenario", scenario.to_str().unwrap()];
    let output = weir(&[&words[..], &["--json", json.to_str().unwrap()]].concat());
    let said = complaint(&output);
    if said.contains("no network namespaces") || said.contains("no right") {
        assert!(std::env::var_os("CI").is_none(), "on CI nothing is skipped: {said}");
        return eprintln!("SKIPPED coflows_go_by_order_alone_one_after_the_other: {said}");
    }
    assert!(output.status.success(), "{said}");
    let results: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let runs = results["runs"].as_array().unwrap();
    let live = runs.iter().find(|run| run["mode"] == "live").unwrap();
    let seconds = |id: u64| {
        let coflows = live["coflows"].as_array().unwrap();
        coflows.iter().find(|coflow| coflow["id"] == id).unwrap()["cct_s"].as_f64().unwrap()
    };
    // 4 units and 7 as planned, whichever was asked for first; 7 and 7 without classes.
    let (first, last) = (seconds(2).min(seconds(3)), seconds(2).max(seconds(3)));
    assert!(first < 0.8 * last, "{first} and {last} s");
}
