//! The blocks that an agent holds, and those that it does not hold any more though their coflows go on.
//!
//! Several attempts of a task may put the same bytes, each in a file of its own, and each may remove its file when it cleans
//! up. Every file that a put was answered for is kept; one that is found to be gone or changed is dropped, and the block
//! goes with its last one.

use super::facts::{BlockEntry, JournalEntry, Output, Place, PutError};
use super::state::Agent;
use super::stores::GATHER_PREFIX;
use crate::ids::BlockKey;
use crate::planted::{Defect, is_planted};
use std::collections::{BTreeSet, VecDeque};
use weir_model::CoflowId;
use weir_proto::data::{Status, frame_count};
use weir_proto::{limits, v1};

/// Changed blocks that are remembered, so that a receiver that asks for one is told what became of it.
const MAX_CHANGED: usize = 10_000;
/// Files of a block besides the one that is served. Beyond that the oldest is forgotten: if any is gone, it is that one.
const MAX_SPARES: usize = 15;

impl Agent {
    /// Notes a block. Putting the same bytes under the same name again is not an error.
    ///
    /// # Errors
    /// The name or size is out of bounds, the checksums are not one per frame, the coflow has ended, or the file is another block's.
    /// A name that has other bytes here, a host that is being drained and an agent with as many blocks as it may have refuse, too.
    pub fn handle_put(&mut self, block: BlockEntry) -> Result<(), PutError> {
        let name = &block.block;
        if name.is_empty() || name.len() > limits::MAX_BLOCK_NAME_BYTES || name.starts_with(GATHER_PREFIX) {
            return Err(PutError::Name);
        }
        if block.size > limits::MAX_BLOCK_BYTES {
            return Err(PutError::TooLarge(block.size));
        }
        let (given, frames) = (block.frame_checksums.len(), frame_count(block.size));
        if given > 0 && given as u64 != frames {
            return Err(PutError::Checksums { given, frames });
        }
        if self.ended.contains(block.coflow) {
            return Err(PutError::Ended(block.coflow));
        }
        let key = block.key();
        if block.spooled && self.owners.get(&block.path).is_some_and(|owner| *owner != key) {
            return Err(PutError::Owned(block.path));
        }
        // The task ran again and wrote its file anew: what was put from it before is not there any more.
        self.drop_places(&key, |held| {
            !block.spooled && held.path == block.path && held.stamp.is_some() && held.stamp != block.stamp
        });
        if let Some(held) = self.blocks.get(&key) {
            if !held.has_bytes_of(&block) {
                return Err(PutError::Taken { coflow: block.coflow, block: block.block });
            }
            // Written down only where the put adds something: another file, or that a file is on
            // the disk by now.
            if self.keep_also(block.clone()) || self.is_safer_now(&block) {
                self.write_down(JournalEntry::Put(block));
            } else if block.spooled && !self.owners.contains_key(&block.path) {
                // Memory that holds the same bytes once more is not needed.
                self.outputs.push_back(Output::Discard(block.path));
            }
            return Ok(());
        }
        if self.draining {
            return Err(PutError::Draining);
        }
        if self.blocks.len() >= limits::MAX_BLOCKS_PER_AGENT {
            return Err(PutError::Full);
        }
        self.send(v1::agent_event::Kind::BlockAdded(v1::BlockAdded {
            coflow: block.coflow.0,
            block: block.block.clone(),
            size: self.told_size(block.size),
            identity: block.identity.to_wire(),
        }));
        if !is_planted(Defect::PutNotWritten) {
            self.write_down(JournalEntry::Put(block.clone()));
        }
        self.hold(block);
        Ok(())
    }

    /// Holds a block, in place of what was under its name.
    pub(super) fn hold(&mut self, block: BlockEntry) {
        let (key, size) = (block.key(), block.size);
        if block.spooled {
            self.owners.insert(block.path.clone(), key.clone());
        }
        self.changed.remove(&key);
        // A block in place of another one was counted with the first.
        if self.blocks.insert(key.clone(), block).is_none() {
            let held = self.held.entry(key.coflow).or_default();
            *held = held.saturating_add(size);
        }
    }

    /// Holds a block of which a journal says that it was put: another file of one that is held, or a block of its own.
    pub(super) fn restore_put(&mut self, block: BlockEntry) {
        let key = block.key();
        match self.blocks.get(&key) {
            Some(held) if held.has_bytes_of(&block) => {
                self.is_safer_now(&block);
                self.keep_also(block);
            }
            _ => self.hold(block),
        }
    }

    /// Notes that a file of a block is on the disk by now. False if that was known, or the file is not one of the block's.
    pub(super) fn is_safer_now(&mut self, block: &BlockEntry) -> bool {
        let key = block.key();
        let spares = self.spares.get_mut(&key).into_iter().flatten();
        let mut places = self.blocks.get_mut(&key).into_iter().chain(spares);
        let held = places.find(|held| held.place() == block.place() && block.durable && !held.durable);
        held.map(|held| held.durable = true).is_some()
    }

    /// The machine that holds the journal is known to run since the start of this name; to be called after everything was
    /// restored. After another start than that of the journal, the machine may have been lost before it wrote the blocks'
    /// bytes to its disk, and a file may have its length without them. Blocks with checksums are found out when they are read;
    /// others that were not made durable are dropped. Returns how many files that are.
    ///
    /// A journal that names no start says nothing where it is of an agent that did not write it down; one that `is_damaged` may
    /// have lost the line, and counts as of another start.
    pub fn handle_boot(&mut self, boot: &str, is_damaged: bool) -> usize {
        // A kernel that names no start may have been started anew: what is not known is not the same.
        if !boot.is_empty() && self.boot.as_deref() == Some(boot) {
            return 0;
        }
        let before = self.boot.replace(boot.to_owned());
        let is_certain = (before.is_none() && !is_damaged) || is_planted(Defect::UncertainHeld);
        let dropped = if is_certain { 0 } else { self.drop_uncertain() };
        // Last: of a journal that ends before this line all of it is looked at again.
        self.write_down(JournalEntry::Boot(boot.to_owned()));
        dropped
    }

    /// Drops files whose bytes may not have reached the disk and that have no checksums to find it out by.
    fn drop_uncertain(&mut self) -> usize {
        let is_uncertain =
            |held: &BlockEntry| !held.durable && held.size > 0 && held.frame_checksums.is_empty();
        let spares = self.spares.values().flatten();
        let uncertain = self.blocks.values().chain(spares).filter(|held| is_uncertain(held));
        let uncertain: Vec<_> =
            uncertain.map(|held| (held.coflow, held.block.clone(), held.place())).collect();
        for (coflow, block, place) in &uncertain {
            self.handle_changed(*coflow, block, place);
        }
        uncertain.len()
    }

    /// Keeps another file of a block that is held; false if it is not needed. The block's own memory is as safe as the
    /// agent's journal, so no second copy of it is kept.
    pub(super) fn keep_also(&mut self, block: BlockEntry) -> bool {
        let key = block.key();
        let Some(held) = self.blocks.get(&key) else { return false };
        let spares = self.spares.get(&key).into_iter().flatten();
        let mut places = std::iter::once(held).chain(spares);
        if places.any(|place| place.path == block.path || (place.spooled && block.spooled)) {
            return false;
        }
        if block.spooled {
            self.owners.insert(block.path.clone(), key.clone());
        }
        let spares = self.spares.entry(key.clone()).or_default();
        spares.push_back(block);
        if spares.len() > MAX_SPARES {
            let oldest = self.blocks.get(&key).map(BlockEntry::place);
            self.drop_places(&key, |held| Some(held.place()) == oldest);
        }
        true
    }

    /// A file of a block changed or is gone. True if the block is held all the same: it has another file, or was put again
    /// meanwhile. If not, who asks for it is told so, until it is put again.
    pub fn handle_changed(&mut self, coflow: CoflowId, block: &str, place: &Place) -> bool {
        let key = BlockKey { coflow, name: block.to_owned() };
        if self.drop_places(&key, |held| held.place() == *place) {
            self.note_changed(key.clone());
        }
        self.blocks.contains_key(&key)
    }

    /// A receiver that asks for the block is told that it changed, after a restart too.
    pub(super) fn note_changed(&mut self, key: BlockKey) {
        self.changed.insert(key);
        if self.changed.len() > MAX_CHANGED {
            self.changed.pop_first();
        }
    }

    /// The coordinator has been told which coflows are known: of others their end is not heard, so nothing of them stays.
    pub(super) fn forget_changed(&mut self) {
        let coflows = &self.coflows;
        self.changed.retain(|key| coflows.contains_key(&key.coflow));
    }

    /// The files of a block, the one that is served first.
    pub fn places(&self, coflow: CoflowId, block: &str) -> impl Iterator<Item = &BlockEntry> {
        let key = BlockKey { coflow, name: block.to_owned() };
        let spares = self.spares.get(&key).into_iter().flatten();
        self.blocks.get(&key).into_iter().chain(spares)
    }

    /// Whether a block is held in this file.
    pub fn holds(&self, coflow: CoflowId, block: &str, place: &Place) -> bool {
        self.places(coflow, block).any(|held| held.path == place.path && held.stamp == place.stamp)
    }

    /// Some files of a block count no more, and it may be put again if no other one is left. True if that is so and it was
    /// held.
    pub(super) fn drop_places(&mut self, key: &BlockKey, is_gone: impl Fn(&BlockEntry) -> bool) -> bool {
        let gone = self.take_places(key, is_gone);
        let is_over = !gone.is_empty() && !self.blocks.contains_key(key);
        let (coflow, block) = (key.coflow, &key.name);
        for gone in &gone {
            // Of a block that is over one line says it, below; its places need none of their own.
            if !is_over {
                let (block, place) = (block.clone(), gone.place());
                self.write_down(JournalEntry::PlaceGone { coflow, block, place });
            }
        }
        if is_over {
            self.write_down(JournalEntry::Gone { coflow, block: block.clone() });
        }
        self.let_go(key, gone, is_over);
        is_over
    }

    /// A put of a block in this file, which has not been answered for, could not be written down: it is as if it had not been.
    pub fn handle_unwritten(&mut self, key: &BlockKey, place: &Place) {
        let gone = self.take_places(key, |held| held.place() == *place);
        let is_over = !gone.is_empty() && !self.blocks.contains_key(key);
        self.let_go(key, gone, is_over);
    }

    /// What follows from it that some files of a block, or the block, are not held any more.
    fn let_go(&mut self, key: &BlockKey, gone: Vec<BlockEntry>, is_over: bool) {
        for gone in gone {
            let (place, spooled) = (gone.place(), gone.spooled);
            let place = (!is_over).then_some(place);
            self.outputs.push_back(Output::Cut { key: key.clone(), place });
            if spooled && !is_planted(Defect::FileKept) {
                self.outputs.push_back(Output::Discard(gone.path));
            }
        }
        if is_over {
            self.send(v1::agent_event::Kind::BlockGone(v1::BlockGone {
                coflow: key.coflow.0,
                block: key.name.clone(),
            }));
        }
    }

    /// Takes files of a block out; the oldest that stays is served from now on.
    pub(super) fn take_places(
        &mut self,
        key: &BlockKey,
        is_gone: impl Fn(&BlockEntry) -> bool,
    ) -> Vec<BlockEntry> {
        let Some(main) = self.blocks.remove(key) else { return Vec::new() };
        let spares = self.spares.remove(key).into_iter().flatten();
        let (gone, left): (Vec<_>, Vec<_>) = std::iter::once(main).chain(spares).partition(is_gone);
        let mut left = VecDeque::from(left);
        match left.pop_front() {
            Some(main) => _ = self.blocks.insert(key.clone(), main),
            None => {
                // A block's bytes count once, however many files it has: they go with the last of
                // them.
                let size = gone.first().map_or(0, |gone| gone.size);
                if let Some(held) = self.held.get_mut(&key.coflow) {
                    *held = held.saturating_sub(size);
                }
            }
        }
        if !left.is_empty() {
            self.spares.insert(key.clone(), left);
        }
        gone.iter().filter(|gone| gone.spooled).for_each(|gone| _ = self.owners.remove(&gone.path));
        gone
    }

    /// The blocks of all coflows from the first id to the last go, and spooled files with them.
    pub(super) fn drop_blocks(&mut self, first: CoflowId, last: CoflowId) {
        let from = self.blocks.range(BlockKey::first_of(first)..);
        let gone: Vec<_> = from.map(|(key, _)| key).take_while(|key| key.coflow <= last).cloned().collect();
        for key in gone {
            let places = self.take_places(&key, |_| true);
            let spooled = places.into_iter().filter(|place| place.spooled && !is_planted(Defect::FileKept));
            self.outputs.extend(spooled.map(|place| Output::Discard(place.path)));
            self.held.remove(&key.coflow);
        }
        let from = self.changed.range(BlockKey::first_of(first)..);
        let gone: BTreeSet<_> = from.take_while(|key| key.coflow <= last).cloned().collect();
        gone.iter().for_each(|key| _ = self.changed.remove(key));
    }

    /// What a receiver is told that asks for a block that is not held.
    pub(super) fn missing(&self, key: &BlockKey) -> Status {
        if self.changed.contains(key) { Status::Changed } else { Status::NoSuchBlock }
    }

    /// Whether a spooled file is that of a block.
    pub fn owns(&self, path: &str) -> bool {
        self.owners.contains_key(path)
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::FileStamp;
    use super::super::{AgentConfig, FactCursor};
    use super::*;
    use weir_proto::data::Identity;

    fn agent() -> Agent {
        Agent::new(AgentConfig { incarnation: 1, spool_identity: 1, ..AgentConfig::default() })
    }

    /// The block `b` of coflow 1, with the bytes number `bytes`, in a file that was written at this time.
    fn put(path: &str, bytes: u8, modified_ns: i64) -> BlockEntry {
        let identity = Identity::drawn([bytes; 16]);
        let whole = BlockEntry::of_file(CoflowId(1), "b".to_owned(), path.to_owned(), 10, identity);
        let stamp = Some(FileStamp { inode: 1, modified_ns, length: 10 });
        BlockEntry { spooled: path.ends_with(".block"), stamp, ..whole }
    }

    fn paths(agent: &Agent) -> Vec<String> {
        agent.places(CoflowId(1), "b").map(|place| place.path.clone()).collect()
    }

    fn journal(agent: &mut Agent) -> Vec<JournalEntry> {
        std::iter::from_fn(|| agent.poll_journal()).collect()
    }

    #[test]
    fn every_file_that_a_put_was_answered_for_is_kept_and_a_dead_one_is_dropped() {
        let mut agent = agent();
        for path in ["/a", "/b", "/a", "/c.block", "/d.block"] {
            agent.handle_put(put(path, 7, 1)).unwrap();
        }
        // A second copy of the agent's own memory is not needed.
        assert_eq!(paths(&agent), ["/a", "/b", "/c.block"]);
        assert_eq!(std::iter::from_fn(|| agent.poll_discard()).collect::<Vec<_>>(), ["/d.block"]);
        assert_eq!(journal(&mut agent).len(), 3);
        assert!(agent.handle_changed(CoflowId(1), "b", &put("/a", 7, 1).place()));
        assert!(agent.handle_changed(CoflowId(1), "b", &put("/a", 7, 1).place()), "it may be said twice");
        assert_eq!(paths(&agent), ["/b", "/c.block"]);
        assert!(agent.handle_changed(CoflowId(1), "b", &put("/c.block", 7, 1).place()));
        assert_eq!(agent.poll_discard().as_deref(), Some("/c.block"));
        assert!(!agent.handle_changed(CoflowId(1), "b", &put("/b", 7, 1).place()), "that was the last one");
        assert_eq!((paths(&agent).len(), agent.held[&CoflowId(1)]), (0, 0));
        let gone = |path| JournalEntry::PlaceGone {
            coflow: CoflowId(1),
            block: "b".into(),
            place: put(path, 7, 1).place(),
        };
        let over = JournalEntry::Gone { coflow: CoflowId(1), block: "b".into() };
        assert_eq!(journal(&mut agent), [gone("/a"), gone("/c.block"), over]);
    }

    #[test]
    fn who_asks_for_a_block_that_is_gone_hears_so_after_restarts_until_it_is_put_again_or_its_coflow_ends() {
        let mut one = agent();
        one.handle_put(put("/a", 7, 1)).unwrap();
        one.handle_changed(CoflowId(1), "b", &put("/a", 7, 1).place());
        let mut two = agent();
        journal(&mut one).into_iter().for_each(|entry| two.restore(entry));
        // Its journal is written anew.
        let mut three = agent();
        let facts = two.facts(&mut FactCursor::default(), 100);
        assert_eq!((facts.len(), two.most_facts()), (1, 1));
        facts.into_iter().for_each(|entry| three.restore(entry));
        let key = BlockKey { coflow: CoflowId(1), name: "b".to_owned() };
        for agent in [&one, &two, &three] {
            assert_eq!(agent.missing(&key), Status::Changed);
        }
        three.handle_put(put("/a", 7, 2)).unwrap();
        assert_eq!((three.changed.len(), three.facts(&mut FactCursor::default(), 100).len()), (0, 1));
        two.forget(CoflowId(1), CoflowId(1));
        assert_eq!(two.missing(&key), Status::NoSuchBlock);
    }

    #[test]
    fn late_word_of_an_old_file_does_not_count_against_the_new_one() {
        let mut agent = agent();
        agent.handle_put(put("/a", 7, 1)).unwrap();
        // The task ran again, and wrote its file anew.
        agent.handle_put(put("/a", 8, 2)).unwrap();
        assert!(agent.handle_changed(CoflowId(1), "b", &put("/a", 7, 1).place()), "the new one is held");
        assert_eq!(agent.places(CoflowId(1), "b").collect::<Vec<_>>(), [&put("/a", 8, 2)]);
    }

    #[test]
    fn a_rewritten_file_of_several_takes_only_itself_away() {
        let mut agent = agent();
        agent.handle_put(put("/a", 7, 1)).unwrap();
        agent.handle_put(put("/b", 7, 1)).unwrap();
        let refused = agent.handle_put(put("/a", 8, 2));
        assert!(refused.is_err(), "other bytes while the first are held in /b");
        assert_eq!(paths(&agent), ["/b"]);
        agent.handle_put(put("/a", 7, 3)).unwrap();
        assert_eq!(paths(&agent), ["/b", "/a"]);
    }

    #[test]
    fn all_files_of_a_block_outlive_the_process_and_go_with_its_coflow() {
        let mut one = agent();
        for path in ["/a", "/b", "/c.block"] {
            one.handle_put(put(path, 7, 1)).unwrap();
        }
        one.handle_changed(CoflowId(1), "b", &put("/b", 7, 1).place());
        let mut two = agent();
        journal(&mut one).into_iter().for_each(|entry| two.restore(entry));
        assert_eq!(paths(&two), ["/a", "/c.block"]);
        assert_eq!(two.most_facts(), 2);
        let mut three = agent();
        two.facts(&mut FactCursor::default(), 100).into_iter().for_each(|entry| three.restore(entry));
        assert_eq!((paths(&three), three.held[&CoflowId(1)]), (paths(&two), 10));
        three.forget(CoflowId(1), CoflowId(1));
        assert_eq!((paths(&three).len(), three.poll_discard().as_deref()), (0, Some("/c.block")));
        assert!(!three.owns("/c.block"));
    }

    /// An agent that was restored from what another wrote down, after the machine started under this name.
    fn after_boot(one: &mut Agent, boot: &str) -> Agent {
        let mut two = agent();
        journal(one).into_iter().for_each(|entry| two.restore(entry));
        two.handle_boot(boot, false);
        two
    }

    #[test]
    fn after_another_start_of_the_machine_only_blocks_are_held_whose_bytes_are_certain() {
        let with = |name: &str, durable, size, frame_checksums| BlockEntry {
            block: name.to_owned(),
            durable,
            size,
            frame_checksums,
            ..put(&format!("/{name}"), 7, 1)
        };
        let mut one = agent();
        assert_eq!(one.handle_boot("monday", false), 0);
        for block in [
            with("uncertain", false, 10, vec![]),
            with("durable", true, 10, vec![]),
            with("empty", false, 0, vec![]),
            with("checked", false, 10, vec![5]),
        ] {
            one.handle_put(block).unwrap();
        }
        let mut entries = journal(&mut one);
        let mut same = agent();
        entries.iter().cloned().for_each(|entry| same.restore(entry));
        assert_eq!((same.handle_boot("monday", false), same.blocks.len()), (0, 4));
        // A kernel that names no start may have been started anew, twice as well.
        let mut nameless = agent();
        entries.iter().cloned().for_each(|entry| nameless.restore(entry));
        assert_eq!((nameless.handle_boot("", false), nameless.blocks.len()), (1, 3));
        nameless.handle_put(with("uncertain", false, 10, vec![])).unwrap();
        assert_eq!((nameless.handle_boot("", false), nameless.blocks.len()), (1, 3));
        let mut other = agent();
        entries.iter().cloned().for_each(|entry| other.restore(entry));
        assert_eq!((other.handle_boot("tuesday", false), other.blocks.len()), (1, 3));
        assert_eq!(
            other.missing(&BlockKey { coflow: CoflowId(1), name: "uncertain".to_owned() }),
            Status::Changed
        );
        // What was dropped stays so, in whatever order the machine starts, and wherever it stops while this is written down.
        let after = journal(&mut other);
        assert_eq!(after.len(), 2);
        for lines in 0..=after.len() {
            let mut cut = agent();
            entries.iter().chain(&after[..lines]).cloned().for_each(|entry| cut.restore(entry));
            cut.handle_boot("tuesday", false);
            assert_eq!(cut.blocks.len(), 3, "of {lines} lines");
        }
        entries.extend(after);
        let mut third = agent();
        entries.into_iter().for_each(|entry| third.restore(entry));
        assert_eq!(
            (third.handle_boot("monday", false), third.blocks.len()),
            (0, 3),
            "those are checked when they are read"
        );
    }

    #[test]
    fn a_block_that_is_put_once_more_durably_is_durable() {
        let mut one = agent();
        one.handle_boot("monday", false);
        one.handle_put(put("/a", 7, 1)).unwrap();
        one.handle_put(BlockEntry { durable: true, ..put("/a", 7, 1) }).unwrap();
        one.handle_put(BlockEntry { durable: true, ..put("/a", 7, 1) }).unwrap();
        assert_eq!(one.outputs.iter().filter(|output| matches!(output, Output::Journal(_))).count(), 3);
        assert_eq!(paths(&after_boot(&mut one, "tuesday")), ["/a"]);
    }

    #[test]
    fn a_journal_that_names_no_start_of_the_machine_loses_nothing() {
        let mut one = agent();
        one.handle_put(put("/a", 7, 1)).unwrap();
        let mut two = after_boot(&mut one, "monday");
        assert_eq!(paths(&two), ["/a"]);
        let mut damaged = agent();
        damaged.handle_put(put("/a", 7, 1)).unwrap();
        assert_eq!(damaged.handle_boot("monday", true), 1, "the line that names it may be the damaged one");
        let mut cursor = FactCursor::default();
        assert_eq!(two.facts(&mut cursor, 10), [JournalEntry::Boot("monday".to_owned())]);
        assert_eq!(paths(&after_boot(&mut two, "monday")).len(), 0, "of these lines alone it holds none");
    }

    #[test]
    fn of_more_files_than_are_kept_the_oldest_is_forgotten() {
        let mut agent = agent();
        for number in 0..20 {
            agent.handle_put(put(&format!("/{number}"), 7, 1)).unwrap();
        }
        let kept = paths(&agent);
        assert_eq!((kept.len(), kept[0].as_str(), kept[15].as_str()), (16, "/4", "/19"));
    }
}
