//! Byte counters of a network interface, and which interface leads to an address.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

/// The kernel's table of interfaces in the network namespace of the thread that opens it. (The files below
/// /sys/class/net belong to the namespace in which /sys was mounted, which may be another one.)
const COUNTERS: &str = "/proc/thread-self/net/dev";
/// Its table of IPv4 routes.
const ROUTES: &str = "/proc/thread-self/net/route";
/// Flag of a route that is in use.
const ROUTE_UP: u32 = 1;

/// Bytes that passed an interface since it exists, link headers included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceCounters {
    /// Bytes that went out by the interface.
    pub sent: u64,
    /// Bytes that came in by the interface.
    pub received: u64,
}

/// A network interface of this host, whose counters are read from `/proc`.
#[derive(Debug)]
pub struct Interface {
    name: String,
    table: File,
}

impl Interface {
    /// The interface of that name, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// The kernel lists no interface of that name, or its list cannot be read.
    pub fn named(name: &str) -> io::Result<Interface> {
        let mut interface = Interface { name: name.to_owned(), table: File::open(COUNTERS)? };
        interface.counters()?;
        Ok(interface)
    }

    /// The interface that leads to an IPv4 address.
    ///
    /// # Errors
    /// The address is of IPv6, or on loopback, where one interface stands for all hosts; no route leads to it; or a list of the kernel cannot be read.
    pub fn towards(address: SocketAddr) -> io::Result<Interface> {
        let IpAddr::V4(address) = address.ip() else {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "routes are read for IPv4 alone"));
        };
        if address.is_loopback() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "loopback is no link"));
        }
        let name = route(&std::fs::read_to_string(ROUTES)?, address)
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no route to {address}")))?;
        Interface::named(&name)
    }

    /// Name of the interface, as `ip link` has it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What passed so far.
    ///
    /// # Errors
    /// The kernel's list cannot be read, or the interface is not in it any more.
    pub fn counters(&mut self) -> io::Result<InterfaceCounters> {
        let mut table = String::new();
        self.table.rewind()?;
        self.table.read_to_string(&mut table)?;
        counters(&table, &self.name)
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no interface {}", self.name)))
    }
}

/// Bits per second that a physical interface can carry each way, as its driver says. `None` for one that is not physical,
/// such as one end of a veth pair, which says what is not so; for one that is down; and where the driver does not say.
pub fn link_speed(name: &str) -> Option<u64> {
    speed_below(Path::new("/sys/class/net"), name)
}

fn speed_below(root: &Path, name: &str) -> Option<u64> {
    let of_interface = root.join(name);
    let mut devices = [of_interface.clone()].to_vec();
    // A bond is as fast as its members together, which are physical.
    if let Ok(members) = std::fs::read_to_string(of_interface.join("bonding/slaves")) {
        devices = members.split_ascii_whitespace().map(|member| root.join(member)).collect();
    }
    let is_physical = !devices.is_empty() && devices.iter().all(|device| device.join("device").exists());
    let said = std::fs::read_to_string(of_interface.join("speed")).ok().filter(|_| is_physical)?;
    // -1, or its unsigned twin, where the driver does not know.
    let megabits =
        said.trim().parse::<u64>().ok().filter(|&rate| (1..u64::from(u32::MAX)).contains(&rate))?;
    Some(megabits * 1_000_000)
}

/// Finds an interface in the table of counters. Columns after the name: eight about receiving, bytes first, then
/// those about sending, bytes first.
fn counters(table: &str, name: &str) -> Option<InterfaceCounters> {
    // With the colon: `eth1` is also how `eth10` begins.
    let columns = table.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'))?;
    let columns: Vec<u64> = columns.split_ascii_whitespace().filter_map(|text| text.parse().ok()).collect();
    Some(InterfaceCounters { sent: *columns.get(8)?, received: *columns.first()? })
}

/// The interface of the route to an address: the one with the longest mask, then with the lowest metric.
/// Columns: interface, destination, gateway, flags, two counts, metric, mask; addresses are hexadecimal, in the
/// order of bytes in memory.
fn route(table: &str, address: Ipv4Addr) -> Option<String> {
    let address = u32::from_ne_bytes(address.octets());
    let routes = table.lines().skip(1).filter_map(|line| {
        let columns: Vec<&str> = line.split_ascii_whitespace().collect();
        let hex = |column: usize| u32::from_str_radix(columns.get(column)?, 16).ok();
        let (destination, flags, mask) = (hex(1)?, hex(3)?, hex(7)?);
        let metric: u32 = columns.get(6)?.parse().ok()?;
        let leads = flags & ROUTE_UP != 0 && address & mask == destination;
        // Subtracted, so that the lowest metric is the greatest.
        leads.then(|| ((mask.count_ones(), u32::MAX - metric), columns[0].to_owned()))
    });
    routes.max_by_key(|(rank, _)| *rank).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_of_an_interface_are_not_those_of_a_longer_name() {
        let table = "Inter-| Receive | Transmit\n face |bytes packets\n\
                     \x20 eth01: 7 1 0 0 0 0 0 0 8 1 0 0 0 0 0 0\n\
                     \x20 eth0: 100 2 0 0 0 0 0 0 300 4 0 0 0 0 0 0\n";
        let expected = InterfaceCounters { sent: 300, received: 100 };
        assert_eq!(counters(table, "eth0"), Some(expected));
        assert_eq!(counters(table, "eth"), None);
    }

    #[test]
    fn the_speed_is_that_of_physical_interfaces_alone() {
        let root = tempfile::tempdir().unwrap();
        let interface = |name: &str, speed: &str, is_physical: bool| {
            let folder = root.path().join(name);
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join("speed"), speed).unwrap();
            if is_physical {
                std::fs::create_dir(folder.join("device")).unwrap();
            }
            folder
        };
        interface("nic", "25000\n", true);
        interface("down", "-1\n", true);
        interface("unsigned", "4294967295\n", true);
        interface("none", "0\n", true);
        interface("veth", "10000\n", false);
        let bond = interface("bond0", "50000\n", false);
        std::fs::create_dir(bond.join("bonding")).unwrap();
        std::fs::write(bond.join("bonding/slaves"), "nic down\n").unwrap();
        let found = ["nic", "bond0", "down", "unsigned", "none", "veth", "absent"]
            .map(|name| speed_below(root.path(), name));
        assert_eq!(found, [Some(25_000_000_000), Some(50_000_000_000), None, None, None, None, None]);
    }

    #[test]
    fn a_route_is_the_one_with_the_longest_mask_then_the_lowest_metric() {
        let hex = |a, b, c, d| format!("{:08X}", u32::from_ne_bytes([a, b, c, d]));
        let line = |name: &str, destination: String, flags: u32, metric: u32, mask: String| {
            format!("{name}\t{destination}\t00000000\t{flags:04X}\t0\t0\t{metric}\t{mask}\t0\t0\t0\n")
        };
        let table = "Iface\tDestination\tGateway\n".to_owned()
            + &line("wan", hex(0, 0, 0, 0), 3, 0, hex(0, 0, 0, 0))
            + &line("slow", hex(10, 1, 0, 0), 1, 200, hex(255, 255, 0, 0))
            + &line("fast", hex(10, 1, 0, 0), 1, 100, hex(255, 255, 0, 0))
            + &line("down", hex(10, 1, 2, 0), 0, 0, hex(255, 255, 255, 0));
        assert_eq!(route(&table, Ipv4Addr::new(10, 1, 2, 3)).as_deref(), Some("fast"));
        assert_eq!(route(&table, Ipv4Addr::new(10, 2, 2, 3)).as_deref(), Some("wan"));
        assert_eq!(route("Iface\nnonsense\n", Ipv4Addr::new(10, 2, 2, 3)), None);
    }

    #[test]
    fn what_is_sent_over_loopback_is_counted() {
        let mut loopback = Interface::named("lo").unwrap();
        let before = loopback.counters().unwrap();
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(&[0; 1000], socket.local_addr().unwrap()).unwrap();
        let after = loopback.counters().unwrap();
        assert!(after.sent >= before.sent + 1000 && after.received >= before.received + 1000);
        assert!(Interface::named("no such one").is_err());
        assert!(Interface::towards("127.0.0.1:1".parse().unwrap()).is_err());
    }
}
