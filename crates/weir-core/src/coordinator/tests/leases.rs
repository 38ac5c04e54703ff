//! Leases of agents: how long the coordinator's last word holds, however long it was on its way.

use super::{LEASE, Pair, assert_rate};
use crate::ids::FlowNumber;
use std::collections::VecDeque;
use weir_model::{Span, Time};
use weir_proto::v1;

/// A pair whose messages take their time. One host is enough here.
struct Distant {
    pair: Pair,
    /// With the times of their arrival.
    to_agent: VecDeque<(Time, v1::CoordinatorMessage)>,
    to_coordinator: VecDeque<(Time, v1::AgentMessage)>,
}

impl Distant {
    fn new(pair: Pair) -> Distant {
        Distant { pair, to_agent: VecDeque::new(), to_coordinator: VecDeque::new() }
    }

    /// Lets time pass, and calls back every 10 ms. What is said meanwhile arrives after so many milliseconds.
    fn run(&mut self, millis: u64, to_agent: u64, to_coordinator: u64, mut check: impl FnMut(&Pair, u64)) {
        let pair = &mut self.pair;
        for passed in (0..millis).step_by(10) {
            pair.now = pair.now + Span::from_millis(10);
            let now = pair.now;
            let session = pair.sessions[0].unwrap();
            while self.to_agent.front().is_some_and(|&(at, _)| at <= now) {
                pair.agents[0].handle_coordinator(now, self.to_agent.pop_front().unwrap().1);
            }
            pair.agents[0].handle_timeout(now);
            while let Some(message) = pair.agents[0].poll_message(now) {
                self.to_coordinator.push_back((now + Span::from_millis(to_coordinator), message));
            }
            while self.to_coordinator.front().is_some_and(|&(at, _)| at <= now) {
                pair.coordinator.handle_agent(now, session, self.to_coordinator.pop_front().unwrap().1);
            }
            pair.coordinator.handle_timeout(now);
            pair.coordinator.plan_now(now);
            while let Some((to, message)) = pair.coordinator.poll_message() {
                if to == session {
                    self.to_agent.push_back((now + Span::from_millis(to_agent), message));
                }
            }
            check(pair, passed);
        }
    }
}

/// A flow that waits for a smaller coflow.
fn paused(pair: &mut Pair) -> u64 {
    let (large, small) = (pair.register(1), pair.register(1));
    let flow = pair.open(large, "large", 10_000_000, 0, 1);
    pair.open(small, "small", 100_000, 0, 1);
    assert_rate(pair.rate(0, flow), 0.0);
    flow.0
}

#[test]
fn words_that_were_long_on_their_way_renew_no_lease() {
    let mut pair = Pair::new(2);
    let flow = paused(&mut pair);
    let mut distant = Distant::new(pair);
    let lease = LEASE.nanos() / 1_000_000;
    // They arrive steadily, and each is older than a lease.
    distant.run(10 * lease, 2 * lease, 0, |pair, passed| {
        assert!(passed < lease || pair.rate(0, FlowNumber(flow)) == f64::INFINITY, "{passed} ms");
    });
    // The path is good again.
    distant.run(5 * lease, 0, 0, |pair, passed| {
        assert!(passed < 4 * lease || pair.rate(0, FlowNumber(flow)) == 0.0, "{passed} ms");
    });
}

#[test]
fn an_agent_that_was_stopped_believes_nothing_that_waited_for_it() {
    let mut pair = Pair::new(2);
    let flow = paused(&mut pair);
    let mut distant = Distant::new(pair);
    let lease = LEASE.nanos() / 1_000_000;
    // What the coordinator says in the meantime waits in the connection.
    distant.run(lease, 10 * lease, 0, |_, _| {});
    distant.pair.now = distant.pair.now + Span::from_millis(5 * lease);
    let now = distant.pair.now;
    let waited: Vec<_> = distant.to_agent.drain(..).collect();
    assert!(waited.len() >= 3);
    for (_, message) in waited {
        distant.pair.agents[0].handle_coordinator(now, message);
        distant.pair.agents[0].handle_timeout(now);
        assert_eq!(distant.pair.rate(0, FlowNumber(flow)), f64::INFINITY);
    }
    assert_eq!(distant.pair.agents[0].observe(now).leases_lost, 1);
}

#[test]
fn an_agent_keeps_its_lease_though_it_has_nothing_to_say_and_its_coordinator_is_far() {
    for (to_agent, to_coordinator) in [(0, 0), (80, 80), (10, 200), (200, 10), (240, 240)] {
        let mut pair = Pair::new(2);
        let flow = paused(&mut pair);
        let mut distant = Distant::new(pair);
        distant.run(20_000, to_agent, to_coordinator, |pair, passed| {
            assert!(pair.rate(0, FlowNumber(flow)) == 0.0, "{to_agent} and {to_coordinator} ms: {passed} ms");
        });
    }
}

#[test]
fn a_coordinator_that_says_nothing_of_clocks_hears_of_none_and_is_believed_from_when_it_is_read() {
    let mut pair = Pair::new(2);
    let flow = paused(&mut pair);
    let agent = &mut pair.agents[0];
    for step in 1..40 {
        let now = pair.now + Span::from_millis(step * 250);
        let kind = Some(v1::coordinator_message::Kind::Keepalive(v1::Keepalive {}));
        let message = v1::CoordinatorMessage { epoch: 1_000 + step, lease_ms: 1_000, heard_ns: 0, kind };
        agent.handle_coordinator(now, message);
        agent.handle_timeout(now);
        while let Some(message) = agent.poll_message(now) {
            let is_clock =
                |event: &v1::AgentEvent| matches!(event.kind, Some(v1::agent_event::Kind::Clock(_)));
            assert!(!message.events.iter().any(is_clock));
        }
    }
    assert_rate(pair.rate(0, FlowNumber(flow)), 0.0);
}
