//! Where a client finds its peers.

use crate::{Client, Error};
use std::path::PathBuf;
use weir_net::Address;

/// Where a client finds its peers.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The coordinator; without one, coflows cannot be registered and gets need holders. An IP address or a host's
    /// name, with the port.
    pub coordinator: Option<Address>,
    /// Unix socket of this host's agent; needed to put.
    pub agent: Option<PathBuf>,
    /// This host in the coordinator's fabric, as destination of what it gets.
    pub host: u32,
}

impl ClientConfig {
    /// What the agent with this socket says: which host this is, and where its coordinator is, if it has one.
    ///
    /// # Errors
    /// The agent gives no answer within 10 s, or the coordinator that it names has no address that can be read.
    pub async fn of_agent(socket: impl Into<PathBuf>) -> Result<ClientConfig, Error> {
        let alone = ClientConfig { coordinator: None, agent: Some(socket.into()), host: 0 };
        let described = Client::new(alone.clone()).describe().await?;
        let said = described.coordinator;
        let coordinator = if said.is_empty() {
            None
        } else {
            Some(said.parse().map_err(|source| Error::Coordinator { said, source })?)
        };
        Ok(ClientConfig { coordinator, host: described.host, ..alone })
    }
}
