//! The journal: what must survive the process, a line each, appended as it happens, and written anew without what has
//! ended whenever most of it is dead; at once if it is when the agent starts.
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

use super::journal_lines::{HEADER, JournalLines, journal_lines as lines};
use rustix::fs::FallocateFlags;
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use weir_core::agent::{Agent, FactCursor, JournalEntry};

/// Its name, in the directory of the agent's own files.
pub(super) const FILE: &str = "journal.jsonl";
const NEW_FILE: &str = "journal.jsonl.new";
/// Room on the disk that is kept for everything but puts.
const RESERVE_BYTES: u64 = 1 << 20;
/// A journal is written anew once it has twice the length it had, and this much more.
const SLACK_BYTES: u64 = 16 << 20;
/// Facts that are written at once into a new journal, so that nobody waits long.
const FACTS_AT_ONCE: usize = 1_000;
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
    /// Length after it was last written anew.
    begun: u64,
    /// A new journal in the making.
    rewriting: Option<(Log, FactCursor)>,
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
}

impl Journal {
    /// Hands on what is there and opens it for appending.
    pub(super) fn open(spool: &Path, hear: impl FnMut(JournalEntry)) -> io::Result<(Journal, JournalLines)> {
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
            begun: length,
            rewriting: None,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            failing: false,
        };
        if length == 0 {
            journal.keep(format!("{HEADER}\n").into_bytes());
        }
        Ok((journal, found))
    }

    /// Appends what a put is answered for, and everything else that happened. An error says that it is not on the disk,
    /// and that nothing of it was written.
    pub(super) fn append_put(&mut self, entries: &[JournalEntry]) -> io::Result<()> {
        self.write_waiting()?;
        self.log.reserve()?;
        self.write(lines(entries)?)
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

    /// Whether something waits for room: then [`Journal::try_again`] is worth a call now and then.
    pub(super) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Writes what waited for room, if there is some by now.
    pub(super) fn try_again(&mut self) {
        let _ = self.write_waiting();
    }

    fn write_waiting(&mut self) -> io::Result<()> {
        while let Some(lines) = self.waiting.pop_front() {
            if let Err(error) = self.log.append(&lines) {
                self.waiting.push_front(lines);
                return Err(error);
            }
            self.waiting_bytes -= lines.len();
            self.also(&lines);
        }
        if std::mem::take(&mut self.failing) {
            tracing::warn!(spool = %self.spool.display(), "the journal is written again");
        }
        Ok(())
    }

    fn write(&mut self, lines: Vec<u8>) -> io::Result<()> {
        self.log.append(&lines)?;
        self.also(&lines);
        Ok(())
    }

    /// A journal in the making gets what the old one gets; if it cannot, it is given up.
    fn also(&mut self, lines: &[u8]) {
        if let Some((new, _)) = &mut self.rewriting
            && new.append(lines).is_err()
        {
            self.give_up_rewriting();
        }
    }

    fn give_up_rewriting(&mut self) {
        self.rewriting = None;
        self.begun = self.log.length;
        let _ = std::fs::remove_file(self.spool.join(NEW_FILE));
    }

    /// Whether most of the journal is dead, or a new one is in the making.
    pub(super) fn wants_rewriting(&self) -> bool {
        self.rewriting.is_some() || self.log.length > 2 * self.begun + SLACK_BYTES
    }

    /// Frees what is dead of the journal that was found, if that is most of it: the disk may be full.
    pub(super) fn begin(&mut self, found: &JournalLines, agent: &Agent) {
        let (lines, live) = (found.sound + found.damaged.len(), agent.most_facts());
        if found.damaged.is_empty() && lines <= 2 * live {
            self.begun = (self.begun as f64 * (live as f64 / lines.max(1) as f64).min(1.0)) as u64;
            return;
        }
        while !self.rewrite(agent) {}
    }

    /// Goes on to write the journal anew; true once that is done, or was given up.
    pub(super) fn rewrite(&mut self, agent: &Agent) -> bool {
        match self.rewrite_some(agent) {
            Ok(over) => over,
            Err(error) => {
                tracing::warn!(%error, "the journal could not be written anew; it goes on to grow");
                self.give_up_rewriting();
                true
            }
        }
    }

    fn rewrite_some(&mut self, agent: &Agent) -> io::Result<bool> {
        let path = self.spool.join(NEW_FILE);
        let (mut new, mut cursor) = match self.rewriting.take() {
            Some(rewriting) => rewriting,
            None => {
                let file =
                    OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&path)?;
                let mut new = Log { file, length: 0, reserved: Some(0) };
                new.append(format!("{HEADER}\n").as_bytes())?;
                (new, FactCursor::default())
            }
        };
        let facts = agent.facts(&mut cursor, FACTS_AT_ONCE);
        if !facts.is_empty() {
            new.append(&lines(&facts)?)?;
            self.rewriting = Some((new, cursor));
            return Ok(false);
        }
        std::fs::rename(&path, self.spool.join(FILE))?;
        self.begun = new.length;
        self.log = new;
        Ok(true)
    }
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
    use super::super::journal_lines::HEADER_1;
    use super::*;
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
            [HEADER.as_bytes(), b"\n\xff\xfe\x00\n\n", &lines(&[put(1, "d")]).unwrap()].concat(),
        )
        .unwrap();
        let (_, found, heard) = open(dir.path());
        assert_eq!((heard, found.damaged), (vec![put(1, "d")], vec![2, 3]));
    }

    #[test]
    fn a_journal_of_version_1_is_read_and_gone_on_with() {
        let dir = tempfile::tempdir().unwrap();
        let old = r#"{"Put":{"coflow":1,"block":"a","path":"/p","offset":0,"size":1,"spooled":false,"frame_checksums":[]}}"#;
        let done = r#"{"Done":{"coflow":1,"bytes":5}}"#;
        std::fs::write(dir.path().join(FILE), format!("{HEADER_1}\n{old}\n{done}\n")).unwrap();
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
        while !journal.rewrite(&agent) {
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
