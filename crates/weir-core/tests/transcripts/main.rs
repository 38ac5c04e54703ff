//! Transcripts of the data plane: what each side says, byte by byte, as the machines say it. A client in another language is held
//! to the protocol by the same files (docs/transcripts).
//!
//! Each is made by a receiver and agents that talk to each other, and compared with the file that is stored. Then the stored file
//! is played to each side alone, cut at other places each time: the side has to say what it said.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

mod agents;
mod cases;
mod record;
mod replay;
mod text;

use cases::Case;
use std::path::PathBuf;

/// Set to write the files anew.
const WRITE: &str = "WEIR_WRITE_TRANSCRIPTS";

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/transcripts")
}

fn stored(case: &Case) -> String {
    let path = folder().join(format!("{}.txt", case.name));
    std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; {WRITE}=1 makes it", path.display()))
}

#[test]
fn the_machines_say_what_is_stored() {
    for case in cases::all() {
        let made = record::record(&case);
        if std::env::var_os(WRITE).is_some() {
            std::fs::write(folder().join(format!("{}.txt", case.name)), &made).unwrap();
        }
        assert!(
            made == stored(&case),
            "{}: the machines say something else now; {WRITE}=1 writes it anew",
            case.name
        );
    }
}

#[test]
fn each_side_alone_says_its_part_of_what_is_stored_however_it_is_cut() {
    for case in cases::all() {
        let lines = text::parse(&stored(&case));
        for seed in 0..20 {
            replay::receiver(&case, &lines, &mut text::Cuts::new(seed));
            replay::agents(&case, &lines, &mut text::Cuts::new(seed));
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
    let mut cases: Vec<String> = cases::all().iter().map(|case| format!("{}.txt", case.name)).collect();
    cases.sort();
    assert_eq!(names, cases);
    for name in names {
        assert!(page.contains(&format!("transcripts/{name}")), "docs/protocol.md names {name}");
    }
}
