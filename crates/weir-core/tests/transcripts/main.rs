//! Transcripts: what each side says, byte by byte, as the machines say it. A client in another language is held
//! to the protocol by the same files (docs/transcripts).
//!
//! Each is made by a receiver and agents that talk to each other, and compared with the file that is stored. Then the stored file
//! is played to each side alone, cut at other places each time: the side has to say what it said.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

mod agent_side;
mod agents;
mod cases;
mod control;
mod coordinator_side;
mod messages;
mod play;
mod record;
mod relay_side;
mod relays;
mod replay;
mod text;

use std::collections::BTreeMap;
use std::path::PathBuf;

/// Set to write the files anew.
const WRITE: &str = "WEIR_WRITE_TRANSCRIPTS";

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/transcripts")
}

fn stored(name: &str) -> String {
    let path = folder().join(format!("{name}.txt"));
    std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; {WRITE}=1 makes it", path.display()))
}

/// Cases without a data plane.
fn plays() -> Vec<play::Case> {
    relays::all().into_iter().chain(control::all()).collect()
}

/// All transcripts by name, as the machines make them.
fn made() -> BTreeMap<&'static str, String> {
    let blocks = cases::all();
    let blocks = blocks.iter().map(|case| (case.name, record::record(case)));
    let plays = plays();
    blocks.chain(plays.iter().map(|case| (case.name, case.record()))).collect()
}

#[test]
fn the_machines_say_what_is_stored() {
    for (name, made) in made() {
        if std::env::var_os(WRITE).is_some() {
            std::fs::write(folder().join(format!("{name}.txt")), &made).unwrap();
        }
        assert!(
            made == stored(name),
            "{name}: the machines say something else now; {WRITE}=1 writes it anew"
        );
    }
}

#[test]
fn each_side_alone_says_its_part_of_what_is_stored_however_it_is_cut() {
    for case in cases::all() {
        let lines = text::parse(&stored(case.name));
        for seed in 0..20 {
            replay::receiver(&case, &lines, &mut text::Cuts::new(seed));
            replay::agents(&case, &lines, &mut text::Cuts::new(seed));
            replay::relays(&case, &lines, &mut text::Cuts::new(seed));
        }
    }
    for case in plays() {
        let lines = text::parse(&stored(case.name));
        for seed in 0..20 {
            case.replay(&lines, &mut text::Cuts::new(seed));
        }
    }
}

#[test]
fn every_stored_file_is_a_case_of_the_test_and_named_in_the_protocols_page() {
    let page = std::fs::read_to_string(folder().join("../protocol.md")).unwrap();
    let mut names: Vec<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".txt"))
        .collect();
    names.sort();
    let made: Vec<String> = made().into_keys().map(|name| format!("{name}.txt")).collect();
    assert_eq!(names, made);
    for name in names {
        assert!(page.contains(&format!("transcripts/{name}")), "docs/protocol.md names {name}");
    }
}
