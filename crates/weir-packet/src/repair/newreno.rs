//! NewReno (RFC 6582): three duplicates, then one segment a round trip; after a timeout all anew.

use super::{DUPLICATES, Noted, Progress};
use crate::packet::Answer;

/// Duplicates before the third that let a new segment go each (limited transmit, RFC 3042).
const LIMITED: u32 = DUPLICATES - 1;

#[derive(Debug, Default)]
pub(crate) struct NewReno {
    unacked: u32,
    /// The next to send for the first time, or after a timeout anew.
    next: u32,
    duplicates: u32,
    recovering: bool,
    /// A partial acknowledgement has come since recovery began.
    partial: bool,
    /// Duplicates of what was sent before this are no sign of another loss.
    recover: u32,
}

impl NewReno {
    pub(super) fn unacked(&self) -> u32 {
        self.unacked
    }
    pub(super) fn in_flight(&self) -> u32 {
        self.next - self.unacked
    }

    #[inline]
    pub(super) fn take(&mut self, window: u32, at: Progress) -> Option<u32> {
        // Each duplicate says that a segment has left the network.
        let left = if self.recovering { self.duplicates } else { self.duplicates.min(LIMITED) };
        if self.next >= at.segments || self.next - self.unacked >= window.saturating_add(left) {
            return None;
        }
        self.next += 1;
        Some(self.next - 1)
    }

    #[inline]
    pub(super) fn note(&mut self, answer: &Answer, at: Progress) -> Noted {
        if answer.expected > self.unacked {
            let newly = answer.expected - self.unacked;
            self.unacked = answer.expected;
            self.next = self.next.max(self.unacked);
            if !self.recovering {
                self.duplicates = 0;
                return Noted { newly, ..Noted::default() };
            }
            if answer.expected >= self.recover {
                (self.recovering, self.duplicates) = (false, 0);
                return Noted { newly, ..Noted::default() };
            }
            // A partial acknowledgement: the next hole is lost too. The window deflates by what it covers. The timer is set
            // anew by the first alone, so that a window full of holes ends in a timeout (the RFC's impatient variant).
            self.duplicates = (self.duplicates + 1).saturating_sub(newly);
            let keeps_timer = std::mem::replace(&mut self.partial, true);
            return Noted { newly, recovering: true, lost_of: None, again: Some(self.unacked), keeps_timer };
        }
        // The answer to a header alone is no duplicate.
        if answer.expected < self.unacked || self.next == self.unacked || answer.segment.is_none() {
            return Noted::default();
        }
        self.duplicates += 1;
        // RFC 6582, section 3.2, step 2: duplicates of what was sent before `recover` begin no second recovery.
        if self.recovering || self.duplicates != DUPLICATES || self.unacked < self.recover {
            return Noted { recovering: self.recovering, ..Noted::default() };
        }
        (self.recovering, self.partial, self.recover) = (true, false, at.sent);
        let lost_of = Some(at.sent - self.unacked);
        Noted { recovering: true, lost_of, again: Some(self.unacked), ..Noted::default() }
    }

    pub(super) fn on_timeout(&mut self, sent: u32) {
        // RFC 6582, section 3.2, step 4.
        (self.duplicates, self.recovering, self.recover) = (0, false, sent);
        self.next = self.unacked;
    }

    pub(super) fn resume(&mut self, sent: u32) {
        self.next = sent;
    }
}
