//! What drivers expect counts for the order of coflows, and for nothing else.

use super::*;
use crate::coordinator::{Change, ExpectError, SealError};

fn expect(pair: &mut Pair, coflow: CoflowId, sources: &[(u32, u64)]) -> Result<(), ExpectError> {
    let from = |&(host, bytes): &(u32, u64)| v1::ExpectedFrom { host, bytes, ..v1::ExpectedFrom::default() };
    let request = v1::ExpectRequest { coflow: coflow.0, sources: sources.iter().map(from).collect() };
    let taken = pair.coordinator.handle_expect(pair.now, &request);
    pair.settle();
    taken
}

/// Capacity is 1 MB/s. One coflow has 1 MB open from host 0, the other 2 MB.
struct Two {
    pair: Pair,
    coflows: [CoflowId; 2],
    flows: [FlowNumber; 2],
}

fn two(policy: &str) -> Two {
    let mut pair = Pair::under(config(4, 1), policy);
    let coflows = [pair.register(0), pair.register(0)];
    let flows = [pair.open(coflows[0], "a", 1_000_000, 0, 1), pair.open(coflows[1], "b", 2_000_000, 0, 2)];
    Two { pair, coflows, flows }
}

impl Two {
    fn rates(&self) -> [f64; 2] {
        self.flows.map(|flow| self.pair.rate(0, flow).round())
    }

    fn entries(&self) -> usize {
        self.pair.coordinator.coflows.values().map(|coflow| coflow.expected.len()).sum()
    }
}

#[test]
fn what_is_to_come_puts_a_coflow_behind_smaller_ones_until_it_has_come() {
    let mut two = two("varys");
    assert_eq!(two.rates(), [CAPACITY, 0.0]);
    // 1 MB open and 1.5 to come: 2.5 s instead of 1.
    expect(&mut two.pair, two.coflows[0], &[(0, 1_500_000)]).unwrap();
    assert_eq!(two.rates(), [0.0, CAPACITY]);
    // It is asked for: the same, now open; and nothing is left to come.
    let third = two.pair.open(two.coflows[0], "c", 1_500_000, 0, 3);
    assert_eq!((two.rates(), two.entries()), ([0.0, CAPACITY], 0));
    two.pair.wait(1_000);
    two.pair.finish(0, third, 1_500_000);
    assert_eq!(two.rates(), [CAPACITY, 0.0], "1 MB is left of each, and the first came first");
}

#[test]
fn what_is_said_later_replaces_what_was_said_and_a_retry_takes_nothing_out_twice() {
    let mut two = two("varys");
    expect(&mut two.pair, two.coflows[0], &[(0, 9_000_000), (1, 5)]).unwrap();
    assert_eq!((two.rates(), two.entries()), ([0.0, CAPACITY], 2));
    expect(&mut two.pair, two.coflows[0], &[(1, 1)]).unwrap();
    assert_eq!((two.rates(), two.entries()), ([CAPACITY, 0.0], 1));
    expect(&mut two.pair, two.coflows[0], &[(0, 800_000), (0, 800_000)]).unwrap();
    assert_eq!(two.rates(), [0.0, CAPACITY], "two entries of a host are one");
    // The receiver of "a" comes again: it is no other flow.
    two.pair.agents[0].handle_closed(two.flows[0], false);
    two.flows[0] = two.pair.ask(two.coflows[0], "a", 0, 1);
    two.pair.settle();
    assert_eq!(two.rates(), [0.0, CAPACITY]);
    expect(&mut two.pair, two.coflows[0], &[]).unwrap();
    assert_eq!((two.rates(), two.entries()), ([CAPACITY, 0.0], 0));
}

#[test]
fn hosts_are_named_by_number_or_address_and_unknown_ones_count_for_nothing() {
    let mut two = two("varys");
    let address = two.pair.coordinator.agents.values().next().unwrap().data_address.clone();
    let by = |data_address: &str| v1::ExpectRequest {
        coflow: two.coflows[0].0,
        sources: vec![v1::ExpectedFrom { host: 77, bytes: 3_000_000, data_address: data_address.to_owned() }],
    };
    for (request, entries) in [(by(&address), 1), (by("10.9.9.9:1"), 0), (by(""), 0), (by("\u{0}"), 0)] {
        two.pair.coordinator.handle_expect(two.pair.now, &request).unwrap();
        assert_eq!(two.entries(), entries);
    }
}

#[test]
fn a_coflow_of_which_much_is_to_come_is_not_left_to_tcp() {
    let mut pair = Pair::with(tuned(config(4, 1), |tuning| tuning.bypass = Span::from_millis(250)));
    let [early, late] = [pair.register(0), pair.register(0)];
    expect(&mut pair, early, &[(0, 10_000_000)]).unwrap();
    let first = pair.open(early, "a", 100_000, 0, 1);
    assert_rate(pair.rate(0, first), CAPACITY);
    let second = pair.open(late, "b", 100_000, 2, 3);
    assert_eq!(pair.rate(2, second), f64::INFINITY);
    expect(&mut pair, late, &[(2, 100_000)]).unwrap();
    assert_eq!(pair.rate(2, second), f64::INFINITY, "200,000 bytes are small");
    expect(&mut pair, late, &[(2, 200_000)]).unwrap();
    assert_rate(pair.rate(2, second), CAPACITY);
}

#[test]
fn policies_without_sizes_keep_nothing_and_a_change_of_policy_keeps_what_was_said() {
    let mut two = two("dclas");
    expect(&mut two.pair, two.coflows[0], &[(0, 9_000_000)]).unwrap();
    assert_eq!(two.entries(), 0);
    let mut two = self::two("varys");
    expect(&mut two.pair, two.coflows[0], &[(0, 9_000_000)]).unwrap();
    for policy in ["fair", "varys"] {
        let change = Change {
            policy: weir_policy::find(policy).unwrap(),
            tuning: two.pair.coordinator.config.tuning.clone(),
            joining: None,
        };
        two.pair.coordinator.handle_change(two.pair.now, change);
        two.pair.settle();
    }
    assert_eq!(two.rates(), [0.0, CAPACITY]);
}

#[test]
fn what_is_expected_of_all_coflows_has_a_bound_and_ends_with_them() {
    let mut two = two("varys");
    let unknown = expect(&mut two.pair, CoflowId(1 << 40), &[(0, 1)]).unwrap_err();
    assert!(matches!(unknown, ExpectError::Coflow(SealError::Unknown(_) | SealError::NotYetKnown(_))));
    let many: Vec<(u32, u64)> = (0..10_001).map(|host| (host, 1)).collect();
    assert_eq!(expect(&mut two.pair, two.coflows[0], &many), Err(ExpectError::TooManyHosts(10_001)));
    expect(&mut two.pair, two.coflows[0], &[(0, u64::MAX), (0, u64::MAX), (1, 0)]).unwrap();
    assert_eq!((two.rates(), two.entries()), ([0.0, CAPACITY], 1));
    // As if others had said nearly all that can be kept.
    let others = weir_proto::limits::MAX_EXPECTED - 2;
    two.pair.coordinator.expectations.set_entries(others + 1);
    expect(&mut two.pair, two.coflows[1], &[(0, 1)]).unwrap();
    assert_eq!(expect(&mut two.pair, two.coflows[1], &[(0, 1), (1, 1)]), Err(ExpectError::TooMany));
    assert_eq!(two.entries(), 2, "what was said before holds");
    for coflow in two.coflows {
        two.pair.unregister(coflow);
    }
    assert_eq!(two.pair.coordinator.expectations.entries(), others);
}
