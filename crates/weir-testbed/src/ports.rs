//! Ports on which a program that is started later will listen.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// Ports below are other programs'.
const LEAST_PORT: u16 = 12_000;

/// Where the kernel's range begins if it does not say.
const KERNEL_PORT: u16 = 32_768;

/// An address of loopback without a listener, and that no connection takes before a program listens on it: its port is not one of
/// those that the kernel gives away. A process is told each port once.
///
/// # Errors
///
/// There is no such port, nor one of the kernel's.
pub fn free_address() -> io::Result<SocketAddr> {
    static TRIED: AtomicU16 = AtomicU16::new(0);
    let count = first_of_kernel().saturating_sub(LEAST_PORT).max(1);
    for _ in 0..count {
        // Programs that run at once have numbers next to each other, and need some ports each: they begin far apart.
        let tried = TRIED.fetch_add(1, Ordering::Relaxed).wrapping_add((std::process::id() * 257) as u16);
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, LEAST_PORT + tried % count)) {
            return listener.local_addr();
        }
    }
    // All ports below the kernel's range are taken: one of its own may collide with a connection, but is better than none.
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

/// The least port that the kernel gives to connections.
fn first_of_kernel() -> u16 {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(KERNEL_PORT)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn addresses_differ_and_are_none_that_a_connection_is_given() {
        let addresses: BTreeSet<SocketAddr> = (0..100).map(|_| free_address().unwrap()).collect();
        assert_eq!(addresses.len(), 100);
        let expected = LEAST_PORT..first_of_kernel();
        assert!(addresses.iter().all(|address| expected.contains(&address.port())), "{addresses:?}");
    }
}
