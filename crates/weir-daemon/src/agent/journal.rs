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
//! * The machine is lost: so are the journal's last moments, and blocks in memory anyway.

use rustix::fs::FallocateFlags;
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weir_core::agent::{
    Agent, FactCursor, JOURNAL_HEADER, JournalEntry, JournalLines, journal_lines as lines,
};

/// Its name, in the directory of the agent's own files.
pub(super) const FILE: &str = "journal.jsonl";
const NEW_FILE: &str = "journal.jsonl.new";
/// Room on the disk that is kept for everything but puts.
const RESERVE_BYTES: u64 = 1 << 20;
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
/// and so many times as many may wait for whoever hears them.
const BATCHES: usize = 8;
/// Bytes that wait for room on the disk; older ones are dropped beyond that, and told.
const MAX_WAITING_BYTES: usize = 16 << 20;

pub(super) struct Journal {
    spool: PathBuf,
    log: Log,
    /// Lines that it has.
    lines: usize,
    /// A new journal in the making, its lines, and whether it has any facts yet.
    rewriting: Option<(Log, usize, bool)>,
    /// When writing it anew failed last.
    failed: Option<Instant>,
    /// Lines that had no room.
    waiting: VecDeque<Vec<u8>>,
    waiting_bytes: usize,
    /// Whether writing failed last time, so that it is told once.
    failing: bool,
}

/// A file that lines are appended to, whole or not at all.
struct Log {
    file: File,
    length: u64,
    /// Up to where the file system has set room aside; `None` where it does not do so.
    reserved: Option<u64>,
}

impl Log {
    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all(lines) {
            // Half a line must not stand before the next one.
            self.file.set_len(self.length)?;
            io::Seek::seek(&mut self.file, io::SeekFrom::Start(self.length))?;
            return Err(error);
        }
        self.length += lines.len() as u64;
        Ok(())
    }

    /// Sets room aside beyond the end. An error says that there is none.
    fn reserve(&mut self) -> io::Result<()> {
        let Some(reserved) = self.reserved.filter(|&reserved| reserved < self.length + RESERVE_BYTES) else {
            return Ok(());
        };
        let until = self.length + 2 * RESERVE_BYTES;
        let from = reserved.max(self.length);
        match rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, from, until - from) {
            Ok(()) => self.reserved = Some(until),
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => self.reserved = None,
            Err(errno) => return Err(errno.into()),
        }
        Ok(())
    }

    /// Gives back the room that was set aside beyond the end.
    fn give_back(&mut self) {
        if self.reserved.is_some_and(|reserved| reserved > self.length)
            && self.file.set_len(self.length).is_ok()
        {
            self.reserved = Some(0);
        }
    }
}

impl Journal {
    /// Hands on what is there and opens it for appending.
    pub(super) fn open(spool: &Path, hear: impl FnMut(JournalEntry)) -> io::Result<(Journal, JournalLines)> {
        // What an earlier process was writing anew when it was killed.
        match std::fs::remove_file(spool.join(NEW_FILE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let path = spool.join(FILE);
        let found = read(&path, hear)?;
        let mut file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path)?;
        // A torn line at the end is taken back.
        file.set_len(found.whole)?;
        let length = io::Seek::seek(&mut file, io::SeekFrom::End(0))?;
        let log = Log { file, length, reserved: Some(0) };
        let mut journal = Journal {
            spool: spool.to_owned(),
            log,
            lines: found.sound + found.damaged.len(),
            rewriting: None,
            failed: None,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            failing: false,
        };
        if length == 0 {
            journal.keep(format!("{JOURNAL_HEADER}\n").into_bytes());
        }
        Ok((journal, found))
    }

    /// Appends what a put is answered for, and everything else that happened. An error says that it is not on the disk,
    /// and that nothing of it was written.
    pub(super) fn append_put(&mut self, entries: &[JournalEntry]) -> io::Result<()> {
        self.write_waiting()?;
        self.log.reserve()?;
        self.write(lines(entries)?, entries.len())
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
        let is_large = self.log.length > SLACK_BYTES || self.log.reserve().is_err();
        let may = self.failed.is_none_or(|failed| failed.elapsed() > REWRITE_AGAIN);
        if is_dead && is_large && may && self.rewriting.is_none() {
            self.begin_anew();
        }
    }

    fn write_waiting(&mut self) -> io::Result<()> {
        while let Some(lines) = self.waiting.pop_front() {
            if let Err(error) = self.log.append(&lines) {
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

    fn write(&mut self, lines: Vec<u8>, count: usize) -> io::Result<()> {
        self.log.append(&lines)?;
        self.lines += count;
        self.also(&lines, count);
        Ok(())
    }

    /// A journal in the making gets what the old one gets; if it cannot, it is given up.
    fn also(&mut self, lines: &[u8], count: usize) {
        let Some((new, all, _)) = &mut self.rewriting else { return };
        *all += count;
        if let Err(error) = new.append(lines) {
            self.give_up(&error);
        }
    }

    fn give_up(&mut self, error: &io::Error) {
        if self.failed.is_none() {
            tracing::warn!(%error, "the journal could not be written anew; it goes on to grow");
        }
        self.rewriting = None;
        self.failed = Some(Instant::now());
        let _ = std::fs::remove_file(self.spool.join(NEW_FILE));
    }

    /// Frees what is dead of the journal that was found, if that is most of it: the disk may be full.
    pub(super) fn begin(&mut self, found: &JournalLines, agent: &Agent) {
        if found.damaged.is_empty() && self.lines <= agent.most_facts().saturating_mul(2) {
            return;
        }
        self.begin_anew();
        let mut cursor = FactCursor::default();
        while self.rewriting.is_some() {
            self.go_on(&agent.facts(&mut cursor, FACTS_AT_ONCE));
        }
    }

    /// Whether a journal in the making wants facts; if so, whether from the first on.
    pub(super) fn wants_facts(&self) -> Option<bool> {
        self.rewriting.as_ref().map(|(.., has_facts)| !has_facts)
    }

    /// Begins a new journal.
    fn begin_anew(&mut self) {
        // What is set aside for the old one may be all the room there is.
        self.log.give_back();
        let path = self.spool.join(NEW_FILE);
        let begun =
            OpenOptions::new().create_new(true).write(true).mode(0o600).open(&path).and_then(|file| {
                let mut new = Log { file, length: 0, reserved: Some(0) };
                new.append(format!("{JOURNAL_HEADER}\n").as_bytes())?;
                Ok(new)
            });
        match begun {
            Ok(new) => self.rewriting = Some((new, 0, false)),
            Err(error) => self.give_up(&error),
        }
    }

    /// Goes on to write the journal anew with the next facts; none: that was all, and the new one takes the old one's place.
    pub(super) fn go_on(&mut self, facts: &[JournalEntry]) {
        let Some((new, all, has_facts)) = &mut self.rewriting else { return };
        *has_facts = true;
        let done = if facts.is_empty() {
            std::fs::rename(self.spool.join(NEW_FILE), self.spool.join(FILE)).map(|()| true)
        } else {
            *all += facts.len();
            lines(facts).and_then(|lines| new.append(&lines)).map(|()| false)
        };
        match done {
            Ok(false) => {}
            Ok(true) => {
                if let Some((new, all, _)) = self.rewriting.take() {
                    (self.log, self.lines, self.failed) = (new, all, None);
                }
                // It may have had no room beside the old one.
                let _ = self.write_waiting();
            }
            Err(error) => self.give_up(&error),
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
                    // Whoever hears does so to the end.
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
mod tests {
    use super::*;
    use weir_core::agent::JOURNAL_HEADER_1;
    use weir_core::agent::{AgentConfig, BlockEntry};
    use weir_model::Span;

    fn put(coflow: u64, name: &str) -> JournalEntry {
        JournalEntry::Put(BlockEntry {
            coflow,
            block: name.to_owned(),
            path: format!("/spool/{name}"),
            offset: 0,
            size: 1,
            spooled: true,
            frame_checksums: vec![7],
            stamp: None,
            identity: weir_proto::data::Identity::drawn([3; 16]),
        })
    }

    fn agent() -> Agent {
        Agent::new(AgentConfig {
            host: 0,
            data_address: String::new(),
            incarnation: 1,
            spool_identity: 1,
            first_plan_wait: Span::ZERO,
            report_interval: Span::ZERO,
            batch: Span::ZERO,
            uplink: None,
            measures_interface: false,
        })
    }

    fn open(dir: &Path) -> (Journal, JournalLines, Vec<JournalEntry>) {
        let mut entries = Vec::new();
        let (journal, found) = Journal::open(dir, |entry| entries.push(entry)).unwrap();
        (journal, found, entries)
    }

    fn entries(dir: &Path) -> Vec<JournalEntry> {
        open(dir).2
    }

    #[test]
    fn a_torn_last_line_is_dropped_and_what_follows_stands_on_a_line_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, _, _) = open(dir.path());
        journal.append_put(&[put(1, "a")]).unwrap();
        journal.log.file.write_all(b"0123abcd {\"Put\":{\"cofl").unwrap();
        let (mut journal, found, heard) = open(dir.path());
        assert_eq!((heard, found.damaged), (vec![put(1, "a")], vec![]));
        journal.append(&[JournalEntry::Ended(2)]);
        assert_eq!(entries(dir.path()), [put(1, "a"), JournalEntry::Ended(2)]);
    }

    #[test]
    fn a_damaged_line_costs_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, _, _) = open(dir.path());
        for name in ["a", "b", "c"] {
            journal.append_put(&[put(1, name)]).unwrap();
        }
        let path = dir.path().join(FILE);
        let mut bytes = std::fs::read(&path).unwrap();
        // One bit of the name of the second block, on the third line: still JSON, and another block.
        let at = bytes.windows(5).position(|window| window == b"\"b\",\"").unwrap() + 1;
        bytes[at] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let (_, found, heard) = open(dir.path());
        assert_eq!((heard, found.damaged), (vec![put(1, "a"), put(1, "c")], vec![3]));
        // Noise in place of a line.
        std::fs::write(
            &path,
            [JOURNAL_HEADER.as_bytes(), b"\n\xff\xfe\x00\n\n", &lines(&[put(1, "d")]).unwrap()].concat(),
        )
        .unwrap();
        let (_, found, heard) = open(dir.path());
        assert_eq!((heard, found.damaged), (vec![put(1, "d")], vec![2, 3]));
    }

    #[test]
    fn any_bit_of_the_first_line_may_change_and_no_block_is_lost() {
        for bit in 0..8 * JOURNAL_HEADER.len() {
            let dir = tempfile::tempdir().unwrap();
            let (mut journal, _, _) = open(dir.path());
            journal.append_put(&[put(1, "a"), put(1, "b")]).unwrap();
            let path = dir.path().join(FILE);
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, &bytes).unwrap();
            // A newline in it makes two lines of one.
            assert_eq!(open(dir.path()).2, [put(1, "a"), put(1, "b")], "bit {bit}");
        }
    }

    #[test]
    fn a_journal_of_another_version_is_put_aside_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let other = b"{\"weir_journal\":3}\nwhatever it may be\n";
        std::fs::write(dir.path().join(FILE), other).unwrap();
        let (_, found, heard) = open(dir.path());
        assert!(found.other_version && heard.is_empty());
        assert_eq!(std::fs::read(dir.path().join("journal.other-version")).unwrap(), other);
    }

    #[test]
    fn what_a_killed_process_was_writing_anew_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(NEW_FILE), vec![0; 1000]).unwrap();
        open(dir.path());
        assert!(!dir.path().join(NEW_FILE).exists());
    }

    #[test]
    fn a_journal_that_is_mostly_dead_and_large_is_written_anew_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, _, _) = open(dir.path());
        let path = "x".repeat(4_000);
        let long = |number: u32| match put(1, &number.to_string()) {
            JournalEntry::Put(block) => JournalEntry::Put(BlockEntry { path: path.clone(), ..block }),
            other => other,
        };
        let puts: Vec<_> = (0..5_000).map(long).collect();
        journal.append_put(&puts).unwrap();
        journal.look_after(5_000);
        assert_eq!(journal.wants_facts(), None, "all of it lives");
        journal.look_after(1_500);
        assert_eq!(journal.wants_facts(), Some(true));
        journal.go_on(&puts[..1]);
        assert_eq!(journal.wants_facts(), Some(false));
        journal.go_on(&[]);
        assert_eq!(entries(dir.path()), puts[..1]);
    }

    #[test]
    fn a_journal_of_version_1_is_read_and_gone_on_with() {
        let dir = tempfile::tempdir().unwrap();
        let old = r#"{"Put":{"coflow":1,"block":"a","path":"/p","offset":0,"size":1,"spooled":false,"frame_checksums":[]}}"#;
        let done = r#"{"Done":{"coflow":1,"bytes":5}}"#;
        std::fs::write(dir.path().join(FILE), format!("{JOURNAL_HEADER_1}\n{old}\n{done}\n")).unwrap();
        let (mut journal, found, heard) = open(dir.path());
        assert_eq!((heard.len(), found.damaged.len()), (2, 0));
        assert_eq!(heard[1], JournalEntry::Done { coflow: 1, bytes: 5, mark: 0 });
        journal.append_put(&[put(1, "b")]).unwrap();
        assert_eq!(entries(dir.path()).len(), 3);
    }

    #[test]
    fn a_journal_that_is_written_anew_restores_the_same_agent() {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, _, _) = open(dir.path());
        let mut agent = agent();
        let done = |coflow, mark| JournalEntry::Done { coflow, bytes: 10, mark };
        for entry in [
            put(1, "a"),
            put(2, "b"),
            put(3, "c"),
            done(1, 7),
            done(1, 8),
            done(1, 7),
            JournalEntry::EndedRange(2, 2),
        ] {
            journal.append(std::slice::from_ref(&entry));
            agent.restore(entry);
        }
        journal.begin_anew();
        let mut cursor = FactCursor::default();
        while journal.rewriting.is_some() {
            journal.go_on(&agent.facts(&mut cursor, 2));
            // What happens meanwhile is in both.
            let more = done(1, 9);
            journal.append(std::slice::from_ref(&more));
            agent.restore(more);
        }
        let served = JournalEntry::Served { coflow: 1, flows: 3, bytes: 30, marks: vec![7, 8, 9] };
        let expected = [JournalEntry::EndedRange(2, 2), served, put(1, "a"), put(3, "c")];
        let mut again = self::agent();
        entries(dir.path()).into_iter().for_each(|entry| again.restore(entry));
        assert_eq!(again.facts(&mut FactCursor::default(), 100), expected[..1]);
        let all = |agent: &Agent| {
            let (mut cursor, mut all) = (FactCursor::default(), Vec::new());
            loop {
                let some = agent.facts(&mut cursor, 100);
                if some.is_empty() {
                    return all;
                }
                all.extend(some);
            }
        };
        assert_eq!((all(&agent), all(&again)), (expected.to_vec(), expected.to_vec()));
    }
}
