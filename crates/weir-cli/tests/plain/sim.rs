//! `weir sim`, `weir trace` and `weir policies` as a user meets them.

use crate::command::{refused, succeed, weir};
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};

fn scenarios() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

#[test]
fn every_scenario_gives_what_it_expects() {
    let files: Vec<PathBuf> = std::fs::read_dir(scenarios())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    assert!(files.len() >= 9, "{files:?}");
    for file in files {
        for rate in ["1gbit", "100mbit"] {
            let said = succeed(&["sim", "--link-rate", rate, "--scenario", file.to_str().unwrap()]);
            assert!(said.contains("ok") && !said.contains("DIFFERS"), "{}: {said}", file.display());
        }
    }
}

#[test]
fn a_scenario_in_which_capacities_change_is_not_run_live() {
    let file = scenarios().join("site-link-halves.toml");
    let said = refused(&["live", "--scenario", file.to_str().unwrap()]);
    assert!(
        said.contains("site-link-halves: capacities of its links change, which only a simulation"),
        "{said}"
    );
}

#[test]
fn a_scenario_with_a_wrong_expectation_exits_with_1() {
    let dir = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(scenarios().join("varys-figure-16.toml")).unwrap();
    let wrong = dir.path().join("wrong.toml");
    std::fs::write(&wrong, text.replacen("1 = 2", "1 = 3", 1)).unwrap();
    let output = weir(&["sim", "--scenario", wrong.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("DIFFERS"));
}

#[test]
fn results_have_the_documented_fields() {
    let dir = tempfile::tempdir().unwrap();
    let (json, report) = (dir.path().join("out.json"), dir.path().join("out.html"));
    let trace = "synthetic:fb2010,hosts=20,coflows=40,seconds=60";
    let said = succeed(&[
        "sim",
        "--trace",
        trace,
        "--policy",
        "fair,varys",
        "--seed",
        "3",
        "--json",
        json.to_str().unwrap(),
        "--report",
        report.to_str().unwrap(),
    ]);
    assert!(said.contains("avg CCT s") && said.contains("varys"), "{said}");
    let results: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!((&results["schema"], &results["link_rate_bps"]), (&1.into(), &1_000_000_000.into()));
    assert_eq!(results["trace"], trace);
    let run = &results["runs"][1];
    assert_eq!((&run["policy"], &run["mode"]), (&"varys".into(), &"simulated".into()));
    let keys = |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    let mut summary = keys(&run["summary"]);
    summary.sort();
    assert_eq!(
        summary,
        [
            "admitted",
            "admitted_late",
            "avg_cct_s",
            "avg_slowdown",
            "coflows",
            "cpu_s",
            "deadlines_met",
            "makespan_s",
            "p50_cct_s",
            "p95_cct_s",
            "p99_cct_s"
        ]
    );
    let rows = run["coflows"].as_array().unwrap();
    assert_eq!(rows.len(), 40);
    for row in rows {
        assert!(row["cct_s"].as_f64() >= row["isolation_s"].as_f64(), "{row}");
    }
    let page = std::fs::read_to_string(&report).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("Link use over time"));
}

#[test]
fn a_seed_reproduces_a_run_to_the_byte() {
    let dir = tempfile::tempdir().unwrap();
    let results = |name: &str, seed: &str| -> Value {
        let path = dir.path().join(name);
        let trace = "synthetic:fb2010,hosts=10,coflows=30,seconds=20";
        let path = path.to_str().unwrap();
        succeed(&["sim", "--trace", trace, "--policy", "varys", "--seed", seed, "--json", path]);
        let mut results: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        results["runs"][0]["summary"]["cpu_s"] = Value::Null;
        // The two commands differ in the file that they write.
        results["made_by"]["command"] = Value::Null;
        results["made_by"]["seed"] = Value::Null;
        results
    };
    assert_eq!(results("a", "5"), results("b", "5"));
    assert_ne!(results("a", "5"), results("c", "6"));
}

#[test]
fn drawn_deadlines_are_the_same_for_every_policy_and_kept_by_admission() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.json");
    let trace = "synthetic:fb2010,hosts=10,coflows=60,seconds=20";
    let policies = "fair,varys-deadline";
    let said = succeed(&[
        "sim",
        "--trace",
        trace,
        "--policy",
        policies,
        "--deadlines",
        "1",
        "--json",
        path.to_str().unwrap(),
    ]);
    assert!(said.contains("deadlines met") && said.contains("admitted"), "{said}");
    let results: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let [fair, deadline] = [0, 1].map(|run| &results["runs"][run]);
    assert_eq!(
        (&fair["summary"]["admitted"], &deadline["summary"]["admitted_late"]),
        (&60.into(), &0.into())
    );
    assert_eq!(deadline["summary"]["deadlines_met"], deadline["summary"]["admitted"]);
    assert!(deadline["summary"]["deadlines_met"].as_u64() > fair["summary"]["deadlines_met"].as_u64());
    for row in deadline["coflows"].as_array().unwrap() {
        assert_eq!(row["cct_s"].is_null(), row["admitted"] == false, "{row}");
        assert_eq!(row["met"], row["admitted"], "{row}");
    }
}

#[test]
fn bad_input_gets_one_line_and_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out.json");
    let broken = dir.path().join("broken.txt");
    std::fs::write(&broken, "4 1\n1 0 1 9 1 0:1\n").unwrap();
    let (out, broken) = (out.to_str().unwrap(), broken.to_str().unwrap());
    for (arguments, expected) in [
        (
            vec!["--trace", broken, "--policy", "fair"],
            "line 2, column 7: a mapper's port is `9`, more than 3",
        ),
        (vec!["--trace", "/no/such", "--policy", "fair"], "--trace /no/such: No such file"),
        (vec!["--trace", "synthetic:nothing", "--policy", "fair"], "known: fb2010"),
        (
            vec!["--trace", "synthetic:fb2010", "--policy", "fairy"],
            "`fairy`; did you mean `fair`? known: baraat, ",
        ),
        (vec!["--trace", "synthetic:fb2010", "--policy", "fair", "--link-rate", "9"], "'9' for '--link-rate"),
        (vec!["--trace", "synthetic:fb2010", "--policy", "fair", "--arrival-scale", "-1"], "--arrival-scale"),
        (vec!["--trace", "synthetic:fb2010", "--policy", "fair", "--deadlines", "-1"], "--deadlines -1 is"),
        (
            vec!["--trace", "synthetic:fb2010", "--policy", "fair", "--report", "/no/such/x"],
            "--report /no/such/x",
        ),
        (vec!["--scenario", broken], "broken.txt: line 1: "),
        (vec!["--policy", "fair"], "--trace"),
        (vec!["--speed", "9"], "unexpected argument '--speed'"),
    ] {
        let said = refused(&[&["sim", "--json", out], arguments.as_slice()].concat());
        assert!(said.starts_with("weir: ") && said.contains(expected), "{said}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "only the broken file is there");
}

#[test]
fn traces_convert_there_and_back() {
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let original = "5 2\n1 0 2 0 3 2 1:3.0 3:1.5\n2 20 3 0 1 2 1 3:1.0\n";
    std::fs::write(place("a.txt"), original).unwrap();
    succeed(&["trace", "convert", &place("a.txt"), &place("b.weir")]);
    assert!(std::fs::read_to_string(place("b.weir")).unwrap().starts_with("weir-trace 1\n"));
    succeed(&["trace", "convert", "--to", "coflow-benchmark", &place("b.weir"), &place("c.txt")]);
    assert_eq!(std::fs::read_to_string(place("c.txt")).unwrap(), original);
    let coflows = "--coflows";
    succeed(&["trace", "generate", "fb2010", "--hosts", "9", coflows, "20", "--out", &place("d.weir")]);
    // Skewed flows have no place in the other format; half a file is not left behind.
    let said = refused(&["trace", "convert", "--to", "coflow-benchmark", &place("d.weir"), &place("e.txt")]);
    assert!(said.contains("not a full shuffle"), "{said}");
    assert!(!Path::new(&place("e.txt")).exists());
    let said = succeed(&["trace", "stats", "--trace", &place("d.weir")]);
    assert!(said.contains("52.0 % / 0.01 %") && said.contains("synthetic"), "{said}");
}

#[test]
fn policies_are_listed_with_their_papers() {
    let said = succeed(&["policies"]);
    for name in ["fair", "fifo", "varys", "SIGCOMM 2014"] {
        assert!(said.contains(name), "{said}");
    }
}

#[test]
fn facebook_trace_gives_the_known_averages() {
    let Ok(trace) = weir_trace::find_public_trace() else {
        // Not `eprintln`, which the harness hides where a test passes.
        let said = "SKIPPED: the public Facebook trace is not here; set WEIR_TRACE_DIR to its folder";
        writeln!(std::io::stderr(), "{said}").unwrap();
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out.json");
    let (trace, out) = (trace.to_str().unwrap(), out.to_str().unwrap());
    succeed(&["sim", "--trace", trace, "--policy", "fair,varys", "--json", out]);
    let results: Value = serde_json::from_slice(&std::fs::read(out).unwrap()).unwrap();
    for (run, expected) in [(0, 64.63), (1, 23.63)] {
        let average = results["runs"][run]["summary"]["avg_cct_s"].as_f64().unwrap();
        assert!((average / expected - 1.0).abs() < 0.002, "{average}, expected {expected}");
    }
}

#[test]
fn tables_have_the_rows_of_json_under_every_policy() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    let trace = "synthetic:fb2010,hosts=10,coflows=20,seconds=20";
    let run = ["sim", "--trace", trace, "--policy", "varys-deadline,fifo", "--deadlines", "0.5"];
    succeed(&[&run[..], &["--json", &path("out.json"), "--csv", &path("out.csv"), "--flows"]].concat());
    let read = |name: &str| std::fs::read_to_string(path(name)).unwrap();
    let results: Value = serde_json::from_str(&read("out.json")).unwrap();
    for (file, rows) in [("out.csv", "coflows"), ("out.flows.csv", "flows")] {
        let table = read(file);
        let mut lines = table.lines();
        let columns: Vec<&str> = lines.next().unwrap().split(',').collect();
        let of = |name: &str| columns.iter().position(|column| *column == name).unwrap();
        for (number, run) in (1..).zip(results["runs"].as_array().unwrap()) {
            for row in run[rows].as_array().unwrap() {
                let cells: Vec<&str> = lines.next().unwrap().split(',').collect();
                assert_eq!(
                    (cells[0], cells[1]),
                    (number.to_string().as_str(), run["policy"].as_str().unwrap())
                );
                for (field, value) in row.as_object().unwrap() {
                    let shown = if value.is_null() { String::new() } else { value.to_string() };
                    assert_eq!(cells[of(field)], shown, "{file}: {field}");
                }
            }
        }
        assert_eq!(lines.next(), None, "{file}");
    }
    // Flows end within their coflow, which ends with the last of them.
    let run = &results["runs"][1];
    for coflow in run["coflows"].as_array().unwrap() {
        let flows = run["flows"].as_array().unwrap().iter().filter(|flow| flow["coflow"] == coflow["id"]);
        let (mut last, mut count) = (0.0, 0);
        for flow in flows {
            let (start, finish) = (flow["start_s"].as_f64().unwrap(), flow["finish_s"].as_f64().unwrap());
            assert!(coflow["arrival_s"].as_f64().unwrap() <= start && start <= finish, "{flow}");
            assert_eq!(flow["deadline_s"], coflow["deadline_s"]);
            last = f64::max(last, finish);
            count += 1;
        }
        let end = coflow["arrival_s"].as_f64().unwrap() + coflow["cct_s"].as_f64().unwrap();
        assert!((last - end).abs() < 1e-9, "{coflow} ends at {last}");
        assert_eq!(coflow["width"], count);
    }
    let made: Value = serde_json::from_str(&read("out.made_by.json")).unwrap();
    assert_eq!((&made["made_by"], &made["made_by"]["seed"]), (&results["made_by"], &1.into()));
}

#[test]
fn flows_without_a_place_to_go_are_refused() {
    let run = ["sim", "--trace", "synthetic:fb2010", "--policy", "fair", "--flows"];
    assert!(refused(&run).contains("--flows writes into the files of --json and --csv: name one of them"));
    let said = refused(&[&run[..], &["--csv", "/dev/null"]].concat());
    assert!(said.contains("--csv /dev/null: is no plain file: --flows needs a place beside it"), "{said}");
}

#[test]
fn a_table_goes_to_a_pipe_alone() {
    let said = succeed(&[
        "sim",
        "--trace",
        "synthetic:fb2010,hosts=5,coflows=3,seconds=2",
        "--policy",
        "fair",
        "--csv",
        "/dev/stdout",
    ]);
    assert!(said.contains("run,policy,mode,id,arrival_s,") && said.contains("1,fair,simulated,"), "{said}");
}
