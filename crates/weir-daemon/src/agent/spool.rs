//! The agent's own directory: locked against other agents, and cleared of what dead tasks left.

use rustix::fs::FlockOperation;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const LOCK: &str = "lock";
/// Ending of the names of spooled blocks, after 32 hexadecimal digits.
const ENDING: &str = ".block";
/// Spooled files nobody put within this time belong to tasks that died first.
const ABANDONED: Duration = Duration::from_secs(3600);

/// Holds the spool for this process as long as it lives. Two agents on one spool would each write their own journal over
/// the other's.
pub(super) fn lock(spool: &Path) -> anyhow::Result<File> {
    let path = spool.join(LOCK);
    let mut file =
        OpenOptions::new().create(true).truncate(false).read(true).write(true).mode(0o600).open(&path)?;
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let mut holder = String::new();
        let _ = file.read_to_string(&mut holder);
        let holder = holder.trim();
        anyhow::bail!(
            "the spool {} is in use by another agent{}{holder}; give each agent a --spool of its own",
            spool.display(),
            if holder.is_empty() { "" } else { ", process " },
        );
    }
    // For whoever finds it locked; a full disk does not matter here.
    let _ = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
    Ok(file)
}

/// Whether a name is one that a task gives to memory it hands over.
pub(super) fn is_block_name(name: &str) -> bool {
    let digits = name.strip_suffix(ENDING);
    digits.is_some_and(|digits| {
        digits.len() == 32 && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// Spooled files that nobody wrote to for an hour.
pub(super) fn abandoned(spool: &Path) -> Vec<PathBuf> {
    let old = |entry: &std::fs::DirEntry| {
        let modified = entry.metadata().and_then(|data| data.modified());
        modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > ABANDONED))
    };
    let listed = || -> io::Result<Vec<PathBuf>> {
        let entries = std::fs::read_dir(spool)?.collect::<io::Result<Vec<_>>>()?;
        let named = |entry: &std::fs::DirEntry| entry.file_name().to_str().is_some_and(is_block_name);
        Ok(entries.iter().filter(|entry| named(entry) && old(entry)).map(std::fs::DirEntry::path).collect())
    };
    listed().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_agent_on_a_spool_is_told_whose_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let held = lock(dir.path()).unwrap();
        let error = lock(dir.path()).unwrap_err().to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        drop(held);
        assert!(lock(dir.path()).is_ok());
    }

    #[test]
    fn only_names_that_tasks_give_are_spooled_blocks() {
        assert!(is_block_name("0123456789abcdef0123456789abcdef.block"));
        for bad in
            ["journal.jsonl", "lock", "x.block", "../0123456789abcdef0123456789abcdef.block", "", ".block"]
        {
            assert!(!is_block_name(bad), "{bad}");
        }
    }
}
