//! The places of a bed, and their addresses.

use std::fmt;
use std::net::Ipv4Addr;

/// Most hosts a bed may have: every host knows every other one, so set-up work grows with the square.
pub const MAX_HOSTS: usize = 250;

/// Where in a bed something runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// One of the hosts, numbered from 0.
    Host(usize),
    /// The additional host, for what steers or observes; its link is not shaped, and what it sends or is
    /// sent goes before data on the links of the others.
    Control,
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => write!(formatter, "host {host}"),
            Self::Control => formatter.write_str("the control host"),
        }
    }
}

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
