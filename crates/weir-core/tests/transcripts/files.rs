//! Where transcripts are stored.

use crate::text::{self, Line};
use std::path::PathBuf;

/// Set to write the files anew.
const WRITE: &str = "WEIR_WRITE_TRANSCRIPTS";

pub(crate) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/transcripts")
}

fn stored(name: &str) -> String {
    let path = folder().join(format!("{name}.txt"));
    std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; {WRITE}=1 makes it", path.display()))
}

/// The lines of a file.
pub(crate) fn lines(name: &str) -> Vec<Line> {
    text::parse(&stored(name))
}

/// Compares what machines made with its file, or writes the file.
pub(crate) fn hold(name: &str, made: &str) {
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(folder().join(format!("{name}.txt")), made).unwrap();
    }
    assert!(made == stored(name), "{name}: the machines say something else now; {WRITE}=1 writes it anew");
}
