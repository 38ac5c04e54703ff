//! The lines of a journal: how facts are written down, and how they are read again, whatever happened to them.
//!
//! A line is a checksum, a blank and JSON. Files and their order on a disk are the driver's; what is read is bytes.

use super::facts::JournalEntry;
use std::io::{self, BufRead, Write};
use weir_proto::data::checksum;

/// The first line of a journal.
pub const JOURNAL_HEADER: &str = "{\"weir_journal\":2}";
/// The first line of a journal of version 1, which is read too.
pub const JOURNAL_HEADER_1: &str = "{\"weir_journal\":1}";

/// What was found in a journal, besides what it says.
#[derive(Debug, Default)]
pub struct JournalLines {
    /// Number of sound lines.
    pub sound: usize,
    /// Lines, counted from 1, that could not be read.
    pub damaged: Vec<usize>,
    /// Bytes that are whole lines.
    pub whole: u64,
    /// Whether it ends in half a line. No put was answered for what it says.
    pub torn: bool,
    /// Whether its first line is of a version that is not known here, and nothing else can be read: then nothing of it counts.
    /// Lines that can be read are of a journal whose first line is damaged. A later version has to write its lines otherwise.
    pub other_version: bool,
}

impl JournalLines {
    /// Reads a journal, and hands on what its sound lines say, in their order.
    ///
    /// # Errors
    /// Only if reading from `reader` fails: whatever the bytes are, they are at worst damaged lines.
    pub fn read(mut reader: impl BufRead, mut hear: impl FnMut(JournalEntry)) -> io::Result<JournalLines> {
        let mut found = JournalLines::default();
        let (mut line, mut is_unknown) = (Vec::new(), false);
        for number in 1.. {
            line.clear();
            let length = reader.read_until(b'\n', &mut line)?;
            if line.pop_if(|last| *last == b'\n').is_none() {
                found.torn = length > 0;
                break;
            }
            let known = line == JOURNAL_HEADER.as_bytes() || line == JOURNAL_HEADER_1.as_bytes();
            is_unknown |= number == 1 && !known && line.starts_with(b"{\"weir_journal\":");
            found.whole = found.whole.saturating_add(length as u64);
            if number == 1 && known {
                continue;
            }
            match decode(&line) {
                Some(entry) => {
                    found.sound = found.sound.saturating_add(1);
                    hear(entry);
                }
                None => found.damaged.push(number),
            }
        }
        if is_unknown && found.sound == 0 {
            found = JournalLines { other_version: true, ..JournalLines::default() };
        }
        Ok(found)
    }
}

/// The lines that say `entries`, without a header.
///
/// # Errors
/// Only if an entry cannot be encoded as JSON.
pub fn journal_lines(entries: &[JournalEntry]) -> io::Result<Vec<u8>> {
    let mut lines = Vec::new();
    for entry in entries {
        let json = serde_json::to_vec(entry)?;
        write!(lines, "{:08x} ", checksum(&json))?;
        lines.extend_from_slice(&json);
        lines.push(b'\n');
    }
    Ok(lines)
}

fn decode(line: &[u8]) -> Option<JournalEntry> {
    if line.first() == Some(&b'{') {
        return serde_json::from_slice(line).ok();
    }
    // `get`: a damaged line may be of any length.
    let (digits, json) = (line.get(..8)?, line.get(9..)?);
    let digits = std::str::from_utf8(digits).ok()?;
    let sound = u32::from_str_radix(digits, 16) == Ok(checksum(json));
    sound.then(|| serde_json::from_slice(json).ok()).flatten()
}
