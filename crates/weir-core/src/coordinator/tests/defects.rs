//! What went wrong in the first systems of this kind, each as a behaviour that must not come back.

use super::*;

pub(super) fn progress(flow: FlowNumber, sent: u64) -> v1::AgentMessage {
    let progress = v1::Progress { flows: vec![v1::FlowProgress { flow: flow.0, sent }] };
    v1::AgentMessage {
        events: vec![v1::AgentEvent { kind: Some(v1::agent_event::Kind::Progress(progress)) }],
    }
}

#[test]
fn late_progress_after_unregister_is_ignored() {
    let mut pair = Pair::new(2);
    let (ended, other) = (pair.register(1), pair.register(1));
    let flow = pair.open(ended, "a", 1_000_000, 0, 1);
    let moving = pair.open(other, "b", 2_000_000, 0, 1);
    pair.unregister(ended);
    let session = pair.sessions[0].unwrap();
    for sent in [500_000, 1_000_000, u64::MAX] {
        pair.coordinator.handle_agent(pair.now, session, progress(flow, sent));
    }
    pair.settle();
    let status = pair.coordinator.status(pair.now);
    assert_eq!((status.coflows.len(), status.coflows[0].bytes_left), (1, 2_000_000));
    assert_rate(pair.rate(0, moving), CAPACITY);
}

#[test]
fn a_restarted_agent_is_not_erased_by_the_old_connections_end() {
    let mut pair = Pair::new(2);
    let coflow = pair.register(1);
    let flow = pair.open(coflow, "b", 1_000_000, 0, 1);
    let old = pair.sessions[0].unwrap();
    // The agent is back on a new connection before the end of the old one is noticed.
    pair.connect_all();
    pair.coordinator.handle_session_lost(pair.now, old);
    pair.coordinator.handle_agent(pair.now, old, progress(flow, 1_000_000));
    pair.settle();
    let status = pair.coordinator.status(pair.now);
    assert_eq!((status.agents.len(), status.agents[0].blocks, status.agents[0].flows), (2, 1, 1));
    assert_eq!(status.coflows[0].bytes_left, 1_000_000);
    assert_rate(pair.rate(0, flow), CAPACITY);
}

#[test]
fn a_paused_stream_whose_agent_died_goes_on() {
    let mut pair = Pair::new(3);
    let (small, large) = (pair.register(1), pair.register(1));
    pair.open(small, "small", 500_000, 0, 2);
    let paused = pair.open(large, "large", 5_000_000, 1, 2);
    assert_rate(pair.rate(1, paused), 0.0);
    // The agent that serves the small coflow is gone, and with it the reason to pause.
    let session = pair.sessions[0].take().unwrap();
    pair.coordinator.handle_session_lost(pair.now, session);
    pair.settle();
    assert_rate(pair.rate(1, paused), CAPACITY);
    // The one that serves the large coflow dies and comes back: its receiver asks again, and is not forgotten.
    pair.agents[1].handle_closed(paused, false);
    pair.connect_all();
    let request = request(large, 0, 2, "large");
    let again = pair.agents[1].handle_request(pair.now, &request).unwrap().flow;
    pair.settle();
    pair.agents[0].handle_closed(FlowNumber(1), false);
    pair.settle();
    assert_rate(pair.rate(1, again), CAPACITY);
}

#[test]
fn sizes_beyond_4_gb_are_planned_reported_and_recorded() {
    const SIZE: u64 = 6 << 30;
    const OFFSET: u64 = 5 << 30;
    let mut pair = Pair::new(2);
    let coflow = pair.register(1);
    pair.agents[0].handle_put(block(coflow, "b", SIZE)).unwrap();
    let request = request(coflow, OFFSET, 1, "b");
    let flow = pair.agents[0].handle_request(pair.now, &request).unwrap().flow;
    pair.settle();
    let status = pair.coordinator.status(pair.now);
    assert_eq!(status.coflows[0].bytes_left, SIZE - OFFSET);
    assert_rate(pair.rate(0, flow), CAPACITY);
    pair.finish(0, flow, SIZE - OFFSET);
    assert_eq!(pair.coordinator.status(pair.now).completed[0].bytes, SIZE);
}

#[test]
fn flows_of_two_coflows_between_one_pair_of_hosts_move_at_once() {
    let mut pair = Pair::new(2);
    // One stream per destination and one coflow per process were the limits; here four streams share a pair.
    let (one, two) = (pair.register(3), pair.register(1));
    let flows = ["a", "b", "c"].map(|name| pair.open(one, name, 100_000, 0, 1));
    let other = pair.open(two, "d", 10_000_000, 1, 0);
    for flow in flows {
        assert_rate(pair.rate(0, flow), CAPACITY / 3.0);
    }
    assert_rate(pair.rate(1, other), CAPACITY);
}

#[test]
fn a_port_with_hundreds_of_flows_leaves_none_of_them_without_a_rate() {
    let mut pair = Pair::new(2);
    let coflow = pair.register(300);
    let flows: Vec<FlowNumber> =
        (0..300).map(|number| pair.open(coflow, &number.to_string(), 10_000, 0, 1)).collect();
    for flow in flows {
        assert_rate(pair.rate(0, flow), CAPACITY / 300.0);
    }
}

#[test]
fn coflows_registered_at_one_moment_get_different_ids() {
    let mut pair = Pair::new(1);
    let ids: std::collections::BTreeSet<CoflowId> = (0..100).map(|_| pair.register(1)).collect();
    assert_eq!(ids.len(), 100);
}

#[test]
fn rates_follow_what_is_left_and_not_the_whole_size() {
    let mut pair = Pair::new(4);
    let (coflow, other) = (pair.register(2), pair.register(1));
    let ahead = pair.open(coflow, "a", 1_000_000, 0, 2);
    let behind = pair.open(coflow, "b", 1_000_000, 1, 2);
    let now = pair.now;
    pair.agents[0].handle_sent(now, ahead, 750_000);
    // Something else ends, and a new plan is made.
    let brief = pair.open(other, "c", 1000, 3, 3);
    pair.now = pair.now + Span::from_millis(20);
    let now = pair.now;
    pair.agents[1].handle_sent(now, behind, 10_000);
    pair.finish(3, brief, 1000);
    // Of one, 0.25 MB are left. The other, at 0.5 MB/s for 20 ms, still has 0.99 MB. They share one link, and
    // both end after 1.24 s.
    assert_rate(pair.rate(0, ahead), CAPACITY * 0.25 / 1.24);
    assert_rate(pair.rate(1, behind), CAPACITY * 0.99 / 1.24);
}

#[test]
fn a_completed_coflow_has_one_completion_time_whenever_it_is_asked_for() {
    let mut pair = Pair::new(2);
    let coflow = pair.register(1);
    let flow = pair.open(coflow, "b", 1_000_000, 0, 1);
    pair.finish(0, flow, 1_000_000);
    pair.wait(3_000);
    super::attacks::restart(&mut pair, 1 << 40);
    let shown = pair.coordinator.status(pair.now).completed[0].cct_s;
    pair.wait(5_000);
    assert_eq!(pair.coordinator.status(pair.now).completed[0].cct_s, shown);
    assert_eq!(pair.unregister(coflow).unwrap().cct_s, shown);
}
