//! What a journal must hold of an agent, for one that is written anew while the agent goes on.
//!
//! A million blocks are not written in one go: the driver takes some facts at a time. What happens meanwhile is
//! appended to the new journal too. Restoring is the same whether a fact stands there once or twice, before or after.

use super::facts::JournalEntry;
use super::state::Agent;
use crate::ids::BlockKey;
use crate::planted::{Defect, is_planted};
use std::collections::VecDeque;
use std::ops::Bound;
use weir_model::CoflowId;

/// How far the facts were read off.
#[derive(Debug, Default)]
pub struct FactCursor(Stage);

#[derive(Debug, Default)]
enum Stage {
    #[default]
    Ended,
    /// Coflows after this one.
    Coflows(Option<CoflowId>),
    /// Blocks after this one.
    Blocks(Option<BlockKey>),
    Over,
}

impl Agent {
    /// Counts a block that its receiver has; false if it had it before.
    pub(super) fn count_done(&mut self, coflow: CoflowId, bytes: u64, mark: u64) -> bool {
        let entry = self.coflows.entry(coflow).or_default();
        if mark != 0 && !entry.done.insert(mark) && !is_planted(Defect::CountedTwice) {
            return false;
        }
        entry.note.done_flows = entry.note.done_flows.saturating_add(1);
        entry.note.done_bytes = entry.note.done_bytes.saturating_add(bytes);
        true
    }

    /// The next facts, about `most` of them; empty once all were read off.
    pub fn facts(&self, cursor: &mut FactCursor, most: usize) -> Vec<JournalEntry> {
        let mut facts = Vec::new();
        // Nothing would be taken for the end, so stages without facts are passed over.
        while facts.is_empty() {
            cursor.0 = match std::mem::replace(&mut cursor.0, Stage::Over) {
                Stage::Ended => {
                    facts.extend(self.boot.clone().map(JournalEntry::Boot));
                    facts.extend(self.draining.then_some(JournalEntry::Draining(true)));
                    let ended = self.ended.ranges();
                    let ended = ended.map(|range| (CoflowId(range.first), CoflowId(range.last)));
                    facts.extend(ended.map(|(first, last)| JournalEntry::EndedRange(first, last)));
                    let changed = self.changed.iter().cloned();
                    facts.extend(
                        changed.map(|BlockKey { coflow, name: block }| JournalEntry::Gone { coflow, block }),
                    );
                    facts.extend(self.stores.values().cloned().map(JournalEntry::Store));
                    Stage::Coflows(None)
                }
                Stage::Coflows(after) => self.coflow_facts(after, most, &mut facts),
                Stage::Blocks(after) => self.block_facts(after, most, &mut facts),
                Stage::Over => return facts,
            };
        }
        facts
    }

    /// No more facts than these hold now.
    pub fn most_facts(&self) -> usize {
        let ended = self.ended.ranges().count();
        let blocks = self.blocks.len().saturating_add(self.spares.values().map(VecDeque::len).sum());
        let boot = usize::from(self.boot.is_some()).saturating_add(self.changed.len());
        let boot = boot.saturating_add(self.stores.len());
        boot.saturating_add(ended).saturating_add(self.coflows.len().saturating_mul(2)).saturating_add(blocks)
    }

    fn coflow_facts(&self, after: Option<CoflowId>, most: usize, facts: &mut Vec<JournalEntry>) -> Stage {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut last = None;
        for (&coflow, entry) in self.coflows.range((after, Bound::Unbounded)).take(most) {
            last = Some(coflow);
            if entry.note.options.is_some() {
                // What was served has an entry of its own.
                let note = weir_proto::v1::CoflowNote { done_flows: 0, done_bytes: 0, ..entry.note.clone() };
                let (note, noted_ns) = (weir_proto::encode_note(&note), entry.noted.nanos());
                facts.push(JournalEntry::Coflow { coflow, note, noted_ns });
            }
            if entry.note.done_flows > 0 {
                let (flows, bytes) = (entry.note.done_flows, entry.note.done_bytes);
                let marks = entry.done.iter().copied().collect();
                facts.push(JournalEntry::Served { coflow, flows, bytes, marks });
            }
        }
        if last.is_none() { Stage::Blocks(None) } else { Stage::Coflows(last) }
    }

    fn block_facts(&self, after: Option<BlockKey>, most: usize, facts: &mut Vec<JournalEntry>) -> Stage {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut last = None;
        for (key, block) in self.blocks.range((after, Bound::Unbounded)).take(most) {
            last = Some(key.clone());
            let spares = self.spares.get(key).into_iter().flatten();
            facts.extend(std::iter::once(block).chain(spares).cloned().map(JournalEntry::Put));
        }
        if last.is_none() { Stage::Over } else { Stage::Blocks(last) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::AgentConfig;
    use super::*;

    #[test]
    fn bytes_that_the_old_journal_and_the_new_one_say_both_were_sent_once() {
        let done = |bytes, mark| JournalEntry::Done { coflow: CoflowId(1), bytes, mark };
        let served = JournalEntry::Served { coflow: CoflowId(1), flows: 2, bytes: 30, marks: vec![7, 8] };
        for entries in [
            vec![done(10, 7), done(20, 8)],
            vec![done(10, 7), done(20, 8), done(20, 8)],
            vec![served.clone(), done(20, 8)],
            vec![done(10, 7), served],
        ] {
            let mut agent = Agent::new(AgentConfig::default());
            entries.iter().cloned().for_each(|entry| agent.restore(entry));
            let coflow = &agent.coflows[&CoflowId(1)];
            let sums = (coflow.note.done_flows, coflow.note.done_bytes, coflow.sent_bytes);
            assert_eq!(sums, (2, 30, 30), "{entries:?}");
        }
    }
}
