//! D-CLAS: senders decide, agents report bytes sent, the coordinator tells queues.

use super::*;
use crate::agent::{Crowd, Transmit};

/// First threshold of these tests; the next is ten times that.
const FIRST: u64 = 1_000_000;

fn senders(policy: &str, hosts: u32) -> Pair {
    Pair::under(config(hosts, 1), &format!("{policy}:first={FIRST}B"))
}

impl Pair {
    /// Lets `millis` pass, millisecond by millisecond.
    fn pass(&mut self, millis: u64) {
        (0..millis).for_each(|_| self.wait(1));
    }

    fn sent(&mut self, host: usize, flow: FlowNumber, bytes: u64) {
        self.agents[host].handle_sent(self.now, flow, bytes);
    }

    /// A flow that only its agent knows of yet; nothing is delivered.
    fn request(&mut self, coflow: CoflowId, name: &str, from: usize, to: u32) -> FlowNumber {
        self.agents[from].handle_put(block(coflow, name, 100_000)).unwrap();
        let flow = self.ask(coflow, name, from, to);
        self.agents[from].handle_timeout(self.now);
        flow
    }

    fn child(&mut self, parents: &[CoflowId]) -> CoflowId {
        let options = v1::CoflowOptions {
            parents: parents.iter().map(|parent| parent.0).collect(),
            ..v1::CoflowOptions::default()
        };
        let request = v1::RegisterRequest { options: Some(options), request_key: 0 };
        self.coordinator.handle_register(self.now, request).unwrap()
    }

    fn counter(&mut self, name: &str) -> u64 {
        let counters = self.coordinator.status(self.now).counters;
        counters.iter().find(|counter| counter.name == name).map_or(0, |counter| counter.value)
    }
}

/// A run with joins, a coflow that moves down, a restart of the coordinator and the end of a receiver, but no flow that
/// completes. All messages of it.
fn run_with_sizes(sizes: [u64; 3]) -> Vec<Said> {
    let mut pair = senders("dclas", 3);
    let (one, two) = (pair.register(0), pair.register(0));
    let first = pair.open(one, "first", sizes[0], 0, 1);
    pair.pass(15);
    let second = pair.open(two, "second", sizes[1], 0, 2);
    pair.sent(0, first, 1_200_000);
    pair.pass(30);
    for agent in &mut pair.agents {
        agent.handle_session_lost();
    }
    pair.coordinator = Coordinator::new(config(3, 100), &weir_policy::find("dclas").unwrap());
    pair.connect_all();
    let third = pair.open(one, "third", sizes[2], 1, 2);
    pair.sent(0, second, 50_000);
    pair.sent(1, third, 60_000);
    pair.pass(1200);
    pair.agents[0].handle_closed(second, false);
    pair.pass(20);
    pair.said
}

#[test]
fn no_message_says_anything_of_a_size_before_its_bytes_were_sent() {
    let said = run_with_sizes([2_000_000, 3_000_000, 900_000]);
    assert_eq!(said, run_with_sizes([1 << 35, 51_000, 60_001]));
    let opened = said.iter().filter_map(|said| match said {
        Said::Agent(_, message) => Some(&message.events),
        Said::Coordinator(_) => None,
    });
    let kinds: Vec<_> = opened.flatten().filter_map(|event| event.kind.as_ref()).collect();
    let attained = kinds.iter().filter(|kind| matches!(kind, v1::agent_event::Kind::Attained(_))).count();
    let opened = kinds.iter().filter(|kind| matches!(kind, v1::agent_event::Kind::FlowOpened(_))).count();
    let progress = kinds.iter().filter(|kind| matches!(kind, v1::agent_event::Kind::Progress(_))).count();
    assert_eq!((opened, progress), (3, 0));
    // The first 1.2 MB; to the new coordinator these with those of the second flow; and those of the third.
    assert_eq!(attained, 3);
}

#[test]
fn a_small_coflow_starts_at_once_and_waits_for_no_message() {
    let mut pair = senders("dclas-strict", 2);
    let (large, small) = (pair.register(0), pair.register(0));
    let first = pair.open(large, "large", 100_000_000, 0, 1);
    assert_rate(pair.rate(0, first), CAPACITY);
    pair.sent(0, first, FIRST);
    pair.pass(20);
    let second = pair.request(small, "small", 0, 1);
    assert_rate(pair.rate(0, second), CAPACITY);
    assert_rate(pair.rate(0, first), 0.0);
    // Nor does the large one when the small one has handed over its last byte.
    pair.sent(0, second, 100_000);
    pair.agents[0].handle_timeout(pair.now);
    assert_rate(pair.rate(0, first), CAPACITY);
}

#[test]
fn what_all_senders_sent_together_moves_a_coflow_down_within_two_syncs() {
    let mut pair = senders("dclas-strict", 4);
    let (wide, narrow) = (pair.register(0), pair.register(0));
    let flows = [pair.open(wide, "a", 100_000_000, 0, 2), pair.open(wide, "b", 100_000_000, 1, 3)];
    let later = pair.open(narrow, "c", 100_000_000, 0, 3);
    pair.pass(20);
    assert_rate(pair.rate(0, flows[0]), CAPACITY);
    // 0.6 MB each: no sender alone knows that 1 MB was passed.
    pair.sent(0, flows[0], 600_000);
    pair.sent(1, flows[1], 600_000);
    assert_rate(pair.rate(0, later), 0.0);
    pair.pass(20);
    assert_rate(pair.rate(0, later), CAPACITY);
    assert_rate(pair.rate(0, flows[0]), 0.0);
}

/// As [`what_all_senders_sent_together_moves_a_coflow_down_within_two_syncs`], by the clock of a real machine: nothing happens at a whole
/// number of intervals.
#[test]
fn an_interval_of_the_policy_itself_is_how_often_senders_hear() {
    for (policy, millis) in [("dclas-strict:sync=10ms", 40), ("dclas-strict:sync=200ms", 420)] {
        let mut pair = senders(policy, 4);
        pair.now = pair.now + Span::from_nanos(345_679);
        let (wide, narrow) = (pair.register(0), pair.register(0));
        let flows = [pair.open(wide, "a", 100_000_000, 0, 2), pair.open(wide, "b", 100_000_000, 1, 3)];
        let later = pair.open(narrow, "c", 100_000_000, 0, 3);
        pair.pass(millis);
        pair.sent(0, flows[0], 600_000);
        pair.sent(1, flows[1], 600_000);
        pair.pass(millis / 8);
        let is_told_soon = pair.rate(0, later) > 0.0;
        assert!(!is_told_soon || millis < 100, "{policy}: told before the interval was over");
        pair.pass(millis);
        let rates = [pair.rate(0, later), pair.rate(0, flows[0])];
        // More where it has something to catch up with.
        assert!(rates[0] >= CAPACITY && rates[1] == 0.0, "{policy}: {rates:?}");
        let terms = pair.coordinator.terms().sender_rule.unwrap();
        assert_eq!(terms.sync_interval_ns, if millis == 40 { 10_000_000 } else { 200_000_000 }, "{policy}");
    }
}

#[test]
fn queues_share_an_uplink_by_weight() {
    let mut pair = senders("dclas", 3);
    let (large, small) = (pair.register(0), pair.register(0));
    let first = pair.open(large, "large", 100_000_000, 0, 1);
    pair.sent(0, first, FIRST);
    let second = pair.open(small, "small", 100_000, 0, 2);
    pair.pass(20);
    // Weights of the first two of ten queues: 10 and 9.
    assert_rate(pair.rate(0, second), CAPACITY * 10.0 / 19.0);
    assert_rate(pair.rate(0, first), CAPACITY * 9.0 / 19.0);
}

#[test]
fn under_weights_a_flow_is_limited_to_what_it_uses_of_each_share_of_a_full_downlink() {
    let mut pair = senders("dclas", 8);
    let (large, small) = (pair.register(0), pair.register(0));
    let first = pair.open(large, "large", 100_000_000, 0, 2);
    pair.sent(0, first, FIRST);
    for to in 2..7 {
        pair.open(small, &format!("to {to}"), 100_000_000, 1, to);
    }
    pair.open(small, "from 7", 100_000_000, 7, 2);
    pair.pass(20);
    // Of downlink 2 the first queue has 10/19. Host 1 sends 0.2 MB/s to each of five; host 7 has the rest of the part.
    // The second queue uses its own, so there is no second round for any flow at this link.
    let limit = |host: usize| {
        let session = pair.sessions[host].unwrap();
        pair.coordinator.limits(session)[&small][0].bytes_per_s
    };
    assert_rate(limit(1), CAPACITY / 5.0);
    assert_rate(limit(7), CAPACITY * (10.0 / 19.0 - 0.2));
    let session = pair.sessions[1].unwrap();
    assert_eq!(pair.coordinator.limits(session)[&small].len(), 1, "other receivers have room");
}

#[test]
fn a_later_coflow_gets_what_others_leave_of_its_receiver_and_its_uplink_does_not_idle() {
    let mut pair = senders("dclas-strict", 4);
    let (first, second) = (pair.register(0), pair.register(0));
    let ahead = pair.open(first, "a", 100_000_000, 0, 2);
    let behind = pair.open(second, "b", 100_000_000, 1, 2);
    pair.pass(20);
    assert_rate(pair.rate(0, ahead), CAPACITY);
    assert_rate(pair.rate(1, behind), 0.0);
    let elsewhere = pair.open(second, "c", 100_000_000, 1, 3);
    assert_rate(pair.rate(1, elsewhere), CAPACITY);
    // The first receiver goes away: within a sync the other coflow has its downlink, too.
    pair.agents[0].handle_closed(ahead, false);
    pair.pass(11);
    assert_rate(pair.rate(1, behind), CAPACITY / 2.0);
    assert_rate(pair.rate(1, elsewhere), CAPACITY / 2.0);
}

#[test]
fn what_a_flow_is_offered_and_does_not_take_goes_to_the_next() {
    let mut pair = senders("dclas-strict", 3);
    let (first, second) = (pair.register(0), pair.register(0));
    let slow = pair.open(first, "a", 100_000_000, 0, 1);
    let next = pair.open(second, "b", 100_000_000, 0, 2);
    assert_rate(pair.rate(0, next), 0.0);
    // Of 1 MB/s it takes 0.2 MB/s. From then on it is offered a quarter more than it took or, when it took most
    // of that, twice as much again.
    let crowd = Crowd { in_flight: 1 << 20, round_trip: Span::ZERO, segment_bytes: 1448 };
    for _ in 0..20 {
        pair.pass(10);
        pair.sent(0, slow, 2_000);
        pair.agents[0].handle_crowded(pair.now, slow, crowd);
        let taken = pair.rate(0, next) * 0.01;
        pair.sent(0, next, taken as u64);
    }
    let offered = pair.rate(0, slow);
    assert!((200_000.0..620_000.0).contains(&offered), "{offered}");
    assert_rate(pair.rate(0, next), CAPACITY - offered);
    // Once nothing holds it up, it is offered twice as much with every look, and then everything.
    for _ in 0..50 {
        pair.pass(10);
        let taken = pair.rate(0, slow) * 0.01;
        pair.sent(0, slow, taken as u64);
    }
    assert_rate(pair.rate(0, slow), CAPACITY);
    // One that does not move though nothing holds it up lost time to its host: it may go a quarter faster.
    pair.pass(300);
    assert_rate(pair.rate(0, slow), CAPACITY * 1.25);
}

#[test]
fn a_lapsed_lease_ends_decisions_until_the_coordinator_is_heard_again() {
    let mut pair = senders("dclas-strict", 2);
    let (large, small) = (pair.register(0), pair.register(0));
    let first = pair.open(large, "large", 100_000_000, 0, 1);
    pair.sent(0, first, FIRST);
    pair.open(small, "small", 100_000, 0, 1);
    pair.pass(20);
    assert_rate(pair.rate(0, first), 0.0);
    let lapsed = pair.now + LEASE;
    pair.agents[0].handle_timeout(lapsed);
    assert_eq!(pair.rate(0, first), f64::INFINITY);
    pair.now = lapsed;
    let late = pair.request(small, "late", 0, 1);
    assert_eq!(pair.rate(0, late), f64::INFINITY);
    // What it said meanwhile is as old as the lease; what it says next is not.
    pair.pass(20);
    assert_rate(pair.rate(0, first), 0.0);
}

#[test]
fn a_coflow_stays_in_its_queue_though_the_coordinator_began_anew() {
    let mut pair = senders("dclas-strict", 4);
    let (wide, narrow) = (pair.register(0), pair.register(0));
    let flows = [pair.open(wide, "a", 100_000_000, 0, 2), pair.open(wide, "b", 100_000_000, 1, 3)];
    let later = pair.open(narrow, "c", 100_000_000, 0, 3);
    pair.sent(0, flows[0], 600_000);
    pair.sent(1, flows[1], 600_000);
    pair.pass(30);
    assert_rate(pair.rate(0, later), CAPACITY);
    pair.agents.iter_mut().for_each(Agent::handle_session_lost);
    let policy = weir_policy::find(&format!("dclas-strict:first={FIRST}B")).unwrap();
    pair.coordinator = Coordinator::new(config(4, 100), &policy);
    // The host that sent the other half of it does not come back.
    pair.agents.truncate(1);
    pair.sessions.truncate(1);
    pair.connect_all();
    pair.pass(30);
    assert_rate(pair.rate(0, later), CAPACITY);
}

#[test]
fn only_changes_are_told() {
    let mut pair = senders("dclas-strict", 3);
    let coflow = pair.register(0);
    let flow = pair.open(coflow, "a", 100_000_000, 0, 1);
    pair.pass(15);
    let (syncs, said) = (pair.counter("syncs"), pair.said.len());
    pair.pass(200);
    assert_eq!((pair.counter("syncs"), pair.said.len()), (syncs, said));
    // Bytes that take the coflow to no other queue are told once, and lead to no message.
    pair.sent(0, flow, 1000);
    pair.sent(0, flow, 1000);
    pair.pass(9);
    assert_eq!(pair.said.len(), said);
    pair.pass(10);
    assert_eq!(pair.counter("syncs"), syncs + 1);
    let coflows = vec![v1::CoflowAttained { coflow: coflow.0, bytes: 2000 }];
    let kind = Some(v1::agent_event::Kind::Attained(v1::Attained { coflows }));
    let report = v1::AgentMessage { events: vec![v1::AgentEvent { kind }] };
    assert_eq!(pair.said[said..], [Said::Agent(0, report)]);
}

#[test]
fn where_nothing_changed_agents_hear_nothing_and_what_changes_is_told_with_the_next_sync() {
    let mut pair = senders("dclas-strict", 4);
    let first = pair.register(0);
    let flow = pair.open(first, "a", 100_000_000, 0, 2);
    pair.pass(20);
    let queues = |pair: &Pair| {
        let is_of_queues = |said: &&Said| {
            matches!(said, Said::Coordinator(message) if matches!(
                message.kind,
                Some(v1::coordinator_message::Kind::Queues(_))
            ))
        };
        pair.said.iter().filter(is_of_queues).count()
    };
    let before = queues(&pair);
    // Bytes are reported and counted, in the same queue: four syncs without a word.
    for sent in 1..=4 {
        pair.sent(0, flow, sent * 1_000);
        pair.pass(10);
    }
    assert_eq!(queues(&pair), before);
    // Another one comes to the same receiver from elsewhere: its agent hears what the receiver's link has for it.
    let second = pair.register(0);
    let later = pair.open(second, "b", 100_000_000, 1, 2);
    pair.pass(20);
    assert!(queues(&pair) > before);
    assert_rate(pair.rate(1, later), 0.0);
    // It goes when the first is over, though no level of its own was told before.
    pair.agents[0].handle_closed(flow, true);
    pair.pass(20);
    assert_rate(pair.rate(1, later), CAPACITY);
}

#[test]
fn a_job_is_served_before_a_later_one_and_ancestors_before_descendants() {
    let mut pair = senders("dclas-strict", 3);
    let (job, other) = (pair.child(&[]), pair.child(&[]));
    let (child, sibling) = (pair.child(&[job]), pair.child(&[job]));
    assert!(child != sibling, "siblings are two coflows");
    let first = pair.open(job, "job", 100_000_000, 0, 1);
    pair.pass(12);
    let second = pair.open(other, "other", 100_000_000, 0, 1);
    pair.pass(12);
    let last = pair.open(child, "child", 100_000_000, 0, 1);
    pair.pass(12);
    assert_rate(pair.rate(0, first), CAPACITY);
    // With its job's first coflow gone, the child comes before what arrived between the two.
    pair.agents[0].handle_closed(first, false);
    pair.unregister(job);
    pair.pass(12);
    assert_rate(pair.rate(0, last), CAPACITY);
    assert_rate(pair.rate(0, second), 0.0);
}

#[test]
fn an_ancestor_that_arrives_late_is_served_before_its_descendants() {
    let mut pair = senders("dclas-strict", 3);
    let root = pair.child(&[]);
    let middle = pair.child(&[root]);
    let leaf = pair.child(&[middle]);
    let last = pair.open(leaf, "leaf", 100_000_000, 0, 1);
    pair.pass(12);
    assert_rate(pair.rate(0, last), CAPACITY);
    let first = pair.open(root, "root", 100_000_000, 0, 1);
    pair.pass(12);
    assert_rate(pair.rate(0, first), CAPACITY);
    let second = pair.open(middle, "middle", 100_000_000, 0, 1);
    pair.pass(12);
    assert_rate(pair.rate(0, first), CAPACITY);
    pair.agents[0].handle_closed(first, false);
    pair.pass(12);
    assert_rate(pair.rate(0, second), CAPACITY);
    assert_rate(pair.rate(0, last), 0.0);
}

#[test]
fn who_names_itself_or_a_later_coflow_for_a_parent_is_served_all_the_same() {
    let mut pair = senders("dclas-strict", 2);
    let (own, later) = (
        pair.child(&[CoflowId(1), CoflowId(2), CoflowId(u64::MAX)]),
        pair.child(&[CoflowId(1), CoflowId(2)]),
    );
    let first = pair.open(own, "a", 1000, 0, 1);
    pair.pass(12);
    pair.open(later, "b", 1000, 0, 1);
    pair.pass(12);
    assert_rate(pair.rate(0, first), CAPACITY);
}

#[test]
fn an_agent_that_does_not_ask_for_terms_is_counted_and_shares_as_tcp_does() {
    let mut pair = senders("dclas-strict", 2);
    // An agent of a version without terms knows of no queues.
    pair.agents[0] = agent(0, 2);
    pair.connect_all_but_terms();
    let coflow = pair.register(0);
    let flow = pair.open(coflow, "a", 1_000_000, 0, 1);
    pair.pass(101);
    assert_eq!(pair.rate(0, flow), f64::INFINITY);
    pair.sent(0, flow, 500_000);
    pair.pass(30);
    assert!(pair.counter("messages_out_of_place") > 0);
    pair.finish(0, flow, 500_000);
    let status = pair.coordinator.status(pair.now);
    assert_eq!(status.coflows[0].done_flows, 1);
}

#[test]
fn a_completed_coflow_has_the_bytes_that_were_sent() {
    let mut pair = senders("dclas-strict", 2);
    let coflow = pair.register(1);
    let flow = pair.open(coflow, "a", 300_000, 0, 1);
    assert_eq!(pair.agents[0].poll_transmit(pair.now).map(|Transmit { flow, .. }| flow), Some(flow));
    pair.pass(5);
    pair.finish(0, flow, 300_000);
    let record = pair.unregister(coflow).unwrap();
    assert_eq!((record.flows, record.bytes), (1, 300_000));
}
