//! The journal's thread. A disk that takes twenty seconds for a write holds up those who wait for that write, and neither
//! flows nor requests.
//!
//! # Approach
//! One batch is under way at a time; what happens meanwhile goes together as the next. Puts are answered when their batch is
//! on the disk. A journal that is written anew gets facts between two batches, after all that happened before they were
//! read off.
//!
//! What nobody waits for, such as that a receiver has a block, gathers for [`GATHER`] before it goes. It may be lost with a process
//! that is killed, as what its receivers said and it did not read is. The end of such a batch wakes the data plane's thread only
//! if that has asked for it ([`Turn`]).
//!
//! Syncing that nobody waits for has another thread each time, so that it holds up no batch (see [`Journal`]).
//!
//! # A put that has no room
//! Of a batch that could not be written its puts are refused and taken back, and later ones of the same file that wait, for they
//! rest on the first. All else waits in the journal for room.

use super::blocks::Key;
use super::journal::{Journal, ToSync};
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;
use weir_core::agent::{JournalEntry, Place, PutError};
use weir_model::{Span, Time};
use weir_net::Waker;

/// Entries that may wait while a batch is under way; beyond them puts are refused.
const MAX_WAITING: usize = 65_536;
/// Beyond so many times that, older entries other than puts are dropped: the disk has not answered for very long.
const DROPPED_BEYOND: usize = 4;
/// How long entries gather that no put waits for.
const GATHER: Span = Span::from_millis(5);
/// How long the end of the process waits for the last batches.
const END_LIMIT: Duration = Duration::from_secs(2);

/// Who is to look at the batch under way next. Both threads exchange it for what they did, so that the second to do so sees that
/// the other one did: an outcome that is waited for is never left lying.
#[derive(Clone, Default)]
struct Turn(Arc<AtomicU8>);

/// Nothing happened yet.
const OPEN: u8 = 0;
/// The outcome is waited for.
const WANTED: u8 = 1;
/// The outcome is there.
const OVER: u8 = 2;

impl Turn {
    /// A batch begins. Nobody else looks at the turn then.
    fn begin(&self, is_wanted: bool) {
        self.0.store(if is_wanted { WANTED } else { OPEN }, Ordering::Release);
    }

    /// The outcome is wanted from now on; true if it is there already, and nobody wakes whoever wants it.
    fn want(&self) -> bool {
        self.0.swap(WANTED, Ordering::AcqRel) == OVER
    }

    /// The outcome is there; true if whoever wants it is to be woken.
    fn end(&self) -> bool {
        self.0.swap(OVER, Ordering::AcqRel) == WANTED
    }
}

/// A put that waits for the journal: its block, the file, and where its answer goes.
pub(super) type Put = (Key, Place, oneshot::Sender<Result<(), PutError>>);

/// Files that are new in a batch, with their blocks.
type NewPlaces = Vec<(Key, Place)>;

/// What the thread is given.
struct Batch {
    entries: Vec<JournalEntry>,
    /// Whether puts wait for it.
    has_puts: bool,
    /// Facts for a journal that is written anew, if one is; empty once all were read off.
    facts: Option<Vec<JournalEntry>>,
    /// No more facts than these hold now, if that was counted.
    live: Option<usize>,
}

/// What the thread is told.
enum Message {
    Batch(Batch),
    /// What came of syncing.
    Synced(io::Result<()>),
    End,
}

/// What came of a batch.
struct Written {
    result: io::Result<()>,
    /// Whether the journal is written anew: facts are wanted, from the first if it has just begun.
    wants_facts: Option<bool>,
    /// Whether something waits for room.
    waits: bool,
}

/// What is to be done about a batch that is over.
pub(super) struct Outcome {
    pub(super) puts: Vec<Put>,
    /// The files that puts of the batch named, if it could not be written, and why.
    pub(super) refused: Option<(NewPlaces, String)>,
}

/// A batch that was handed over, and of which nothing was heard yet.
struct UnderWay {
    puts: Vec<Put>,
    /// The files that are new in it.
    new: NewPlaces,
    /// Whether its end wakes the data plane.
    is_wanted: bool,
    /// It was over when that was asked for.
    is_over: bool,
}

pub(super) struct Scribe {
    inbox: mpsc::Sender<Message>,
    written: mpsc::Receiver<Written>,
    thread: Option<JoinHandle<()>>,
    turn: Turn,
    entries: Vec<JournalEntry>,
    /// Since when the first of them waits.
    since: Time,
    puts: Vec<Put>,
    under_way: Option<UnderWay>,
    wants_facts: Option<bool>,
    waits: bool,
    live: Option<usize>,
}

impl Scribe {
    /// Starts the thread, which wakes whoever waits for it.
    pub(super) fn start(mut journal: Journal, waker: Waker) -> io::Result<Scribe> {
        let (sender, inbox) = mpsc::channel();
        let (outbox, written) = mpsc::channel();
        let itself = sender.clone();
        let turn = Turn::default();
        let its_turn = turn.clone();
        let thread = std::thread::Builder::new().name("weir-journal".to_owned()).spawn(move || {
            loop {
                let message = match journal.next_sync() {
                    Some(wait) => inbox.recv_timeout(wait),
                    None => inbox.recv().map_err(|_| mpsc::RecvTimeoutError::Disconnected),
                };
                match message {
                    Ok(Message::Batch(batch)) => {
                        let written = write(&mut journal, batch);
                        let is_news = written.wants_facts.is_some() || written.waits;
                        let _ = outbox.send(written);
                        if its_turn.end() || is_news {
                            waker.wake();
                        }
                    }
                    Ok(Message::Synced(result)) => journal.handle_synced(result),
                    Err(mpsc::RecvTimeoutError::Timeout) => {}
                    Ok(Message::End) | Err(mpsc::RecvTimeoutError::Disconnected) => return,
                }
                if let Some(file) = journal.poll_sync() {
                    sync(file, itself.clone());
                }
            }
        })?;
        Ok(Scribe {
            inbox: sender,
            written,
            thread: Some(thread),
            turn,
            entries: Vec::new(),
            since: Time::ZERO,
            puts: Vec::new(),
            under_way: None,
            wants_facts: None,
            waits: false,
            live: None,
        })
    }

    /// Whether so much waits that no put should be added.
    pub(super) fn is_behind(&self) -> bool {
        self.entries.len() >= MAX_WAITING
    }

    /// Adds what happened.
    pub(super) fn add(&mut self, now: Time, entries: Vec<JournalEntry>) {
        if self.entries.is_empty() {
            self.since = now;
        }
        self.entries.extend(entries);
        let most = MAX_WAITING * DROPPED_BEYOND;
        if self.entries.len() > most {
            // Puts are still to be answered for, and are no more than may wait.
            let mut left = self.entries.len() - most / 2;
            let before = self.entries.len();
            self.entries.retain(|entry| {
                let dropped = left > 0 && !matches!(entry, JournalEntry::Put(_));
                left -= usize::from(dropped);
                !dropped
            });
            let dropped = before - self.entries.len();
            tracing::error!(dropped, "the journal's disk does not answer; facts are lost with the process");
        }
    }

    /// Adds a put whose entries were added, or are about to be.
    pub(super) fn add_put(&mut self, put: Put) {
        self.puts.push(put);
    }

    /// Says how many facts there are at most: the journal is written anew when most of it is dead.
    pub(super) fn count(&mut self, live: usize) {
        self.live = Some(live);
    }

    /// Begins the next batch if one is due and none is under way; otherwise the end of that one wakes the data plane. `facts` reads
    /// off some more facts, from the first if it is told so.
    pub(super) fn begin(&mut self, now: Time, facts: impl FnOnce(bool) -> Vec<JournalEntry>) {
        if self.next_due().is_none_or(|due| due > now) {
            return;
        }
        match &mut self.under_way {
            None => self.hand_over(facts),
            Some(batch) if batch.is_wanted => {}
            Some(batch) => (batch.is_wanted, batch.is_over) = (true, self.turn.want()),
        }
    }

    /// When the next batch is due, whether or not one is under way.
    fn next_due(&self) -> Option<Time> {
        let at_once = !self.puts.is_empty() || self.live.is_some() || self.wants_facts.is_some();
        let gathered = (!self.entries.is_empty()).then(|| self.since + GATHER);
        if at_once { Some(Time::ZERO) } else { gathered }
    }

    fn hand_over(&mut self, facts: impl FnOnce(bool) -> Vec<JournalEntry>) {
        let entries = std::mem::take(&mut self.entries);
        let puts = std::mem::take(&mut self.puts);
        let place = |entry: &JournalEntry| match entry {
            JournalEntry::Put(block) => Some(((block.coflow, block.block.clone()), block.place())),
            _ => None,
        };
        let new = if puts.is_empty() { Vec::new() } else { entries.iter().filter_map(place).collect() };
        let batch = Batch {
            has_puts: !puts.is_empty(),
            facts: self.wants_facts.take().map(facts),
            live: self.live.take(),
            entries,
        };
        let is_wanted = batch.has_puts;
        self.turn.begin(is_wanted);
        self.under_way = Some(UnderWay { puts, new, is_wanted, is_over: false });
        if self.inbox.send(Message::Batch(batch)).is_err() {
            // The thread is gone: it panicked. Nothing can be promised any more.
            tracing::error!("the journal's thread is gone");
        }
    }

    /// The batch that is over, if one is.
    pub(super) fn poll(&mut self) -> Option<Outcome> {
        let written = match self.written.try_recv() {
            Ok(written) => written,
            Err(mpsc::TryRecvError::Empty) => return None,
            Err(mpsc::TryRecvError::Disconnected) => {
                let result = Err(io::Error::other("the journal's thread is gone"));
                self.under_way.as_ref()?;
                Written { result, wants_facts: None, waits: false }
            }
        };
        (self.wants_facts, self.waits) = (written.wants_facts, written.waits);
        let UnderWay { mut puts, new, .. } = self.under_way.take()?;
        let refused = written.result.err().map(|error| (new, error.to_string()));
        if let Some((new, _)) = &refused {
            // Those of the same file that came meanwhile rest on what was not written.
            let rest = |(key, place, _): &Put| new.iter().any(|(of, at)| of == key && at == place);
            puts.extend(self.puts.extract_if(.., |put| rest(put)));
        }
        Some(Outcome { puts, refused })
    }

    /// Whether something waits for room on the disk: then the journal should be looked after now and then.
    pub(super) fn waits(&self) -> bool {
        self.waits
    }

    /// When something is to be done, if nothing happens before.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        match &self.under_way {
            Some(UnderWay { is_over: true, .. }) => Some(Time::ZERO),
            Some(UnderWay { is_wanted: true, .. }) => None,
            _ => self.next_due(),
        }
    }

    /// Writes what is left, as far as the disk does so in time. Puts that wait are not answered.
    pub(super) fn end(mut self) {
        let end = std::time::Instant::now() + END_LIMIT;
        let left = || end.saturating_duration_since(std::time::Instant::now());
        if self.under_way.is_some() {
            let _ = self.written.recv_timeout(left());
            self.under_way = None;
        }
        self.wants_facts = None;
        if self.under_way.is_none() && self.next_due().is_some() {
            self.hand_over(|_| Vec::new());
            let _ = self.written.recv_timeout(left());
        }
        let _ = self.inbox.send(Message::End);
        if let Some(thread) = self.thread.take_if(|thread| !left().is_zero() || thread.is_finished()) {
            let _ = thread.join();
        }
    }
}

/// Syncs on a thread of its own. One that cannot be had fails like a disk.
fn sync(file: ToSync, inbox: mpsc::Sender<Message>) {
    let failed = inbox.clone();
    let spawned = std::thread::Builder::new().name("weir-sync".to_owned()).spawn(move || {
        let _ = inbox.send(Message::Synced(file.run()));
    });
    if let Err(error) = spawned {
        let _ = failed.send(Message::Synced(Err(error)));
    }
}

fn write(journal: &mut Journal, batch: Batch) -> Written {
    let Batch { entries, has_puts, facts, live } = batch;
    let result = if has_puts {
        journal.append_put(&entries).inspect_err(|_| {
            let is_put = |entry: &JournalEntry| matches!(entry, JournalEntry::Put(_));
            let others: Vec<_> = entries.into_iter().filter(|entry| !is_put(entry)).collect();
            journal.append(&others);
        })
    } else {
        journal.append(&entries);
        Ok(())
    };
    facts.into_iter().for_each(|facts| journal.go_on(&facts));
    if let Some(live) = live {
        journal.look_after(live);
    }
    Written { result, wants_facts: journal.wants_facts(), waits: journal.waits() }
}

#[cfg(test)]
mod tests {
    use super::super::Durability;
    use super::*;
    use weir_core::agent::BlockEntry;
    use weir_net::Poller;

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    fn put(name: &str) -> BlockEntry {
        BlockEntry {
            coflow: 1,
            block: name.to_owned(),
            path: format!("/{name}"),
            offset: 0,
            size: 1,
            spooled: false,
            frame_checksums: Vec::new(),
            stamp: None,
            identity: weir_proto::data::Identity::drawn([3; 16]),
            durable: false,
        }
    }

    fn scribe(own: &std::path::Path) -> (Scribe, Poller) {
        let poller = Poller::new().unwrap();
        let (journal, _) = Journal::open(own, Durability::Process, |_| {}).unwrap();
        (Scribe::start(journal, poller.waker()).unwrap(), poller)
    }

    fn outcome(scribe: &mut Scribe) -> Outcome {
        loop {
            if let Some(outcome) = scribe.poll() {
                return outcome;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn what_waits_for_a_disk_that_does_not_answer_is_bounded_and_no_put_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let (mut scribe, _poller) = scribe(dir.path());
        scribe.add(ms(0), vec![JournalEntry::Ended(1)]);
        scribe.begin(ms(5), |_| Vec::new());
        // As long as it is not asked what came of it, that batch is under way.
        scribe.add(ms(5), vec![JournalEntry::Put(put("a"))]);
        let (reply, mut answer) = oneshot::channel();
        scribe.add_put(((1, "a".to_owned()), put("a").place(), reply));
        for first in (0..6 * MAX_WAITING as u64).step_by(10_000) {
            scribe.add(ms(5), (first..first + 10_000).map(JournalEntry::Ended).collect());
            assert!(scribe.entries.len() <= MAX_WAITING * DROPPED_BEYOND);
        }
        assert!(scribe.is_behind());
        assert_eq!(scribe.entries[0], JournalEntry::Put(put("a")));
        assert!(outcome(&mut scribe).refused.is_none());
        scribe.begin(ms(5), |_| Vec::new());
        let written = outcome(&mut scribe);
        assert!(answer.try_recv().is_err(), "whoever takes the outcome answers");
        assert_eq!((written.puts.len(), written.refused.is_none()), (1, true));
        scribe.end();
        let mut heard = Vec::new();
        Journal::open(dir.path(), Durability::Process, |entry| heard.push(entry)).unwrap();
        assert!(heard.contains(&JournalEntry::Put(put("a"))));
    }

    #[test]
    fn what_was_added_last_is_written_before_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let (mut scribe, _poller) = scribe(dir.path());
        scribe.add(ms(0), vec![JournalEntry::Ended(1)]);
        scribe.begin(ms(5), |_| Vec::new());
        scribe.add(ms(5), vec![JournalEntry::Ended(2)]);
        scribe.end();
        let mut heard = Vec::new();
        Journal::open(dir.path(), Durability::Process, |entry| heard.push(entry)).unwrap();
        assert_eq!(heard, [JournalEntry::Ended(1), JournalEntry::Ended(2)]);
    }

    #[test]
    fn what_nobody_waits_for_gathers_and_a_put_takes_it_along() {
        let dir = tempfile::tempdir().unwrap();
        let (mut scribe, _poller) = scribe(dir.path());
        scribe.add(ms(10), vec![JournalEntry::Ended(1)]);
        scribe.begin(ms(14), |_| Vec::new());
        assert!(scribe.under_way.is_none());
        assert_eq!(scribe.next_timeout(), Some(ms(15)));
        // What comes later does not make it wait longer.
        scribe.add(ms(14), vec![JournalEntry::Ended(2)]);
        scribe.begin(ms(15), |_| Vec::new());
        assert!(scribe.under_way.is_some() && scribe.next_timeout().is_none());
        outcome(&mut scribe);
        scribe.add(ms(15), vec![JournalEntry::Ended(3), JournalEntry::Put(put("a"))]);
        let (reply, _answer) = oneshot::channel();
        scribe.add_put(((1, "a".to_owned()), put("a").place(), reply));
        scribe.begin(ms(15), |_| Vec::new());
        assert_eq!(outcome(&mut scribe).puts.len(), 1);
        assert!(scribe.entries.is_empty() && scribe.next_timeout().is_none());
        scribe.end();
    }

    #[test]
    fn a_put_that_comes_while_a_batch_is_under_way_is_answered_for_though_nobody_wanted_that_batch() {
        let dir = tempfile::tempdir().unwrap();
        let (mut scribe, poller) = scribe(dir.path());
        for round in 0..2_000 {
            let now = ms(10 * round);
            scribe.add(now, vec![JournalEntry::Ended(round)]);
            scribe.begin(now + GATHER, |_| Vec::new());
            let name = round.to_string();
            scribe.add(now + GATHER, vec![JournalEntry::Put(put(&name))]);
            let (reply, _answer) = oneshot::channel();
            scribe.add_put(((1, name.clone()), put(&name).place(), reply));
            // As the data plane does: it waits for its waker or the next timeout, and for nothing else.
            let mut answered = 0;
            while answered == 0 {
                scribe.begin(now + GATHER, |_| Vec::new());
                let waits = scribe.next_timeout().map(|_| Span::ZERO).unwrap_or(Span::from_millis(20_000));
                let begun = std::time::Instant::now();
                poller.wait(Some(waits), &mut Vec::new()).unwrap();
                assert!(begun.elapsed() < Duration::from_secs(20), "nobody woke the data plane");
                answered += scribe.poll().map_or(0, |outcome| outcome.puts.len());
            }
        }
        scribe.end();
    }

    #[test]
    fn of_two_threads_that_meet_at_a_batch_s_end_one_sees_the_other() {
        for _ in 0..20_000 {
            let turn = Turn::default();
            turn.begin(false);
            let its_turn = turn.clone();
            let ends = std::thread::spawn(move || its_turn.end());
            let is_over = turn.want();
            assert!(ends.join().unwrap() != is_over, "either it is there already, or its end wakes");
        }
    }
}
