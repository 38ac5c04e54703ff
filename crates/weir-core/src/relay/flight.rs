//! What may be under way to one neighbour.
//!
//! # Problem
//! Sockets take megabytes. On a slow link these wait for a long time, in the kernel and in the link's own queue, first come
//! first served: a message of a better rank that comes meanwhile cannot overtake them.
//!
//! # Approach
//! A message goes only while what is under way is no more than what the link carries in two round trips of the empty path
//! and a little longer. How fast the link is, is what was acknowledged while it was full. All parallel connections to the
//! neighbour count together.
//!
//! Two round trips, as BBR has it (Cardwell et al., ACM Queue 2016): a limit that is too low makes a link look slow, and a
//! slow link has a low limit. With one to spare the rate can double in each round trip, and a round trip that doubles,
//! which the kernel may not say for minutes as it tells the shortest one, makes the link no slower.
//!
//! # Terminology
//! * under way: bytes of messages that left the queue, and that the neighbour's kernel has not acknowledged.
//! * look: the driver says what is under way.
//! * held: more is under way than may be; nothing goes until the next look.
//! * starved: next to nothing is under way though the link was looked at or held within 10 ms: the relay woke too late, or the
//!   link is faster than the limit lets it be.
//!
//! # Pseudo-code
//! ```text
//! limit = rate * (2 * round trip of the empty path + 20 ms), one segment at least; 1 MiB while the rate is not known
//! look:
//!     every 50 ms, or a round trip if that is longer: sample = acknowledged since / time
//!         rate = sample if that is more; else, if the link was not starved, half way there
//!     if more is under way than the limit: held until the excess has drained at that rate, 0.5 to 10 ms
//! a message goes:
//!     if the link is not held; before, a look if what is under way may be above the limit, or 10 ms after the last
//! ```
//!
//! # Properties
//! * A message of the best rank waits for the limit and one other message at most.
//! * While messages wait, a link is starved only by a look that comes 20 ms late.
//! * The rate of a link that became faster doubles in each round trip, until the link is full.
//! * A link whose round trip became no more than twice as long stays full.

use weir_model::{Span, Time};

/// What a link carries in this time may be under way beyond two round trips.
const AHEAD: Span = Span::from_millis(20);
/// So many bytes may be in any case: a segment as the kernel hands it down in one piece.
const LEAST_BYTES: f64 = 65_536.0;
/// With less than this under way a link is as good as empty: some word without payload may be unacknowledged.
const EMPTY_BYTES: u64 = 16_384;
/// So many may be while nothing is known.
const FIRST_BYTES: u64 = 1 << 20;
/// How long bytes are counted for one sample of the rate, if the round trip is not longer.
const SAMPLE: Span = Span::from_millis(50);
/// Share of the way down to a lower sample. One that is higher counts at once: a limit that is too low shows in no sample.
const FALL: f64 = 0.5;
/// A held link is looked at again no sooner,
const SHORTEST_HOLD: Span = Span::from_nanos(500_000);
/// and no later than this; one that is not held as often.
const LONGEST_HOLD: Span = Span::from_millis(10);

/// What the driver sees of the connections to a neighbour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnderWay {
    /// Bytes in their sockets that the other side has not acknowledged.
    pub unacknowledged: u64,
    /// Bytes of messages that no socket has taken yet.
    pub unwritten: u64,
    /// The round trip while no queue stands on the path; zero if it is not known.
    pub round_trip: Span,
}

/// What is under way to one neighbour.
#[derive(Clone, Debug, Default)]
pub(super) struct Flight {
    /// Bytes per second; 0 if that is not known yet.
    rate: f64,
    /// The round trip of the empty path as the kernel has it.
    round_trip: Span,
    /// Bytes that went into sockets, ever.
    written: u64,
    /// What was under way at the last look, and what of messages went since.
    under_way: u64,
    looked: Time,
    /// When the sample at hand began, and what had been acknowledged then.
    began: Time,
    acknowledged: u64,
    /// The link was starved since.
    starved: bool,
    held_until: Option<Time>,
}

impl Flight {
    /// Bytes went into a socket.
    pub(super) fn note_written(&mut self, bytes: u64) {
        self.written = self.written.saturating_add(bytes);
    }

    /// A message left the queue.
    pub(super) fn note_gone(&mut self, bytes: u64) {
        self.under_way = self.under_way.saturating_add(bytes);
    }

    /// Bytes that may be under way when a message goes.
    pub(super) fn limit(&self) -> u64 {
        if self.rate <= 0.0 {
            return FIRST_BYTES;
        }
        (self.rate * (self.round_trip + self.round_trip + AHEAD).as_secs()).max(LEAST_BYTES) as u64
    }

    /// Whether nothing may go before the next look.
    pub(super) fn is_held(&self) -> bool {
        self.held_until.is_some()
    }

    /// When a held link is to be looked at.
    pub(super) fn held_until(&self) -> Option<Time> {
        self.held_until
    }

    /// It is held no longer than it was to be.
    pub(super) fn release(&mut self, now: Time) {
        self.held_until = self.held_until.filter(|&until| until > now);
    }

    /// Whether it is time for a look before a message goes.
    pub(super) fn wants_look(&self, now: Time) -> bool {
        match self.held_until {
            Some(until) => until <= now,
            None => self.under_way > self.limit() || self.looked + LONGEST_HOLD <= now,
        }
    }

    /// What is under way now.
    pub(super) fn look(&mut self, now: Time, seen: UnderWay) {
        let was_idle = self.held_until.take().is_none() && self.looked + LONGEST_HOLD <= now;
        (self.looked, self.round_trip) = (now, seen.round_trip);
        // What messages added by `note_gone` since the last look is in these numbers now.
        self.under_way = seen.unacknowledged.saturating_add(seen.unwritten);
        self.sample(now, self.written.saturating_sub(seen.unacknowledged), was_idle);
        let limit = self.limit();
        if self.under_way > limit {
            let excess = self.under_way.saturating_sub(limit);
            // `max`: while the rate is not known the quotient would be infinite; the clamp bounds the wait either way.
            let drained = Span::from_secs_ceil(excess as f64 / self.rate.max(1.0));
            self.held_until = Some(now + drained.clamp(SHORTEST_HOLD, LONGEST_HOLD));
        }
    }

    /// Measures the rate from what was acknowledged in all.
    fn sample(&mut self, now: Time, acknowledged: u64, was_idle: bool) {
        let is_empty = self.under_way < EMPTY_BYTES;
        let interval = now.since(self.began);
        if is_empty && was_idle {
            // There was nothing to send: what the link carried says nothing of it.
            return self.begin_sample(now, acknowledged);
        }
        self.starved |= is_empty;
        if interval < SAMPLE.max(self.round_trip) {
            return;
        }
        let rate = acknowledged.saturating_sub(self.acknowledged) as f64 / interval.as_secs();
        if rate > self.rate {
            self.rate = rate;
        } else if !self.starved {
            self.rate += (rate - self.rate) * FALL;
        }
        self.begin_sample(now, acknowledged);
    }

    fn begin_sample(&mut self, now: Time, acknowledged: u64) {
        (self.began, self.acknowledged, self.starved) = (now, acknowledged, false);
    }
}
