//! Measurements of the running system: short ones, that they measure at all.

#[path = "support/command.rs"]
mod command;

use command::{refused, succeed};
use serde_json::Value;

#[test]
fn a_slow_reader_is_measured_beside_another_one() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("slow.json");
    let arguments = ["bench", "slow-reader", "--policy", "fifo", "--reader-rates", "0", "--seconds", "0.5"];
    let said = succeed(&[&arguments[..], &["--json", json.to_str().unwrap()]].concat());
    assert!(
        said.contains("beside a stopped one") && said.contains("under fifo, beside a stopped one"),
        "{said}"
    );
    let report: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let row = &report["rows"][0];
    let (alone, beside) = (&row["alone_bytes_per_s"], &row["beside"][0]);
    // 100 Mbit/s are no more than 12.5 MB/s, and something moves.
    for rate in [alone, &beside["bytes_per_s"]] {
        assert!((1e5..15e6).contains(&rate.as_f64().unwrap()), "{report}");
    }
    let ratio = beside["bytes_per_s"].as_f64().unwrap() / alone.as_f64().unwrap();
    assert!((beside["ratio"].as_f64().unwrap() - ratio).abs() < 1e-9);
}

#[test]
fn restarts_are_measured_until_everything_is_known_again() {
    let small =
        "bench restart --agents 3 --coflows 50 --blocks 90 --flows 3 --rounds 1 --kill both --holders 2";
    let said = succeed(&small.split(' ').collect::<Vec<_>>());
    for part in
        ["50 coflows registered", "90 blocks put", "restart 1", "attached ", "all coflows unregistered"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("never"), "{said}");
}

#[test]
fn policies_take_turns_and_sizes_are_known_again() {
    let small = "bench restart --agents 3 --coflows 20 --blocks 30 --flows 3 --rounds 4 --kill nobody --policy varys,dclas";
    let said = succeed(&small.split(' ').collect::<Vec<_>>());
    for part in
        ["change 1      to dclas, in force", "change 4      to varys, in force", "all coflows unregistered"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    // Two changes lead to D-CLAS, which knows none.
    assert_eq!(said.matches("sizes known never").count(), 2, "{said}");
}

#[test]
fn a_cluster_whose_hosts_come_and_go_all_the_time_loses_no_byte() {
    let said = succeed(&["bench", "churn", "--agents", "10", "--seconds", "8", "--every", "150"]);
    assert!(said.contains("wrong, lost or hanging: 0"), "{said}");
    let number = |what: &str| -> f64 {
        let words: Vec<&str> = said.split([' ', '\n']).collect();
        let at = words.windows(2).position(|two| two[1].trim_end_matches([',', ';']) == what);
        at.and_then(|at| words[at].parse().ok()).unwrap_or_else(|| panic!("{what}: {said}"))
    };
    assert!(number("gets") > 20.0 && number("killed") > 2.0, "{said}");
}

#[test]
fn a_peer_at_its_worst_is_measured_beside_none() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("worst.json");
    let arguments = ["bench", "worst-peer", "--coflows", "20", "--seconds", "0.5"];
    let said = succeed(&[&arguments[..], &["--json", json.to_str().unwrap()]].concat());
    let report: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 5, "{said}");
    for row in rows {
        let number = |name: &str| row[name].as_f64().unwrap();
        assert!(number("calls") > 0.0 && number("call_p50_ms") > 0.0, "{row}");
        assert!(number("call_p50_ms") <= number("call_p95_ms"), "{row}");
        assert!(number("call_p95_ms") <= number("call_max_ms"), "{row}");
        assert!(said.contains(row["peer"].as_str().unwrap()), "{said}");
    }
}

#[test]
fn measurements_that_cannot_be_are_refused() {
    assert!(refused(&["bench", "slow-reader", "--policy", "nobody"]).contains("--policy"));
    assert!(refused(&["bench", "slow-reader", "--seconds", "0"]).contains("--seconds"));
    assert!(refused(&["bench", "worst-peer", "--seconds", "0"]).contains("--seconds"));
    assert!(refused(&["bench", "restart", "--flows", "9", "--coflows", "8"]).contains("--flows 9"));
    assert!(refused(&["bench", "restart", "--agents", "2", "--holders", "3"]).contains("--holders 3"));
    let many = ["bench", "restart", "--agents", "2", "--blocks", "2000001", "--flows", "0"];
    assert!(refused(&many).contains("--blocks 2000001"));
}
