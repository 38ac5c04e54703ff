//! What flows do with the rates they are given: whether they take them, and how much they can use where they do not.
//!
//! A receiver that reads slowly, or stops, leaves the rate of its flow unused, and so does a path that is full. What such
//! a flow can use is told to the coordinator, which gives the rest to others, whatever the policy; where senders decide,
//! they do so with their own uplink at once. The flow itself goes no faster meanwhile than it has shown it can. It is
//! offered a little more than it takes, and twice as much again and again once it takes that.

use super::flow::CATCH_UP;
use super::pacer::Pacing;
use super::state::Agent;
use crate::ids::FlowNumber;
use weir_model::{Rate, Span, Time};
use weir_proto::{limits, v1};

/// How often it is looked at which flows do not take what they are offered, and which fell behind.
pub(super) const LOOK_INTERVAL: Span = Span::from_nanos(50_000_000);
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
pub(super) const LIMITED: f64 = 0.5;

/// Facts by which [`Offer::look`] judges a flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judge {
    /// Bytes per second of the host's uplink.
    pub(super) uplink: f64,
    /// Whether the path's ends are planned for, so that only its receiver can limit a flow.
    pub(super) planned: bool,
}

/// What a flow was offered and took.
#[derive(Debug)]
pub(super) struct Offer {
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
    pub(super) fn new(now: Time) -> Offer {
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
    pub(super) fn usable(&self) -> f64 {
        self.usable
    }

    /// It could not take what it was offered.
    pub(super) fn hold_up(&mut self) {
        self.held_up = true;
    }

    /// Its socket takes nothing any more, or takes bytes again.
    pub(super) fn set_blocked(&mut self, blocked: bool) {
        self.blocked = blocked;
        self.held_up |= blocked;
    }

    /// Bytes of it were sent.
    pub(super) fn take(&mut self, bytes: u64) {
        self.taken = self.taken.saturating_add(bytes);
    }

    fn settle(&mut self, now: Time) {
        self.earned += self.rate * now.since(self.since).as_secs();
        self.since = now;
    }

    /// Judges by what happened since the last time, if that is enough to judge by.
    pub(super) fn look(&mut self, now: Time, judge: Judge) {
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

    /// Its receiver had no room for so long, in all. Limits it if that is why it took so little; says whether it did.
    fn note_waited(&mut self, now: Time, waited: Span) -> bool {
        let before = self.waited.replace((now, waited));
        let Some((usable, (at, before))) = self.suspected.take().zip(before) else { return false };
        let share = (waited.as_secs() - before.as_secs()) / now.since(at).as_secs().max(1e-9);
        if share >= LIMITED {
            self.limit(usable);
        }
        share >= LIMITED
    }

    fn begin(&mut self, now: Time) {
        (self.judged, self.earned, self.taken, self.held_up) = (now, 0.0, 0, self.blocked);
    }

    /// Takes a new rate; returns the one to go at, which is more while the flow has to catch up.
    pub(super) fn take_rate(&mut self, now: Time, rate: Rate) -> Rate {
        self.settle(now);
        self.rate = rate.bytes_per_sec();
        Rate::from_bytes_per_sec(self.rate + self.catch_up.min(CATCH_UP * self.rate))
    }

    /// What it can use, if that is news.
    pub(super) fn take_news(&mut self) -> Option<f64> {
        let (low, high) = (self.usable.min(self.told), self.usable.max(self.told));
        // From or to no limit is always news: a share of infinity says nothing.
        let news = if high.is_infinite() { low.is_finite() } else { high - low > TOLD * high };
        news.then(|| {
            self.told = self.usable;
            self.usable
        })
    }
}

impl Agent {
    /// What a flow is offered: by the sender's own rule where there is one, else under the plan.
    pub(super) fn offer(&mut self, flow: FlowNumber) -> Option<&mut Offer> {
        match &mut self.sender {
            Some(sender) => sender.offers.get_mut(&flow),
            None => self.offers.get_mut(&flow),
        }
    }

    /// Gives a planned flow its rate, or what it can use of it.
    pub(super) fn pace(&mut self, now: Time, flow: FlowNumber, planned: f64) {
        self.leave_turns(flow);
        // No plan is meant to ask more of the host than its link has.
        let planned = planned.min(self.planned_uplink);
        let offer = self.offers.entry(flow).or_insert_with(|| Offer::new(now));
        let rate = planned.min(offer.usable());
        offer.take_rate(now, Rate::from_bytes_per_sec(rate));
        self.pacer.set(now, flow, Pacing::Rated(Rate::from_bytes_per_sec(rate)));
    }

    /// Looks at what planned flows took, and tells the coordinator.
    pub(super) fn look_at_offers(&mut self, now: Time) {
        if self.sender.is_some() || now.since(self.last_look) < LOOK_INTERVAL {
            return;
        }
        self.last_look = now;
        let uplink = self.planned_uplink;
        if !uplink.is_finite() {
            return;
        }
        let (mut news, mut changed) = (Vec::new(), Vec::new());
        self.suspects.clear();
        self.offers.retain(|flow, _| self.flows.contains_key(flow));
        for (&flow, offer) in &mut self.offers {
            let before = offer.usable();
            offer.look(now, Judge { uplink, planned: true });
            self.suspects.extend(offer.suspected.map(|_| flow));
            news.extend(offer.take_news().map(|usable| (flow, usable)));
            if offer.usable() != before {
                changed.push(flow);
            }
        }
        changed.into_iter().for_each(|flow| self.pace_anew(now, flow));
        self.tell_limits(news);
    }

    /// The answer to [`Output::Suspect`](super::Output::Suspect): a flow's receiver had no room for so long, since the connection began.
    pub fn handle_waited(&mut self, now: Time, flow: FlowNumber, waited: Span) {
        self.note_turn_waited(now, flow, waited);
        let Some(offer) = self.offers.get_mut(&flow) else { return };
        if offer.note_waited(now, waited) {
            let news = offer.take_news().map(|usable| (flow, usable));
            self.pace_anew(now, flow);
            self.tell_limits(news.into_iter().collect());
        }
    }

    fn pace_anew(&mut self, now: Time, id: FlowNumber) {
        if let Some(flow) = self.flows.get(&id).filter(|flow| flow.planned) {
            let rate = flow.rate();
            self.pace(now, id, rate);
        }
    }

    /// After a restart the coordinator does not know which flows are limited by their reader: all limits count as untold.
    pub(super) fn forget_told_limits(&mut self) {
        let by_rule = self.sender.iter_mut().flat_map(|sender| sender.offers.values_mut());
        self.offers.values_mut().chain(by_rule).for_each(|offer| offer.told = f64::INFINITY);
    }

    /// When offers are looked at next: while flows have rates.
    pub(super) fn next_look(&self) -> Option<Time> {
        (self.sender.is_none() && !self.offers.is_empty()).then(|| self.last_look + LOOK_INTERVAL)
    }

    /// Tells what flows can use of their rates.
    pub(super) fn tell_limits(&mut self, news: Vec<(FlowNumber, f64)>) {
        let limit = |(flow, usable): (FlowNumber, f64)| v1::FlowLimit {
            flow: flow.0,
            // Below 0 says that the limit has ended.
            bytes_per_s: if usable.is_finite() { usable } else { -1.0 },
        };
        for news in news.chunks(limits::MAX_ENTRIES_PER_MESSAGE) {
            let flows = news.iter().copied().map(limit).collect();
            self.send(v1::agent_event::Kind::Limits(v1::FlowLimits { flows }));
        }
    }
}
