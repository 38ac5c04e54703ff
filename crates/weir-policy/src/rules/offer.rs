//! What a flow does with the rates it is given: whether it takes them, and how much it can use where it does not.
//!
//! A receiver that reads slowly, or stops, leaves the rate of its flow unused, and so does a path that is full. The flow goes no
//! faster meanwhile than it has shown it can. It is offered a little more than it takes, and twice as much again and again once it
//! takes that. What it leaves is for others ([`super::gifts`]).

use super::CATCH_UP;
use weir_model::{Rate, Span, Time};

/// A flow is judged by what it did while it earned at least this: chunks are too large to judge by one or two,
const JUDGED_BYTES: f64 = 49_152.0;
/// or after so long.
const JUDGED_AFTER_S: f64 = 0.5;
/// A flow that was held up and sent less than this share of what it earned cannot use more,
const TAKEN: f64 = 0.7;
/// and is offered this much more than it took.
const HEADROOM: f64 = 1.25;
/// The least that a flow is offered, as a share of the uplink: it must be able to show that it can use more.
const LEAST_OFFER: f64 = 1.0 / 64.0;
/// A flow catches up as soon as it is so many bytes behind: less may be a chunk that is due.
const BEHIND_BYTES: f64 = 8_192.0;
/// No flow has to catch up more than it earns in this time.
const LONGEST_BEHIND_S: f64 = 0.25;
/// A limit that differs by less than this share from the one told is not told again.
const TOLD: f64 = 0.2;
/// Under plans, and in turns, a flow is limited if its receiver had no room for at least this share of the time: what the path holds up
/// is a disturbance that its coflow catches up with.
pub const LIMITED: f64 = 0.5;

/// What [`Offer::look`] judges a flow by, besides what it took.
#[derive(Clone, Copy, Debug)]
pub struct Judge {
    /// Bytes per second of the host's uplink.
    pub uplink: f64,
    /// Whether the path's ends are planned for, so that only its receiver can limit a flow.
    pub planned: bool,
}

/// What a flow was offered and took.
#[derive(Debug)]
pub struct Offer {
    rate: f64,
    since: Time,
    /// Since it was last judged: what it earned, took, and whether it was held up.
    judged: Time,
    earned: f64,
    taken: u64,
    held_up: bool,
    /// Its socket takes nothing, since then or before.
    blocked: bool,
    /// Then, what it was behind what it had earned, and bytes per second by which it is to catch up.
    behind: f64,
    catch_up: f64,
    /// It took so little that this is what it can use, in bytes per second, if its receiver is why.
    suspected: Option<f64>,
    /// When it was last looked at how long, in all, its receiver had no room; and how long that was.
    waited: Option<(Time, Span)>,
    /// Bytes per second that it can use, as far as it has shown, and as last told.
    usable: f64,
    told: f64,
}

impl Offer {
    /// A flow that was offered nothing yet and has no limit.
    pub fn new(now: Time) -> Offer {
        Offer {
            rate: 0.0,
            since: now,
            judged: now,
            earned: 0.0,
            taken: 0,
            held_up: false,
            blocked: false,
            behind: 0.0,
            catch_up: 0.0,
            suspected: None,
            waited: None,
            usable: f64::INFINITY,
            told: f64::INFINITY,
        }
    }

    /// Bytes per second that it can use, as far as it has shown.
    pub fn usable(&self) -> f64 {
        self.usable
    }

    /// It could not take what it was offered.
    pub fn hold_up(&mut self) {
        self.held_up = true;
    }

    /// Its socket takes nothing any more, or takes bytes again.
    pub fn set_blocked(&mut self, blocked: bool) {
        self.blocked = blocked;
        self.held_up |= blocked;
    }

    /// Bytes of it were sent.
    pub fn take(&mut self, bytes: u64) {
        self.taken = self.taken.saturating_add(bytes);
    }

    fn settle(&mut self, now: Time) {
        self.earned += self.rate * now.since(self.since).as_secs();
        self.since = now;
    }

    /// Judges by what happened since the last time, if that is enough to judge by.
    pub fn look(&mut self, now: Time, judge: Judge) {
        self.settle(now);
        let secs = now.since(self.judged).as_secs();
        if self.earned <= 0.0 {
            // It was paused: nothing can be said.
            return self.begin(now);
        }
        if self.earned < JUDGED_BYTES && secs < JUDGED_AFTER_S {
            return;
        }
        let taken = self.taken as f64;
        let most = self.earned / secs * LONGEST_BEHIND_S;
        self.behind = (self.behind + self.earned - taken).clamp(-BEHIND_BYTES, most);
        self.suspected = None;
        if self.held_up && taken < TAKEN * self.earned {
            let usable = (taken / secs * HEADROOM).max(judge.uplink * LEAST_OFFER);
            self.suspected = judge.planned.then_some(usable);
            if !judge.planned {
                self.limit(usable);
            }
        } else {
            // The limit may have gone: it is offered twice as much with each look until it takes
            // less again.
            self.usable *= 2.0;
        }
        // As much as the uplink has is no limit, and the coordinator is told so.
        if self.usable >= judge.uplink {
            self.usable = f64::INFINITY;
        }
        self.catch_up = if self.behind > BEHIND_BYTES { self.behind / secs } else { 0.0 };
        self.begin(now);
    }

    fn limit(&mut self, usable: f64) {
        // What it did not take, it could not use: there is nothing to catch up with.
        (self.usable, self.behind) = (usable, 0.0);
    }

    /// Whether it took so little that its receiver is to be asked why ([`Offer::note_waited`]).
    pub fn is_suspected(&self) -> bool {
        self.suspected.is_some()
    }

    /// Its receiver had no room for so long, in all. Limits it if that is why it took so little; says whether it did.
    pub fn note_waited(&mut self, now: Time, waited: Span) -> bool {
        let before = self.waited.replace((now, waited));
        let Some((usable, (at, before))) = self.suspected.take().zip(before) else { return false };
        // Both answers may be of one moment.
        let share = (waited.as_secs() - before.as_secs()) / now.since(at).as_secs().max(1e-9);
        if share >= LIMITED {
            self.limit(usable);
        }
        share >= LIMITED
    }

    fn begin(&mut self, now: Time) {
        // A socket that is full now holds the flow up in the next interval as well.
        (self.judged, self.earned, self.taken, self.held_up) = (now, 0.0, 0, self.blocked);
    }

    /// Takes a new rate; returns the one to go at, which is more while the flow has to catch up.
    pub fn take_rate(&mut self, now: Time, rate: Rate) -> Rate {
        self.settle(now);
        self.rate = rate.bytes_per_sec();
        Rate::from_bytes_per_sec(self.rate + self.catch_up.min(CATCH_UP * self.rate))
    }

    /// What it can use, if that is news: infinite where nothing limits it any more.
    pub fn take_news(&mut self) -> Option<f64> {
        let (low, high) = (self.usable.min(self.told), self.usable.max(self.told));
        // From or to no limit is always news: a share of infinity says nothing.
        let news = if high.is_infinite() { low.is_finite() } else { high - low > TOLD * high };
        news.then(|| {
            self.told = self.usable;
            self.usable
        })
    }

    /// The coordinator that was told what it can use does not know it any more.
    pub fn forget_told(&mut self) {
        self.told = f64::INFINITY;
    }
}
