//! `weir packet` as a user meets it.

use crate::command::{refused, succeed};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn scenario(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/packets").join(name);
    path.to_string_lossy().into_owned()
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

fn in_folder(folder: &tempfile::TempDir, name: &str) -> (PathBuf, String) {
    let path = folder.path().join(name);
    let text = path.to_string_lossy().into_owned();
    (path, text)
}

#[test]
fn every_scenario_runs_and_its_flows_are_told_one_by_one() {
    let folder = folder();
    let (path, json) = in_folder(&folder, "out.json");
    for (name, flows) in
        [("four-flows.toml", None), ("sixteen-hosts.toml", Some("200")), ("leaf-spine.toml", Some("200"))]
    {
        let scenario = scenario(name);
        let mut arguments =
            vec!["packet", "--scenario", &scenario, "--transport", "dctcp,karuna", "--json", &json];
        arguments.extend(flows.iter().flat_map(|flows| ["--flows", flows]));
        let shown = succeed(&arguments);
        assert!(shown.contains("karuna") && shown.contains("packet-hops"), "{shown}");
        let results: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(results["schema"], 1);
        let runs = results["runs"].as_array().unwrap();
        assert_eq!(runs.len(), 2);
        for run in runs {
            let flows = run["flows"].as_array().unwrap();
            assert_eq!(run["summary"]["finished"].as_u64().unwrap(), flows.len() as u64);
            for flow in flows {
                // Nobody is faster than alone.
                assert!(flow["fct_s"].as_f64() >= flow["ideal_s"].as_f64(), "{flow}");
                assert_eq!(flow["met"].is_boolean(), flow["kind"] == "deadline", "{flow}");
            }
        }
    }
}

#[test]
fn the_same_run_gives_the_same_flows() {
    let folder = folder();
    let (path, json) = in_folder(&folder, "out.json");
    let scenario = scenario("sixteen-hosts.toml");
    let flows = |seed: &str| {
        succeed(&[
            "packet",
            "--scenario",
            &scenario,
            "--transport",
            "karuna",
            "--flows",
            "100",
            "--seed",
            seed,
            "--json",
            &json,
        ]);
        let results: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        results["runs"][0]["flows"].clone()
    };
    let first = flows("3");
    assert_eq!(first, flows("3"));
    assert_ne!(first, flows("4"));
}

#[test]
fn series_and_captures_hold_what_moved() {
    let folder = folder();
    let ((series, series_name), (capture, capture_name)) =
        (in_folder(&folder, "s.csv"), in_folder(&folder, "p.pcap"));
    succeed(&[
        "packet",
        "--scenario",
        &scenario("four-flows.toml"),
        "--transport",
        "karuna",
        "--series",
        &series_name,
        "--every",
        "5ms",
        "--pcap",
        &capture_name,
        "--pcap-port",
        "11",
    ]);
    let table = std::fs::read_to_string(series).unwrap();
    assert!(table.starts_with("time_s,what,number,value\n"));
    let received: f64 =
        table.lines().filter_map(|line| line.split_once(",flow,0,")?.1.parse::<f64>().ok()).sum();
    // All of the first flow: 14.4 Mbit.
    assert_eq!(received, 1_800_000.0);
    // 125 ms at 1 Gbit/s are 10,416 full packets; a packet has 16 bytes of record and 40 of headers, the file a head.
    let bytes = std::fs::metadata(capture).unwrap().len();
    assert!((0.9..1.0).contains(&(bytes as f64 / (24.0 + 10_416.0 * 56.0))), "{bytes}");
}

/// The second begins first.
#[test]
fn flows_are_numbered_as_the_file_lists_them_in_every_output() {
    let folder = folder();
    let (path, scenario) = in_folder(&folder, "s.toml");
    let text = "name = \"s\"\n[network]\ntopology = \"single-switch\"\nhosts = 3\nrate = \"1gbit\"\n\
                [[flow]]\nsource = 0\ndestination = 2\nsize = \"100kB\"\nat = \"5ms\"\n\
                [[flow]]\nsource = 1\ndestination = 2\nsize = \"200kB\"\n";
    std::fs::write(path, text).unwrap();
    let ((json, json_name), (csv, csv_name)) = (in_folder(&folder, "o.json"), in_folder(&folder, "o.csv"));
    let ((series, series_name), (report, report_name)) =
        (in_folder(&folder, "s.csv"), in_folder(&folder, "r.html"));
    let run = ["packet", "--scenario", &scenario, "--transport", "dctcp"];
    succeed(&[&run[..], &["--json", &json_name, "--csv", &csv_name, "--report", &report_name]].concat());
    succeed(&[&run[..], &["--series", &series_name]].concat());
    let results: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    for flow in results["runs"][0]["flows"].as_array().unwrap() {
        let bytes = if flow["id"] == 0 { 100_000 } else { 200_000 };
        assert_eq!((&flow["bytes"], &flow["source"]), (&bytes.into(), &flow["id"]), "{flow}");
    }
    let csv = std::fs::read_to_string(csv).unwrap();
    assert!(csv.contains("dctcp,0,0.005,0,2,100000,") && csv.contains("dctcp,1,0.0,1,2,200000,"), "{csv}");
    let series = std::fs::read_to_string(series).unwrap();
    let received = |flow: &str| -> f64 {
        let of = |line: &str| line.split_once(&format!(",flow,{flow},"))?.1.parse::<f64>().ok();
        series.lines().filter_map(of).sum()
    };
    assert_eq!((received("0"), received("1")), (100_000.0, 200_000.0));
    let report = std::fs::read_to_string(report).unwrap();
    assert!(report.contains("flow 0: 0 to 2") && report.contains("flow 1: 1 to 2"));
}

#[test]
fn transports_are_listed() {
    let shown = succeed(&["policies"]);
    for name in ["tcp", "dctcp", "d2tcp", "d3", "pfabric", "pfabric-edf", "pias", "karuna"] {
        assert!(
            shown.lines().any(|line| line.trim_start().starts_with(&format!("{name} "))),
            "{name}: {shown}"
        );
    }
}

#[test]
fn what_is_wrong_is_told_in_a_line() {
    let four = scenario("four-flows.toml");
    let with = |more: &[&str]| {
        let mut arguments = vec!["packet", "--scenario", &four];
        arguments.extend(more);
        refused(&arguments)
    };
    assert!(with(&["--transport", "quic"]).contains("no transport is called `quic`; there are tcp"));
    assert!(with(&["--transport", "dctcp:gain=7"]).contains("gain"));
    assert!(
        with(&["--transport", "dctcp:colour=red"]).contains("there is no setting `colour`; there are: init")
    );
    assert!(with(&["--transport", "dctcp", "--load", "0.5"]).contains("--load"));
    assert!(with(&["--transport", "dctcp,tcp", "--pcap", "/tmp/x.pcap"]).contains("one transport"));
    assert!(with(&["--transport", "dctcp", "--json", "/nowhere/x.json"]).contains("--json"));
    assert!(
        refused(&["packet", "--scenario", "/nowhere.toml", "--transport", "tcp"]).contains("/nowhere.toml")
    );
    let leaf = scenario("leaf-spine.toml");
    assert!(
        refused(&["packet", "--scenario", &leaf, "--transport", "tcp", "--load", "-1"])
            .contains("the load is -1")
    );
}

#[test]
fn the_page_shows_deadlines_where_flows_have_them_and_what_made_it() {
    let folder = folder();
    let (path, report) = in_folder(&folder, "out.html");
    let (leaf, four) = (scenario("leaf-spine.toml"), scenario("four-flows.toml"));
    for (scenario, flows) in [(&leaf, &["--flows", "100", "--seed", "5"][..]), (&four, &[][..])] {
        let run = ["packet", "--scenario", scenario, "--transport", "dctcp,karuna", "--report", &report];
        succeed(&[&run[..], flows].concat());
        let page = std::fs::read_to_string(&path).unwrap();
        assert!(page.contains("<h2>Deadlines</h2>"), "{scenario}");
        assert!(page.contains("completion time over deadline (ratio, logarithmic)"), "{scenario}");
        assert_eq!(page.contains(", seed 5 (version"), !flows.is_empty(), "{scenario}");
        assert!(page.contains("Made by: weir packet --scenario "), "{scenario}");
    }
    // Two of the four are late under dctcp, and none under karuna.
    let page = std::fs::read_to_string(&path).unwrap();
    assert!(
        page.contains(">2 met, 2 missed, 0 infeasible") && page.contains(">4 met, 0 missed, 0 infeasible")
    );
}

#[test]
fn averages_over_no_flow_are_null() {
    let folder = folder();
    let (path, file) = in_folder(&folder, "s.toml");
    let (out, json) = in_folder(&folder, "out.json");
    let network = "[network]\ntopology = \"single-switch\"\nhosts = 2\nrate = \"1gbit\"\n";
    let flow = "[[flow]]\nsource = 0\ndestination = 1\nsize = \"10kB\"\ndeadline = \"20ms\"\n";
    std::fs::write(&path, format!("name = \"one\"\n{network}{flow}")).unwrap();
    succeed(&["packet", "--scenario", &file, "--transport", "dctcp", "--json", &json]);
    let results: Value = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
    let summary = &results["runs"][0]["summary"];
    assert!(summary["with_deadline"]["avg_fct_s"].as_f64() > Some(0.0));
    for empty in [&summary["without_deadline"], &summary["by_size"]["large"]] {
        assert_eq!(empty["flows"], 0);
        for field in ["avg_fct_s", "p95_fct_s", "p99_fct_s", "avg_slowdown"] {
            assert!(empty[field].is_null(), "{field}: {empty}");
        }
    }
}

#[test]
fn the_table_of_flows_has_what_json_has() {
    let folder = folder();
    let (out, json) = in_folder(&folder, "out.json");
    let (table, csv) = in_folder(&folder, "out.csv");
    let scenario = scenario("four-flows.toml");
    succeed(&[
        "packet",
        "--scenario",
        &scenario,
        "--transport",
        "dctcp,karuna",
        "--json",
        &json,
        "--csv",
        &csv,
    ]);
    let results: Value = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
    let text = std::fs::read_to_string(&table).unwrap();
    let mut lines = text.lines();
    let columns: Vec<&str> = lines.next().unwrap().split(',').collect();
    for (number, run) in (1..).zip(results["runs"].as_array().unwrap()) {
        for flow in run["flows"].as_array().unwrap() {
            let flow = flow.as_object().unwrap();
            assert!(flow.keys().all(|key| columns.contains(&key.as_str())), "{flow:?}");
            let cells = lines.next().unwrap().split(',');
            for (column, cell) in columns.iter().zip(cells) {
                let expected = match *column {
                    "run" => number.to_string(),
                    "transport" => run["transport"].as_str().unwrap().to_owned(),
                    column => match flow.get(column) {
                        None => String::new(),
                        Some(Value::String(text)) => text.clone(),
                        Some(value) => value.to_string(),
                    },
                };
                assert_eq!(cell, expected, "{column}");
            }
        }
    }
    assert_eq!(lines.next(), None);
}
