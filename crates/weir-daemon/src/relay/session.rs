//! The session with the controller: connect, say Hello, carry messages both ways, and again after any failure.

use super::{Command, Commands};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use weir_proto::v1::relay_control_client::RelayControlClient;
use weir_proto::v1::to_relay::Kind;
use weir_proto::{limits, v1};

/// First and longest pause between attempts.
const RETRY: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));
/// A controller that says nothing for so long is left, until it has said how long its leases are.
const FIRST_LEASE: Duration = Duration::from_secs(10);
/// A controller is left once it was silent for so many leases. Its rules stay in force.
const SILENT_LEASES: u32 = 3;

/// Attaches to one of several servers of the controller: to the next one if it cannot be reached, to the same one if
/// a session was lost. Never returns; abort the task to end it.
pub(super) async fn keep(servers: Vec<SocketAddr>, commands: Commands) {
    let mut pause = RETRY.0;
    let mut turn = servers.iter().cycle();
    let Some(mut address) = turn.next().copied() else { return };
    loop {
        let mut established = false;
        let ended = attach(address, &commands, &mut established).await;
        if established {
            pause = RETRY.0;
        }
        if let Err(status) = ended {
            tracing::debug!(%address, %status, "no session with the controller");
            if status.code() == tonic::Code::FailedPrecondition {
                tracing::error!(%address, "refused: {}", status.message());
            }
        }
        if !established {
            address = turn.next().copied().unwrap_or(address);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RETRY.1);
    }
}

/// One session. Says whether it was established; whichever way it ends then is worth a quick retry.
async fn attach(
    address: SocketAddr,
    commands: &Commands,
    established: &mut bool,
) -> Result<(), tonic::Status> {
    let mut client = RelayControlClient::new(weir_net::coordinator_channel(address))
        .max_decoding_message_size(limits::MAX_CONTROL_MESSAGE_BYTES)
        .max_encoding_message_size(limits::MAX_CONTROL_MESSAGE_BYTES);
    let (sender, outbound) = mpsc::channel::<v1::FromRelay>(limits::MAX_QUEUED_MESSAGES);
    // The thread writes Hello first, so the controller has all before the stream is answered.
    commands.send(Command::SessionUp(sender));
    let result = async {
        let mut inbound = client.attach(ReceiverStream::new(outbound)).await?.into_inner();
        *established = true;
        let mut patience = FIRST_LEASE;
        loop {
            let message = tokio::time::timeout(patience, inbound.message());
            let message =
                message.await.map_err(|_| tonic::Status::deadline_exceeded("the controller is silent"))?;
            let Some(message) = message? else { return Ok(()) };
            if let Some(Kind::Keepalive(keepalive)) = &message.kind {
                patience =
                    FIRST_LEASE.min(Duration::from_millis(keepalive.lease_ms.max(100)) * SILENT_LEASES);
            }
            if !commands.send(Command::Controller(message)) {
                return Ok(());
            }
        }
    }
    .await;
    commands.send(Command::SessionLost);
    result
}
