//! Addresses, links and routes of a bed of sites, as lines for `ip`. Pure: nothing here touches the system.
//!
//! No host and no gateway needs ARP, which would wait in the very queues that are under test: all ends of links have hardware addresses
//! that are known beforehand. A gateway has the same one on all its links; they join it to one neighbour each.

use std::net::Ipv4Addr;

use super::Sites;
use crate::place::{Place, address};
use crate::topology::{HOST_LINK, hardware_address};

/// How hosts and the control host know their gateway: by an address that nothing else has.
fn gateway_address(site: usize) -> Ipv4Addr {
    let low = u8::try_from(site + 1).expect("site < MAX_SITES = 32, checked by every caller");
    Ipv4Addr::new(169, 254, 1, low)
}

/// Locally administered, apart from those of hosts (which go on with 0a, of 10.77).
fn gateway_hardware(site: usize) -> String {
    format!("02:57:fe:00:00:{site:02x}")
}

/// A gateway's link to a host of its site.
fn host_port(host: usize) -> String {
    format!("h{host}")
}

/// A gateway's link to the gateway of another site.
pub(super) fn site_port(site: usize) -> String {
    format!("w{site}")
}

/// A gateway's link to the control host, at the gateway, and at the control host.
const CONTROL_PORT: &str = "pc";

fn control_port(site: usize) -> String {
    format!("g{site}")
}

/// `ip` lines, run at a gateway: links to its hosts, to the control host, and to the gateways of sites before it, given
/// as paths of namespaces.
pub(super) fn links(sites: &Sites, site: usize, path: impl Fn(End) -> String) -> Vec<String> {
    let own = gateway_hardware(site);
    let veth = |port: &str, peer: &str, mac: &str, end: End| {
        format!("link add {port} address {own} type veth peer name {peer} address {mac} netns {}", path(end))
    };
    let mut lines = vec!["link set lo up".to_owned()];
    for host in sites.hosts_of(site) {
        let mac = hardware_address(Place::Host(host));
        lines.push(veth(&host_port(host), HOST_LINK, &mac, End::Place(Place::Host(host))));
        lines.push(format!("link set {} up", host_port(host)));
    }
    let control = hardware_address(Place::Control);
    lines.push(veth(CONTROL_PORT, &control_port(site), &control, End::Place(Place::Control)));
    lines.push(format!("link set {CONTROL_PORT} up"));
    // One link for two sites, made by the later of them.
    for other in 0..site {
        lines.push(veth(&site_port(other), &site_port(site), &gateway_hardware(other), End::Gateway(other)));
    }
    lines
}

/// The other end of a link.
#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    /// A host, or the control host.
    Place(Place),
    /// The gateway of a site.
    Gateway(usize),
}

/// `ip` lines, run at a gateway once all links are there: the way to every host.
pub(super) fn gateway_routes(sites: &Sites, site: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut neighbour = |address: Ipv4Addr, mac: String, device: &str| {
        lines.push(format!("neighbour add {address} lladdr {mac} dev {device} nud permanent"));
    };
    for host in sites.hosts_of(site) {
        neighbour(address(Place::Host(host)), hardware_address(Place::Host(host)), &host_port(host));
    }
    neighbour(address(Place::Control), hardware_address(Place::Control), CONTROL_PORT);
    for other in sites.others(site) {
        neighbour(gateway_address(other), gateway_hardware(other), &site_port(other));
    }
    lines.extend(sites.others(site).map(|other| format!("link set {} up", site_port(other))));
    for host in sites.hosts_of(site) {
        lines.push(format!("route add {}/32 dev {}", address(Place::Host(host)), host_port(host)));
    }
    lines.push(format!("route add {}/32 dev {CONTROL_PORT}", address(Place::Control)));
    for other in sites.others(site) {
        for host in sites.hosts_of(other) {
            let (to, by, port) = (address(Place::Host(host)), gateway_address(other), site_port(other));
            lines.push(format!("route add {to}/32 via {by} dev {port} onlink"));
        }
    }
    lines
}

/// `ip` lines, run at a host.
pub(super) fn host_routes(sites: &Sites, host: usize) -> Vec<String> {
    let site = sites.site_of(host);
    let gateway = gateway_address(site);
    vec![
        "link set lo up".to_owned(),
        format!("address add {}/32 dev {HOST_LINK}", address(Place::Host(host))),
        format!("link set {HOST_LINK} up"),
        format!("neighbour add {gateway} lladdr {} dev {HOST_LINK} nud permanent", gateway_hardware(site)),
        // Addresses are /32 each, so that the gateway is in no subnet of the host: without `onlink`
        // the kernel would refuse the route.
        format!("route add default via {gateway} dev {HOST_LINK} onlink"),
    ]
}

/// `ip` lines, run at the control host: its own link to every site.
pub(super) fn control_routes(sites: &Sites) -> Vec<String> {
    let own = address(Place::Control);
    let mut lines = vec!["link set lo up".to_owned(), format!("address add {own}/32 dev lo")];
    for site in 0..sites.count() {
        let (port, gateway) = (control_port(site), gateway_address(site));
        lines.push(format!("link set {port} up"));
        lines.push(format!(
            "neighbour add {gateway} lladdr {} dev {port} nud permanent",
            gateway_hardware(site)
        ));
        for host in sites.hosts_of(site) {
            lines.push(format!(
                "route add {}/32 via {gateway} dev {port} onlink src {own}",
                address(Place::Host(host))
            ));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_has_one_way_at_every_gateway() {
        let sites = Sites::new(&[2, 1, 3]);
        for site in 0..3 {
            let lines = gateway_routes(&sites, site);
            for host in 0..6 {
                let to = format!("route add {}/32 ", address(Place::Host(host)));
                let found: Vec<&String> = lines.iter().filter(|line| line.starts_with(&to)).collect();
                assert_eq!(found.len(), 1, "{found:?}");
                assert_eq!(found[0].contains(" via "), sites.site_of(host) != site, "{found:?}");
            }
        }
    }

    #[test]
    fn links_between_sites_are_made_once() {
        let sites = Sites::new(&[1, 1, 1]);
        let made = |site| {
            links(&sites, site, |_| "ns".to_owned()).iter().filter(|line| line.contains("add w")).count()
        };
        assert_eq!([made(0), made(1), made(2)], [0, 1, 2]);
    }
}
