//! The agent's directory:
//!
//! ```text
//! SPOOL/            the agent's; no other process makes, removes or renames anything in it
//!   agent.sock
//!   own/            lock, identity, journal: for the agent alone
//!   blocks/         files of memory that tasks hand over; with a group, its members make files here
//! ```
//!
//! What others may write to is only ever read through [`weir_net::open_regular`], which follows no link and waits for no
//! FIFO. Nothing of the agent's own lies there.

use anyhow::Context;
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use weir_model::{Span, Time};

const LOCK: &str = "lock";
/// Ending of the names of spooled blocks, after 32 hexadecimal digits.
const ENDING: &str = ".block";
/// Spooled files that no task put within this time belong to tasks that died first.
const ABANDONED: Span = Span::from_millis(3_600_000);
/// Permissions that others may keep in the spool itself: to look and to pass through.
const TOP_MODE: u32 = 0o755;
/// The same where tasks are members of a group,
const TOP_MODE_OF_GROUP: u32 = 0o750;
/// of what is the agent's alone,
const OWN_MODE: u32 = 0o700;
/// and of the tasks' directory: only members of the group may remove files there.
const BLOCKS_MODE_OF_GROUP: u32 = 0o3770;

/// Where the parts of a spool are; all exist.
#[derive(Clone, Debug)]
pub(super) struct Spool {
    /// The whole, without links in its path.
    pub(super) top: PathBuf,
    /// The agent's own files.
    pub(super) own: PathBuf,
    /// Directory of blocks that tasks put from memory.
    pub(super) blocks: PathBuf,
}

impl Spool {
    /// Makes what is missing, sees to it that no other user may write where the agent's files are, and holds the spool for this
    /// process for as long as the file lives: two agents would each write their own journal over the other's. A spool that another
    /// agent holds is left as it is.
    pub(super) fn prepare(path: &Path, group: Option<u32>) -> anyhow::Result<(Spool, File)> {
        let shown = path.display();
        std::fs::create_dir_all(path).with_context(|| format!("cannot make the spool {shown}"))?;
        let top = path.canonicalize().with_context(|| format!("cannot use the spool {shown}"))?;
        check_owner(&top)?;
        let spool = Spool { own: top.join("own"), blocks: top.join("blocks"), top };
        spool.check_unused()?;
        match group {
            Some(group) => open_to(&spool.top, group, TOP_MODE_OF_GROUP)?,
            None => {
                let mode = std::fs::metadata(&spool.top)?.permissions().mode();
                restrict(&spool.top, mode & TOP_MODE | OWN_MODE)?;
            }
        }
        // From here on no other user can replace what is looked at: the top directory is the agent's alone.
        make(&spool.own)?;
        make(&spool.blocks)?;
        restrict(&spool.own, OWN_MODE)?;
        match group {
            Some(group) => open_to(&spool.blocks, group, BLOCKS_MODE_OF_GROUP)?,
            None => restrict(&spool.blocks, OWN_MODE)?,
        }
        let held = spool.lock()?;
        Ok((spool, held))
    }

    /// Where tasks reach the agent.
    pub(super) fn socket(&self) -> PathBuf {
        self.top.join(super::SOCKET)
    }

    /// An error if another agent holds the spool. Nothing is written: who else may write here is not known yet.
    fn check_unused(&self) -> anyhow::Result<()> {
        // `NONBLOCK`: opening a FIFO in the lock's place would wait for a writer.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match rustix::fs::open(self.own.join(LOCK), flags, Mode::empty()) {
            Ok(file) => self.take(&mut File::from(file)),
            Err(_) => Ok(()),
        }
    }

    fn lock(&self) -> anyhow::Result<File> {
        let path = self.own.join(LOCK);
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(&path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        self.take(&mut file)?;
        // The number is for the message of another agent that finds the spool locked; a full disk does not matter here.
        let _ = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
        Ok(file)
    }

    fn take(&self, file: &mut File) -> anyhow::Result<()> {
        if rustix::fs::flock(&*file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return Ok(());
        }
        let mut holder = String::new();
        let _ = file.read_to_string(&mut holder);
        let holder = holder.trim();
        anyhow::bail!(
            "the spool {} is in use by another agent{}{holder}; give each agent a --spool of its own",
            self.top.display(),
            if holder.is_empty() { "" } else { ", process " },
        );
    }
}

/// A directory of the agent's own, which may be there already.
fn make(path: &Path) -> anyhow::Result<()> {
    match DirBuilder::new().mode(OWN_MODE).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(error).with_context(|| format!("cannot make {}", path.display()))
        }
        _ => check_owner(path),
    }
}

/// An error if the directory is not this user's: its owner may replace whatever is in it.
fn check_owner(path: &Path) -> anyhow::Result<()> {
    // Not followed: a link may be turned to another directory after this check.
    let found = path.symlink_metadata().with_context(|| format!("cannot use {}", path.display()))?;
    anyhow::ensure!(
        found.is_dir(),
        "{} is not a directory; remove it, or use another --spool",
        path.display()
    );
    let (owner, user) = (found.uid(), rustix::process::geteuid().as_raw());
    anyhow::ensure!(
        owner == user,
        "{} belongs to user {owner}, and the agent runs as user {user}; give it a --spool of its own",
        path.display()
    );
    Ok(())
}

fn restrict(path: &Path, mode: u32) -> anyhow::Result<()> {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode))
        .with_context(|| format!("cannot set the permissions of {}", path.display()))
}

/// Gives a file or folder to a group, with these permissions.
pub(super) fn open_to(path: &Path, group: u32, mode: u32) -> anyhow::Result<()> {
    // The group first: otherwise the permissions would be those of the group before, for a moment.
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

/// All files of blocks in the directory for them.
pub(super) fn files(blocks: &Path) -> Vec<PathBuf> {
    let listed = || -> io::Result<Vec<PathBuf>> {
        let entries = std::fs::read_dir(blocks)?.collect::<io::Result<Vec<_>>>()?;
        let named = |entry: &std::fs::DirEntry| entry.file_name().to_str().is_some_and(is_block_name);
        Ok(entries.iter().filter(|entry| named(entry)).map(std::fs::DirEntry::path).collect())
    };
    // What cannot be listed is not removed either.
    listed().unwrap_or_default()
}

/// Spooled files that are no block's, and since when. How old they are by the wall clock does not count: where that steps
/// ahead, a block that a task is just about to put would be of yesterday.
#[derive(Debug, Default)]
pub(super) struct Strays(BTreeMap<PathBuf, Time>);

impl Strays {
    /// Takes down which files are no block's now; returns those that were none for so long that no task will put them.
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
        let (spool, held) = Spool::prepare(dir.path(), None).unwrap();
        // As an agent leaves it whose tasks are members of a group.
        restrict(&spool.blocks, BLOCKS_MODE_OF_GROUP).unwrap();
        restrict(&spool.top, TOP_MODE_OF_GROUP).unwrap();
        let error = Spool::prepare(dir.path(), None).unwrap_err().to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        assert_eq!((mode(&spool.top), mode(&spool.blocks)), (TOP_MODE_OF_GROUP, BLOCKS_MODE_OF_GROUP));
        drop(held);
        assert!(Spool::prepare(dir.path(), None).is_ok());
    }

    fn mode(path: &Path) -> u32 {
        std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn nobody_but_the_agent_may_write_in_its_spool_whatever_was_allowed_before() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o1777)).unwrap();
        let (spool, _) = Spool::prepare(dir.path(), None).unwrap();
        assert_eq!((mode(&spool.top), mode(&spool.own), mode(&spool.blocks)), (0o755, 0o700, 0o700));
        std::fs::set_permissions(&spool.own, PermissionsExt::from_mode(0o777)).unwrap();
        Spool::prepare(dir.path(), None).unwrap();
        assert_eq!(mode(&spool.own), 0o700);
    }

    #[test]
    fn links_in_the_place_of_the_agents_directories_are_refused_by_name() {
        for name in ["own", "blocks"] {
            let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            std::os::unix::fs::symlink(other.path(), dir.path().join(name)).unwrap();
            let error = Spool::prepare(dir.path(), None).unwrap_err().to_string();
            assert!(error.contains(&format!("/{name} is not a directory")), "{error}");
            assert_eq!(std::fs::read_dir(other.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn a_spool_that_belongs_to_another_user_is_refused_and_left_as_it_is() {
        if !rustix::process::geteuid().is_root() {
            assert!(std::env::var_os("CI").is_none(), "on CI nothing is skipped for want of rights");
            return eprintln!("SKIPPED: giving a folder to another user takes root");
        }
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(dir.path(), Some(64_126), None).unwrap();
        let error = Spool::prepare(dir.path(), None).unwrap_err().to_string();
        assert!(error.contains("belongs to user 64126"), "{error}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
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
