//! The flows that cross some links, and what a plan gives them together.
//!
//! # Problem
//! A coordinator asks for the flows on a few links, and for what these links still have free, with every plan. There may be
//! a hundred times as many flows in the table as there are on these links.
//!
//! # Approach
//! The link of a host is crossed by the flows from that host, or to it: rows and columns of a coflow hold them. For
//! other links, and where most flows of a coflow are asked for anyway, its flows are looked at one by one.
//!
//! Sums of rates come from what the table keeps for the form of the last plan (see the documentation of `view`).
//!
//! # Pseudo-code
//! ```text
//! rate(link), drains and grants: sum over coflows on the link of drain * bytes left without a grant + sum of grants
//! rate(link), levels: sum over path classes on the link of live flows * least level of the path
//! rate(link), shares: sum over coflows of level * weight of its meter, where the link limits all flows of the coflow or
//!     none can move; else sum over the flows of the coflow on the link
//! ```
//!
//! # Properties
//! * Flows and sums are those that a look at every flow finds, sums up to rounding, right after a plan was adopted
//!   (`flows_and_rates_on_links_are_those_of_a_look_at_every_flow`). Later, a flow that should have ended by its grant
//!   counts no more in the sum.
//! * Cost of a sum over drains and grants: one term per coflow and link asked for that it crosses. Over levels: the number
//!   of hosts per link asked for, of path classes, or of flows, whichever is least.

use super::coflow::Flow;
use super::place::NONE;
use super::{Class, Coflow, CoflowTable, Slot};
use crate::bits::{BitSet, members_of};
use weir_model::{LinkId, LinkKind, Path};

impl CoflowTable {
    /// Finds the live flows of a coflow that cross one of some links, each once, by rising index. What `found` held
    /// before is gone.
    pub fn find_flows_on(&self, slot: Slot, links: &BitSet, found: &mut Vec<u32>) {
        found.clear();
        let coflow = self.coflow(slot);
        let (mut visits, mut at_hosts) = (0, true);
        for link in coflow.link_set().common(links) {
            visits += coflow.loads[link].flows as usize;
            at_hosts &= self.classes.is_of_host(link);
        }
        if visits == 0 {
            return;
        }
        // Rows and columns hold only hosts' links, and where most flows are asked for one pass over all costs less.
        if !at_hosts || visits >= coflow.live_flows() {
            let asked = |link: &LinkId| links.contains(link.index());
            let crosses =
                |flow: &Flow| flow.class.is_some_and(|class| self.path(class.index()).iter().any(asked));
            let flows = (0u32..).zip(coflow.flows());
            found.extend(flows.filter(|(_, flow)| flow.live && crosses(flow)).map(|(index, _)| index));
            return;
        }
        for link in coflow.link_set().common(links) {
            coflow.for_each_at_host(self.classes.kinds[link], |flow| found.push(flow));
        }
        found.sort_unstable();
        // A flow is found at its uplink and at its downlink, if both are asked for.
        found.dedup();
    }

    fn path(&self, class: usize) -> &Path {
        &self.classes.all[class].path
    }

    /// Adds what flows on links move together by the drains and grants, or by the shares, that were adopted.
    pub(crate) fn add_own_rates_on(&self, links: &BitSet, rates: &mut [f64]) {
        for (slot, coflow) in self.coflows() {
            let drain = self.drain(slot);
            for link in coflow.link_set().common(links) {
                let load = &coflow.loads[link];
                rates[link] += match &coflow.paced {
                    Some(paced) => paced.rate_on(LinkId(link as u32), load.flows),
                    // As the rate of a single flow is computed, so that a sum of one is the same to the bit.
                    None => load.base * coflow.scale * drain + load.granted.per_sec(),
                };
            }
        }
    }

    /// Adds what flows on links move together by levels.
    pub(crate) fn add_level_rates_on(&self, levels: &[f64], links: &BitSet, rates: &mut [f64]) {
        let least = |path: &Path| path.iter().map(|link| levels[link.index()]).fold(f64::INFINITY, f64::min);
        let live = |class: &&Class| class.live > 0;
        let by_rows = links.iter().count() * self.hosts;
        let others = self.classes().len().min(self.live_flows());
        if by_rows < others && links.iter().all(|link| self.classes.is_of_host(link)) {
            for link in links.iter() {
                self.classes.for_each_at_host(link, |class| {
                    if live(&class) {
                        rates[link] += least(&class.path) * f64::from(class.live);
                    }
                });
            }
            return;
        }
        let mut add = |path: &Path, flows: u32| {
            let rate = least(path) * f64::from(flows);
            path.iter()
                .filter(|link| links.contains(link.index()))
                .for_each(|link| rates[link.index()] += rate);
        };
        if self.classes().len() <= self.live_flows() {
            self.classes().iter().filter(live).for_each(|class| add(&class.path, class.live));
            return;
        }
        // Most classes are of flows that are gone.
        for (_, coflow) in self.coflows() {
            for class in coflow.flows().iter().filter(|flow| flow.live).filter_map(Flow::class) {
                add(self.path(class.index()), 1);
            }
        }
    }
}

impl Coflow {
    /// Calls `visit` with every live flow on the link of a host; with none for other links.
    fn for_each_at_host(&self, kind: LinkKind, mut visit: impl FnMut(u32)) {
        let mut follow = |head: u32| {
            let mut at = head;
            while at != NONE {
                visit(at);
                at = self.flows[at as usize].next;
            }
        };
        match kind {
            LinkKind::Uplink(host) => {
                let destinations = members_of(self.destinations_of(host.index()));
                destinations.for_each(|other| follow(self.row(host.index()).0.first(other)));
            }
            LinkKind::Downlink(host) => {
                let sources = members_of(self.sources_of(host.index()));
                sources.for_each(|other| follow(self.row(other).0.first(host.index())));
            }
            LinkKind::RackUplink(_) | LinkKind::RackDownlink(_) | LinkKind::Site { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FlowRef, Plan, registry};
    use proptest::prelude::*;
    use weir_model::{
        Bytes, CoflowId, CoflowSpec, Fabric, FlowId, FlowSpec, HostId, RackSpec, Rate, SiteSpec, Span, Time,
    };

    const HOSTS: u32 = 6;
    const CAPACITY: f64 = 1e8;

    /// A switch, racks, sites with links of hosts, and sites without.
    fn fabric(kind: usize) -> Fabric {
        let host_rate = Rate::from_bytes_per_sec(CAPACITY);
        let rates = vec![vec![Rate::from_bytes_per_sec(CAPACITY / 2.0); 3]; 3];
        let sites = |host_rate| SiteSpec { hosts_per_site: vec![2; 3], host_rate, rates: rates.clone() };
        let racks = RackSpec { hosts_per_rack: 2, racks: 3, host_rate, oversubscription: 2.0 };
        match kind {
            0 => Fabric::big_switch(HOSTS, host_rate),
            1 => Fabric::racks(&racks),
            2 => Fabric::sites(&sites(Some(host_rate))),
            _ => Fabric::sites(&sites(None)),
        }
        .unwrap()
    }

    /// Flows and rates on links by a look at every flow.
    fn look(table: &CoflowTable, plan: &Plan, links: &BitSet) -> (Vec<FlowRef>, Vec<f64>) {
        let (mut flows, mut rates) = (Vec::new(), vec![0.0; table.links]);
        plan.for_each_rate(table, |at, rate| {
            let Some(class) = table.flow(at).class() else { return };
            let path = table.classes()[class.index()].path();
            let asked = || path.iter().filter(|link| links.contains(link.index()));
            asked().for_each(|link| rates[link.index()] += rate.bytes_per_sec());
            flows.extend(asked().next().map(|_| at));
        });
        (flows, rates)
    }

    fn check(table: &CoflowTable, plan: &Plan, links: &BitSet, policy: &str) {
        let (flows, rates) = look(table, plan, links);
        let (mut found, mut at_slot, mut sums) = (Vec::new(), Vec::new(), vec![0.0; table.links]);
        for &coflow in table.slots() {
            table.find_flows_on(coflow, links, &mut at_slot);
            found.extend(at_slot.iter().map(|&flow| FlowRef { coflow, flow }));
        }
        assert_eq!(found, flows, "{policy}");
        plan.add_rates_on(table, links, &mut sums);
        let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-6 * CAPACITY;
        assert!(sums.iter().zip(&rates).all(close), "{policy}: {sums:?} instead of {rates:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]
        #[test]
        fn flows_and_rates_on_links_are_those_of_a_look_at_every_flow(
            kind in 0..4usize,
            coflows in prop::collection::vec(
                prop::collection::vec((0..HOSTS, 0..HOSTS, 1_000_000..300_000_000u64), 1..30), 1..8),
            steps in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>(), 0..400u64), 6),
        ) {
            let fabric = fabric(kind);
            for info in registry().iter().filter(|info| !info.between_sites) {
                let (mut table, mut policy) = (CoflowTable::new(&fabric), info.create());
                let (mut plan, mut now) = (Plan::default(), Time::ZERO);
                for (id, flows) in (1u64..).zip(&coflows) {
                    let flow = |&(from, to, size): &(u32, u32, u64)| FlowSpec {
                        source: HostId(from), destination: HostId(to), size: Bytes(size), group: 0,
                    };
                    let spec = CoflowSpec::new(CoflowId(id), Time::ZERO, flows.iter().map(flow).collect());
                    table.insert(&spec, FlowId(id * 1000), &fabric);
                }
                for (pick, words, millis) in &steps {
                    plan.clear();
                    policy.plan(now, &fabric, &table, &mut plan);
                    table.adopt(&plan);
                    let mut links = BitSet::new(table.links);
                    links.fill(table.links);
                    check(&table, &plan, &links, info.name);
                    links.words_mut().iter_mut().for_each(|word| *word &= words);
                    check(&table, &plan, &links, info.name);
                    // Ends that were foreseen may pass without a report.
                    let span = Span::from_millis(*millis);
                    table.advance(&plan, span);
                    now = now + span;
                    let slot = table.slots()[pick.index(table.slots().len())];
                    let live = table.coflow(slot).flows().iter().position(|flow| flow.live);
                    let Some(flow) = live else { continue };
                    let at = FlowRef { coflow: slot, flow: flow as u32 };
                    if millis % 2 == 0 {
                        table.finish_flow(at);
                    } else {
                        table.set_remaining(at, table.remaining(at) / 3.0);
                    }
                }
            }
        }
    }
}
