//! The journal's thread. A disk that takes twenty seconds for a write holds up those who wait for that write, and neither
//! flows nor requests.
//!
//! # Approach
//! What goes together and who waits for it is [`Batches`]'; here is the thread that writes. A journal that is written anew gets facts
//! between two batches, after all that happened before they were read off. The end of a batch without puts that wait wakes the data
//! plane's thread only if that has asked for it ([`Turn`]). What of a batch could not be written, but for its puts, waits in the
//! journal for room.
//!
//! Syncing that no put waits for has another thread each time, so that it holds up no batch (see [`Journal`]).

use super::journal::{Journal, ToSync};
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;
use weir_core::agent::{Batches, JournalEntry, PutError, WaitingPut};
use weir_model::Time;
use weir_net::Waker;

/// How long the end of the process waits for the last batches.
const END_LIMIT: Duration = Duration::from_secs(2);

/// Who is to look at the batch under way next. Both threads exchange it for what they did, so that the second to do so sees that
/// the other one did: an outcome that is waited for is never left lying.
#[derive(Clone, Default)]
struct Turn(Arc<AtomicU8>);

/// Neither thread has acted on the batch yet.
const OPEN: u8 = 0;
/// The outcome is waited for.
const WANTED: u8 = 1;
/// The outcome is there.
const OVER: u8 = 2;

impl Turn {
    /// A batch begins. The journal's thread does not look at the turn before it has the batch.
    fn begin(&self, is_wanted: bool) {
        self.0.store(if is_wanted { WANTED } else { OPEN }, Ordering::Release);
    }

    /// The outcome is wanted from now on; true if it is there already, so that the journal's thread will not wake the data plane.
    fn want(&self) -> bool {
        self.0.swap(WANTED, Ordering::AcqRel) == OVER
    }

    /// The outcome is there; true if the data plane waits for it and is to be woken.
    fn end(&self) -> bool {
        self.0.swap(OVER, Ordering::AcqRel) == WANTED
    }
}

/// Where the answer to a put goes.
pub(super) type Reply = oneshot::Sender<Result<(), PutError>>;

/// A put that waits for the journal.
pub(super) type Put = WaitingPut<Reply>;

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
    /// Puts that are kept.
    pub(super) kept: Vec<Reply>,
    /// Puts that are not.
    pub(super) refused: Vec<Put>,
    /// Why these puts are refused.
    pub(super) reason: String,
}

/// Of the batch under way.
#[derive(Default)]
struct Waking {
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
    batches: Batches<Reply>,
    waking: Waking,
    wants_facts: Option<bool>,
    waits: bool,
    live: Option<usize>,
}

impl Scribe {
    /// Starts the thread, which wakes the data-plane thread.
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
                        // The data plane hands over facts, and looks again for room, without having asked for this batch's end.
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
            batches: Batches::default(),
            waking: Waking::default(),
            wants_facts: None,
            waits: false,
            live: None,
        })
    }

    /// Whether so much waits that no put should be added.
    pub(super) fn is_behind(&self) -> bool {
        self.batches.is_behind()
    }

    pub(super) fn add(&mut self, now: Time, entries: Vec<JournalEntry>) {
        let dropped = self.batches.add(now, entries);
        if dropped > 0 {
            tracing::error!(dropped, "the journal's disk does not answer; facts are lost with the process");
        }
    }

    /// Adds a put whose entries were added, or are about to be.
    pub(super) fn add_put(&mut self, put: Put) {
        self.batches.add_put(put);
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
        let waking = &mut self.waking;
        if !self.batches.is_under_way() {
            self.hand_over(facts);
        } else if !waking.is_wanted {
            (waking.is_wanted, waking.is_over) = (true, self.turn.want());
        }
    }

    /// When the next batch is due, whether or not one is under way.
    fn next_due(&self) -> Option<Time> {
        let is_urgent = self.live.is_some() || self.wants_facts.is_some();
        if is_urgent { Some(Time::ZERO) } else { self.batches.next_due() }
    }

    fn hand_over(&mut self, facts: impl FnOnce(bool) -> Vec<JournalEntry>) {
        let weir_core::agent::Batch { entries, has_puts } = self.batches.begin();
        let (facts, live) = (self.wants_facts.take().map(facts), self.live.take());
        // Before the batch is sent: the journal's thread ends the turn, and must not find the one of the batch before.
        self.turn.begin(has_puts);
        self.waking = Waking { is_wanted: has_puts, is_over: false };
        if self.inbox.send(Message::Batch(Batch { entries, has_puts, facts, live })).is_err() {
            // The thread is gone: it panicked. Nothing can be promised any more.
            tracing::error!("the journal's thread is gone");
        }
    }

    /// The batch that is over, if one is.
    pub(super) fn poll(&mut self) -> Option<Outcome> {
        let written = match self.written.try_recv() {
            Ok(written) => written,
            Err(mpsc::TryRecvError::Empty) => return None,
            Err(mpsc::TryRecvError::Disconnected) if self.batches.is_under_way() => {
                let result = Err(io::Error::other("the journal's thread is gone"));
                Written { result, wants_facts: None, waits: false }
            }
            Err(mpsc::TryRecvError::Disconnected) => return None,
        };
        (self.wants_facts, self.waits) = (written.wants_facts, written.waits);
        let answers = self.batches.handle_over(written.result.is_ok());
        let reason = written.result.err().map(|error| error.to_string()).unwrap_or_default();
        Some(Outcome { kept: answers.kept, refused: answers.refused, reason })
    }

    /// Whether something waits for room on the disk: then the journal should be looked after now and then.
    pub(super) fn waits(&self) -> bool {
        self.waits
    }

    /// When something is to be done, if nothing happens before.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        match self.waking {
            Waking { is_over: true, .. } if self.batches.is_under_way() => Some(Time::ZERO),
            Waking { is_wanted: true, .. } if self.batches.is_under_way() => None,
            _ => self.next_due(),
        }
    }

    /// Writes what is left, as far as the disk does so in time. Puts that wait are not answered.
    pub(super) fn end(mut self) {
        let end = std::time::Instant::now() + END_LIMIT;
        let left = || end.saturating_duration_since(std::time::Instant::now());
        if self.batches.is_under_way() {
            let _ = self.written.recv_timeout(left());
        }
        // A journal that is being written anew is given up: the old one is whole, and the next start removes the new one.
        self.wants_facts = None;
        if self.next_due().is_some() {
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
    // Without a thread the sync counts as failed: otherwise the journal would wait for it for ever.
    if let Err(error) = spawned {
        let _ = failed.send(Message::Synced(Err(error)));
    }
}

/// Goes on to write the journal anew. Facts are read off an agent that holds the puts of the batch: those that are refused must
/// not be there after a restart.
fn go_on(journal: &mut Journal, facts: Vec<JournalEntry>, refused: &[JournalEntry]) {
    let is_refused = |fact: &JournalEntry| {
        let JournalEntry::Put(held) = fact else { return false };
        refused.iter().any(|put| {
            matches!(put, JournalEntry::Put(put) if put.key() == held.key() && put.place() == held.place())
        })
    };
    // No facts mean that all were read.
    let is_all = facts.is_empty();
    let facts: Vec<_> = facts.into_iter().filter(|fact| !is_refused(fact)).collect();
    if is_all || !facts.is_empty() {
        journal.go_on(&facts);
    }
}

fn write(journal: &mut Journal, batch: Batch) -> Written {
    let Batch { entries, has_puts, facts, live } = batch;
    let mut refused = Vec::new();
    let result = if has_puts {
        journal.append_put(&entries).inspect_err(|_| {
            let is_put = |entry: &JournalEntry| matches!(entry, JournalEntry::Put(_));
            // The puts are refused; what happened besides them still has to be written down, later
            // if need be.
            let (puts, others): (Vec<_>, Vec<_>) = entries.into_iter().partition(is_put);
            refused = puts;
            journal.append(&others);
        })
    } else {
        journal.append(&entries);
        Ok(())
    };
    if let Some(facts) = facts {
        go_on(journal, facts, &refused);
    }
    if let Some(live) = live {
        journal.look_after(live);
    }
    Written { result, wants_facts: journal.wants_facts(), waits: journal.waits() }
}

#[cfg(test)]
mod tests {
    use super::super::Durability;
    use super::*;
    use weir_core::agent::{BlockEntry, GATHER};
    use weir_model::{CoflowId, Span};
    use weir_net::Poller;

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    fn put(name: &str) -> BlockEntry {
        BlockEntry::of_file(
            CoflowId(1),
            name.to_owned(),
            format!("/{name}"),
            1,
            weir_proto::data::Identity::drawn([3; 16]),
        )
    }

    fn scribe(own: &std::path::Path) -> (Scribe, Poller) {
        let poller = Poller::new().unwrap();
        let (journal, _) = Journal::open(own, Durability::Process, |_| {}).unwrap();
        (Scribe::start(journal, poller.waker()).unwrap(), poller)
    }

    /// Facts are read off an agent that holds a put which then is refused.
    #[test]
    fn a_refused_put_is_not_in_the_journal_that_is_written_anew() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path();
        let (mut journal, _) = Journal::open(own, Durability::Process, |_| {}).unwrap();
        // Large, and mostly dead.
        let path = format!("/{}", "x".repeat(4_000));
        let long = |number: u32| BlockEntry { path: path.clone(), ..put(&number.to_string()) };
        let dead: Vec<_> = (0..5_000).map(|number| JournalEntry::Put(long(number))).collect();
        journal.append_put(&dead).unwrap();
        journal.look_after(1);
        assert_eq!(journal.wants_facts(), Some(true));
        let [kept, refused] = ["kept", "refused"].map(|name| JournalEntry::Put(put(name)));
        go_on(&mut journal, vec![kept.clone(), refused.clone()], std::slice::from_ref(&refused));
        go_on(&mut journal, vec![refused.clone()], std::slice::from_ref(&refused));
        assert!(journal.wants_facts().is_some(), "not all facts were read");
        let new = std::fs::read_to_string(own.join("journal.jsonl.new")).unwrap();
        assert!(new.contains("kept") && !new.contains("refused"), "{new}");
        go_on(&mut journal, Vec::new(), &[]);
        assert_eq!(journal.wants_facts(), None);
    }

    #[test]
    fn what_was_added_last_is_written_before_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let (mut scribe, _poller) = scribe(dir.path());
        scribe.add(ms(0), vec![JournalEntry::Ended(CoflowId(1))]);
        scribe.begin(ms(5), |_| Vec::new());
        scribe.add(ms(5), vec![JournalEntry::Ended(CoflowId(2))]);
        scribe.end();
        let mut heard = Vec::new();
        Journal::open(dir.path(), Durability::Process, |entry| heard.push(entry)).unwrap();
        assert_eq!(heard, [JournalEntry::Ended(CoflowId(1)), JournalEntry::Ended(CoflowId(2))]);
    }

    #[test]
    fn a_put_that_comes_while_a_batch_is_under_way_is_answered_for_though_nobody_wanted_that_batch() {
        let dir = tempfile::tempdir().unwrap();
        let (mut scribe, poller) = scribe(dir.path());
        for round in 0..2_000 {
            let now = ms(10 * round);
            scribe.add(now, vec![JournalEntry::Ended(CoflowId(round))]);
            scribe.begin(now + GATHER, |_| Vec::new());
            let name = round.to_string();
            scribe.add(now + GATHER, vec![JournalEntry::Put(put(&name))]);
            let (reply, _answer) = oneshot::channel();
            scribe.add_put(WaitingPut { key: put(&name).key(), place: put(&name).place(), caller: reply });
            // As the data plane does: it waits for its waker or the next timeout, and for nothing else.
            let mut answered = 0;
            while answered == 0 {
                scribe.begin(now + GATHER, |_| Vec::new());
                let waits = scribe.next_timeout().map(|_| Span::ZERO).unwrap_or(Span::from_millis(20_000));
                let begun = std::time::Instant::now();
                poller.wait(Some(waits), &mut Vec::new()).unwrap();
                assert!(begun.elapsed() < Duration::from_secs(20), "nobody woke the data plane");
                answered += scribe.poll().map_or(0, |outcome| outcome.kept.len());
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
