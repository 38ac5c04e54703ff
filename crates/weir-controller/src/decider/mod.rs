//! The decision maker's process: it takes up every state that the store has, and makes a decision of it, beside others
//! that do the same.

use crate::maker::{Maker, MakerSettings, Step};
use crate::records::State;
use crate::store::{Notice, Snapshot, Store, StoreError};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// First and longest pause after the store failed.
const RETRY: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));
/// The store is looked at this often even if nothing is heard from it.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How a decision maker is told from others.
#[derive(Clone, Debug, PartialEq)]
pub struct DeciderSettings {
    /// Its name, unique among all decision makers.
    pub name: String,
    /// Seed of its draws. Decision makers with the same one find the same, and add nothing to each other.
    pub seed: u64,
    /// How it decides.
    pub maker: MakerSettings,
    /// The policy that decides in place of rounds of simulation: its name, and perhaps settings.
    pub policy: Option<String>,
}

/// Decides until `stop` resolves.
///
/// # Errors
/// [`weir_policy::UnknownPolicy`] if there is no such policy.
pub async fn decide(
    settings: DeciderSettings,
    store: Arc<dyn Store>,
    stop: impl Future<Output = ()>,
) -> Result<(), weir_policy::UnknownPolicy> {
    let DeciderSettings { name, seed, maker, policy } = settings;
    let maker = match policy {
        Some(policy) => Maker::of_policy(name, weir_policy::create(&policy)?, maker),
        None => Maker::new(name, seed, maker),
    };
    tokio::select! {
        () = run(maker, store) => {}
        () = stop => {}
    }
    Ok(())
}

async fn run(mut maker: Maker, store: Arc<dyn Store>) {
    let mut notices = store.listen();
    let mut pause = RETRY.0;
    let mut failures: u64 = 0;
    loop {
        let outcome = decide_once(&mut maker, store.as_ref()).await;
        if outcome.is_ok() && std::mem::take(&mut failures) > 0 {
            tracing::info!("the store answers again");
        }
        match outcome {
            Ok(Outcome::Over) => pause = RETRY.0,
            Ok(Outcome::Nothing) => {
                pause = RETRY.0;
                wait(&mut notices).await;
            }
            Err(error) => {
                // The first failure is news, and so is that it lasts; each of them is not.
                failures += 1;
                if failures.is_power_of_two() {
                    tracing::warn!(%error, failures, "no decisions until it does; relays keep the rules they have");
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(RETRY.1);
            }
        }
    }
}

/// What came of one look at the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The state was decided, by whomever, or is no more: there may be another one.
    Over,
    /// There is no state without a last decision.
    Nothing,
}

/// Waits for news, and takes those that come together at once.
async fn wait(notices: &mut mpsc::Receiver<Notice>) {
    let _ = tokio::time::timeout(LOOK_INTERVAL, notices.recv()).await;
    while notices.try_recv().is_ok() {}
}

async fn decide_once(maker: &mut Maker, store: &dyn Store) -> Result<Outcome, StoreError> {
    let Snapshot { epoch, servers, decision } = store.read().await?;
    let settled = decision.is_some_and(|decision| decision.settles(epoch, crate::decision::Finality::Final));
    if servers.is_empty() || settled {
        return Ok(Outcome::Nothing);
    }
    let state = State::of(&servers);
    maker.begin(epoch, &state);
    loop {
        match maker.step() {
            Step::Propose(proposal) => {
                let number = store.propose(&proposal).await?;
                tracing::debug!(epoch, ?number, finality = ?proposal.finality, rounds = proposal.rounds, "proposed");
            }
            Step::Share(tally) => {
                let Some(tallies) = store.share(epoch, maker.name(), &tally).await? else {
                    return Ok(Outcome::Over);
                };
                maker.totals(&tallies);
            }
            Step::Done => return Ok(Outcome::Over),
        }
        // Rounds take a while; others of this process may have something to do.
        tokio::task::yield_now().await;
    }
}
