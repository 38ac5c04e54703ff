//! What moves between two plans: coflows by their drain, flows by their grant.
//!
//! Rates are constant from one plan to the next, and most go on over many plans. So nothing is touched
//! while time passes but the clock: every amount is a straight line from the moment its rate last
//! changed, and so are the sums per link.

use super::coflow::{FLOOR_BYTES, NONE};
use super::{CoflowTable, FlowRef, Slot};
use crate::{Form, Plan};
use weir_model::Span;

const NANOS_PER_SEC: f64 = 1e9;
/// The part of a coflow that is left, at least, of what its drain should have moved but was not reported.
const LEAST_PART: f64 = 1.0 / (1u64 << 40) as f64;
/// Less than this is nothing where a flow is given a rate of its own: rates in proportion to what is left would have a
/// flow come ever nearer to its end, plan by plan. At 1 Gbit/s it takes 8 picoseconds.
const DUST_BYTES: f64 = 1e-3;
/// An end that never comes.
const NEVER: u64 = u64::MAX;

/// Seconds between two readings of a table's clock.
#[inline]
pub(super) fn secs_between(since: u64, until: u64) -> f64 {
    (until - since) as f64 / NANOS_PER_SEC
}

/// The reading of the clock once work of so many seconds is done. Flows that should end together must not end
/// in two events because of rounding: between the two a policy might turn to another coflow, and what one flow
/// would have moved in a nanosecond would wait for as long as that takes.
pub(super) fn end_after(clock: u64, secs: f64) -> u64 {
    clock.saturating_add(Span::until_done(secs).nanos())
}

/// Bytes that shrink at a constant rate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Line {
    left: f64,
    per_sec: f64,
    since: u64,
}

impl Line {
    #[inline]
    pub(super) fn at(&self, clock: u64) -> f64 {
        self.left - self.per_sec * secs_between(self.since, clock)
    }

    /// Bytes by which it shrinks in a second.
    #[inline]
    pub(super) fn per_sec(&self) -> f64 {
        self.per_sec
    }

    #[inline]
    pub(super) fn change(&mut self, clock: u64, bytes: f64, per_sec: f64) {
        self.left = self.at(clock) + bytes;
        self.per_sec += per_sec;
        self.since = clock;
    }
}

impl Line {
    /// The sum of two lines, from the later of both times on.
    pub(super) fn plus(&self, other: &Line) -> Line {
        let since = self.since.max(other.since);
        Line { left: self.at(since) + other.at(since), per_sec: self.per_sec + other.per_sec, since }
    }

    /// Whether this is less than a part of another, at the time of the later of both.
    pub(super) fn is_less(&self, part: f64, other: &Line) -> bool {
        let clock = self.since.max(other.since);
        self.at(clock) < part * other.at(clock)
    }

    /// Without one that is part of it.
    pub(super) fn minus(&self, other: &Line) -> Line {
        let since = self.since.max(other.since);
        Line { left: self.at(since) - other.at(since), per_sec: self.per_sec - other.per_sec, since }
    }
}

/// A coflow that moves as a whole: after `secs` seconds from `since` nothing is left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drain {
    pub(super) since: u64,
    /// The coflow's scale then.
    pub(super) scale: f64,
    pub(super) secs: f64,
}

impl Drain {
    /// The part of it that is still left; a trace of it until its end is reported.
    #[inline]
    pub(super) fn part_left(&self, clock: u64) -> f64 {
        (1.0 - secs_between(self.since, clock) / self.secs).max(LEAST_PART)
    }

    /// What it is per second of what is left now.
    #[inline]
    pub(super) fn per_sec(&self, clock: u64) -> f64 {
        1.0 / (self.secs * self.part_left(clock))
    }
}

/// A flow with a grant.
#[derive(Clone, Copy, Debug)]
struct Granted {
    flow: FlowRef,
    bytes_per_sec: f64,
    line: Line,
    /// Whether the plan that is being adopted has a grant for it, too.
    stays: bool,
}

/// Everything that moves by drains and grants, and a clock.
#[derive(Clone, Debug, Default)]
pub(super) struct Moving {
    /// Nanoseconds the table has been advanced in all.
    pub(super) clock: u64,
    draining: Vec<(u64, Slot)>,
    /// Flows with a grant; places without one have no rate, and end never.
    granted: Vec<Granted>,
    /// Parallel to `granted`: when nothing is left.
    ends: Vec<u64>,
    free: Vec<u32>,
    /// Nothing ends before this.
    first_end: u64,
    /// Whether something ends then.
    exact: bool,
}

impl Moving {
    /// What a granted flow has left.
    #[inline]
    pub(super) fn left(&self, place: u32) -> f64 {
        self.granted[place as usize].line.at(self.clock)
    }

    /// Whether nothing is left of a granted flow but what moves in a nanosecond.
    pub(super) fn is_due(&self, place: u32) -> bool {
        let left = self.left(place);
        // Times of ends are rounded to nanoseconds, so at its end a flow may have left what moves in one.
        left <= DUST_BYTES || left * NANOS_PER_SEC <= self.granted[place as usize].bytes_per_sec
    }

    /// What is left of a granted flow, as a line over time.
    pub(super) fn line(&self, place: u32) -> Line {
        self.granted[place as usize].line
    }

    fn enter(&mut self, granted: Granted) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.granted.push(granted);
            self.ends.push(NEVER);
            self.granted.len() as u32 - 1
        });
        self.granted[place as usize] = granted;
        place
    }

    /// Forgets a granted flow.
    pub(super) fn leave(&mut self, place: u32) {
        self.ends[place as usize] = NEVER;
        self.granted[place as usize].bytes_per_sec = 0.0;
        self.free.push(place);
        self.exact = false;
    }

    fn predict(&mut self, place: u32) {
        let line = &self.granted[place as usize].line;
        let left = line.at(self.clock);
        let end = if left > DUST_BYTES { end_after(self.clock, left / line.per_sec) } else { self.clock };
        self.ends[place as usize] = end;
        self.first_end = self.first_end.min(end);
        self.exact = false;
    }

    /// Forgets the drain of a coflow.
    pub(super) fn stop(&mut self, slot: Slot) {
        self.draining.retain(|&(_, other)| other != slot);
        self.exact = false;
    }

    fn find_first_end(&self) -> u64 {
        let drains = self.draining.iter().map(|&(end, _)| end);
        drains.chain(self.ends.iter().copied()).min().unwrap_or(NEVER)
    }
}

impl CoflowTable {
    /// Time until the first end under the adopted drains and grants, or shares; `None` if nothing moves by
    /// them.
    pub fn next_end(&self) -> Option<Span> {
        let moving = &self.moving;
        let first = if moving.exact { moving.first_end } else { moving.find_first_end() };
        let first = if self.form == Form::Shares { self.first_paced_end() } else { first };
        (first != NEVER).then(|| Span::from_nanos(first.saturating_sub(self.moving.clock)))
    }

    /// Adds coflows that have nothing left by their drain, and flows of others that have nothing left by
    /// their grant or share. They stay what they are until they are finished or removed.
    pub fn take_ends(&self, coflows: &mut Vec<Slot>, flows: &mut Vec<FlowRef>) {
        if self.form == Form::Shares {
            return self.take_paced_ends(flows);
        }
        let clock = self.moving.clock;
        if clock < self.moving.first_end {
            return;
        }
        coflows.extend(self.moving.draining.iter().filter(|(end, _)| *end <= clock).map(|&(_, slot)| slot));
        for (end, granted) in self.moving.ends.iter().zip(&self.moving.granted) {
            // A coflow that is done takes its flows with it.
            if *end <= clock && !coflows.contains(&granted.flow.coflow) {
                flows.push(granted.flow);
            }
        }
    }

    /// Coflows with a drain and what it is per second of what they have left now, in the order of the
    /// plan.
    pub fn drains(&self) -> impl Iterator<Item = (Slot, f64)> + '_ {
        self.moving.draining.iter().map(|&(_, slot)| (slot, self.drain(slot)))
    }

    /// The drain of a coflow per second of what it has left now, 0 if it has none.
    #[inline]
    pub fn drain(&self, slot: Slot) -> f64 {
        self.coflow(slot).drain.map_or(0.0, |drain| drain.per_sec(self.moving.clock))
    }

    /// Flows with a grant, and their rates.
    pub fn grants(&self) -> impl Iterator<Item = (FlowRef, f64)> + '_ {
        let used = self.moving.granted.iter().filter(|granted| granted.bytes_per_sec > 0.0);
        used.map(|granted| (granted.flow, granted.bytes_per_sec))
    }

    /// The rate of a live flow by its coflow's shares, or by grant, or else by drain.
    #[inline]
    pub(crate) fn own_rate(&self, at: FlowRef) -> f64 {
        if let Some(paced) = &self.coflow(at.coflow).paced {
            return paced.rate(at.flow);
        }
        match self.flow(at).granted {
            NONE => self.remaining(at) * self.drain(at.coflow),
            place => self.moving.granted[place as usize].bytes_per_sec,
        }
    }

    /// Lets go of every drain, and of every grant that the next plan has none in place of: amounts are those of now.
    pub(super) fn stop_moving(&mut self, next: &Plan) {
        for grant in next.grants.iter().filter(|grant| grant.bytes_per_sec > 0.0) {
            let place = self.flow(grant.flow).granted;
            if place != NONE {
                self.moving.granted[place as usize].stays = true;
            }
        }
        for place in 0..self.moving.granted.len() {
            let granted = &mut self.moving.granted[place];
            if !std::mem::take(&mut granted.stays) && granted.bytes_per_sec > 0.0 {
                let flow = granted.flow;
                self.ungrant(flow);
            }
        }
        for (_, slot) in std::mem::take(&mut self.moving.draining) {
            self.coflow_mut(slot).drain = None;
        }
    }

    /// Starts what a plan asks for. Amounts stay what the policy saw.
    pub(super) fn start_moving(&mut self, plan: &Plan) {
        for &(slot, per_sec) in &plan.drains {
            let (since, secs) = (self.moving.clock, 1.0 / per_sec);
            let coflow = self.coflow_mut(slot);
            // Seconds until all is left at 0, not a rate: all flows of the coflow end at one nanosecond, whatever they have left.
            coflow.drain = Some(Drain { since, scale: coflow.scale, secs });
            self.moving.draining.push((end_after(since, secs), slot));
        }
        for grant in &plan.grants {
            if grant.bytes_per_sec > 0.0 {
                self.grant(grant.flow, grant.bytes_per_sec);
            } else {
                self.ungrant(grant.flow);
            }
        }
        let changed = if plan.continues { 0 } else { self.order.len() };
        for at in 0..changed {
            let slot = self.order[at];
            if self.coflow(slot).is_cancelled() {
                self.refresh(slot, 0.0);
            }
        }
        self.moving.first_end = self.moving.find_first_end();
        self.moving.exact = true;
    }

    fn grant(&mut self, at: FlowRef, rate: f64) {
        let clock = self.moving.clock;
        let (classes, coflow) = (&self.classes.all, self.slots[at.coflow.0 as usize].as_deref_mut());
        let coflow = coflow.expect("a slot in use");
        let flow = &mut coflow.flows[at.flow as usize];
        let Some(class) = flow.class.filter(|_| flow.live) else { return };
        let path = &classes[class.index()].path;
        let mut place = flow.granted;
        if place == NONE {
            let left = (flow.base * coflow.scale).max(FLOOR_BYTES);
            let line = Line { left, per_sec: rate, since: clock };
            place = self.moving.enter(Granted { flow: at, bytes_per_sec: rate, line, stays: false });
            flow.granted = place;
            let base = std::mem::replace(&mut flow.base, 0.0);
            coflow.begin_grant(path, base, &line);
        } else {
            let granted = &mut self.moving.granted[place as usize];
            let delta = rate - granted.line.per_sec;
            granted.bytes_per_sec = rate;
            granted.line.change(clock, 0.0, delta);
            coflow.change_granted(path, clock, 0.0, delta);
        }
        self.moving.predict(place);
    }

    fn ungrant(&mut self, at: FlowRef) {
        let clock = self.moving.clock;
        let (classes, coflow) = (&self.classes.all, self.slots[at.coflow.0 as usize].as_deref_mut());
        let coflow = coflow.expect("a slot in use");
        let place = coflow.flows[at.flow as usize].granted;
        let Some(class) = coflow.flows[at.flow as usize].class.filter(|_| place != NONE) else { return };
        let line = self.moving.line(place);
        self.moving.leave(place);
        let (base, floor) = (line.at(clock) / coflow.scale, coflow.floor());
        coflow.end_grant(at.flow, &classes[class.index()].path, &line, base.max(floor));
        // Lifted to the floor it has more than before, and sums of its links have grown.
        if base < floor {
            coflow.note_raise();
        }
    }

    /// Takes the grant from a flow that is about to end, and what it has left with it.
    pub(super) fn forget_grant(&mut self, at: FlowRef) {
        let (classes, coflow) = (&self.classes.all, self.slots[at.coflow.0 as usize].as_deref_mut());
        let coflow = coflow.expect("a slot in use");
        let flow = &coflow.flows[at.flow as usize];
        let (place, class) = (flow.granted, flow.class);
        let due = place != NONE && self.moving.is_due(place);
        if due {
            self.changes.ended.push(at);
        }
        self.changes.disturbed |= !due;
        if let Some(class) = class.filter(|_| place != NONE) {
            let line = self.moving.line(place);
            self.moving.leave(place);
            coflow.end_grant(at.flow, &classes[class.index()].path, &line, 0.0);
        }
    }

    /// Corrects what a granted flow has left.
    pub(super) fn shift_granted(&mut self, at: FlowRef, bytes: f64) {
        let (clock, place) = (self.moving.clock, self.flow(at).granted);
        let Some(class) = self.flow(at).class else { return };
        let path = self.classes.all[class.index()].path;
        let delta = bytes.max(FLOOR_BYTES) - self.moving.left(place);
        self.moving.granted[place as usize].line.change(clock, delta, 0.0);
        self.moving.predict(place);
        self.coflow_mut(at.coflow).change_granted(&path, clock, delta, 0.0);
    }

    /// Lets time pass for drains and grants. What should have ended before now and was not finished
    /// stands still: it must not take from the sums what is not there, and the next plan must look anew.
    pub(super) fn pass(&mut self, nanos: u64) {
        self.moving.clock += nanos;
        let clock = self.moving.clock;
        for at in 0..self.moving.draining.len() {
            let slot = self.moving.draining[at].1;
            self.coflow_mut(slot).follow_drain(clock);
        }
        if clock <= self.moving.first_end || clock <= self.moving.find_first_end() {
            return;
        }
        self.changes.disturbed = true;
        let mut overdue = Vec::new();
        for place in 0..self.moving.granted.len() {
            let granted = self.moving.granted[place];
            // Not due yet, or it stands still already.
            if self.moving.ends[place] >= clock || granted.line.per_sec == 0.0 {
                continue;
            }
            self.moving.granted[place].line = Line { left: FLOOR_BYTES, per_sec: 0.0, since: clock };
            if let Some(class) = self.flow(granted.flow).class {
                let path = &self.classes.all[class.index()].path;
                overdue.extend(path.iter().map(|&link| (granted.flow.coflow, link, class)));
            }
        }
        // A late report is heard of every few flows: only the sums of their links are computed anew, each once.
        overdue.sort_unstable();
        overdue.dedup_by_key(|&mut (slot, link, _)| (slot, link));
        for (slot, link, class) in overdue {
            let coflow = self.slots[slot.0 as usize].as_deref_mut().expect("a slot in use");
            coflow.sum_grants_anew(link, class, (&self.classes.all, &self.moving));
        }
        for at in 0..self.order.len() {
            self.refresh_if_due(self.order[at]);
        }
    }
}
