//! The store of a controller that is one process.

use super::{Ledger, MAX_QUEUED_NOTICES, Notice, Renewal, Report, Snapshot, Store, StoreError};
use crate::decision::Proposal;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;
use weir_net::Clock;
use weir_policy::order::tally::Tally;

/// A [`Ledger`] behind a lock. It is gone with the process.
pub struct EmbeddedStore {
    clock: Clock,
    shared: Mutex<Shared>,
}

#[derive(Default)]
struct Shared {
    ledger: Ledger,
    listeners: Vec<mpsc::Sender<Notice>>,
}

impl EmbeddedStore {
    /// A store without documents or decisions.
    pub fn new() -> EmbeddedStore {
        EmbeddedStore { clock: Clock::start(), shared: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // Nothing panics while it is locked; if it did, every step leaves the ledger whole.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, step: impl FnOnce(&mut Ledger) -> T) -> T {
        let mut shared = self.lock();
        let done = step(&mut shared.ledger);
        for notice in shared.ledger.take_notices() {
            // A full queue misses one: what waits there makes its listener look anyway.
            shared.listeners.retain(|listener| {
                !matches!(listener.try_send(notice), Err(mpsc::error::TrySendError::Closed(_)))
            });
        }
        done
    }
}

impl Default for EmbeddedStore {
    fn default() -> EmbeddedStore {
        EmbeddedStore::new()
    }
}

#[tonic::async_trait]
impl Store for EmbeddedStore {
    async fn report(&self, report: &Report) -> Result<Option<u64>, StoreError> {
        Ok(self.with(|ledger| ledger.report(self.clock.now(), report)))
    }

    async fn renew(&self, server: &str) -> Result<Renewal, StoreError> {
        Ok(self.with(|ledger| ledger.renew(self.clock.now(), server)))
    }

    async fn read(&self) -> Result<Snapshot, StoreError> {
        Ok(self.with(|ledger| ledger.read()))
    }

    async fn issue(&self, floor: u64) -> Result<(u64, Snapshot), StoreError> {
        Ok(self.with(|ledger| ledger.issue(floor)))
    }

    async fn share(&self, epoch: u64, maker: &str, tally: &Tally) -> Result<Option<Vec<Tally>>, StoreError> {
        Ok(self.with(|ledger| ledger.share(epoch, maker, tally)))
    }

    async fn propose(&self, proposal: &Proposal) -> Result<Option<u64>, StoreError> {
        Ok(self.with(|ledger| ledger.propose(proposal)))
    }

    fn listen(&self) -> mpsc::Receiver<Notice> {
        let (sender, receiver) = mpsc::channel(MAX_QUEUED_NOTICES);
        // There is room for the first.
        let _ = sender.try_send(Notice::Connected);
        self.lock().listeners.push(sender);
        receiver
    }
}
