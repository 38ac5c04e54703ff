//! By which relay a flow goes to another site, and whether by one at all.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use weir_model::{Span, Time};
use weir_proto::relay::{Open, RelayPath};

/// A relay that could not be reached is not tried again for so long.
const AVOID: Span = Span::from_millis(5_000);

/// The relays of a host's site.
#[derive(Clone, Debug)]
pub struct Relays {
    site: u32,
    addresses: Vec<SocketAddr>,
    /// Relays that could not be reached, and until when they are avoided.
    avoided: BTreeMap<SocketAddr, Time>,
}

impl Relays {
    /// The relays of a site, by their addresses.
    pub fn new(site: u32, addresses: Vec<SocketAddr>) -> Relays {
        Relays { site, addresses, avoided: BTreeMap::new() }
    }

    /// The relay that carries a flow to a receiver, and what it is told; the flows of one pair of tasks take the same one. `None`:
    /// the flow goes straight to its receiver, because it is of the same site or no relay can be reached.
    pub fn choose(&mut self, now: Time, path: &RelayPath) -> Option<(SocketAddr, Open)> {
        if path.site == self.site {
            return None;
        }
        self.avoided.retain(|_, until| *until > now);
        let usable: Vec<SocketAddr> =
            self.addresses.iter().copied().filter(|address| !self.avoided.contains_key(address)).collect();
        let address = *usable.get((path.mapper as usize).checked_rem(usable.len())?)?;
        let open = Open { source_site: self.site, destination_site: path.site, destination: path.relay };
        Some((address, open))
    }

    /// A relay could not be reached.
    pub fn handle_unreachable(&mut self, now: Time, relay: SocketAddr) {
        self.avoided.insert(relay, now + AVOID);
    }
}
