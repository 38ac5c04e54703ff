//! Work-conserving backfill (after Varys, SIGCOMM 2014, section 5.3.4).
//!
//! # Problem
//! MADD leaves capacity on links that are nobody's bottleneck, and on links of coflows that were passed
//! over because one of their links was full.
//!
//! # Approach
//! Hand all of it out, to coflows in the same order.
//!
//! # Terminology
//! * residual: capacity of a link not given away yet.
//! * free host: one whose own link has a residual above 0.
//!
//! # Pseudo-code
//! ```text
//! for coflow in order, while a source and a destination are free:
//!     for flow of coflow, by (source, destination, flow):
//!         grant = least residual over the links of its path
//!         if grant > 0: give it to the flow, take it from its links
//! ```
//! Walks bit sets: destinations with a live flow from a source, AND destinations that are free. Only the
//! first live flow of a pair of hosts can get anything: it leaves a link of the pair's path empty.
//!
//! On a switch the walk first repeats the grants of the last plan: as long as order, full links and live
//! flows are the same and every grant fills the same ends as it did, the walk would arrive at the same
//! flows. From the first difference on it walks.
//!
//! # Properties
//! * Afterwards every live flow crosses a link with nothing left (work conservation).
//! * At most one grant per link that was not saturated before, since each grant saturates one.
//! * Repeating changes no rate: rates are computed anew, only the search for the flows is saved.
//!
//! # Departures
//! The paper splits each ingress port's residual over a coflow's flows in the ratio of their rates; here
//! the first flow takes all it can, which saturates links with fewer grants.

use super::Residual;
use super::residual::HostLinks;
use crate::bits::members;
use crate::{Coflow, CoflowTable, FlowRef, Grant, Plan, Slot};

/// A grant of the last plan.
#[derive(Clone, Copy, Debug)]
struct Walked {
    flow: FlowRef,
    source: u32,
    destination: u32,
    /// Whether it filled the uplink of its source, the downlink of its destination.
    filled: [bool; 2],
}

/// Backfill, with the grants of the last plan.
#[derive(Debug, Default)]
pub struct Backfill {
    walked: Vec<Walked>,
    order: Vec<Slot>,
    /// Coflows in the same order: number of flows ever added and identity, which together change when a
    /// slot is used again or a flow joins.
    coflows: Vec<(u64, usize)>,
    free: Vec<u64>,
}

impl Backfill {
    /// Adds grants until no live flow can go faster.
    pub fn allocate(&mut self, view: &CoflowTable, order: &[Slot], residual: &mut Residual, plan: &mut Plan) {
        let Some(mut links) = residual.host_links() else {
            for &slot in order {
                on_any_fabric(view, view.coflow(slot), slot, residual, plan);
            }
            return;
        };
        if !self.same_start(view, order, &links) {
            self.walked.clear();
        }
        let repeated = self.repeat(view, &mut links, plan);
        let next = self.walked.get(repeated).map(|next| (next.flow.coflow, next.source as usize));
        self.walked.truncate(repeated);
        let mut waiting = order.iter();
        if let Some((coflow, source)) = next {
            // Coflows before it, and sources before that one, have no flow left that could get anything.
            let found = waiting.by_ref().find(|&&slot| slot == coflow);
            if let Some(&slot) = found {
                self.walk(view.coflow(slot), slot, source, &mut links, plan);
            }
        }
        for &slot in waiting {
            self.walk(view.coflow(slot), slot, 0, &mut links, plan);
        }
    }

    /// Whether the walk begins as the last one did; remembers how this one begins.
    fn same_start(&mut self, view: &CoflowTable, order: &[Slot], links: &HostLinks<'_>) -> bool {
        let coflows =
            || order.iter().map(|&slot| (view.coflow(slot).id().0, view.coflow(slot).flows().len()));
        let free = || links.free_sources.iter().chain(links.free_destinations.iter()).copied();
        let same = self.order == order
            && self.coflows.iter().copied().eq(coflows())
            && self.free.iter().copied().eq(free());
        if !same {
            self.order.clear();
            self.order.extend_from_slice(order);
            self.coflows.clear();
            self.coflows.extend(coflows());
            self.free.clear();
            self.free.extend(free());
        }
        same
    }

    /// Makes the grants of the last plan anew up to the first that would not be the same; how many.
    fn repeat(&self, view: &CoflowTable, links: &mut HostLinks<'_>, plan: &mut Plan) -> usize {
        let mut repeated = 0;
        for of_coflow in self.walked.chunk_by(|a, b| a.flow.coflow == b.flow.coflow) {
            let flows = view.coflow(of_coflow[0].flow.coflow).flows();
            for walked in of_coflow {
                let (source, destination) = (walked.source as usize, walked.destination as usize);
                let (up, down) = (links.up[source], links.down[destination]);
                let rate = up.min(down);
                let filled =
                    [up - rate <= links.up_dust[source], down - rate <= links.down_dust[destination]];
                if filled != walked.filled || !flows[walked.flow.flow as usize].live() {
                    return repeated;
                }
                links.up[source] = if filled[0] { 0.0 } else { up - rate };
                links.down[destination] = if filled[1] { 0.0 } else { down - rate };
                links.free_sources[source / 64] &= !(u64::from(filled[0]) << (source % 64));
                links.free_destinations[destination / 64] &= !(u64::from(filled[1]) << (destination % 64));
                plan.grants.push(Grant { flow: walked.flow, bytes_per_sec: rate });
                repeated += 1;
            }
        }
        repeated
    }

    /// One coflow from a source on, where every path is the source's uplink and the destination's
    /// downlink.
    fn walk(
        &mut self,
        coflow: &Coflow,
        slot: Slot,
        first: usize,
        links: &mut HostLinks<'_>,
        plan: &mut Plan,
    ) {
        let reachable = coflow.destinations().words();
        if !share_a_member(reachable, links.free_destinations) {
            return;
        }
        for word in first / 64..links.free_sources.len() {
            // A source loses its place in the set only by its own row: the word may be read once.
            let mut sources = coflow.sources().words()[word] & links.free_sources[word];
            if word == first / 64 {
                sources &= u64::MAX << (first % 64);
            }
            for bit in members(sources) {
                let source = word * 64 + bit;
                if self.walk_row(coflow, slot, source, links, plan) {
                    links.free_sources[word] &= !(1 << bit);
                }
                if !share_a_member(reachable, links.free_destinations) {
                    return;
                }
            }
        }
    }

    /// Grants to one source's flows; true if that filled its uplink.
    #[inline]
    fn walk_row(
        &mut self,
        coflow: &Coflow,
        slot: Slot,
        source: usize,
        links: &mut HostLinks<'_>,
        plan: &mut Plan,
    ) -> bool {
        let (row, live) = coflow.row(source);
        let (mut of_source, dust) = (links.up[source], links.up_dust[source]);
        for (word, (live, free)) in live.iter().zip(&mut *links.free_destinations).enumerate() {
            for bit in members(live & *free) {
                let destination = word * 64 + bit;
                let of_destination = links.down[destination];
                let rate = of_source.min(of_destination);
                let left = of_destination - rate;
                of_source -= rate;
                // Without a branch: which of the two is full is anybody's guess.
                let filled = [of_source <= dust, left <= links.down_dust[destination]];
                links.down[destination] = if filled[1] { 0.0 } else { left };
                *free &= !(u64::from(filled[1]) << bit);
                let flow = FlowRef { coflow: slot, flow: row.first(destination) };
                plan.grants.push(Grant { flow, bytes_per_sec: rate });
                let (from, to) = (source as u32, destination as u32);
                self.walked.push(Walked { flow, source: from, destination: to, filled });
                if filled[0] {
                    links.up[source] = 0.0;
                    return true;
                }
            }
        }
        links.up[source] = of_source;
        false
    }
}

#[inline]
fn share_a_member(a: &[u64], b: &[u64]) -> bool {
    a.iter().zip(b).fold(0, |any, (a, b)| any | (a & b)) != 0
}

fn on_any_fabric(view: &CoflowTable, coflow: &Coflow, slot: Slot, residual: &mut Residual, plan: &mut Plan) {
    for word in 0..coflow.sources().words().len() {
        let sources = coflow.sources().words()[word] & residual.free_sources().words()[word];
        for bit in members(sources) {
            row_on_any_fabric(view, coflow, slot, word * 64 + bit, residual, plan);
        }
    }
}

fn row_on_any_fabric(
    view: &CoflowTable,
    coflow: &Coflow,
    slot: Slot,
    source: usize,
    residual: &mut Residual,
    plan: &mut Plan,
) {
    let (row, live) = coflow.row(source);
    for (word, live) in live.iter().enumerate() {
        for bit in members(live & residual.free_destinations().words()[word]) {
            let flow = row.first(word * 64 + bit);
            let Some(class) = coflow.flows()[flow as usize].class() else { continue };
            let path = view.classes()[class.index()].path();
            let rate = residual.least(path);
            if rate > 0.0 {
                path.iter().for_each(|&link| residual.take(link, rate));
                plan.grants.push(Grant { flow: FlowRef { coflow: slot, flow }, bytes_per_sec: rate });
                if !residual.free_sources().contains(source) {
                    return;
                }
            }
        }
    }
}
