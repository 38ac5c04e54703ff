//! Time in which the coordinator did not run, or heard no agent or driver.

use super::*;

const LEASE_OF_COFLOWS: Span = Span::from_millis(9_000);

fn with_leases() -> Pair {
    Pair::with(CoordinatorConfig { coflow_lease: LEASE_OF_COFLOWS, ..config(2, 1) })
}

/// The coordinator alone is stopped: what others say waits for it.
fn stop(pair: &mut Pair, millis: u64) {
    pair.now = pair.now + Span::from_millis(millis);
}

fn renew(pair: &mut Pair, coflow: CoflowId) -> v1::RenewReply {
    pair.coordinator.handle_renew(pair.now, &v1::RenewRequest { coflows: vec![coflow.0] })
}

#[test]
fn a_coordinator_that_was_stopped_ends_no_coflow_of_a_living_driver() {
    let mut pair = with_leases();
    let (coflow, other) = (pair.register(1), pair.register(1));
    pair.wait(3_000);
    // Stopped for 13 s, longer than a lease. What is handled first when it goes on is a message of an agent: the driver's
    // renewals wait behind it.
    stop(&mut pair, 13_000);
    pair.agents[0].handle_put(block(other, "b", 5)).unwrap();
    pair.settle();
    assert_eq!(pair.coordinator.poll_expired(), None);
    // It has a full lease from then on, and no more than that.
    pair.wait(8_999);
    assert_eq!(pair.coordinator.poll_expired(), None);
    pair.wait(2);
    assert_eq!(pair.coordinator.poll_expired(), Some(coflow));
}

#[test]
fn after_a_gap_every_coflow_has_a_full_lease_and_those_of_the_dead_end_with_it() {
    let mut pair = with_leases();
    let (living, dead) = (pair.register(1), pair.register(1));
    for _ in 0..4 {
        // 2 s of running, 8 of being stopped, as where a machine has not enough processors for all it runs.
        pair.wait(2_000);
        assert!(renew(&mut pair, living).ended.is_empty());
        stop(&mut pair, 8_000);
        pair.settle();
    }
    assert_eq!(pair.coordinator.poll_expired(), None);
    for _ in 0..3 {
        pair.wait(3_000);
        renew(&mut pair, living);
    }
    assert_eq!(pair.coordinator.poll_expired(), Some(dead));
    assert_eq!(pair.coordinator.poll_expired(), None);
}

#[test]
fn a_coordinator_that_lost_all_its_agents_takes_itself_to_be_cut_off_and_ends_nothing() {
    let mut pair = with_leases();
    let coflow = pair.register(1);
    let sessions = std::mem::replace(&mut pair.sessions, vec![None, None]);
    pair.agents.iter_mut().for_each(Agent::handle_session_lost);
    for session in sessions.into_iter().flatten() {
        pair.coordinator.handle_session_lost(pair.now, session);
    }
    pair.wait(60_000);
    assert_eq!(pair.coordinator.poll_expired(), None);
    pair.connect_all();
    pair.wait(8_000);
    assert_eq!(pair.coordinator.poll_expired(), None);
    pair.wait(1_001);
    assert_eq!(pair.coordinator.poll_expired(), Some(coflow));
}

#[test]
fn what_waits_for_agents_waits_longer_by_the_time_in_which_they_were_not_heard() {
    let mut pair = Pair::with(tuned(config(2, 1), |tuning| tuning.ready_wait = Span::from_millis(3)));
    let coflow = pair.register(2);
    pair.open(coflow, "b", 1_000_000, 0, 1);
    pair.agents[0].handle_put(block(coflow, "c", 1_000_000)).unwrap();
    pair.settle();
    // The second of two announced gets comes while the coordinator is stopped, and so does the driver's unregister.
    stop(&mut pair, 5_000);
    pair.coordinator.handle_unregister(pair.now, 1, coflow);
    pair.coordinator.handle_timeout(pair.now);
    assert!(pair.coordinator.status(pair.now).coflows[0].waits_for.contains("announced"));
    stop(&mut pair, 5_000);
    pair.coordinator.handle_timeout(pair.now);
    assert_eq!(pair.coordinator.poll_unregistered(), None, "its agents have had no time to settle");
    pair.wait(250);
    assert!(pair.coordinator.poll_unregistered().is_some());
}

#[test]
fn a_process_that_has_nothing_to_do_says_when_it_wants_to_be_called_again() {
    let mut pair = Pair::new(1);
    for _ in 0..100 {
        let next = pair.coordinator.next_timeout().unwrap();
        assert!(next <= pair.now + Span::from_millis(500));
        pair.now = next;
        pair.settle();
    }
    let counters = pair.coordinator.status(pair.now).counters;
    assert!(counters.iter().all(|counter| counter.name != "pauses"), "it was never late: {counters:?}");
}

#[test]
fn the_lease_in_force_is_told_and_one_that_cannot_be_kept_is_refused() {
    let mut pair = with_leases();
    let coflow = pair.register(1);
    assert_eq!(pair.coordinator.lease_ms(coflow), 9_000);
    let mut with = |lease_ms| {
        let options = v1::CoflowOptions { lease_ms, ..v1::CoflowOptions::default() };
        pair.coordinator
            .handle_register(pair.now, v1::RegisterRequest { options: Some(options), request_key: 0 })
    };
    assert!(with(2_999).unwrap_err().to_string().contains("at least 3000"));
    let own = with(3_000).unwrap();
    let request = v1::RenewRequest { coflows: vec![coflow.0, own.0, 999] };
    let reply = pair.coordinator.handle_renew(pair.now, &request);
    assert_eq!((reply.ended, reply.lease_ms), (vec![999], 3_000), "the shortest of those that live");
    let mut unlimited = Pair::new(1);
    let coflow = unlimited.register(1);
    assert_eq!(unlimited.coordinator.lease_ms(coflow), 0, "for ever");
}

#[test]
fn a_receiver_that_has_all_and_never_acknowledges_keeps_its_coflow_for_one_more_lease() {
    let mut pair = with_leases();
    let coflow = pair.register(1);
    let flow = pair.open(coflow, "b", 1_000_000, 0, 1);
    // It moves for longer than a lease.
    for _ in 0..10 {
        pair.agents[0].handle_sent(pair.now, flow, 100_000);
        pair.wait(1_000);
    }
    assert_eq!(pair.coordinator.poll_expired(), None);
    pair.wait(9_000);
    assert_eq!(pair.coordinator.poll_expired(), Some(coflow));
}

#[test]
fn a_coflow_that_comes_back_after_a_restart_has_its_own_lease_and_not_the_usual_one() {
    let mut pair = Pair::new(2);
    let options = v1::CoflowOptions { flows: 1, lease_ms: 5_000, ..v1::CoflowOptions::default() };
    let request = v1::RegisterRequest { options: Some(options), request_key: 0 };
    let coflow = pair.coordinator.handle_register(pair.now, request).unwrap();
    pair.settle();
    let flow = pair.open(coflow, "b", 1_000, 0, 1);
    pair.finish(0, flow, 1_000);
    // Its driver is gone, and a coordinator comes that keeps coflows for ever unless their drivers say otherwise.
    pair.restart_coordinator(1_000);
    pair.connect_all();
    pair.wait(4_000);
    assert!(!pair.agents[0].has_ended(coflow));
    pair.wait(2_000);
    assert!(pair.agents[0].has_ended(coflow), "after its five seconds");
}
