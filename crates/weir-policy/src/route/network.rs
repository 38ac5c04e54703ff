//! The links between sites of a fabric, and what a coflow has to move over them.

use super::{MAX_SITES, SiteDemand};
use crate::{Class, CoflowTable, FlowRef, Slot};
use weir_model::{Fabric, LinkId};

/// Sites of a fabric and the links between them.
#[derive(Clone, Debug, Default)]
pub struct SiteNetwork {
    sites: usize,
    /// Per host, its site; none of hosts that are in no site.
    site_of: Vec<Option<u32>>,
    /// By sending, then receiving site; none on the diagonal.
    links: Vec<Option<LinkId>>,
    /// As `links`: bytes per second, 0 on the diagonal.
    capacity: Vec<f64>,
}

/// A pair of sites, as an index.
pub type Pair = (usize, usize);

impl SiteNetwork {
    /// Takes over the links of a fabric; without sites there are none, and where there are more than [`MAX_SITES`]
    /// nothing is routed but directly.
    pub fn of(fabric: &Fabric) -> SiteNetwork {
        let sites = fabric.site_count();
        // Tables of routes grow with the third power of the sites; without a network all flows go directly.
        if sites as usize > MAX_SITES {
            return SiteNetwork::default();
        }
        let pairs = (0..sites).flat_map(|from| (0..sites).map(move |to| (from, to)));
        let links: Vec<Option<LinkId>> = pairs.map(|(from, to)| fabric.between(from, to)).collect();
        let capacity = |link: &Option<LinkId>| link.map_or(0.0, |link| fabric.capacity(link).bytes_per_sec());
        let hosts = (0..fabric.hosts()).map(weir_model::HostId);
        SiteNetwork {
            sites: sites as usize,
            site_of: hosts.map(|host| fabric.site_of(host)).collect(),
            capacity: links.iter().map(capacity).collect(),
            links,
        }
    }

    /// Number of sites; 0 if the fabric has none, or more than [`MAX_SITES`].
    pub fn sites(&self) -> usize {
        self.sites
    }

    /// The link between two different sites.
    pub fn link(&self, from: usize, to: usize) -> Option<LinkId> {
        self.links[from * self.sites + to]
    }

    /// Whether a link is one between sites.
    pub fn is_between_sites(&self, link: LinkId) -> bool {
        // They are the last links of a fabric, in the order of pairs.
        self.links.iter().flatten().next().is_some_and(|&first| link >= first)
    }

    /// The sites that a live flow goes between; `None` where it stays in one, or has ended.
    pub fn pair(&self, view: &CoflowTable, at: FlowRef) -> Option<Pair> {
        let flow = view.flow(at);
        self.pair_of(&view.classes()[flow.class().filter(|_| flow.live())?.index()])
    }

    fn pair_of(&self, class: &Class) -> Option<Pair> {
        let site = |host: weir_model::HostId| {
            self.site_of.get(host.index()).copied().flatten().map(|site| site as usize)
        };
        let (from, to) = (site(class.source())?, site(class.destination())?);
        (from != to).then_some((from, to))
    }

    /// The links of a flow's path by another next hop, given those of its direct path. By its own site there is no
    /// other path.
    pub fn path(&self, direct: &[LinkId], pair: Pair, next_hop: usize, path: &mut Vec<LinkId>) {
        path.clear();
        let between = self.link(pair.0, pair.1);
        for &link in direct {
            if Some(link) == between {
                path.extend(super::links(pair, next_hop).filter_map(|(from, to)| self.link(from, to)));
            } else {
                path.push(link);
            }
        }
    }

    /// What a coflow has left to move between sites, over links that carry all they can. `None` if it has nothing.
    pub fn demand(&self, view: &CoflowTable, slot: Slot) -> Option<SiteDemand> {
        self.demand_by(view, slot, |at| view.flow(at).live().then(|| view.remaining(at)))
    }

    /// What it had to move when it was whole.
    pub fn whole_demand(&self, view: &CoflowTable, slot: Slot) -> Option<SiteDemand> {
        self.demand_by(view, slot, |at| Some(view.flow(at).size().0 as f64))
    }

    /// The sum over the flows between sites of what `bytes` says of each; `None` where it says nothing of any.
    fn demand_by(
        &self,
        view: &CoflowTable,
        slot: Slot,
        bytes: impl Fn(FlowRef) -> Option<f64>,
    ) -> Option<SiteDemand> {
        let mut sums = vec![0.0; self.links.len()];
        let mut any = false;
        for flow in 0..view.coflow(slot).flows().len() as u32 {
            let at = FlowRef { coflow: slot, flow };
            let Some(bytes) = bytes(at) else { continue };
            let class = view.flow(at).class().map(|class| &view.classes()[class.index()]);
            if let Some((from, to)) = class.and_then(|class| self.pair_of(class)) {
                sums[from * self.sites + to] += bytes;
                any = true;
            }
        }
        any.then(|| SiteDemand { sites: self.sites, capacity: self.capacity.clone(), bytes: sums })
    }

    /// What it has left to move, over links that have so much left.
    pub fn demand_on(
        &self,
        view: &CoflowTable,
        slot: Slot,
        left: impl Fn(LinkId) -> f64,
    ) -> Option<SiteDemand> {
        let mut demand = self.demand(view, slot)?;
        for (capacity, link) in demand.capacity.iter_mut().zip(&self.links) {
            *capacity = link.map_or(0.0, &left);
        }
        Some(demand)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::{Bytes, CoflowId, CoflowSpec, FlowId, FlowSpec, HostId, Rate, SiteSpec, Time};

    #[test]
    fn a_host_without_a_site_puts_no_other_into_a_wrong_one() {
        let rate = Rate::from_bytes_per_sec(1e6);
        let mut fabric = Fabric::big_switch(3, rate).unwrap();
        fabric.join_sites(0, 1, rate).unwrap();
        fabric.join_sites(1, 0, rate).unwrap();
        let hosts = [0, 1, 2].map(HostId);
        fabric.move_host(hosts[1], None, Some(0));
        fabric.move_host(hosts[2], None, Some(1));
        let network = SiteNetwork::of(&fabric);
        let mut table = CoflowTable::new(&fabric);
        let flow = |source, destination| FlowSpec { source, destination, size: Bytes(1), group: 0 };
        let flows = vec![flow(hosts[1], hosts[2]), flow(hosts[2], hosts[1]), flow(hosts[0], hosts[1])];
        let coflow = table.insert(&CoflowSpec::new(CoflowId(1), Time::ZERO, flows), FlowId(0), &fabric);
        let pairs = [0, 1, 2].map(|flow| network.pair(&table, FlowRef { coflow, flow }));
        assert_eq!(pairs, [Some((0, 1)), Some((1, 0)), None]);
    }

    #[test]
    fn more_sites_than_tables_of_routes_have_room_for_are_not_routed() {
        let network = |sites: usize| {
            let rates = vec![vec![Rate::from_bytes_per_sec(1.0); sites]; sites];
            let spec = SiteSpec { hosts_per_site: vec![1; sites], host_rate: None, rates };
            SiteNetwork::of(&Fabric::sites(&spec).unwrap())
        };
        assert_eq!((network(MAX_SITES).sites(), network(MAX_SITES + 1).sites()), (MAX_SITES, 0));
    }
}
