//! docs/json.md has every field that is written, and no other.

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Names of fields in one table of the document: what stands in backquotes in the first column.
fn documented(document: &str, heading: &str) -> BTreeSet<String> {
    let rows = document.lines().skip_while(|line| !line.starts_with(heading)).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let cells = rows.map(|line| line.split('|').nth(1).unwrap_or_default());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

fn written(value: &Value) -> BTreeSet<String> {
    value.as_object().expect("an object").keys().cloned().collect()
}

#[track_caller]
fn succeed(arguments: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).output().expect("weir runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn document() -> String {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(workspace.join("docs/json.md")).expect("the document")
}

fn parsed(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).expect("results")).expect("JSON")
}

/// A workload with a job of two stages, so that there are jobs.
fn staged(dir: &Path) -> std::path::PathBuf {
    let trace = dir.join("t.txt");
    let text =
        "weir-trace 1\nhosts 2\njob 1 0\nstage 1\nflow 0 1 1000\nstage 2 after=0\nflow 1 0 1000\nend 1\n";
    std::fs::write(&trace, text).expect("a trace");
    trace
}

fn holds_what_is_written<'a>(tables: impl IntoIterator<Item = (&'a str, &'a Value)>) {
    let document = document();
    for (heading, object) in tables {
        assert_eq!(documented(&document, heading), written(object), "{heading}");
    }
}

#[test]
fn the_document_has_every_field_that_is_written_and_no_other() {
    let dir = tempfile::tempdir().expect("a folder");
    let (trace, out) = (staged(dir.path()), dir.path().join("out.json"));
    let paths = [trace, out.clone()].map(|path| path.to_string_lossy().into_owned());
    succeed(&[
        "sim", "--policy", "fair", "--trace", &paths[0], "--json", &paths[1], "--flows", "--count", "9",
    ]);
    let results = parsed(&out);
    let run = &results["runs"][0];
    holds_what_is_written([
        ("| field | type", &results),
        ("| field of `made_by`", &results["made_by"]),
        ("| field of `cut`", &results["cut"]),
        ("| field of a run |", run),
        ("| field of `summary`", &run["summary"]),
        ("| field of a coflow", &run["coflows"][0]),
        ("| field of a job", &run["jobs"][0]),
        ("| field of a flow |", &run["flows"][0]),
    ]);
    let command = results["made_by"]["command"].as_array().expect("a list");
    assert_eq!(command[..3], ["sim", "--policy", "fair"].map(Value::from));
    assert!(!results["made_by"]["commit"].as_str().expect("text").is_empty());
}

#[test]
fn the_document_has_every_field_of_packets_and_who_made_them() {
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("out.json");
    let scenario = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/packets/leaf-spine.toml");
    let [scenario, path] = [&scenario, &out].map(|path| path.to_string_lossy().into_owned());
    let packet = ["packet", "--scenario", &scenario, "--transport", "dctcp", "--flows", "100", "--seed", "5"];
    succeed(&[&packet[..], &["--json", &path]].concat());
    let results = parsed(&out);
    let run = &results["runs"][0];
    let flows = run["flows"].as_array().expect("flows");
    // Of all flows only those with a deadline have all fields.
    let with_deadline = flows.iter().find(|flow| flow["kind"] == "deadline").expect("one with a deadline");
    holds_what_is_written([
        ("| field of packets", &results),
        ("| field of `made_by`", &results["made_by"]),
        ("| field of a run of packets", run),
        ("| field of a summary of packets", &run["summary"]),
        ("| field of completion times", &run["summary"]["with_deadline"]),
        ("| field of a flow of packets", with_deadline),
        ("| field of a port of packets", &run["ports"][0]),
    ]);
    assert_eq!(
        (&results["made_by"]["seed"], &results["made_by"]["command"][0]),
        (&5.into(), &"packet".into())
    );
}

#[test]
fn the_document_has_every_field_of_an_experiment_and_who_made_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let (trace, folder) = (staged(dir.path()), dir.path().join("mine"));
    std::fs::create_dir(&folder).expect("a folder");
    let text = "title = \"t\"\nsource = \"s\"\nwhy = \"w\"\nbaseline = \"fair\"\npolicies = [\"fair\"]\n\
                show = [\"avg\"]\nplot = { measure = \"avg\" }\nseeds = [1, 2]\nsetup = { jitter = 1.0 }\n";
    std::fs::write(folder.join("experiment.toml"), text).expect("an experiment");
    let [trace, dir] = [&trace, &dir.path().to_owned()].map(|path| path.to_string_lossy().into_owned());
    succeed(&["experiment", "run", "mine", "--dir", &dir, "--trace", &trace]);
    let results = parsed(&folder.join("t-txt.json"));
    let documented_only = documented(&document(), "| field of an experiment");
    assert_eq!(documented_only, written(&results));
    let run = &results["points"][0]["policies"][0];
    // Links are counted between sites only.
    let mut fields = written(run);
    fields.insert("links".to_owned());
    assert_eq!(documented(&document(), "| field of a policy of an experiment"), fields);
    // No folder of this machine is in them, in the numbers nor on the page.
    let command = ["experiment", "run", "mine", "--trace", "t.txt"].map(Value::from);
    assert_eq!(results["made_by"]["command"], Value::from(command.to_vec()));
    let page = std::fs::read_to_string(folder.join("t-txt.md")).expect("a page");
    assert!(
        page.contains("Made by: `weir experiment run mine --trace t.txt`, seeds 1, 2 (version "),
        "{page}"
    );
    assert!(!page.contains(&dir));
}
