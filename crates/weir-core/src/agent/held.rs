//! The blocks that an agent holds, and those that it does not hold any more though their coflows go on.

use super::facts::{BlockEntry, JournalEntry};
use super::state::Agent;
use std::collections::BTreeSet;
use weir_proto::data::Status;
use weir_proto::v1;

/// Changed blocks that are remembered, so that whoever asks for one is told what became of it.
const MAX_CHANGED: usize = 10_000;

impl Agent {
    /// Holds a block, in place of what was under its name.
    pub(super) fn hold(&mut self, block: BlockEntry) {
        let (key, size) = ((block.coflow, block.block.clone()), block.size);
        if block.spooled {
            self.owners.insert(block.path.clone(), key.clone());
        }
        self.changed.remove(&key);
        if self.blocks.insert(key.clone(), block).is_none() {
            let held = self.held.entry(key.0).or_default();
            *held = held.saturating_add(size);
        }
    }

    /// A block's file changed or is gone: who asks for it is told so, until it is put again.
    pub fn handle_changed(&mut self, coflow: u64, block: &str) {
        if self.take_back(coflow, block) {
            self.changed.insert((coflow, block.to_owned()));
            if self.changed.len() > MAX_CHANGED {
                self.changed.pop_first();
            }
        }
    }

    /// A block is not held any more though its coflow goes on, and may be put again. True if it was.
    pub fn take_back(&mut self, coflow: u64, block: &str) -> bool {
        let key = (coflow, block.to_owned());
        let Some(gone) = self.drop_block(&key) else { return false };
        if gone.spooled {
            self.discards.push_back(gone.path);
        }
        let (coflow, block) = key;
        self.journal.push_back(JournalEntry::Gone { coflow, block: block.clone() });
        self.send(v1::agent_event::Kind::BlockGone(v1::BlockGone { coflow, block }));
        true
    }

    pub(super) fn drop_block(&mut self, key: &(u64, String)) -> Option<BlockEntry> {
        let block = self.blocks.remove(key)?;
        self.owners.remove(&block.path);
        if let Some(held) = self.held.get_mut(&key.0) {
            *held = held.saturating_sub(block.size);
        }
        Some(block)
    }

    /// The blocks of all coflows from the first id to the last go, and spooled files with them.
    pub(super) fn drop_blocks(&mut self, first: u64, last: u64) {
        let from = self.blocks.range((first, String::new())..);
        let gone: Vec<_> = from.map(|(key, _)| key).take_while(|key| key.0 <= last).cloned().collect();
        for key in gone {
            self.held.remove(&key.0);
            if let Some(block) = self.blocks.remove(&key).filter(|block| block.spooled) {
                self.owners.remove(&block.path);
                self.discards.push_back(block.path);
            }
        }
        let from = self.changed.range((first, String::new())..);
        let gone: BTreeSet<_> = from.take_while(|key| key.0 <= last).cloned().collect();
        gone.iter().for_each(|key| _ = self.changed.remove(key));
    }

    /// What whoever asks for a block that is not held is told.
    pub(super) fn missing(&self, key: &(u64, String)) -> Status {
        if self.changed.contains(key) { Status::Changed } else { Status::NoSuchBlock }
    }

    /// Whether a spooled file is that of a block.
    pub fn owns(&self, path: &str) -> bool {
        self.owners.contains_key(path)
    }
}
