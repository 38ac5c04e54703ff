//! Where the files of puts may be, and how many are looked for at once.

use super::Durability;
use super::blocks::is_of_the_file;
use super::spool::Spool;
use anyhow::Context;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tonic::Status;
use weir_core::agent::FileStamp;
use weir_net::{FileSystem, Mounts, OpenedFile};
use weir_proto::{limits, v1};

/// How long finding the file of a put may take.
const FILE_LIMIT: Duration = Duration::from_secs(8);
/// Files that are looked for at once on a file system. One that hangs keeps its own puts waiting, and no others.
const AT_ONCE: usize = 16;
/// Files that are remembered because their disk failed to write them.
const MAX_UNSYNCED: usize = 10_000;
/// How often it is looked at what is mounted.
const MOUNTS_INTERVAL: Duration = Duration::from_secs(1);

/// A directory below which files may be served.
fn allowed(option: &str, path: &Path) -> anyhow::Result<PathBuf> {
    let found = path.canonicalize().with_context(|| format!("{option} {}", path.display()))?;
    anyhow::ensure!(found.is_dir(), "{option} {} is not a directory", path.display());
    Ok(found)
}

/// What a put may name: the spool's own blocks, and files below directories that may be served.
pub(super) struct Places {
    pub(super) spool: Spool,
    /// The option that named the directories, and these.
    option: &'static str,
    allow: Vec<PathBuf>,
    durability: Durability,
    /// Files, as they were, that their disk failed to write.
    unsynced: Mutex<BTreeSet<(PathBuf, u64, i64, u64)>>,
    pub(super) slots: Slots,
}

impl Places {
    /// Errors name the directory that cannot be used.
    pub(super) fn new(
        spool: &Spool,
        option: &'static str,
        allow: &[PathBuf],
        durability: Durability,
    ) -> anyhow::Result<Arc<Places>> {
        let allow = allow.iter().map(|path| allowed(option, path)).collect::<anyhow::Result<_>>()?;
        Ok(Arc::new(Places {
            spool: spool.clone(),
            option,
            allow,
            durability,
            unsynced: Mutex::default(),
            slots: Slots::new(FILE_LIMIT),
        }))
    }

    /// The file of a put, found on a thread that may wait for it.
    pub(super) async fn file_of(
        self: &Arc<Self>,
        put: &v1::PutRequest,
    ) -> Result<(PathBuf, FileStamp), Status> {
        // What `find` looks at: a large block's checksums need not be copied.
        let named = v1::PutRequest {
            path: put.path.clone(),
            offset: put.offset,
            size: put.size,
            spooled: put.spooled,
            ..v1::PutRequest::default()
        };
        let path = if put.spooled { self.spool.blocks.clone() } else { PathBuf::from(&put.path) };
        let places = Arc::clone(self);
        match self.slots.run(&path, move || places.find(&named)).await {
            Ok(found) => found,
            Err(TooLong) => Err(Status::unavailable(format!("{} could not be opened in time", put.path))),
        }
    }

    /// Directories in which a task of this user keeps files, as they are without links.
    pub(super) async fn directories_of(
        self: &Arc<Self>,
        paths: &[String],
        user: u32,
    ) -> Result<Vec<String>, Status> {
        let Some(first) = paths.first() else { return Ok(Vec::new()) };
        let (places, named) = (Arc::clone(self), paths.to_vec());
        let find = move || named.iter().map(|path| places.directory(path, user)).collect();
        match self.slots.run(Path::new(first), find).await {
            Ok(found) => found,
            Err(TooLong) => Err(Status::unavailable(format!("{first} could not be looked at in time"))),
        }
    }

    fn directory(&self, named: &str, user: u32) -> Result<String, Status> {
        let path = self.allowed(named)?;
        let found = std::fs::metadata(&path).map_err(|error| unopened(&path, &error))?;
        if !found.is_dir() {
            return Err(Status::invalid_argument(format!("{} is not a directory", path.display())));
        }
        if found.uid() != user {
            let owner = found.uid();
            return Err(Status::permission_denied(format!(
                "{} is of user {owner}, and who asks is user {user}",
                path.display()
            )));
        }
        path.into_os_string().into_string().map_err(|_| Status::invalid_argument("a path must be UTF-8"))
    }

    /// Length of a file that a caller on another host names, if it may be served.
    pub(super) async fn length_of(self: &Arc<Self>, path: &str) -> Result<u64, Status> {
        let put = v1::PutRequest { path: path.to_owned(), ..v1::PutRequest::default() };
        Ok(self.file_of(&put).await?.1.length)
    }

    /// Whether what is put is on the disk before it is answered for.
    pub(super) fn are_durable(&self) -> bool {
        self.durability == Durability::Machine
    }

    /// The file that holds a block, if it may be served and is long enough, synced where puts are durable. Waits for the disk.
    fn find(&self, put: &v1::PutRequest) -> Result<(PathBuf, FileStamp), Status> {
        let path = self.resolve(put)?;
        let opened = weir_net::open_regular(&path).map_err(|error| unopened(&path, &error))?;
        let found = opened.stamp;
        // Checked: both numbers are a task's, and their sum may not fit into 64 bits.
        let end = put.offset.checked_add(put.size);
        if end.is_none_or(|end| end > found.length) {
            return Err(Status::out_of_range(format!(
                "{} has {} bytes; the block would need {} from {}",
                path.display(),
                found.length,
                put.size,
                put.offset
            )));
        }
        if put.spooled && found.links != 1 {
            return Err(Status::permission_denied(format!("{} has other names too", path.display())));
        }
        if self.are_durable() {
            self.sync(&path, &opened)?;
        }
        let weir_net::FileStamp { inode, modified_ns, length, .. } = found;
        Ok((path, FileStamp { inode, modified_ns, length }))
    }

    /// Waits until a file is on its disk, with its length, its time and its name: what tells it from others after the machine was
    /// lost. A disk that failed to write drops what the kernel had of the file, and syncing once more would succeed without it: the
    /// refusal is for good, and holds until the file is written again.
    fn sync(&self, path: &Path, opened: &OpenedFile) -> Result<(), Status> {
        let refused = |why: &dyn std::fmt::Display| {
            Status::failed_precondition(format!(
                "{} could not be written to its disk ({why}); write it anew before it is put",
                path.display()
            ))
        };
        let weir_net::FileStamp { inode, modified_ns, length, .. } = opened.stamp;
        let stamp = (path.to_owned(), inode, modified_ns, length);
        let unsynced = || self.unsynced.lock().unwrap_or_else(PoisonError::into_inner);
        if unsynced().contains(&stamp) {
            return Err(refused(&"it failed before"));
        }
        let synced = opened.file.sync_all().and_then(|()| sync_name(path, &opened.file));
        synced.map_err(|error| {
            let mut unsynced = unsynced();
            unsynced.insert(stamp);
            if unsynced.len() > MAX_UNSYNCED {
                unsynced.pop_first();
            }
            refused(&error)
        })
    }

    /// The file a put names, if it may be served.
    fn resolve(&self, put: &v1::PutRequest) -> Result<PathBuf, Status> {
        if put.spooled {
            return if super::spool::is_block_name(&put.path) {
                Ok(self.spool.blocks.join(&put.path))
            } else {
                Err(Status::invalid_argument(
                    "a spooled block is named by its file name alone: 32 hexadecimal digits and `.block`",
                ))
            };
        }
        self.allowed(&put.path)
    }

    /// What is at a path, if it may be served.
    fn allowed(&self, named: &str) -> Result<PathBuf, Status> {
        if named.len() > limits::MAX_PATH_BYTES {
            let most = limits::MAX_PATH_BYTES;
            return Err(Status::invalid_argument(format!("a path has at most {most} bytes")));
        }
        let named = Path::new(named);
        // A relative path is relative to the task's folder, which is not the agent's.
        if !named.is_absolute() {
            return Err(Status::invalid_argument(format!("{} is no absolute path", named.display())));
        }
        let path = named.canonicalize().map_err(|error| unopened(named, &error))?;
        // First, whatever else may be served: links that members of a group make in the spool must not lead to the agent's own files.
        if path.starts_with(&self.spool.top) {
            return Err(Status::permission_denied(format!("{} is the agent's own file", path.display())));
        }
        if self.allow.iter().any(|allowed| path.starts_with(allowed)) {
            Ok(path)
        } else {
            Err(Status::permission_denied(format!(
                "{} is not below a directory this agent may serve (its {})",
                path.display(),
                self.option
            )))
        }
    }
}

/// Waits until the name of a file is on its disk. A directory that may be entered and not opened is synced with all of its file
/// system.
fn sync_name(path: &Path, file: &File) -> io::Result<()> {
    match path.parent().map_or(Ok(()), super::log::sync_directory) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(rustix::fs::syncfs(file)?),
        synced => synced,
    }
}

/// Why a put has no file: for good, or because of the machine, which the task may try again.
fn unopened(path: &Path, error: &std::io::Error) -> Status {
    let reason = format!("{}: {error}", path.display());
    if is_of_the_file(error) { Status::not_found(reason) } else { Status::unavailable(reason) }
}

/// A file system did not answer in time.
pub(super) struct TooLong;

/// Places at which files are worked on, some for each file system.
pub(super) struct Slots {
    mounted: Mutex<Mounted>,
    /// How long is waited for work.
    limit: Duration,
}

#[derive(Default)]
struct Mounted {
    mounts: Mounts,
    looked: Option<Instant>,
    slots: BTreeMap<FileSystem, Arc<Semaphore>>,
}

impl Slots {
    fn new(limit: Duration) -> Slots {
        Slots { mounted: Mutex::default(), limit }
    }

    /// Runs what may wait for a file system, on a thread of its own, and waits for it for some seconds. What takes longer
    /// keeps its place until it ends.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        path: &Path,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, TooLong> {
        let slots = self.of(path);
        let done = async {
            let slot = slots.acquire_owned().await.map_err(|_| TooLong)?;
            let running = tokio::task::spawn_blocking(move || {
                // The thread gives the place back, and not its caller, who may have stopped
                // waiting.
                let done = work();
                drop(slot);
                done
            });
            running.await.map_err(|_| TooLong)
        };
        tokio::time::timeout(self.limit, done).await.map_err(|_| TooLong)?
    }

    fn of(&self, path: &Path) -> Arc<Semaphore> {
        let mut mounted = self.mounted.lock().unwrap_or_else(PoisonError::into_inner);
        if mounted.looked.is_none_or(|looked| looked.elapsed() > MOUNTS_INTERVAL) {
            mounted.looked = Some(Instant::now());
            mounted.mounts = Mounts::read().unwrap_or_default();
            // What was mounted once, and is not any more, is forgotten.
            mounted.slots.retain(|_, slots| slots.available_permits() < AT_ONCE);
        }
        let on = mounted.mounts.of(path);
        let slots = mounted.slots.entry(on).or_insert_with(|| Arc::new(Semaphore::new(AT_ONCE)));
        Arc::clone(slots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn what_is_not_the_files_fault_may_be_tried_again() {
        let code = |errno: Errno| unopened(Path::new("/f"), &errno.into()).code();
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::IO, Errno::STALE] {
            assert_eq!(code(errno), tonic::Code::Unavailable, "{errno:?}");
        }
        for errno in [Errno::NOENT, Errno::NOTDIR, Errno::ACCESS, Errno::LOOP] {
            assert_eq!(code(errno), tonic::Code::NotFound, "{errno:?}");
        }
    }

    #[test]
    fn a_relative_path_is_no_file_of_the_agents_folder() {
        let dir = tempfile::tempdir().unwrap();
        let (spool, _) = Spool::prepare(dir.path(), None).unwrap();
        // The folder that tests run in, which is below `/` and has this file.
        let places = Places::new(&spool, "--allow", &["/".into()], Durability::Process).unwrap();
        let put = |path: &str| v1::PutRequest { path: path.to_owned(), size: 1, ..v1::PutRequest::default() };
        let refused = places.find(&put("Cargo.toml")).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{refused}");
        let here = std::env::current_dir().unwrap().join("Cargo.toml");
        assert!(places.find(&put(here.to_str().unwrap())).is_ok());
    }

    #[test]
    fn a_file_that_its_disk_failed_to_write_is_refused_until_it_is_written_anew() {
        let (dir, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (spool, _) = Spool::prepare(dir.path(), None).unwrap();
        let allow = [data.path().to_owned()];
        let places = Places::new(&spool, "--allow", &allow, Durability::Machine).unwrap();
        let path = data.path().canonicalize().unwrap().join("file");
        std::fs::write(&path, "12345").unwrap();
        let put = v1::PutRequest { path: path.display().to_string(), size: 5, ..v1::PutRequest::default() };
        let (_, stamp) = places.find(&put).unwrap();
        let failed = (path.clone(), stamp.inode, stamp.modified_ns, stamp.length);
        places.unsynced.lock().unwrap().insert(failed);
        let refused = places.find(&put).unwrap_err();
        // Clients repeat what is unavailable: the next sync would succeed without the bytes.
        assert_eq!(refused.code(), tonic::Code::FailedPrecondition, "{refused}");
        std::fs::write(&path, "123456").unwrap();
        assert!(places.find(&put).is_ok());
    }

    #[tokio::test]
    async fn work_that_hangs_on_a_file_system_keeps_its_places_and_others_are_told_in_time() {
        let slots = Slots::new(Duration::from_millis(20));
        let (go_on, wait) = std::sync::mpsc::channel::<()>();
        let wait = Arc::new(Mutex::new(wait));
        let path = Path::new("/");
        for _ in 0..AT_ONCE {
            let wait = Arc::clone(&wait);
            let hangs = slots.run(path, move || {
                let _ = wait.lock().unwrap_or_else(PoisonError::into_inner).recv();
            });
            assert!(hangs.await.is_err());
        }
        assert!(slots.run(path, || ()).await.is_err(), "all places are taken");
        let mut other = slots.run(Path::new("/proc/self"), || ()).await;
        // A machine under load may take longer than that to start a thread.
        for _ in 0..500 {
            if other.is_err() {
                other = slots.run(Path::new("/proc/self"), || ()).await;
            }
        }
        assert!(other.is_ok(), "those of another are not");
        drop(go_on);
        while slots.of(path).available_permits() < AT_ONCE {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(slots.of(path).available_permits(), AT_ONCE, "what ended gave its place back");
    }
}
