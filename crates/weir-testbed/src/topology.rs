//! Addresses and links of a bed, as lines for `ip` and `bridge`. Pure: nothing here touches the system.
//!
//! The core, and the switch of each rack, are bridges in one namespace; a pair of devices joins each rack to the core.

use std::net::Ipv4Addr;

use crate::links::{BedLinks, Rates};
use crate::places::Place;
use crate::shape::{queue_limit_bytes, shape};

/// Most hosts a bed may have: every host knows every other one, so set-up work grows with the square.
pub const MAX_HOSTS: usize = 250;

/// Name of the core's bridge.
const CORE: &str = "sw0";

/// Name of the link inside every host.
pub(crate) const HOST_LINK: &str = "eth0";

/// Prefix length of the one subnet.
const PREFIX: u8 = 16;

/// Address of a place: 10.77.1.1 and up for hosts, 10.77.0.1 for the control host.
pub(crate) fn address(place: Place) -> Ipv4Addr {
    match place {
        Place::Host(host) => {
            let low = u8::try_from(host + 1).expect("host < MAX_HOSTS = 250, checked by every caller");
            Ipv4Addr::new(10, 77, 1, low)
        }
        Place::Control => Ipv4Addr::new(10, 77, 0, 1),
    }
}

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

/// Name of the bridge that a host hangs on.
fn bridge(rack: Option<usize>) -> String {
    rack.map_or_else(|| CORE.to_owned(), |rack| format!("r{rack}"))
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
    let bridges = || (0..links.racks.len()).map(Some).chain([None]).map(bridge);
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
        lines.extend(join(&port, &bridge(links.rack_of(place))));
    }
    for rack in 0..links.racks.len() {
        let (up, down) = (core_port(rack), rack_port(rack));
        lines.push(format!("link add {up} type veth peer name {down}"));
        lines.extend(join(&up, &bridge(Some(rack))));
        lines.extend(join(&down, CORE));
    }
    lines.extend(bridges().map(|name| format!("link set {name} up")));
    lines
}

/// `bridge` lines, run in the switch: behind which port of each bridge a hardware address is.
pub(crate) fn switch_addresses(links: &BedLinks) -> Vec<String> {
    let mut lines = Vec::new();
    for place in places(links.hosts.len()) {
        let (mac, own) = (hardware_address(place), links.rack_of(place));
        let mut behind = |port: String| lines.push(format!("fdb add {mac} dev {port} master static"));
        behind(port(place));
        if let Some(rack) = own {
            behind(rack_port(rack));
        }
        (0..links.racks.len()).filter(|&rack| own != Some(rack)).map(core_port).for_each(behind);
    }
    lines
}

/// `tc` lines, run in the switch: the links to the hosts, and those between racks and core.
pub(crate) fn switch_shapes(links: &BedLinks) -> Vec<String> {
    let line = |port: String, rate: u64| shape(&port, rate, queue_limit_bytes(rate));
    let hosts = links.hosts.iter().enumerate();
    let hosts = hosts.flat_map(|(host, links)| line(port(Place::Host(host)), links.rates.down_bps));
    let racks = links.racks.iter().enumerate().flat_map(|(rack, &Rates { up_bps, down_bps })| {
        [line(core_port(rack), up_bps), line(rack_port(rack), down_bps)].concat()
    });
    hosts.chain(racks).collect()
}

/// `ip` lines, run in `place`: its address, and the hardware address of everyone else (nobody needs ARP,
/// which would wait in the very queues that are under test).
pub(crate) fn host_links(place: Place, hosts: usize) -> Vec<String> {
    let mut lines = vec![
        "link set lo up".into(),
        format!("address add {}/{PREFIX} dev {HOST_LINK}", address(place)),
        format!("link set {HOST_LINK} up"),
    ];
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
    use std::collections::BTreeSet;

    #[test]
    fn every_bridge_knows_one_way_to_every_place() {
        let mut links = BedLinks::equal(5, 100_000_000);
        links.racks = vec![Rates::both(50_000_000); 2];
        for (host, rack) in [(0, 0), (1, 1), (3, 1)] {
            links.hosts[host].rack = Some(rack);
        }
        let known = switch_addresses(&links);
        let on = |bridge: Option<usize>| -> Vec<String> {
            let hosts = places(5).filter(|place| links.rack_of(*place) == bridge).map(port);
            hosts
                .chain(bridge.map_or_else(|| vec![rack_port(0), rack_port(1)], |rack| vec![core_port(rack)]))
                .collect()
        };
        for bridge in [None, Some(0), Some(1)] {
            for place in places(5) {
                let ways = on(bridge).into_iter().filter(|port| {
                    known.contains(&format!("fdb add {} dev {port} master static", hardware_address(place)))
                });
                assert_eq!(ways.count(), 1, "{place} from {bridge:?}");
            }
        }
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
        let lines = host_links(Place::Host(1), 3);
        let known = |ip: &str| lines.iter().any(|line| line.starts_with(&format!("neighbour add {ip} ")));
        assert!(known("10.77.1.1") && known("10.77.1.3") && known("10.77.0.1"));
        assert!(!known("10.77.1.2"));
    }
}
