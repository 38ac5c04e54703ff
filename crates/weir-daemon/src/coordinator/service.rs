//! The gRPC face of the coordinator: every call becomes an event with a place for its reply.

use super::ChangeCall;
use super::locating::{Answers, Locating};
use super::planning_time::PlanSeconds;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_stream::Stream;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use weir_core::coordinator::{
    Change, ExpectError, ForgetError, HelloError, Observed, OfferError, RegisterError, SealError, SessionId,
};
use weir_model::CoflowId;
use weir_proto::v1::coordinator_server;
use weir_proto::{Message as _, limits, v1};

/// Status calls that are answered together, at most.
const MAX_STATUS_CALLS: usize = 64;
/// How long the first message of a session may take.
const HELLO_LIMIT: Duration = Duration::from_secs(10);

pub(super) enum Event {
    Register(v1::RegisterRequest, oneshot::Sender<Result<v1::RegisterReply, RegisterError>>),
    /// And who hears that it is in force.
    Change(Box<Change>, oneshot::Sender<()>),
    Forget(v1::ForgetRequest, oneshot::Sender<Result<String, ForgetError>>),
    Drain(u64, v1::DrainRequest, oneshot::Sender<Result<v1::DrainReply, String>>),
    Expect(v1::ExpectRequest, oneshot::Sender<Result<(), ExpectError>>),
    Seal(CoflowId, oneshot::Sender<Result<(), SealError>>),
    /// With a number of its own, before the coflow.
    Unregister(u64, CoflowId, oneshot::Sender<Option<v1::CoflowRecord>>),
    /// With a number of its own, under which it may be given up.
    Locate(u64, v1::LocateRequest, Locating),
    AwaitAdmission(u64, v1::AdmissionRequest, oneshot::Sender<v1::AdmissionReply>),
    /// Of one coflow, or of everything (0).
    Status(CoflowId, oneshot::Sender<v1::StatusReply>),
    /// With a number of its own.
    Offer(u64, v1::OfferRequest, oneshot::Sender<Result<u64, OfferError>>),
    ListBlocks(v1::ListBlocksRequest, oneshot::Sender<v1::ListBlocksReply>),
    Terms(oneshot::Sender<v1::TermsReply>),
    Observe(oneshot::Sender<(Observed, PlanSeconds)>),
    SessionUp(
        SessionId,
        Box<v1::Hello>,
        mpsc::Sender<v1::CoordinatorMessage>,
        oneshot::Sender<Result<(), HelloError>>,
    ),
    Renew(v1::RenewRequest, oneshot::Sender<v1::RenewReply>),
    /// With the room that it takes while it waits.
    Message(SessionId, v1::AgentMessage, [OwnedSemaphorePermit; 2]),
    SessionLost(SessionId),
}

impl Event {
    /// Of an agent's message: handling it takes as long as it is long.
    pub(super) fn bytes(&self) -> usize {
        if let Event::Message(_, _, [_, all]) = self { all.num_permits() } else { 0 }
    }
}

pub(super) struct Service {
    events: mpsc::Sender<Event>,
    next_session: Arc<AtomicU64>,
    next_token: AtomicU64,
    /// Numbers of calls whose callers are gone: one for each call that waits, so no more than may wait.
    given_up: mpsc::UnboundedSender<u64>,
    /// Status calls that wait; others wait for them.
    status_calls: Semaphore,
    /// Bytes of agents' messages that may wait for the state machine.
    room: Arc<Semaphore>,
    /// Who makes changes of settings.
    changes: Option<mpsc::Sender<ChangeCall>>,
}

impl Service {
    pub(super) fn new(
        events: mpsc::Sender<Event>,
        given_up: mpsc::UnboundedSender<u64>,
        changes: Option<mpsc::Sender<ChangeCall>>,
    ) -> Service {
        Service {
            changes,
            events,
            given_up,
            next_session: Arc::new(AtomicU64::new(1)),
            next_token: AtomicU64::new(1),
            status_calls: Semaphore::new(MAX_STATUS_CALLS),
            room: Arc::new(Semaphore::new(limits::MAX_QUEUED_BYTES)),
        }
    }

    /// Asks what may take as long as the caller says. A caller that goes away meanwhile is told of.
    async fn ask_patiently<T>(
        &self,
        event: impl FnOnce(u64, oneshot::Sender<T>) -> Event,
    ) -> Result<T, Status> {
        let token = self.next_token.fetch_add(1, Ordering::Relaxed);
        let mut caller = Caller { token, given_up: Some(&self.given_up) };
        let answer = self.ask(|reply| event(token, reply)).await;
        // Answered: dropping the value must not tell that the caller is gone.
        caller.given_up = None;
        answer
    }

    async fn ask<T>(&self, event: impl FnOnce(oneshot::Sender<T>) -> Event) -> Result<T, Status> {
        let (reply, answer) = oneshot::channel();
        let gone = || Status::unavailable("the coordinator is shutting down");
        self.events.send(event(reply)).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())
    }
}

/// The caller of one call. tonic drops this value when the caller goes away.
struct Caller<'a> {
    token: u64,
    /// None once the call was answered.
    given_up: Option<&'a mpsc::UnboundedSender<u64>>,
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        if let Some(given_up) = self.given_up {
            let _ = given_up.send(self.token);
        }
    }
}

/// The coflow of a call has ended, or may become known yet.
fn not_known(error: &SealError) -> Status {
    match error {
        SealError::Unknown(_) => Status::not_found(error.to_string()),
        SealError::NotYetKnown(_) => Status::unavailable(error.to_string()),
    }
}

#[tonic::async_trait]
impl coordinator_server::Coordinator for Service {
    async fn register(
        &self,
        request: Request<v1::RegisterRequest>,
    ) -> Result<Response<v1::RegisterReply>, Status> {
        match self.ask(|reply| Event::Register(request.into_inner(), reply)).await? {
            Ok(reply) => Ok(Response::new(reply)),
            Err(error @ RegisterError::TooMany) => Err(Status::resource_exhausted(error.to_string())),
            Err(error) => Err(Status::invalid_argument(error.to_string())),
        }
    }

    async fn drain(&self, request: Request<v1::DrainRequest>) -> Result<Response<v1::DrainReply>, Status> {
        let request = request.into_inner();
        let reply = self.ask_patiently(|token, reply| Event::Drain(token, request, reply)).await?;
        reply.map(Response::new).map_err(Status::aborted)
    }

    async fn forget(&self, request: Request<v1::ForgetRequest>) -> Result<Response<v1::ForgetReply>, Status> {
        match self.ask(|reply| Event::Forget(request.into_inner(), reply)).await? {
            Ok(name) => Ok(Response::new(v1::ForgetReply { name })),
            Err(error @ ForgetError::Unknown(_)) => Err(Status::not_found(error.to_string())),
            Err(error @ ForgetError::Present(_)) => Err(Status::failed_precondition(error.to_string())),
        }
    }

    async fn change(&self, request: Request<v1::ChangeRequest>) -> Result<Response<v1::ChangeReply>, Status> {
        let settings = request.into_inner().settings;
        if settings.len() > limits::MAX_SETTINGS_PER_CALL {
            let most = limits::MAX_SETTINGS_PER_CALL;
            return Err(Status::invalid_argument(format!("one call changes at most {most} settings")));
        }
        let changes = self.changes.as_ref().ok_or_else(|| {
            Status::failed_precondition("this coordinator was started without settings that can change")
        })?;
        let settings = settings.into_iter().map(|setting| (setting.name, setting.value)).collect();
        let (reply, answer) = oneshot::channel();
        changes.try_send(ChangeCall { settings, reply }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => {
                Status::resource_exhausted("as many changes are under way as may be; ask again")
            }
            mpsc::error::TrySendError::Closed(_) => Status::unavailable("the coordinator is shutting down"),
        })?;
        let gone = |_| Status::unavailable("the coordinator is shutting down");
        let changed = answer.await.map_err(gone)?.map_err(Status::invalid_argument)?;
        Ok(Response::new(v1::ChangeReply { changed }))
    }

    async fn seal(&self, request: Request<v1::SealRequest>) -> Result<Response<v1::SealReply>, Status> {
        let coflow = CoflowId(request.into_inner().coflow);
        let sealed = self.ask(|reply| Event::Seal(coflow, reply)).await?;
        sealed.map(|()| Response::new(v1::SealReply {})).map_err(|error| not_known(&error))
    }

    async fn expect(&self, request: Request<v1::ExpectRequest>) -> Result<Response<v1::ExpectReply>, Status> {
        match self.ask(|reply| Event::Expect(request.into_inner(), reply)).await? {
            Ok(()) => Ok(Response::new(v1::ExpectReply {})),
            Err(ExpectError::Coflow(error)) => Err(not_known(&error)),
            Err(error @ ExpectError::TooManyHosts(_)) => Err(Status::invalid_argument(error.to_string())),
            Err(error @ ExpectError::TooMany) => Err(Status::resource_exhausted(error.to_string())),
        }
    }

    async fn unregister(
        &self,
        request: Request<v1::UnregisterRequest>,
    ) -> Result<Response<v1::UnregisterReply>, Status> {
        let coflow = CoflowId(request.into_inner().coflow);
        let token = self.next_token.fetch_add(1, Ordering::Relaxed);
        // A caller that gives up does not take the end back, so that the owner need not hear of it.
        let record = self.ask(|reply| Event::Unregister(token, coflow, reply)).await?;
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
        check_name(&request.block)?;
        let event = |token, reply| Event::Locate(token, request, Locating::Alone(reply));
        Ok(Response::new(self.ask_patiently(event).await?))
    }

    type LocateAllStream = Pin<Box<dyn Stream<Item = Result<v1::LocateAllReply, Status>> + Send>>;

    async fn locate_all(
        &self,
        request: Request<v1::LocateAllRequest>,
    ) -> Result<Response<Self::LocateAllStream>, Status> {
        let requests = request.into_inner().requests;
        if requests.len() > limits::MAX_LOCATES_PER_CALL {
            let most = limits::MAX_LOCATES_PER_CALL;
            return Err(Status::invalid_argument(format!("one call asks for at most {most} blocks")));
        }
        requests.iter().try_for_each(|request| check_name(&request.block))?;
        let count = requests.len() as u64;
        // A number for each block, under which it may be given up by itself.
        let first = self.next_token.fetch_add(count, Ordering::Relaxed);
        let (answers, replies) = Answers::new(first..first + count, self.given_up.clone());
        for ((token, index), request) in (first..).zip(0..).zip(requests) {
            let event = Event::Locate(token, request, Locating::Among(index, replies.clone()));
            let sent = self.events.send(event).await;
            sent.map_err(|_| Status::unavailable("the coordinator is shutting down"))?;
        }
        Ok(Response::new(Box::pin(answers)))
    }

    async fn await_admission(
        &self,
        request: Request<v1::AdmissionRequest>,
    ) -> Result<Response<v1::AdmissionReply>, Status> {
        let request = request.into_inner();
        Ok(Response::new(
            self.ask_patiently(|token, reply| Event::AwaitAdmission(token, request, reply)).await?,
        ))
    }

    async fn offer(&self, request: Request<v1::OfferRequest>) -> Result<Response<v1::OfferReply>, Status> {
        let request = request.into_inner();
        check_name(&request.block)?;
        if request.path.len() > limits::MAX_PATH_BYTES {
            let most = limits::MAX_PATH_BYTES;
            return Err(Status::invalid_argument(format!("a path has at most {most} bytes")));
        }
        match self.ask_patiently(|token, reply| Event::Offer(token, request, reply)).await? {
            Ok(size) => Ok(Response::new(v1::OfferReply { size })),
            Err(OfferError::Refused(reason)) => Err(Status::failed_precondition(reason)),
            Err(OfferError::Away(reason)) => Err(Status::unavailable(reason)),
        }
    }

    async fn list_blocks(
        &self,
        request: Request<v1::ListBlocksRequest>,
    ) -> Result<Response<v1::ListBlocksReply>, Status> {
        check_name(&request.get_ref().after)?;
        Ok(Response::new(self.ask(|reply| Event::ListBlocks(request.into_inner(), reply)).await?))
    }

    async fn status(&self, request: Request<v1::StatusRequest>) -> Result<Response<v1::StatusReply>, Status> {
        let coflow = CoflowId(request.into_inner().coflow);
        let place = self.status_calls.acquire().await;
        let _place = place.map_err(|_| Status::unavailable("the coordinator is shutting down"))?;
        Ok(Response::new(self.ask(|reply| Event::Status(coflow, reply)).await?))
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
        if first.as_ref().is_some_and(|first| entries_of(first) > limits::MAX_ENTRIES_RECEIVED) {
            let most = limits::MAX_ENTRIES_RECEIVED;
            return Err(Status::invalid_argument(format!("a message has at most {most} entries")));
        }
        let Some(v1::agent_event::Kind::Hello(hello)) = first.and_then(|event| event.kind) else {
            return Err(Status::failed_precondition("the first message of a session is Hello"));
        };
        let session = SessionId(self.next_session.fetch_add(1, Ordering::Relaxed));
        let (sender, outbound) = mpsc::channel(limits::MAX_QUEUED_MESSAGES);
        self.ask(|reply| Event::SessionUp(session, Box::new(hello), sender, reply)).await?.map_err(
            |refused| match refused {
                HelloError::Taken { .. } | HelloError::Awaited { .. } => {
                    Status::already_exists(refused.to_string())
                }
                // The agent is to ask for the terms again, and soon.
                HelloError::Terms => Status::unavailable(refused.to_string()),
                // The agent answers this code by drawing its next number (`agent/session.rs`).
                HelloError::NumberTaken { .. } => Status::aborted(refused.to_string()),
                _ => Status::failed_precondition(refused.to_string()),
            },
        )?;
        let (events, room) = (self.events.clone(), Arc::clone(&self.room));
        tokio::spawn(async move {
            // Room for messages of this one agent that wait, so that it does not hold up all others.
            let own_room = Arc::new(Semaphore::new(limits::MAX_SESSION_QUEUED_BYTES));
            while let Ok(Some(message)) = inbound.message().await {
                let entries = entries(&message);
                if entries > limits::MAX_ENTRIES_RECEIVED {
                    let most = limits::MAX_ENTRIES_RECEIVED;
                    tracing::warn!(
                        session = session.0,
                        "a message of {entries} entries, more than {most}: the session is closed"
                    );
                    break;
                }
                let bytes = message.encoded_len();
                let own = bytes.clamp(1, limits::MAX_SESSION_QUEUED_BYTES) as u32;
                let Ok(own) = Arc::clone(&own_room).acquire_many_owned(own).await else { return };
                let all = bytes.clamp(1, limits::MAX_QUEUED_BYTES) as u32;
                let Ok(all) = Arc::clone(&room).acquire_many_owned(all).await else { return };
                if events.send(Event::Message(session, message, [own, all])).await.is_err() {
                    return;
                }
            }
            let _ = events.send(Event::SessionLost(session)).await;
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(outbound).map(Ok))))
    }
}

fn check_name(block: &str) -> Result<(), Status> {
    let most = limits::MAX_BLOCK_NAME_BYTES;
    let refused = || Status::invalid_argument(format!("a block's name has at most {most} bytes"));
    if block.len() > most { Err(refused()) } else { Ok(()) }
}

/// What handling a message takes time for.
fn entries(message: &v1::AgentMessage) -> usize {
    message.events.iter().map(entries_of).sum()
}

fn entries_of(event: &v1::AgentEvent) -> usize {
    use v1::agent_event::Kind;
    let listed = match &event.kind {
        Some(Kind::Hello(hello)) => {
            let ended = hello.ended.len() + hello.ended_ranges.len();
            hello.coflows.len() + hello.blocks.len() + hello.flows.len() + ended
        }
        Some(Kind::HelloPart(part)) => {
            part.coflows.len() + part.blocks.len() + part.flows.len() + part.ended.len()
        }
        Some(Kind::Progress(progress)) => progress.flows.len(),
        Some(Kind::Interface(report)) => report.own.len(),
        Some(Kind::Attained(attained)) => attained.coflows.len(),
        Some(Kind::Limits(limits)) => limits.flows.len(),
        _ => 0,
    };
    listed + 1
}
