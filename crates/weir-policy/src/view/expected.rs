//! Demand that is known before its flows open.
//!
//! # Problem
//! A framework opens the flows of a coflow bit by bit: tasks come in waves, and each asks for some megabytes at a time. What
//! is open says little of what is to come, and a policy that orders by what is left takes the largest coflow for a small one.
//!
//! # Approach
//! The driver that knows what is to come says it, by link. It counts for the order of coflows, as what is left does; rates are for
//! flows that are open, and none is kept for others.

use super::Coflow;
use super::place::Slot;
use super::table::CoflowTable;
use weir_model::LinkId;

impl CoflowTable {
    /// Says what of a live coflow is still to come by links, in bytes above 0, in place of what was said before. Panics on a
    /// link that the table does not have.
    pub fn expect(&mut self, slot: Slot, by_link: Vec<(LinkId, f64)>) {
        assert!(by_link.iter().all(|(link, _)| link.index() < self.links), "links of the table");
        self.coflow_mut(slot).expected = by_link;
    }
}

impl Coflow {
    /// Bytes whose flows are not open yet, by link; each link once.
    #[inline]
    pub fn expected(&self) -> &[(LinkId, f64)] {
        &self.expected
    }
}

#[cfg(test)]
mod tests {
    use crate::{CoflowTable, Plan, registry};
    use weir_model::{Bytes, CoflowId, CoflowSpec, Fabric, FlowId, FlowSpec, HostId, LinkId, Rate, Time};

    /// Rates under a policy of two coflows that send from host 0, at 100 bytes/s: the first has 1000 bytes open, the second
    /// 2000; of the first so much is to come.
    fn rates(policy: &str, to_come: &[(LinkId, f64)]) -> [f64; 2] {
        let fabric = Fabric::big_switch(4, Rate::from_bytes_per_sec(100.0)).unwrap();
        let mut table = CoflowTable::new(&fabric);
        let flow = |destination, size| FlowSpec {
            source: HostId(0),
            destination: HostId(destination),
            size: Bytes(size),
            group: 0,
        };
        let first =
            table.insert(&CoflowSpec::new(CoflowId(1), Time::ZERO, vec![flow(1, 1000)]), FlowId(1), &fabric);
        table.insert(&CoflowSpec::new(CoflowId(2), Time::ZERO, vec![flow(2, 2000)]), FlowId(2), &fabric);
        table.expect(first, to_come.to_vec());
        let mut policy = registry().iter().find(|info| info.name == policy).expect("a policy").create();
        let mut plan = Plan::default();
        policy.plan(Time::ZERO, &fabric, &table, &mut plan);
        table.adopt(&plan);
        let mut rates = [0.0; 2];
        plan.for_each_rate(&table, |at, rate| {
            rates[table.flow(at).id().0 as usize - 1] = rate.bytes_per_sec();
        });
        rates
    }

    /// Alone, the first needs 10 s and the second 20. With 500 bytes more it needs 15 s, with 1500 more 25 s; 4000 into host 3,
    /// which nothing of it goes to yet, take it 40 s.
    #[test]
    fn what_is_to_come_counts_for_the_order_on_the_link_where_it_comes() {
        for policy in ["varys", "varys-critical-path"] {
            let uplink = LinkId(0);
            assert_eq!(rates(policy, &[]), [100.0, 0.0], "{policy}");
            assert_eq!(rates(policy, &[(uplink, 500.0)]), [100.0, 0.0], "{policy}");
            assert_eq!(rates(policy, &[(uplink, 1500.0)]), [0.0, 100.0], "{policy}");
            assert_eq!(rates(policy, &[(LinkId(7), 1500.0)]), [100.0, 0.0], "{policy}");
            assert_eq!(rates(policy, &[(LinkId(7), 4000.0)]), [0.0, 100.0], "{policy}");
        }
    }
}
