//! Hosts that are to be stopped.

use super::*;
use crate::agent::{FactCursor, JournalEntry, PutError};
use crate::coordinator::Drained;

fn drain(pair: &mut Pair, host: u32, undo: bool) -> Result<v1::DrainReply, String> {
    let request = v1::DrainRequest { host, undo, ..Default::default() };
    pair.coordinator.handle_drain(pair.now, 9, &request);
    pair.settle();
    let answer = answered(pair).expect("an answer");
    assert_eq!(answer.token, 9);
    answer.result
}

fn answered(pair: &mut Pair) -> Option<Drained> {
    std::iter::from_fn(|| pair.coordinator.poll_output()).find_map(|output| match output {
        Output::Drained(drained) => Some(drained),
        _ => None,
    })
}

/// Where a receiver at host 2 is sent first.
fn first_holder(pair: &mut Pair, coflow: CoflowId) -> u32 {
    let locate = v1::LocateRequest { coflow: coflow.0, block: "b".to_owned(), wait_ms: 0, host: 2 };
    pair.coordinator.handle_locate(pair.now, 1, locate);
    loop {
        match pair.coordinator.poll_output() {
            Some(Output::Located(answer)) => return answer.reply.holders[0].host,
            Some(_) => {}
            None => panic!("it is not answered"),
        }
    }
}

#[test]
fn a_host_that_is_drained_serves_what_it_has_and_takes_no_more() {
    let mut pair = Pair::new(3);
    let coflow = pair.register(0);
    let flow = pair.open(coflow, "a", 1_000_000, 0, 1);
    let before = pair.rate(0, flow);
    let reply = drain(&mut pair, 0, false).unwrap();
    assert_eq!((reply.name.as_str(), reply.blocks, reply.flows), ("0", 1, 1));
    assert_eq!(pair.rate(0, flow), before, "its flow goes on");
    assert_eq!(pair.agents[0].handle_put(block(coflow, "new", 5)), Err(PutError::Draining));
    // A put that is repeated, because its answer was lost, is answered as before.
    assert_eq!(pair.agents[0].handle_put(block(coflow, "a", 1_000_000)), Ok(()));
    pair.agents[1].handle_put(block(coflow, "new", 5)).unwrap();
    pair.finish(0, flow, 1_000_000);
    pair.unregister(coflow);
    assert_eq!(drain(&mut pair, 0, false).map(|reply| (reply.blocks, reply.flows)), Ok((0, 0)));
    assert_eq!(drain(&mut pair, 0, true).map(|_| ()), Ok(()));
    let coflow = pair.register(0);
    assert_eq!(pair.agents[0].handle_put(block(coflow, "new", 5)), Ok(()));
    assert_eq!(drain(&mut pair, 7, false).unwrap_err(), "host 7 has no agent at this coordinator");
}

#[test]
fn receivers_are_sent_to_a_host_that_stays_where_there_is_one() {
    let mut pair = Pair::new(3);
    let coflow = pair.register(0);
    for host in 0..2 {
        pair.agents[host].handle_put(block(coflow, "b", 1_000)).unwrap();
    }
    pair.settle();
    for (drained, other) in [(0, 1), (1, 0)] {
        drain(&mut pair, drained, false).unwrap();
        assert_eq!(first_holder(&mut pair, coflow), other);
        drain(&mut pair, drained, true).unwrap();
    }
    drain(&mut pair, 0, false).unwrap();
    drain(&mut pair, 1, false).unwrap();
    assert!(first_holder(&mut pair, coflow) < 2, "one that goes is better than none");
}

#[test]
fn an_agent_remembers_it_through_its_own_end_and_the_coordinator_hears_it_again() {
    let mut pair = Pair::new(2);
    drain(&mut pair, 0, false).unwrap();
    let facts = pair.agents[0].facts(&mut FactCursor::default(), 100);
    assert!(facts.contains(&JournalEntry::Draining(true)), "{facts:?}");
    let mut again = agent(0, 2);
    facts.into_iter().for_each(|fact| again.restore(fact));
    pair.agents[0] = again;
    pair.coordinator = coordinator(2, 1 << 30);
    pair.connect_all();
    let status = pair.coordinator.status(pair.now);
    let draining: Vec<bool> = status.agents.iter().map(|agent| agent.draining).collect();
    assert_eq!(draining, [true, false]);
    assert_eq!(pair.agents[0].handle_put(block(CoflowId(5), "new", 5)), Err(PutError::Draining));
}

#[test]
fn hosts_that_went_are_listed_as_away_until_they_are_back() {
    let mut pair = Pair::new(2);
    assert!(pair.coordinator.status(pair.now).away.is_empty());
    let session = pair.sessions[1].take().unwrap();
    pair.agents[1].handle_session_lost();
    pair.coordinator.handle_session_lost(pair.now, session);
    pair.wait(3_000);
    let away = pair.coordinator.status(pair.now).away;
    assert_eq!(away.iter().map(|host| (host.host, host.for_s)).collect::<Vec<_>>(), [(1, 3.0)]);
    pair.start_session(1);
    pair.settle();
    assert!(pair.coordinator.status(pair.now).away.is_empty());
}

/// No caller is told that a host is drained before its agent is.
#[test]
fn a_call_is_answered_by_the_agent_alone() {
    let mut pair = Pair::new(2);
    let ask = |pair: &mut Pair, token, undo| {
        pair.coordinator.handle_drain(
            pair.now,
            token,
            &v1::DrainRequest { host: 0, undo, ..Default::default() },
        );
    };
    ask(&mut pair, 1, false);
    let session = pair.sessions[0].take().unwrap();
    pair.agents[0].handle_session_lost();
    pair.settle();
    assert_eq!(answered(&mut pair), None);
    pair.coordinator.handle_session_lost(pair.now, session);
    assert!(answered(&mut pair).unwrap().result.unwrap_err().contains("went away"));
    pair.start_session(0);
    pair.settle();
    assert!(!pair.agents[0].is_draining());
    // An agent that does not answer, and two callers who want the opposite: each has its own answer.
    ask(&mut pair, 2, false);
    while pair.coordinator.poll_message().is_some() {}
    pair.wait(6_000);
    assert!(answered(&mut pair).unwrap().result.unwrap_err().contains("does not answer"));
    ask(&mut pair, 3, false);
    ask(&mut pair, 4, true);
    pair.settle();
    let answers: Vec<Drained> = std::iter::from_fn(|| answered(&mut pair)).collect();
    assert_eq!(
        answers.iter().map(|answer| (answer.token, answer.result.is_ok())).collect::<Vec<_>>(),
        [(3, true), (4, true)]
    );
    let draining = pair.coordinator.status(pair.now).agents[0].draining;
    assert_eq!(draining, pair.agents[0].is_draining());
}
