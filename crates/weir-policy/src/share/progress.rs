//! Max-min fairness between coflows: how much of the speed it would have alone each one gets.
//!
//! # Problem
//! Fairness between flows gives a coflow more the more flows it has. What a job notices is its slowest flow.
//!
//! # Approach
//! Measure a coflow by its progress, that of its bottleneck; raise the progress of all together until links are
//! full, as dominant resource fairness does for the resources of a job. All flows of a coflow move in proportion
//! to what they have left, since nothing beyond that would end it sooner.
//!
//! # Terminology
//! * Gamma: seconds a coflow would need for what it has left on the empty fabric.
//! * progress: the speed at which it moves over that; 1 is alone in the network. `drain * Gamma`.
//! * weight: coflows with weight w have w times the progress of others at the same links.
//!
//! # Pseudo-code
//! ```text
//! open = all coflows
//! while there are open coflows:
//!     link = least left / sum over open coflows of (bytes left on link * weight / Gamma)
//!     level = that; every open coflow crossing link has progress level * weight, and is open no more
//!     other links lose what it takes there; link is full
//! ```
//!
//! # Properties
//! * No coflow could progress faster without one of no more progress per weight becoming slower.
//! * Isolation: every coflow has at least `weight / sum of weights` of progress, whatever others do.
//! * All flows of a coflow end together, but for those that backfill speeds up.
//! * Cost: coflows times links per plan.
//!
//! # Departures
//! The rule is that of Ghodsi et al., Dominant Resource Fairness (NSDI 2011), on links; Chowdhury et al., HUG
//! (NSDI 2016), bounds what a tenant may use beyond it. Here what is left goes to any coflow that can use it.

use super::Residual;
use crate::{CoflowTable, Plan, Slot};
use weir_model::LinkId;

/// Drains by equal progress.
#[derive(Debug, Default)]
pub struct EqualProgress {
    /// Coflows whose progress is not decided yet.
    open: Vec<Open>,
    /// What each of them takes of its links at a progress of 1 per weight, coflow by coflow, in the order of its links.
    takes: Vec<f64>,
    /// Per link of the fabric.
    claims: Vec<Claim>,
    /// Links with a claim that are not full.
    claimed: Vec<LinkId>,
}

/// What open coflows want of a link.
#[derive(Clone, Copy, Debug, Default)]
struct Claim {
    /// What they take of it together at a progress of 1 per weight.
    sum: f64,
    /// How many of them cross it.
    coflows: u32,
}

/// A coflow whose progress is not decided yet.
#[derive(Clone, Copy, Debug)]
struct Open {
    slot: Slot,
    /// Its weight over Gamma.
    share: f64,
    /// Where in the list what it takes begins.
    takes: usize,
}

impl EqualProgress {
    /// Adds the drains of all coflows.
    pub fn allocate(&mut self, view: &CoflowTable, residual: &mut Residual, plan: &mut Plan) {
        self.open_all(view, residual);
        while let Some((full, level)) = self.first_full(residual) {
            let EqualProgress { open, takes, claims, .. } = self;
            open.retain(|&Open { slot, share, takes: begin }| {
                let coflow = view.coflow(slot);
                if !coflow.link_set().contains(full.index()) {
                    return true;
                }
                for (&link, &take) in coflow.links().iter().zip(&takes[begin..]) {
                    let claim = &mut claims[link.index()];
                    claim.coflows -= 1;
                    // Subtractions leave rounding errors: with the last coflow gone the claim is set to exactly 0, lest the link count as claimed.
                    claim.sum = if claim.coflows > 0 { claim.sum - take } else { 0.0 };
                    residual.take(link, take * level);
                }
                plan.drains.push((slot, level * share));
                false
            });
            residual.saturate(full);
        }
    }

    /// Opens every coflow that has something left on a link, and sums their claims.
    fn open_all(&mut self, view: &CoflowTable, residual: &Residual) {
        let EqualProgress { open, takes, claims, claimed } = self;
        open.clear();
        takes.clear();
        claims.clear();
        claims.resize(residual.links(), Claim::default());
        claimed.clear();
        for (slot, coflow) in view.coflows() {
            let begin = takes.len();
            let mut gamma: f64 = 0.0;
            for &link in coflow.links() {
                let bytes = view.demand(slot, link);
                // Few links have more to do than all before them: no division for the others.
                if bytes > gamma * residual.capacity(link) {
                    gamma = bytes / residual.capacity(link);
                }
                takes.push(bytes);
            }
            if gamma <= 0.0 {
                takes.truncate(begin);
                continue;
            }
            let share = coflow.weight() / gamma;
            for (&link, take) in coflow.links().iter().zip(&mut takes[begin..]) {
                *take *= share;
                let claim = &mut claims[link.index()];
                if claim.coflows == 0 {
                    claimed.push(link);
                }
                claim.sum += *take;
                claim.coflows += 1;
            }
            open.push(Open { slot, share, takes: begin });
        }
    }

    /// The link that is full first as the progress of all open coflows rises, and their progress per weight then.
    fn first_full(&mut self, residual: &Residual) -> Option<(LinkId, f64)> {
        let (mut least, mut best) = (f64::INFINITY, None);
        let claims = &self.claims;
        self.claimed.retain(|&link| {
            let (left, claim) = (residual.left(link), claims[link.index()].sum);
            // A link that is full but for dust has no more than dust to give to those still open.
            if left <= 0.0 || claim <= 0.0 {
                return false;
            }
            // The same as `left / claim < least`, but divides only where the link is a new minimum.
            if left < least * claim {
                (least, best) = (left / claim, Some((link, left / claim)));
            }
            true
        });
        best
    }
}
