//! Corrections of what single flows have left, and the sums of their links.
//!
//! # Problem
//! A coordinator hears how far each flow came many times a second. Near its end a flow may be most of what its link has left
//! for its coflow: corrected to nearly nothing it leaves a sum that is mostly rounding. Or it should have ended by its
//! grant, and the report of that is still under way: it stands still then. Computing every sum of the coflow anew
//! for each of its flows takes time with the square of their number: half of all at 1000 hosts.
//!
//! # Approach
//! The sum of that one link is computed anew, from the flows that share a host with the flow in question. The link of a host
//! is crossed by no others, which their number shows; where it does not, as between racks, all sums are computed anew.
//!
//! # Properties
//! * A sum that is computed anew is the one that all flows of the coflow have
//!   (`a_link_summed_by_its_host_has_what_all_flows_have`).

use super::coflow::Flow;
use super::load::Load;
use super::moving::Moving;
use super::place::NONE;
use super::{Class, ClassId, Coflow};
use crate::bits::members;
use weir_model::LinkId;

/// What a table knows of flows beside their coflow.
pub(super) type Beside<'a> = (&'a [Class], &'a Moving);

impl Coflow {
    /// Changes the base of a live flow by `delta`, and the sums of its links with it.
    pub(super) fn shift(&mut self, index: u32, delta: f64, class: ClassId, beside: Beside<'_>) {
        self.flows[index as usize].base += delta;
        for &link in beside.0[class.index()].path.iter() {
            if self.loads[link.index()].take(-delta) {
                match self.load_on_link(link, class, beside) {
                    Some(load) => self.loads[link.index()].base = load.base,
                    None => self.cancelled = true,
                }
            }
        }
        self.roundings += 1;
    }

    /// Sums the grants on a link that a flow of this class crosses: the flow should have ended, and stands still.
    pub(super) fn sum_grants_anew(&mut self, link: LinkId, class: ClassId, beside: Beside<'_>) {
        match self.load_on_link(link, class, beside) {
            Some(load) => self.loads[link.index()].granted = load.granted,
            None => self.cancelled = true,
        }
        self.note_raise();
    }

    /// What a link carries, summed by (source, destination, index) as [`Coflow::refresh`] does; `None` where some of its
    /// flows have neither the source nor the destination of this class.
    fn load_on_link(&self, link: LinkId, class: ClassId, beside: Beside<'_>) -> Option<Load> {
        let ends = &beside.0[class.index()];
        let (source, destination) = (ends.source.index(), ends.destination.index());
        let row = self.rows.get(self.row_of[source] as usize)?;
        // As the source's uplink first; where that misses flows, as the destination's downlink.
        self.load_of_all(link, row.heads().iter().copied(), beside).or_else(|| {
            let words = (0..).zip(self.sources_of(destination));
            let sources = words.flat_map(|(at, &word)| members(word).map(move |bit| at * 64 + bit));
            self.load_of_all(link, sources.map(|source| self.row(source).0.first(destination)), beside)
        })
    }

    /// What the flows of some pairs that cross a link have, if these are all that do.
    fn load_of_all(
        &self,
        link: LinkId,
        heads: impl Iterator<Item = u32>,
        beside: Beside<'_>,
    ) -> Option<Load> {
        let (classes, moving) = beside;
        let crosses =
            |flow: &Flow| flow.class.is_some_and(|class| classes[class.index()].path.contains(&link));
        let mut load = Load::default();
        for head in heads.filter(|&head| head != NONE && crosses(&self.flows[head as usize])) {
            let mut at = head;
            while at != NONE {
                let flow = &self.flows[at as usize];
                match flow.granted {
                    NONE => load.base += flow.base,
                    place => load.add_granted(&moving.line(place)),
                }
                load.flows += 1;
                at = flow.next;
            }
        }
        // Fewer flows than the link has: it is no host's, and others cross it too.
        (load.flows == self.loads[link.index()].flows).then_some(load)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CoflowTable, FlowRef, Slot};
    use super::*;
    use crate::{Grant, Plan};
    use proptest::prelude::*;
    use weir_model::{
        Bytes, CoflowId, CoflowSpec, Fabric, FlowId, FlowSpec, HostId, RackSpec, Rate, Span, Time,
    };

    const HOSTS: u32 = 6;

    #[derive(Clone, Copy, Debug)]
    enum What {
        Ends,
        IsCorrected,
        IsGranted,
        TimePasses,
    }

    fn what() -> impl Strategy<Value = What> {
        prop::sample::select(vec![What::Ends, What::IsCorrected, What::IsGranted, What::TimePasses])
    }

    fn table_of(fabric: &Fabric, flows: &[(u32, u32, u64)]) -> (CoflowTable, Slot) {
        let flow = |&(from, to, size): &(u32, u32, u64)| FlowSpec {
            source: HostId(from),
            destination: HostId(to),
            size: Bytes(size),
            group: 0,
        };
        let spec = CoflowSpec::new(CoflowId(1), Time::ZERO, flows.iter().map(flow).collect());
        let mut table = CoflowTable::new(fabric);
        let slot = table.insert(&spec, FlowId(1), fabric);
        (table, slot)
    }

    /// The sums on a link from all flows of the coflow: bases, and what those with a grant have left.
    fn obvious(table: &CoflowTable, slot: Slot, link: LinkId) -> (f64, f64) {
        let crosses = |class: ClassId| table.classes()[class.index()].path.contains(&link);
        let on = |flow: &&Flow| flow.live() && flow.class().is_some_and(crosses);
        let flows = || table.coflow(slot).flows().iter().filter(on);
        let granted = flows().filter(|flow| flow.granted != NONE);
        (flows().map(|flow| flow.base).sum(), granted.map(|flow| table.moving.left(flow.granted)).sum())
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * (a.abs() + b.abs())
    }

    proptest! {
        #[test]
        fn a_link_summed_by_its_host_has_what_all_flows_have(
            flows in prop::collection::vec((0..HOSTS, 0..HOSTS, 1..1_000_000_000_000u64), 1..40),
            changes in prop::collection::vec((any::<prop::sample::Index>(), what(), 1e-6..1e12f64), 0..40),
            racks in any::<bool>(),
        ) {
            let rate = Rate::from_bits_per_sec(1e9);
            let fabric = if racks {
                let spec = RackSpec { hosts_per_rack: 3, racks: 2, host_rate: rate, oversubscription: 2.0 };
                Fabric::racks(&spec).unwrap()
            } else {
                Fabric::big_switch(HOSTS, rate).unwrap()
            };
            let (mut table, slot) = table_of(&fabric, &flows);
            for (pick, what, left) in changes {
                let at = FlowRef { coflow: slot, flow: pick.index(flows.len()) as u32 };
                match (table.flow(at).live(), what) {
                    (true, What::Ends) => table.finish_flow(at),
                    (true, What::IsCorrected) => table.set_remaining(at, left),
                    (true, What::IsGranted) => {
                        let grants = vec![Grant { flow: at, bytes_per_sec: left }];
                        table.adopt(&Plan { continues: true, grants, ..Plan::default() });
                    }
                    // Some flows are overdue then, and stand still.
                    (true, What::TimePasses) => table.advance(&Plan::default(), Span::from_millis(100)),
                    (false, _) => {}
                }
            }
            let (coflow, classes) = (table.coflow(slot), table.classes());
            for class in coflow.flows().iter().filter(|flow| flow.live()).filter_map(Flow::class) {
                let path = classes[class.index()].path;
                for (place, &link) in path.iter().enumerate() {
                    let load = coflow.load_on_link(link, class, (classes, &table.moving));
                    let is_of_host = place == 0 || place + 1 == path.len();
                    prop_assert!(load.is_some() || !is_of_host, "link {link} of a host is summed by its host");
                    let Some(load) = load else { continue };
                    let (base, granted) = obvious(&table, slot, link);
                    prop_assert!(close(load.base, base), "bases of link {link}");
                    prop_assert!(close(load.granted.at(table.moving.clock), granted), "grants of link {link}");
                }
            }
        }
    }

    #[test]
    fn corrections_to_nearly_nothing_leave_sums_without_rounding() {
        // Each host sends the next 10 TB in one flow and 1 byte in another. Of the latter a third is left, then of the
        // first as well. Numbers near 1e13 have steps of a five-hundredth: a sum that is only taken from keeps the third as
        // 0.334 and not as 0.333.
        let fabric = Fabric::big_switch(HOSTS, Rate::from_bits_per_sec(1e9)).unwrap();
        let pair = |host| [10_000_000_000_000, 1].map(|size| (host, (host + 1) % HOSTS, size));
        let flows: Vec<_> = (0..HOSTS).flat_map(pair).collect();
        let (mut table, slot) = table_of(&fabric, &flows);
        let raises = table.coflow(slot).raises();
        for host in 0..HOSTS {
            let [large, small] = [0, 1].map(|flow| FlowRef { coflow: slot, flow: 2 * host + flow });
            table.set_remaining(small, 1.0 / 3.0);
            table.set_remaining(large, 1.0 / 3.0);
            let left = table.remaining(large) + table.remaining(small);
            let class = table.flow(large).class().unwrap();
            for &link in &*table.classes()[class.index()].path {
                assert_eq!(table.demand(slot, link), left);
            }
        }
        // One for each correction: sums of other links were not computed anew.
        assert_eq!(table.coflow(slot).raises(), raises + 2 * u64::from(HOSTS));
    }
}
