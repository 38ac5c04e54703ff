//! The rates of flows under a plan that the table has adopted.

use super::{CoflowTable, FlowRef};
use crate::bits::BitSet;
use crate::{Form, Plan};
use weir_model::Rate;

impl Plan {
    /// The rate of one flow once the table has adopted the plan; 0 if it has ended, infinite if it crosses
    /// no link.
    pub fn rate(&self, view: &CoflowTable, at: FlowRef) -> Rate {
        let flow = view.flow(at);
        let rate = match flow.class() {
            _ if !flow.live() => 0.0,
            None => f64::INFINITY,
            Some(class) if self.form == Form::Levels => {
                let path = view.classes()[class.index()].path();
                path.iter().map(|link| self.levels[link.index()]).fold(f64::INFINITY, f64::min)
            }
            Some(_) => view.own_rate(at),
        };
        Rate::from_bytes_per_sec(rate)
    }

    /// Adds to `rates`, in the place of each of some links, the bytes per second that all live flows on it get together,
    /// once the table has adopted the plan and before it advances. See `view/crossing.rs` for the cost.
    pub fn add_rates_on(&self, view: &CoflowTable, links: &BitSet, rates: &mut [f64]) {
        if self.form == Form::Levels {
            view.add_level_rates_on(&self.levels, links, rates);
        } else {
            view.add_own_rates_on(links, rates);
        }
    }

    /// Calls `visit` with every live flow and its rate once the table has adopted the plan, coflows by
    /// (arrival, id), flows by index.
    pub fn for_each_rate(&self, view: &CoflowTable, mut visit: impl FnMut(FlowRef, Rate)) {
        for (slot, coflow) in view.coflows() {
            for (flow, _) in (0u32..).zip(coflow.flows()).filter(|(_, flow)| flow.live()) {
                let at = FlowRef { coflow: slot, flow };
                visit(at, self.rate(view, at));
            }
        }
    }
}
