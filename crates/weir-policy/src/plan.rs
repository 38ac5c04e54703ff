//! What a policy decides, in compact form.

use crate::view::{ClassId, CoflowTable, FlowRef, Slot};
use weir_model::{LinkId, Rate};

/// Bytes per second for one flow on top of what its coflow's drain gives it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grant {
    /// The flow.
    pub flow: FlowRef,
    /// Its extra rate.
    pub bytes_per_sec: f64,
}

/// The rates of all live flows from one event to the next, without a list of them.
///
/// A flow's rate is `drain of its coflow * bytes it has left + its grant`, or, in a plan with levels,
/// the least level of the links of its path. A plan has levels or it has drains and grants, never both.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Coflows that move as a whole: every flow moves `drain * bytes left` per second, so that all its
    /// flows end together after `1 / drain` seconds (MADD). At most one entry per coflow, above 0.
    pub drains: Vec<(Slot, f64)>,
    /// Flows with extra rate (backfilled); at most one entry per flow, above 0.
    pub grants: Vec<Grant>,
    /// Per link, the rate of the flows that it limits; empty in a plan of drains and grants. Infinite
    /// where a link limits nobody.
    pub levels: Vec<f64>,
    /// Path classes whose limiting link is not the one of the last plan (levels only).
    pub switched: Vec<(ClassId, LinkId)>,
}

impl Plan {
    /// Empties the plan, keeping its memory.
    pub fn clear(&mut self) {
        self.drains.clear();
        self.grants.clear();
        self.levels.clear();
        self.switched.clear();
    }

    /// The rate of one flow; 0 if it has ended, infinite if it crosses no link. Searches the plan: to
    /// expand a whole plan use [`Plan::for_each_rate`].
    pub fn rate(&self, view: &CoflowTable, at: FlowRef) -> Rate {
        let drain = self.drains.iter().find(|(slot, _)| *slot == at.coflow).map_or(0.0, |&(_, drain)| drain);
        let grant: f64 =
            self.grants.iter().filter(|grant| grant.flow == at).map(|grant| grant.bytes_per_sec).sum();
        self.rate_from(view, at, drain, grant)
    }

    fn rate_from(&self, view: &CoflowTable, at: FlowRef, drain: f64, grant: f64) -> Rate {
        let flow = view.flow(at);
        let rate = match flow.class() {
            _ if !flow.live() => 0.0,
            None => f64::INFINITY,
            Some(class) if !self.levels.is_empty() => {
                let path = view.classes()[class.index()].path();
                path.iter().map(|link| self.levels[link.index()]).fold(f64::INFINITY, f64::min)
            }
            Some(_) => drain * view.remaining(at) + grant,
        };
        Rate::from_bytes_per_sec(rate)
    }

    /// Calls `visit` with every live flow and its rate, coflows by (arrival, id), flows by index.
    pub fn for_each_rate(&self, view: &CoflowTable, mut visit: impl FnMut(FlowRef, Rate)) {
        let mut drains = vec![0.0; view.slot_bound()];
        for &(slot, drain) in &self.drains {
            drains[slot.0 as usize] = drain;
        }
        let mut grants: Vec<&Grant> = self.grants.iter().collect();
        grants.sort_unstable_by_key(|grant| grant.flow);
        for (slot, coflow) in view.coflows() {
            let mut at = grants.partition_point(|grant| grant.flow.coflow < slot);
            for flow in (0u32..).zip(coflow.flows()).filter(|(_, flow)| flow.live()).map(|(index, _)| index) {
                let flow = FlowRef { coflow: slot, flow };
                while grants.get(at).is_some_and(|grant| grant.flow < flow) {
                    at += 1;
                }
                let granted = grants.get(at).filter(|grant| grant.flow == flow);
                let grant = granted.map_or(0.0, |grant| grant.bytes_per_sec);
                visit(flow, self.rate_from(view, flow, drains[slot.0 as usize], grant));
            }
        }
    }
}
