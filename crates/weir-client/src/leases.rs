//! Renewing the leases of coflows: as long as a client that registered a coflow lives, the coflow does.
//!
//! A driver that ends without unregistering, or is killed, renews no more; the coordinator then ends its coflows when
//! nobody else shows that they are needed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tonic::transport::Channel;
use weir_proto::v1::coordinator_client::CoordinatorClient;
use weir_proto::{limits, v1};

/// Longest and shortest time between two renewals: a third of the shortest lease is between them.
const RENEWAL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// How long one call may take.
const CALL_LIMIT: Duration = Duration::from_secs(10);

/// Coflows that this client registered and did not unregister, with the leases that were asked for.
#[derive(Debug, Default)]
pub(crate) struct Owned(Mutex<Coflows>);

#[derive(Debug, Default)]
struct Coflows {
    lease_ms: BTreeMap<u64, u64>,
    /// Whether somebody renews them.
    renewed: bool,
}

impl Owned {
    fn coflows(&self) -> MutexGuard<'_, Coflows> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A coflow is this client's from now on.
    pub(crate) fn add(self: &Arc<Owned>, client: &CoordinatorClient<Channel>, coflow: u64, lease_ms: u64) {
        let mut coflows = self.coflows();
        coflows.lease_ms.insert(coflow, lease_ms);
        if !std::mem::replace(&mut coflows.renewed, true) {
            tokio::spawn(renew(client.clone(), Arc::downgrade(self)));
        }
    }

    /// A coflow has ended.
    pub(crate) fn remove(&self, coflow: u64) {
        self.coflows().lease_ms.remove(&coflow);
    }

    /// When to renew next.
    fn pause(&self) -> Duration {
        let coflows = self.coflows();
        let stated = coflows.lease_ms.values().filter(|&&lease_ms| lease_ms > 0).min();
        let third = stated.map_or(RENEWAL.1, |&lease_ms| Duration::from_millis(lease_ms / 3));
        third.clamp(RENEWAL.0, RENEWAL.1)
    }
}

/// Renews until the client is gone. A call that fails is repeated with the next renewal.
async fn renew(mut client: CoordinatorClient<Channel>, owned: Weak<Owned>) {
    loop {
        let Some(pause) = owned.upgrade().map(|owned| owned.pause()) else { return };
        // In short steps: a coflow with a short lease may come meanwhile.
        for _ in 0..pause.as_secs().max(1) {
            tokio::time::sleep(Duration::from_secs(1)).await;
            match owned.upgrade() {
                Some(owned) if owned.pause() >= pause => {}
                Some(_) => break,
                None => return,
            }
        }
        let Some(owned) = owned.upgrade() else { return };
        let coflows: Vec<u64> = owned.coflows().lease_ms.keys().copied().collect();
        for coflows in coflows.chunks(limits::MAX_COFLOWS_PER_CALL) {
            let request = v1::RenewRequest { coflows: coflows.to_vec() };
            if let Ok(Ok(reply)) = tokio::time::timeout(CALL_LIMIT, client.renew(request)).await {
                reply.into_inner().ended.into_iter().for_each(|coflow| owned.remove(coflow));
            }
        }
    }
}
