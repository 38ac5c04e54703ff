//! How an agent introduces itself to a coordinator: all it knows, a message at a time.
//!
//! An agent may hold a million blocks, which no one message has room for, and of which no second copy is to wait in
//! memory. Coflows, flows and ended ids are taken down when the session begins; blocks are read off as messages go out.
//! Whatever happens meanwhile waits and is told afterwards: a block that was put then may be told twice.

use super::coflow::CoflowEntry;
use super::state::Agent;
use crate::ids::BlockKey;
use crate::planted::{Defect, is_planted};
use crate::portions::Portion;
use std::ops::Bound;
use weir_model::{CoflowId, Rate, Time};
use weir_proto::v1::agent_event::Kind;
use weir_proto::{limits, v1};

/// A note counts like so many other entries: it may have long names and many parents.
const NOTE_WEIGHT: usize = 8;

/// Parts of a Hello that are still to be said.
#[derive(Debug)]
pub(super) struct Introduction {
    /// The beginning, until it was said.
    hello: Option<v1::Hello>,
    notes: std::vec::IntoIter<v1::CoflowNote>,
    flows: std::vec::IntoIter<v1::FlowOpened>,
    ended: std::vec::IntoIter<v1::IdRange>,
    /// The last block that was told of.
    block: Option<BlockKey>,
    blocks_told: bool,
}

/// A link rate as the coordinator is told it.
pub(super) fn said(rate: Option<Rate>) -> f64 {
    rate.map_or(0.0, Rate::bytes_per_sec)
}

impl Agent {
    /// Takes down what a coordinator must know.
    pub(super) fn begin_introduction(&mut self, now: Time) {
        let note = |(&coflow, entry): (&CoflowId, &CoflowEntry)| {
            let mut note = entry.note.clone();
            note.coflow = coflow.0;
            note.age_ns = note.age_ns.saturating_add(now.since(entry.noted).nanos());
            // 0 says that no flow of it was opened here.
            note.moving_age_ns = entry.first_opened.map_or(0, |at| now.since(at).nanos().max(1));
            note
        };
        let notes: Vec<_> = self.coflows.iter().map(note).collect();
        let flows: Vec<_> =
            self.flows.iter().map(|(&id, flow)| flow.opened(id, self.told_size(flow.size))).collect();
        let ended: Vec<_> = self.ended.ranges().collect();
        let hello = v1::Hello {
            version: 1,
            host: self.config.host.0,
            data_address: self.config.data_address.clone(),
            incarnation: self.config.incarnation,
            spool_identity: self.config.spool_identity,
            session: self.standing.sessions,
            accepted_ns: self.standing.accepted_ns,
            refused: self.standing.refused,
            name: self.config.name.clone(),
            draining: self.draining,
            rack: self.config.rack.clone(),
            labels: self.config.labels.clone(),
            terms: self.terms(),
            up_bytes_per_s: said(self.config.links[0]),
            down_bytes_per_s: said(self.config.links[1]),
            ..v1::Hello::default()
        };
        self.introduction = Some(Introduction {
            hello: Some(hello),
            notes: notes.into_iter(),
            flows: flows.into_iter(),
            ended: ended.into_iter(),
            block: None,
            blocks_told: false,
        });
    }

    /// The next part of the introduction, if it is not over.
    pub(super) fn introduce(&mut self, now: Time) -> Option<Kind> {
        let mut introduction = self.introduction.take()?;
        let mut part = self.next_part(&mut introduction);
        part.clock_ns = self.tell_clock(now);
        let first = introduction.hello.take();
        if !part.last {
            self.introduction = Some(introduction);
        }
        Some(match first {
            None => Kind::HelloPart(part),
            Some(hello) => Kind::Hello(v1::Hello {
                coflows: part.coflows,
                blocks: part.blocks,
                flows: part.flows,
                ended_ranges: part.ended,
                more: !part.last,
                clock_ns: part.clock_ns,
                ..hello
            }),
        })
    }

    /// Whether an introduction is under way: its messages are large, so they should wait where the ones before them do.
    pub fn introduces(&self) -> bool {
        self.introduction.is_some()
    }

    fn next_part(&self, introduction: &mut Introduction) -> v1::HelloPart {
        let mut part = v1::HelloPart::default();
        let mut room = limits::MAX_ENTRIES_PER_MESSAGE;
        // Notes first: what is told of a coflow afterwards is understood by them.
        let mut portion = Portion::of(room / NOTE_WEIGHT);
        while introduction.notes.as_slice().first().is_some_and(|note| portion.take(note)) {
            part.coflows.extend(introduction.notes.next());
        }
        room = room.saturating_sub(part.coflows.len().saturating_mul(NOTE_WEIGHT));
        part.ended = introduction.ended.by_ref().take(room).collect();
        room = room.saturating_sub(part.ended.len());
        if room > 0 && !introduction.blocks_told {
            let after = introduction.block.take().map_or(Bound::Unbounded, Bound::Excluded);
            let blocks = self.blocks.range((after, Bound::Unbounded)).take(room);
            for (key, block) in blocks {
                introduction.block = Some(key.clone());
                part.blocks.push(v1::BlockAdded {
                    coflow: key.coflow.0,
                    block: key.name.clone(),
                    size: self.told_size(block.size),
                    identity: block.identity.to_wire(),
                });
            }
            // As many blocks as there was room for may not be all of them: the next part looks for
            // more.
            introduction.blocks_told = part.blocks.len() < room;
            if is_planted(Defect::BlocksNotTold) {
                part.blocks.clear();
            }
            room = room.saturating_sub(part.blocks.len());
        }
        if introduction.blocks_told {
            part.flows = introduction.flows.by_ref().take(room).collect();
        }
        let listed =
            introduction.notes.len() == 0 && introduction.ended.len() == 0 && introduction.flows.len() == 0;
        part.last = introduction.blocks_told && listed;
        part
    }
}
