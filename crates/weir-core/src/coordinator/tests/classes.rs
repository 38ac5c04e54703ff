//! Coflows by order alone: classes of priority in place of rates. Links carry 1 MB/s.

use super::super::Change;
use super::*;
use std::collections::BTreeSet;

fn by_class(hosts: u32) -> Pair {
    Pair::under(config(hosts, 1), "by-class")
}

impl Pair {
    fn class(&self, host: usize, flow: FlowNumber) -> Option<u8> {
        self.agents[host].class_of(flow)
    }

    /// Flows of a host whose class is to be set anew.
    fn retagged(&mut self, host: usize) -> Vec<(FlowNumber, u8)> {
        std::iter::from_fn(|| self.agents[host].poll_class()).collect()
    }

    /// How often an agent was told a class of a coflow.
    fn told_classes(&self) -> usize {
        let plans = self.said.iter().filter_map(|said| match said {
            Said::Coordinator(message) => match &message.kind {
                Some(v1::coordinator_message::Kind::Plan(plan)) => Some(plan),
                _ => None,
            },
            Said::Agent(..) => None,
        });
        plans.map(|plan| plan.classes.len()).sum()
    }

    fn change_to(&mut self, policy: &str) {
        let (policy, tuning) = (weir_policy::find(policy).unwrap(), config(2, 1).tuning);
        self.coordinator.handle_change(self.now, Change { policy, tuning, joining: None });
        self.settle();
    }
}

#[test]
fn flows_begin_at_once_and_hear_of_their_class_by_order() {
    let mut pair = by_class(3);
    let (large, small) = (pair.register(1), pair.register(1));
    let first = pair.ask_block(large, "large", 10_000_000, 0, 2);
    assert_eq!((pair.rate(0, first), pair.class(0, first)), (f64::INFINITY, None), "it waits for no plan");
    pair.settle();
    assert_eq!((pair.class(0, first), pair.retagged(0)), (Some(0), vec![(first, 0)]));
    // It meets the other at its receiver.
    let second = pair.open(small, "small", 100_000, 1, 2);
    assert_eq!((pair.class(0, first), pair.class(1, second)), (Some(1), Some(0)));
    assert_eq!(pair.retagged(0), [(first, 1)]);
    assert_eq!([pair.rate(0, first), pair.rate(1, second)], [f64::INFINITY; 2], "no rates");
    pair.finish(1, second, 100_000);
    assert_eq!((pair.class(0, first), pair.retagged(0)), (Some(1), vec![]), "it is told apart as it is");
    assert_eq!(pair.told_classes(), 3);
}

#[test]
fn status_says_the_class_of_what_moves_and_of_what_comes_after_it() {
    let mut pair = Pair::under(config(2, 1), "by-class:classes=4");
    let (large, small) = (pair.register(1), pair.register(1));
    pair.open(large, "large", 10_000_000, 0, 1);
    pair.open(small, "small", 100_000, 0, 1);
    let mut waits_for = |coflow: CoflowId| {
        let status = pair.coordinator.status(pair.now);
        status.coflows.into_iter().find(|status| status.coflow == coflow.0).unwrap().waits_for
    };
    assert_eq!(waits_for(small), "its own bytes: it is moving; its class is 1 of 4");
    assert_eq!(waits_for(large), format!("host 0 up, in use by coflow {small}; its class is 2 of 4"));
}

#[test]
fn each_host_is_told_a_class_once_and_a_later_flow_has_it_from_the_beginning() {
    let mut pair = by_class(3);
    let coflow = pair.register(4);
    pair.open(coflow, "a", 10_000_000, 0, 2);
    pair.open(coflow, "b", 10_000_000, 1, 2);
    assert_eq!((pair.told_classes(), pair.retagged(0).len(), pair.retagged(1).len()), (2, 1, 1));
    let third = pair.ask_block(coflow, "c", 10_000_000, 0, 2);
    assert_eq!((pair.class(0, third), pair.rate(0, third)), (Some(0), f64::INFINITY));
    pair.settle();
    assert_eq!((pair.told_classes(), pair.retagged(0)), (2, vec![]));
    // All is said again once per lease, and changes nothing.
    pair.wait(2 * LEASE.nanos() / 1_000_000);
    assert!(pair.told_classes() > 2);
    assert_eq!((pair.class(0, third), pair.retagged(0), pair.retagged(1)), (Some(0), vec![], vec![]));
}

#[test]
fn what_was_sent_changes_the_order_though_no_rate_was_planned() {
    let mut pair = by_class(2);
    let (one, two) = (pair.register(1), pair.register(1));
    let first = pair.open(one, "a", 3_000_000, 0, 1);
    let second = pair.open(two, "b", 2_000_000, 0, 1);
    assert_eq!((pair.class(0, first), pair.class(0, second)), (Some(1), Some(0)));
    let now = pair.now;
    pair.agents[0].handle_sent(now, first, 2_900_000);
    pair.wait(20);
    let third = pair.register(1);
    pair.open(third, "c", 10_000_000, 0, 1);
    assert!(pair.class(0, first) < pair.class(0, second), "0.1 MB are left of it");
}

#[test]
fn under_a_policy_of_rates_there_are_no_classes_and_the_other_way_round() {
    let mut pair = by_class(2);
    let (large, small) = (pair.register(1), pair.register(1));
    let first = pair.open(large, "large", 10_000_000, 0, 1);
    let second = pair.open(small, "small", 100_000, 0, 1);
    pair.change_to("varys");
    assert_eq!((pair.class(0, first), pair.class(0, second)), (None, None));
    assert_rate(pair.rate(0, first), 0.0);
    assert_rate(pair.rate(0, second), CAPACITY);
    pair.change_to("dclas");
    while let Some(session) = pair.coordinator.poll_closed() {
        let host = pair.sessions.iter().position(|&other| other == Some(session)).unwrap();
        pair.agents[host].handle_session_lost();
        pair.agents[host].handle_terms(pair.now, pair.coordinator.terms());
        pair.start_session(host);
    }
    pair.wait(20);
    assert_eq!((pair.class(0, first), pair.class(0, second)), (None, None));
}

#[test]
fn rates_give_way_to_classes() {
    let mut pair = Pair::new(2);
    let (large, small) = (pair.register(1), pair.register(1));
    let first = pair.open(large, "large", 10_000_000, 0, 1);
    let second = pair.open(small, "small", 100_000, 0, 1);
    pair.change_to("by-class:classes=2");
    assert_eq!((pair.class(0, first), pair.class(0, second)), (Some(1), Some(0)));
    assert_eq!([pair.rate(0, first), pair.rate(0, second)], [f64::INFINITY; 2]);
}

#[test]
fn an_agent_that_is_back_and_a_coordinator_that_begins_anew_come_to_the_same_classes() {
    let mut pair = by_class(2);
    let (large, small) = (pair.register(1), pair.register(1));
    let first = pair.open(large, "large", 10_000_000, 0, 1);
    let second = pair.open(small, "small", 100_000, 0, 1);
    pair.agents.iter_mut().for_each(Agent::handle_session_lost);
    pair.wait(10);
    assert_eq!(
        (pair.class(0, first), pair.rate(0, first)),
        (Some(1), f64::INFINITY),
        "a class outlives its coordinator"
    );
    pair.coordinator = Coordinator::new(config(2, 1 << 40), &weir_policy::find("by-class").unwrap());
    pair.connect_all();
    pair.wait(300);
    assert_eq!((pair.class(0, first), pair.class(0, second)), (Some(1), Some(0)));
}

#[test]
fn a_host_s_link_serves_one_class_after_the_other_until_nobody_says_which() {
    let mut pair = by_class(3);
    let (large, small) = (pair.register(1), pair.register(1));
    // They share their sender's link alone.
    let first = pair.open(large, "large", 10_000_000, 0, 1);
    let second = pair.open(small, "small", 100_000, 0, 2);
    let writes = |pair: &mut Pair| {
        pair.now = pair.now + Span::from_millis(20);
        let transmit = pair.agents[0].poll_transmit(pair.now).unwrap();
        pair.agents[0].handle_sent(pair.now, transmit.flow, transmit.bytes);
        (transmit.flow, transmit.bytes)
    };
    let chunk = 11_584;
    assert_eq!([writes(&mut pair), writes(&mut pair)], [(second, chunk), (second, chunk)]);
    assert_eq!(pair.agents[0].poll_transmit(pair.now), None, "no faster than the link");
    let now = pair.now;
    pair.agents[0].handle_blocked(now, second);
    assert_eq!(writes(&mut pair), (first, chunk), "its receiver has no room");
    pair.agents[0].handle_writable(now, second);
    assert_eq!(writes(&mut pair), (second, chunk));
    // Without a coordinator TCP shares the link, and a flow that begins is in no class.
    pair.agents[0].handle_session_lost();
    pair.now = pair.now + LEASE;
    let now = pair.now;
    pair.agents[0].handle_timeout(now);
    let both: BTreeSet<FlowNumber> = (0..4).map(|_| writes(&mut pair).0).collect();
    assert_eq!(both, BTreeSet::from([first, second]));
    assert_eq!(
        (pair.class(0, first), pair.class(0, second)),
        (Some(1), Some(0)),
        "their packets stay as they are"
    );
    let later = pair.ask_block(large, "later", 10_000_000, 0, 1);
    let all: BTreeSet<FlowNumber> = (0..6).map(|_| writes(&mut pair).0).collect();
    assert_eq!(all, BTreeSet::from([first, later]), "the small one was written to its end");
}

/// Coflows with deadlines that can be met are in the first class, and agents hear when they are due; others are behind them. The
/// margin of deadlines is off here.
#[test]
fn coflows_that_will_meet_their_deadlines_go_first_and_no_faster_than_that_takes() {
    let mut pair = by_class(3);
    let due = v1::CoflowOptions { flows: 1, deadline_ms: 4_000, ..v1::CoflowOptions::default() };
    let mut register = |options: &v1::CoflowOptions| {
        let request = v1::RegisterRequest { options: Some(options.clone()), request_key: 0 };
        let coflow = pair.coordinator.handle_register(pair.now, request).unwrap();
        pair.settle();
        coflow
    };
    let (in_time, hopeless) =
        (register(&due), register(&v1::CoflowOptions { deadline_ms: 10, ..due.clone() }));
    let small = pair.register(1);
    let began = pair.now;
    let first = pair.open(in_time, "a", 2_000_000, 0, 2);
    let second = pair.open(small, "b", 300_000, 1, 2);
    let third = pair.open(hopeless, "c", 1_000_000, 1, 2);
    assert_eq!(
        (pair.class(0, first), pair.class(1, second), pair.class(1, third)),
        (Some(0), Some(1), Some(2))
    );
    let due_at = pair.agents[0].due_of(first).expect("a time");
    let left = due_at.since(began).as_secs();
    assert!((3.9..=4.1).contains(&left), "{left}");
    assert_eq!((pair.agents[1].due_of(second), pair.agents[1].due_of(third)), (None, None));
    pair.retagged(0);
    // A whole plan says it once more, and changes nothing.
    pair.wait(1_500);
    pair.settle();
    assert_eq!((pair.retagged(0), pair.agents[0].due_of(first)), (vec![], Some(due_at)));
    // Another one that is due before it leaves it too little: it goes as those without deadlines do.
    let sooner = {
        let options = v1::CoflowOptions { deadline_ms: 1_000, ..due };
        let request = v1::RegisterRequest { options: Some(options), request_key: 0 };
        pair.coordinator.handle_register(pair.now, request).unwrap()
    };
    pair.settle();
    let fourth = pair.open(sooner, "d", 900_000, 1, 2);
    assert_eq!((pair.class(1, fourth), pair.agents[0].due_of(first)), (Some(0), None));
    assert!(pair.class(0, first) > Some(0) && pair.agents[1].due_of(fourth).is_some());
    // Under a policy of rates none is held back by its deadline any more.
    pair.retagged(1);
    pair.change_to("varys");
    assert_eq!((pair.agents[1].due_of(fourth), pair.retagged(1)), (None, vec![(fourth, 0)]));
}
