//! Few classes of strict priority for coflows in order: what switches have (Sincronia, SIGCOMM 2018).
//!
//! # Problem
//! A switch serves a handful of classes, one after the other, and coflows are hundreds. Whatever changes its class has to be said
//! to all its senders.
//!
//! # Approach
//! Only coflows that share a link meet. Each has the class behind those before it in the order with which it shares a link, so
//! that a few classes tell many coflows apart; what finds no class is in the last one, together. A class is kept as long as that
//! puts no other coflow in the last.
//!
//! # Terminology
//! * bound: the class behind all those of coflows before it with which a coflow shares a link; the last one at most.
//!
//! # Pseudo-code
//! ```text
//! those that go first, as they are to meet deadlines: class 0
//! least = for coflow in order: its bound
//! kept  = for coflow in order: the class that it had, if that is not before its bound, nor the last; else its bound
//! classes = kept, unless it has more coflows in the last class than least has; else least
//! ```
//!
//! # Properties
//! * Coflows that go first are in class 0 together. Of two others that share a link the one that comes first in the order is in no later class, and in an earlier one unless
//!   both are in the last.
//! * Nothing that keeps them in order has fewer coflows in the last class, and which those are depends on nothing that was before:
//!   kept has all of them that least has, so that as many are the same ones.
//! * The same coflows in the same order keep their classes.
//!
//! # Departures
//! Sincronia gives the first coflows of the order a class each, and the others the last. Here coflows that do not meet may have the same.

use crate::bits::BitSet;
use crate::{CoflowTable, Slot};

/// Classes of live coflows.
#[derive(Debug)]
pub struct Classes {
    count: u32,
    /// By slot: id of the coflow that had it last, and its class.
    had: Vec<(u64, u32)>,
    /// Coflows as last put into classes, in their order.
    placed: Vec<(Slot, u32)>,
    /// Links of the coflows of each class, of those that were placed so far.
    links: Vec<BitSet>,
}

impl Classes {
    /// So many classes, at least one, without coflows.
    pub fn new(count: u32) -> Classes {
        Classes { count: count.max(1), had: Vec::new(), placed: Vec::new(), links: Vec::new() }
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Puts all live coflows into classes: some into the first, all others in this order.
    pub fn assign(&mut self, view: &CoflowTable, first: &[Slot], order: &[Slot]) {
        let least = self.place(view, first, order, false);
        let kept = self.place(view, first, order, true);
        self.placed = if self.in_last(&kept) > self.in_last(&least) { least } else { kept };
        self.had.clear();
        self.had.resize(view.slot_bound(), (u64::MAX, 0));
        for &(slot, class) in &self.placed {
            self.had[slot.0 as usize] = (view.coflow(slot).id().0, class);
        }
    }

    /// Coflows with their classes, counted from 0, in the order in which they were assigned, those that go first before others.
    pub fn placed(&self) -> &[(Slot, u32)] {
        &self.placed
    }

    fn in_last(&self, placed: &[(Slot, u32)]) -> usize {
        placed.iter().filter(|&&(_, class)| class + 1 == self.count).count()
    }

    fn place(&mut self, view: &CoflowTable, first: &[Slot], order: &[Slot], keeps: bool) -> Vec<(Slot, u32)> {
        self.links.iter_mut().for_each(BitSet::clear);
        let last = self.count - 1;
        let mut placed = Vec::with_capacity(first.len() + order.len());
        for (at, &slot) in first.iter().chain(order).enumerate() {
            let coflow = view.coflow(slot);
            let before = self.links.iter().rposition(|links| links.intersects(coflow.link_set()));
            let bound = before.map_or(0, |class| class as u32 + 1).min(last);
            let had = self.had.get(slot.0 as usize).filter(|(id, _)| *id == coflow.id().0);
            let kept = had.map(|&(_, class)| class).filter(|class| keeps && (bound..last).contains(class));
            let class = if at < first.len() { 0 } else { kept.unwrap_or(bound) };
            if self.links.len() <= class as usize {
                self.links.resize_with(class as usize + 1, BitSet::default);
            }
            self.links[class as usize].unite(coflow.link_set());
            placed.push((slot, class));
        }
        placed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_model::{Bytes, CoflowId, CoflowSpec, Fabric, FlowId, FlowSpec, HostId, Rate, Time};

    const HOSTS: u32 = 5;

    /// Coflows by id, each of flows from one host to another; in the order of their ids unless said.
    struct Live {
        fabric: Fabric,
        table: CoflowTable,
        next: u64,
    }

    impl Live {
        fn new() -> Live {
            let fabric = Fabric::big_switch(HOSTS, Rate::from_bytes_per_sec(1.0)).unwrap();
            Live { table: CoflowTable::new(&fabric), fabric, next: 0 }
        }

        fn add(&mut self, id: u64, flows: &[(u32, u32)]) {
            let flow = |&(from, to): &(u32, u32)| FlowSpec {
                source: HostId(from),
                destination: HostId(to),
                size: Bytes(10),
                group: 0,
            };
            let flows: Vec<FlowSpec> = flows.iter().map(flow).collect();
            let first = FlowId(self.next);
            self.next += flows.len() as u64;
            self.table.insert(&CoflowSpec::new(CoflowId(id), Time::ZERO, flows), first, &self.fabric);
        }

        fn end(&mut self, id: u64) {
            let slot = self.table.find_coflow(CoflowId(id)).unwrap();
            self.table.remove(slot);
        }

        /// Ids and classes, in the order of ids.
        fn assigned(&self, classes: &mut Classes) -> Vec<(u64, u32)> {
            classes.assign(&self.table, &[], self.table.slots());
            classes.placed().iter().map(|&(slot, class)| (self.table.coflow(slot).id().0, class)).collect()
        }
    }

    #[test]
    fn only_coflows_that_meet_are_told_apart() {
        let mut live = Live::new();
        live.add(1, &[(0, 1)]);
        live.add(2, &[(2, 3)]);
        live.add(3, &[(0, 3)]);
        live.add(4, &[(4, 1), (4, 2)]);
        live.add(5, &[(4, 3)]);
        // 3 meets 1 at its sender and 2 at its receiver; 4 meets 1; 5 meets 4 and 3.
        let all = [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2)];
        assert_eq!(live.assigned(&mut Classes::new(8)), all);
        assert_eq!(live.assigned(&mut Classes::new(2)), [(1, 0), (2, 0), (3, 1), (4, 1), (5, 1)]);
        assert!(live.assigned(&mut Classes::new(1)).iter().all(|&(_, class)| class == 0));
    }

    #[test]
    fn a_class_is_kept_until_that_puts_another_coflow_in_the_last() {
        let (mut live, mut classes) = (Live::new(), Classes::new(5));
        (1..=4).for_each(|id| live.add(id, &[(0, 1)]));
        assert_eq!(live.assigned(&mut classes), [(1, 0), (2, 1), (3, 2), (4, 3)]);
        live.end(1);
        assert_eq!(live.assigned(&mut classes), [(2, 1), (3, 2), (4, 3)]);
        // Who comes first in the order finds the class before them free.
        live.add(0, &[(0, 1)]);
        let mut order: Vec<Slot> = live.table.slots().to_vec();
        order.sort_by_key(|&slot| live.table.coflow(slot).id());
        classes.assign(&live.table, &[], &order);
        assert_eq!(classes.placed().iter().map(|&(_, class)| class).collect::<Vec<_>>(), [0, 1, 2, 3]);
        live.end(0);
        live.add(5, &[(0, 1)]);
        // It would be in the last class: all move up.
        assert_eq!(live.assigned(&mut classes), [(2, 0), (3, 1), (4, 2), (5, 3)]);
    }

    #[test]
    fn those_that_go_first_are_in_the_first_class_together_and_others_behind_them() {
        let mut live = Live::new();
        (1..=2).for_each(|id| live.add(id, &[(0, 1)]));
        live.add(3, &[(0, 2)]);
        live.add(4, &[(3, 4)]);
        let slots: Vec<Slot> = (1..=4).map(|id| live.table.find_coflow(CoflowId(id)).unwrap()).collect();
        let mut classes = Classes::new(8);
        classes.assign(&live.table, &[slots[1], slots[2]], &[slots[0], slots[3]]);
        assert_eq!(classes.placed(), [(slots[1], 0), (slots[2], 0), (slots[0], 1), (slots[3], 0)]);
    }

    proptest! {
        #[test]
        fn those_that_meet_are_in_order_and_as_few_as_can_be_are_in_the_last(
            coflows in prop::collection::vec(prop::collection::vec((0..HOSTS, 0..HOSTS), 1..4), 1..14),
            ends in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
            count in 1u32..6,
        ) {
            let (mut live, mut classes) = (Live::new(), Classes::new(count));
            for (id, flows) in (1..).zip(&coflows) {
                live.add(id, flows);
                live.assigned(&mut classes);
            }
            for end in &ends {
                let slots = live.table.slots();
                if !slots.is_empty() {
                    let id = live.table.coflow(*end.get(slots)).id().0;
                    live.end(id);
                }
                let placed = live.assigned(&mut classes);
                prop_assert_eq!(&live.assigned(&mut classes), &placed, "they stay");
                let slot = |id: u64| live.table.find_coflow(CoflowId(id)).unwrap();
                let links = |id: u64| live.table.coflow(slot(id)).link_set();
                for (at, &(second, after)) in placed.iter().enumerate() {
                    for &(first, before) in &placed[..at] {
                        if links(first).intersects(links(second)) {
                            prop_assert!(before < after || (before == after && after + 1 == count));
                        }
                    }
                }
                let last = |placed: &[(u64, u32)]| -> Vec<u64> {
                    placed.iter().filter(|(_, class)| class + 1 == count).map(|(id, _)| *id).collect()
                };
                // Without a past every coflow has the least class that it can have.
                prop_assert_eq!(last(&placed), last(&live.assigned(&mut Classes::new(count))));
            }
        }
    }
}
