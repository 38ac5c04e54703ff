//! Work on files, on threads of its own: opening, reading frames, removing. A disk that is slow, or a file that hangs,
//! must hold up nobody but those who wait for that file.
//!
//! A few jobs run at once. One that takes long does not count among them, so that one file that hangs does not stop the
//! others; but no more than [`MOST_THREADS`] hang at any time.

use super::blocks::Key;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc;
use tokio::runtime::Handle;
use weir_core::agent::Place;
use weir_model::{Span, Time};
use weir_net::{FileStamp, FrameReader, Waker};

/// Jobs that run at once, as long as none takes long.
const AT_ONCE: usize = 4;
/// A job that takes longer does not count among those.
const LONG: Span = Span::from_millis(500);
/// Most jobs that run, long ones counted.
const MOST_THREADS: usize = 64;
/// Files that one job removes.
const REMOVED_AT_ONCE: usize = 64;

/// What is to be done.
pub(super) enum Job {
    /// Opens the file of a block for a connection.
    Open { connection: u64, flow: u64, path: PathBuf },
    /// Reads a frame of a block, so that its checksum is known and its bytes are in memory.
    Read { block: Key, place: Place, frame: u64, reader: FrameReader },
    /// Removes files.
    Remove(Vec<PathBuf>),
    /// Looks for spooled files that nobody wrote to for an hour.
    Sweep(PathBuf),
}

/// What came of it.
pub(super) enum Done {
    Opened {
        connection: u64,
        flow: u64,
        result: io::Result<(File, FileStamp)>,
    },
    Read {
        block: Key,
        place: Place,
        frame: u64,
        result: io::Result<u32>,
    },
    Removed,
    /// All spooled files.
    Swept(Vec<PathBuf>),
}

impl Job {
    fn run(self) -> Done {
        match self {
            Job::Open { connection, flow, path } => {
                Done::Opened { connection, flow, result: weir_net::open_regular(&path) }
            }
            Job::Read { block, place, frame, reader } => {
                Done::Read { block, place, frame, result: reader.read() }
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
            Job::Sweep(spool) => Done::Swept(super::spool::files(&spool)),
        }
    }
}

/// Jobs that wait and run.
pub(super) struct Jobs {
    runtime: Handle,
    waker: Waker,
    /// What came of each, by its number.
    done: mpsc::Sender<(u64, Done)>,
    inbox: mpsc::Receiver<(u64, Done)>,
    /// Opening and reading, in order; each connection has a few at most.
    waiting: VecDeque<Job>,
    /// Files that are to be removed when nothing else waits.
    doomed: VecDeque<PathBuf>,
    /// When each job that runs began.
    running: BTreeMap<u64, Time>,
    next: u64,
    removing: bool,
}

impl Jobs {
    /// Runs jobs on the blocking threads of a runtime, and wakes whoever waits for them.
    pub(super) fn new(runtime: Handle, waker: Waker) -> Jobs {
        let (done, inbox) = mpsc::channel();
        Jobs {
            runtime,
            waker,
            done,
            inbox,
            waiting: VecDeque::new(),
            doomed: VecDeque::new(),
            running: BTreeMap::new(),
            next: 0,
            removing: false,
        }
    }

    pub(super) fn add(&mut self, now: Time, job: Job) {
        self.waiting.push_back(job);
        self.start(now);
    }

    /// Removes a file when there is time.
    pub(super) fn remove(&mut self, now: Time, path: PathBuf) {
        self.doomed.push_back(path);
        self.start(now);
    }

    /// The next job that is done.
    pub(super) fn poll(&mut self, now: Time) -> Option<Done> {
        let (id, done) = self.inbox.try_recv().ok()?;
        self.running.remove(&id);
        self.removing &= !matches!(done, Done::Removed);
        self.start(now);
        Some(done)
    }

    /// Starts what may run. To be called now and then: a job that takes long makes room for another.
    pub(super) fn start(&mut self, now: Time) {
        while self.has_room(now)
            && let Some(job) = self.next_job()
        {
            let (id, done, waker) = (self.next, self.done.clone(), self.waker.clone());
            self.next += 1;
            self.running.insert(id, now);
            self.runtime.spawn_blocking(move || {
                let _ = done.send((id, job.run()));
                waker.wake();
            });
        }
    }

    fn has_room(&self, now: Time) -> bool {
        let short = self.running.values().filter(|&&began| now.since(began) < LONG).count();
        short < AT_ONCE && self.running.len() < MOST_THREADS
    }

    fn next_job(&mut self) -> Option<Job> {
        if let Some(job) = self.waiting.pop_front() {
            return Some(job);
        }
        // One at a time: removing takes the directory's lock, which opening and creating files need too.
        if self.removing || self.doomed.is_empty() {
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
