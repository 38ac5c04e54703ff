//! A table whose network gets other hosts, links or paths while coflows move.
//!
//! # Problem
//! Hosts come and racks change while coflows are live. What was moved so far must not be lost with the old network.
//!
//! # Approach
//! Links and path classes keep their ids, flows and coflows their places. So everything that moves is stopped, which leaves
//! every flow with what it has left now, and all that is kept by host or link is made anew from the flows.
//!
//! # Properties
//! * What is left of a flow, and what a coflow attained, is what it was; the next plan is one from the beginning.
//! * Cost: one visit per flow, as when the table was filled.

use super::table::CoflowTable;
use crate::{ClassId, Form, Plan};
use weir_model::Fabric;

impl CoflowTable {
    /// Takes over a network to which hosts or links were added, or in which hosts are elsewhere. Everything stands still
    /// until the next plan is adopted, which is one from the beginning. Panics if the network has fewer hosts or links, or no
    /// path any more between two hosts that had one.
    pub fn refit(&mut self, fabric: &Fabric) {
        let (hosts, links) = (fabric.hosts() as usize, fabric.links().len());
        assert!(hosts >= self.hosts && links >= self.links, "a network keeps its hosts and links");
        self.stop_moving(&Plan::default());
        if self.form != Form::Drains {
            // Levels and shares are kept by link; drains leave every flow with plain bytes.
            self.change_form(Form::Drains);
        }
        (self.hosts, self.links) = (hosts, links);
        self.classes.refit(fabric);
        for at in 0..self.order.len() {
            let slot = self.order[at];
            let (classes, coflow) = (&self.classes.all, self.slots[slot.0 as usize].as_deref_mut());
            let coflow = coflow.expect("a slot in use");
            coflow.forget_links(hosts, links);
            for flow in 0..coflow.flows.len() as u32 {
                coflow.link_anew(flow, |class| {
                    let class = &classes[class.index()];
                    (class.source, class.destination, class.path)
                });
            }
        }
        for class in (0..self.classes.all.len() as u32).map(ClassId) {
            if self.classes.all[class.index()].live > 0 {
                // Policies that keep counts per class must read all of them again.
                self.touch(class, 0);
            }
        }
        self.changes.disturbed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FlowRef, registry};
    use weir_model::{Bytes, CoflowId, CoflowSpec, FlowId, FlowSpec, HostId, Rate, Span, Time};

    fn rate(value: f64) -> Rate {
        Rate::from_bytes_per_sec(value)
    }

    /// Worked out by hand. Hosts 0 to 3 at 100 bytes/s; a coflow sends 1000 bytes from 0 to 1 and 500 from 0 to 2. Under
    /// MADD they take 15 s together. After 3 s the first has 800 left, the second 400. Then host 4 joins, and host 1 moves
    /// below a rack that takes 50 bytes/s from the core: the first needs 16 s from there, the second 12 s of uplink 0 in
    /// all. So the coflow has 16 s to go, and MADD gives them 50 and 25 bytes/s; the 25 that are left of uplink 0 go to the
    /// second. The flow from 4 to 3, which shares no link, goes at 100 bytes/s.
    #[test]
    fn flows_go_on_over_the_new_paths_with_what_they_had_left() {
        let mut fabric = weir_model::Fabric::big_switch(4, rate(100.0)).unwrap();
        let flow = |source, destination, size| FlowSpec {
            source: HostId(source),
            destination: HostId(destination),
            size: Bytes(size),
            group: 0,
        };
        let mut table = CoflowTable::new(&fabric);
        let mut policy = registry().iter().find(|info| info.name == "varys").expect("a policy").create();
        let first = CoflowSpec::new(CoflowId(1), Time::ZERO, vec![flow(0, 1, 1000), flow(0, 2, 500)]);
        let slot = table.insert(&first, FlowId(1), &fabric);
        let mut plan = Plan::default();
        policy.plan(Time::ZERO, &fabric, &table, &mut plan);
        table.adopt(&plan);
        table.advance(&plan, Span::from_millis(3000));

        let joined = fabric.add_host(rate(100.0), rate(100.0), None).unwrap();
        let rack = fabric.add_rack(rate(50.0), rate(50.0)).unwrap();
        fabric.move_host(HostId(1), Some(rack), None);
        table.refit(&fabric);
        let left = |table: &CoflowTable, flow| table.remaining(FlowRef { coflow: slot, flow });
        assert_eq!([0, 1].map(|flow| left(&table, flow).round()), [800.0, 400.0]);
        let second = CoflowSpec::new(CoflowId(2), Time::from_millis(3000), vec![flow(joined.0, 3, 700)]);
        table.insert(&second, FlowId(3), &fabric);
        policy.plan(Time::from_millis(3000), &fabric, &table, &mut plan);
        assert!(!plan.continues);
        table.adopt(&plan);
        let mut rates = Vec::new();
        plan.for_each_rate(&table, |at, rate| {
            rates.push((table.flow(at).id().0, rate.bytes_per_sec().round()))
        });
        rates.sort_by_key(|&(id, _)| id);
        assert_eq!(rates, [(1, 50.0), (2, 50.0), (3, 100.0)]);
    }
}
