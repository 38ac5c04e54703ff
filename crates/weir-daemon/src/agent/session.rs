//! The session with the coordinator: connect, ask for its terms, say Hello, carry messages both ways, and again after any
//! failure, for as long as the agent lives.

use super::{Command, Commands};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use weir_proto::v1::coordinator_client::CoordinatorClient;
use weir_proto::{limits, v1};

/// First and longest pause between attempts.
const RETRY: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// Never returns; abort the task to end it.
pub(super) async fn keep(address: SocketAddr, commands: Commands) {
    let mut pause = RETRY.0;
    loop {
        let mut established = false;
        let ended = attach(address, &commands, &mut established).await;
        if established {
            pause = RETRY.0;
        }
        match ended {
            Ok(()) => {}
            Err(status) => {
                tracing::debug!(%address, %status, "no session with the coordinator");
                if status.code() == tonic::Code::FailedPrecondition {
                    tracing::error!(%address, "refused: {}", status.message());
                }
            }
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
    let channel = weir_net::coordinator_channel(address);
    let mut client = CoordinatorClient::new(channel)
        .max_decoding_message_size(limits::MAX_CONTROL_MESSAGE_BYTES)
        .max_encoding_message_size(limits::MAX_CONTROL_MESSAGE_BYTES);
    let terms = match client.terms(v1::TermsRequest {}).await {
        Ok(reply) => reply.into_inner(),
        // A coordinator of before there were terms.
        Err(status) if status.code() == tonic::Code::Unimplemented => v1::TermsReply::default(),
        Err(status) => return Err(status),
    };
    let (sender, outbound) = mpsc::channel::<v1::AgentMessage>(limits::MAX_QUEUED_MESSAGES);
    // The thread writes Hello first, so the coordinator has all before the stream is answered.
    commands.send(Command::SessionUp(sender, terms));
    let result = async {
        let mut inbound = client.attach(ReceiverStream::new(outbound)).await?.into_inner();
        *established = true;
        while let Some(message) = inbound.message().await? {
            if !commands.send(Command::Coordinator(message)) {
                break;
            }
        }
        Ok(())
    }
    .await;
    commands.send(Command::SessionLost);
    result
}
