//! `weir experiment`: what the folder holds is what the code gives.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn weir(arguments: &[&str]) -> Output {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    Command::new(env!("CARGO_BIN_EXE_weir"))
        .current_dir(workspace)
        .args(arguments)
        .output()
        .expect("weir runs")
}

/// The experiments of this repository.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments")
}

#[test]
fn a_small_experiment_is_rebuilt_to_the_digit() {
    let output = weir(&["experiment", "run", "small", "--check"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn other_numbers_in_the_folder_are_noticed() {
    let dir = copy_of("small");
    let file = dir.path().join("small/synthetic-fb2010.json");
    let numbers = std::fs::read_to_string(&file).expect("the numbers");
    let changed = numbers.replacen("\"factor avg\": 1.0", "\"factor avg\": 1.1", 1);
    assert_ne!(numbers, changed);
    std::fs::write(&file, changed).expect("a file");
    let output =
        weir(&["experiment", "run", "small", "--check", "--dir", dir.path().to_str().expect("a path")]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    // Which number, with both values: experiment, row, column.
    let named = "weir: small: point as it is, varys, factor avg: stored 1.1, computed 1";
    assert!(said.contains(named), "{said}");
    assert!(said.contains("results differ from those in the folder: small (1 in"), "{said}");
}

/// A copy of the folder of an experiment, in one of its own.
fn copy_of(name: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    let (from, to) = (folder().join(name), dir.path().join(name));
    std::fs::create_dir(&to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("an experiment") {
        let entry = entry.expect("a file");
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("a copy");
    }
    dir
}

fn redraw(dir: &tempfile::TempDir, name: &str) -> Output {
    weir(&["experiment", "run", name, "--redraw", "--dir", dir.path().to_str().expect("a path")])
}

#[test]
fn pages_are_those_of_the_numbers_and_these_of_the_settings() {
    for experiment in std::fs::read_dir(folder()).expect("the experiments") {
        let name = experiment.expect("a folder").file_name().to_string_lossy().into_owned();
        let dir = copy_of(&name);
        let output = redraw(&dir, &name);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // What was drawn is in the folder, and the same.
        for entry in std::fs::read_dir(dir.path().join(&name)).expect("an experiment") {
            let drawn = entry.expect("a file");
            let file = folder().join(&name).join(drawn.file_name());
            let read = |path: &Path| std::fs::read(path).unwrap_or_default();
            assert!(read(&drawn.path()) == read(&file), "{}: not as --redraw makes it", file.display());
        }
    }
}

#[test]
fn numbers_of_other_settings_are_not_drawn() {
    for (from, to, reason) in [
        ("seeds = [1, 2]", "seeds = [1, 3]", "made with seeds [1, 2], not [1, 3]"),
        ("baseline = \"varys\"", "baseline = \"fair\"", "made with baseline varys, not fair"),
        ("show =", "point = [{ name = \"a\" }]\nshow =", "made of points as it is, not a"),
        ("deadlines = 1.0", "deadlines = 2.0", "point as it is: made with { arrival_scale = 0.001"),
        ("\"fair\", ", "\"fair\", \"fifo\", ", "not varys, varys-deadline, fair, fifo"),
    ] {
        let dir = copy_of("small");
        let file = dir.path().join("small/experiment.toml");
        let text = std::fs::read_to_string(&file).expect("the experiment");
        assert!(text.contains(from), "{from}: {text}");
        std::fs::write(&file, text.replacen(from, to, 1)).expect("a file");
        let output = redraw(&dir, "small");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(reason) && said.contains("makes it anew"), "{said}");
    }
}

#[test]
fn every_experiment_can_be_read_and_is_listed() {
    let output = weir(&["experiment", "list"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for entry in std::fs::read_dir(folder()).expect("the experiments") {
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

#[test]
fn a_run_whose_seeds_change_nothing_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let trace = dir.path().join("t.txt");
    std::fs::write(&trace, "2 1\n1 0 1 0 1 1:1\n").expect("a trace");
    std::fs::create_dir(dir.path().join("mine")).expect("a folder");
    let text = "title = \"t\"\nsource = \"s\"\nwhy = \"w\"\nbaseline = \"fair\"\npolicies = [\"fair\"]\nseeds = [1, 2, 3]\n\
                show = [\"avg\"]\nplot = { measure = \"avg\" }\n";
    std::fs::write(dir.path().join("mine/experiment.toml"), text).expect("an experiment");
    let (dir_name, trace) = (dir.path().to_str().expect("a path"), trace.to_str().expect("a path"));
    let output = weir(&["experiment", "run", "mine", "--dir", dir_name, "--trace", trace]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("mine: point as it is: seeds [1, 2, 3] change nothing"), "{said}");
    assert_eq!(std::fs::read_dir(dir.path().join("mine")).expect("a folder").count(), 1);
}

#[test]
fn a_seed_that_draws_nothing_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let trace = dir.path().join("t.txt");
    std::fs::write(&trace, "2 1\n1 0 1 0 1 1:1\n").expect("a trace");
    let trace = trace.to_str().expect("a path");
    let run =
        |more: &[&str]| weir(&[&["sim", "--trace", trace, "--policy", "fair", "--seed", "2"], more].concat());
    let output = run(&[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--seed 2 changes nothing"), "{said}");
    assert!(run(&["--deadlines", "1"]).status.success());
}

#[test]
fn a_check_without_stored_numbers_says_so_before_it_computes() {
    let dir = copy_of("small");
    std::fs::remove_file(dir.path().join("small/synthetic-fb2010.json")).expect("the numbers");
    let output =
        weir(&["experiment", "run", "small", "--check", "--dir", dir.path().to_str().expect("a path")]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("small: nothing to check") && said.contains("synthetic-fb2010.json"), "{said}");
    assert_eq!(output.stdout.len(), 0);
}

#[test]
fn results_are_as_new_as_the_policies_and_the_simulators() {
    let output = weir(&["experiment", "probe"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn results_older_than_the_code_are_named() {
    let dir = copy_of("small");
    let file = dir.path().join("small/synthetic-fb2010.json");
    let numbers = std::fs::read_to_string(&file).expect("the numbers");
    let (points, probe) = numbers.split_once("\"probe\"").expect("a probe");
    let changed = probe.replacen("\"avg\": ", "\"avg\": 9", 1);
    assert_ne!(probe, changed);
    std::fs::write(&file, format!("{points}\"probe\"{changed}")).expect("a file");
    let output = weir(&["experiment", "probe", "small", "--dir", dir.path().to_str().expect("a path")]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("results of experiment small on synthetic:fb2010 are older than the code"),
        "{said}"
    );
    assert!(said.contains("avg: stored 9") && said.contains("weir experiment run small"), "{said}");
}

#[test]
fn a_page_that_says_that_it_is_older_than_the_code_has_to_be() {
    let dir = copy_of("small");
    let (toml, numbers) =
        (dir.path().join("small/experiment.toml"), dir.path().join("small/synthetic-fb2010.json"));
    let text = std::fs::read_to_string(&toml).expect("an experiment");
    std::fs::write(&toml, format!("outdated = \"Made before.\"\n{text}")).expect("a file");
    let folder = dir.path().to_str().expect("a path");
    let said = |command: &[&str]| {
        let output = weir(&[command, &["--dir", folder]].concat());
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    // They are as new as the code.
    let (code, words) = said(&["experiment", "probe", "small"]);
    assert!(code == Some(2) && words.contains("take `outdated` out"), "{words}");
    let stored = std::fs::read_to_string(&numbers).expect("the numbers");
    let (points, probe) = stored.split_once("\"probe\"").expect("a probe");
    std::fs::write(&numbers, format!("{points}\"probe\"{}", probe.replacen("\"avg\": ", "\"avg\": 9", 1)))
        .expect("a file");
    let (code, words) = said(&["experiment", "probe", "small"]);
    assert!(code == Some(0) && words.contains("as its page says"), "{words}");
    let (code, words) = said(&["experiment", "probe", "small", "--release"]);
    assert!(code == Some(1) && words.contains("results are older than the code: small"), "{words}");
    let output = weir(&["experiment", "list", "--dir", folder]);
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(listed.contains("older than the code: synthetic:fb2010"), "{listed}");
    assert_eq!(said(&["experiment", "run", "small", "--redraw"]).0, Some(0));
    let page = std::fs::read_to_string(dir.path().join("small/synthetic-fb2010.md")).expect("a page");
    assert!(page.contains("older than the code.** Made before."), "{page}");
    std::fs::write(&numbers, "{").expect("a file");
    let output = weir(&["experiment", "list", "--dir", folder]);
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && listed.contains("synthetic-fb2010.json (unreadable)"), "{listed}");
}
