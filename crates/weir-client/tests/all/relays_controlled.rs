//! Sites with relays under the controller: agents, relays, the controller and real gets in one process, over loopback.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use crate::support::sites::{Sites, pattern};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use weir_client::GetOptions;
use weir_controller::decider::{DeciderSettings, decide};
use weir_controller::maker::MakerSettings;
use weir_controller::records::State;
use weir_controller::server::{ServerSettings, serve};
use weir_controller::store::{EmbeddedStore, Store};

/// A controller of one process; where it listens, and what it knows.
fn controller() -> (SocketAddr, Arc<dyn Store>) {
    let store: Arc<dyn Store> = Arc::new(EmbeddedStore::new());
    let listener = weir_net::control_listener(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = listener.local_addr().unwrap();
    let settings = DeciderSettings {
        metrics: None,
        name: "decider".to_owned(),
        seed: 1,
        maker: MakerSettings::default(),
        policy: None,
    };
    tokio::spawn(decide(settings, store.clone(), std::future::pending()));
    let settings = ServerSettings::new("server".to_owned());
    tokio::spawn(serve(settings, store.clone(), listener, std::future::pending()));
    (address, store)
}

/// Waits until the state and the last order are as wanted.
async fn wait(store: &dyn Store, what: &str, reached: impl Fn(&State, &[u64]) -> bool) {
    for _ in 0..10_000 {
        let snapshot = store.read().await.unwrap();
        let order = snapshot.decision.as_ref().map_or(&[][..], |decision| &decision.proposal.order);
        if reached(&State::of(&snapshot.servers), order) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    panic!("never {what}: {:?}", store.read().await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relays_tell_their_flows_to_the_controller_and_it_puts_them_in_order() {
    let (address, store) = controller();
    // Another server of the controller, which is not there.
    let absent = SocketAddr::from(([127, 0, 0, 1], 1));
    let sites = Sites::start(&[1, 1, 1], &[absent, address]).await;
    wait(store.as_ref(), "all relays", |state, _| state.relays.len() == 3).await;
    let (long, short) = (pattern(60_000_000, 1), pattern(2_000_000, 2));
    sites.client(0).put_bytes(1, "long", &long).await.unwrap();
    sites.client(0).put_bytes(2, "short", &short).await.unwrap();
    let from_site_0 = || GetOptions {
        holders: vec![sites.agent(0)],
        time_limit: Duration::from_secs(60),
        ..GetOptions::default()
    };
    let receiver = sites.client(1);
    // Readers that take nothing keep their flows open.
    let mut slow = receiver.get(1, "long", from_site_0());
    let mut got = 0;
    let part = slow.next().await.unwrap().unwrap();
    assert!(*part == long[..part.len()]);
    got += part.len();
    wait(store.as_ref(), "the long one has its place", |_, order| order == [1]).await;
    let state = State::of(&store.read().await.unwrap().servers);
    assert!(state.coflows[&1].left[&(0, 1)] > 30e6, "{state:?}");
    assert!(receiver.get_bytes(2, "short", from_site_0()).await.unwrap() == short);
    while let Some(part) = slow.next().await.unwrap() {
        assert!(*part == long[got..][..part.len()], "wrong bytes at {got}");
        got += part.len();
    }
    assert_eq!(got, long.len());
    wait(store.as_ref(), "all over", |state, order| state.coflows.is_empty() && order.is_empty()).await;
}
