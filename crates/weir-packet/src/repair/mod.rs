//! What of a flow goes again, and when: how a sender learns of losses.
//!
//! [`NewReno`] knows what is acknowledged in a row and counts duplicates. [`Scoreboard`] knows every segment that is there
//! (selective acknowledgements). [`Each`] is for networks in which packets overtake each other, where an order says
//! nothing. docs/packets.md says which RFC each follows, and what was chosen.

mod each;
mod newreno;
mod reduction;
mod scoreboard;

use crate::packet::Answer;
use crate::setup::Recovery;
use crate::time::Picos;
use each::Each;
use newreno::NewReno;
use scoreboard::Scoreboard;

/// Duplicate acknowledgements, or segments acknowledged above it, that say that a segment is lost (RFC 5681, 6675).
const DUPLICATES: u32 = 3;

/// How far a flow is, as a repair has to know it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// Segments of the flow.
    pub(crate) segments: u32,
    /// One after the last that was ever sent.
    pub(crate) sent: u32,
    pub(crate) now: Picos,
    /// The smoothed round trip, or zero.
    pub(crate) smoothed: Picos,
}

/// What an acknowledgement changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Noted {
    /// Segments acknowledged for the first time.
    pub(crate) newly: u32,
    /// Losses are being repaired: the window does not grow.
    pub(crate) recovering: bool,
    /// Losses began to show, with so many segments in flight: the window is to shrink, if it has not for this flight.
    pub(crate) lost_of: Option<u32>,
    /// To be sent again at once, whatever the window.
    pub(crate) again: Option<u32>,
    /// The timer goes on as it is, although something was acknowledged.
    pub(crate) keeps_timer: bool,
}

/// How a sender finds what is lost.
pub(crate) enum Repair {
    NewReno(NewReno),
    Scoreboard(Scoreboard),
    Each(Each),
}

impl Repair {
    pub(crate) fn new(recovery: Recovery) -> Repair {
        match recovery {
            Recovery::NewReno => Repair::NewReno(NewReno::default()),
            Recovery::Sack => Repair::Scoreboard(Scoreboard::default()),
            Recovery::Selective => Repair::Each(Each::new(false)),
            Recovery::Timed => Repair::Each(Each::new(true)),
        }
    }

    /// The first segment that is not acknowledged.
    #[inline]
    pub(crate) fn unacked(&self) -> u32 {
        match self {
            Repair::NewReno(newreno) => newreno.unacked(),
            Repair::Scoreboard(scoreboard) => scoreboard.unacked(),
            Repair::Each(each) => each.unacked(),
        }
    }

    /// Segments that are on their way, as far as the sender knows.
    #[inline]
    pub(crate) fn in_flight(&self, sent: u32) -> u32 {
        match self {
            Repair::NewReno(newreno) => newreno.in_flight(),
            Repair::Scoreboard(scoreboard) => scoreboard.in_flight(sent),
            Repair::Each(each) => each.in_flight(),
        }
    }

    /// Segments that went and are not known to have arrived, lost ones too.
    pub(crate) fn outstanding(&self, sent: u32) -> u32 {
        match self {
            Repair::Scoreboard(scoreboard) => scoreboard.outstanding(sent),
            Repair::NewReno(_) | Repair::Each(_) => self.in_flight(sent),
        }
    }

    /// The next segment to go, if a window of so many segments lets one.
    #[inline]
    pub(crate) fn take(&mut self, window: u32, at: Progress) -> Option<u32> {
        match self {
            Repair::NewReno(newreno) => newreno.take(window, at),
            Repair::Scoreboard(scoreboard) => scoreboard.take(window, at),
            Repair::Each(each) => each.take(window, at),
        }
    }

    /// Takes an acknowledgement in.
    #[inline]
    pub(crate) fn note(&mut self, answer: &Answer, at: Progress) -> Noted {
        match self {
            Repair::NewReno(newreno) => newreno.note(answer, at),
            Repair::Scoreboard(scoreboard) => scoreboard.note(answer, at),
            Repair::Each(each) => each.note(answer, at),
        }
    }

    /// After [`Repair::note`], with the window as it is now: how much the acknowledgement lets go.
    #[inline]
    pub(crate) fn release(&mut self, noted: &Noted, window: u32, sent: u32) {
        if let Repair::Scoreboard(scoreboard) = self {
            scoreboard.release(noted, window, sent);
        }
    }

    /// Nothing came back: all that is not acknowledged is to go again.
    pub(crate) fn on_timeout(&mut self, sent: u32) {
        match self {
            Repair::NewReno(newreno) => newreno.on_timeout(sent),
            Repair::Scoreboard(scoreboard) => scoreboard.on_timeout(sent),
            Repair::Each(each) => each.on_timeout(),
        }
    }

    /// The timeouts had no cause: what is on its way is not sent again.
    pub(crate) fn resume(&mut self, sent: u32) {
        match self {
            Repair::NewReno(newreno) => newreno.resume(sent),
            Repair::Scoreboard(scoreboard) => scoreboard.resume(),
            Repair::Each(each) => each.resume(sent),
        }
    }
}
