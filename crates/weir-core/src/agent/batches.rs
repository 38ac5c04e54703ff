//! What of the journal is written together, and which puts wait for it.
//!
//! # Approach
//! One batch is under way at a time; what happens meanwhile goes together as the next. A put is answered when its batch is written.
//! What no caller waits for, such as that a receiver has a block, gathers for [`GATHER`] before it goes. It may be lost with a process
//! that is killed, as what its receivers said and it did not read is.
//!
//! # A put that has no room
//! Of a batch that could not be written its puts are refused, and later ones of the same file that wait, for they rest on the
//! first. A put whose file was written before loses nothing.

use super::facts::{JournalEntry, Place};
use crate::ids::BlockKey;
use weir_model::{Span, Time};

/// Entries that may wait while a batch is under way; beyond them puts are refused.
pub const MAX_WAITING: usize = 65_536;
/// Beyond so many times that, older entries other than puts are dropped: the disk has not answered for very long.
pub const DROPPED_BEYOND: usize = 4;
/// How long entries gather that no put waits for.
pub const GATHER: Span = Span::from_millis(5);

/// A put that waits: its block, the file, and the caller to be answered.
#[derive(Debug)]
pub struct WaitingPut<T> {
    /// Coflow and name of the block that is put.
    pub key: BlockKey,
    /// The file that the put named.
    pub place: Place,
    /// Handle by which the driver answers the caller.
    pub caller: T,
}

/// What is to be written now.
#[derive(Debug)]
pub struct Batch {
    /// Journal entries, to be written in this order.
    pub entries: Vec<JournalEntry>,
    /// Whether puts wait for it.
    pub has_puts: bool,
}

/// Callers to answer once a batch is over.
#[derive(Debug)]
pub struct Answers<T> {
    /// Callers whose puts are written.
    pub kept: Vec<T>,
    /// Puts that were not written: the agent is to take them back ([`super::Agent::handle_unwritten`]).
    pub refused: Vec<WaitingPut<T>>,
}

/// Puts of the batch under way, and the files that are new in it.
#[derive(Debug)]
struct UnderWay<T> {
    puts: Vec<WaitingPut<T>>,
    new: Vec<(BlockKey, Place)>,
}

/// What waits, and what is under way.
#[derive(Debug)]
pub struct Batches<T> {
    entries: Vec<JournalEntry>,
    /// Since when the first of them waits.
    since: Time,
    puts: Vec<WaitingPut<T>>,
    under_way: Option<UnderWay<T>>,
}

impl<T> Default for Batches<T> {
    fn default() -> Batches<T> {
        Batches { entries: Vec::new(), since: Time::ZERO, puts: Vec::new(), under_way: None }
    }
}

impl<T> Batches<T> {
    /// Adds what happened. Returns how many older entries were dropped for it.
    pub fn add(&mut self, now: Time, entries: impl IntoIterator<Item = JournalEntry>) -> usize {
        if self.entries.is_empty() {
            self.since = now;
        }
        self.entries.extend(entries);
        let before = self.entries.len();
        let most = MAX_WAITING.saturating_mul(DROPPED_BEYOND);
        if before > most {
            // Puts are still to be answered for, and are no more than may wait.
            // Down to half, so that one pass over all entries serves for many that come later.
            let mut left = before.saturating_sub(most / 2);
            self.entries.retain(|entry| {
                let is_dropped = left > 0 && !matches!(entry, JournalEntry::Put(_));
                left = left.saturating_sub(usize::from(is_dropped));
                !is_dropped
            });
        }
        before.saturating_sub(self.entries.len())
    }

    /// Adds a put whose entries were added, or are about to be.
    pub fn add_put(&mut self, put: WaitingPut<T>) {
        self.puts.push(put);
    }

    /// Whether so much waits that no put should be added.
    pub fn is_behind(&self) -> bool {
        self.entries.len() >= MAX_WAITING
    }

    /// What waits and is in no batch.
    pub fn waiting(&self) -> &[JournalEntry] {
        &self.entries
    }

    /// When the next batch is due, whether or not one is under way.
    pub fn next_due(&self) -> Option<Time> {
        let gathered = (!self.entries.is_empty()).then(|| self.since + GATHER);
        if self.puts.is_empty() { gathered } else { Some(Time::ZERO) }
    }

    /// Whether a batch is under way.
    pub fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// All that waits, as a batch. Only if none is under way.
    pub fn begin(&mut self) -> Batch {
        let entries = std::mem::take(&mut self.entries);
        let puts = std::mem::take(&mut self.puts);
        let file = |entry: &JournalEntry| match entry {
            JournalEntry::Put(block) => Some((block.key(), block.place())),
            _ => None,
        };
        let has_puts = !puts.is_empty();
        let new = if has_puts { entries.iter().filter_map(file).collect() } else { Vec::new() };
        self.under_way = Some(UnderWay { puts, new });
        Batch { entries, has_puts }
    }

    /// The batch under way is over, written or not.
    pub fn handle_over(&mut self, is_written: bool) -> Answers<T> {
        let UnderWay { mut puts, new } = match self.under_way.take() {
            Some(batch) => batch,
            None => UnderWay { puts: Vec::new(), new: Vec::new() },
        };
        let is_new =
            |put: &WaitingPut<T>| new.iter().any(|(key, place)| (key, place) == (&put.key, &put.place));
        let mut refused = Vec::new();
        if !is_written {
            refused.extend(puts.extract_if(.., |put| is_new(put)));
            // Puts that wait and named a file of the batch: their entries were not written again, as the file was known.
            refused.extend(self.puts.extract_if(.., |put| is_new(put)));
        }
        Answers { kept: puts.into_iter().map(|put| put.caller).collect(), refused }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::BlockEntry;
    use weir_model::CoflowId;

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    fn entry(name: &str) -> BlockEntry {
        BlockEntry::of_file(
            CoflowId(1),
            name.to_owned(),
            format!("/{name}"),
            1,
            weir_proto::data::Identity::drawn([3; 16]),
        )
    }

    fn put(name: &str, caller: u64) -> WaitingPut<u64> {
        WaitingPut { key: entry(name).key(), place: entry(name).place(), caller }
    }

    #[test]
    fn what_waits_for_a_disk_that_does_not_answer_is_bounded_and_no_put_is_dropped() {
        let mut batches = Batches::default();
        batches.add(ms(0), [JournalEntry::Ended(CoflowId(1))]);
        assert_eq!(batches.begin().entries.len(), 1);
        batches.add(ms(5), [JournalEntry::Put(entry("a"))]);
        batches.add_put(put("a", 7));
        let mut dropped = 0;
        for first in (0..6 * MAX_WAITING as u64).step_by(10_000) {
            dropped += batches.add(ms(5), (first..first + 10_000).map(CoflowId).map(JournalEntry::Ended));
            assert!(batches.waiting().len() <= MAX_WAITING * DROPPED_BEYOND);
        }
        assert!(batches.is_behind() && dropped > 0);
        assert_eq!(batches.waiting()[0], JournalEntry::Put(entry("a")));
        let first = batches.handle_over(true);
        assert!(first.kept.is_empty() && first.refused.is_empty() && batches.begin().has_puts);
        assert_eq!(batches.handle_over(true).kept, [7]);
    }

    #[test]
    fn what_nobody_waits_for_gathers_and_a_put_takes_it_along() {
        let mut batches = Batches::default();
        assert_eq!(batches.next_due(), None);
        batches.add(ms(10), [JournalEntry::Ended(CoflowId(1))]);
        // What comes later does not make it wait longer.
        batches.add(ms(14), [JournalEntry::Ended(CoflowId(2))]);
        assert_eq!(batches.next_due(), Some(ms(15)));
        batches.begin();
        batches.handle_over(true);
        batches.add(ms(15), [JournalEntry::Ended(CoflowId(3)), JournalEntry::Put(entry("a"))]);
        batches.add_put(put("a", 1));
        assert_eq!(batches.next_due(), Some(Time::ZERO));
        assert_eq!(batches.begin().entries.len(), 2);
        assert_eq!((batches.handle_over(true).kept, batches.next_due()), (vec![1], None));
    }

    #[test]
    fn of_a_batch_without_room_the_new_files_are_refused_and_what_rests_on_them_and_nothing_else() {
        let mut batches = Batches::default();
        batches.add(ms(0), [JournalEntry::Put(entry("a")), JournalEntry::Ended(CoflowId(3))]);
        batches.add_put(put("a", 1));
        // Its file was written before.
        batches.add_put(put("old", 2));
        assert!(batches.begin().has_puts);
        batches.add_put(put("a", 3));
        batches.add(ms(1), [JournalEntry::Put(entry("b"))]);
        batches.add_put(put("b", 4));
        let Answers { kept, refused } = batches.handle_over(false);
        let refused: Vec<u64> = refused.into_iter().map(|put| put.caller).collect();
        assert_eq!((kept, refused), (vec![2], vec![1, 3]));
        batches.begin();
        assert_eq!(batches.handle_over(true).kept, [4]);
    }
}
