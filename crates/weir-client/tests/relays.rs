//! Sites with relays: agents, relays, a controller and real gets in one process, over loopback.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use std::time::Duration;
use support::controller::Controller;
use support::sites::{Sites, pattern};
use weir_client::GetOptions;
use weir_proto::v1;
use weir_proto::v1::from_relay::Kind;

fn from_agent(sites: &Sites, site: usize) -> GetOptions {
    let time_limit = Duration::from_secs(60);
    GetOptions { holders: vec![sites.agent(site)], time_limit, ..GetOptions::default() }
}

/// Waits for the end of a coflow's only flow: where it entered, and whether all went by relays.
async fn ended(controller: &Controller, coflow: u64) -> (String, v1::RelayFlowEnded) {
    let end = |relay: &str, kind: &Kind| match kind {
        Kind::FlowEnded(end) if end.key.is_some_and(|key| key.coflow == coflow) => {
            Some((relay.to_owned(), *end))
        }
        _ => None,
    };
    controller.heard("that the flow ended", end).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_block_goes_by_the_relays_of_both_sites() {
    let (controller, address) = Controller::start().await;
    let sites = Sites::start(&[1, 1], Some(address)).await;
    controller.all_up(2).await;
    let bytes = pattern(5_000_001, 1);
    sites.client(0).put_bytes(7, "b", &bytes).await.unwrap();
    let got = sites.client(1).get_bytes(7, "b", from_agent(&sites, 0)).await.unwrap();
    assert!(got == bytes);
    let (relay, end) = ended(&controller, 7).await;
    // 20 frames of 262,144 bytes or less, each with 8 bytes before it.
    assert_eq!((relay.as_str(), end.complete, end.bytes_moved), ("0-0", true, 5_000_001 + 20 * 8));
}
