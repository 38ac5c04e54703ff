//! Pages that describe files and variables have what the code takes, and no other.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn document(name: &str) -> String {
    std::fs::read_to_string(root().join("docs").join(name)).unwrap()
}

/// What stands in backticks in the first column of the first table below a heading.
fn keys(document: &str, heading: &str) -> BTreeSet<String> {
    let below = document.lines().skip_while(|line| *line != heading).skip(1);
    let rows =
        below.skip_while(|line| !line.starts_with('|')).skip(2).take_while(|line| line.starts_with('|'));
    let keys = rows.flat_map(|row| row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2));
    keys.map(str::to_owned).collect()
}

/// The keys that an error on an unknown one names.
#[track_caller]
fn expected(said: &str) -> BTreeSet<String> {
    let (_, known) = said.split_once("unknown field `zzz`, expected ").unwrap_or_else(|| panic!("{said}"));
    known.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// What `weir` says on words and a file that it is to read last.
fn said(words: &[&str], file: &Path) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(words).arg(file).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn the_page_on_packet_scenarios_has_every_key_that_the_reader_takes_and_no_other() {
    let page = document("packet-scenario.md");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s.toml");
    let network = "name = \"n\"\n[network]\ntopology = \"single-switch\"\nhosts = 2\nrate = \"1gbit\"\n";
    for (heading, text) in [
        ("## The file", "zzz = 1\n".to_owned()),
        ("## `[network]`", "name = \"n\"\n[network]\nzzz = 1\n".to_owned()),
        ("## `[[flow]]`", format!("{network}[[flow]]\nzzz = 1\n")),
        ("## `[traffic]`", format!("{network}[traffic]\nzzz = 1\n")),
    ] {
        std::fs::write(&file, text).unwrap();
        let said = said(&["packet", "--transport", "dctcp", "--scenario"], &file);
        assert_eq!(keys(&page, heading), expected(&said), "{heading}");
    }
    // And its example is a scenario.
    let example = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    std::fs::write(&file, example).unwrap();
    let words = ["packet", "--transport", "dctcp", "--flows", "3", "--scenario"];
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(words).arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_page_on_experiments_has_every_key_that_the_reader_takes_and_no_other() {
    let page = document("experiments.md");
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("one")).unwrap();
    for (heading, text) in [
        ("### The file", "zzz = 1"),
        ("### `[[point]]`", "[[point]]\nzzz = 1"),
        ("### `setup`", "setup = { zzz = 1 }"),
        ("### `setup.jobs`", "setup = { jobs = { zzz = 1 } }"),
        ("### `setup.sites`", "setup = { sites = { zzz = 1 } }"),
        ("### `setup.sites.shuffles`", "setup = { sites = { shuffles = { zzz = 1 } } }"),
        ("### `setup.packets`", "setup = { packets = { zzz = 1 } }"),
        ("### `setup.packets.coflows`", "setup = { packets = { coflows = { zzz = 1 } } }"),
        ("### `[[paper]]`", "[[paper]]\nzzz = 1"),
        ("### `plot`", "plot = { zzz = 1 }"),
        ("### `plot.x`", "plot = { x = { zzz = 1 } }"),
        ("### `[live]`", "[live]\nzzz = 1"),
    ] {
        std::fs::write(dir.path().join("one/experiment.toml"), text).unwrap();
        let said = said(&["experiment", "list", "--dir"], dir.path());
        assert_eq!(keys(&page, heading), expected(&said), "{heading}");
    }
}

/// Files of ours that may name variables.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let ours = !["target", "out"].contains(&name.as_str()) && !name.starts_with('.');
        if path.is_dir() && !path.is_symlink() && ours {
            sources(&path, found);
        } else if path.is_file() && (name == "Makefile" || name.ends_with(".rs") || name.ends_with(".sh")) {
            found.push(path);
        }
    }
}

#[test]
fn the_page_on_variables_has_all_of_them_and_no_other() {
    let page = document("environment.md");
    let mut files = Vec::new();
    sources(&root(), &mut files);
    let variables = |text: &str| -> BTreeSet<String> {
        let parts = text.match_indices("WEIR_").map(|(at, _)| {
            let rest = text[at..].chars();
            rest.take_while(|part| part.is_ascii_uppercase() || *part == '_').collect::<String>()
        });
        // Those of settings are on a page that the program prints.
        let of_setting = |name: &String| {
            ["AGENT", "COORDINATOR", "RELAY", "CONTROLLER"]
                .iter()
                .any(|daemon| name.starts_with(&format!("WEIR_{daemon}_")))
        };
        parts.filter(|name| name.len() > "WEIR_".len() && !of_setting(name)).collect()
    };
    let mut used = BTreeSet::new();
    for file in files {
        used.extend(variables(&std::fs::read_to_string(file).unwrap()));
    }
    assert_eq!(variables(&page), used);
}
