//! Ancestors before their descendants, and otherwise another order (Varys, SIGCOMM 2014, section 8, "Handling
//! Coflow Dependencies").
//!
//! # Problem
//! In a pipeline two stages of a job transfer at the same time, and the later one cannot be complete before the
//! earlier one is. Where its coflow is the smaller, SEBF serves it first: its job gains nothing, and others wait.
//!
//! # Approach
//! Go through the coflows by the other order, and hold back each until all those that it descends from have gone.
//!
//! # Terminology
//! * ancestors of a coflow: what it was said to descend from ([`weir_model::Dependencies::ancestors`]), as far as
//!   they are live.
//!
//! # Pseudo-code
//! ```text
//! waits[c] = number of live ancestors of c
//! for c by the other order:
//!     if waits[c] is 0: put(c)
//! put(c):
//!     append c; waits[d] -= 1 for each d that descends from c
//!     put whichever of them was passed over and waits for none now, the first by the other order first
//! ```
//!
//! # Properties
//! * A coflow never goes before an ancestor; a descendant is pushed back, and no coflow is pulled forward.
//! * Without ancestors among the live coflows it is the other order, at the cost of one look at the table.
//! * No coflow is left out: coflows that descend from each other keep the other order, behind all others.
//!
//! # Departures
//! The paper: "order first by ancestry and then breaking ties using SEBF". Read as an order by generation over all
//! jobs, every first stage would go before every second one, and jobs near their end would wait for those that just
//! came. Here ancestry decides only between coflows of which one descends from the other.

use super::Order;
use crate::{CoflowTable, Slot};
use std::collections::BTreeSet;
use weir_model::Fabric;

/// An order in which ancestors come first.
pub struct AncestorsFirst {
    order: Box<dyn Order>,
}

impl AncestorsFirst {
    /// Another order, but for coflows that descend from others.
    pub fn new(order: Box<dyn Order>) -> AncestorsFirst {
        AncestorsFirst { order }
    }
}

impl Order for AncestorsFirst {
    fn set_fabric(&mut self, fabric: &Fabric) {
        self.order.set_fabric(fabric);
    }

    fn sort(&mut self, view: &CoflowTable, sorted: &mut Vec<Slot>) {
        self.order.sort(view, sorted);
        if view.has_related_coflows() {
            let ranks = Lineage::of(view, sorted).ancestors_first();
            *sorted = ranks.into_iter().map(|rank| sorted[rank]).collect();
        }
    }
}

/// Which coflow descends from which, by rank in the other order.
struct Lineage {
    descendants: Vec<Vec<usize>>,
    /// How many ancestors of each have not gone yet.
    waits: Vec<usize>,
}

impl Lineage {
    fn of(view: &CoflowTable, sorted: &[Slot]) -> Lineage {
        let mut rank_of = vec![0; view.slot_bound()];
        sorted.iter().enumerate().for_each(|(rank, slot)| rank_of[slot.0 as usize] = rank);
        let mut lineage =
            Lineage { descendants: vec![Vec::new(); sorted.len()], waits: vec![0; sorted.len()] };
        for (rank, &slot) in sorted.iter().enumerate() {
            let stated = &view.coflow(slot).dependencies().ancestors;
            let live = stated.iter().filter_map(|&ancestor| view.find_coflow(ancestor));
            // A set without the coflow itself: an ancestor that is named twice, or itself, would be waited for in vain.
            let ancestors: BTreeSet<Slot> = live.filter(|&ancestor| ancestor != slot).collect();
            lineage.waits[rank] = ancestors.len();
            for ancestor in ancestors {
                lineage.descendants[rank_of[ancestor.0 as usize]].push(rank);
            }
        }
        lineage
    }

    /// All ranks, so that each comes behind those of its ancestors.
    fn ancestors_first(mut self) -> Vec<usize> {
        let count = self.waits.len();
        let mut order = Vec::with_capacity(count);
        let mut gone = vec![false; count];
        let mut free = BTreeSet::new();
        for rank in 0..count {
            if self.waits[rank] == 0 {
                free.insert(rank);
            }
            while let Some(next) = free.pop_first() {
                order.push(next);
                gone[next] = true;
                for &descendant in &self.descendants[next] {
                    self.waits[descendant] -= 1;
                    // Later ranks are left to the loop over ranks: freed now, a descendant would pass coflows that come before it.
                    if self.waits[descendant] == 0 && descendant < rank {
                        free.insert(descendant);
                    }
                }
            }
        }
        // What is left are coflows that descend from each other in a circle, and their descendants.
        order.extend((0..count).filter(|&rank| !gone[rank]));
        order
    }
}

#[cfg(test)]
mod tests {
    use super::super::Sebf;
    use super::*;
    use weir_model::{Bytes, CoflowId, CoflowSpec, Dependencies, FlowId, FlowSpec, HostId, Rate, Time};

    /// Coflows by id after sorting; given are id, size and ancestors of each.
    fn sorted(coflows: &[(u64, u64, &[u64])]) -> Vec<u64> {
        let fabric = Fabric::big_switch(2, Rate::from_bytes_per_sec(1.0)).expect("a fabric");
        let mut table = CoflowTable::new(&fabric);
        for &(id, size, ancestors) in coflows {
            let flow = FlowSpec { source: HostId(0), destination: HostId(1), size: Bytes(size), group: 0 };
            let ancestors = ancestors.iter().map(|&id| CoflowId(id)).collect();
            let dependencies = Dependencies { ancestors, ..Dependencies::default() };
            let base = CoflowSpec::new(CoflowId(id), Time::ZERO, vec![flow]);
            table.insert(&CoflowSpec { dependencies, ..base }, FlowId(id), &fabric);
        }
        let mut order = AncestorsFirst::new(Box::<Sebf>::default());
        order.set_fabric(&fabric);
        let mut slots = Vec::new();
        order.sort(&table, &mut slots);
        slots.into_iter().map(|slot| table.coflow(slot).id().0).collect()
    }

    #[test]
    fn a_descendant_goes_right_behind_its_last_ancestor() {
        // By size 2, 3, 1, 4; 2 descends from 1, so it goes once 1 has, and still before 4.
        assert_eq!(sorted(&[(1, 50, &[]), (2, 10, &[1]), (3, 30, &[]), (4, 70, &[])]), [3, 1, 2, 4]);
        // A chain, smallest last stage first: 3 behind 2 behind 1. The ancestor 9 is not live.
        assert_eq!(sorted(&[(1, 50, &[]), (2, 10, &[1, 9]), (3, 5, &[1, 2]), (4, 20, &[])]), [4, 1, 2, 3]);
        // 4 descends from two and waits for the later, 3 only from the first.
        assert_eq!(sorted(&[(1, 20, &[]), (2, 40, &[]), (3, 9, &[1]), (4, 5, &[1, 2])]), [1, 3, 2, 4]);
    }

    #[test]
    fn coflows_that_descend_from_each_other_are_not_lost() {
        assert_eq!(sorted(&[(1, 5, &[2]), (2, 3, &[1]), (3, 9, &[3])]), [3, 2, 1]);
    }
}
