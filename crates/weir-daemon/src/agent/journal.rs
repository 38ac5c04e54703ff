//! The journal: what must survive the process, a line each, appended as it happens, and written anew without what has
//! ended whenever most of it is dead and it is large or has no room; at once if it is when the agent starts. All calls
//! wait for the disk: `scribe` makes them on a thread of its own.
//!
//! # Format
//! Version 2: a header line, then lines of a CRC-32C in eight hexadecimal digits, a blank, and a JSON object, which the
//! checksum is of. Lines of version 1 have no checksum and begin with the object's brace; they are read too.
//!
//! # What a fault costs
//! * The process is killed in mid-write: the last line has no newline and was never answered for. It is dropped.
//! * A line is damaged: it alone is skipped, and told. Others stay.
//! * The disk is full: what was written of a line is taken back. Puts are refused while less than a reserve is left;
//!   everything else goes into the reserve, and beyond it waits in memory until there is room again.
//! * The machine is lost (power, a panic of its kernel): where [`Durability::Machine`] was asked for, nothing is that a put was
//!   answered for. Otherwise what was written in the last second is, and as much as the disk was behind.
//! * The disk says that it could not write: what the kernel had in memory of the file may be gone from there, so that syncing
//!   once more would prove nothing. The journal is written anew.
//!
//! # When it is on the disk
//! A write is in the kernel's memory when it returns. With [`Durability::Machine`] puts that wait are written together and then
//! synced together, on this thread. All else, and everything with [`Durability::Process`], is synced at most once in a
//! second by a thread of its own: on a file system that other tasks write gigabytes to, syncing a few bytes may take seconds.
//! A journal that was written anew is synced first, renamed then, and its directory is synced last: whenever the machine is
//! lost, one whole journal is there.

use super::Durability;
use super::log::{Log, is_unsupported, sync_directory};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_core::agent::{
    Agent, FactCursor, JOURNAL_HEADER, JournalEntry, JournalLines, journal_lines as lines,
};

/// Its name, in the directory of the agent's own files.
pub(super) const FILE: &str = "journal.jsonl";
const NEW_FILE: &str = "journal.jsonl.new";
/// A journal that is mostly dead is written anew once it has this length, or has no room,
const SLACK_BYTES: u64 = 16 << 20;
/// and so many lines.
const SLACK_LINES: usize = 1_000;
/// Facts that are written at once into a new journal.
pub(super) const FACTS_AT_ONCE: usize = 1_000;
/// A journal that could not be written anew is tried again after this time.
const REWRITE_AGAIN: Duration = Duration::from_secs(30);
/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;
/// Entries that are handed on together,
const BATCH: usize = 1_000;
/// and so many batches may wait for the agent to take them in.
const BATCHES: usize = 8;
/// How long what is written waits at least to be synced, unless a put waits for that.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes that wait for room on the disk; older ones are dropped beyond that, and told.
const MAX_WAITING_BYTES: usize = 16 << 20;

pub(super) struct Journal {
    spool: PathBuf,
    durability: Durability,
    log: Log,
    /// Lines that it has.
    lines: usize,
    /// A new journal in the making.
    rewriting: Option<Rewriting>,
    /// What another thread syncs, and how many bytes of it.
    syncing: Option<(Arc<File>, u64)>,
    /// When the journal is synced next, if it needs to be; never where the file system knows nothing of that.
    next_sync: Option<Instant>,
    /// The journal was renamed, and its directory is not on the disk yet: a put that has to be waits for that.
    is_renamed: bool,
    /// Another thread is to sync the directory.
    syncs_directory: bool,
    /// The disk failed to write some of it.
    is_damaged: bool,
    /// When writing it anew failed last.
    failed: Option<Instant>,
    /// Lines that had no room.
    waiting: VecDeque<Vec<u8>>,
    waiting_bytes: usize,
    /// Whether writing failed last time, so that it is told once.
    failing: bool,
}

/// A journal in the making.
struct Rewriting {
    log: Log,
    lines: usize,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It has no facts yet.
    Begun,
    /// It has some facts, and more follow.
    Facts,
    /// It has all, and waits to be synced.
    Whole,
}

/// A file that is to be synced by another thread.
pub(super) struct ToSync(Arc<File>);

impl ToSync {
    /// Waits until it is on the disk.
    pub(super) fn run(self) -> io::Result<()> {
        // The file may be a directory, whose names are synced then.
        self.0.sync_all()
    }
}

impl Journal {
    /// Hands on what is there and opens it for appending.
    pub(super) fn open(
        spool: &Path,
        durability: Durability,
        hear: impl FnMut(JournalEntry),
    ) -> io::Result<(Journal, JournalLines)> {
        // An earlier process may have been killed while it wrote the journal anew.
        match std::fs::remove_file(spool.join(NEW_FILE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let path = spool.join(FILE);
        let found = read(&path, hear)?;
        // A torn line at the end is taken back.
        let log = Log::open(&path, found.whole)?;
        let is_empty = log.length() == 0;
        let mut journal = Journal {
            spool: spool.to_owned(),
            durability,
            log,
            lines: found.sound + found.damaged.len(),
            rewriting: None,
            syncing: None,
            next_sync: Some(Instant::now()),
            is_renamed: false,
            syncs_directory: false,
            is_damaged: false,
            failed: None,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            failing: false,
        };
        if is_empty {
            journal.keep(format!("{JOURNAL_HEADER}\n").into_bytes());
        }
        Ok((journal, found))
    }

    /// What is there, and its name, is on the disk before the agent serves: above all which start of the machine this is, which
    /// what follows rests on. An error says that what was asked for cannot be had here.
    pub(super) fn sync_first(&mut self) -> io::Result<()> {
        match self.log.sync().and_then(|()| sync_directory(&self.spool)) {
            Ok(()) => Ok(()),
            Err(error) if self.durability == Durability::Machine => Err(io::Error::new(
                error.kind(),
                format!("the spool's disk cannot be synced, and --durable machine needs that: {error}"),
            )),
            Err(error) => {
                self.sync_failed(&error);
                Ok(())
            }
        }
    }

    /// Appends what a put is answered for, and everything else that happened. An error says that it is not on the disk,
    /// and that nothing of it was written.
    pub(super) fn append_put(&mut self, entries: &[JournalEntry]) -> io::Result<()> {
        // In order: what happened before the put is written before it.
        self.write_waiting()?;
        // What is free goes to the journal in the making, which frees more than is set aside here.
        if self.rewriting.is_none() {
            self.log.reserve()?;
        }
        let is_durable = self.durability == Durability::Machine;
        if is_durable && self.is_renamed {
            // Without this the journal of before the rename could be there after the machine was lost.
            sync_directory(&self.spool)?;
            self.is_renamed = false;
        }
        let (lines, before) = (lines(entries)?, self.log.length());
        self.log.append(&lines)?;
        if is_durable && let Err(error) = self.log.sync() {
            self.sync_failed(&error);
            // The put is refused, so its line must not be there after a restart.
            self.log.take_back(before)?;
            return Err(error);
        }
        self.lines += entries.len();
        self.also(&lines, entries.len());
        Ok(())
    }

    /// Appends facts that hold whether there is room or not; without, they wait.
    pub(super) fn append(&mut self, entries: &[JournalEntry]) {
        if entries.is_empty() {
            return;
        }
        match lines(entries) {
            Ok(lines) => self.keep(lines),
            Err(error) => {
                tracing::error!(%error, "facts that cannot be written down are lost with the process")
            }
        }
    }

    fn keep(&mut self, lines: Vec<u8>) {
        self.waiting_bytes += lines.len();
        self.waiting.push_back(lines);
        if let Err(error) = self.write_waiting()
            && !self.failing
        {
            self.failing = true;
            tracing::error!(%error, spool = %self.spool.display(), "the journal cannot be written; puts are refused until it can");
        }
        while self.waiting_bytes > MAX_WAITING_BYTES {
            let Some(lines) = self.waiting.pop_front() else { return };
            self.waiting_bytes -= lines.len();
            tracing::error!(
                bytes = lines.len(),
                "facts that had no room in the journal for too long are lost with the process"
            );
        }
    }

    /// Whether something waits for room: then [`Journal::look_after`] is worth a call now and then.
    pub(super) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Writes what waited for room, if there is some by now, and begins to write the journal anew if most of it is dead.
    /// `live`: no more facts than these hold now.
    pub(super) fn look_after(&mut self, live: usize) {
        let _ = self.write_waiting();
        let is_dead = self.lines > live.saturating_mul(2).saturating_add(SLACK_LINES);
        // A small journal is written anew too once the disk has no reserve left: dead lines are the room that can be freed.
        let is_large = self.log.length() > SLACK_BYTES || self.log.reserve().is_err();
        let may = self.failed.is_none_or(|failed| failed.elapsed() > REWRITE_AGAIN);
        if (is_dead && is_large || self.is_damaged) && may && self.rewriting.is_none() {
            self.begin_anew();
        }
    }

    fn write_waiting(&mut self) -> io::Result<()> {
        while let Some(lines) = self.waiting.pop_front() {
            if let Err(error) = self.log.append(&lines) {
                // Back to its place, so that the order of lines stays that of events.
                self.waiting.push_front(lines);
                return Err(error);
            }
            self.waiting_bytes -= lines.len();
            let count = count_lines(&lines);
            self.lines += count;
            self.also(&lines, count);
        }
        if std::mem::take(&mut self.failing) {
            tracing::warn!(spool = %self.spool.display(), "the journal is written again");
        }
        Ok(())
    }

    /// A journal in the making gets what the old one gets; if it cannot, it is given up.
    fn also(&mut self, lines: &[u8], count: usize) {
        let Some(new) = &mut self.rewriting else { return };
        // What happens while facts are read off goes into both journals, so that the new one lacks
        // nothing when it takes the old one's place.
        new.lines += count;
        if let Err(error) = new.log.append(lines) {
            self.give_up(&error);
        }
    }

    fn give_up(&mut self, error: &io::Error) {
        if self.failed.is_none() {
            tracing::warn!(%error, "the journal could not be written anew; it goes on to grow");
        }
        self.rewriting = None;
        self.failed = Some(Instant::now());
        // What cannot be removed now is removed at the next start.
        let _ = std::fs::remove_file(self.spool.join(NEW_FILE));
    }

    /// Frees what is dead of the journal that was found, if that is most of it: the disk may be full.
    pub(super) fn begin(&mut self, found: &JournalLines, agent: &Agent) {
        if found.damaged.is_empty() && self.lines <= agent.most_facts().saturating_mul(2) {
            return;
        }
        self.begin_anew();
        let mut cursor = FactCursor::default();
        while self.wants_facts().is_some() {
            self.go_on(&agent.facts(&mut cursor, FACTS_AT_ONCE));
        }
        // The agent does not serve yet, so this thread may wait for the disk.
        if let Some(new) = &mut self.rewriting {
            match new.log.sync() {
                Err(error) if !is_unsupported(&error) => self.give_up(&error),
                _ => self.replace(),
            }
        }
    }

    /// Whether a journal in the making wants facts; if so, whether from the first on.
    pub(super) fn wants_facts(&self) -> Option<bool> {
        let new = self.rewriting.as_ref().filter(|new| new.stage != Stage::Whole)?;
        Some(new.stage == Stage::Begun)
    }

    /// Begins a new journal.
    fn begin_anew(&mut self) {
        // What is set aside for the old one may be all the room there is.
        self.log.give_back();
        let begun = Log::create(&self.spool.join(NEW_FILE)).and_then(|mut log| {
            log.append(format!("{JOURNAL_HEADER}\n").as_bytes())?;
            Ok(log)
        });
        match begun {
            Ok(log) => self.rewriting = Some(Rewriting { log, lines: 0, stage: Stage::Begun }),
            Err(error) => self.give_up(&error),
        }
    }

    /// Goes on to write the journal anew with the next facts; none: that was all, and the new one takes the old one's place once
    /// it is synced.
    pub(super) fn go_on(&mut self, facts: &[JournalEntry]) {
        let Some(new) = &mut self.rewriting else { return };
        if facts.is_empty() {
            new.stage = Stage::Whole;
            // The file system cannot sync: no `handle_synced` would come that replaces the old journal.
            if self.next_sync.is_none() {
                self.replace();
            }
            return;
        }
        new.stage = Stage::Facts;
        new.lines += facts.len();
        if let Err(error) = lines(facts).and_then(|lines| new.log.append(&lines)) {
            self.give_up(&error);
        }
    }

    /// The new journal, which is on the disk but for what was added in the last moments, takes the old one's place.
    fn replace(&mut self) {
        let Some(new) = &mut self.rewriting else { return };
        let waits = self.durability == Durability::Machine;
        let replaced = if waits && !new.log.is_synced() { new.log.sync() } else { Ok(()) }
            // Renamed only once its content is on the disk: after a loss of the machine the name leads to one whole journal.
            .and_then(|()| std::fs::rename(self.spool.join(NEW_FILE), self.spool.join(FILE)));
        if let Err(error) = replaced {
            return self.give_up(&error);
        }
        if let Some(Rewriting { log, lines, .. }) = self.rewriting.take() {
            (self.log, self.lines, self.failed, self.is_damaged) = (log, lines, None, false);
        }
        // Where puts need not survive the machine, another thread syncs the directory later.
        self.is_renamed = !(waits && sync_directory(&self.spool).is_ok());
        self.syncs_directory = self.is_renamed;
        // What waits may have had no room beside the old journal, whose bytes are free now.
        let _ = self.write_waiting();
    }

    /// What another thread is to sync now. [`Journal::handle_synced`] follows before there is more.
    pub(super) fn poll_sync(&mut self) -> Option<ToSync> {
        let next = self.next_sync.filter(|_| self.syncing.is_none())?;
        let (file, bytes) = match &mut self.rewriting {
            Some(new) if new.stage == Stage::Whole => new.log.begin_sync(),
            _ if std::mem::take(&mut self.syncs_directory) => (Arc::new(self.open_directory()?), 0),
            _ if next <= Instant::now() && !self.log.is_synced() => {
                self.next_sync = Some(Instant::now() + SYNC_INTERVAL);
                self.log.begin_sync()
            }
            _ => return None,
        };
        // Each open file is told of an error once: the one that puts are synced by has to keep its own.
        let name = if self.log.is(&file) { FILE } else { NEW_FILE };
        let own =
            if bytes == 0 { Ok(Arc::clone(&file)) } else { File::open(self.spool.join(name)).map(Arc::new) };
        let own = own.unwrap_or_else(|_| Arc::clone(&file));
        self.syncing = Some((file, bytes));
        Some(ToSync(own))
    }

    /// Opening is tried once: a put that needs the directory on the disk syncs it itself.
    fn open_directory(&self) -> Option<File> {
        let opened = File::open(&self.spool);
        opened.inspect_err(|error| self.tell_unsynced_directory(error)).ok()
    }

    fn tell_unsynced_directory(&self, error: &io::Error) {
        tracing::warn!(%error, spool = %self.spool.display(), "the spool's directory cannot be synced");
    }

    /// How long there is nothing to be synced; `None`: until something is written.
    pub(super) fn next_sync(&self) -> Option<Duration> {
        let next = self.next_sync.filter(|_| self.syncing.is_none() && !self.log.is_synced())?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// What [`Journal::poll_sync`] gave is on the disk, or cannot be.
    pub(super) fn handle_synced(&mut self, result: io::Result<()>) {
        let Some((file, bytes)) = self.syncing.take() else { return };
        let is_unknown = result.as_ref().is_err_and(is_unsupported);
        if let Some(new) = self.rewriting.as_mut().filter(|new| new.log.is(&file)) {
            match result {
                Err(error) if !is_unknown => self.give_up(&error),
                _ => {
                    new.log.note_synced(bytes);
                    self.replace();
                }
            }
        } else if self.log.is(&file) {
            match result {
                Ok(()) => self.log.note_synced(bytes),
                Err(error) => self.sync_failed(&error),
            }
        } else if bytes == 0 {
            // Only the directory is synced with a length of 0.
            self.is_renamed = result.is_err() && !is_unknown;
            if let Err(error) = result {
                self.tell_unsynced_directory(&error);
            }
        }
    }

    fn sync_failed(&mut self, error: &io::Error) {
        let spool = self.spool.display();
        // Not tried again: a file system that knows no syncing never will.
        if is_unsupported(error) {
            tracing::warn!(%error, %spool, "this disk cannot be synced: the journal outlives the agent, and not the machine");
            self.next_sync = None;
        } else if !std::mem::replace(&mut self.is_damaged, true) {
            tracing::error!(%error, %spool, "the disk did not write the journal; it is written anew once it can be");
        }
    }
}

/// Lines that end in these bytes.
fn count_lines(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte == b'\n').count()
}

/// Hands on what a journal says. One of another version is put aside.
fn read(path: &Path, hear: impl FnMut(JournalEntry)) -> io::Result<JournalLines> {
    let found = match File::open(path) {
        Ok(file) => read_beside(BufReader::with_capacity(READ_BYTES, file), hear)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(JournalLines::default()),
        Err(error) => return Err(error),
    };
    if found.torn {
        tracing::warn!(path = %path.display(), "the journal's last line is torn: it was never answered for");
    }
    for line in &found.damaged {
        tracing::error!(path = %path.display(), line, "a damaged line of the journal was skipped: what it said is lost");
    }
    if found.other_version {
        let aside = path.with_extension("other-version");
        std::fs::rename(path, &aside)?;
        tracing::warn!(kept = %aside.display(), "journal of another version put aside");
    }
    Ok(found)
}

/// Reads on a thread of its own, while what was read is heard here: a million lines take seconds.
fn read_beside(reader: impl BufRead + Send, mut hear: impl FnMut(JournalEntry)) -> io::Result<JournalLines> {
    let (sender, batches) = std::sync::mpsc::sync_channel(BATCHES);
    std::thread::scope(|scope| {
        let reading = scope.spawn(move || {
            let mut batch = Vec::new();
            let found = JournalLines::read(reader, |entry| {
                batch.push(entry);
                if batch.len() == BATCH {
                    // An error is impossible: the receiving end takes batches until this thread has ended.
                    let _ = sender.send(std::mem::take(&mut batch));
                }
            });
            let _ = sender.send(batch);
            found
        });
        batches.into_iter().flatten().for_each(&mut hear);
        reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests;
