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

#[test]
fn the_document_has_every_field_that_is_written_and_no_other() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let dir = tempfile::tempdir().expect("a folder");
    let (trace, out) = (dir.path().join("t.txt"), dir.path().join("out.json"));
    // A job of two stages, so that there are jobs.
    let text =
        "weir-trace 1\nhosts 2\njob 1 0\nstage 1\nflow 0 1 1000\nstage 2 after=0\nflow 1 0 1000\nend 1\n";
    std::fs::write(&trace, text).expect("a trace");
    let status = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["sim", "--policy", "fair", "--trace"])
        .arg(&trace)
        .arg("--json")
        .arg(&out)
        .output()
        .expect("weir runs");
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
    let document = std::fs::read_to_string(workspace.join("docs/json.md")).expect("the document");
    let results: Value = serde_json::from_slice(&std::fs::read(&out).expect("results")).expect("JSON");
    let run = &results["runs"][0];
    for (heading, object) in [
        ("| field | type", &results),
        ("| field of `made_by`", &results["made_by"]),
        ("| field of a run", run),
        ("| field of `summary`", &run["summary"]),
        ("| field of a coflow", &run["coflows"][0]),
        ("| field of a job", &run["jobs"][0]),
    ] {
        assert_eq!(documented(&document, heading), written(object), "{heading}");
    }
    let command = results["made_by"]["command"].as_array().expect("a list");
    assert_eq!(command[..3], ["sim", "--policy", "fair"].map(Value::from));
    assert!(!results["made_by"]["commit"].as_str().expect("text").is_empty());
}
