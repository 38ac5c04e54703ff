//! What coordinator and agent believe of each other comes true again, and bursts of gets share a plan.

use super::*;

#[test]
fn a_lapse_that_only_the_agent_noticed_ends_with_the_next_full_plan() {
    let mut pair = Pair::new(2);
    let (large, small) = (pair.register(1), pair.register(1));
    let first = pair.open(large, "large", 100_000_000, 0, 1);
    pair.open(small, "small", 50_000_000, 0, 1);
    assert_rate(pair.rate(0, first), 0.0);
    // The agent's process was stopped for longer than its lease; no connection broke.
    let lapsed = pair.now + LEASE;
    pair.agents[0].handle_timeout(lapsed);
    assert_eq!(pair.rate(0, first), f64::INFINITY);
    pair.now = lapsed;
    pair.wait(1);
    assert_rate(pair.rate(0, first), 0.0);
}

#[test]
fn a_flow_that_does_not_move_is_reported_though_nothing_of_it_was_sent() {
    let mut pair = Pair::new(2);
    let coflow = pair.register(1);
    pair.open(coflow, "b", 1_000_000, 0, 1);
    // By the plan it would be done in 1 s; its transport has not taken a byte for 2 s.
    pair.wait(2000);
    let status = pair.coordinator.status(pair.now);
    assert_eq!(status.coflows[0].bytes_left, 1_000_000);
}

#[test]
fn a_flow_that_came_after_the_plan_was_made_waits_for_the_next() {
    let mut pair = Pair::new(2);
    let coflow = pair.register(0);
    let first = pair.open(coflow, "a", 1_000_000, 0, 1);
    pair.agents[0].handle_put(block(coflow, "b", 1_000_000)).unwrap();
    let request = request(coflow, 0, 1, "b");
    let second = pair.agents[0].handle_request(pair.now, &request).unwrap().flow;
    let plan = v1::Plan {
        coflows: vec![v1::CoflowRate { coflow: coflow.0, drain_per_s: 0.5, whole: false }],
        latest_flow: first.0,
        ..v1::Plan::default()
    };
    let kind = Some(v1::coordinator_message::Kind::Plan(plan));
    let now = pair.now;
    pair.agents[0]
        .handle_coordinator(now, v1::CoordinatorMessage { epoch: 1000, lease_ms: 1000, heard_ns: 0, kind });
    assert_rate(pair.rate(0, first), 500_000.0);
    assert_rate(pair.rate(0, second), 0.0);
}

#[test]
fn a_coflows_first_byte_counts_once_all_its_announced_flows_are_planned_for() {
    let mut pair = Pair::new(2);
    let coflow = pair.register(2);
    let first = pair.open(coflow, "a", 1_000_000, 0, 1);
    let now = pair.now;
    pair.agents[0].handle_sent(now, first, 1000);
    assert!(pair.agents[0].latencies().first_bytes.is_empty());
    let second = pair.open(coflow, "b", 1_000_000, 0, 1);
    let now = pair.now + Span::from_millis(1);
    pair.agents[0].handle_sent(now, second, 1000);
    assert_eq!(pair.agents[0].latencies().first_bytes, [(coflow, now)]);
}
