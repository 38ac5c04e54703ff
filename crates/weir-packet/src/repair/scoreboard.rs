//! Selective acknowledgements (RFC 2018, 6675): the sender knows each segment that is there. One is lost once three are
//! there that come after it; one that was sent again is lost once one is there that was sent well after it (RFC 8985).
//!
//! An acknowledgement names the segment that it answers, and all before the first that is missing. Of the blocks of
//! RFC 2018 that is the newest; what the others repeat counts only where acknowledgements are lost.

use super::reduction::Reduction;
use super::{DUPLICATES, Noted, Progress};
use crate::packet::Answer;
use crate::segments::Segments;
use crate::time::Picos;
use std::collections::{BTreeSet, VecDeque};

#[derive(Debug, Default)]
pub(crate) struct Scoreboard {
    acked: Segments,
    /// Number of segments acknowledged, in any order.
    there: u32,
    /// One after the highest three that were answered, the highest first.
    highest: [u32; DUPLICATES as usize],
    /// Of all before this one it is known whether they were lost.
    judged: u32,
    /// Lost, and not yet sent again.
    lost: BTreeSet<u32>,
    /// Sent again when; those that are there since are taken out when they come to the front.
    again: VecDeque<(u32, Picos)>,
    reduction: Option<Reduction>,
    /// Where the recovery ends, or the time after a timeout in which losses are no news.
    recover: u32,
}

impl Scoreboard {
    pub(super) fn unacked(&self) -> u32 {
        self.acked.missing()
    }
    #[inline]
    pub(super) fn in_flight(&self, sent: u32) -> u32 {
        self.outstanding(sent) - self.lost.len() as u32
    }
    #[inline]
    pub(super) fn outstanding(&self, sent: u32) -> u32 {
        sent - self.there
    }

    #[inline]
    pub(super) fn take(&mut self, window: u32, at: Progress) -> Option<u32> {
        let full = match &self.reduction {
            // While losses are repaired, proportional rate reduction says what may go, and the
            // window bounds it there (RFC 9937).
            Some(reduction) => reduction.allowed == 0,
            None => self.in_flight(at.sent) >= window,
        };
        if full {
            return None;
        }
        let segment = match self.lost.pop_first() {
            Some(lost) => {
                self.again.push_back((lost, at.now));
                lost
            }
            None if at.sent < at.segments => at.sent,
            None => return None,
        };
        if let Some(reduction) = &mut self.reduction {
            reduction.on_sent();
        }
        Some(segment)
    }

    #[inline]
    pub(super) fn note(&mut self, answer: &Answer, at: Progress) -> Noted {
        // Before the answer is taken in: recovery begins with the flight in which the loss happened.
        let flight = self.outstanding(at.sent);
        let before = self.acked.missing();
        let mut newly = self.acked.insert_before(answer.expected);
        if let Some(segment) = answer.segment {
            newly += u32::from(self.acked.insert(segment));
            self.raise(segment + 1);
        }
        self.there += newly;
        let judged_before = self.lost.len();
        if self.acked.missing() < at.sent {
            self.forget_arrived(answer);
            self.judge();
            self.judge_again(answer, at.smoothed);
        } else {
            // All that was ever sent is there: late answers to copies can show no loss.
            self.lost.clear();
            self.again.clear();
        }
        if self.acked.missing() >= self.recover {
            self.reduction = None;
        }
        let mut noted = Noted { newly, ..Noted::default() };
        if self.lost.len() > judged_before && self.reduction.is_none() && self.acked.missing() >= self.recover
        {
            self.recover = at.sent;
            self.reduction = Some(Reduction::new(flight));
            noted.lost_of = Some(flight);
        }
        // Nor does the window grow by what comes after a hole before that counts as lost (RFC 3042).
        noted.recovering = self.reduction.is_some() || self.acked.missing() == before;
        noted
    }

    /// While losses are repaired, what goes follows what arrives.
    #[inline]
    pub(super) fn release(&mut self, noted: &Noted, window: u32, sent: u32) {
        let in_flight = self.in_flight(sent);
        if let Some(reduction) = &mut self.reduction {
            let advances = noted.newly > 0 && noted.lost_of.is_none();
            reduction.on_delivered(noted.newly, in_flight, window, advances);
        }
    }

    #[inline]
    fn raise(&mut self, end: u32) {
        let [first, second, third] = &mut self.highest;
        if end > *first {
            (*first, *second, *third) = (end, *first, *second);
        // Answers to copies of one segment count once: it takes three different segments after a
        // hole to say that it is lost.
        } else if end > *second && end != *first {
            (*second, *third) = (end, *second);
        } else if end > *third && end != *first && end != *second {
            *third = end;
        }
    }

    fn forget_arrived(&mut self, answer: &Answer) {
        if self.lost.is_empty() {
            return;
        }
        if let Some(segment) = answer.segment {
            self.lost.remove(&segment);
        }
        while self.lost.first().is_some_and(|&segment| segment < self.acked.missing()) {
            self.lost.pop_first();
        }
    }

    /// Segments below the third highest are lost if they are not there.
    #[inline]
    fn judge(&mut self) {
        // `highest` holds ends, one after the segment; zero while fewer than three were answered.
        let before = self.highest[DUPLICATES as usize - 1].saturating_sub(1);
        let from = self.judged.max(self.acked.missing());
        if from >= before {
            return;
        }
        self.lost.extend((from..before).filter(|&segment| !self.acked.contains(segment)));
        self.judged = before;
    }

    /// Segments that were sent again are lost again once one is there that was sent a quarter of a round trip later.
    fn judge_again(&mut self, answer: &Answer, smoothed: Picos) {
        while let Some(&(segment, sent)) = self.again.front() {
            if !self.acked.contains(segment) {
                // `again` is in order of time: nothing behind this one can be judged by this answer either.
                if answer.sent <= sent + Picos(smoothed.0 / 4) {
                    return;
                }
                self.lost.insert(segment);
            }
            self.again.pop_front();
        }
    }

    pub(super) fn on_timeout(&mut self, sent: u32) {
        self.lost = (self.acked.missing()..sent).filter(|&segment| !self.acked.contains(segment)).collect();
        self.again.clear();
        // No reduction, but `recover`: losses of what was sent before the timeout begin no recovery.
        (self.reduction, self.recover, self.judged) = (None, sent, sent);
    }

    pub(super) fn resume(&mut self) {
        self.lost.clear();
        // The timeout had judged all that was sent; answers to come judge it once more.
        self.judged = self.acked.missing();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(sent: u32, now: u64) -> Progress {
        Progress { segments: 1000, sent, now: Picos(now), smoothed: Picos(100) }
    }
    fn answer(expected: u32, segment: u32, sent: u64) -> Answer {
        Answer { expected, segment: Some(segment), marked: false, sent: Picos(sent) }
    }

    #[test]
    fn a_segment_is_lost_once_three_after_it_are_there() {
        let mut board = Scoreboard::default();
        // Ten are sent, 2 and 5 are lost.
        for (expected, segment) in [(1, 0), (2, 1), (2, 3), (2, 4)] {
            assert_eq!(board.note(&answer(expected, segment, 0), at(10, 100)).lost_of, None);
        }
        assert_eq!(board.in_flight(10), 6);
        let noted = board.note(&answer(2, 6, 0), at(10, 100));
        // Of ten, four were there: with the two that are lost six were in flight.
        assert_eq!((noted.lost_of, noted.recovering), (Some(6), true));
        board.release(&noted, 3, 10);
        assert_eq!(board.take(3, at(10, 100)), Some(2));
        assert_eq!(board.take(3, at(10, 100)), None, "by PRR the second goes later");
        // 5 is lost once 6, 7 and 8 are there; that is no second event.
        let noted = [(2, 7), (2, 8)]
            .map(|(expected, segment)| board.note(&answer(expected, segment, 0), at(10, 110)));
        assert!(noted.iter().all(|noted| noted.lost_of.is_none() && noted.recovering));
        assert!(board.lost.contains(&5));
        board.release(&noted[1], 3, 10);
        assert_eq!(board.take(3, at(10, 110)), Some(5));
        // All that was sent before the recovery is there: it is over.
        let done = board.note(&answer(10, 5, 110), at(10, 210));
        assert_eq!((done.recovering, board.in_flight(10)), (false, 0));
    }

    #[test]
    fn what_was_sent_again_can_be_lost_again() {
        let mut board = Scoreboard::default();
        for segment in 1..=3 {
            let noted = board.note(&answer(0, segment, 0), at(8, 100));
            board.release(&noted, 4, 8);
        }
        assert_eq!(board.take(4, at(8, 100)), Some(0));
        // One that was sent a quarter of a round trip later says nothing yet, one after that does.
        board.note(&answer(0, 4, 125), at(9, 225));
        assert!(board.lost.is_empty());
        board.note(&answer(0, 5, 126), at(9, 226));
        assert_eq!(board.lost.iter().copied().collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn after_a_timeout_all_that_is_missing_goes_again_and_losses_are_no_news() {
        let mut board = Scoreboard::default();
        board.note(&answer(0, 3, 0), at(8, 100));
        board.on_timeout(8);
        assert_eq!(board.in_flight(8), 0);
        assert_eq!(board.take(1, at(8, 500)), Some(0));
        assert_eq!(board.take(1, at(8, 500)), None);
        assert_eq!(board.note(&answer(1, 0, 500), at(8, 600)).lost_of, None);
        let again: Vec<u32> = std::iter::from_fn(|| board.take(100, at(8, 600))).take(6).collect();
        assert_eq!(again, [1, 2, 4, 5, 6, 7]);
    }
}
