//! Losses found by time: a segment that was overtaken by others sent well after it is lost (after RACK, RFC 8985).
//!
//! Where packets take several ways duplicates say nothing, and a timer that each acknowledgement sets anew runs out only
//! after the last: a flow that is paced to its deadline would learn of a loss when the deadline is over. RACK remembers
//! when each segment was sent. **Ours** is to remember a single moment: all segments so far were sent before it, so those
//! that are not acknowledged when one comes that was sent later, by more than packets overtake each other, are lost.
//! Then the next moment is noted. A loss is found within two round trips, as against one, for a few bytes a flow.

use crate::segments::Segments;
use crate::time::Picos;

/// What a sender watches.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// A moment, and the segment before which all were sent by then.
    since: Option<(Picos, u32)>,
    /// Lost segments that are still to be sent again lie from here to the end.
    next: u32,
    end: u32,
}

impl Watch {
    /// An acknowledgement of what was sent at `sent`; `before` is one after the last segment that was ever sent. How many
    /// segments it shows to be lost.
    #[inline]
    pub(crate) fn on_answer(
        &mut self,
        acked: &Segments,
        sent: Picos,
        now: Picos,
        before: u32,
        round_trip: Picos,
    ) -> u32 {
        // Until what was lost is sent again, nothing says when it was.
        if self.next < self.end {
            return 0;
        }
        let Some((since, end)) = self.since else {
            self.since = Some((now, before));
            return 0;
        };
        // Sent too shortly after the moment: packets may overtake each other by that much.
        if sent < since + Picos(round_trip.0 / 2) {
            return 0;
        }
        let missing = acked.missing();
        // All that was sent before the moment is there: the next moment is noted.
        if missing >= end {
            self.since = Some((now, before));
            return 0;
        }
        self.since = None;
        (self.next, self.end) = (missing, end);
        (missing..end).map(|segment| u32::from(!acked.contains(segment))).sum()
    }

    /// The next lost segment to be sent again.
    #[inline]
    pub(crate) fn next_lost(&mut self, acked: &Segments) -> Option<u32> {
        while self.next < self.end {
            self.next += 1;
            if !acked.contains(self.next - 1) {
                return Some(self.next - 1);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Picos = Picos::from_micros(100);

    fn us(micros: u64) -> Picos {
        Picos::from_micros(micros)
    }

    #[test]
    fn what_was_overtaken_by_more_than_half_a_round_trip_is_lost() {
        let (mut acked, mut watch) = (Segments::default(), Watch::default());
        // Ten segments are sent by 100 us, of which 3 and 7 are lost.
        (0..10).filter(|segment| ![3, 7].contains(segment)).for_each(|segment| {
            acked.insert(segment);
        });
        assert_eq!(watch.on_answer(&acked, us(0), us(100), 10, ROUND_TRIP), 0);
        // One that was sent 49 us after that may have overtaken them.
        assert_eq!(watch.on_answer(&acked, us(149), us(249), 12, ROUND_TRIP), 0);
        assert_eq!(watch.on_answer(&acked, us(150), us(250), 12, ROUND_TRIP), 2);
        // Both are sent again, once; nothing is lost meanwhile.
        assert_eq!(watch.next_lost(&acked), Some(3));
        assert_eq!(watch.on_answer(&acked, us(240), us(340), 13, ROUND_TRIP), 0);
        assert_eq!(watch.next_lost(&acked), Some(7));
        assert_eq!(watch.next_lost(&acked), None);
        // From then on all over again: a moment is noted, and what was sent again can be lost again.
        assert_eq!(watch.on_answer(&acked, us(260), us(360), 14, ROUND_TRIP), 0);
        acked.insert(3);
        assert_eq!(watch.on_answer(&acked, us(420), us(520), 15, ROUND_TRIP), 5);
    }

    #[test]
    fn without_a_gap_nothing_is_lost() {
        let (mut acked, mut watch) = (Segments::default(), Watch::default());
        for segment in 0..100 {
            acked.insert(segment);
            let sent = us(u64::from(segment) * 10);
            let lost = watch.on_answer(&acked, sent, sent + ROUND_TRIP, segment + 11, ROUND_TRIP);
            assert_eq!((lost, watch.next_lost(&acked)), (0, None), "segment {segment}");
        }
    }
}
