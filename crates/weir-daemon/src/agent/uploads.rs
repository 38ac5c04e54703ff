//! Connections to relays, for flows that go to other sites.

use super::SiteRelays;
use super::upload::Upload;
use std::collections::BTreeMap;
use weir_core::serving::Relays;
use weir_model::Time;
use weir_proto::relay::{Open, RelayPath};

/// The host's relays, and the connections to them.
pub(super) struct Uploads {
    relays: Option<Relays>,
    /// The receiver's connection of each connection to a relay; and the reverse.
    connections: BTreeMap<u64, u64>,
    tokens: BTreeMap<u64, u64>,
}

impl Uploads {
    pub(super) fn new(relays: Option<SiteRelays>) -> Uploads {
        let relays = relays.map(|relays| Relays::new(relays.site, relays.addresses));
        Uploads { relays, connections: BTreeMap::new(), tokens: BTreeMap::new() }
    }

    /// Whose flow a connection to a relay carries.
    pub(super) fn connection_of(&self, upload: u64) -> Option<u64> {
        self.connections.get(&upload).copied()
    }

    /// Begins a connection to a relay for a flow that leaves the site, if one is to carry it.
    pub(super) fn begin(
        &mut self,
        now: Time,
        connection: u64,
        next_token: &mut u64,
        path: &RelayPath,
    ) -> Option<(Upload, Open)> {
        let relays = self.relays.as_mut()?;
        let (address, open) = relays.choose(now, path)?;
        let Ok(stream) = weir_net::dial(address) else {
            relays.handle_unreachable(now, address);
            return None;
        };
        let token = *next_token;
        *next_token += 1;
        self.connections.insert(token, connection);
        self.tokens.insert(connection, token);
        Some((Upload::new(stream, address, token), open))
    }

    /// The flow of a connection is over.
    pub(super) fn forget(&mut self, connection: u64) {
        if let Some(token) = self.tokens.remove(&connection) {
            self.connections.remove(&token);
        }
    }

    /// The flow ended before it was done. A relay that was not even reached is avoided for a while.
    pub(super) fn end(&mut self, now: Time, connection: u64, upload: &Upload, is_unreached: bool) {
        self.forget(connection);
        if let Some(relays) = self.relays.as_mut().filter(|_| is_unreached) {
            relays.handle_unreachable(now, upload.relay);
        }
    }
}
