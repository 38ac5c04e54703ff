//! A session with the coordinator: connect, ask for its terms, say Hello, carry messages both ways.

use super::naming::Naming;
use super::{Command, Commands};
use crate::session::Attach;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use weir_net::Address;
use weir_proto::v1::coordinator_client::CoordinatorClient;
use weir_proto::{limits, v1};

pub(super) struct Sessions {
    pub(super) commands: Commands,
    pub(super) naming: Arc<Naming>,
}

impl Attach for Sessions {
    const PEER: &'static str = "coordinator";

    async fn attach(&self, address: Address, established: &mut bool) -> Result<(), tonic::Status> {
        let channel = weir_net::coordinator_channel(address.clone());
        let mut client = CoordinatorClient::new(channel)
            .max_decoding_message_size(limits::MAX_CONTROL_MESSAGE_BYTES)
            .max_encoding_message_size(limits::MAX_CONTROL_MESSAGE_BYTES);
        let terms = match client.terms(v1::TermsRequest {}).await {
            Ok(reply) => reply.into_inner(),
            // A coordinator of a version that has no call `Terms`.
            Err(status) if status.code() == tonic::Code::Unimplemented => v1::TermsReply::default(),
            Err(status) => return Err(status),
        };
        let (sender, outbound) = mpsc::channel::<v1::AgentMessage>(limits::MAX_QUEUED_MESSAGES);
        // The thread writes Hello first, so the coordinator has all before the stream is answered.
        self.commands.send(Command::SessionUp(sender, terms)).await;
        let result: Result<(), tonic::Status> = async {
            let mut inbound = client.attach(ReceiverStream::new(outbound)).await?.into_inner();
            *established = true;
            tracing::info!(%address, "attached to the coordinator");
            while let Some(message) = inbound.message().await? {
                if !self.commands.send(Command::Coordinator(message)).await {
                    break;
                }
            }
            Ok(())
        }
        .await;
        // Before `SessionLost`: the agent is to know why the session ended when it prepares for the next one.
        if matches!(&result, Err(status) if status.code() == tonic::Code::AlreadyExists) {
            self.commands.send(Command::Refused).await;
        }
        if matches!(&result, Err(status) if status.code() == tonic::Code::Aborted) {
            let number = self.naming.draw_another();
            tracing::info!(
                number = number.0,
                "another host has the number of this one's name; it draws the next"
            );
            self.commands.send(Command::Renumber(number)).await;
        }
        self.commands.send(Command::SessionLost).await;
        result
    }
}
