//! The sending end of a flow: which segment goes next, what is lost, when to give up waiting.

use crate::control::{Acked, Control, Loss};
use crate::packet::{Answer, SEGMENT_BYTES, segments_of};
use crate::repair::{Progress, Repair};
use crate::setup::Timeouts;
use crate::tagging::{Standing, Tagging};
use crate::time::Picos;
use crate::transport::Sending;

/// A timeout grows to at most so many times the first.
const MOST_BACKOFF: u32 = 64;

pub(crate) struct Sender {
    pub(crate) control: Box<dyn Control>,
    pub(crate) tagging: Tagging,
    repair: Repair,
    timeouts: Timeouts,
    size: u64,
    pub(crate) segments: u32,
    /// The first segment that is not acknowledged.
    pub(crate) unacked: u32,
    /// One after the last that was ever sent.
    sent: u32,
    /// Where the round ends that is being counted.
    round_end: u32,
    smoothed: Picos,
    variation: Picos,
    backoff: u32,
    pub(crate) timeouts_in_row: u32,
    /// When the first of timeouts in a row was that nothing has explained yet.
    unexplained: Option<Picos>,
    /// When the retransmission timer runs out.
    pub(crate) timer: Picos,
    /// The first event that is to come for the timer, and how many are to come.
    pub(crate) timer_event: Picos,
    pub(crate) timer_events: u32,
    /// When the last segment was sent, if any was.
    pub(crate) last_start: Option<Picos>,
    /// The first event that is to come for the pace, and how many are to come.
    pub(crate) pace_event: Picos,
    pub(crate) pace_events: u32,
    /// When its plan changes next, as far as an event is to come for that.
    pub(crate) change_event: Picos,
    pub(crate) retransmitted: u32,
    pub(crate) all_timeouts: u32,
}

impl Sender {
    pub(crate) fn new(sending: Sending, size: u64) -> Sender {
        Sender {
            control: sending.control,
            tagging: sending.tagging,
            repair: Repair::new(sending.recovery),
            timeouts: sending.timeouts,
            size,
            segments: segments_of(size),
            unacked: 0,
            sent: 0,
            round_end: 0,
            smoothed: Picos::ZERO,
            variation: Picos::ZERO,
            backoff: 1,
            timeouts_in_row: 0,
            unexplained: None,
            timer: Picos::MAX,
            timer_event: Picos::MAX,
            timer_events: 0,
            last_start: None,
            pace_event: Picos::MAX,
            pace_events: 0,
            change_event: Picos::ZERO,
            retransmitted: 0,
            all_timeouts: 0,
        }
    }

    /// Payload of a segment.
    #[inline]
    pub(crate) fn payload(&self, segment: u32) -> u32 {
        if segment + 1 < self.segments {
            return SEGMENT_BYTES;
        }
        (self.size.max(1) - u64::from(segment) * u64::from(SEGMENT_BYTES)) as u32
    }

    /// Whether all segments are acknowledged.
    #[inline]
    pub(crate) fn is_done(&self) -> bool {
        self.unacked >= self.segments
    }

    /// Segments that are on their way, as far as the sender knows.
    #[inline]
    pub(crate) fn in_flight(&self) -> u32 {
        self.repair.in_flight(self.sent)
    }

    #[inline]
    fn progress(&self, now: Picos) -> Progress {
        Progress { segments: self.segments, sent: self.sent, now, smoothed: self.smoothed }
    }

    /// Segments that are neither acknowledged nor on their way.
    pub(crate) fn unsent(&self) -> u32 {
        self.segments.saturating_sub(self.unacked + self.in_flight())
    }

    /// The smoothed round trip, once there is one.
    pub(crate) fn round_trip(&self) -> Option<Picos> {
        (self.smoothed > Picos::ZERO).then_some(self.smoothed)
    }

    /// Bytes that were sent at least once.
    pub(crate) fn sent_bytes(&self) -> u64 {
        (u64::from(self.sent) * u64::from(SEGMENT_BYTES)).min(self.size)
    }

    /// The window now, in whole segments.
    #[inline]
    fn window(&self) -> u32 {
        let window = self.control.allowance().window;
        // Only a window of zero stops a flow: less than one segment counts as one.
        (window as u32).max(u32::from(window > 0.0))
    }

    /// The next segment that the window lets go; it counts as sent.
    #[inline]
    pub(crate) fn take(&mut self, now: Picos) -> Option<u32> {
        let segment = self.repair.take(self.window(), self.progress(now))?;
        self.note_sent(segment);
        Some(segment)
    }

    fn note_sent(&mut self, segment: u32) {
        if segment < self.sent {
            self.retransmitted += 1;
        } else {
            self.sent = segment + 1;
        }
    }

    /// Where the flow stands when it sends a segment.
    #[inline]
    pub(crate) fn standing(&self, segment: u32, now: Picos) -> Standing {
        let acked = u64::from(self.unacked) * u64::from(SEGMENT_BYTES);
        Standing {
            now,
            offset: u64::from(segment) * u64::from(SEGMENT_BYTES),
            left: self.size.saturating_sub(acked),
            segments_left: self.segments - self.unacked,
            given_up: self.control.has_given_up(),
        }
    }

    /// Takes an acknowledgement in. The segment to be sent again at once, if it shows a loss.
    #[inline]
    pub(crate) fn on_answer(&mut self, answer: &Answer, now: Picos) -> Option<u32> {
        let rtt = now.since(answer.sent);
        self.measure(rtt);
        let before = self.unacked;
        // Before the repair takes the answer in: what the timeout declared lost wrongly is no longer lost then.
        if self.unexplained.is_some() && answer.expected > before {
            self.explain_timeouts(answer);
        }
        let noted = self.repair.note(answer, self.progress(now));
        self.unacked = self.repair.unacked();
        // RFC 6298, rules 5.2 and 5.3: the timer stops when all that was sent is acknowledged, and starts anew whenever new data is.
        if (noted.newly > 0 || self.unacked > before) && !noted.keeps_timer {
            self.backoff = 1;
            self.timeouts_in_row = 0;
            // Of all that was sent, not of the flow: one that goes slowly has nothing on its way most of the time.
            self.timer = if self.unacked >= self.sent { Picos::MAX } else { now + self.timeout() };
        }
        if noted.newly > 0 {
            let round_over = self.unacked >= self.round_end;
            if round_over {
                self.round_end = self.sent;
            }
            self.control.on_ack(&Acked {
                now,
                segments: noted.newly,
                recovering: noted.recovering,
                marked: answer.marked,
                unacked: self.unacked,
                sent: self.sent,
                in_flight: self.in_flight(),
                left: self.segments - self.unacked,
                rtt,
                smoothed_rtt: self.smoothed,
                round_over,
            });
        }
        if let Some(flight) = noted.lost_of {
            self.control.on_loss(&Loss { flight, unacked: self.unacked, sent: self.sent });
        }
        if noted.recovering {
            let window = self.window();
            self.repair.release(&noted, window, self.sent);
        }
        if let Some(segment) = noted.again {
            self.note_sent(segment);
        }
        noted.again
    }

    /// RFC 6298, with all samples.
    fn measure(&mut self, rtt: Picos) {
        if self.smoothed == Picos::ZERO {
            (self.smoothed, self.variation) = (rtt, Picos(rtt.0 / 2));
            return;
        }
        let error = rtt.0.abs_diff(self.smoothed.0);
        // Rule 2.3, with beta = 1/4 and alpha = 1/8: the variation first, as it needs the smoothed value of before this sample.
        self.variation = Picos((3 * self.variation.0 + error) / 4);
        self.smoothed = Picos((7 * self.smoothed.0 + rtt.0) / 8);
    }

    /// The retransmission timeout now.
    pub(crate) fn timeout(&self) -> Picos {
        let base = match self.timeouts {
            Timeouts::Fixed(span) => return span,
            // Before the first sample. RFC 6298, rule 2.1, has a second here: thousands of round
            // trips of a datacenter.
            Timeouts::AtLeast(least) if self.smoothed == Picos::ZERO => least,
            // Rule 2.3 with K = 4, without the clock's granularity: simulated clocks are exact.
            Timeouts::AtLeast(least) => (self.smoothed + Picos(4 * self.variation.0)).max(least),
        };
        Picos(base.0 * u64::from(self.backoff))
    }

    /// The first answer after timeouts that acknowledges anything: if it is to a segment that was sent before them, that was
    /// late and not lost, as where a class starves (Eifel, RFC 3522), and what is on its way is not sent again.
    #[cold]
    fn explain_timeouts(&mut self, answer: &Answer) {
        let Some(since) = self.unexplained.take() else { return };
        // Where timeouts are fixed ports drop by rank, the worst of a flow first: one answer says nothing of the others.
        if answer.sent >= since || matches!(self.timeouts, Timeouts::Fixed(_)) {
            return;
        }
        self.control.on_spurious_timeout();
        self.repair.resume(self.sent);
    }

    /// The timer ran out.
    pub(crate) fn on_timeout(&mut self, now: Picos) {
        // Of several timeouts in a row the first counts: an answer to what was sent before it
        // explains all of them.
        self.unexplained.get_or_insert(now);
        self.all_timeouts += 1;
        self.timeouts_in_row += 1;
        self.backoff = (self.backoff * 2).min(MOST_BACKOFF);
        let lost =
            // Taken before the repair counts all of it as lost.
            Loss { flight: self.repair.outstanding(self.sent), unacked: self.unacked, sent: self.sent };
        self.control.on_timeout(&lost, self.timeouts_in_row == 1);
        self.round_end = self.sent;
        self.repair.on_timeout(self.sent);
    }
}
