//! Minimum allocation for desired duration (Varys, SIGCOMM 2014, section 5.3.3, Pseudocode 1, lines 1-12).
//!
//! # Problem
//! Finishing one flow of a coflow before its slowest does not help the coflow and takes capacity from
//! others.
//!
//! # Approach
//! Let all flows of a coflow end together, as early as what earlier coflows left of the links allows.
//!
//! # Terminology
//! * residual: capacity of a link that earlier coflows left.
//! * Gamma on residual: `max over links of (bytes left on the link / residual)`.
//! * drain: `1 / Gamma`; a flow with `b` bytes left moves at `b * drain`.
//!
//! # Pseudo-code
//! ```text
//! for coflow in order:
//!     if one of its links has nothing left: it gets nothing here (backfill may give it something)
//!     gamma = max over its links of bytes left / residual
//!     every flow gets bytes left / gamma: drain = 1 / gamma
//!     every link loses its sum / gamma; the link that attains the maximum has exactly nothing left
//! ```
//!
//! # Properties
//! * All flows of a coflow that is served here end at the same time.
//! * No link is given more than its capacity; each coflow served saturates at least one link.
//! * Cost: one visit per (coflow, link) of the coflows served, and one AND of link sets for the others.
//!
//! # Departures
//! Pseudocode 1 uses the Gamma of the unloaded network for the rates and says nothing of coflows that do
//! not fit; dividing by the residual instead serves each coflow as fast as those before it allow.

use super::Residual;
use crate::{Coflow, CoflowTable, Plan, Slot};
use weir_model::LinkId;

/// Rank of a link that is not full.
const NEVER: u32 = u32::MAX;

/// MADD that knows while its last result stands.
#[derive(Debug, Default)]
pub struct Madd {
    /// Per link, the rank of the coflow that filled it; ranks begin at 1.
    filled_by: Vec<u32>,
    /// Per slot of a coflow that was passed over, its rank and a full link of its own.
    passed: Vec<Option<(u32, LinkId)>>,
    /// Whether a coflow was passed over for another reason.
    odd: bool,
}

impl Madd {
    /// Adds the drains of all coflows that can move as a whole, in this order.
    pub fn allocate(&mut self, view: &CoflowTable, order: &[Slot], residual: &mut Residual, plan: &mut Plan) {
        self.allocate_above(view, order, &[], residual, plan);
    }

    /// The same on what a least drain of every coflow leaves, which each has in any case: `least` is by slot, 0
    /// where there is none, and together they do not exceed the capacity of any link.
    pub fn allocate_above(
        &mut self,
        view: &CoflowTable,
        order: &[Slot],
        least: &[f64],
        residual: &mut Residual,
        plan: &mut Plan,
    ) {
        self.odd = false;
        self.passed.clear();
        self.passed.resize(view.slot_bound(), None);
        self.filled_by.clear();
        self.filled_by.resize(residual.links(), NEVER);
        let least_of = |slot: Slot| least.get(slot.0 as usize).copied().unwrap_or(0.0);
        // Before the first coflow in order, as least drains hold whatever the order; they must not be what an earlier one took.
        self.reserve(view, order, least_of, residual);
        for (rank, &slot) in (1u32..).zip(order) {
            let coflow = view.coflow(slot);
            // No live flow crosses a link: there is no bottleneck, and `slowest` would index an
            // empty list.
            if coflow.links().is_empty() {
                continue;
            }
            let least = least_of(slot);
            if let Some(link) = self.full_link(coflow, rank) {
                // MADD moves all flows of a coflow in one proportion, so one full link stops the
                // whole coflow here. Backfill may still give single flows something, and a least
                // drain was reserved before.
                self.passed[slot.0 as usize] = Some((rank, link));
                plan.drains.extend((least > 0.0).then_some((slot, least)));
                continue;
            }
            let (gamma, bottleneck) = slowest(view, coflow, residual);
            // `gamma` is in units of the coflow's scale: rates need no scale at all, the drain does.
            let drain = 1.0 / (gamma * coflow.scale());
            if !(drain > 0.0 && drain.is_finite()) {
                self.odd = true;
                plan.drains.extend((least > 0.0).then_some((slot, least)));
                continue;
            }
            for &link in coflow.links() {
                // Pseudocode 1, lines 8 and 9 of Varys, with sums per link in place of flows.
                residual.take(link, view.demand_base(coflow, link) / gamma);
            }
            // By definition it has nothing left; rounding could leave or overdraw a little, and the next coflow would divide by that.
            residual.saturate(bottleneck);
            let full = coflow.links().iter().filter(|link| residual.saturated().contains(link.index()));
            full.for_each(|link| self.filled_by[link.index()] = rank);
            // Two parts that add up: `least` was reserved beforehand, and `drain` is 1 / Gamma on
            // what was left after that.
            plan.drains.push((slot, least + drain));
        }
    }

    /// Takes the least drains from what is left; links that they fill are full at every rank.
    fn reserve(
        &mut self,
        view: &CoflowTable,
        order: &[Slot],
        least_of: impl Fn(Slot) -> f64,
        residual: &mut Residual,
    ) {
        for &slot in order.iter().filter(|&&slot| least_of(slot) > 0.0) {
            for &link in view.coflow(slot).links() {
                residual.take(link, view.demand(slot, link) * least_of(slot));
            }
        }
        for link in residual.saturated().iter() {
            // Ranks of coflows begin at 1: for all of them this link was full before their turn.
            self.filled_by[link] = 0;
        }
    }

    /// A link of a coflow that is full when its turn comes.
    fn full_link(&self, coflow: &Coflow, rank: u32) -> Option<LinkId> {
        coflow.links().iter().copied().find(|link| self.filled_by[link.index()] < rank)
    }

    /// Whether all drains go on, after nothing but ends of flows with a grant: those of coflows that have one
    /// do, since their bottlenecks carry no grants; one without must still have a full link.
    pub fn goes_on(&mut self, view: &CoflowTable) -> bool {
        let still_passed = |madd: &mut Madd, slot: Slot| {
            let Some((rank, link)) = madd.passed[slot.0 as usize] else { return true };
            let coflow = view.coflow(slot);
            // The link that stopped it is still full, since coflows earlier in the order go on as
            // they were. It stops this one as long as a live flow of it crosses the link.
            if coflow.live_on(link) > 0 || coflow.links().is_empty() {
                return true;
            }
            let other = madd.full_link(coflow, rank);
            madd.passed[slot.0 as usize] = other.map(|other| (rank, other));
            other.is_some()
        };
        !self.odd && view.changes().ended.iter().all(|at| still_passed(self, at.coflow))
    }
}

/// Gamma on the residual in units of the coflow's scale, and the link that attains it.
fn slowest(view: &CoflowTable, coflow: &Coflow, residual: &Residual) -> (f64, LinkId) {
    let (mut gamma, mut bottleneck) = (0.0, coflow.links()[0]);
    for &link in coflow.links() {
        let needed = view.demand_base(coflow, link) / residual.left(link);
        if needed > gamma {
            (gamma, bottleneck) = (needed, link);
        }
    }
    (gamma, bottleneck)
}
