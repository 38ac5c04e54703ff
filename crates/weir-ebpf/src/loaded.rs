//! What the kernel has of these programs, whichever process loaded them.

use libbpf_rs::query::{MapInfoIter, ProgInfoIter};
use std::collections::BTreeSet;

/// How names of programs and tables of this crate begin.
const PREFIX: &[u8] = b"weir_";

/// Kinds and ids of all programs and tables of this crate that the machine's kernel has now. It frees them a moment after their
/// last user is gone. Empty without `CAP_SYS_ADMIN`.
#[must_use]
pub fn loaded() -> BTreeSet<(&'static str, u32)> {
    let programs =
        ProgInfoIter::default().filter(|program| program.name.as_encoded_bytes().starts_with(PREFIX));
    let tables = MapInfoIter::default().filter(|table| table.name.as_encoded_bytes().starts_with(PREFIX));
    let programs = programs.map(|program| ("program", program.id));
    programs.chain(tables.map(|table| ("table", table.id))).collect()
}
