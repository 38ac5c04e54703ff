//! Sites with relays: agents, relays, a controller and real gets in one process, over loopback.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use crate::support::controller::{Controller, rule};
use crate::support::sites::{Sites, pattern};
use std::time::Duration;
use weir_client::{BlockReader, GetOptions};
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

/// Bytes of a flow that carries a block: a frame of at most 262,144 bytes has 8 bytes before it.
fn with_headers(block: usize) -> u64 {
    (block + block.div_ceil(262_144) * 8) as u64
}

/// Reads on until `until` bytes are here, and compares each.
async fn read_until(reader: &mut BlockReader, bytes: &[u8], got: &mut usize, until: usize) {
    while *got < until {
        let part = reader.next().await.unwrap().unwrap();
        assert!(part == &bytes[*got..][..part.len()], "wrong bytes at {got}");
        *got += part.len();
    }
}

/// A slow machine makes it slower, and none faster: 3 MB at 2 MB/s, with what may go at once when a connection begins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_between_relays_carries_no_more_than_it_may() {
    let mut sites = Sites::start(&[1, 1], &[]).await;
    sites.relay("0-0").restart_with(weir_model::Rate::from_bytes_per_sec(2e6)).await;
    let bytes = pattern(3_000_000, 5);
    sites.client(0).put_bytes(3, "b", &bytes).await.unwrap();
    let start = std::time::Instant::now();
    assert!(sites.client(1).get_bytes(3, "b", from_agent(&sites, 0)).await.unwrap() == bytes);
    assert!(start.elapsed() > Duration::from_millis(800), "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_block_goes_by_the_relays_of_both_sites() {
    let (controller, address) = Controller::start().await;
    let sites = Sites::start(&[1, 1], &[address]).await;
    controller.all_up(2).await;
    let bytes = pattern(5_000_001, 1);
    sites.client(0).put_bytes(7, "b", &bytes).await.unwrap();
    let receiver = sites.client(1);
    // The second one on the connections of the first.
    for _ in 0..2 {
        assert!(receiver.get_bytes(7, "b", from_agent(&sites, 0)).await.unwrap() == bytes);
    }
    let (relay, end) = ended(&controller, 7).await;
    assert_eq!((relay.as_str(), end.complete, end.bytes_moved), ("0-0", true, with_headers(bytes.len())));
    // Nobody said which way: each flow was asked for, once.
    let missed =
        |_: &str, kind: &Kind| matches!(kind, Kind::Miss(miss) if miss.destination_site == 1).then_some(());
    controller.heard("that a flow has no rule", missed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn within_a_site_no_relay_is_used() {
    let (controller, address) = Controller::start().await;
    let sites = Sites::start(&[1, 1], &[address]).await;
    controller.all_up(2).await;
    let bytes = pattern(1_000_000, 2);
    sites.client(0).put_bytes(8, "b", &bytes).await.unwrap();
    assert!(sites.client(0).get_bytes(8, "b", from_agent(&sites, 0)).await.unwrap() == bytes);
    // A later flow to another site is the first one that relays tell of.
    assert!(sites.client(1).get_bytes(8, "b", from_agent(&sites, 0)).await.unwrap() == bytes);
    ended(&controller, 8).await;
    assert_eq!(controller.opened(), 1);
}

/// Site 1 has two relays. The flow from site 0 to site 2 goes straight, then by one of them, then by the other, then
/// by both: all in its middle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_that_changes_in_mid_flow_moves_the_flow_and_loses_nothing() {
    let (controller, address) = Controller::start().await;
    let sites = Sites::start(&[1, 2, 1], &[address]).await;
    controller.all_up(4).await;
    let bytes = pattern(60_000_000, 3);
    sites.client(0).put_bytes(9, "b", &bytes).await.unwrap();
    let mut reader = sites.client(2).get(9, "b", from_agent(&sites, 0));
    let mut got = 0;
    let ways: [&[(&str, f64)]; 4] = [&[("1-0", 1.0)], &[("1-1", 1.0)], &[("1-0", 3.0), ("1-1", 1.0)], &[]];
    for (step, way) in (1..).zip(ways) {
        controller.set_rule("0-0", rule(9, way, 1));
        read_until(&mut reader, &bytes, &mut got, step * 12_000_000).await;
    }
    read_until(&mut reader, &bytes, &mut got, bytes.len()).await;
    assert!(reader.next().await.unwrap().is_none());
    let (relay, end) = ended(&controller, 9).await;
    assert_eq!((relay.as_str(), end.complete, end.bytes_moved), ("0-0", true, with_headers(bytes.len())));
}

/// A relay on the way dies. What it held is lost with it; the receiver asks its holder for the rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_dies_in_mid_flow_costs_no_byte() {
    let (controller, address) = Controller::start().await;
    let mut sites = Sites::start(&[1, 2, 1], &[address]).await;
    controller.all_up(4).await;
    controller.set_rule("0-0", rule(10, &[("1-0", 1.0)], 1));
    let bytes = pattern(60_000_000, 4);
    sites.client(0).put_bytes(10, "b", &bytes).await.unwrap();
    let mut reader = sites.client(2).get(10, "b", from_agent(&sites, 0));
    let mut got = 0;
    read_until(&mut reader, &bytes, &mut got, 5_000_000).await;
    sites.relay("1-0").kill().await;
    read_until(&mut reader, &bytes, &mut got, bytes.len()).await;
    assert!(reader.next().await.unwrap().is_none());
    let (relay, end) = ended(&controller, 10).await;
    assert_eq!((relay.as_str(), end.complete), ("0-0", false));
    let down = |_: &str, kind: &Kind| match kind {
        Kind::NextHop(state) if state.relay == "1-0" && !state.up => Some(()),
        _ => None,
    };
    controller.heard("that a neighbour is down", down).await;
    // The rule still names the dead relay: the next flow goes straight, and whole.
    let again = pattern(2_000_000, 5);
    sites.client(0).put_bytes(10, "again", &again).await.unwrap();
    assert!(sites.client(2).get_bytes(10, "again", from_agent(&sites, 0)).await.unwrap() == again);
    let whole = |_: &str, kind: &Kind| matches!(kind, Kind::FlowEnded(end) if end.complete).then_some(());
    controller.heard("that a flow went whole", whole).await;
}

/// The receiver's own relay dies, then that of the source: both sites go on without.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_site_without_its_relay_still_sends_and_receives() {
    let mut sites = Sites::start(&[1, 1], &[]).await;
    let bytes = pattern(40_000_000, 6);
    sites.client(0).put_bytes(11, "b", &bytes).await.unwrap();
    for dead in ["1-0", "0-0"] {
        let mut reader = sites.client(1).get(11, "b", from_agent(&sites, 0));
        let mut got = 0;
        read_until(&mut reader, &bytes, &mut got, 3_000_000).await;
        sites.relay(dead).kill().await;
        read_until(&mut reader, &bytes, &mut got, bytes.len()).await;
        assert!(reader.next().await.unwrap().is_none());
    }
}

/// Nobody reads one flow. The others, over the same connections between the same relays, do not notice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_stops_reading_holds_up_nobody_else() {
    let sites = Sites::start(&[1, 1], &[]).await;
    let (stuck, bytes) = (pattern(60_000_000, 7), pattern(3_000_000, 8));
    sites.client(0).put_bytes(12, "stuck", &stuck).await.unwrap();
    sites.client(0).put_bytes(12, "b", &bytes).await.unwrap();
    let receiver = sites.client(1);
    let mut reader = receiver.get(12, "stuck", from_agent(&sites, 0));
    let mut got = 0;
    read_until(&mut reader, &stuck, &mut got, 1).await;
    for _ in 0..8 {
        assert!(receiver.get_bytes(12, "b", from_agent(&sites, 0)).await.unwrap() == bytes);
    }
    read_until(&mut reader, &stuck, &mut got, stuck.len()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_closes_connections_that_never_say_what_they_are_for() {
    use tokio::io::AsyncReadExt;
    let mut sites = Sites::start(&[1, 1], &[]).await;
    let address = sites.relay("0-0").listens;
    let mut silent = tokio::net::TcpStream::connect(address).await.unwrap();
    // One that said what it is for stays: a flow after the time limit goes by it.
    let bytes = pattern(100_000, 6);
    sites.client(0).put_bytes(4, "b", &bytes).await.unwrap();
    assert!(sites.client(1).get_bytes(4, "b", from_agent(&sites, 0)).await.unwrap() == bytes);
    let closed = tokio::time::timeout(Duration::from_secs(30), silent.read_u8()).await;
    assert!(closed.expect("the relay waits on").is_err());
    assert!(sites.client(1).get_bytes(4, "b", from_agent(&sites, 0)).await.unwrap() == bytes);
}
