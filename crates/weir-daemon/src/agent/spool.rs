//! The agent's own directory: locked against other agents, and cleared of what dead tasks left.

use anyhow::Context;
use rustix::fs::FlockOperation;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use weir_model::{Span, Time};

const LOCK: &str = "lock";
/// Ending of the names of spooled blocks, after 32 hexadecimal digits.
const ENDING: &str = ".block";
/// Spooled files nobody put within this time belong to tasks that died first.
const ABANDONED: Span = Span::from_millis(3_600_000);

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

/// Gives a file or folder to a group, with these permissions.
pub(super) fn open_to(path: &Path, group: u32, mode: u32) -> anyhow::Result<()> {
    let given = rustix::fs::chown(path, None, Some(rustix::fs::Gid::from_raw(group)))
        .and_then(|()| rustix::fs::chmod(path, rustix::fs::Mode::from_raw_mode(mode)));
    given.with_context(|| {
        format!(
            "{} cannot be given to group {group}: the agent must own it and be a member of the group",
            path.display()
        )
    })
}

/// Whether a name is one that a task gives to memory it hands over.
pub(super) fn is_block_name(name: &str) -> bool {
    let digits = name.strip_suffix(ENDING);
    digits.is_some_and(|digits| {
        digits.len() == 32 && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// All files of blocks in a spool.
pub(super) fn files(spool: &Path) -> Vec<PathBuf> {
    let listed = || -> io::Result<Vec<PathBuf>> {
        let entries = std::fs::read_dir(spool)?.collect::<io::Result<Vec<_>>>()?;
        let named = |entry: &std::fs::DirEntry| entry.file_name().to_str().is_some_and(is_block_name);
        Ok(entries.iter().filter(|entry| named(entry)).map(std::fs::DirEntry::path).collect())
    };
    listed().unwrap_or_default()
}

/// Spooled files that are no block's, and since when. How old they are by the wall clock does not count: where that steps
/// ahead, a block that a task is just about to put would be of yesterday.
#[derive(Debug, Default)]
pub(super) struct Strays(BTreeMap<PathBuf, Time>);

impl Strays {
    /// Takes down which files are no block's now; returns those that were none for so long that nobody will put them.
    pub(super) fn see(&mut self, now: Time, strays: Vec<PathBuf>) -> Vec<PathBuf> {
        let before = std::mem::take(&mut self.0);
        let mut abandoned = Vec::new();
        for path in strays {
            let since = before.get(&path).copied().unwrap_or(now);
            if now.since(since) < ABANDONED {
                self.0.insert(path, since);
            } else {
                abandoned.push(path);
            }
        }
        abandoned
    }
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
    fn a_spooled_file_is_abandoned_after_an_hour_without_a_put_whatever_the_wall_clock_says() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(format!("{:032x}.block", 7));
        let file = File::create(&path).unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        std::fs::write(dir.path().join("journal.jsonl"), "").unwrap();
        let (mut strays, minute) = (Strays::default(), Span::from_millis(60_000));
        let mut now = Time::from_millis(5);
        for _ in 0..60 {
            assert_eq!(strays.see(now, files(dir.path())), <[PathBuf; 0]>::default());
            now = now + minute;
        }
        // It was a block's meanwhile.
        assert_eq!(strays.see(now, Vec::new()), <[PathBuf; 0]>::default());
        for _ in 0..60 {
            assert_eq!(strays.see(now, files(dir.path())), <[PathBuf; 0]>::default());
            now = now + minute;
        }
        assert_eq!(strays.see(now, files(dir.path())), [path]);
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
