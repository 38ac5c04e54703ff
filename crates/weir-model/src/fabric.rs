//! The network: directed links with capacities, and the paths over them.

use crate::{HostId, LinkId, Rate, Time};
use std::collections::BTreeMap;
use std::fmt;

/// Most links a path may have: host uplink, rack or site links of a one-relay detour, host downlink.
pub const MAX_PATH_LINKS: usize = 6;

/// What a link stands for, so that people can read reports and status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkKind {
    /// From a host into the fabric (the fabric's ingress port).
    Uplink(HostId),
    /// From the fabric to a host (the fabric's egress port).
    Downlink(HostId),
    /// From a rack into the core; racks count from 0.
    RackUplink(u32),
    /// From the core into a rack.
    RackDownlink(u32),
    /// From one site to another; sites count from 0.
    Site {
        /// Number of the sending site.
        from: u32,
        /// Number of the receiving site.
        to: u32,
    },
}

impl fmt::Display for LinkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkKind::Uplink(host) => write!(f, "host {host} up"),
            LinkKind::Downlink(host) => write!(f, "host {host} down"),
            LinkKind::RackUplink(rack) => write!(f, "rack {rack} up"),
            LinkKind::RackDownlink(rack) => write!(f, "rack {rack} down"),
            LinkKind::Site { from, to } => write!(f, "site {from} to site {to}"),
        }
    }
}

/// A directed link, and what it can carry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// What it stands for.
    pub kind: LinkKind,
    /// Payload bytes per second it can carry, above 0.
    pub capacity: Rate,
}

/// A link gets another capacity, as links between sites do all the time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CapacityChange {
    /// Time from which the other capacity holds.
    pub at: Time,
    /// Link that gets another capacity.
    pub link: LinkId,
    /// Its capacity from then on, above 0.
    pub capacity: Rate,
}

/// The links one flow crosses, in order; at least 1 and at most [`MAX_PATH_LINKS`], none twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    links: [LinkId; MAX_PATH_LINKS],
    len: u8,
}

impl Path {
    /// The path over the links that there are; `None` without any.
    fn through(links: [Option<LinkId>; MAX_PATH_LINKS]) -> Option<Path> {
        let mut path = Path { links: [LinkId(0); MAX_PATH_LINKS], len: 0 };
        for link in links.into_iter().flatten() {
            path.links[usize::from(path.len)] = link;
            path.len += 1;
        }
        (path.len > 0).then_some(path)
    }
}

impl std::ops::Deref for Path {
    type Target = [LinkId];
    #[inline]
    fn deref(&self) -> &[LinkId] {
        &self.links[..usize::from(self.len)]
    }
}

/// Racks of hosts below a core that may be oversubscribed.
#[derive(Clone, Debug, PartialEq)]
pub struct RackSpec {
    /// Hosts in each rack; host ids count through the racks in order.
    pub hosts_per_rack: u32,
    /// Number of racks below the core.
    pub racks: u32,
    /// Capacity of every host link, each direction.
    pub host_rate: Rate,
    /// How many times more host capacity a rack has than capacity to the core: 1 is full bisection.
    pub oversubscription: f64,
}

/// Sites joined by one directed link per ordered pair.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteSpec {
    /// Hosts in each site; host ids count through the sites in order.
    pub hosts_per_site: Vec<u32>,
    /// Capacity of every host link, each direction; `None` leaves hosts unconstrained.
    pub host_rate: Option<Rate>,
    /// `rates[from][to]`: capacity between sites; the diagonal is ignored.
    pub rates: Vec<Vec<Rate>>,
}

/// Where a host is attached.
#[derive(Clone, Debug, PartialEq)]
struct Place {
    /// Its uplink and its downlink; none where hosts are not constrained.
    links: Option<[LinkId; 2]>,
    /// Its rack; without one it is attached to the core.
    rack: Option<u32>,
    /// Its site; without one no link between sites is on a way to it.
    site: Option<u32>,
}

/// A network of directed links and, for every ordered pair of hosts, the paths over them.
///
/// Hosts are attached to a core that carries all they can send: directly, or below racks whose links to it may be
/// oversubscribed. Where there are sites each has a core of its own, and they are joined pairwise, with one-relay detours.
///
/// A link keeps its id, and a host its own, whatever is added later or gets another capacity. A network that nothing was
/// added to has the links of host h at 2h and 2h + 1, then those of racks, then those between sites. Between sites that were
/// not joined nothing limits what is sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Fabric {
    links: Vec<Link>,
    hosts: Vec<Place>,
    /// Uplink and downlink of every rack.
    racks: Vec<[LinkId; 2]>,
    /// Links from one site to another.
    between: BTreeMap<(u32, u32), LinkId>,
    /// Number of sites, none where the network is not one of sites.
    sites: u32,
    shape: u64,
}

/// Why a fabric cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FabricError {
    /// There is no host.
    NoHosts,
    /// A capacity (or the oversubscription) is not a finite number above 0.
    BadCapacity(String),
    /// The matrix of rates between sites is not square in the number of sites.
    BadMatrix {
        /// Number of sites in the specification.
        sites: usize,
    },
    /// Sites without constrained hosts have no link for traffic inside a site; at least two are needed.
    OneSite,
}

impl fmt::Display for FabricError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FabricError::NoHosts => write!(f, "a fabric needs at least one host"),
            FabricError::BadCapacity(what) => write!(f, "{what} must be a finite number above 0"),
            FabricError::BadMatrix { sites } => {
                write!(f, "rates between {sites} sites must be {sites} rows of {sites} values")
            }
            FabricError::OneSite => write!(f, "a fabric of sites needs at least two"),
        }
    }
}
impl std::error::Error for FabricError {}

fn check(rate: Rate, what: impl fmt::Display) -> Result<(), FabricError> {
    let value = rate.bytes_per_sec();
    if value.is_finite() && value > 0.0 { Ok(()) } else { Err(FabricError::BadCapacity(what.to_string())) }
}

impl Fabric {
    /// A switch without hosts, to which they will be added.
    pub fn without_hosts() -> Fabric {
        let (links, hosts, racks) = (Vec::new(), Vec::new(), Vec::new());
        Fabric { links, hosts, racks, between: BTreeMap::new(), sites: 0, shape: 0 }
    }

    /// One non-blocking switch: `hosts` hosts with an uplink and a downlink of `rate` each.
    ///
    /// # Errors
    /// `hosts` is 0, or `rate` is not a finite number above 0.
    pub fn big_switch(hosts: u32, rate: Rate) -> Result<Fabric, FabricError> {
        Fabric::big_switch_with(&vec![rate; hosts as usize])
    }

    /// One non-blocking switch with a link rate per host, the same in both directions.
    ///
    /// # Errors
    /// There are no rates, or one is not a finite number above 0.
    pub fn big_switch_with(rates: &[Rate]) -> Result<Fabric, FabricError> {
        let mut fabric = Fabric::without_hosts();
        for &rate in rates {
            fabric.add_host(rate, rate, None)?;
        }
        fabric.finish()
    }

    /// Racks below a core.
    ///
    /// # Errors
    /// There are no hosts, or the host rate, or what racks get by it and the oversubscription, is not a finite number above 0.
    pub fn racks(spec: &RackSpec) -> Result<Fabric, FabricError> {
        let mut fabric = Fabric::without_hosts();
        for host in 0..spec.hosts_per_rack * spec.racks {
            fabric.attach(spec.host_rate, spec.host_rate, Some(host / spec.hosts_per_rack), None)?;
        }
        let capacity = spec.host_rate.scaled(f64::from(spec.hosts_per_rack) / spec.oversubscription);
        check(capacity, "the oversubscription of the racks")?;
        for _ in 0..spec.racks {
            fabric.add_rack(capacity, capacity)?;
        }
        fabric.finish()
    }

    /// Sites joined pairwise: one link per ordered pair of different sites, by sending then receiving site.
    ///
    /// # Errors
    /// There are fewer than 2 sites or no hosts, `rates` is not square in the number of sites, or a rate is not a finite number above 0.
    pub fn sites(spec: &SiteSpec) -> Result<Fabric, FabricError> {
        let sites = spec.hosts_per_site.len();
        if sites < 2 {
            return Err(FabricError::OneSite);
        }
        if spec.rates.len() != sites || spec.rates.iter().any(|row| row.len() != sites) {
            return Err(FabricError::BadMatrix { sites });
        }
        let mut fabric = Fabric::without_hosts();
        for (site, &count) in (0u32..).zip(&spec.hosts_per_site) {
            for _ in 0..count {
                match spec.host_rate {
                    Some(rate) => {
                        fabric.attach(rate, rate, None, Some(site))?;
                    }
                    None => fabric.hosts.push(Place { links: None, rack: None, site: Some(site) }),
                }
            }
        }
        for (from, row) in (0u32..).zip(&spec.rates) {
            for (to, &capacity) in (0u32..).zip(row).filter(|&(to, _)| to != from) {
                fabric.join_sites(from, to, capacity)?;
            }
        }
        fabric.finish()
    }

    /// A network as it was built counts as its first shape.
    fn finish(mut self) -> Result<Fabric, FabricError> {
        self.shape = 0;
        if self.hosts.is_empty() { Err(FabricError::NoHosts) } else { Ok(self) }
    }

    fn add_link(&mut self, kind: LinkKind, capacity: Rate) -> Result<LinkId, FabricError> {
        let what: &dyn fmt::Display = match &kind {
            LinkKind::Uplink(host) | LinkKind::Downlink(host) => &format!("the link rate of host {host}"),
            LinkKind::Site { from, to } => &format!("the rate from site {from} to site {to}"),
            LinkKind::RackUplink(rack) | LinkKind::RackDownlink(rack) => {
                &format!("the link rate of rack {rack}")
            }
        };
        check(capacity, what)?;
        self.links.push(Link { kind, capacity });
        Ok(LinkId(self.links.len() as u32 - 1))
    }

    fn attach(
        &mut self,
        up: Rate,
        down: Rate,
        rack: Option<u32>,
        site: Option<u32>,
    ) -> Result<HostId, FabricError> {
        let host = HostId(self.hosts.len() as u32);
        let uplink = self.add_link(LinkKind::Uplink(host), up)?;
        let links = match self.add_link(LinkKind::Downlink(host), down) {
            Ok(downlink) => Some([uplink, downlink]),
            Err(e) => {
                self.links.pop();
                return Err(e);
            }
        };
        self.hosts.push(Place { links, rack, site });
        self.shape += 1;
        Ok(host)
    }

    /// Adds a host with links of its own, below a rack or at the core, and of no site. Panics if there is no such rack.
    ///
    /// # Errors
    /// `up` or `down` is not a finite number above 0; the fabric then stays as it was.
    pub fn add_host(&mut self, up: Rate, down: Rate, rack: Option<u32>) -> Result<HostId, FabricError> {
        assert!(rack.is_none_or(|rack| (rack as usize) < self.racks.len()), "a rack of the fabric");
        self.attach(up, down, rack, None)
    }

    /// Adds the link from one site to another, or gives it another capacity if there is one. Panics if both are the same.
    ///
    /// # Errors
    /// `capacity` is not a finite number above 0; the fabric then stays as it was.
    pub fn join_sites(&mut self, from: u32, to: u32, capacity: Rate) -> Result<LinkId, FabricError> {
        assert_ne!(from, to, "no link joins a site to itself");
        if let Some(link) = self.between(from, to) {
            return self.set_capacity(link, capacity).map(|()| link);
        }
        let link = self.add_link(LinkKind::Site { from, to }, capacity)?;
        self.sites = self.sites.max(from.max(to) + 1);
        self.between.insert((from, to), link);
        self.shape += 1;
        Ok(link)
    }

    /// Adds a rack with links of its own to the core, and says which it is.
    ///
    /// # Errors
    /// `up` or `down` is not a finite number above 0; the fabric then stays as it was.
    pub fn add_rack(&mut self, up: Rate, down: Rate) -> Result<u32, FabricError> {
        let rack = self.racks.len() as u32;
        let uplink = self.add_link(LinkKind::RackUplink(rack), up)?;
        match self.add_link(LinkKind::RackDownlink(rack), down) {
            Ok(downlink) => self.racks.push([uplink, downlink]),
            Err(e) => {
                self.links.pop();
                return Err(e);
            }
        }
        self.shape += 1;
        Ok(rack)
    }

    /// Puts a host below another rack, or at the core, and into another site, or none. Panics if there is no such host or
    /// rack.
    pub fn move_host(&mut self, host: HostId, rack: Option<u32>, site: Option<u32>) {
        assert!(rack.is_none_or(|rack| (rack as usize) < self.racks.len()), "a rack of the fabric");
        let place = &mut self.hosts[host.index()];
        if (place.rack, place.site) != (rack, site) {
            (place.rack, place.site) = (rack, site);
            self.shape += 1;
        }
    }

    /// A number that is another one after hosts or links were added or paths changed.
    #[inline]
    pub fn shape(&self) -> u64 {
        self.shape
    }

    /// Number of hosts; their ids count from 0.
    pub fn hosts(&self) -> u32 {
        self.hosts.len() as u32
    }

    /// All links; a [`LinkId`] is an index into them.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// Capacity of a link.
    pub fn capacity(&self, link: LinkId) -> Rate {
        self.links[link.index()].capacity
    }

    /// Number of racks; 0 where all hosts are at the core.
    pub fn rack_count(&self) -> u32 {
        self.racks.len() as u32
    }

    /// The rack that a host is below; `None` where it is attached to the core. Panics if the host is not of this fabric.
    pub fn rack_of(&self, host: HostId) -> Option<u32> {
        self.hosts[host.index()].rack
    }

    /// A rack's links to and from the core. Panics if there is no such rack.
    pub fn rack_links(&self, rack: u32) -> [LinkId; 2] {
        self.racks[rack as usize]
    }

    /// Number of sites; none where the fabric is not one of sites.
    pub fn site_count(&self) -> u32 {
        self.sites
    }

    /// The site that a host is in; `None` where it is in none. Panics if the host is not of this fabric.
    pub fn site_of(&self, host: HostId) -> Option<u32> {
        self.hosts[host.index()].site
    }

    /// The link from one site to another; `None` between a site and itself, and between sites that are not joined.
    pub fn between(&self, from: u32, to: u32) -> Option<LinkId> {
        self.between.get(&(from, to)).copied()
    }

    /// The link from a host into the fabric; `None` where hosts are not constrained, or there is no such host.
    pub fn uplink(&self, host: HostId) -> Option<LinkId> {
        self.hosts.get(host.index())?.links.map(|[up, _]| up)
    }

    /// The link from the fabric to a host; `None` where hosts are not constrained, or there is no such host.
    pub fn downlink(&self, host: HostId) -> Option<LinkId> {
        self.hosts.get(host.index())?.links.map(|[_, down]| down)
    }

    /// Whether every path is the source's uplink and the destination's downlink, and these are links 2h and 2h + 1 of
    /// host h.
    pub fn is_switch(&self) -> bool {
        let in_place = |(host, place): (usize, &Place)| {
            let links = [LinkId(2 * host as u32), LinkId(2 * host as u32 + 1)];
            place.links == Some(links) && place.rack.is_none()
        };
        self.between.is_empty()
            && self.links.len() == 2 * self.hosts.len()
            && self.hosts.iter().enumerate().all(in_place)
    }

    /// Gives a link another capacity, as when foreign traffic takes a part of it. Panics if there is no such link.
    ///
    /// # Errors
    /// `capacity` is not a finite number above 0; the link then keeps the one that it had.
    pub fn set_capacity(&mut self, link: LinkId, capacity: Rate) -> Result<(), FabricError> {
        let link = &mut self.links[link.index()];
        check(capacity, format_args!("the capacity of {}", link.kind))?;
        link.capacity = capacity;
        Ok(())
    }

    /// The same network with every capacity multiplied by `share` (above 0), as when headers or foreign
    /// traffic take a part of every link.
    pub fn scaled(&self, share: f64) -> Fabric {
        let mut fabric = self.clone();
        for link in &mut fabric.links {
            link.capacity = link.capacity.scaled(share);
        }
        fabric
    }

    /// The direct path between two hosts; `None` where traffic crosses no link (two unconstrained hosts
    /// of one site). Panics if a host is not of this fabric.
    pub fn path(&self, source: HostId, destination: HostId) -> Option<Path> {
        let (from, to) = self.ends(source, destination);
        let between = from.site.zip(to.site).and_then(|(from, to)| self.between(from, to));
        Path::through(self.core_links(from, to, [between, None]))
    }

    /// All paths between two hosts, the direct one first, then one-relay detours by relay site. Panics
    /// if a host is not of this fabric.
    pub fn paths(&self, source: HostId, destination: HostId) -> Vec<Path> {
        let mut paths: Vec<Path> = self.path(source, destination).into_iter().collect();
        let (from, to) = self.ends(source, destination);
        let Some(sites) = from.site.zip(to.site).filter(|(from, to)| from != to) else { return paths };
        paths.extend((0..self.site_count()).filter_map(|relay| {
            let detour = [self.between(sites.0, relay)?, self.between(relay, sites.1)?];
            Path::through(self.core_links(from, to, detour.map(Some)))
        }));
        paths
    }

    fn ends(&self, source: HostId, destination: HostId) -> (&Place, &Place) {
        let place = |host: HostId| self.hosts.get(host.index()).expect("a host of the fabric");
        (place(source), place(destination))
    }

    /// The links on a way between two hosts that crosses some between sites.
    fn core_links(
        &self,
        from: &Place,
        to: &Place,
        between: [Option<LinkId>; 2],
    ) -> [Option<LinkId>; MAX_PATH_LINKS] {
        let beyond_rack = from.rack != to.rack || from.site != to.site;
        let of_rack =
            |place: &Place| place.rack.filter(|_| beyond_rack).map(|rack| self.racks[rack as usize]);
        [
            from.links.map(|[up, _]| up),
            of_rack(from).map(|[up, _]| up),
            between[0],
            between[1],
            of_rack(to).map(|[_, down]| down),
            to.links.map(|[_, down]| down),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(value: f64) -> Rate {
        Rate::from_bytes_per_sec(value)
    }
    fn kinds(fabric: &Fabric, path: &Path) -> Vec<LinkKind> {
        path.iter().map(|link| fabric.links()[link.index()].kind).collect()
    }

    #[test]
    fn big_switch_path_is_uplink_then_downlink_also_for_rack_local_flows() {
        let fabric = Fabric::big_switch(3, rate(1.0)).unwrap();
        let path = fabric.path(HostId(2), HostId(2)).unwrap();
        assert_eq!(kinds(&fabric, &path), [LinkKind::Uplink(HostId(2)), LinkKind::Downlink(HostId(2))]);
    }

    #[test]
    fn oversubscribed_racks_add_two_links_between_racks_and_none_inside() {
        // 4 hosts of rate 1 per rack, oversubscription 2: 4 / 2 = 2 to the core.
        let spec = RackSpec { hosts_per_rack: 4, racks: 2, host_rate: rate(1.0), oversubscription: 2.0 };
        let fabric = Fabric::racks(&spec).unwrap();
        let across = fabric.path(HostId(1), HostId(6)).unwrap();
        assert_eq!(
            kinds(&fabric, &across),
            [
                LinkKind::Uplink(HostId(1)),
                LinkKind::RackUplink(0),
                LinkKind::RackDownlink(1),
                LinkKind::Downlink(HostId(6))
            ]
        );
        assert_eq!(fabric.capacity(across[1]), rate(2.0));
        assert_eq!(fabric.path(HostId(1), HostId(3)).unwrap().len(), 2);
    }

    #[test]
    fn sites_have_a_direct_path_and_one_detour_per_other_site() {
        let rates = vec![vec![rate(1.0), rate(2.0), rate(3.0)]; 3];
        let spec = SiteSpec { hosts_per_site: vec![1, 2, 1], host_rate: None, rates };
        let fabric = Fabric::sites(&spec).unwrap();
        let paths = fabric.paths(HostId(0), HostId(3));
        assert_eq!(kinds(&fabric, &paths[0]), [LinkKind::Site { from: 0, to: 2 }]);
        assert_eq!(
            kinds(&fabric, &paths[1]),
            [LinkKind::Site { from: 0, to: 1 }, LinkKind::Site { from: 1, to: 2 }]
        );
        assert_eq!(paths.len(), 2);
        assert_eq!(fabric.path(HostId(1), HostId(2)), None);
        assert_eq!([1, 2].map(|host| fabric.site_of(HostId(host))), [Some(1), Some(1)]);
        assert_eq!(
            (fabric.between(0, 2), fabric.between(2, 2), fabric.between(0, 3)),
            (Some(paths[0][0]), None, None)
        );
    }

    #[test]
    fn racks_of_sites_send_through_both_and_hosts_without_a_site_through_none() {
        let mut fabric = Fabric::without_hosts();
        for _ in 0..4 {
            fabric.add_host(rate(1.0), rate(1.0), None).unwrap();
        }
        let rack = fabric.add_rack(rate(2.0), rate(2.0)).unwrap();
        fabric.move_host(HostId(0), Some(rack), Some(0));
        fabric.move_host(HostId(1), None, Some(1));
        fabric.move_host(HostId(2), Some(rack), Some(0));
        let shape = fabric.shape();
        let there = fabric.join_sites(0, 1, rate(3.0)).unwrap();
        assert_ne!(fabric.shape(), shape);
        assert_eq!(fabric.join_sites(0, 1, rate(4.0)), Ok(there), "the link keeps its id");
        assert_eq!(fabric.capacity(there), rate(4.0));
        let between = |from, to| kinds(&fabric, &fabric.path(HostId(from), HostId(to)).unwrap());
        let up = [LinkKind::Uplink(HostId(0)), LinkKind::RackUplink(0)];
        assert_eq!(
            between(0, 1),
            [up[0], up[1], LinkKind::Site { from: 0, to: 1 }, LinkKind::Downlink(HostId(1))]
        );
        assert_eq!(between(0, 2), [up[0], LinkKind::Downlink(HostId(2))], "inside the rack");
        assert_eq!(between(0, 3), [up[0], up[1], LinkKind::Downlink(HostId(3))], "no site");
        assert_eq!(between(1, 2).len(), 3, "no link leads back");
        assert!(!fabric.is_switch());
    }

    #[test]
    fn a_link_may_lose_capacity_but_not_all_of_it() {
        let mut fabric = Fabric::big_switch(2, rate(8.0)).unwrap();
        let down = fabric.downlink(HostId(1)).unwrap();
        assert_eq!(fabric.set_capacity(down, rate(3.0)), Ok(()));
        assert!(fabric.set_capacity(down, rate(0.0)).is_err());
        let capacities: Vec<f64> = fabric.links().iter().map(|link| link.capacity.bytes_per_sec()).collect();
        assert_eq!(capacities, [8.0, 8.0, 8.0, 3.0]);
    }

    #[test]
    fn unconstrained_hosts_have_no_links_of_their_own() {
        let rates = vec![vec![rate(1.0); 2]; 2];
        let spec = SiteSpec { hosts_per_site: vec![1, 1], host_rate: None, rates };
        let fabric = Fabric::sites(&spec).unwrap();
        assert_eq!((fabric.uplink(HostId(0)), fabric.downlink(HostId(1))), (None, None));
    }

    #[test]
    fn impossible_fabrics_are_refused_with_a_reason() {
        assert_eq!(Fabric::big_switch(0, rate(1.0)), Err(FabricError::NoHosts));
        assert!(matches!(Fabric::big_switch(2, rate(f64::NAN)), Err(FabricError::BadCapacity(_))));
        let spec = RackSpec { hosts_per_rack: 2, racks: 2, host_rate: rate(1.0), oversubscription: 0.0 };
        assert!(matches!(Fabric::racks(&spec), Err(FabricError::BadCapacity(_))));
    }
}
