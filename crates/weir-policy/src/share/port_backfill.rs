//! The backfill that Varys describes (SIGCOMM 2014, section 5.3.4): per ingress port, in the ratio of rates.
//!
//! # Problem
//! As [`super::Backfill`].
//!
//! # Approach
//! What MADD left of an ingress port goes to the coflows that send there, one after the other; a coflow's flows
//! share it in the ratio of their rates, as far as the rest of their paths allows.
//!
//! # Pseudo-code
//! ```text
//! for port by number:
//!     for coflow in order that MADD lets send there:
//!         rest = what is left of the port
//!         for flow of coflow there, by (source, destination, index):
//!             extra = least of (rest * rate / sum of rates there) and of what is left of its other links
//!             take it from its links; grant = rate + extra
//! ```
//!
//! # Properties
//! * Coflows that MADD passed over get nothing, and what an egress port refuses a flow is not offered to others
//!   of its coflow: not work-conserving.
//! * One grant per flow that gets more than MADD gave it, so a plan is as long as its coflows are wide.
//!
//! # Departures
//! The ingress port of a flow is the first link of its path, also where hosts have no links of their own.

use super::Residual;
use crate::{CoflowTable, FlowRef, Grant, Plan, Slot};
use weir_model::LinkId;

/// The backfill, with its memory.
#[derive(Debug, Default)]
pub struct PortBackfill {
    senders: Vec<Sender>,
}

/// A flow that MADD gave a rate, in the order of the walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Sender {
    port: LinkId,
    rank: usize,
    source: u32,
    destination: u32,
    flow: FlowRef,
}

impl PortBackfill {
    /// Adds grants to a plan of drains, coflows in this order.
    pub fn allocate(&mut self, view: &CoflowTable, order: &[Slot], residual: &mut Residual, plan: &mut Plan) {
        let mut drains = vec![0.0; view.slot_bound()];
        plan.drains.iter().for_each(|&(slot, drain)| drains[slot.0 as usize] = drain);
        self.senders.clear();
        for (rank, &slot) in order.iter().enumerate().filter(|(_, slot)| drains[slot.0 as usize] > 0.0) {
            self.collect(view, rank, slot, residual);
        }
        self.senders.sort_unstable();
        for group in self.senders.chunk_by(|a, b| (a.port, a.rank) == (b.port, b.rank)) {
            let drain = drains[group[0].flow.coflow.0 as usize];
            share(view, group, drain, residual, plan);
        }
    }

    /// The flows of a coflow whose port has something left.
    fn collect(&mut self, view: &CoflowTable, rank: usize, slot: Slot, residual: &Residual) {
        for (flow, entry) in (0u32..).zip(view.coflow(slot).flows()).filter(|(_, flow)| flow.live()) {
            let Some(class) = entry.class().map(|class| &view.classes()[class.index()]) else { continue };
            let port = class.path()[0];
            if residual.left(port) > 0.0 {
                let (source, destination) = (class.source().0, class.destination().0);
                let flow = FlowRef { coflow: slot, flow };
                self.senders.push(Sender { port, rank, source, destination, flow });
            }
        }
    }
}

/// Shares what is left of a port among the flows of one coflow.
fn share(view: &CoflowTable, group: &[Sender], drain: f64, residual: &mut Residual, plan: &mut Plan) {
    let rest = residual.left(group[0].port);
    let total: f64 = group.iter().map(|sender| view.remaining(sender.flow)).sum();
    for sender in group {
        let Some(class) = view.flow(sender.flow).class() else { continue };
        let path = view.classes()[class.index()].path();
        // Rates of one coflow under MADD are what is left times one drain, so the ratio of what is left is the ratio of rates.
        let left = view.remaining(sender.flow);
        let extra = (rest * left / total).min(residual.least(path));
        if extra > 0.0 {
            path.iter().for_each(|&link| residual.take(link, extra));
            plan.grants.push(Grant { flow: sender.flow, bytes_per_sec: drain * left + extra });
        }
    }
}
