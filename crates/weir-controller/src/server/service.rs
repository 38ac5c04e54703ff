//! The gRPC face of a server: a relay's stream becomes events.

use super::known::HelloError;
use super::{Counts, SessionId};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};
use weir_proto::v1::relay_control_server::RelayControl;
use weir_proto::{limits, v1};

/// A relay says Hello within this time, or its session ends.
const FIRST_MESSAGE_LIMIT: Duration = Duration::from_secs(10);

pub(super) enum Event {
    Up(SessionId, Box<v1::RelayHello>, mpsc::Sender<v1::ToRelay>, oneshot::Sender<Result<(), HelloError>>),
    Message(SessionId, v1::FromRelay),
    Lost(SessionId),
    Describe(oneshot::Sender<v1::ControllerStatus>),
    Observe(oneshot::Sender<(v1::ControllerStatus, Counts)>),
}

pub(super) struct Service {
    events: mpsc::Sender<Event>,
    next_session: AtomicU64,
}

impl Service {
    pub(super) fn new(events: mpsc::Sender<Event>) -> Service {
        Service { events, next_session: AtomicU64::new(1) }
    }
}

#[tonic::async_trait]
impl RelayControl for Service {
    type AttachStream = Pin<Box<dyn Stream<Item = Result<v1::ToRelay, Status>> + Send>>;

    async fn attach(
        &self,
        request: Request<Streaming<v1::FromRelay>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let mut inbound = request.into_inner();
        let first = tokio::time::timeout(FIRST_MESSAGE_LIMIT, inbound.message()).await;
        let silent = |_| Status::deadline_exceeded("the first message of a session did not come in time");
        let first = first.map_err(silent)??.and_then(|message| message.kind);
        let Some(v1::from_relay::Kind::Hello(hello)) = first else {
            return Err(Status::failed_precondition("the first message of a session is RelayHello"));
        };
        let session = SessionId(self.next_session.fetch_add(1, Ordering::Relaxed));
        let (sender, outbound) = mpsc::channel(limits::MAX_QUEUED_MESSAGES);
        let (reply, answer) = oneshot::channel();
        let gone = || Status::unavailable("the controller is shutting down");
        let up = Event::Up(session, Box::new(hello), sender, reply);
        self.events.send(up).await.map_err(|_| gone())?;
        // Before the stream is answered, so that a refusal is the answer to the call.
        let accepted = answer.await.map_err(|_| gone())?;
        accepted.map_err(|refused| Status::failed_precondition(refused.to_string()))?;
        let events = self.events.clone();
        tokio::spawn(async move {
            while let Ok(Some(message)) = inbound.message().await {
                if events.send(Event::Message(session, message)).await.is_err() {
                    return;
                }
            }
            // A server that is shutting down has no sessions left to lose.
            let _ = events.send(Event::Lost(session)).await;
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(outbound).map(Ok))))
    }

    async fn describe(
        &self,
        _request: Request<v1::DescribeControllerRequest>,
    ) -> Result<Response<v1::ControllerStatus>, Status> {
        let gone = || Status::unavailable("the controller is shutting down");
        let (reply, answer) = oneshot::channel();
        self.events.send(Event::Describe(reply)).await.map_err(|_| gone())?;
        Ok(Response::new(answer.await.map_err(|_| gone())?))
    }
}
