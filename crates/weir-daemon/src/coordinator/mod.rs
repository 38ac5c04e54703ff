//! The coordinator process: one task owns the state machine; gRPC handlers and agents' sessions talk to
//! it through a bounded queue.

mod locating;
mod metrics;
mod planning_time;
mod refusals;
mod service;
mod snapshots;

use locating::Locating;
pub use metrics::METRICS;
use planning_time::{PlanSeconds, PlanningTimes};
use refusals::Refusals;
use service::{Event, Service};
use snapshots::Snapshots;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
pub use weir_core::coordinator::{Change, DeadlineMargin, Joining, KnownHost, KnownRack, Tuning, Wire};
use weir_core::coordinator::{Coordinator, CoordinatorConfig, OfferError, Output, SessionId, first_coflow};
use weir_core::ids::HostNumber;
use weir_model::{CoflowId, Fabric, Span, Time};
use weir_net::{Alarm, Clock};
use weir_policy::Chosen;
use weir_proto::v1::coordinator_server::CoordinatorServer;
use weir_proto::{limits, v1};

/// Events that may wait for the state machine; senders wait beyond that. What waits longer is planned for later.
const MAX_QUEUED_EVENTS: usize = 4_096;
/// Events taken in before plans and replies go out, at most: a flood of them must not hold those up.
const MAX_EVENTS_AT_ONCE: usize = 512;
/// And bytes of agents' messages among them.
const MAX_BYTES_AT_ONCE: usize = limits::MAX_PORTION_BYTES;

/// A change that has agents come again is in force once they are there, or after so long.
const RETURN_LIMIT: Span = Span::from_millis(2_000);
/// A plan that takes longer is told.
const SLOW_PLAN: Span = Span::from_millis(500);

/// What a coordinator process needs to know.
pub struct CoordinatorOptions {
    /// The network to schedule, in payload bytes per second.
    pub fabric: Fabric,
    /// How other hosts may join it; none may without.
    pub joining: Option<Joining>,
    /// The policy that plans until a change names another.
    pub policy: Chosen,
    /// Its times and bounds.
    pub tuning: Tuning,
    /// How policy, times and network change while it runs; they do not without.
    pub control: Option<Control>,
    /// How long agents keep to a plan without hearing more.
    pub lease: Span,
    /// What interfaces count, for agents that measure theirs.
    pub wire: Wire,
    /// Where metrics are served.
    pub metrics: Option<SocketAddr>,
    /// How long a coflow is kept without a sign of life, if its driver did not say; [`Span::MAX`]: for ever.
    pub coflow_lease: Span,
}

/// Changes of a coordinator that runs, made by the process that started it.
pub struct Control {
    /// What it is to be like from then on, and who hears that it is.
    pub changes: mpsc::Receiver<(Change, oneshot::Sender<()>)>,
    /// Calls to change settings. Only the process that started it knows what they mean.
    pub calls: mpsc::Sender<ChangeCall>,
}

/// A call to change settings.
pub struct ChangeCall {
    /// Names of settings, with their new values.
    pub settings: Vec<(String, String)>,
    /// What changed; or why nothing did, in one line.
    pub reply: oneshot::Sender<Result<Vec<v1::Changed>, String>>,
}

impl CoordinatorOptions {
    /// Options with the defaults of the command line: a lease of 1 s, and coflows without a sign of life kept for ten minutes.
    pub fn new(fabric: Fabric, policy: Chosen) -> CoordinatorOptions {
        CoordinatorOptions {
            fabric,
            joining: None,
            policy,
            tuning: Tuning::default(),
            control: None,
            lease: Span::from_millis(1000),
            wire: Wire { bytes_per_byte: 1.0, headroom: 1.0 },
            metrics: None,
            coflow_lease: Span::from_millis(600_000),
        }
    }
}

/// Serves on `listener` (see [`weir_net::control_listener`]) until `stop` resolves.
///
/// # Errors
/// The listener or the address for metrics cannot be used, or the task that owns the coordinator's state fails.
pub async fn serve(
    mut options: CoordinatorOptions,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send,
) -> anyhow::Result<()> {
    let (events, inbox) = mpsc::channel(MAX_QUEUED_EVENTS);
    let calls = options.control.take().map(|control| {
        let (events, mut changes) = (events.clone(), control.changes);
        tokio::spawn(async move {
            while let Some((change, done)) = changes.recv().await {
                if events.send(Event::Change(Box::new(change), done)).await.is_err() {
                    return;
                }
            }
        });
        control.calls
    });
    let watched = crate::watching::listen(options.metrics).await?.map(|listener| {
        let events = events.clone();
        tokio::spawn(weir_metrics::serve(listener, metrics::ALL, move || metrics::look(&events)))
    });
    // Without a bound, as what is dropped cannot wait for room. Each call that waits sends one
    // token at most.
    let (given_up, gone) = mpsc::unbounded_channel();
    let mut owner = tokio::spawn(run(options, inbox, gone, Alarm::new()?));
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let incoming = weir_net::incoming(listener);
    let service = CoordinatorServer::new(Service::new(events, given_up, calls))
        .max_decoding_message_size(limits::MAX_CONTROL_MESSAGE_BYTES)
        .max_encoding_message_size(limits::MAX_CONTROL_MESSAGE_BYTES);
    let served = tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(Duration::from_secs(5)))
        .http2_keepalive_timeout(Some(Duration::from_secs(5)))
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(4 << 20)
        .add_service(service);
    tokio::select! {
        result = served.serve_with_incoming(incoming) => result?,
        // Without it every call would fail and every agent wait. Ended, agents share as TCP does.
        ended = &mut owner => ended??,
        () = stop => {}
    }
    owner.abort();
    watched.into_iter().for_each(|watched| watched.abort());
    Ok(())
}

/// Who waits for an answer.
enum Caller {
    Locating(Locating),
    Awaiting(oneshot::Sender<v1::AdmissionReply>),
    Ending(oneshot::Sender<Option<v1::CoflowRecord>>),
    Offering(oneshot::Sender<Result<u64, OfferError>>),
    Draining(oneshot::Sender<Result<v1::DrainReply, String>>),
}

struct Owner {
    clock: Clock,
    core: Coordinator,
    /// With the host of each.
    sessions: BTreeMap<SessionId, (HostNumber, mpsc::Sender<v1::CoordinatorMessage>)>,
    /// Calls that are answered later, by their tokens.
    callers: BTreeMap<u64, Caller>,
    snapshots: Snapshots,
    refusals: Refusals,
    planning: PlanningTimes,
    plan_seconds: PlanSeconds,
    /// Who hears that a change is in force, once all agents are back, or at the latest then.
    changing: Vec<(Time, oneshot::Sender<()>)>,
}

async fn run(
    options: CoordinatorOptions,
    mut inbox: mpsc::Receiver<Event>,
    mut gone: mpsc::UnboundedReceiver<u64>,
    alarm: Alarm,
) -> std::io::Result<()> {
    let clock = Clock::start();
    let started_ms = clock.now().nanos() / 1_000_000;
    let config = CoordinatorConfig {
        fabric: options.fabric,
        joining: options.joining,
        lease: options.lease,
        first_coflow: first_coflow(started_ms, rand::random()),
        coflow_lease: options.coflow_lease,
        wire: options.wire,
        tuning: options.tuning,
    };
    let mut owner = Owner {
        clock,
        core: Coordinator::new(config, &options.policy),
        sessions: BTreeMap::new(),
        callers: BTreeMap::new(),
        snapshots: Snapshots::default(),
        refusals: Refusals::default(),
        planning: PlanningTimes::default(),
        plan_seconds: PlanSeconds::default(),
        changing: Vec::new(),
    };
    loop {
        let changed = owner.changing.iter().map(|&(until, _)| until);
        let wakes = owner.core.next_timeout().into_iter().chain(owner.snapshots.next_due());
        let wake = wakes.chain(changed).min();
        let timer = async {
            match wake {
                Some(at) => alarm.wait(at.since(clock.now())).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            event = inbox.recv() => match event {
                Some(event) => owner.handle(event),
                None => return Ok(()),
            },
            Some(token) = gone.recv() => owner.give_up(token),
            expired = timer => expired?,
        }
        for _ in 0..MAX_EVENTS_AT_ONCE {
            let Ok(token) = gone.try_recv() else { break };
            owner.give_up(token);
        }
        // Long messages take long to handle: the bound in bytes keeps the next plan from waiting for many of them.
        let mut room = MAX_BYTES_AT_ONCE;
        for _ in 0..MAX_EVENTS_AT_ONCE {
            let Ok(event) = inbox.try_recv() else { break };
            room = room.saturating_sub(event.bytes());
            owner.handle(event);
            if room == 0 {
                break;
            }
        }
        owner.settle();
    }
}

impl Owner {
    fn handle(&mut self, event: Event) {
        let now = self.clock.now();
        match event {
            Event::Register(request, reply) => {
                let registered = self.core.handle_register(now, request);
                let told = |coflow: CoflowId| v1::RegisterReply {
                    coflow: coflow.0,
                    lease_ms: self.core.lease_ms(coflow),
                };
                let _ = reply.send(registered.map(told));
            }
            Event::Change(change, done) => {
                self.core.handle_change(now, *change);
                self.changing.push((now + RETURN_LIMIT, done));
            }
            Event::Forget(request, reply) => {
                let _ = reply.send(self.core.handle_forget(&request));
            }
            Event::Drain(_, _, reply) if reply.is_closed() => {}
            Event::Drain(token, request, reply) => {
                self.callers.insert(token, Caller::Draining(reply));
                self.core.handle_drain(now, token, &request);
            }
            Event::Expect(request, reply) => {
                let _ = reply.send(self.core.handle_expect(now, &request));
            }
            Event::Seal(coflow, reply) => {
                let _ = reply.send(self.core.handle_seal(now, coflow));
            }
            Event::Unregister(token, coflow, reply) => {
                self.callers.insert(token, Caller::Ending(reply));
                self.core.handle_unregister(now, token, coflow);
            }
            // A caller that is gone may be heard of before its call was read: such a call is dropped here.
            Event::Locate(_, _, reply) if reply.is_closed() => {}
            Event::AwaitAdmission(_, _, reply) if reply.is_closed() => {}
            Event::Locate(token, request, reply) => {
                self.callers.insert(token, Caller::Locating(reply));
                self.core.handle_locate(now, token, request);
            }
            Event::Offer(_, _, reply) if reply.is_closed() => {}
            Event::Offer(token, request, reply) => {
                self.callers.insert(token, Caller::Offering(reply));
                self.core.handle_offer(now, token, request);
            }
            Event::AwaitAdmission(token, request, reply) => {
                self.callers.insert(token, Caller::Awaiting(reply));
                self.core.handle_await_admission(now, token, &request);
            }
            Event::Status(coflow, reply) => self.snapshots.ask(coflow, reply),
            Event::ListBlocks(request, reply) => {
                let _ = reply.send(self.core.list_blocks(&request));
            }
            Event::Observe(reply) => {
                let _ = reply.send((self.core.observe(now), self.plan_seconds.clone()));
            }
            Event::Terms(reply) => {
                let _ = reply.send(self.core.terms());
            }
            Event::SessionUp(session, hello, sender, reply) => {
                let (host, address) = (HostNumber(hello.host), hello.data_address.clone());
                let result = self.core.handle_hello(now, session, *hello);
                match &result {
                    Ok(()) => {
                        tracing::info!(host = host.0, address, session = session.0, "agent attached");
                        self.refusals.forget(host, &address);
                        self.sessions.insert(session, (host, sender));
                    }
                    Err(error) => {
                        if let Some(times) = self.refusals.note(host, &address) {
                            tracing::warn!(host = host.0, address, times, %error, "agent refused");
                        }
                    }
                }
                let _ = reply.send(result);
            }
            Event::Renew(request, reply) => {
                let _ = reply.send(self.core.handle_renew(now, &request));
            }
            Event::Message(session, message, _room) => self.core.handle_agent(now, session, message),
            Event::SessionLost(session) => {
                if let Some((host, _)) = self.sessions.remove(&session) {
                    tracing::info!(host = host.0, session = session.0, "agent detached");
                }
                self.core.handle_session_lost(now, session);
            }
        }
    }

    /// The caller of what takes long is gone.
    fn give_up(&mut self, token: u64) {
        self.callers.remove(&token);
        self.core.handle_given_up(token);
    }

    /// Plans once and delivers everything that came of the last events.
    fn settle(&mut self) {
        let now = self.clock.now();
        self.core.handle_timeout(now);
        if self.core.poll_plan(now) {
            let taken = self.clock.now().since(now);
            self.planning.note(taken);
            self.plan_seconds.note(taken.as_secs());
            if taken > SLOW_PLAN {
                tracing::warn!(millis = taken.as_secs() * 1e3, "a plan took long");
            }
        }
        while let Some(output) = self.core.poll_output() {
            self.carry_out(now, output);
        }
        // A change may end sessions. It is answered once their agents are back, or after
        // `RETURN_LIMIT`.
        let all_are_back = self.core.returning() == 0;
        for (until, done) in std::mem::take(&mut self.changing) {
            if all_are_back || until <= now {
                let _ = done.send(());
            } else {
                self.changing.push((until, done));
            }
        }
        if self.snapshots.next_due().is_some_and(|due| due <= now) {
            let before = self.clock.now();
            let mut made = self.core.statuses(before, &self.snapshots.asked());
            for snapshot in made.values_mut() {
                snapshot.planning = Some(self.planning.summary());
            }
            let after = self.clock.now();
            self.snapshots.answer(&made, after, after.since(before));
        }
    }

    fn carry_out(&mut self, now: Time, output: Output) {
        match output {
            Output::Message(session, message) => {
                let Some((host, sender)) = self.sessions.get(&session) else { return };
                if sender.try_send(message).is_err() {
                    // It lags beyond the bound or is gone. Closing makes the agent come back and start from
                    // a complete plan.
                    tracing::warn!(
                        host = host.0,
                        session = session.0,
                        "agent does not keep up; its session is closed"
                    );
                    self.sessions.remove(&session);
                    self.core.handle_session_lost(now, session);
                }
            }
            Output::Close(session) => {
                if let Some((host, _)) = self.sessions.remove(&session) {
                    tracing::info!(
                        host = host.0,
                        session = session.0,
                        "a session is closed: its host's agent has a newer one or is another, or it is to come again, under another policy"
                    );
                }
            }
            Output::Expired(coflow) => {
                tracing::warn!(
                    coflow = coflow.0,
                    "ended: the coflow's lease ran out, as it had no put, no get, no byte and no renewal"
                );
            }
            Output::Unregistered(unregistered) => {
                if let Some(Caller::Ending(reply)) = self.callers.remove(&unregistered.token) {
                    let _ = reply.send(unregistered.record);
                }
            }
            Output::Decided(decision) => {
                if let Some(Caller::Awaiting(reply)) = self.callers.remove(&decision.token) {
                    let _ = reply.send(decision.reply);
                }
            }
            Output::Offered(offered) => {
                if let Some(Caller::Offering(reply)) = self.callers.remove(&offered.token) {
                    let _ = reply.send(offered.result);
                }
            }
            Output::Drained(drained) => {
                if let Some(Caller::Draining(reply)) = self.callers.remove(&drained.token) {
                    let _ = reply.send(drained.result);
                }
            }
            Output::Located(answer) => {
                if let Some(Caller::Locating(caller)) = self.callers.remove(&answer.token) {
                    caller.answer(answer.reply);
                }
            }
        }
    }
}
