//! The server process: relays attach to it, and it tells the store what they say, and relays what was decided.

mod core;
mod known;
mod metrics;
mod rules;
mod service;
mod status;
mod undecided;

#[cfg(test)]
mod tests;

pub use self::core::{Counts, FORGETFUL_GRACE, Output, Reply, Request, ServerCore, ServerSettings};
pub use known::{
    HelloError, LOST_RELAY_GRACE, MAX_LINK_SAMPLES, MAX_OPEN_FLOWS, MAX_RELAY_NAME_BYTES, MAX_RELAYS,
    SessionId,
};
pub use metrics::METRICS;

use crate::store::{Store, StoreError};
use service::{Event, Service};
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use weir_model::Time;
use weir_net::Clock;
use weir_proto::v1::relay_control_server::RelayControlServer;
use weir_proto::{limits, v1};

/// Events that may wait for the state machine; relays wait beyond that.
const MAX_QUEUED_EVENTS: usize = 4_096;
/// Events taken in before messages go out, at most.
const MAX_EVENTS_AT_ONCE: usize = 512;

/// Serves relays on `listener` (see [`weir_net::control_listener`]) until `stop` resolves.
///
/// # Errors
/// The listener cannot be used, metrics cannot be served at their address, or the gRPC server or the state machine's task failed.
pub async fn serve(
    settings: ServerSettings,
    store: Arc<dyn Store>,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    let (events, inbox) = mpsc::channel(MAX_QUEUED_EVENTS);
    let watched = match settings.metrics {
        None => None,
        Some(address) => {
            let listener = tokio::net::TcpListener::bind(address).await;
            let listener = listener.map_err(|error| ServeError::Metrics(address, error))?;
            tracing::info!(target: "weir::process", "metrics at http://{}/metrics", listener.local_addr()?);
            let events = events.clone();
            let look = move || metrics::look(&events);
            Some(tokio::spawn(weir_metrics::serve(listener, metrics::ALL, look)))
        }
    };
    let mut owner = tokio::spawn(run(settings, store, inbox));
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let incoming = weir_net::incoming(listener);
    let service = RelayControlServer::new(Service::new(events))
        .max_decoding_message_size(limits::MAX_RELAY_MESSAGE_BYTES)
        .max_encoding_message_size(limits::MAX_RELAY_MESSAGE_BYTES);
    let served = tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(Duration::from_secs(5)))
        .http2_keepalive_timeout(Some(Duration::from_secs(5)))
        .add_service(service);
    tokio::select! {
        result = served.serve_with_incoming(incoming) => result?,
        ended = &mut owner => ended?,
        () = stop => {}
    }
    owner.abort();
    watched.into_iter().for_each(|watched| watched.abort());
    Ok(())
}

/// Why a server ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The socket cannot be used.
    #[error("cannot serve relays: {0}")]
    Listener(#[from] std::io::Error),
    /// Metrics cannot be served there.
    #[error("cannot listen on {0} for metrics: {1}")]
    Metrics(SocketAddr, #[source] std::io::Error),
    /// The gRPC server failed.
    #[error("cannot serve relays: {0}")]
    Transport(#[from] tonic::transport::Error),
    /// The state machine's task ended.
    #[error("the server's task ended: {0}")]
    Owner(#[from] tokio::task::JoinError),
}

type Asking = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// Carries a request out, after so many that failed one after the other.
fn ask(store: Arc<dyn Store>, server: String, request: Request, failures: u64) -> Asking {
    Box::pin(async move {
        let reply: Result<Reply, StoreError> = match &request {
            Request::Report(report) => store.report(report).await.map(Reply::Reported),
            Request::Renew => store.renew(&server).await.map(Reply::Renewed),
            Request::Issue(floor) => {
                store.issue(*floor).await.map(|(number, snapshot)| Reply::Issued(number, Box::new(snapshot)))
            }
        };
        reply.unwrap_or_else(|error| {
            // The first failure is news, and so is that it lasts; each of them is not.
            let failures = failures + 1;
            if failures.is_power_of_two() {
                tracing::warn!(%error, failures, "relays go on with the rules they have");
            }
            Reply::Failed
        })
    })
}

/// Owns the state machine, until all services are gone.
async fn run(settings: ServerSettings, store: Arc<dyn Store>, mut inbox: mpsc::Receiver<Event>) {
    let clock = Clock::start();
    let name = settings.name.clone();
    let mut core = ServerCore::new(clock.now(), settings);
    let mut relays: BTreeMap<SessionId, mpsc::Sender<v1::ToRelay>> = BTreeMap::new();
    let mut notices = store.listen();
    let mut asking: Option<Asking> = None;
    let mut counts = Counts::default();
    let mut failures = 0;
    loop {
        let next = core.next_timeout().unwrap_or(Time::MAX);
        let sleep = Duration::from_nanos(next.since(clock.now()).nanos());
        let answer = async {
            match &mut asking {
                Some(asking) => asking.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            event = inbox.recv() => match event {
                Some(event) => handle(&mut core, &mut relays, &clock, event),
                None => return,
            },
            reply = answer => {
                asking = None;
                failures = if reply == Reply::Failed { failures + 1 } else { 0 };
                core.handle_reply(clock.now(), reply);
            }
            notice = notices.recv() => match notice {
                Some(notice) => core.handle_notice(clock.now(), notice),
                // The listener's task ended with the store: never while this one holds it.
                None => return,
            },
            () = tokio::time::sleep(sleep) => {}
        }
        for _ in 0..MAX_EVENTS_AT_ONCE {
            let Ok(event) = inbox.try_recv() else { break };
            handle(&mut core, &mut relays, &clock, event);
        }
        core.handle_timeout(clock.now());
        let counted = core.counts();
        // A store that is away is told of above, and not with each attempt.
        if (Counts { failed: counts.failed, ..counted }) != counts {
            tracing::info!(counts = ?counted, "what should be rare happened");
            counts = counted;
        }
        while let Some(output) = core.poll_output(clock.now()) {
            match output {
                Output::Message(session, message) => {
                    deliver(&mut core, &mut relays, &clock, session, message);
                }
                Output::Warning(warning) => tracing::warn!("{warning}"),
                Output::Request(request) => {
                    asking = Some(ask(store.clone(), name.clone(), request, failures))
                }
            }
        }
    }
}

fn handle(
    core: &mut ServerCore,
    relays: &mut BTreeMap<SessionId, mpsc::Sender<v1::ToRelay>>,
    clock: &Clock,
    event: Event,
) {
    match event {
        Event::Up(session, hello, sender, reply) => {
            let result = core.handle_hello(clock.now(), session, &hello);
            let (relay, address) = (hello.relay.escape_debug(), &hello.data_address);
            match &result {
                Ok(older) => {
                    tracing::info!(%relay, address, site = hello.site, flows = hello.flows.len(), "a relay attached");
                    // Dropping its sender ends the older session's stream.
                    older.map(|older| relays.remove(&older));
                    relays.insert(session, sender);
                }
                Err(refused) => tracing::warn!(session = session.0, %refused, "a relay was refused"),
            }
            let _ = reply.send(result.map(drop));
        }
        Event::Describe(reply) => drop(reply.send(core.status())),
        Event::Observe(reply) => drop(reply.send((core.status(), core.counts()))),
        Event::Message(session, message) => core.handle_message(clock.now(), session, &message),
        Event::Lost(session) => {
            if relays.remove(&session).is_some() {
                tracing::info!(relay = core.relay_of(session), "a relay is gone");
            }
            core.handle_lost(clock.now(), session);
        }
    }
}

fn deliver(
    core: &mut ServerCore,
    relays: &mut BTreeMap<SessionId, mpsc::Sender<v1::ToRelay>>,
    clock: &Clock,
    session: SessionId,
    message: v1::ToRelay,
) {
    let Some(sender) = relays.get(&session) else { return };
    if sender.try_send(message).is_err() {
        // It lags beyond the bound or is gone. It comes back and starts from all rules.
        tracing::warn!(session = session.0, "relay does not keep up; its session is closed");
        if relays.remove(&session).is_some() {
            tracing::info!(relay = core.relay_of(session), "a relay is gone");
        }
        core.handle_lost(clock.now(), session);
    }
}
