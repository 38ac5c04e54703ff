//! Addresses and links of a bed, as lines for `ip` and `bridge`. Pure: nothing here touches the system.
//!
//! The core of each site, that of no site, and the switch of each rack are bridges in one namespace. A pair of devices joins
//! each rack to its core, and each core to every other.

use crate::links::BedLinks;
use crate::place::{Place, address};
use crate::shape::{queue_limit_bytes, shape};

/// Name of the link inside every host.
pub const HOST_LINK: &str = "eth0";

/// Prefix length of the one subnet.
const PREFIX: u8 = 16;

/// Hardware address of a place, locally administered: 02:57 (a prefix of ours), then the IPv4 address.
pub(crate) fn hardware_address(place: Place) -> String {
    let [a, b, c, d] = address(place).octets();
    format!("02:57:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

/// Name of the switch's port to a place.
pub(crate) fn port(place: Place) -> String {
    match place {
        Place::Host(host) => format!("p{host}"),
        Place::Control => "pc".into(),
    }
}

/// Name of the core's port to a rack.
pub(crate) fn rack_port(rack: usize) -> String {
    format!("d{rack}")
}

/// Name of a rack's port to the core.
fn core_port(rack: usize) -> String {
    format!("u{rack}")
}

/// Name of a core's port to another core: of a site, or of none.
fn between_port(from: Option<usize>, to: Option<usize>) -> String {
    let name = |site: Option<usize>| site.map_or_else(|| "n".to_owned(), |site| site.to_string());
    format!("x{}-{}", name(from), name(to))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bridge {
    /// The switch of this rack.
    Rack(usize),
    /// The core of a site, or of none.
    Core(Option<usize>),
}

impl Bridge {
    fn all(links: &BedLinks) -> impl Iterator<Item = Bridge> + Clone + use<> {
        (0..links.racks.len()).map(Bridge::Rack).chain(cores(links).map(Bridge::Core))
    }

    /// The one that a place hangs on.
    fn of(links: &BedLinks, place: Place) -> Bridge {
        links.rack_of(place).map_or_else(|| Bridge::Core(links.site_of(place)), Bridge::Rack)
    }

    fn name(self) -> String {
        match self {
            Bridge::Rack(rack) => format!("r{rack}"),
            Bridge::Core(None) => "sw0".to_owned(),
            Bridge::Core(Some(site)) => format!("s{site}"),
        }
    }

    /// Its port to a place.
    fn way(self, links: &BedLinks, place: Place) -> String {
        let (rack, site) = (links.rack_of(place), links.site_of(place));
        match self {
            Bridge::Rack(own) if rack != Some(own) => core_port(own),
            Bridge::Core(own) if site != own => between_port(own, site),
            Bridge::Core(_) => rack.map_or_else(|| port(place), rack_port),
            Bridge::Rack(_) => port(place),
        }
    }
}

/// The core of no site, and those of sites.
fn cores(links: &BedLinks) -> impl Iterator<Item = Option<usize>> + Clone + use<> {
    [None].into_iter().chain((0..links.sites()).map(Some))
}

/// Every two of the cores.
fn pairs_of_cores(links: &BedLinks) -> Vec<[Option<usize>; 2]> {
    let before = |to: Option<usize>| cores(links).take_while(move |from| *from != to);
    cores(links).flat_map(|to| before(to).map(move |from| [from, to])).collect()
}

/// All places of a bed, hosts first.
pub(crate) fn places(hosts: usize) -> impl Iterator<Item = Place> + Clone {
    (0..hosts).map(Place::Host).chain([Place::Control])
}

/// `ip` lines, run in the switch: the bridges, links between them, and a link to the namespace of each place.
///
/// Bridges learn and flood nothing. A frame to a host that has not spoken yet would otherwise be copied to all ports and
/// take bandwidth of hosts that it does not concern.
pub(crate) fn switch_links<'a>(
    links: &BedLinks,
    namespaces: impl Iterator<Item = (Place, &'a str)>,
) -> Vec<String> {
    let mut lines = vec!["link set lo up".to_owned()];
    let bridges = || Bridge::all(links).map(Bridge::name);
    lines.extend(bridges().map(|name| format!("link add {name} type bridge stp_state 0 mcast_snooping 0")));
    let join = |port: &str, bridge: &str| {
        [
            format!("link set {port} master {bridge} up"),
            format!(
                "link set {port} type bridge_slave learning off flood off mcast_flood off bcast_flood off"
            ),
        ]
    };
    for (place, namespace) in namespaces {
        let (port, mac) = (port(place), hardware_address(place));
        lines.push(format!(
            "link add {port} type veth \
             peer name {HOST_LINK} address {mac} netns {namespace}"
        ));
        lines.extend(join(&port, &Bridge::of(links, place).name()));
    }
    for (rack, of) in links.racks.iter().enumerate() {
        let (up, down) = (core_port(rack), rack_port(rack));
        lines.push(format!("link add {up} type veth peer name {down}"));
        lines.extend(join(&up, &Bridge::Rack(rack).name()));
        lines.extend(join(&down, &Bridge::Core(of.site).name()));
    }
    for [from, to] in pairs_of_cores(links) {
        let (there, back) = (between_port(from, to), between_port(to, from));
        lines.push(format!("link add {there} type veth peer name {back}"));
        lines.extend(join(&there, &Bridge::Core(from).name()));
        lines.extend(join(&back, &Bridge::Core(to).name()));
    }
    lines.extend(bridges().map(|name| format!("link set {name} up")));
    lines
}

/// `bridge` lines, run in the switch: behind which port of each bridge a hardware address is.
pub(crate) fn switch_addresses(links: &BedLinks) -> Vec<String> {
    let line = |place: Place, bridge: Bridge| {
        let (mac, port) = (hardware_address(place), bridge.way(links, place));
        format!("fdb add {mac} dev {port} master static")
    };
    let all = places(links.hosts.len());
    all.flat_map(|place| Bridge::all(links).map(move |bridge| line(place, bridge))).collect()
}

/// Names of the switch's ports that are shaped: to the hosts, between racks and cores, and between sites.
pub(crate) fn switch_ports(links: &BedLinks) -> Vec<String> {
    shaped_ports(links).into_iter().map(|(port, _)| port).collect()
}

/// `tc` lines, run in the switch: the links to the hosts, those between racks and cores, and those between sites.
pub(crate) fn switch_shapes(links: &BedLinks) -> Vec<String> {
    let ports = shaped_ports(links).into_iter();
    ports.flat_map(|(port, rate)| shape(&port, rate, queue_limit_bytes(rate), links.queues)).collect()
}

/// Ports and their rates.
fn shaped_ports(links: &BedLinks) -> Vec<(String, u64)> {
    let hosts = links.hosts.iter().enumerate();
    let hosts = hosts.map(|(host, links)| (port(Place::Host(host)), links.rates.down_bps));
    let racks =
        links.racks.iter().enumerate().flat_map(|(rack, of)| {
            [(core_port(rack), of.rates.up_bps), (rack_port(rack), of.rates.down_bps)]
        });
    let of_sites = pairs_of_cores(links).into_iter().flat_map(|[from, to]| [[from, to], [to, from]]);
    let between = of_sites.filter_map(|[from, to]| match (from, to) {
        (Some(a), Some(b)) => Some((between_port(from, to), links.between[a][b])),
        _ => None,
    });
    hosts.chain(racks).chain(between).collect()
}

/// `ip` lines, run in `place`: its address, and the hardware addresses of all other places (so none needs ARP,
/// which would wait in the very queues that are under test).
pub(crate) fn host_links(place: Place, hosts: usize, segment_bytes: Option<u32>) -> Vec<String> {
    let mut lines = vec![
        "link set lo up".into(),
        format!("address add {}/{PREFIX} dev {HOST_LINK}", address(place)),
        format!("link set {HOST_LINK} up"),
    ];
    lines.extend(segment_bytes.map(|bytes| format!("link set {HOST_LINK} gso_max_size {bytes}")));
    lines.extend(places(hosts).filter(|other| *other != place).map(|other| {
        format!(
            "neighbour add {} lladdr {} dev {HOST_LINK} nud permanent",
            address(other),
            hardware_address(other)
        )
    }));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::links::{RackLinks, Rates};
    use crate::place::MAX_HOSTS;
    use std::collections::BTreeSet;
    use std::net::Ipv4Addr;

    /// From bridge to bridge by the ports of the other end, every frame comes to its host, through the links it should.
    #[test]
    fn every_bridge_knows_the_way_to_every_place() {
        let mut links = BedLinks::equal(7, 100_000_000);
        let rack = |site| RackLinks { rates: Rates::both(50_000_000), site };
        links.racks = vec![rack(None), rack(Some(1))];
        links.between = vec![vec![0, 2_000_000], vec![3_000_000, 0]];
        for (host, rack) in [(0, 0), (1, 1), (3, 1)] {
            links.hosts[host].rack = Some(rack);
        }
        (links.hosts[4].site, links.hosts[5].site) = (Some(0), Some(1));
        let known = switch_addresses(&links);
        assert_eq!(known.len(), 8 * Bridge::all(&links).count());
        // Which bridge is behind a port.
        let behind = |port: &str| match port {
            "u0" => Bridge::Core(None),
            "u1" => Bridge::Core(Some(1)),
            "d0" => Bridge::Rack(0),
            "d1" => Bridge::Rack(1),
            between => {
                let (_, to) =
                    between.strip_prefix('x').and_then(|ends| ends.split_once('-')).expect("a port");
                Bridge::Core(to.parse().ok())
            }
        };
        for start in Bridge::all(&links) {
            for place in places(7) {
                let (mut at, mut through) = (start, Vec::new());
                loop {
                    let way = at.way(&links, place);
                    assert!(
                        known.contains(&format!(
                            "fdb add {} dev {way} master static",
                            hardware_address(place)
                        ))
                    );
                    if way == port(place) {
                        break;
                    }
                    at = behind(&way);
                    through.push(way);
                    assert!(through.len() <= 3, "{start:?} to {place}: {through:?}");
                }
                assert_eq!(at, Bridge::of(&links, place));
            }
        }
        assert_eq!(Bridge::Rack(0).way(&links, Place::Host(1)), "u0");
        assert_eq!(Bridge::Core(Some(0)).way(&links, Place::Host(1)), "x0-1");
        let shapes = switch_shapes(&links).join("\n");
        assert!(shapes.contains("x0-1") && shapes.contains("x1-0") && !shapes.contains("xn-"), "{shapes}");
    }

    #[test]
    fn no_two_places_share_an_address() {
        let all: BTreeSet<Ipv4Addr> = places(MAX_HOSTS).map(address).collect();
        assert_eq!(all.len(), MAX_HOSTS + 1);
        assert_eq!(address(Place::Host(0)), Ipv4Addr::new(10, 77, 1, 1));
        assert_eq!(hardware_address(Place::Host(15)), "02:57:0a:4d:01:10");
    }

    #[test]
    fn a_host_knows_everyone_but_itself() {
        let lines = host_links(Place::Host(1), 3, None);
        let known = |ip: &str| lines.iter().any(|line| line.starts_with(&format!("neighbour add {ip} ")));
        assert!(known("10.77.1.1") && known("10.77.1.3") && known("10.77.0.1"));
        assert!(!known("10.77.1.2"));
    }
}
