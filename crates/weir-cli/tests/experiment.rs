//! `weir experiment`: what the folder holds is what the code gives.

use std::path::Path;
use std::process::{Command, Output};

fn weir(arguments: &[&str]) -> Output {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    Command::new(env!("CARGO_BIN_EXE_weir"))
        .current_dir(workspace)
        .args(arguments)
        .output()
        .expect("weir runs")
}

#[test]
fn a_small_experiment_is_rebuilt_to_the_digit() {
    let output = weir(&["experiment", "run", "small", "--check"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn other_numbers_in_the_folder_are_noticed() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/small");
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("small");
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::copy(source.join("experiment.toml"), folder.join("experiment.toml")).expect("a copy");
    let numbers = std::fs::read_to_string(source.join("synthetic-fb2010.json")).expect("the numbers");
    let changed = numbers.replacen("\"factor avg\": 1.0", "\"factor avg\": 1.1", 1);
    assert_ne!(numbers, changed);
    std::fs::write(folder.join("synthetic-fb2010.json"), changed).expect("a file");
    let output =
        weir(&["experiment", "run", "small", "--check", "--dir", dir.path().to_str().expect("a path")]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("results differ from those in the folder: small"), "{said}");
}

#[test]
fn every_experiment_can_be_read_and_is_listed() {
    let output = weir(&["experiment", "list"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    for entry in std::fs::read_dir(folder).expect("the experiments") {
        let name = entry.expect("a folder").file_name().to_string_lossy().into_owned();
        assert!(said.contains(&name), "{name}: {said}");
    }
}

#[test]
fn an_unknown_name_is_answered_with_the_known_ones() {
    let output = weir(&["experiment", "run", "smal"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("no experiment `smal`") && said.contains("small"), "{said}");
}
