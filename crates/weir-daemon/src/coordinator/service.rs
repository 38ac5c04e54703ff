//! The gRPC face of the coordinator: every call becomes an event with a place for its reply.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_stream::Stream;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use weir_core::coordinator::{HelloError, RegisterError, SealError, SessionId};
use weir_proto::v1::coordinator_server;
use weir_proto::{Message as _, limits, v1};

/// How long the first message of a session may take.
const HELLO_LIMIT: Duration = Duration::from_secs(10);

pub(super) enum Event {
    Register(v1::RegisterRequest, oneshot::Sender<Result<u64, RegisterError>>),
    Seal(u64, oneshot::Sender<Result<(), SealError>>),
    Unregister(u64, oneshot::Sender<Option<v1::CoflowRecord>>),
    Locate(v1::LocateRequest, oneshot::Sender<v1::LocateReply>),
    AwaitAdmission(v1::AdmissionRequest, oneshot::Sender<v1::AdmissionReply>),
    Status(oneshot::Sender<v1::StatusReply>),
    Terms(oneshot::Sender<v1::TermsReply>),
    SessionUp(
        SessionId,
        Box<v1::Hello>,
        mpsc::Sender<v1::CoordinatorMessage>,
        oneshot::Sender<Result<(), HelloError>>,
    ),
    Renew(v1::RenewRequest, oneshot::Sender<v1::RenewReply>),
    /// With the room that it takes while it waits.
    Message(SessionId, v1::AgentMessage, OwnedSemaphorePermit),
    SessionLost(SessionId),
}

pub(super) struct Service {
    events: mpsc::Sender<Event>,
    next_session: Arc<AtomicU64>,
    /// Bytes of agents' messages that may wait for the state machine.
    room: Arc<Semaphore>,
}

impl Service {
    pub(super) fn new(events: mpsc::Sender<Event>) -> Service {
        let room = Arc::new(Semaphore::new(limits::MAX_QUEUED_BYTES));
        Service { events, next_session: Arc::new(AtomicU64::new(1)), room }
    }

    async fn ask<T>(&self, event: impl FnOnce(oneshot::Sender<T>) -> Event) -> Result<T, Status> {
        let (reply, answer) = oneshot::channel();
        let gone = || Status::unavailable("the coordinator is shutting down");
        self.events.send(event(reply)).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())
    }
}

#[tonic::async_trait]
impl coordinator_server::Coordinator for Service {
    async fn register(
        &self,
        request: Request<v1::RegisterRequest>,
    ) -> Result<Response<v1::RegisterReply>, Status> {
        match self.ask(|reply| Event::Register(request.into_inner(), reply)).await? {
            Ok(coflow) => Ok(Response::new(v1::RegisterReply { coflow })),
            Err(error @ RegisterError::TooMany) => Err(Status::resource_exhausted(error.to_string())),
            Err(error) => Err(Status::invalid_argument(error.to_string())),
        }
    }

    async fn seal(&self, request: Request<v1::SealRequest>) -> Result<Response<v1::SealReply>, Status> {
        let coflow = request.into_inner().coflow;
        match self.ask(|reply| Event::Seal(coflow, reply)).await? {
            Ok(()) => Ok(Response::new(v1::SealReply {})),
            Err(error @ SealError::Unknown(_)) => Err(Status::not_found(error.to_string())),
            Err(error @ SealError::NotYetKnown(_)) => Err(Status::unavailable(error.to_string())),
        }
    }

    async fn unregister(
        &self,
        request: Request<v1::UnregisterRequest>,
    ) -> Result<Response<v1::UnregisterReply>, Status> {
        let coflow = request.into_inner().coflow;
        let record = self.ask(|reply| Event::Unregister(coflow, reply)).await?;
        Ok(Response::new(v1::UnregisterReply { record }))
    }

    async fn renew(&self, request: Request<v1::RenewRequest>) -> Result<Response<v1::RenewReply>, Status> {
        let request = request.into_inner();
        if request.coflows.len() > limits::MAX_COFLOWS_PER_CALL {
            let most = limits::MAX_COFLOWS_PER_CALL;
            return Err(Status::invalid_argument(format!("one call renews at most {most} coflows")));
        }
        Ok(Response::new(self.ask(|reply| Event::Renew(request, reply)).await?))
    }

    async fn locate(&self, request: Request<v1::LocateRequest>) -> Result<Response<v1::LocateReply>, Status> {
        let request = request.into_inner();
        if request.block.len() > limits::MAX_BLOCK_NAME_BYTES {
            let most = limits::MAX_BLOCK_NAME_BYTES;
            return Err(Status::invalid_argument(format!("a block's name has at most {most} bytes")));
        }
        Ok(Response::new(self.ask(|reply| Event::Locate(request, reply)).await?))
    }

    async fn await_admission(
        &self,
        request: Request<v1::AdmissionRequest>,
    ) -> Result<Response<v1::AdmissionReply>, Status> {
        let request = request.into_inner();
        Ok(Response::new(self.ask(|reply| Event::AwaitAdmission(request, reply)).await?))
    }

    async fn status(&self, _: Request<v1::StatusRequest>) -> Result<Response<v1::StatusReply>, Status> {
        Ok(Response::new(self.ask(Event::Status).await?))
    }

    async fn terms(&self, _: Request<v1::TermsRequest>) -> Result<Response<v1::TermsReply>, Status> {
        Ok(Response::new(self.ask(Event::Terms).await?))
    }

    type AttachStream = Pin<Box<dyn Stream<Item = Result<v1::CoordinatorMessage, Status>> + Send>>;

    async fn attach(
        &self,
        request: Request<Streaming<v1::AgentMessage>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let mut inbound = request.into_inner();
        let first = tokio::time::timeout(HELLO_LIMIT, inbound.message()).await;
        let first = first.map_err(|_| Status::deadline_exceeded("no Hello came within the time limit"))?;
        let first = first?.and_then(|message| message.events.into_iter().next());
        let Some(v1::agent_event::Kind::Hello(hello)) = first.and_then(|event| event.kind) else {
            return Err(Status::failed_precondition("the first message of a session is Hello"));
        };
        let session = SessionId(self.next_session.fetch_add(1, Ordering::Relaxed));
        let (sender, outbound) = mpsc::channel(limits::MAX_QUEUED_MESSAGES);
        self.ask(|reply| Event::SessionUp(session, Box::new(hello), sender, reply))
            .await?
            .map_err(|refused| Status::failed_precondition(refused.to_string()))?;
        let (events, room) = (self.events.clone(), Arc::clone(&self.room));
        tokio::spawn(async move {
            while let Ok(Some(message)) = inbound.message().await {
                let bytes = message.encoded_len().clamp(1, limits::MAX_QUEUED_BYTES) as u32;
                let Ok(permit) = Arc::clone(&room).acquire_many_owned(bytes).await else { return };
                if events.send(Event::Message(session, message, permit)).await.is_err() {
                    return;
                }
            }
            let _ = events.send(Event::SessionLost(session)).await;
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(outbound).map(Ok))))
    }
}
