//! Transcripts: what each side says, byte by byte, as the machines say it. A client in another language is held
//! to the protocol by the same files (docs/transcripts).
//!
//! Each is made by machines that talk to each other, and compared with the file that is stored. Then the stored file
//! is played to each side alone, cut at other places each time: the side has to say what it said.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

mod agent_side;
mod agents;
mod cases;
mod control;
mod coordinator_side;
mod files;
mod gatherer;
mod gathers;
mod messages;
mod outputs;
mod play;
mod record;
mod relay_side;
mod relays;
mod replay;
mod store_side;
mod text;

use std::collections::BTreeMap;

/// Files that the tests of weir-controller make, and play to what says them.
const OF_CONTROLLER: [&str; 1] = ["ruled"];

/// Cases that a script makes.
fn plays() -> Vec<play::Case> {
    relays::all().into_iter().chain(control::all()).chain(gathers::all()).collect()
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
    made().iter().for_each(|(name, made)| files::hold(name, made));
}

#[test]
fn each_side_alone_says_its_part_of_what_is_stored_however_it_is_cut() {
    for case in cases::all() {
        let lines = files::lines(case.name);
        for seed in 0..20 {
            replay::receiver(&case, &lines, &mut text::Cuts::new(seed));
            replay::agents(&case, &lines, &mut text::Cuts::new(seed));
            replay::relays(&case, &lines, &mut text::Cuts::new(seed));
        }
    }
    for case in plays() {
        let lines = files::lines(case.name);
        for seed in 0..20 {
            case.replay(&lines, &mut text::Cuts::new(seed));
        }
    }
}

#[test]
fn every_stored_file_is_a_case_of_the_test_and_named_in_the_protocols_page() {
    let page = std::fs::read_to_string(files::folder().join("../protocol.md")).unwrap();
    let mut names: Vec<String> = std::fs::read_dir(files::folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".txt"))
        .collect();
    names.sort();
    let made = made().into_keys().chain(OF_CONTROLLER);
    let mut made: Vec<String> = made.map(|name| format!("{name}.txt")).collect();
    made.sort();
    assert_eq!(names, made);
    for name in names {
        assert!(page.contains(&format!("transcripts/{name}")), "docs/protocol.md names {name}");
    }
}
