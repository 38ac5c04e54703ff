//! Links on which bytes are a fluid: flows move at rates that change only at events.
//!
//! # Problem
//! An agent's pacer writes a chunk every two milliseconds per flow. An hour of 150 links would be some thousand million chunks.
//!
//! # Approach
//! Between two events every flow moves at one rate: what its agent paces it to, or less where a link has less. A link that is
//! asked for more than it carries gives all flows the same, and those that want less what they want, as TCP would. An uplink
//! divides what its flows want; a downlink then divides what comes over uplinks. What a flow cannot take at its downlink no
//! other flow gets at its uplink until the agent gives it to one: a sender's rates stand until then.
//!
//! # Properties
//! * No link carries more than its rate.
//! * A flow ends at the first nanosecond by which its bytes have moved at its rates, as in the fluid simulator.

use std::collections::BTreeSet;
use weir_core::ids::FlowNumber;
use weir_model::{Rate, Span, Time};

/// Sums of rates that are above a link's by less than this share are rounding.
const ROUNDING: f64 = 1e-9;
/// A flow that moves at less than this share of its agent's rate is held up by a link.
const HELD_UP: f64 = 0.99;

/// A flow that moves.
#[derive(Clone, Debug)]
pub(crate) struct Moving {
    /// Number of its get.
    pub(crate) get: usize,
    /// The flow's number at the agent that sends it.
    pub(crate) flow: FlowNumber,
    pub(crate) from: u32,
    to: u32,
    size: u64,
    /// Bytes per second that its agent paces it to; infinite where it does not.
    wanted: f64,
    /// What its uplink has for it,
    offered: f64,
    /// and what it moves at.
    rate: f64,
    sent: f64,
    updated: Time,
    /// When it ends at this rate.
    ends: Time,
    /// Whole bytes that its agent knows of.
    told: u64,
    /// Its places at its uplink and its downlink.
    places: [usize; 2],
}

/// What an agent is to be told of a flow.
pub(crate) struct Moved {
    /// Its place in [`Links`].
    pub(crate) at: usize,
    /// The flow's number at the agent that sends it.
    pub(crate) flow: FlowNumber,
    /// Bytes since the last time.
    pub(crate) bytes: u64,
    /// A link has less for it than its rate.
    pub(crate) is_held_up: bool,
    /// These were the last.
    pub(crate) is_over: bool,
}

/// All links, each host's up and down, and the flows on them.
pub(crate) struct Links {
    rate: f64,
    flows: Vec<Option<Moving>>,
    free: Vec<usize>,
    /// Flows by the uplink of their sender, and by the downlink of their receiver.
    up: Vec<Vec<usize>>,
    down: Vec<Vec<usize>>,
    changed_up: BTreeSet<u32>,
    changed_down: BTreeSet<u32>,
    /// Hosts of which a flow ends at another time than before.
    changed_ends: BTreeSet<u32>,
}

impl Links {
    pub(crate) fn new(hosts: u32, rate: Rate) -> Links {
        Links {
            rate: rate.bytes_per_sec(),
            flows: Vec::new(),
            free: Vec::new(),
            up: vec![Vec::new(); hosts as usize],
            down: vec![Vec::new(); hosts as usize],
            changed_up: BTreeSet::new(),
            changed_down: BTreeSet::new(),
            changed_ends: BTreeSet::new(),
        }
    }

    /// A flow joins, at rate 0.
    pub(crate) fn join(&mut self, now: Time, get: usize, flow: FlowNumber, ends: [u32; 2], size: u64) {
        let [from, to] = ends;
        let places = [self.up[from as usize].len(), self.down[to as usize].len()];
        let moving = Moving {
            get,
            flow,
            from,
            to,
            size,
            wanted: 0.0,
            offered: 0.0,
            rate: 0.0,
            sent: 0.0,
            updated: now,
            ends: Time::MAX,
            told: 0,
            places,
        };
        let at = self.free.pop().unwrap_or(self.flows.len());
        if at == self.flows.len() {
            self.flows.push(None);
        }
        self.flows[at] = Some(moving);
        self.up[from as usize].push(at);
        self.down[to as usize].push(at);
    }

    /// Takes a flow off its two links.
    pub(crate) fn leave(&mut self, at: usize) -> Option<Moving> {
        let moving = self.flows[at].take()?;
        self.free.push(at);
        let lists = [(&mut self.up, moving.from), (&mut self.down, moving.to)];
        for (side, (lists, host)) in lists.into_iter().enumerate() {
            let list = &mut lists[host as usize];
            let place = moving.places[side];
            list.swap_remove(place);
            // The last flow of the list has moved into the gap.
            if let Some(other) = list.get(place).and_then(|&other| self.flows[other].as_mut()) {
                other.places[side] = place;
            }
        }
        // A flow that did not move leaves nothing that others could have.
        if moving.rate > 0.0 {
            self.changed_up.insert(moving.from);
            self.changed_down.insert(moving.to);
            self.changed_ends.insert(moving.from);
        }
        Some(moving)
    }

    /// The agent's flows of a host, with their places here.
    pub(crate) fn of_host(&self, host: u32) -> impl Iterator<Item = (usize, FlowNumber)> {
        let of = |&at: &usize| Some((at, self.flows[at].as_ref()?.flow));
        self.up[host as usize].iter().filter_map(of)
    }

    /// A flow of a host that moves.
    pub(crate) fn any_moving(&self, host: u32) -> Option<FlowNumber> {
        let mut flows = self.up[host as usize].iter().filter_map(|&at| self.flows[at].as_ref());
        flows.find(|flow| flow.rate > 0.0).map(|flow| flow.flow)
    }

    /// An agent paces a flow to so many bytes per second.
    pub(crate) fn want(&mut self, at: usize, wanted: f64) {
        let Some(moving) = &mut self.flows[at] else { return };
        if moving.wanted != wanted {
            moving.wanted = wanted;
            self.changed_up.insert(moving.from);
        }
    }

    /// What moved of a host's flows since its agent was told last.
    pub(crate) fn moved(&mut self, now: Time, host: u32) -> Vec<Moved> {
        let mut moved = Vec::new();
        for &at in &self.up[host as usize] {
            let Some(flow) = &mut self.flows[at] else { continue };
            flow.settle(now);
            let is_over = flow.ends <= now;
            // The last byte is gone when all are.
            let whole = if is_over { flow.size } else { (flow.sent as u64).min(flow.size.saturating_sub(1)) };
            let bytes = whole.saturating_sub(flow.told);
            flow.told = flow.told.max(whole);
            let is_held_up = flow.wanted.is_finite() && flow.rate < HELD_UP * flow.wanted;
            if bytes > 0 || is_held_up || is_over {
                moved.push(Moved { at, flow: flow.flow, bytes, is_held_up, is_over });
            }
        }
        moved
    }

    /// Divides what links have anew where anything changed.
    pub(crate) fn divide(&mut self, now: Time) {
        for host in std::mem::take(&mut self.changed_up) {
            let list = &self.up[host as usize];
            let level = level(self.rate, list.iter().filter_map(|&at| Some(self.flows[at].as_ref()?.wanted)));
            for &at in list {
                let Some(flow) = &mut self.flows[at] else { continue };
                let offered = flow.wanted.min(level);
                if offered != flow.offered {
                    flow.offered = offered;
                    self.changed_down.insert(flow.to);
                }
            }
        }
        for host in std::mem::take(&mut self.changed_down) {
            let list = &self.down[host as usize];
            let level =
                level(self.rate, list.iter().filter_map(|&at| Some(self.flows[at].as_ref()?.offered)));
            for &at in list {
                let Some(flow) = &mut self.flows[at] else { continue };
                let rate = flow.offered.min(level);
                if rate != flow.rate {
                    // At the old rate until now, before it has the new one.
                    flow.settle(now);
                    flow.go_at(now, rate);
                    self.changed_ends.insert(flow.from);
                }
            }
        }
    }

    /// Hosts of which the next flow to end, or when it does, is another one than before.
    pub(crate) fn take_changed_ends(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.changed_ends)
    }

    /// When the next flow of a host ends.
    pub(crate) fn next_end(&self, host: u32) -> Option<Time> {
        let ends = self.up[host as usize].iter().filter_map(|&at| Some(self.flows[at].as_ref()?.ends));
        ends.min().filter(|ends| *ends < Time::MAX)
    }
}

impl Moving {
    fn settle(&mut self, now: Time) {
        self.sent = (self.sent + self.rate * now.since(self.updated).as_secs()).min(self.size as f64);
        self.updated = now;
    }

    fn go_at(&mut self, now: Time, rate: f64) {
        self.rate = rate;
        let left = self.size as f64 - self.sent;
        // Rounded up, so that all bytes have moved by then.
        self.ends = if rate > 0.0 { now + Span::from_secs_ceil(left.max(0.0) / rate) } else { Time::MAX };
    }
}

/// The most that one flow gets of a link: infinite where all get what they want.
fn level(capacity: f64, wanted: impl Iterator<Item = f64> + Clone) -> f64 {
    if wanted.clone().sum::<f64>() <= capacity * (1.0 + ROUNDING) {
        return f64::INFINITY;
    }
    let mut wanted: Vec<f64> = wanted.filter(|wanted| *wanted > 0.0).collect();
    // Max-min fairness: who wants less than an equal share of what is left gets it, smallest first; the others share the rest.
    wanted.sort_by(f64::total_cmp);
    let (mut left, mut flows) = (capacity, wanted.len());
    for wanted in wanted {
        if wanted * flows as f64 > left {
            break;
        }
        left -= wanted;
        flows -= 1;
    }
    if flows == 0 { f64::INFINITY } else { left / flows as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_gives_flows_the_same_and_those_that_want_less_what_they_want() {
        // 100 for 10, 20, 50 and no limit: 30 are taken, 70 for two are 35 each.
        assert_eq!(level(100.0, [10.0, 50.0, f64::INFINITY, 20.0].into_iter()), 35.0);
        assert_eq!(level(100.0, [10.0, 50.0, 40.0].into_iter()), f64::INFINITY);
        assert_eq!(level(100.0, [f64::INFINITY].into_iter()), 100.0);
    }

    #[test]
    fn flows_meet_at_a_downlink_and_end_when_their_bytes_have_moved() {
        let mut links = Links::new(3, Rate::from_bytes_per_sec(100.0));
        let begin = Time::from_millis(1_000);
        links.join(begin, 0, FlowNumber(7), [0, 2], 100);
        links.join(begin, 1, FlowNumber(8), [1, 2], 50);
        (0..2).for_each(|at| links.want(at, f64::INFINITY));
        links.divide(begin);
        // 50 bytes per second for each: 2 s for the first, 1 s for the second.
        assert_eq!(links.next_end(0), Some(Time::from_millis(3_000)));
        assert_eq!(links.next_end(1), Some(Time::from_millis(2_000)));
        let now = Time::from_millis(2_000);
        let over: Vec<_> = links.moved(now, 1).iter().map(|moved| (moved.bytes, moved.is_over)).collect();
        assert_eq!(over, [(50, true)]);
        assert_eq!(links.leave(1).map(|moving| moving.get), Some(1));
        links.divide(now);
        // The first has 50 left, and 100 per second.
        assert_eq!(links.next_end(0), Some(Time::from_millis(2_500)));
    }
}
