//! The network: directed links with capacities, and the paths over them.

use crate::{HostId, LinkId, Rate, Time};
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
        /// Sending site.
        from: u32,
        /// Receiving site.
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

/// A directed link.
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
    /// When.
    pub at: Time,
    /// Which link.
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
    fn new(links: &[LinkId]) -> Path {
        let mut path = Path { links: [LinkId(0); MAX_PATH_LINKS], len: links.len() as u8 };
        path.links[..links.len()].copy_from_slice(links);
        path
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
    /// Number of racks.
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

#[derive(Clone, Debug, PartialEq)]
enum Layout {
    BigSwitch,
    Racks { hosts_per_rack: u32 },
    Sites { site_of: Vec<u32>, sites: u32, hosts_constrained: bool },
}

/// A network of directed links and, for every ordered pair of hosts, the paths over them.
///
/// Three layouts exist: one big switch (an uplink and a downlink per host), racks below a core that may
/// be oversubscribed, and sites joined pairwise with one-relay detours.
#[derive(Clone, Debug, PartialEq)]
pub struct Fabric {
    links: Vec<Link>,
    hosts: u32,
    layout: Layout,
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
        /// Number of sites.
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

/// Uplinks of all hosts, then downlinks of all hosts.
fn host_links(rates: &[Rate]) -> Result<Vec<Link>, FabricError> {
    if rates.is_empty() {
        return Err(FabricError::NoHosts);
    }
    for (host, rate) in rates.iter().enumerate() {
        check(*rate, format_args!("the link rate of host {host}"))?;
    }
    let end = |kind: fn(HostId) -> LinkKind| {
        rates
            .iter()
            .enumerate()
            .map(move |(host, &capacity)| Link { kind: kind(HostId(host as u32)), capacity })
    };
    Ok(end(LinkKind::Uplink).chain(end(LinkKind::Downlink)).collect())
}

impl Fabric {
    /// One non-blocking switch: `hosts` hosts with an uplink and a downlink of `rate` each.
    pub fn big_switch(hosts: u32, rate: Rate) -> Result<Fabric, FabricError> {
        Fabric::big_switch_with(&vec![rate; hosts as usize])
    }

    /// One non-blocking switch with a link rate per host, the same in both directions.
    pub fn big_switch_with(rates: &[Rate]) -> Result<Fabric, FabricError> {
        Ok(Fabric { links: host_links(rates)?, hosts: rates.len() as u32, layout: Layout::BigSwitch })
    }

    /// Racks below a core. Links: host uplinks, host downlinks, rack uplinks, rack downlinks.
    pub fn racks(spec: &RackSpec) -> Result<Fabric, FabricError> {
        let hosts = spec.hosts_per_rack * spec.racks;
        let mut links = host_links(&vec![spec.host_rate; hosts as usize])?;
        let capacity = spec.host_rate.scaled(f64::from(spec.hosts_per_rack) / spec.oversubscription);
        check(capacity, "the oversubscription of the racks")?;
        links.extend((0..spec.racks).map(|rack| Link { kind: LinkKind::RackUplink(rack), capacity }));
        links.extend((0..spec.racks).map(|rack| Link { kind: LinkKind::RackDownlink(rack), capacity }));
        Ok(Fabric { links, hosts, layout: Layout::Racks { hosts_per_rack: spec.hosts_per_rack } })
    }

    /// Sites joined pairwise. Links: host links where hosts are constrained, then one link per ordered
    /// pair of different sites, by sending then receiving site.
    pub fn sites(spec: &SiteSpec) -> Result<Fabric, FabricError> {
        let sites = spec.hosts_per_site.len();
        if sites < 2 {
            return Err(FabricError::OneSite);
        }
        if spec.rates.len() != sites || spec.rates.iter().any(|row| row.len() != sites) {
            return Err(FabricError::BadMatrix { sites });
        }
        let site_of: Vec<u32> = (0u32..)
            .zip(&spec.hosts_per_site)
            .flat_map(|(site, &count)| std::iter::repeat_n(site, count as usize))
            .collect();
        let hosts = site_of.len() as u32;
        let mut links = match spec.host_rate {
            Some(rate) => host_links(&vec![rate; hosts as usize])?,
            None if hosts == 0 => return Err(FabricError::NoHosts),
            None => Vec::new(),
        };
        for (from, row) in spec.rates.iter().enumerate() {
            for (to, &capacity) in row.iter().enumerate().filter(|&(to, _)| to != from) {
                check(capacity, format_args!("the rate from site {from} to site {to}"))?;
                links.push(Link { kind: LinkKind::Site { from: from as u32, to: to as u32 }, capacity });
            }
        }
        let layout =
            Layout::Sites { site_of, sites: sites as u32, hosts_constrained: spec.host_rate.is_some() };
        Ok(Fabric { links, hosts, layout })
    }

    /// Number of hosts.
    pub fn hosts(&self) -> u32 {
        self.hosts
    }

    /// All links; a [`LinkId`] is an index into them.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// Capacity of a link.
    pub fn capacity(&self, link: LinkId) -> Rate {
        self.links[link.index()].capacity
    }

    /// Number of sites; none where the fabric is not one of sites.
    pub fn site_count(&self) -> u32 {
        if let Layout::Sites { sites, .. } = self.layout { sites } else { 0 }
    }

    /// The site that a host is in; `None` where the fabric is not one of sites. Panics if the host is not of this
    /// fabric.
    pub fn site_of(&self, host: HostId) -> Option<u32> {
        if let Layout::Sites { site_of, .. } = &self.layout { Some(site_of[host.index()]) } else { None }
    }

    /// The link from one site to another; `None` between a site and itself, and where there are no such sites.
    pub fn between(&self, from: u32, to: u32) -> Option<LinkId> {
        (from != to && from.max(to) < self.site_count()).then(|| self.site_link(from, to))
    }

    /// The link from a host into the fabric; `None` where hosts are not constrained.
    pub fn uplink(&self, host: HostId) -> Option<LinkId> {
        self.host_link(LinkId(host.0), LinkKind::Uplink(host))
    }

    /// The link from the fabric to a host; `None` where hosts are not constrained.
    pub fn downlink(&self, host: HostId) -> Option<LinkId> {
        self.host_link(LinkId(self.hosts + host.0), LinkKind::Downlink(host))
    }

    fn host_link(&self, link: LinkId, kind: LinkKind) -> Option<LinkId> {
        self.links.get(link.index()).is_some_and(|found| found.kind == kind).then_some(link)
    }

    /// Gives a link another capacity, as when foreign traffic takes a part of it.
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
        assert!(source.0 < self.hosts && destination.0 < self.hosts, "host outside the fabric");
        let (up, down) = (LinkId(source.0), LinkId(self.hosts + destination.0));
        match &self.layout {
            Layout::BigSwitch => Some(Path::new(&[up, down])),
            Layout::Racks { hosts_per_rack } => {
                let racks = self.hosts / hosts_per_rack;
                let (from, to) = (source.0 / hosts_per_rack, destination.0 / hosts_per_rack);
                if from == to {
                    return Some(Path::new(&[up, down]));
                }
                let base = 2 * self.hosts;
                Some(Path::new(&[up, LinkId(base + from), LinkId(base + racks + to), down]))
            }
            Layout::Sites { site_of, hosts_constrained, .. } => {
                let (from, to) = (site_of[source.index()], site_of[destination.index()]);
                let between = (from != to).then(|| self.site_link(from, to));
                match (hosts_constrained, between) {
                    (true, Some(link)) => Some(Path::new(&[up, link, down])),
                    (true, None) => Some(Path::new(&[up, down])),
                    (false, Some(link)) => Some(Path::new(&[link])),
                    (false, None) => None,
                }
            }
        }
    }

    /// All paths between two hosts, the direct one first, then one-relay detours by relay site. Panics
    /// if a host is not of this fabric.
    pub fn paths(&self, source: HostId, destination: HostId) -> Vec<Path> {
        let mut paths: Vec<Path> = self.path(source, destination).into_iter().collect();
        if let Layout::Sites { site_of, sites, hosts_constrained } = &self.layout {
            let (from, to) = (site_of[source.index()], site_of[destination.index()]);
            for relay in (0..*sites).filter(|&relay| from != to && relay != from && relay != to) {
                let detour = [self.site_link(from, relay), self.site_link(relay, to)];
                paths.push(if *hosts_constrained {
                    let (up, down) = (LinkId(source.0), LinkId(self.hosts + destination.0));
                    Path::new(&[up, detour[0], detour[1], down])
                } else {
                    Path::new(&detour)
                });
            }
        }
        paths
    }

    fn site_link(&self, from: u32, to: u32) -> LinkId {
        let Layout::Sites { sites, hosts_constrained, .. } = &self.layout else {
            unreachable!("only fabrics of sites have links between sites")
        };
        let base = if *hosts_constrained { 2 * self.hosts } else { 0 };
        LinkId(base + from * (sites - 1) + if to > from { to - 1 } else { to })
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
    fn a_link_may_lose_capacity_but_not_all_of_it() {
        let mut fabric = Fabric::big_switch(2, rate(8.0)).unwrap();
        let down = fabric.downlink(HostId(1)).unwrap();
        assert_eq!(fabric.set_capacity(down, rate(3.0)), Ok(()));
        assert!(fabric.set_capacity(down, rate(0.0)).is_err());
        let capacities: Vec<f64> = fabric.links().iter().map(|link| link.capacity.bytes_per_sec()).collect();
        // Uplinks of both hosts, then downlinks.
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
