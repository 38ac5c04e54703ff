//! The decision maker's process: it takes up every state that the store has, and makes a decision of it, beside others
//! that do the same.

mod core;
mod metrics;

pub use self::core::{DeciderCore, LOOK_INTERVAL, Reply, Request};
pub use self::metrics::METRICS;

use crate::decision::Proposal;
use crate::maker::{Maker, MakerSettings};
use crate::store::Store;
use metrics::Counts;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use weir_model::Time;
use weir_net::Clock;

/// How a decision maker is told from others.
#[derive(Clone, Debug, PartialEq)]
pub struct DeciderSettings {
    /// Its name, unique among all decision makers.
    pub name: String,
    /// Seed of its draws. Decision makers with the same one find the same, and add nothing to each other.
    pub seed: u64,
    /// Bounds of its rounds, and how they decide.
    pub maker: MakerSettings,
    /// The policy that decides in place of rounds of simulation: its name, and perhaps settings.
    pub policy: Option<String>,
    /// Where metrics are served over HTTP, if they are.
    pub metrics: Option<SocketAddr>,
}

/// Why a decision maker did not begin.
#[derive(Debug, thiserror::Error)]
pub enum DecideError {
    /// There is no such policy.
    #[error(transparent)]
    Policy(#[from] weir_policy::UnknownPolicy),
    /// Metrics cannot be served there.
    #[error("cannot listen on {0} for metrics: {1}")]
    Metrics(SocketAddr, #[source] std::io::Error),
}

/// Decides until `stop` resolves.
///
/// # Errors
/// There is no such policy, or metrics cannot be served.
pub async fn decide(
    settings: DeciderSettings,
    store: Arc<dyn Store>,
    stop: impl Future<Output = ()>,
) -> Result<(), DecideError> {
    let DeciderSettings { name, seed, maker, policy, metrics } = settings;
    let maker = match policy {
        Some(policy) => Maker::of_policy(name, weir_policy::find(&policy)?, maker),
        None => Maker::new(name, seed, maker),
    };
    let counts = Counts::default();
    let watched = match metrics {
        None => None,
        Some(address) => {
            let failed = |error| DecideError::Metrics(address, error);
            let listener = tokio::net::TcpListener::bind(address).await.map_err(failed)?;
            let at = listener.local_addr().map_err(failed)?;
            tracing::info!(target: "weir::process", "metrics at http://{at}/metrics");
            let counts = counts.clone();
            Some(tokio::spawn(weir_metrics::serve(listener, metrics::ALL, move || counts.look())))
        }
    };
    tokio::select! {
        () = run(maker, store, counts) => {}
        () = stop => {}
    }
    watched.into_iter().for_each(|watched| watched.abort());
    Ok(())
}

async fn run(maker: Maker, store: Arc<dyn Store>, counts: Counts) {
    let clock = Clock::start();
    let mut core = DeciderCore::new(clock.now(), maker);
    let mut notices = store.listen();
    let mut failures: u64 = 0;
    loop {
        while let Some(request) = core.poll_request(clock.now()) {
            let reply = ask(store.as_ref(), core.name(), &request, failures).await;
            counts.note(&request, &reply);
            if reply == Reply::Failed {
                failures += 1;
            } else if std::mem::take(&mut failures) > 0 {
                tracing::info!("the store answers again");
            }
            core.handle_reply(clock.now(), reply);
            // Rounds take a while; others of this process may have something to do.
            tokio::task::yield_now().await;
        }
        let next = core.next_timeout().unwrap_or(Time::MAX);
        let sleep = Duration::from_nanos(next.since(clock.now()).nanos());
        if tokio::time::timeout(sleep, notices.recv()).await.is_ok() {
            // Notices that come together count as one.
            while notices.try_recv().is_ok() {}
            core.handle_notice(clock.now());
        }
    }
}

/// Carries a request out, after so many that failed one after the other.
async fn ask(store: &dyn Store, maker: &str, request: &Request, failures: u64) -> Reply {
    let reply = match request {
        Request::Read => store.read().await.map(|snapshot| Reply::Read(Box::new(snapshot))),
        Request::Propose(proposal) => {
            let number = store.propose(proposal).await;
            let Proposal { epoch, finality, rounds, .. } = proposal;
            tracing::debug!(epoch, ?number, ?finality, rounds, "proposed");
            number.map(Reply::Proposed)
        }
        Request::Share(epoch, tally) => store.share(*epoch, maker, tally).await.map(Reply::Shared),
    };
    reply.unwrap_or_else(|error| {
        // The first failure is news, and so is that it lasts; each of them is not.
        let failures = failures + 1;
        if failures.is_power_of_two() {
            tracing::warn!(%error, failures, "no decisions until it does; relays keep the rules they have");
        }
        Reply::Failed
    })
}
