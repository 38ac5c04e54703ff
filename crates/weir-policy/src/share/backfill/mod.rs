//! Work-conserving backfill (after Varys, SIGCOMM 2014, section 5.3.4).
//!
//! # Problem
//! MADD leaves capacity on links that are the bottleneck of no coflow, and on links of coflows that were passed
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
//!         extra = least residual over the links of its path
//!         if extra > 0: take it from its links; grant = what the drain of its coflow gives it + extra
//! ```
//! Walks bit sets: destinations with a live flow from a source, AND destinations that are free. Only the
//! first live flow of a pair of hosts can get anything: it leaves a link of the pair's path empty.
//!
//! On a switch nothing is walked again that comes out as it did: see [`go_on`](Backfill::go_on).
//!
//! # Properties
//! * Afterwards every live flow crosses a link with nothing left (work conservation).
//! * At most one grant per link that was not saturated before, since each grant saturates one.
//!
//! # Departures
//! The paper splits each ingress port's residual over a coflow's flows in the ratio of their rates; here
//! the first flow takes all it can, which saturates links with fewer grants.

mod go_on;
mod walk;

use super::Residual;
use super::residual::HostLinks;
use crate::bits::members;
use crate::{Coflow, CoflowTable, FlowRef, Grant, Plan, Slot};
use go_on::Ripple;
use walk::Walk;

/// Backfill, with the walk of the last plan.
#[derive(Debug, Default)]
pub struct Backfill {
    /// Drains of coflows, by slot.
    drains: Vec<f64>,
    walk: Walk,
    ripple: Ripple,
    /// Whether walks are never gone on from, so that none needs to be remembered.
    anew: bool,
}

impl Backfill {
    /// Backfill for plans of which none goes on from the last one.
    pub fn anew() -> Backfill {
        Backfill { anew: true, ..Backfill::default() }
    }

    /// Adds grants until no live flow can go faster.
    pub fn allocate(&mut self, view: &CoflowTable, order: &[Slot], residual: &mut Residual, plan: &mut Plan) {
        self.drains.clear();
        self.drains.resize(view.slot_bound(), 0.0);
        for &(slot, drain) in &plan.drains {
            self.drains[slot.0 as usize] = drain;
        }
        let Some(mut links) = residual.host_links() else {
            // Only walks over a switch can be gone on from.
            self.walk.forget();
            for &slot in order {
                on_any_fabric(view, view.coflow(slot), slot, residual, plan);
            }
            self.add_drains(view, plan);
            return;
        };
        if !self.anew {
            self.walk.begin(order, view.slot_bound(), &links);
        }
        for (rank, &slot) in order.iter().enumerate() {
            if !self.anew {
                self.walk.enter_rank(&links);
            }
            self.walk_coflow(view.coflow(slot), (rank, slot), &mut links, plan);
        }
        self.add_drains(view, plan);
        // After drains were added: what is remembered of a grant is its whole rate.
        self.walk.take_rates(&plan.grants);
    }

    /// A grant is in place of what the drain gives.
    fn add_drains(&self, view: &CoflowTable, plan: &mut Plan) {
        for grant in &mut plan.grants {
            let drain = self.drains[grant.flow.coflow.0 as usize];
            if drain > 0.0 {
                grant.bytes_per_sec += drain * view.remaining(grant.flow);
            }
        }
    }

    /// One coflow where every path is the source's uplink and the destination's downlink.
    fn walk_coflow(
        &mut self,
        coflow: &Coflow,
        at: (usize, Slot),
        links: &mut HostLinks<'_>,
        plan: &mut Plan,
    ) {
        let reachable = coflow.destinations().words();
        if !share_a_member(reachable, links.free_destinations) {
            return;
        }
        for word in 0..links.free_sources.len() {
            // A source loses its place in the set only by its own row: the word may be read once.
            for bit in members(coflow.sources().words()[word] & links.free_sources[word]) {
                let source = word * 64 + bit;
                if self.walk_row(coflow, at, source, links, plan) {
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
        (rank, slot): (usize, Slot),
        source: usize,
        links: &mut HostLinks<'_>,
        plan: &mut Plan,
    ) -> bool {
        let (row, live) = coflow.row(source);
        let uplink = 2 * source;
        let (mut of_source, dust) = (links.left[uplink], links.dust[uplink]);
        for (word, (live, free)) in live.iter().zip(&mut *links.free_destinations).enumerate() {
            for bit in members(live & *free) {
                let destination = word * 64 + bit;
                let downlink = 2 * destination + 1;
                let of_destination = links.left[downlink];
                let rate = of_source.min(of_destination);
                let left = of_destination - rate;
                of_source -= rate;
                let filled = [of_source <= dust, left <= links.dust[downlink]];
                // Dust becomes exactly 0, as `Residual::left` promises for a full link.
                links.left[downlink] = if filled[1] { 0.0 } else { left };
                *free &= !(u64::from(filled[1]) << bit);
                let flow = FlowRef { coflow: slot, flow: row.first(destination) };
                plan.grants.push(Grant { flow, bytes_per_sec: rate });
                self.walk.note(rank, flow, [source, destination], filled);
                if filled[0] {
                    links.left[uplink] = 0.0;
                    return true;
                }
            }
        }
        links.left[uplink] = of_source;
        false
    }
}

#[inline]
fn share_a_member(a: &[u64], b: &[u64]) -> bool {
    a.iter().zip(b).fold(0, |any, (a, b)| any | (a & b)) != 0
}

fn on_any_fabric(view: &CoflowTable, coflow: &Coflow, slot: Slot, residual: &mut Residual, plan: &mut Plan) {
    if !coflow.destinations().intersects(residual.free_destinations()) {
        return;
    }
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
        for bit in members(live & residual.reachable(source, word)) {
            let flow = row.first(word * 64 + bit);
            let Some(class) = coflow.flows()[flow as usize].class() else { continue };
            let rate = residual.take_all(view.classes()[class.index()].path());
            if rate > 0.0 {
                plan.grants.push(Grant { flow: FlowRef { coflow: slot, flow }, bytes_per_sec: rate });
                // Its own uplink is full, so its other flows get nothing.
                if !residual.free_sources().contains(source) {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_model::{
        Bytes, CoflowId, CoflowSpec, Fabric, FlowId, FlowSpec, HostId, LinkId, RackSpec, Rate, Time,
    };

    /// The walk, without leaving anything out.
    fn obvious(view: &CoflowTable, order: &[Slot], residual: &mut Residual) -> Vec<(FlowRef, f64)> {
        let mut grants = Vec::new();
        for &slot in order {
            let coflow = view.coflow(slot);
            let mut flows: Vec<(HostId, HostId, u32)> = (0u32..)
                .zip(coflow.flows())
                .filter_map(|(number, flow)| {
                    let class = &view.classes()[flow.class()?.index()];
                    Some((class.source(), class.destination(), number))
                })
                .collect();
            flows.sort_unstable();
            for (_, _, flow) in flows {
                let at = FlowRef { coflow: slot, flow };
                let Some(class) = view.flow(at).class() else { continue };
                let rate = residual.take_all(view.classes()[class.index()].path());
                grants.extend((rate > 0.0).then_some((at, rate)));
            }
        }
        grants
    }

    fn coflows() -> impl Strategy<Value = Vec<CoflowSpec>> {
        let flow = (0u32..80, 0u32..80).prop_map(|(source, destination)| FlowSpec {
            source: HostId(source),
            destination: HostId(destination),
            size: Bytes(1_000_000),
            group: 0,
        });
        prop::collection::vec(prop::collection::vec(flow, 1..60), 1..12).prop_map(|coflows| {
            let spec = |(id, flows)| CoflowSpec::new(CoflowId(id), Time::ZERO, flows);
            (1u64..).zip(coflows).map(spec).collect()
        })
    }

    proptest! {
        /// Links are full that MADD filled, and those that the walk fills.
        #[test]
        fn what_is_left_out_below_racks_would_have_got_nothing(
            coflows in coflows(),
            full in prop::collection::vec(0u32..180, 0..30),
            alone in prop::collection::vec(0u32..80, 0..10),
        ) {
            let host_rate = Rate::from_bytes_per_sec(1e6);
            let spec = RackSpec { hosts_per_rack: 8, racks: 10, host_rate, oversubscription: 3.0 };
            let mut fabric = Fabric::racks(&spec).expect("a fabric");
            alone.into_iter().for_each(|host| fabric.move_host(HostId(host), None, None));
            let mut table = CoflowTable::new(&fabric);
            let mut flow = FlowId(1);
            let order: Vec<Slot> = coflows.iter().map(|coflow| {
                let slot = table.insert(coflow, flow, &fabric);
                flow = FlowId(flow.0 + coflow.flows.len() as u64);
                slot
            }).collect();
            let mut residual = Residual::default();
            residual.reset(&fabric);
            full.into_iter().for_each(|link| residual.saturate(LinkId(link)));
            let expected = obvious(&table, &order, &mut residual.clone());
            let mut plan = Plan::default();
            Backfill::default().allocate(&table, &order, &mut residual, &mut plan);
            let grants: Vec<_> = plan.grants.iter().map(|grant| (grant.flow, grant.bytes_per_sec)).collect();
            prop_assert_eq!(grants, expected);
        }
    }
}
