//! Flows that go to other sites: by which relay, and whether by one at all.

use super::SiteRelays;
use super::connection::flow_bytes;
use super::outlet::Upload;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use weir_model::{Span, Time};
use weir_proto::data::Request;
use weir_proto::relay::{FlowKey, Open, RelayPath};

/// A relay that could not be reached is not tried again for so long.
const AVOID: Span = Span::from_millis(5_000);

/// The host's relays, and the connections to them.
pub(super) struct Uploads {
    relays: Option<SiteRelays>,
    /// Relays that could not be reached, and until when they are avoided.
    avoided: BTreeMap<SocketAddr, Time>,
    /// The receiver's connection of each connection to a relay; and the reverse.
    connections: BTreeMap<u64, u64>,
    tokens: BTreeMap<u64, u64>,
}

impl Uploads {
    pub(super) fn new(relays: Option<SiteRelays>) -> Uploads {
        Uploads { relays, avoided: BTreeMap::new(), connections: BTreeMap::new(), tokens: BTreeMap::new() }
    }

    /// Whose flow a connection to a relay carries.
    pub(super) fn connection_of(&self, upload: u64) -> Option<u64> {
        self.connections.get(&upload).copied()
    }

    /// Begins a connection to a relay for a flow that leaves the site. `None`: the flow goes straight to its
    /// receiver, because it is of the same site or no relay can be reached.
    pub(super) fn begin(
        &mut self,
        now: Time,
        connection: u64,
        next_token: &mut u64,
        request: &Request,
        path: RelayPath,
        size: u64,
    ) -> Option<Upload> {
        let relays = self.relays.as_ref().filter(|relays| relays.site != path.site)?;
        self.avoided.retain(|_, until| *until > now);
        let usable: Vec<SocketAddr> =
            relays.addresses.iter().copied().filter(|address| !self.avoided.contains_key(address)).collect();
        let address = *usable.get((path.mapper as usize).checked_rem(usable.len())?)?;
        let Ok(stream) = weir_net::dial(address) else {
            self.avoided.insert(address, now + AVOID);
            return None;
        };
        let open = Open { source_site: relays.site, destination_site: path.site, destination: path.relay };
        let key = FlowKey::of(request, &path);
        let token = *next_token;
        *next_token += 1;
        self.connections.insert(token, connection);
        self.tokens.insert(connection, token);
        Some(Upload::new(stream, address, token, key, flow_bytes(size, request.offset), &open))
    }

    /// The flow of a connection is over.
    pub(super) fn forget(&mut self, connection: u64) {
        if let Some(token) = self.tokens.remove(&connection) {
            self.connections.remove(&token);
        }
    }

    /// The flow ended before it was done. A relay that did not even answer is avoided for a while.
    pub(super) fn end(&mut self, now: Time, connection: u64, upload: &Upload) {
        self.forget(connection);
        if !upload.is_connected() {
            self.avoided.insert(upload.relay, now + AVOID);
        }
    }
}
