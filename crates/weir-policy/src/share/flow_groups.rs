//! Coflow after coflow, and within each the flow groups in turn: Largest Flow Group First (Siphon, USENIX ATC 2018,
//! section 3.2).
//!
//! # Problem
//! A reducer begins when the last of its flows is there, and computes the longer the more it got. Flows of one
//! coflow that share a link decide by their order which reducer begins first, though not when the last byte comes.
//!
//! # Approach
//! The reducer with the most data has the most left to do after it has read: it reads first.
//!
//! # Terminology
//! * flow group: all flows of a coflow to one reducer, which is a task at a host.
//! * size of a group: bytes of all its flows, ended ones too, so that no group overtakes another by being served.
//!
//! # Pseudo-code
//! ```text
//! for coflow in order:
//!     for group of coflow by size, largest first; for flow of group by index:
//!         rate = least residual over the links of its path; take it from them
//! ```
//!
//! # Properties
//! * Every live flow crosses a link with nothing left (work conservation).
//! * On fabrics whose paths are of one link, the last byte of a coflow comes at the same time whatever the order of
//!   its groups: its links serve it one after the other, and none waits for another.
//! * Ties break by (destination, group, index).
//! * Cost: flows of the coflows whose links have something left.
//!
//! # Departures
//! None.

use super::Residual;
use crate::{Coflow, CoflowTable, FlowRef, Grant, Plan, Slot};
use std::collections::BTreeMap;
use weir_model::LinkId;

/// In which order a coflow's groups are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupOrder {
    /// Largest Flow Group First.
    LargestFirst,
    /// The reverse, which is what the paper compares with.
    SmallestFirst,
    /// Flows by index, whatever their group.
    ByIndex,
}

/// Grants by strict priority, with the order of every coflow's flows.
#[derive(Debug)]
pub struct FlowGroups {
    order: GroupOrder,
    /// By slot of the coflow.
    known: Vec<Known>,
}

/// Flows of a coflow in the order in which they are served.
#[derive(Clone, Debug, Default)]
struct Known {
    coflow: u64,
    stay: u64,
    /// How many flows it had, ended ones too.
    flows: usize,
    sorted: Vec<u32>,
}

impl FlowGroups {
    /// Groups in this order.
    pub fn new(order: GroupOrder) -> FlowGroups {
        FlowGroups { order, known: Vec::new() }
    }

    /// Adds the grants of all coflows to a plan, in this order.
    pub fn allocate(&mut self, view: &CoflowTable, order: &[Slot], residual: &mut Residual, plan: &mut Plan) {
        for &slot in order {
            // Saves the walk over all flows of a coflow, of which none could get anything.
            if view.coflow(slot).links().iter().all(|&link| residual.left(link) <= 0.0) {
                continue;
            }
            for (flow, path) in self.in_turn(view, slot) {
                let rate = residual.take_all(path);
                if rate > 0.0 {
                    plan.grants.push(Grant { flow, bytes_per_sec: rate });
                }
            }
        }
    }

    /// The live flows of a coflow that cross links, in their turn, with their direct paths.
    pub fn in_turn<'a>(
        &'a mut self,
        view: &'a CoflowTable,
        slot: Slot,
    ) -> impl Iterator<Item = (FlowRef, &'a [LinkId])> + 'a {
        if self.known.len() < view.slot_bound() {
            self.known.resize_with(view.slot_bound(), Known::default);
        }
        let coflow = view.coflow(slot);
        let sorted = self.known[slot.0 as usize].follow(view, coflow, self.order);
        sorted.iter().filter_map(move |&flow| {
            let class = coflow.flows()[flow as usize].class()?;
            Some((FlowRef { coflow: slot, flow }, &**view.classes()[class.index()].path()))
        })
    }
}

impl Known {
    /// The live flows in order, sorted anew if some joined.
    fn follow(&mut self, view: &CoflowTable, coflow: &Coflow, order: GroupOrder) -> &[u32] {
        let (id, stay, flows) = (coflow.id().0, coflow.stay(), coflow.flows().len());
        if (self.coflow, self.stay, self.flows) != (id, stay, flows) {
            *self = Known { coflow: id, stay, flows, sorted: Vec::new() };
            self.sort(view, coflow, order);
        }
        self.sorted.retain(|&flow| coflow.flows()[flow as usize].live());
        &self.sorted
    }

    fn sort(&mut self, view: &CoflowTable, coflow: &Coflow, order: GroupOrder) {
        let group_of = |flow: u32| {
            let flow = &coflow.flows()[flow as usize];
            let destination = flow.class().map(|class| view.classes()[class.index()].destination());
            (destination, flow.group())
        };
        self.sorted = (0..coflow.flows().len() as u32).collect();
        let mut bytes = BTreeMap::new();
        for &flow in &self.sorted {
            *bytes.entry(group_of(flow)).or_insert(0u64) += coflow.flows()[flow as usize].size().0;
        }
        match order {
            GroupOrder::LargestFirst => self.sorted.sort_by_key(|&flow| {
                let group = group_of(flow);
                // The sort is stable: flows of one group stay in the order of their index.
                (std::cmp::Reverse(bytes[&group]), group)
            }),
            GroupOrder::SmallestFirst => self.sorted.sort_by_key(|&flow| {
                let group = group_of(flow);
                (bytes[&group], group)
            }),
            GroupOrder::ByIndex => {}
        }
    }
}
