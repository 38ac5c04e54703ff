//! The sending end of a flow: which segment goes next, what is lost, when to give up waiting.

use crate::control::{Acked, Control};
use crate::segments::Segments;
use crate::tagging::{Standing, Tagging};
use crate::time::Picos;
use crate::transport::{Recovery, Sending, Timeouts};
use crate::watch::Watch;

/// Payload of a full segment.
pub const SEGMENT_BYTES: u32 = 1460;
/// Of TCP and IP, on every packet; an acknowledgement is nothing else.
pub const HEADER_BYTES: u32 = 40;
/// Duplicate acknowledgements that say a segment is lost (RFC 5681).
const DUPLICATES: u32 = 3;
/// A timeout grows to at most so many times the first.
const MOST_BACKOFF: u32 = 64;

/// How lost segments are found and sent again.
enum Repair {
    /// NewReno (RFC 6582): three duplicates, then one segment a round trip; after a timeout all anew.
    NewReno { duplicates: u32, recovering: bool, recover: u32 },
    /// Each segment is acknowledged by itself; what is not when the timer runs out is sent again.
    /// With a watch, also once segments sent later are acknowledged.
    Selective { acked: Segments, in_flight: u32, again: u32, watch: Option<Watch> },
}

/// What an acknowledgement says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    /// All segments before this one are there.
    pub(crate) expected: u32,
    /// The segment that it answers; none if it answers a probe.
    pub(crate) segment: Option<u32>,
    pub(crate) marked: bool,
    /// When that segment was sent.
    pub(crate) sent: Picos,
}

/// The sending end.
pub(crate) struct Sender {
    pub(crate) control: Box<dyn Control>,
    pub(crate) tagging: Tagging,
    repair: Repair,
    timeouts: Timeouts,
    size: u64,
    pub(crate) segments: u32,
    /// The first segment that is not acknowledged.
    pub(crate) unacked: u32,
    /// The next to send for the first time, or after a timeout of NewReno anew.
    next: u32,
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

/// Segments of a flow of so many bytes; an empty flow is one byte.
pub(crate) fn segments_of(bytes: u64) -> u32 {
    u32::try_from(bytes.max(1).div_ceil(u64::from(SEGMENT_BYTES))).unwrap_or(u32::MAX)
}

impl Sender {
    pub(crate) fn new(sending: Sending, size: u64) -> Sender {
        let repair = match sending.recovery {
            Recovery::NewReno => Repair::NewReno { duplicates: 0, recovering: false, recover: 0 },
            Recovery::Selective | Recovery::Timed => {
                let watch = (sending.recovery == Recovery::Timed).then(Watch::default);
                Repair::Selective { acked: Segments::default(), in_flight: 0, again: 0, watch }
            }
        };
        Sender {
            control: sending.control,
            tagging: sending.tagging,
            repair,
            timeouts: sending.timeouts,
            size,
            segments: segments_of(size),
            unacked: 0,
            next: 0,
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

    /// All is acknowledged.
    #[inline]
    pub(crate) fn is_done(&self) -> bool {
        self.unacked >= self.segments
    }

    /// Segments that are on their way, as far as the sender knows.
    pub(crate) fn in_flight(&self) -> u32 {
        match &self.repair {
            Repair::NewReno { .. } => self.next.saturating_sub(self.unacked),
            Repair::Selective { in_flight, .. } => *in_flight,
        }
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

    /// The next segment that the window lets go; it counts as sent.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<u32> {
        let window = self.control.allowance().window;
        let window = (window as u32).max(u32::from(window > 0.0));
        let segment = match &mut self.repair {
            Repair::NewReno { duplicates, recovering, .. } => {
                // In recovery each duplicate says that a segment has left the network.
                let inflated = window.saturating_add(if *recovering { *duplicates } else { 0 });
                if self.next >= self.segments || self.next - self.unacked >= inflated {
                    return None;
                }
                self.next += 1;
                self.next - 1
            }
            Repair::Selective { acked, in_flight, again, watch } => {
                if *in_flight >= window {
                    return None;
                }
                if let Some(lost) = watch.as_mut().and_then(|watch| watch.next_lost(acked)) {
                    *in_flight += 1;
                    self.note_sent(lost);
                    return Some(lost);
                }
                *again = (*again).max(acked.missing());
                while *again < self.sent && acked.contains(*again) {
                    *again += 1;
                }
                if *again >= self.segments {
                    return None;
                }
                *in_flight += 1;
                *again += 1;
                *again - 1
            }
        };
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
        self.explain_timeouts(answer);
        let (newly, lost) = self.note(answer);
        if newly > 0 || self.unacked > before {
            self.backoff = 1;
            self.timeouts_in_row = 0;
            self.timer = if self.is_done() { Picos::MAX } else { now + self.timeout() };
        }
        if newly > 0 {
            let round_over = self.unacked >= self.round_end;
            if round_over {
                self.round_end = self.sent;
            }
            self.control.on_ack(&Acked {
                now,
                segments: newly,
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
        if let Some(segment) = lost {
            self.note_sent(segment);
        }
        self.find_overtaken(answer, now);
        lost
    }

    /// How many segments are acknowledged for the first time, as far as the window may count them, and the segment that
    /// has to be sent again.
    #[inline]
    fn note(&mut self, answer: &Answer) -> (u32, Option<u32>) {
        match &mut self.repair {
            Repair::Selective { acked, in_flight, .. } => {
                let newly = acked.insert_before(answer.expected)
                    + u32::from(answer.segment.is_some_and(|segment| acked.insert(segment)));
                *in_flight = in_flight.saturating_sub(newly);
                self.unacked = acked.missing();
                (newly, None)
            }
            Repair::NewReno { duplicates, recovering, recover } => {
                if answer.expected > self.unacked {
                    let newly = answer.expected - self.unacked;
                    self.unacked = answer.expected;
                    self.next = self.next.max(self.unacked);
                    if !*recovering {
                        *duplicates = 0;
                        return (newly, None);
                    }
                    if answer.expected >= *recover {
                        (*recovering, *duplicates) = (false, 0);
                        return (newly, None);
                    }
                    // A partial acknowledgement: the next hole is lost too. The window deflates by what it covers.
                    *duplicates = (*duplicates + 1).saturating_sub(newly);
                    return (0, Some(self.unacked));
                }
                // The answer to a header alone is no duplicate.
                if answer.expected < self.unacked || self.next == self.unacked || answer.segment.is_none() {
                    return (0, None);
                }
                *duplicates += 1;
                if *recovering || *duplicates != DUPLICATES || self.unacked < *recover {
                    return (0, None);
                }
                (*recovering, *recover) = (true, self.sent);
                self.control.on_loss();
                (0, Some(self.unacked))
            }
        }
    }

    /// Segments that others overtook count as lost, and are to be sent again.
    #[inline]
    fn find_overtaken(&mut self, answer: &Answer, now: Picos) {
        let Repair::Selective { acked, in_flight, watch: Some(watch), .. } = &mut self.repair else { return };
        let lost = watch.on_answer(acked, answer.sent, now, self.sent, self.smoothed);
        if lost > 0 {
            *in_flight = in_flight.saturating_sub(lost);
            self.control.on_loss();
        }
    }

    /// RFC 6298, with all samples.
    fn measure(&mut self, rtt: Picos) {
        if self.smoothed == Picos::ZERO {
            (self.smoothed, self.variation) = (rtt, Picos(rtt.0 / 2));
            return;
        }
        let error = rtt.0.abs_diff(self.smoothed.0);
        self.variation = Picos((3 * self.variation.0 + error) / 4);
        self.smoothed = Picos((7 * self.smoothed.0 + rtt.0) / 8);
    }

    /// The retransmission timeout now.
    pub(crate) fn timeout(&self) -> Picos {
        let base = match self.timeouts {
            Timeouts::Fixed(span) => return span,
            Timeouts::AtLeast(least) if self.smoothed == Picos::ZERO => least,
            Timeouts::AtLeast(least) => (self.smoothed + Picos(4 * self.variation.0)).max(least),
        };
        Picos(base.0 * u64::from(self.backoff))
    }

    /// The first answer after timeouts: if it is to a segment that was sent before them, that was late and not lost, as
    /// where a class starves (Eifel, RFC 3522), and what is on its way is not sent again.
    fn explain_timeouts(&mut self, answer: &Answer) {
        let Some(since) = self.unexplained.take() else { return };
        // Where timeouts are fixed ports drop by rank, the worst of a flow first: one answer says nothing of the others.
        if answer.sent >= since || matches!(self.timeouts, Timeouts::Fixed(_)) {
            return;
        }
        self.control.on_spurious_timeout();
        match &mut self.repair {
            Repair::NewReno { .. } => self.next = self.sent,
            Repair::Selective { acked, in_flight, again, .. } => {
                *again = self.sent;
                *in_flight =
                    (acked.missing()..self.sent).filter(|&segment| !acked.contains(segment)).count() as u32;
            }
        }
    }

    /// The timer ran out.
    pub(crate) fn on_timeout(&mut self, now: Picos) {
        self.unexplained.get_or_insert(now);
        self.all_timeouts += 1;
        self.timeouts_in_row += 1;
        self.backoff = (self.backoff * 2).min(MOST_BACKOFF);
        self.control.on_timeout();
        self.round_end = self.sent;
        match &mut self.repair {
            Repair::NewReno { duplicates, recovering, recover } => {
                // Duplicates of what was sent before are no sign of another loss (RFC 6582, section 3.2, step 4).
                (*duplicates, *recovering, *recover) = (0, false, self.sent);
                self.next = self.unacked;
            }
            Repair::Selective { acked, in_flight, again, watch } => {
                (*in_flight, *again) = (0, acked.missing());
                // All that is missing is sent again from there.
                if let Some(watch) = watch {
                    *watch = Watch::default();
                }
            }
        }
    }
}
