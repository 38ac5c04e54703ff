//! Moving the table forward: drains and grants start with a plan, pass with time, and end.

use super::line::{FLOOR_BYTES, Line, end_after};
use super::moving::{Drain, Granted, NEVER};
use super::place::NONE;
use super::{CoflowTable, FlowRef, Slot};
use crate::{Form, Plan};
use weir_model::Span;

impl CoflowTable {
    /// Time until the first end under the adopted drains and grants, or shares; `None` if nothing moves by
    /// them.
    pub fn next_end(&self) -> Option<Span> {
        let moving = &self.moving;
        let first = if moving.exact { moving.first_end } else { moving.find_first_end() };
        let first = if self.form == Form::Shares { self.first_paced_end() } else { first };
        // An end that is past, and was not finished, is due at once.
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
        // These keep their grants until the new rates are set: otherwise the sums of their links
        // would be changed twice.
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
