//! The journal: what must survive the process, one JSON object a line, appended as it happens and
//! rewritten without what has ended when the agent starts.
//!
//! A line counts once its newline is there, so a process killed in mid-write loses at most what it had
//! not yet answered for. Losing the machine loses the journal's last moments: blocks in memory are gone
//! then anyway.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use weir_core::agent::JournalEntry;

const FILE: &str = "journal.jsonl";
/// Written first; a reader of another version starts with an empty journal beside it.
const HEADER: &str = "{\"weir_journal\":1}";

pub(super) struct Journal {
    file: File,
}

impl Journal {
    /// Reads what is there, leaves out what belongs to ended coflows, and opens it for appending.
    pub(super) fn open(spool: &Path) -> io::Result<(Journal, Vec<JournalEntry>)> {
        let path = spool.join(FILE);
        let before = read(&path)?;
        let entries = live(&before);
        let new = spool.join(format!("{FILE}.new"));
        let mut file = OpenOptions::new().create(true).write(true).truncate(true).open(&new)?;
        let mut text = format!("{HEADER}\n");
        for entry in &entries {
            text.push_str(&line(entry)?);
        }
        file.write_all(text.as_bytes())?;
        std::fs::rename(&new, &path)?;
        remove_dead(spool, &before, &entries)?;
        Ok((Journal { file }, entries))
    }

    /// Appends entries with one write.
    pub(super) fn append(&mut self, entries: &[JournalEntry]) -> io::Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        let lines: String = entries.iter().map(line).collect::<io::Result<_>>()?;
        self.file.write_all(lines.as_bytes())
    }
}

fn line(entry: &JournalEntry) -> io::Result<String> {
    Ok(format!("{}\n", serde_json::to_string(entry)?))
}

fn read(path: &Path) -> io::Result<Vec<JournalEntry>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut lines = BufReader::new(file).split(b'\n');
    match lines.next().transpose()? {
        Some(header) if header == HEADER.as_bytes() => {}
        None => return Ok(Vec::new()),
        Some(_) => {
            let aside: PathBuf = path.with_extension("other-version");
            std::fs::rename(path, &aside)?;
            tracing::warn!(kept = %aside.display(), "journal of another version put aside");
            return Ok(Vec::new());
        }
    }
    let mut entries = Vec::new();
    for line in lines {
        match serde_json::from_slice(&line?) {
            Ok(entry) => entries.push(entry),
            // Only the last line can be torn; anything after it was never answered for.
            Err(_) => break,
        }
    }
    Ok(entries)
}

fn live(entries: &[JournalEntry]) -> Vec<JournalEntry> {
    let mut ended: std::collections::BTreeMap<u64, u64> = std::collections::BTreeMap::new();
    for entry in entries {
        let (first, last) = match entry {
            JournalEntry::Ended(coflow) => (*coflow, *coflow),
            JournalEntry::EndedRange(first, last) => (*first, *last),
            _ => continue,
        };
        let known = ended.entry(first).or_insert(last);
        *known = last.max(*known);
    }
    let has_ended = |coflow: &u64| ended.range(..=coflow).any(|(_, last)| coflow <= last);
    let keep = |entry: &JournalEntry| match entry {
        JournalEntry::Put(block) => !has_ended(&block.coflow),
        JournalEntry::Coflow { coflow, .. } | JournalEntry::Done { coflow, .. } => !has_ended(coflow),
        JournalEntry::Ended(_) | JournalEntry::EndedRange(..) => true,
    };
    entries.iter().filter(|entry| keep(entry)).cloned().collect()
}

/// Spooled files nobody put within this time belong to tasks that died first.
const ABANDONED: std::time::Duration = std::time::Duration::from_secs(3600);

/// Removes spooled blocks of ended coflows, and files that were never put.
fn remove_dead(spool: &Path, before: &[JournalEntry], kept: &[JournalEntry]) -> io::Result<()> {
    let spooled = |entries: &[JournalEntry]| -> std::collections::BTreeSet<String> {
        entries
            .iter()
            .filter_map(|entry| match entry {
                JournalEntry::Put(block) if block.spooled => Some(block.path.clone()),
                _ => None,
            })
            .collect()
    };
    let (known, held) = (spooled(before), spooled(kept));
    for entry in std::fs::read_dir(spool)? {
        let entry = entry?;
        let path = entry.path();
        let Some(name) = path.to_str().filter(|name| name.ends_with(".block")) else { continue };
        let old = || {
            entry
                .metadata()
                .and_then(|data| data.modified())
                .is_ok_and(|at| at.elapsed().is_ok_and(|age| age > ABANDONED))
        };
        if !held.contains(name) && (known.contains(name) || old()) {
            std::fs::remove_file(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::agent::BlockEntry;

    fn put(coflow: u64, path: &Path) -> JournalEntry {
        JournalEntry::Put(BlockEntry {
            coflow,
            block: "b".to_owned(),
            path: path.display().to_string(),
            offset: 0,
            size: 1,
            spooled: true,
            frame_checksums: vec![7],
            identity: weir_proto::data::Identity::UNKNOWN,
        })
    }

    #[test]
    fn a_torn_last_line_is_dropped_and_ended_coflows_leave_no_files() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("1.block"), dir.path().join("2.block"));
        std::fs::write(&one, b"x").unwrap();
        std::fs::write(&two, b"x").unwrap();
        let (mut journal, entries) = Journal::open(dir.path()).unwrap();
        assert_eq!(entries, []);
        for entry in [put(1, &one), put(2, &two), JournalEntry::Ended(2)] {
            journal.append(&[entry]).unwrap();
        }
        journal.file.write_all(b"{\"Put\":{\"cofl").unwrap();
        let (_, entries) = Journal::open(dir.path()).unwrap();
        assert_eq!(entries, [put(1, &one), JournalEntry::Ended(2)]);
        assert!(one.exists() && !two.exists());
    }
}
