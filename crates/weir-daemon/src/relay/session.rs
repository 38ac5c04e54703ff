//! A session with the controller: connect, say Hello, carry messages both ways.

use super::{Command, Commands};
use crate::session::Attach;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use weir_net::Address;
use weir_proto::v1::relay_control_client::RelayControlClient;
use weir_proto::v1::to_relay::Kind;
use weir_proto::{limits, v1};

/// A controller that says nothing for so long is left, until it has said how long its leases are.
const FIRST_LEASE: Duration = Duration::from_secs(10);
/// A controller is left once it was silent for so many leases. Its rules stay in force.
const SILENT_LEASES: u32 = 3;

impl Attach for Commands {
    const PEER: &'static str = "controller";

    async fn attach(&self, address: Address, established: &mut bool) -> Result<(), tonic::Status> {
        let mut client = RelayControlClient::new(weir_net::coordinator_channel(address))
            .max_decoding_message_size(limits::MAX_RELAY_MESSAGE_BYTES)
            .max_encoding_message_size(limits::MAX_RELAY_MESSAGE_BYTES);
        let (sender, outbound) = mpsc::channel::<v1::FromRelay>(limits::MAX_QUEUED_MESSAGES);
        // The thread writes Hello first, so the controller has all before the stream is answered.
        self.send(Command::SessionUp(sender)).await;
        let result = async {
            let mut inbound = client.attach(ReceiverStream::new(outbound)).await?.into_inner();
            *established = true;
            let mut patience = FIRST_LEASE;
            loop {
                let message = tokio::time::timeout(patience, inbound.message());
                let message = message
                    .await
                    .map_err(|_| tonic::Status::deadline_exceeded("the controller is silent"))?;
                let Some(message) = message? else { return Ok(()) };
                if let Some(Kind::Keepalive(keepalive)) = &message.kind {
                    // At least 300 ms, as a lease of 0 would end the session at once, and no more
                    // than before the first one, however long a controller says its leases are.
                    patience =
                        FIRST_LEASE.min(Duration::from_millis(keepalive.lease_ms.max(100)) * SILENT_LEASES);
                }
                if !self.send(Command::Controller(message)).await {
                    return Ok(());
                }
            }
        }
        .await;
        self.send(Command::SessionLost).await;
        result
    }
}
