//! What the documents promise about the code, checked: sizes of files, who depends on whom, links, names.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Longest Rust file in lines.
const MAX_LINES: usize = 600;
/// Folders that hold nothing of ours.
const NOT_OURS: [&str; 3] = ["target", ".git", "out"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Every file of ours with one of these endings, by its path from the root, and its text.
fn files(endings: &[&str]) -> BTreeMap<String, String> {
    let (root, mut found) = (root(), BTreeMap::new());
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && !path.is_symlink() && !NOT_OURS.contains(&name.as_str()) {
                folders.push(path);
            } else if path.is_file() && endings.iter().any(|ending| name.ends_with(ending)) {
                let text = std::fs::read_to_string(&path).unwrap();
                found.insert(path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned(), text);
            }
        }
    }
    found
}

fn document(name: &str) -> String {
    std::fs::read_to_string(root().join("docs").join(name)).unwrap()
}

/// What stands between backticks in a text, code blocks left out.
fn quoted(text: &str) -> BTreeSet<&str> {
    let outside_blocks = text.split("```").step_by(2);
    outside_blocks.flat_map(|part| part.split('`').skip(1).step_by(2)).collect()
}

/// Our crates, and which of ours each uses outside its tests.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]).current_dir(root());
    let output = cargo.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let package = |package: &serde_json::Value| {
        let uses = package["dependencies"].as_array().unwrap().iter();
        let uses = uses.filter(|used| used["kind"].is_null()).map(|used| used["name"].as_str().unwrap());
        let ours = uses.filter(|name| name.starts_with("weir-")).map(str::to_owned).collect();
        (package["name"].as_str().unwrap().to_owned(), ours)
    };
    metadata["packages"].as_array().unwrap().iter().map(package).collect()
}

#[test]
fn rust_files_can_be_held_in_the_head() {
    for (path, text) in files(&[".rs"]) {
        let lines = text.lines().count();
        assert!(lines <= MAX_LINES, "{path} has {lines} lines, more than {MAX_LINES}");
    }
}

#[test]
fn nothing_names_a_folder_of_one_machine() {
    let homes = ["work", "root", "home", "Users"].map(|folder| format!("/{folder}/"));
    for (path, text) in files(&[".rs", ".md", ".toml", ".sh", ".proto", "Makefile", ".ci/run"]) {
        for (number, line) in (1..).zip(text.lines()) {
            let found = homes.iter().find(|home| line.contains(home.as_str()));
            assert!(found.is_none(), "{path}:{number}: {}", line.trim());
        }
    }
}

#[test]
fn crates_use_what_their_table_says_and_nothing_else() {
    let text = document("crates.md");
    let rows = text.lines().filter(|line| line.starts_with("| `weir-"));
    let stated: BTreeMap<String, BTreeSet<String>> = rows
        .map(|row| {
            let cells: Vec<&str> = row.split('|').collect();
            let name = cells[1].trim().trim_matches('`').to_owned();
            (name, quoted(cells[2]).into_iter().map(|used| format!("weir-{used}")).collect())
        })
        .collect();
    assert_eq!(stated, dependencies(), "left docs/crates.md, right the Cargo.toml files");
}

#[test]
fn crates_use_crates_of_lower_rows_of_the_figure_alone() {
    let text = document("ARCHITECTURE.md");
    let words = |line: &str| -> Option<(u32, Vec<String>)> {
        let (row, names) = line.trim().split_once(' ')?;
        let names = names.split('(').next()?.split([' ', ',', '*']).filter(|name| !name.is_empty());
        Some((row.parse().ok()?, names.map(|name| format!("weir-{name}")).collect()))
    };
    let figure = text.split("## Crates").nth(1).and_then(|rest| rest.split("```").nth(1)).expect("a figure");
    let rows = figure.lines().filter_map(words);
    let row_of: BTreeMap<String, u32> =
        rows.flat_map(|(row, names)| names.into_iter().map(move |name| (name, row))).collect();
    let uses = dependencies();
    assert_eq!(row_of.keys().collect::<Vec<_>>(), uses.keys().collect::<Vec<_>>());
    for (name, used) in &uses {
        let above = used.iter().find(|used| row_of[*used] >= row_of[name]);
        assert!(above.is_none(), "{name} uses {above:?}, which is not below it in docs/ARCHITECTURE.md");
    }
}

/// Crates that take more than Rust to build. All others are built by plain `cargo build`.
const NOT_IN_A_PLAIN_BUILD: [&str; 1] = ["crates/weir-ebpf"];

#[test]
fn only_crates_that_take_other_compilers_are_left_out_of_a_plain_build() {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let listed = manifest.split("default-members = [").nth(1).unwrap().split(']').next().unwrap();
    let listed: BTreeSet<&str> = listed.lines().filter_map(|line| line.split('"').nth(1)).collect();
    let crates = dependencies().into_keys().map(|name| format!("crates/{name}"));
    let expected: BTreeSet<String> =
        crates.filter(|path| !NOT_IN_A_PLAIN_BUILD.contains(&path.as_str())).collect();
    assert_eq!(listed, expected.iter().map(String::as_str).collect(), "default-members of Cargo.toml");
}

/// It is no member of the workspace, so that nothing brings its lock file up to date when a crate of ours changes what
/// it uses.
#[test]
fn the_lock_file_of_the_example_holds() {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["tree", "--quiet", "--locked", "--offline"]).current_dir(root().join("examples/policy"));
    let output = cargo.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "`cargo metadata --offline` in examples/policy mends it: {error}");
}

#[test]
fn simulator_and_daemons_do_not_know_each_other() {
    let uses = dependencies();
    for (one, other) in [("weir-sim", "weir-daemon"), ("weir-daemon", "weir-sim")] {
        let (mut reached, mut next) = (BTreeSet::new(), vec![one]);
        while let Some(name) = next.pop() {
            next.extend(uses[name].iter().map(String::as_str).filter(|used| reached.insert(*used)));
        }
        assert!(!reached.contains(other), "{one} uses {other}");
    }
}

#[test]
fn every_bound_of_the_wire_has_its_row() {
    let named = document("bounds.md");
    let limits = std::fs::read_to_string(root().join("crates/weir-proto/src/limits.rs")).unwrap();
    let bounds = limits.lines().filter_map(|line| line.strip_prefix("pub const "));
    for bound in bounds.filter_map(|line| line.split_once(':')).map(|(name, _)| name) {
        assert!(quoted(&named).contains(bound), "docs/bounds.md lacks {bound}");
    }
}

#[test]
fn links_between_documents_lead_somewhere() {
    for (path, text) in files(&[".md"]) {
        let folder = root().join(&path).parent().unwrap().to_owned();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = target.split('#').next().unwrap();
            let elsewhere = file.is_empty() || file.contains("://");
            assert!(elsewhere || folder.join(file).exists(), "{path}: {target}");
        }
    }
}

/// Names of functions are quoted as `Type::function`, names of tests with at least three underscores.
#[test]
fn functions_and_tests_that_documents_name_exist() {
    let code: String = files(&[".rs"]).into_values().collect();
    for document in ["life-of-a-coflow.md", "hardening.md"] {
        check_names(document, &code);
    }
}

fn check_names(name_of_document: &str, code: &str) {
    let text = document(name_of_document);
    let names = quoted(&text).into_iter().filter_map(|name| match name.rsplit_once("::") {
        Some((_, function)) => Some(function),
        None => (name.matches('_').count() >= 3 && !name.starts_with(char::is_uppercase)).then_some(name),
    });
    let names: BTreeSet<&str> = names.collect();
    assert!(names.len() >= 20, "the document names only {names:?}");
    for name in names {
        let defined = ["(", "<"].iter().any(|next| code.contains(&format!("fn {name}{next}")));
        assert!(defined, "docs/{name_of_document}: no function or test `{name}`");
    }
}

/// What is counted is served to those who watch, by this table.
#[test]
fn the_table_of_events_has_all_that_the_coordinator_counts_and_no_more() {
    let here = "crates/weir-core/src/coordinator";
    let code: String = std::fs::read_dir(root().join(here))
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|file| file.extension().is_some_and(|kind| kind == "rs") && !file.ends_with("observing.rs"))
        .map(|file| std::fs::read_to_string(file).unwrap())
        .collect();
    let calls = code.split("self.count").skip(1).map(|rest| rest.split(';').next().unwrap());
    let counted: BTreeSet<&str> = calls
        .filter(|call| call.starts_with('(') || call.starts_with("_many("))
        .flat_map(|call| call.split('"').skip(1).step_by(2))
        .collect();
    let table = std::fs::read_to_string(root().join(here).join("observing.rs")).unwrap();
    let table = table.split("pub const EVENTS").nth(1).unwrap().split("];").next().unwrap();
    let named: BTreeSet<&str> =
        table.split("(\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    let multi: BTreeSet<&str> =
        table.split("(\n        \"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    let named: BTreeSet<&str> = named.union(&multi).copied().collect();
    assert!(named.len() > 30);
    assert_eq!(counted, named);
}
