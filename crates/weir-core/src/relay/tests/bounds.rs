//! Peers that send more than they should, and receivers that take nothing.

use super::super::facts::{HopId, Output, RelayConfig, RelayCounters, SubscriberId};
use super::super::facts::{UpstreamId, UpstreamKind};
use super::super::flight::UnderWay;
use super::super::state::Relay;
use super::super::window::WINDOW_BYTES;
use super::network::{address, key};
use proptest::prelude::*;
use weir_model::{Span, Time};
use weir_proto::limits::MAX_RELAY_HELD_BYTES;
use weir_proto::relay::{FlowKey, HOP_LIMIT, Header, Kind, MAX_DATA_BYTES, OPEN_BYTES, Open};
use weir_proto::v1;

const LENGTH: u32 = MAX_DATA_BYTES as u32;
/// Enough for any window.
const BYTES: u64 = 1 << 40;

fn relay() -> Relay<()> {
    let mut relay = Relay::new(RelayConfig {
        name: "r0".to_owned(),
        site: 0,
        address: address(0),
        started_ms: 0,
        window_bytes: WINDOW_BYTES,
    });
    relay.handle_session_up();
    relay
}

fn open(relay: &mut Relay<()>, now: Time, flow: u32, from: u64, kind: UpstreamKind, to: usize) {
    let header = Header {
        kind: Kind::Open,
        hop_limit: HOP_LIMIT,
        length: OPEN_BYTES as u32,
        key: key(flow),
        number: BYTES,
    };
    let open = Open { source_site: 0, destination_site: to as u32, destination: address(to) };
    relay.handle_open(now, UpstreamId(from), kind, &header, open);
}

fn data(flow: u32, offset: u64, length: u32) -> Header {
    Header { kind: Kind::Data, hop_limit: HOP_LIMIT, length, key: key(flow), number: offset }
}

fn resets(relay: &mut Relay<()>) -> Vec<FlowKey> {
    std::iter::from_fn(|| relay.poll_output())
        .filter_map(|action| match action {
            Output::ToUpstream { header, .. } if header.kind == Kind::Reset => Some(header.key),
            _ => None,
        })
        .collect()
}

/// Flows of two messages each that no receiver takes. 1 GiB holds 4,095 of their messages: of 3,000 flows the
/// first ones must go.
#[test]
fn flows_without_receivers_hold_a_bounded_number_of_bytes_and_the_one_that_moves_stays() {
    let (mut relay, now) = (relay(), Time::from_millis(1));
    let subscriber = SubscriberId(1);
    relay.handle_subscribe(now, subscriber, key(0));
    open(&mut relay, now, 0, 1000, UpstreamKind::Host, 0);
    let mut taken = 0;
    for flow in 1..3_000 {
        open(&mut relay, now, flow, 1000 + u64::from(flow), UpstreamKind::Host, 0);
        for message in 0..2 {
            relay.handle_data(
                now,
                UpstreamId(1000 + u64::from(flow)),
                &data(flow, message * u64::from(LENGTH), LENGTH),
                (),
            );
            assert!(relay.held() <= MAX_RELAY_HELD_BYTES);
        }
        // Meanwhile one receiver takes its flow, a message at a time.
        relay.handle_data(now, UpstreamId(1000), &data(0, taken, LENGTH), ());
        taken += relay.poll_delivery(subscriber).map_or(0, |message| u64::from(message.length));
    }
    assert_eq!(taken, 2_999 * u64::from(LENGTH));
    // 2 * 2,999 messages came, 4,095 fit: 952 flows of two had to go, the earliest ones.
    let gone = resets(&mut relay);
    assert_eq!(gone, (1..=952).map(key).collect::<Vec<_>>());
    assert_eq!(relay.counters().crowded_out, 952);
    // Bytes of no flow, and bytes beyond the end of one, make none of those that wait go.
    for _ in 0..10 {
        relay.handle_data(now, UpstreamId(1000), &data(5_000, 0, LENGTH), ());
        let number = 2_990;
        open(&mut relay, now, 6_000, 9_000, UpstreamKind::Host, 0);
        relay.handle_data(now, UpstreamId(9_000), &data(6_000, 1 << 60, LENGTH), ());
        relay.handle_data(now, UpstreamId(9_001), &data(number, 0, LENGTH), ());
    }
    assert_eq!(relay.counters().crowded_out, 952);
    // Once they are over nothing is counted as held.
    (1..=60).for_each(|second| relay.handle_timeout(now + Span::from_millis(second * 1_000)));
    relay.handle_subscriber_closed(subscriber);
    assert_eq!(relay.held(), 0);
}

/// What a relay passes on it does not put in order; it still sees that more came than there is.
#[test]
fn a_host_that_repeats_its_bytes_is_given_up() {
    let (mut relay, now) = (relay(), Time::from_millis(1));
    let list = v1::RelayList {
        relays: vec![v1::RelayEntry {
            relay: "r1".to_owned(),
            site: 1,
            data_address: address(1).to_string(),
        }],
    };
    relay.handle_controller(now, &v1::ToRelay { kind: Some(v1::to_relay::Kind::Relays(list)) });
    open(&mut relay, now, 0, 1000, UpstreamKind::Host, 1);
    let hop = std::iter::from_fn(|| relay.poll_output()).find_map(|action| match action {
        Output::Dial { hop, .. } => Some(hop),
        _ => None,
    });
    let hop = hop.unwrap();
    relay.handle_hop_up(now, hop);
    relay.handle_credit(hop, key(0), 1 << 20);
    let granted = 5 << 20;
    // The first message again and again: each goes on before the next comes.
    let mut sent = 0;
    while resets(&mut relay).is_empty() {
        relay.handle_data(now, UpstreamId(1000), &data(0, 0, LENGTH), ());
        relay.poll_message(hop);
        sent += u64::from(LENGTH);
        assert!(sent <= granted + u64::from(LENGTH), "{sent} bytes of one message were passed on");
    }
    assert_eq!((relay.counters().misplaced, relay.held()), (1, 0));
}

/// Seed 166285: an upstream at which the flow was over, and to which it came back in a circle, says its end twice; what it says last
/// is of what it sent since.
#[test]
fn an_upstream_that_says_the_end_again_and_of_less_keeps_no_flow() {
    let (mut relay, now, subscriber) = (relay(), Time::from_millis(1), SubscriberId(7));
    let length = u64::from(LENGTH);
    let begin = |relay: &mut Relay<()>, from: u64| {
        let number = 2 * length;
        let header =
            Header { kind: Kind::Open, hop_limit: HOP_LIMIT, length: OPEN_BYTES as u32, key: key(0), number };
        let open = Open { source_site: 1, destination_site: 0, destination: address(0) };
        relay.handle_open(now, UpstreamId(from), UpstreamKind::Relay, &header, open);
    };
    begin(&mut relay, 18);
    begin(&mut relay, 31);
    relay.handle_subscribe(now, subscriber, key(0));
    relay.handle_data(now, UpstreamId(18), &data(0, 0, LENGTH), ());
    relay.handle_data(now, UpstreamId(31), &data(0, length, LENGTH), ());
    while relay.poll_delivery(subscriber).is_some() {}
    relay.handle_end(UpstreamId(18), key(0), length);
    begin(&mut relay, 18);
    relay.handle_end(UpstreamId(18), key(0), 0);
    assert!(!relay.is_idle());
    relay.handle_end(UpstreamId(31), key(0), length);
    assert!(relay.is_idle());
}

/// Its connection may make room for another, and is not taken for one that waits.
#[test]
fn a_receiver_whose_flow_is_over_is_idle() {
    let (mut relay, now, subscriber) = (relay(), Time::from_millis(1), SubscriberId(7));
    open(&mut relay, now, 0, 1000, UpstreamKind::Host, 0);
    relay.handle_subscribe(now, subscriber, key(0));
    relay.handle_data(now, UpstreamId(1000), &data(0, 0, LENGTH), ());
    assert!(relay.is_subscribed(subscriber));
    // Another receiver takes nothing of it, and loses it nothing.
    assert!(relay.poll_delivery(SubscriberId(8)).is_none());
    assert!(relay.poll_delivery(subscriber).is_some());
    relay.handle_end(UpstreamId(1000), key(0), u64::from(LENGTH));
    assert!(relay.is_idle() && !relay.is_subscribed(subscriber));
}

/// Bytes of no flow, and of a flow that another one opened: the flow goes on, and the peer that sent them is left.
#[test]
fn a_stranger_s_bytes_harm_no_flow_and_end_its_own_connection() {
    let (mut relay, now) = (relay(), Time::from_millis(1));
    open(&mut relay, now, 0, 1000, UpstreamKind::Host, 0);
    while relay.poll_output().is_some() {}
    for flow in [0, 7] {
        relay.handle_data(now, UpstreamId(1001), &data(flow, 0, LENGTH), ());
        let reset = Header::about(key(flow), Kind::Reset, 0);
        assert_eq!(
            relay.poll_output(),
            Some(Output::ToUpstream { upstream: UpstreamId(1001), header: reset })
        );
        assert_eq!(relay.poll_output(), None);
    }
    assert_eq!((relay.held(), relay.flows.len(), relay.counters()), (0, 1, RelayCounters::default()));
}

/// What waits, flow by flow.
fn counted(relay: &Relay<()>) -> u64 {
    relay.flows.values().map(|flow| flow.held).sum()
}

/// Anything that a peer may say.
#[derive(Clone, Debug)]
enum Said {
    Open(u32, u64, bool, usize, u64),
    Data(u32, u64, u64, u32, u8),
    Alive(u32, u64),
    End(u32, u64, u64),
    Reset(u32, u64),
    Closed(u64),
    Subscribe(u32, u64),
    Unsubscribe(u64),
    Up(u64),
    Down(u64),
    Credit(u64, u32, u64),
    HopReset(u64, u32),
    Take(u64),
    UnderWay(u64, u64, u64),
    Wait(u64),
    List(Vec<(u8, u8)>),
    Rules(u64, bool, Vec<(u8, u8, u64)>),
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..4, Just(u64::MAX), Just(u64::MAX - 1), 0u64..(4 << 20), any::<u64>()]
}

fn said() -> impl Strategy<Value = Said> {
    let (flow, peer) = (0u32..3, 1u64..4);
    prop_oneof![
        (flow.clone(), peer.clone(), any::<bool>(), 0usize..3, number())
            .prop_map(|(flow, from, host, to, bytes)| Said::Open(flow, from, host, to, bytes)),
        (flow.clone(), peer.clone(), number(), 0u32..=LENGTH, 0u8..4)
            .prop_map(|(flow, from, offset, length, hops)| Said::Data(flow, from, offset, length, hops)),
        (flow.clone(), peer.clone()).prop_map(|(flow, from)| Said::Alive(flow, from)),
        (flow.clone(), peer.clone(), number()).prop_map(|(flow, from, bytes)| Said::End(flow, from, bytes)),
        (flow.clone(), peer.clone()).prop_map(|(flow, from)| Said::Reset(flow, from)),
        peer.clone().prop_map(Said::Closed),
        (flow.clone(), peer.clone()).prop_map(|(flow, subscriber)| Said::Subscribe(flow, subscriber)),
        peer.clone().prop_map(Said::Unsubscribe),
        peer.clone().prop_map(Said::Up),
        peer.clone().prop_map(Said::Down),
        (peer.clone(), flow.clone(), number())
            .prop_map(|(hop, flow, credit)| Said::Credit(hop, flow, credit)),
        (peer.clone(), flow).prop_map(|(hop, flow)| Said::HopReset(hop, flow)),
        peer.clone().prop_map(Said::Take),
        (peer, number(), number()).prop_map(|(hop, unacknowledged, unwritten)| Said::UnderWay(
            hop,
            unacknowledged,
            unwritten
        )),
        number().prop_map(Said::Wait),
        proptest::collection::vec((0u8..4, 0u8..4), 0..4).prop_map(Said::List),
        (number(), any::<bool>(), proptest::collection::vec((0u8..4, 0u8..5, number()), 0..4))
            .prop_map(|(epoch, complete, rules)| Said::Rules(epoch, complete, rules)),
    ]
}

fn tell(relay: &mut Relay<()>, now: &mut Time, said: Said) {
    let at = *now;
    match said {
        Said::Open(flow, from, host, to, bytes) => {
            let kind = if host { UpstreamKind::Host } else { UpstreamKind::Relay };
            let open = Open { source_site: 0, destination_site: to as u32, destination: address(to) };
            let header = Header { kind: Kind::Open, hop_limit: 3, length: 0, key: key(flow), number: bytes };
            relay.handle_open(at, UpstreamId(from), kind, &header, open);
        }
        Said::Data(flow, from, offset, length, hop_limit) => {
            let header = Header { hop_limit, ..data(flow, offset, length) };
            relay.handle_data(at, UpstreamId(from), &header, ());
        }
        Said::Alive(flow, from) => {
            relay.handle_alive(at, UpstreamId(from), &Header::about(key(flow), Kind::Alive, 0))
        }
        Said::End(flow, from, bytes) => relay.handle_end(UpstreamId(from), key(flow), bytes),
        Said::Reset(flow, from) => relay.handle_upstream_reset(UpstreamId(from), key(flow)),
        Said::Closed(from) => relay.handle_upstream_closed(UpstreamId(from)),
        Said::Subscribe(flow, subscriber) => relay.handle_subscribe(at, SubscriberId(subscriber), key(flow)),
        Said::Unsubscribe(subscriber) => relay.handle_subscriber_closed(SubscriberId(subscriber)),
        Said::Up(hop) => relay.handle_hop_up(at, HopId(hop)),
        Said::Down(hop) => relay.handle_hop_down(at, HopId(hop)),
        Said::Credit(hop, flow, credit) => relay.handle_credit(HopId(hop), key(flow), credit),
        Said::HopReset(hop, flow) => relay.handle_hop_reset(HopId(hop), key(flow)),
        Said::Take(peer) => {
            let length = relay.poll_message(HopId(peer)).map_or(0, |message| u64::from(message.length));
            relay.handle_written(at, HopId(peer), length, true);
            relay.poll_delivery(SubscriberId(peer));
        }
        Said::UnderWay(hop, unacknowledged, unwritten) => {
            let seen = UnderWay { unacknowledged, unwritten, round_trip: Span::from_nanos(unwritten) };
            relay.handle_under_way(at, HopId(hop), seen);
        }
        Said::Wait(span) => {
            *now = at + Span::from_nanos(span);
            relay.handle_timeout(*now);
        }
        Said::List(entries) => {
            let entry = |&(name, at): &(u8, u8)| v1::RelayEntry {
                relay: format!("r{name}"),
                site: u32::from(at),
                data_address: address(at.into()).to_string(),
            };
            let list = v1::RelayList { relays: entries.iter().map(entry).collect() };
            relay.handle_controller(at, &v1::ToRelay { kind: Some(v1::to_relay::Kind::Relays(list)) });
        }
        Said::Rules(epoch, complete, rules) => {
            let rule = |&(name, kind, rank): &(u8, u8, u64)| v1::Rule {
                prefix: Some(v1::FlowPrefix {
                    coflow: (kind & 1 == 0).then_some(1),
                    reducer: (kind & 2 == 0).then_some(u32::from(name)),
                    mapper: None,
                }),
                next_hops: vec![v1::NextHop {
                    to: Some(v1::next_hop::To::Relay(format!("r{name}"))),
                    weight: f64::from_bits(rank),
                }],
                rank,
                weight: f64::from_bits(rank),
                entering: kind == 4,
            };
            let set = rules.iter().map(rule).collect();
            let rules = v1::Rules { epoch, complete, set, withdrawn: Vec::new() };
            relay.handle_controller(at, &v1::ToRelay { kind: Some(v1::to_relay::Kind::Rules(rules)) });
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::noise_cases()))]

    /// Whatever peers say, nothing panics, what is held is counted right, and once all peers are gone nothing is left.
    #[test]
    fn a_relay_survives_whatever_its_peers_say(said in proptest::collection::vec(said(), 0..200)) {
        let (mut relay, mut now) = (relay(), Time::from_millis(1));
        for said in said {
            tell(&mut relay, &mut now, said);
            while relay.poll_output().is_some() {}
            prop_assert_eq!(relay.held(), counted(&relay));
        }
        for peer in 0..20 {
            relay.handle_upstream_closed(UpstreamId(peer));
            relay.handle_subscriber_closed(SubscriberId(peer));
            relay.handle_hop_down(now, HopId(peer));
        }
        now = now + Span::from_millis(600_000);
        relay.handle_timeout(now);
        prop_assert_eq!(relay.held(), counted(&relay));
    }
}

/// The flow goes to an address of the relay that it does not know for its own, and so to itself. What opened it leaves: word of the
/// flow goes in a circle a few times more.
#[test]
fn a_flow_that_only_comes_by_itself_ends() {
    let (mut relay, mut now) = (relay(), Time::from_millis(1_000));
    open(&mut relay, now, 1, 7, UpstreamKind::Relay, 3);
    let (mut words, mut seconds) = (0, 0);
    while !relay.is_idle() {
        assert!(seconds < 30, "it says to itself that the flow goes on");
        while let Some(output) = relay.poll_output() {
            match output {
                Output::Dial { hop, .. } => relay.handle_hop_up(now, hop),
                Output::ToHop { header, open: Some(open), .. } => {
                    relay.handle_open(now, UpstreamId(8), UpstreamKind::Relay, &header, open);
                    relay.handle_upstream_closed(UpstreamId(7));
                }
                Output::ToHop { header, .. } if header.kind == Kind::Alive => {
                    words += 1;
                    relay.handle_alive(now, UpstreamId(8), &header);
                }
                _ => {}
            }
        }
        (now, seconds) = (now + Span::from_millis(1_000), seconds + 1);
        relay.handle_timeout(now);
    }
    assert!((1..=i32::from(HOP_LIMIT)).contains(&words) && seconds > 10, "{words} words, {seconds} s");
}

/// What came by a host comes by no other upstream: its other ways are circles.
#[test]
fn a_flow_whose_host_leaves_ends_though_it_comes_back_in_a_circle() {
    let (mut relay, now) = (relay(), Time::from_millis(1_000));
    open(&mut relay, now, 1, 7, UpstreamKind::Host, 3);
    open(&mut relay, now, 1, 8, UpstreamKind::Relay, 3);
    relay.handle_upstream_closed(UpstreamId(7));
    assert!(relay.is_idle());
}
