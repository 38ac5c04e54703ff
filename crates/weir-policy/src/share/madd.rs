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

/// Coflows on at least one in so many links are handled by a walk over all links.
const DENSE_SPREAD: usize = 4;

/// Adds the drains of all coflows that can move as a whole, in this order.
pub fn allocate(view: &CoflowTable, order: &[Slot], residual: &mut Residual, plan: &mut Plan) {
    for &slot in order {
        let coflow = view.coflow(slot);
        if coflow.links().is_empty() || coflow.link_set().intersects(residual.saturated()) {
            continue;
        }
        let sums = coflow.demand_bases();
        let dense = coflow.links().len() * DENSE_SPREAD >= sums.len();
        let (gamma, bottleneck) = if dense { residual.slowest(sums) } else { slowest(coflow, residual) };
        // `gamma` is in units of the coflow's scale: rates need no scale at all, the drain does.
        let drain = 1.0 / (gamma * coflow.scale());
        if !(drain > 0.0 && drain.is_finite()) {
            continue;
        }
        let per_base = 1.0 / gamma;
        if dense {
            residual.take_all(sums, per_base, bottleneck);
        } else {
            coflow.links().iter().for_each(|&link| residual.take(link, sums[link.index()] * per_base));
        }
        residual.saturate(bottleneck);
        plan.drains.push((slot, drain));
    }
}

/// Gamma on the residual in units of the coflow's scale, and the link that attains it.
fn slowest(coflow: &Coflow, residual: &Residual) -> (f64, LinkId) {
    let (mut gamma, mut bottleneck) = (0.0, coflow.links()[0]);
    for &link in coflow.links() {
        let needed = coflow.demand_bases()[link.index()] / residual.left(link);
        if needed > gamma {
            (gamma, bottleneck) = (needed, link);
        }
    }
    (gamma, bottleneck)
}
