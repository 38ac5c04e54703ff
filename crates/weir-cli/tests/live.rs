//! `weir live` on the golden scenarios: real bytes over shaped links (or over loopback, where namespaces are
//! not allowed), under the policy that the simulator runs. Nothing here depends on how fast the machine is.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// A shaped link lets this much time's worth of bytes pass at once after a pause.
const BURST_S: f64 = 0.002;

/// Runs a scenario under `varys` and returns its results.
fn live(name: &str) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("live.json");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios").join(format!("{name}.toml"));
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["live", "--policy", "varys", "--scenario"])
        .arg(file)
        .arg("--json")
        .arg(&json)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {said}");
    serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap()
}

#[test]
fn golden_scenarios_move_their_bytes_and_no_coflow_beats_its_isolation_time() {
    for (name, coflows) in [
        ("varys-figure-2", 2),
        ("varys-figure-5", 2),
        ("varys-figure-15", 3),
        ("varys-figure-16", 2),
        ("talk-one-shuffle", 1),
        ("talk-two-coflows", 2),
        ("talk-orders", 3),
    ] {
        let results = live(name);
        let runs = results["runs"].as_array().unwrap();
        let of_mode = |mode: &str| {
            let run = runs.iter().find(|run| run["mode"] == mode).unwrap_or_else(|| panic!("{name}: {mode}"));
            run["coflows"].as_array().unwrap().clone()
        };
        let (live, simulated) = (of_mode("live"), of_mode("simulated"));
        assert_eq!((live.len(), simulated.len()), (coflows, coflows), "{name}");
        for (measured, exact) in live.iter().zip(&simulated) {
            assert_eq!(measured["bytes"], exact["bytes"], "{name}");
            let (cct, isolation) =
                (measured["cct_s"].as_f64().unwrap(), exact["isolation_s"].as_f64().unwrap());
            assert!(cct >= isolation - BURST_S, "{name}: {cct} s, alone on its links {isolation} s");
        }
    }
}
