//! For networks in which packets overtake each other: each segment is acknowledged by itself; what is not when the timer
//! runs out is sent again, with a watch also once segments sent later are acknowledged.

use super::{Noted, Progress};
use crate::packet::Answer;
use crate::segments::Segments;
use crate::watch::Watch;

#[derive(Debug, Default)]
pub(crate) struct Each {
    acked: Segments,
    in_flight: u32,
    /// The next to be sent for the first time, or again after a timeout.
    next: u32,
    watch: Option<Watch>,
}

impl Each {
    pub(super) fn new(watches: bool) -> Each {
        Each { watch: watches.then(Watch::default), ..Each::default() }
    }
    pub(super) fn unacked(&self) -> u32 {
        self.acked.missing()
    }
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    #[inline]
    pub(super) fn take(&mut self, window: u32, at: Progress) -> Option<u32> {
        if self.in_flight >= window {
            return None;
        }
        if let Some(lost) = self.watch.as_mut().and_then(|watch| watch.next_lost(&self.acked)) {
            self.in_flight += 1;
            return Some(lost);
        }
        self.next = self.next.max(self.acked.missing());
        // After a timeout `next` goes back; what has arrived in spite of it is not sent again.
        while self.next < at.sent && self.acked.contains(self.next) {
            self.next += 1;
        }
        if self.next >= at.segments {
            return None;
        }
        self.in_flight += 1;
        self.next += 1;
        Some(self.next - 1)
    }

    #[inline]
    pub(super) fn note(&mut self, answer: &Answer, at: Progress) -> Noted {
        let newly = self.acked.insert_before(answer.expected)
            + u32::from(answer.segment.is_some_and(|segment| self.acked.insert(segment)));
        // A loss is reported with what was in flight before this answer.
        let flight = self.in_flight;
        // A segment that counted as lost left the count then and may still be acknowledged: the
        // difference may be below 0.
        self.in_flight = flight.saturating_sub(newly);
        // Of a segment that was sent twice one copy is acknowledged: the other would count for ever, and no timer runs to end that.
        if self.acked.missing() >= at.sent {
            self.in_flight = 0;
        }
        let mut noted = Noted { newly, ..Noted::default() };
        if let Some(watch) = &mut self.watch {
            let lost = watch.on_answer(&self.acked, answer.sent, at.now, at.sent, at.smoothed);
            if lost > 0 {
                self.in_flight = self.in_flight.saturating_sub(lost);
                noted.lost_of = Some(flight);
            }
        }
        noted
    }

    pub(super) fn on_timeout(&mut self) {
        (self.in_flight, self.next) = (0, self.acked.missing());
        // All that is missing is sent again from there.
        if let Some(watch) = &mut self.watch {
            *watch = Watch::default();
        }
    }

    pub(super) fn resume(&mut self, sent: u32) {
        self.next = sent;
        let missing = (self.acked.missing()..sent).filter(|&segment| !self.acked.contains(segment));
        self.in_flight = missing.count() as u32;
    }
}
