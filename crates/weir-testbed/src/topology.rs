//! Addresses and links of a bed, as lines for `ip` and `bridge`. Pure: nothing here touches the system.

use std::net::Ipv4Addr;

use crate::places::Place;

/// Most hosts a bed may have: every host knows every other one, so set-up work grows with the square.
pub const MAX_HOSTS: usize = 250;

/// Name of the bridge in the switch's namespace.
const BRIDGE: &str = "sw0";

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

/// All places of a bed, hosts first.
pub(crate) fn places(hosts: usize) -> impl Iterator<Item = Place> + Clone {
    (0..hosts).map(Place::Host).chain([Place::Control])
}

/// `ip` lines, run in the switch: the bridge, and a link to the namespace of each place.
///
/// The bridge learns and floods nothing. A frame to a host that has not spoken yet would otherwise be
/// copied to all ports and take bandwidth of hosts that it does not concern.
pub(crate) fn switch_links<'a>(namespaces: impl Iterator<Item = (Place, &'a str)>) -> Vec<String> {
    let mut lines =
        vec!["link set lo up".into(), format!("link add {BRIDGE} type bridge stp_state 0 mcast_snooping 0")];
    for (place, namespace) in namespaces {
        let (port, mac) = (port(place), hardware_address(place));
        lines.push(format!(
            "link add {port} type veth \
             peer name {HOST_LINK} address {mac} netns {namespace}"
        ));
        lines.push(format!("link set {port} master {BRIDGE} up"));
        lines.push(format!(
            "link set {port} type bridge_slave learning off flood off mcast_flood off bcast_flood off"
        ));
    }
    lines.push(format!("link set {BRIDGE} up"));
    lines
}

/// `bridge` lines, run in the switch: which hardware address is behind which port.
pub(crate) fn switch_addresses(hosts: usize) -> Vec<String> {
    places(hosts)
        .map(|place| format!("fdb add {} dev {} master static", hardware_address(place), port(place)))
        .collect()
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
