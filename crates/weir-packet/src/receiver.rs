//! The receiving end of a flow: what is there, and what is acknowledged when.

use crate::segments::Segments;
use crate::time::Picos;

/// When a receiver acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledging {
    /// Every segment, as it comes.
    Each,
    /// Every second segment, or one after this time, and at once what is out of order; where marking begins or ends the
    /// segments so far are acknowledged first, so that the share of marked ones stays right (RFC 8257, section 3.2).
    Delayed(Picos),
}

/// What a receiver does about a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    /// Acknowledge what was held back, with the marking that it had.
    pub(crate) held: Option<Held>,
    /// Acknowledge this segment now.
    pub(crate) now: bool,
    /// Begin to wait for another segment.
    pub(crate) wait: bool,
}

/// Segments that are not acknowledged yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) segment: u32,
    pub(crate) expected: u32,
    pub(crate) marked: bool,
    pub(crate) sent: Picos,
}

#[derive(Debug, Default)]
pub(crate) struct Receiver {
    segments: Segments,
    pub(crate) bytes: u64,
    held: Option<Held>,
    /// By when what is held has to be acknowledged.
    pub(crate) hold_until: Picos,
    pub(crate) hold_set: bool,
    last_marked: bool,
}

impl Receiver {
    /// All segments before this one are there.
    #[inline]
    pub(crate) fn expected(&self) -> u32 {
        self.segments.missing()
    }

    /// A segment comes. Whether it is new.
    #[inline]
    pub(crate) fn on_segment(&mut self, segment: u32, payload: u32) -> bool {
        let new = self.segments.insert(segment);
        if new {
            self.bytes += u64::from(payload);
        }
        new
    }

    /// What is to be acknowledged, after [`Receiver::on_segment`].
    pub(crate) fn reply(&mut self, held: Held, in_order: bool) -> Reply {
        let changed = self.last_marked != held.marked;
        self.last_marked = held.marked;
        let before = self.held.take();
        if !in_order {
            // RFC 5681, section 4.2: at once. It says what is there in order, and so covers what
            // was held back.
            return Reply { held: None, now: true, wait: false };
        }
        if let Some(before) = before {
            if changed {
                self.held = Some(held);
                return Reply { held: Some(before), now: false, wait: true };
            }
            return Reply { held: None, now: true, wait: false };
        }
        self.held = Some(held);
        Reply { held: None, now: false, wait: true }
    }

    /// What has been held back for long enough.
    pub(crate) fn release(&mut self) -> Option<Held> {
        self.held.take()
    }
}
