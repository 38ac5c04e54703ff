//! What becomes of flows: by rules, under failures, and beside a stuck one.

use super::super::facts::SubscriberId;
use super::super::state::{SILENCE_LIMIT, WAIT_LIMIT};
use super::super::window::WINDOW_BYTES;
use super::network::{MESSAGE, Network, key};
use proptest::prelude::*;
use weir_model::Span;

/// 192 messages and 500 bytes.
const BYTES: u64 = 6 * WINDOW_BYTES + 500;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the order of events, and whatever rules say: bytes come whole and in order, and nothing is left.
    #[test]
    fn every_byte_arrives_once_and_in_order_while_rules_change(
        seed: u64, flows in 1u32..5, rules in proptest::collection::vec((0usize..3, 1u32..4, 1u32..4, 0u64..3), 0..6),
    ) {
        let mut network = Network::new(3, seed);
        let subscribers: Vec<_> = (0..flows).map(|flow| network.begin(flow, 0, 2, BYTES)).collect();
        network.run(500);
        for (kind, one, other, rank) in rules {
            // Straight on, by way of relay 1, or both.
            let to = [vec![(2, 1.0)], vec![(1, 1.0)], vec![(1, f64::from(one)), (2, f64::from(other))]];
            network.set_rule(0, &to[kind], rank);
            network.run(500);
        }
        network.run(40_000);
        for subscriber in subscribers {
            let receiver = &network.receivers[&subscriber];
            prop_assert_eq!((receiver.bytes, receiver.reset), (BYTES, false));
        }
        prop_assert_eq!(network.open_flows(), 0);
        for relay in &network.relays {
            prop_assert_eq!(relay.counters().reset, 0);
        }
    }

    /// A relay on the way dies at any time: a flow that lost bytes is reset, any other arrives whole.
    #[test]
    fn after_a_relay_died_a_flow_is_whole_or_its_receiver_knows(seed: u64, before in 0usize..4000, flows in 1u32..5) {
        let mut network = Network::new(3, seed);
        network.set_rule(0, &[(1, 1.0), (2, 1.0)], 0);
        let subscribers: Vec<_> = (0..flows).map(|flow| network.begin(flow, 0, 2, BYTES)).collect();
        network.run(before);
        network.kill(1);
        network.run(40_000);
        for subscriber in subscribers {
            let receiver = &network.receivers[&subscriber];
            prop_assert!(receiver.bytes == BYTES || receiver.reset, "{:?}", receiver);
        }
        prop_assert_eq!(network.open_flows(), 0);
    }
}

/// Weights 3 and 1: of 192 messages, 144 go by relay 1.
#[test]
fn messages_are_divided_by_weight() {
    let mut network = Network::new(3, 5);
    network.set_rule(0, &[(1, 3.0), (2, 1.0)], 0);
    let subscriber = network.begin(0, 0, 2, BYTES);
    network.run(40_000);
    assert_eq!(network.receivers[&subscriber].bytes, BYTES);
    let by_relay = network.carried[&(0, 1)];
    assert!(by_relay.abs_diff(BYTES * 3 / 4) <= u64::from(MESSAGE), "{by_relay}");
    assert_eq!(network.carried[&(1, 2)], by_relay);
}

#[test]
fn a_stuck_flow_holds_its_windows_and_nothing_else() {
    let mut network = Network::new(3, 9);
    network.set_rule(0, &[(1, 1.0)], 0);
    let stuck = network.begin(0, 0, 2, 100 * WINDOW_BYTES);
    network.receivers.get_mut(&stuck).unwrap().stuck = true;
    network.run(200_000);
    let others: Vec<_> = (1..4).map(|flow| network.begin(flow, 0, 2, BYTES)).collect();
    network.run(60_000);
    for other in others {
        assert_eq!(network.receivers[&other].bytes, BYTES);
    }
    // Its source was stopped: the last relay holds a window of it, the one before two, and so on.
    let [near, far] = [(0, 1), (1, 2)].map(|way| network.carried[&way] - 3 * BYTES);
    assert_eq!((near, far), (2 * WINDOW_BYTES, WINDOW_BYTES));
    assert_eq!(network.open_flows(), 3, "the stuck one, at each of three relays");
}

/// Relays 0 and 1 send to each other what is for relay 2.
#[test]
fn a_loop_ends_at_the_hop_limit() {
    let mut network = Network::new(3, 3);
    network.set_rule(0, &[(1, 1.0)], 0);
    network.set_rule(1, &[(0, 1.0)], 0);
    let subscriber = network.begin(0, 0, 2, BYTES);
    network.run(20_000);
    assert_eq!(network.open_flows(), 0);
    assert_eq!(network.receivers[&subscriber].bytes, 0);
    let looped: u64 = network.relays.iter().map(|relay| relay.counters().looped).sum();
    assert!(looped >= 1, "{looped}");
}

/// Each of two relays grants because the other one did: not more than the flow has. An `Open` each way, and credits by a quarter
/// of a window.
#[test]
fn relays_in_a_circle_do_not_go_on_granting() {
    let mut network = Network::new(3, 3);
    network.set_rule(0, &[(1, 1.0)], 0);
    network.set_rule(1, &[(0, 1.0)], 0);
    network.begin(0, 0, 2, BYTES);
    let arrived = network.arrivals(1_000);
    assert!(arrived < 40, "{arrived} messages, and no byte among them");
}

/// A rule that came when all was sent has opened another way, and what is said there comes last.
#[test]
fn a_way_that_was_opened_too_late_gives_nothing_up() {
    let mut network = Network::new(3, 3);
    let subscriber = network.begin(0, 0, 2, 500);
    while network.receivers[&subscriber].bytes < 500 {
        network.step();
    }
    network.set_rule(0, &[(1, 1.0), (2, 1.0)], 0);
    network.acknowledge();
    network.arrivals(100);
    let resets: u64 = network.relays.iter().map(|relay| relay.counters().reset).sum();
    assert_eq!((resets, network.open_flows()), (0, 0));
}

/// Two sites that pass on for each other: what enters takes the detour, what comes from the other goes on.
#[test]
fn a_rule_of_what_enters_lets_the_rest_go_straight_on() {
    let mut network = Network::new(3, 3);
    network.set_entering_rule(0, &[(1, 1.0)]);
    network.set_entering_rule(1, &[(0, 1.0)]);
    let subscribers = [network.begin(0, 0, 2, BYTES), network.begin(1, 1, 2, BYTES)];
    network.run(40_000);
    let got = subscribers.map(|subscriber| network.receivers[&subscriber].bytes);
    let looped: u64 = network.relays.iter().map(|relay| relay.counters().looped).sum();
    assert_eq!((got, looped), ([BYTES; 2], 0));
}

/// Relay 0 sent some of the flow to relay 1, and goes on directly; relay 1 sends what it has back to relay 0. Each is the
/// other's next hop, and hears of the end from the other: still it ends at both.
#[test]
fn a_flow_that_went_in_a_circle_ends_where_it_entered() {
    let mut came_back = 0;
    for seed in 0..20 {
        let mut network = Network::new(3, seed);
        network.set_rule(0, &[(1, 1.0)], 0);
        let subscriber = network.begin(0, 0, 2, BYTES);
        network.run(300);
        network.set_rule(0, &[(2, 1.0)], 0);
        network.set_rule(1, &[(0, 1.0)], 0);
        network.run(40_000);
        came_back += usize::from(network.carried.contains_key(&(1, 0)));
        let receiver = &network.receivers[&subscriber];
        assert_eq!((receiver.bytes, receiver.reset, network.open_flows()), (BYTES, false, 0), "seed {seed}");
    }
    assert!(came_back > 10, "only {came_back} went in a circle");
}

#[test]
fn a_receiver_whose_flow_never_comes_is_told_so() {
    let mut network = Network::new(2, 3);
    let subscriber = SubscriberId(77);
    network.receivers.insert(subscriber, Default::default());
    let now = network.now;
    network.relays[1].handle_subscribe(now, subscriber, key(77));
    network.pass_time(Span::from_nanos(WAIT_LIMIT.nanos() - 1));
    assert!(!network.receivers[&subscriber].reset);
    network.pass_time(Span::from_millis(2_000));
    assert!(network.receivers[&subscriber].reset);
}

/// Nothing closes, nothing comes: what a stopped process looks like. No `Alive` arrives, for the network stands still.
#[test]
fn a_flow_whose_upstream_is_silent_is_given_up() {
    let mut network = Network::new(2, 3);
    let subscriber = network.begin(0, 0, 1, BYTES);
    network.run(300);
    assert!(network.receivers[&subscriber].bytes > 0);
    for second in 1..=12 {
        network.relays[1].handle_timeout(network.now + Span::from_millis(second * 1_000));
    }
    let mut told = None;
    while let Some(action) = network.relays[1].poll_output() {
        if let super::super::facts::Output::ToSubscriber { header, .. } = action {
            told = Some(header.kind);
        }
    }
    assert_eq!(told, Some(weir_proto::relay::Kind::Reset));
    assert_eq!(network.relays[1].counters().reset, 1);
}

/// What upstreams said while the relay was stopped waits in its sockets.
#[test]
fn a_relay_that_was_stopped_gives_no_flow_up_for_what_it_did_not_hear() {
    let mut network = Network::new(2, 3);
    let subscriber = network.begin(0, 0, 1, BYTES);
    network.run(300);
    let waiting = SubscriberId(77);
    network.receivers.insert(waiting, Default::default());
    let now = network.now;
    network.relays[1].handle_subscribe(now, waiting, key(77));
    network.relays[1].handle_timeout(now);
    network.now = now + SILENCE_LIMIT + WAIT_LIMIT;
    network.relays[1].handle_timeout(network.now);
    network.act();
    assert!(!network.receivers[&subscriber].reset && !network.receivers[&waiting].reset);
    // From then on silence counts.
    let resets = |network: &Network| network.relays[1].counters().reset;
    for second in 1..=11 {
        network.relays[1].handle_timeout(network.now + Span::from_millis(second * 1_000));
        assert_eq!(resets(&network), u64::from(second >= 10), "after {second} s");
    }
}

const URGENT: u64 = 20 * MESSAGE as u64;

/// A flow of a lesser rank goes first wherever both wait: it is done while the other has hardly begun.
#[test]
fn a_coflow_that_goes_first_passes_one_that_came_before() {
    let mut network = Network::new(2, 4);
    let first = network.begin(0, 0, 1, BYTES);
    // Without a rule, flows go last; the rule is of reducer 5 alone.
    let rule = weir_proto::v1::Rule {
        prefix: Some(weir_proto::v1::FlowPrefix { coflow: Some(1), reducer: Some(5), mapper: None }),
        next_hops: Vec::new(),
        rank: 1,
        weight: 1.0,
        entering: false,
    };
    let rules = weir_proto::v1::Rules { epoch: 9, set: vec![rule], ..Default::default() };
    let message = weir_proto::v1::ToRelay { kind: Some(weir_proto::v1::to_relay::Kind::Rules(rules)) };
    let now = network.now;
    network.relays[0].handle_controller(now, &message);
    network.fill(1);
    let urgent = network.begin(5, 0, 1, URGENT);
    network.fill(5);
    while network.receivers[&urgent].bytes < URGENT {
        network.step();
    }
    let passed = network.receivers[&first].bytes;
    assert!(passed < 2 * URGENT, "{passed}");
}

/// Two neighbours at site 1 and one at site 2. The first two have been waited for for 250 ms; in the next 250 ms 3 MB and 1 MB
/// went there, 0.5 MB of them still on the way: 14 MB/s to site 1. The third was not waited for.
#[test]
fn links_are_told_by_site_and_only_while_they_are_waited_for() {
    use super::super::facts::{HopId, Output, RelayConfig};
    use super::super::state::Relay;
    use super::network::address;
    use weir_proto::v1;
    let mut relay = Relay::<()>::new(RelayConfig {
        name: "r0".to_owned(),
        site: 0,
        address: address(0),
        started_ms: 0,
        window_bytes: WINDOW_BYTES,
    });
    let entry = |number: usize, site| v1::RelayEntry {
        relay: format!("r{number}"),
        site,
        data_address: address(number).to_string(),
    };
    let list = v1::RelayList { relays: vec![entry(1, 1), entry(2, 1), entry(3, 2)] };
    relay.handle_session_up();
    let now = weir_model::Time::from_millis(1000);
    relay.handle_controller(now, &v1::ToRelay { kind: Some(v1::to_relay::Kind::Relays(list)) });
    let mut hops = Vec::<HopId>::new();
    while let Some(action) = relay.poll_output() {
        if let Output::Dial { hop, .. } = action {
            relay.handle_hop_up(now, hop);
            hops.push(hop);
        }
    }
    relay.handle_samples(now, &Default::default());
    hops[..2].iter().for_each(|&hop| relay.handle_written(now, hop, 1_000_000, true));
    let now = now + Span::from_millis(250);
    relay.handle_samples(now, &Default::default());
    for (&hop, (bytes, waiting)) in
        hops.iter().zip([(3_000_000, true), (1_000_000, true), (9_000_000, false)])
    {
        relay.handle_written(now, hop, bytes, waiting);
    }
    let later = now + Span::from_millis(250);
    assert!(!relay.wants_samples(now) && relay.wants_samples(later));
    relay.handle_samples(later, &[(hops[0], 500_000)].into());
    let outputs = std::iter::from_fn(|| relay.poll_output());
    let samples: Vec<_> = outputs
        .filter_map(|output| match output {
            Output::Report(v1::FromRelay { kind: Some(v1::from_relay::Kind::Samples(samples)) }) => {
                Some(samples.links)
            }
            _ => None,
        })
        .flatten()
        .map(|link| (link.destination_site, link.bytes_per_s))
        .collect();
    assert_eq!(samples, [(1, 14e6)]);
}
