//! Work on files, on threads of its own: opening, reading frames, closing, removing. A disk that is slow, or a file that
//! hangs, must hold up only the connections that wait for that file.
//!
//! Each file system has places of its own, so that one that hangs keeps no other waiting. A few jobs run at once on each. One
//! that takes long does not count among them, so that one file that hangs does not stop the others beside it; but no more
//! than [`MOST_OF_ONE`] hang on one file system, and [`MOST_THREADS`] in all.

use super::stores::{Found, OpenFiles, Places};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::ops::Bound;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use tokio::runtime::Handle;
use weir_core::agent::{BlockEntry, FileStamp, Gathered, Place, StoreEntry};
use weir_core::ids::{BlockKey, FlowNumber};
use weir_model::{Span, Time};
use weir_net::{FileSystem, FrameRead, FrameReader, Medium, Mounts, OpenedFile, Piece, Waker};
use weir_proto::data::Status;
use weir_proto::gather::GatherRequest;

/// Jobs that run at once on a file system, as long as none takes long.
const AT_ONCE: usize = 4;
/// A job that takes longer does not count among those.
const LONG: Span = Span::from_millis(500);
/// Most jobs that run on one file system, long ones counted.
const MOST_OF_ONE: usize = 16;
/// Most jobs that run on all file systems together, long ones counted.
const MOST_THREADS: usize = 128;
/// Most jobs of receivers that wait for one file system: where it hangs, each asks again and again.
const MOST_WAITING: usize = 8_192;
/// Files that one job removes.
const REMOVED_AT_ONCE: usize = 64;
/// How often it is looked at what is mounted, while there is work.
const MOUNTS_INTERVAL: Span = Span::from_millis(1_000);

/// What is to be done.
pub(super) enum Job {
    /// Opens the file of a block for a connection.
    Open { connection: u64, flow: FlowNumber, path: PathBuf },
    /// Reads a frame of a block, so that its checksum is known and its bytes are in memory.
    Read { block: BlockKey, place: Place, frame: u64, reader: FrameReader },
    /// Finds the ranges of a gather for a connection.
    Gather { connection: u64, number: u64, store: StoreEntry, request: GatherRequest, files: OpenFiles },
    /// Looks whether a store is there still.
    Store(StoreEntry),
    /// Closes a file that may take its time.
    Close(PathBuf, Arc<File>),
    /// Removes files, at most [`REMOVED_AT_ONCE`] of them.
    Remove(Vec<PathBuf>),
    /// Looks for files of blocks in a directory.
    Sweep(PathBuf),
    /// Looks what is mounted.
    Mounts,
}

/// What came of it.
pub(super) enum Done {
    Opened {
        connection: u64,
        flow: FlowNumber,
        path: PathBuf,
        result: io::Result<Open>,
    },
    Read {
        block: BlockKey,
        place: Place,
        frame: u64,
        result: io::Result<FrameRead>,
    },
    Gathered {
        connection: u64,
        number: u64,
        result: Result<Gather, Status>,
    },
    /// A store was looked for; it has no directory any more if it is given.
    StoreSeen(Option<StoreEntry>),
    Removed,
    /// Files of blocks that the sweep found.
    Swept(Vec<PathBuf>),
    /// Nothing that a connection waits for.
    Nothing,
    Mounts(io::Result<Mounts>),
}

/// An open file. One whose closing may take long is closed by a job.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) opened: OpenedFile,
    path: PathBuf,
    closing: mpsc::Sender<Job>,
}

impl Open {
    pub(super) fn new(opened: OpenedFile, path: PathBuf, closing: mpsc::Sender<Job>) -> Open {
        Open { opened, path, closing }
    }

    /// Whether it is the file that was put as a block, as it was opened.
    pub(super) fn holds(&self, block: &BlockEntry) -> bool {
        is_unchanged(block, self.opened.stamp)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // Closing a file of a network file system may wait for its server, and this may be the data-plane thread.
        if self.opened.medium == Medium::Elsewhere {
            let _ =
                self.closing.send(Job::Close(std::mem::take(&mut self.path), Arc::clone(&self.opened.file)));
        }
    }
}

/// Whether an opened file is the one that was put, and long enough.
pub(super) fn is_unchanged(block: &BlockEntry, found: weir_net::FileStamp) -> bool {
    let long_enough = block.offset.checked_add(block.size).is_some_and(|end| end <= found.length);
    let same = |put: FileStamp| {
        // Spooled files are the agent's own: a disk may write down late when they were written.
        let modified = block.spooled || put.modified_ns == found.modified_ns;
        put.inode == found.inode && put.length == found.length && modified
    };
    long_enough && (!block.spooled || found.links == 1) && block.stamp.is_none_or(same)
}

/// What a gather is made of. Its files are open for as long as it lives.
#[derive(Debug)]
pub(super) struct Gather {
    pub(super) gathered: Gathered,
    /// The table, and the ranges.
    pub(super) pieces: Vec<(u64, Piece)>,
    /// What closes the files.
    pub(super) open: Held,
}

/// Open files of a gather.
#[derive(Debug)]
pub(super) struct Held {
    _files: Vec<Open>,
    _places: Places,
}

impl Gather {
    fn new(found: Found, closing: &mpsc::Sender<Job>) -> Gather {
        let Found { gathered, pieces, files, places } = found;
        let files = files.into_iter().map(|(opened, path)| Open::new(opened, path, closing.clone()));
        Gather { gathered, pieces, open: Held { _files: files.collect(), _places: places } }
    }
}

/// What a job comes to, or `failed` where it panics: what waits for a job would wait for ever, and its place be taken for good.
fn done_or(failed: Done, run: impl FnOnce() -> Done) -> Done {
    panic::catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        tracing::error!("work on a file panicked, and counts as failed: this is a bug of Weir");
        failed
    })
}

impl Job {
    /// What came of it if it fails without a word.
    fn failed(&self) -> Done {
        let error = || io::Error::other("work on the file panicked");
        match self {
            Job::Open { connection, flow, path } => {
                let result = Err(error());
                Done::Opened { connection: *connection, flow: *flow, path: path.clone(), result }
            }
            Job::Read { block, place, frame, .. } => {
                Done::Read { block: block.clone(), place: place.clone(), frame: *frame, result: Err(error()) }
            }
            Job::Gather { connection, number, .. } => {
                Done::Gathered { connection: *connection, number: *number, result: Err(Status::Unreadable) }
            }
            Job::Store(_) => Done::StoreSeen(None),
            Job::Close(..) => Done::Nothing,
            Job::Remove(_) => Done::Removed,
            Job::Sweep(_) => Done::Swept(Vec::new()),
            Job::Mounts => Done::Mounts(Err(error())),
        }
    }

    /// What its receiver is told if too many wait before it; none for work that no receiver waits for.
    fn crowded_out(&self) -> Option<Done> {
        let busy = || io::Error::from(io::ErrorKind::ResourceBusy);
        match self.failed() {
            Done::Opened { connection, flow, path, .. } => {
                Some(Done::Opened { connection, flow, path, result: Err(busy()) })
            }
            Done::Read { block, place, frame, .. } => {
                Some(Done::Read { block, place, frame, result: Err(busy()) })
            }
            Done::Gathered { connection, number, .. } => {
                Some(Done::Gathered { connection, number, result: Err(Status::Busy) })
            }
            Done::StoreSeen(_) | Done::Removed | Done::Swept(_) | Done::Nothing | Done::Mounts(_) => None,
        }
    }

    fn run(self, closing: &mpsc::Sender<Job>) -> Done {
        match self {
            Job::Open { connection, flow, path } => {
                let result = weir_net::open_regular(&path);
                let result = result.map(|opened| Open::new(opened, path.clone(), closing.clone()));
                Done::Opened { connection, flow, path, result }
            }
            Job::Read { block, place, frame, reader } => {
                Done::Read { block, place, frame, result: reader.read() }
            }
            Job::Gather { connection, number, store, request, files } => {
                let result = super::stores::find(&store, &request, &files);
                let result = result.map(|found| Gather::new(found, closing));
                Done::Gathered { connection, number, result }
            }
            Job::Store(store) => {
                let is_there = store.directories.iter().any(|path| Path::new(path).exists());
                Done::StoreSeen((!is_there).then_some(store))
            }
            Job::Close(_, file) => {
                drop(file);
                Done::Nothing
            }
            Job::Remove(paths) => {
                for path in paths {
                    if let Err(error) = std::fs::remove_file(&path)
                        && error.kind() != io::ErrorKind::NotFound
                    {
                        tracing::warn!(path = %path.display(), %error, "cannot remove a spooled block");
                    }
                }
                Done::Removed
            }
            Job::Sweep(blocks) => Done::Swept(super::spool::files(&blocks)),
            Job::Mounts => Done::Mounts(Mounts::read()),
        }
    }

    /// Something on the file system that it works on.
    fn path(&self) -> &Path {
        match self {
            Job::Open { path, .. } | Job::Close(path, _) | Job::Sweep(path) => path,
            Job::Read { place, .. } => Path::new(&place.path),
            Job::Gather { store, request, .. } => super::stores::first_directory(store, request),
            Job::Store(store) => store.directories.first().map_or(Path::new("/"), Path::new),
            Job::Remove(paths) => paths.first().map_or(Path::new("/"), PathBuf::as_path),
            Job::Mounts => Path::new("/proc"),
        }
    }
}

/// A job that runs.
struct Running {
    path: PathBuf,
    on: FileSystem,
    began: Time,
}

/// Jobs that wait and run.
pub(super) struct Jobs {
    runtime: Handle,
    waker: Waker,
    /// What came of each, by its number.
    done: mpsc::Sender<(u64, Done)>,
    inbox: mpsc::Receiver<(u64, Done)>,
    /// Files that no connection reads any more.
    closing: (mpsc::Sender<Job>, mpsc::Receiver<Job>),
    mounts: Mounts,
    next_mounts: Time,
    /// Opening, reading and closing, in order; each connection has a few at most.
    waiting: BTreeMap<FileSystem, VecDeque<Job>>,
    /// The file system that had its turn last.
    last: FileSystem,
    /// Files that are to be removed when nothing else waits there.
    doomed: VecDeque<PathBuf>,
    running: BTreeMap<u64, Running>,
    next: u64,
    removing: bool,
}

impl Jobs {
    /// Runs jobs on the blocking threads of a runtime, and wakes the data-plane thread when one is done.
    pub(super) fn new(runtime: Handle, waker: Waker) -> Jobs {
        let (done, inbox) = mpsc::channel();
        Jobs {
            runtime,
            waker,
            done,
            inbox,
            closing: mpsc::channel(),
            mounts: Mounts::read().unwrap_or_default(),
            next_mounts: Time::ZERO,
            waiting: BTreeMap::new(),
            last: FileSystem::default(),
            doomed: VecDeque::new(),
            running: BTreeMap::new(),
            next: 0,
            removing: false,
        }
    }

    pub(super) fn add(&mut self, now: Time, job: Job) {
        let waiting = self.waiting.get(&self.mounts.of(job.path())).map_or(0, VecDeque::len);
        match job.crowded_out().filter(|_| waiting >= MOST_WAITING) {
            Some(refused) => {
                // As what came of a job that has no number.
                let _ = self.done.send((u64::MAX, refused));
                self.waker.wake();
            }
            None => {
                self.queue(job);
                self.start(now);
            }
        }
    }

    fn queue(&mut self, job: Job) {
        self.waiting.entry(self.mounts.of(job.path())).or_default().push_back(job);
    }

    /// Removes a file when there is time.
    pub(super) fn remove(&mut self, now: Time, path: PathBuf) {
        self.doomed.push_back(path);
        self.start(now);
    }

    /// The next job that is done.
    pub(super) fn poll(&mut self, now: Time) -> Option<Done> {
        let (id, done) = self.inbox.try_recv().ok()?;
        // Before `start`: the place of this job is free for another.
        self.running.remove(&id);
        // Only one removal runs at a time, so the one that is done is the one that ran.
        self.removing &= !matches!(done, Done::Removed);
        let done = match done {
            Done::Mounts(Ok(mounts)) => {
                self.sort_by(mounts);
                Done::Nothing
            }
            done => done,
        };
        self.start(now);
        Some(done)
    }

    /// Other file systems are mounted: what waits and runs counts for the one that it is on.
    fn sort_by(&mut self, mounts: Mounts) {
        self.mounts = mounts;
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_values().flatten().for_each(|job| self.queue(job));
        self.running.values_mut().for_each(|running| running.on = self.mounts.of(&running.path));
    }

    /// Starts what may run. To be called now and then: a job that takes long makes room for another.
    pub(super) fn start(&mut self, now: Time) {
        // A dropped `Open` cannot reach the queues: it sends its job here.
        while let Ok(job) = self.closing.1.try_recv() {
            self.queue(job);
        }
        if self.wait() && self.next_mounts <= now {
            self.next_mounts = now + MOUNTS_INTERVAL;
            self.spawn(now, Job::Mounts);
        }
        while let Some(job) = self.next_job(now) {
            self.spawn(now, job);
        }
    }

    fn spawn(&mut self, now: Time, job: Job) {
        let (id, done, waker, closing) =
            (self.next, self.done.clone(), self.waker.clone(), self.closing.0.clone());
        self.next += 1;
        let path = job.path().to_owned();
        let on = self.mounts.of(&path);
        self.running.insert(id, Running { path, on, began: now });
        self.runtime.spawn_blocking(move || {
            // The data plane may have ended meanwhile: then what came of the job matters no more.
            let _ = done.send((id, done_or(job.failed(), || job.run(&closing))));
            waker.wake();
        });
    }

    fn has_room(&self, now: Time, on: FileSystem) -> bool {
        // A pass over all that run: `MOST_THREADS` at most.
        let here = self.running.values().filter(|running| running.on == on);
        let (all, short) = here.fold((0, 0), |(all, short), running| {
            (all + 1, short + usize::from(now.since(running.began) < LONG))
        });
        short < AT_ONCE && all < MOST_OF_ONE && self.running.len() < MOST_THREADS
    }

    /// The first job of the next file system that has room.
    fn next_job(&mut self, now: Time) -> Option<Job> {
        // Round robin over file systems: first those after the last one, then from the beginning.
        let after = self.waiting.range((Bound::Excluded(self.last), Bound::Unbounded));
        let mut turns = after.chain(self.waiting.range(..=self.last)).map(|(&on, _)| on);
        if let Some(on) = turns.find(|&on| self.has_room(now, on)) {
            self.last = on;
            let jobs = self.waiting.get_mut(&on)?;
            let job = jobs.pop_front();
            // An empty queue would have `wait` say that jobs wait.
            if jobs.is_empty() {
                self.waiting.remove(&on);
            }
            return job;
        }
        // One at a time: removing takes the directory's lock, which opening and creating files need too.
        let on = self.mounts.of(self.doomed.front()?);
        if self.removing || self.waiting.contains_key(&on) || !self.has_room(now, on) {
            return None;
        }
        self.removing = true;
        let count = self.doomed.len().min(REMOVED_AT_ONCE);
        Some(Job::Remove(self.doomed.drain(..count).collect()))
    }

    /// Whether jobs wait for others.
    pub(super) fn wait(&self) -> bool {
        !self.waiting.is_empty() || !self.doomed.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_panics_is_over_as_one_that_failed() {
        let remove = Job::Remove(Vec::new());
        let done = done_or(remove.failed(), || unreachable!("a bug"));
        assert!(matches!(done, Done::Removed));
        let open = Job::Open { connection: 7, flow: FlowNumber(3), path: PathBuf::from("/a") };
        let Done::Opened { connection: 7, flow: FlowNumber(3), path, result: Err(error) } =
            done_or(open.failed(), || unreachable!("a bug"))
        else {
            unreachable!("the connection that waits hears of it")
        };
        assert_eq!(path, Path::new("/a"));
        assert_eq!(error.to_string(), "work on the file panicked");
    }

    #[test]
    fn a_job_that_does_not_panic_says_what_it_found() {
        let done = done_or(Done::Removed, || Done::Swept(vec![PathBuf::from("/a")]));
        assert!(matches!(done, Done::Swept(paths) if paths == [PathBuf::from("/a")]));
    }
    #[tokio::test]
    async fn of_a_disk_that_hangs_so_many_jobs_wait_and_further_receivers_hear_so() {
        let poller = weir_net::Poller::new().unwrap();
        let mut jobs = Jobs::new(Handle::current(), poller.waker());
        let open = |connection| Job::Open { connection, flow: FlowNumber(3), path: PathBuf::from("/a") };
        let on = jobs.mounts.of(Path::new("/a"));
        jobs.waiting.entry(on).or_default().extend((0..MOST_WAITING as u64).map(open));
        jobs.add(Time::ZERO, open(7_000_000));
        let Some((_, Done::Opened { connection: 7_000_000, result: Err(error), .. })) =
            jobs.inbox.try_recv().ok()
        else {
            unreachable!("it is answered at once")
        };
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
        assert_eq!(jobs.waiting[&on].len(), MOST_WAITING);
        // What no receiver waits for goes on to be taken.
        jobs.add(Time::ZERO, Job::Sweep(PathBuf::from("/a")));
        let waits = jobs.waiting.get(&on).map_or(0, VecDeque::len) + jobs.running.len();
        assert!(waits > MOST_WAITING, "{waits}");
    }
}
