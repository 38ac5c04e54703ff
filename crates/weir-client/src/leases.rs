//! Renewing the leases of coflows: as long as a client that registered a coflow lives, the coflow does.
//!
//! A driver that ends without unregistering, or is killed, renews no more; the coordinator then ends its coflows when
//! no put, get or flow shows that they are needed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tonic::transport::Channel;
use weir_proto::v1::coordinator_client::CoordinatorClient;
use weir_proto::{limits, v1};

/// Shortest and longest time between two renewals: a third of the shortest lease is between them. The first is also the
/// time after which a renewal that failed is repeated, so that a host that was cut off is heard soon after it no longer is.
const RENEWAL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// How long one call may take at most. One of a short lease has a third of that.
const CALL_LIMIT: Duration = Duration::from_secs(10);

/// Coflows that this client registered and did not unregister, with their leases.
#[derive(Debug, Default)]
pub(crate) struct Owned(Mutex<Coflows>);

#[derive(Debug, Default)]
struct Coflows {
    /// As the coordinator said last; 0 where it said none.
    lease_ms: BTreeMap<u64, u64>,
    /// Whether a task of this client renews them.
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

    /// Renewals are at most this far apart.
    fn pause(&self) -> Duration {
        let coflows = self.coflows();
        let stated = coflows.lease_ms.values().filter(|&&lease_ms| lease_ms > 0).min();
        // One renewal may fail, and the next still comes well before the lease ends.
        let third = stated.map_or(RENEWAL.1, |&lease_ms| Duration::from_millis(lease_ms / 3));
        third.clamp(RENEWAL.0, RENEWAL.1)
    }

    /// What a coordinator answered to a renewal.
    fn renewed(&self, renewed: &[u64], reply: v1::RenewReply) {
        let mut coflows = self.coflows();
        for coflow in reply.ended {
            coflows.lease_ms.remove(&coflow);
        }
        // A coordinator that began anew may keep coflows for a shorter time than the one that registered them.
        for coflow in renewed.iter().filter(|_| reply.lease_ms > 0) {
            coflows.lease_ms.entry(*coflow).and_modify(|lease_ms| *lease_ms = reply.lease_ms);
        }
    }
}

/// Renews until the client is gone.
async fn renew(mut client: CoordinatorClient<Channel>, owned: Weak<Owned>) {
    let mut last = Instant::now();
    loop {
        // In short steps: a coflow with a short lease may come meanwhile, and the client may go.
        tokio::time::sleep(RENEWAL.0).await;
        let Some(owned) = owned.upgrade() else { return };
        let (began, pause) = (Instant::now(), owned.pause());
        // What is due within the next step would be late after it.
        if began.duration_since(last) + RENEWAL.0 / 2 >= pause && renew_all(&mut client, &owned, pause).await
        {
            last = began;
        }
    }
}

/// One renewal of all coflows; false if some could not be renewed. A call that is refused keeps no others from being made.
async fn renew_all(client: &mut CoordinatorClient<Channel>, owned: &Owned, limit: Duration) -> bool {
    let coflows: Vec<u64> = owned.coflows().lease_ms.keys().copied().collect();
    let mut all = true;
    for coflows in coflows.chunks(limits::MAX_COFLOWS_PER_CALL) {
        let call = client.renew(v1::RenewRequest { coflows: coflows.to_vec() });
        match tokio::time::timeout(limit.min(CALL_LIMIT), call).await {
            Ok(Ok(reply)) => owned.renewed(coflows, reply.into_inner()),
            Ok(Err(_)) => all = false,
            // A coordinator that is silent would be waited for with each chunk.
            Err(_) => return false,
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(leases: &[(u64, u64)]) -> Owned {
        let owned = Owned::default();
        owned.coflows().lease_ms.extend(leases.iter().copied());
        owned
    }

    #[test]
    fn renewals_come_at_a_third_of_the_shortest_lease_that_the_coordinator_told() {
        let owned = owned(&[(1, 600_000), (2, 20_000), (3, 0)]);
        // 20 s / 3.
        assert_eq!(owned.pause(), Duration::from_millis(6_666));
        owned.remove(2);
        assert_eq!(owned.pause(), Duration::from_secs(60), "no more than a minute apart");
        // The coordinator began anew, with leases of 45 s.
        owned.renewed(&[1, 3], v1::RenewReply { ended: vec![3], lease_ms: 45_000 });
        assert_eq!(owned.pause(), Duration::from_secs(15));
        assert_eq!(owned.coflows().lease_ms.keys().copied().collect::<Vec<_>>(), [1]);
        // One that does not say changes nothing.
        owned.renewed(&[1], v1::RenewReply::default());
        assert_eq!(owned.pause(), Duration::from_secs(15));
    }
}
