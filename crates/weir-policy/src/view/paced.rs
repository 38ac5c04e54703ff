//! Coflows whose flows each have a rate of their own, by the shares of a plan.
//!
//! Rates are looked up once per plan that changes them; until then every flow is a straight line, and all of
//! a coflow's are followed together: the next end, the sum of rates.

use super::coflow::FLOOR_BYTES;
use super::moving::{end_after, secs_between};
use super::{CoflowTable, FlowRef, Slot};
use crate::{Plan, Share};
use weir_model::Path;

/// An end that never comes.
const NEVER: u64 = u64::MAX;

/// Sums kept side by side: one would wait for itself at every step.
const LANES: usize = 8;
/// No place, or a path that two numbers do not hold.
const NONE: u32 = u32::MAX;

/// The live flows of one coflow that cross links, in no particular order.
#[derive(Clone, Debug)]
pub(super) struct Paced {
    /// Reading of the clock at which `left` held.
    since: u64,
    /// Bytes left.
    left: Vec<f64>,
    /// Bytes per second.
    rates: Vec<f64>,
    /// First and last link of their paths; or none, and an index into `long`.
    links: Vec<(u32, u32)>,
    flows: Vec<u32>,
    /// Paths of more than two links.
    long: Vec<Path>,
    /// Per flow of the coflow, its place above.
    places: Vec<u32>,
    /// Sum of the rates.
    per_sec: f64,
    /// No flow ends before this.
    end: u64,
    /// Whether one ends then.
    is_exact: bool,
    /// What the coflow had sent in all.
    attained: f64,
}

impl Paced {
    /// Flows that stand still.
    pub(super) fn new(clock: u64, attained: f64) -> Paced {
        Paced {
            since: clock,
            left: Vec::new(),
            rates: Vec::new(),
            links: Vec::new(),
            flows: Vec::new(),
            long: Vec::new(),
            places: Vec::new(),
            per_sec: 0.0,
            end: NEVER,
            is_exact: true,
            attained,
        }
    }

    /// Adds the next flow of the coflow; one without a path has ended, or crosses no link.
    pub(super) fn push(&mut self, left: f64, path: Option<&Path>) {
        let Some(path) = path else { return self.places.push(NONE) };
        let links = match path[..] {
            [only] => (only.0, only.0),
            [first, last] => (first.0, last.0),
            _ => {
                self.long.push(*path);
                (NONE, self.long.len() as u32 - 1)
            }
        };
        self.places.push(self.left.len() as u32);
        self.flows.push(self.places.len() as u32 - 1);
        self.left.push(left);
        self.rates.push(0.0);
        self.links.push(links);
    }

    fn place(&self, flow: u32) -> Option<usize> {
        self.places.get(flow as usize).filter(|&&place| place != NONE).map(|&place| place as usize)
    }

    pub(super) fn left(&self, flow: u32, clock: u64) -> f64 {
        let left = |at: usize| self.left[at] - self.rates[at] * secs_between(self.since, clock);
        self.place(flow).map_or(0.0, |at| left(at).max(FLOOR_BYTES))
    }

    pub(super) fn rate(&self, flow: u32) -> f64 {
        self.place(flow).map_or(0.0, |at| self.rates[at])
    }

    fn attained(&self, clock: u64) -> f64 {
        self.attained + self.per_sec * secs_between(self.since, clock)
    }

    /// Corrects what a flow has left.
    pub(super) fn set_left(&mut self, flow: u32, bytes: f64, clock: u64) {
        let Some(at) = self.place(flow) else { return };
        let bytes = bytes.max(FLOOR_BYTES);
        self.attained += self.left(flow, clock) - bytes;
        self.left[at] = bytes + self.rates[at] * secs_between(self.since, clock);
        self.end = self.end.min(self.end_of(at));
        self.is_exact = false;
    }

    /// Forgets a flow, which has moved all but `left` bytes.
    pub(super) fn leave(&mut self, flow: u32, left: f64) {
        let Some(at) = self.place(flow) else { return };
        // What it has moved since then is in the sum of rates no more.
        self.attained += self.left[at] - left;
        self.per_sec -= self.rates[at];
        self.is_exact = false;
        self.places[flow as usize] = NONE;
        self.left.swap_remove(at);
        self.rates.swap_remove(at);
        self.links.swap_remove(at);
        self.flows.swap_remove(at);
        if let Some(&moved) = self.flows.get(at) {
            self.places[moved as usize] = at as u32;
        }
    }

    /// Brings all amounts to now and lets everything stand still.
    fn stop(&mut self, clock: u64) {
        self.attained = self.attained(clock);
        let secs = secs_between(self.since, clock);
        self.since = clock;
        if self.end != NEVER {
            for (left, rate) in self.left.iter_mut().zip(&mut self.rates) {
                *left = (*left - *rate * secs).max(FLOOR_BYTES);
                *rate = 0.0;
            }
        }
        (self.per_sec, self.end, self.is_exact) = (0.0, NEVER, true);
    }

    /// Sums the rates and finds the first end.
    fn settle(&mut self) {
        (self.per_sec, self.end) = self.sum_and_end();
        self.is_exact = true;
    }

    /// When the first flow ends.
    fn first_end(&self) -> u64 {
        if self.is_exact { self.end } else { self.sum_and_end().1 }
    }

    fn sum_and_end(&self) -> (f64, u64) {
        let (mut sums, mut firsts) = ([0.0; LANES], [f64::INFINITY; LANES]);
        let mut note = |lane: usize, left: f64, rate: f64| {
            sums[lane] += rate;
            let secs = left / rate;
            firsts[lane] = if secs < firsts[lane] { secs } else { firsts[lane] };
        };
        let (lefts, last_lefts) = self.left.as_chunks::<LANES>();
        let (rates, last_rates) = self.rates.as_chunks::<LANES>();
        for (left, rate) in lefts.iter().zip(rates) {
            (0..LANES).for_each(|lane| note(lane, left[lane], rate[lane]));
        }
        for (left, rate) in last_lefts.iter().zip(last_rates) {
            note(0, *left, *rate);
        }
        let first = firsts.into_iter().fold(f64::INFINITY, f64::min);
        (sums.iter().sum(), if first < f64::INFINITY { end_after(self.since, first) } else { NEVER })
    }

    /// Adds to all rates the least level on the flow's path.
    fn add_levels(&mut self, level_of: &[f64]) {
        let Paced { rates, links, long, .. } = self;
        for (rate, &(first, last)) in rates.iter_mut().zip(&*links) {
            *rate += if first == NONE {
                let path = long[last as usize].iter();
                path.map(|link| level_of[link.index()]).fold(f64::INFINITY, f64::min)
            } else {
                let (first, last) = (level_of[first as usize], level_of[last as usize]);
                if first < last { first } else { last }
            };
        }
    }

    fn end_of(&self, at: usize) -> u64 {
        if self.rates[at] > 0.0 {
            end_after(self.since, self.left[at].max(0.0) / self.rates[at])
        } else {
            NEVER
        }
    }
}

impl CoflowTable {
    /// Bytes that a coflow has sent over links in all: of flows that have ended too, and of those that were
    /// removed as far as they had come.
    pub fn attained(&self, slot: Slot) -> f64 {
        let coflow = self.coflow(slot);
        if let Some(paced) = &coflow.paced {
            return paced.attained(self.moving.clock);
        }
        let live = (0u32..).zip(coflow.flows()).filter(|(_, flow)| flow.live() && flow.class().is_some());
        let moved =
            live.map(|(at, flow)| flow.size().0 as f64 - self.remaining(FlowRef { coflow: slot, flow: at }));
        coflow.sent + moved.sum::<f64>()
    }

    /// Counts bytes that a coflow sent before it (or a flow of it) entered the table.
    pub fn add_attained(&mut self, slot: Slot, bytes: f64) {
        let coflow = self.coflow_mut(slot);
        match &mut coflow.paced {
            Some(paced) => paced.attained += bytes,
            None => coflow.sent += bytes,
        }
    }

    /// The sum of the rates of a coflow's flows by its shares; 0 without any.
    pub fn shared_rate(&self, slot: Slot) -> f64 {
        self.coflow(slot).paced.as_ref().map_or(0.0, |paced| paced.per_sec)
    }

    /// The time until the first end of a flow with a share, as a reading of the clock.
    pub(super) fn first_paced_end(&self) -> u64 {
        let ends = self.order.iter().filter_map(|&slot| Some(self.coflow(slot).paced.as_ref()?.first_end()));
        ends.min().unwrap_or(NEVER)
    }

    /// Adds flows that have nothing left by their shares.
    pub(super) fn take_paced_ends(&self, flows: &mut Vec<FlowRef>) {
        let clock = self.moving.clock;
        for &slot in &self.order {
            let Some(paced) = self.coflow(slot).paced.as_ref().filter(|paced| paced.end <= clock) else {
                continue;
            };
            let secs = secs_between(paced.since, clock + 1);
            let near = |&at: &usize| paced.left[at] <= paced.rates[at] * secs;
            let due = (0..paced.flows.len()).filter(near).filter(|&at| paced.end_of(at) <= clock);
            flows.extend(due.map(|at| FlowRef { coflow: slot, flow: paced.flows[at] }));
        }
    }

    /// Starts the shares of a plan; each coflow it names stops what it did before.
    pub(super) fn start_sharing(&mut self, plan: &Plan) {
        let clock = self.moving.clock;
        if !plan.continues {
            for at in 0..self.order.len() {
                if let Some(paced) = &mut self.coflow_mut(self.order[at]).paced {
                    paced.stop(clock);
                }
            }
        }
        let mut level_of = vec![0.0; self.links];
        for together in plan.shares.chunk_by(|a, b| a.coflow == b.coflow) {
            let slot = together[0].coflow;
            let Some(mut paced) = self.coflow_mut(slot).paced.take() else { continue };
            paced.stop(clock);
            for share in together.iter().filter(|share| !share.levels.is_empty()) {
                self.add_share(share, &mut paced, &mut level_of);
            }
            paced.settle();
            self.coflow_mut(slot).paced = Some(paced);
        }
        for at in 0..self.order.len() {
            let paced = self.coflow_mut(self.order[at]).paced.as_mut();
            paced.filter(|paced| !paced.is_exact).into_iter().for_each(|paced| paced.settle());
        }
    }

    fn add_share(&self, share: &Share, paced: &mut Paced, level_of: &mut [f64]) {
        share.levels.iter().for_each(|&(link, level)| level_of[link.index()] = level);
        if share.by_size {
            let mut by_byte = vec![0.0; paced.rates.len()];
            std::mem::swap(&mut paced.rates, &mut by_byte);
            paced.add_levels(level_of);
            let flows = &self.coflow(share.coflow).flows;
            for ((rate, flow), before) in paced.rates.iter_mut().zip(&paced.flows).zip(by_byte) {
                *rate = before + *rate * flows[*flow as usize].size.0 as f64;
            }
        } else {
            paced.add_levels(level_of);
        }
        share.levels.iter().for_each(|&(link, _)| level_of[link.index()] = 0.0);
    }
}
