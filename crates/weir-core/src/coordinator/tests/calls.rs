//! What drivers and receivers are answered, and what late messages do.

use super::*;
use weir_proto::limits;

#[test]
fn an_agent_that_was_away_when_a_coflow_ended_is_told_when_it_is_back() {
    let mut pair = Pair::new(2);
    let coflow = pair.register(1);
    let flow = pair.open(coflow, "b", 1_000_000, 0, 1);
    let session = pair.sessions[0].take().unwrap();
    pair.agents[0].handle_session_lost();
    pair.coordinator.handle_session_lost(pair.now, session);
    assert!(pair.unregister(coflow).is_some());
    pair.settle();
    pair.connect_all();
    assert_eq!(pair.agents[0].poll_abort(), Some(flow));
    let status = pair.coordinator.status(pair.now);
    assert_eq!((status.coflows.len(), status.agents[0].blocks, status.agents[0].flows), (0, 0, 0));
}

#[test]
fn a_coflow_ended_at_a_coordinator_that_does_not_know_it_yet_stays_ended() {
    let mut pair = Pair::new(2);
    let coflow = pair.register(1);
    let flow = pair.open(coflow, "b", 1_000_000, 0, 1);
    pair.restart_coordinator(1_000);
    assert_eq!(pair.unregister(coflow), None);
    pair.connect_all();
    assert_eq!(pair.agents[0].poll_abort(), Some(flow));
    assert_eq!(pair.coordinator.status(pair.now).coflows.len(), 0);
}

#[test]
fn a_restarted_coordinator_learns_from_its_agents_what_has_ended() {
    let mut pair = Pair::new(2);
    let coflow = pair.register(1);
    pair.open(coflow, "b", 1_000_000, 0, 1);
    // Host 0, which holds the block, is away when the coflow ends, and host 1 is not.
    let session = pair.sessions[0].take().unwrap();
    pair.agents[0].handle_session_lost();
    pair.coordinator.handle_session_lost(pair.now, session);
    pair.unregister(coflow);
    pair.settle();
    pair.restart_coordinator(1_000);
    pair.connect_all();
    assert_eq!(pair.coordinator.status(pair.now).coflows.len(), 0);
    let locate = v1::LocateRequest { coflow: coflow.0, block: "b".to_owned(), wait_ms: 60_000, host: 1 };
    pair.coordinator.handle_locate(pair.now, 1, locate);
    assert!(pair.coordinator.poll_answer().unwrap().reply.ended);
}

#[test]
fn flows_and_blocks_of_an_ended_coflow_do_not_bring_it_back() {
    let mut pair = Pair::new(2);
    let coflow = pair.register(1);
    pair.agents[0].handle_put(block(coflow, "b", 1000)).unwrap();
    pair.settle();
    // The agent opens a flow and takes a block before it hears that the coflow has ended.
    let request = request(coflow, 0, 1, "b");
    pair.agents[0].handle_request(pair.now, &request).unwrap();
    pair.agents[0].handle_put(block(coflow, "late", 1000)).unwrap();
    pair.unregister(coflow);
    pair.settle();
    let status = pair.coordinator.status(pair.now);
    assert_eq!((status.coflows.len(), status.agents[0].blocks, status.agents[0].flows), (0, 0, 0));
}

#[test]
fn sealing_what_no_agent_has_told_of_yet_may_be_tried_again() {
    use crate::coordinator::SealError;
    let mut pair = Pair::new(1);
    let coflow = pair.register(0);
    pair.restart_coordinator(1_000);
    let now = pair.now;
    assert_eq!(pair.coordinator.handle_seal(now, coflow), Err(SealError::NotYetKnown(coflow)));
    assert_eq!(pair.coordinator.handle_seal(now, CoflowId(1_000)), Err(SealError::Unknown(CoflowId(1_000))));
    pair.connect_all();
    assert_eq!(pair.coordinator.handle_seal(now, coflow), Ok(()));
}

#[test]
fn a_registration_repeated_after_a_restart_registers_once() {
    let mut pair = Pair::new(1);
    let request = v1::RegisterRequest { options: None, request_key: 77 };
    let first = pair.coordinator.handle_register(pair.now, request.clone()).unwrap();
    pair.settle();
    // Known again before it is repeated: the same coflow.
    pair.restart_coordinator(1_000);
    pair.connect_all();
    assert_eq!(pair.coordinator.handle_register(pair.now, request.clone()), Ok(first));
    // Repeated before it is known again: the older one, of which no agent was told, goes.
    pair.restart_coordinator(2_000);
    let second = pair.coordinator.handle_register(pair.now, request.clone()).unwrap();
    pair.connect_all();
    let live: Vec<u64> = pair.coordinator.status(pair.now).coflows.iter().map(|c| c.coflow).collect();
    assert_eq!(live, [second.0]);
}

#[test]
fn a_locate_waits_for_its_put_and_is_answered_at_its_limit() {
    let mut pair = Pair::new(2);
    let coflow = pair.register(1);
    let locate =
        |block: &str| v1::LocateRequest { coflow: coflow.0, block: block.to_owned(), wait_ms: 500, host: 1 };
    pair.coordinator.handle_locate(pair.now, 1, locate("b"));
    pair.coordinator.handle_locate(pair.now, 2, locate("never"));
    assert_eq!(pair.coordinator.poll_answer(), None);
    pair.agents[0].handle_put(block(coflow, "b", 10)).unwrap();
    pair.settle();
    let answer = pair.coordinator.poll_answer().unwrap();
    assert_eq!((answer.token, answer.reply.holders[0].data_address.as_str()), (1, "10.0.0.0:7071"));
    pair.wait(500);
    let answer = pair.coordinator.poll_answer().unwrap();
    assert_eq!((answer.token, answer.reply.holders.len()), (2, 0));
}

#[test]
fn unregistering_answers_those_who_wait_and_stops_what_moves() {
    let mut pair = Pair::new(2);
    let (ending, other) = (pair.register(5), pair.register(1));
    let flow = pair.open(ending, "b", 100_000, 0, 1);
    let behind = pair.open(other, "c", 1_000_000, 0, 1);
    let locate = v1::LocateRequest { coflow: ending.0, block: "x".to_owned(), wait_ms: 60_000, host: 1 };
    pair.coordinator.handle_locate(pair.now, 9, locate);
    assert!(pair.unregister(ending).is_some());
    assert_eq!(pair.coordinator.poll_answer().unwrap().token, 9);
    pair.settle();
    assert_eq!(pair.agents[0].poll_abort(), Some(flow));
    assert_rate(pair.rate(0, behind), CAPACITY);
    let request = request(ending, 0, 1, "b");
    let late = pair.agents[0].handle_request(pair.now, &request);
    assert_eq!(late, Err(Status::CoflowEnded));
    // What the agent says of the aborted flow afterwards is late, not an error.
    pair.agents[0].handle_closed(flow, false);
    pair.settle();
}

#[test]
fn a_coflow_is_complete_when_its_number_of_flows_is_done() {
    let mut pair = Pair::new(3);
    let coflow = pair.register(2);
    pair.wait(500);
    let first = pair.open(coflow, "a", 1000, 0, 1);
    pair.finish(0, first, 1000);
    assert_eq!(pair.coordinator.status(pair.now).completed.len(), 0);
    pair.wait(40);
    let second = pair.open(coflow, "b", 2000, 2, 1);
    pair.finish(2, second, 2000);
    let status = pair.coordinator.status(pair.now);
    let record = &status.completed[0];
    assert_eq!((record.coflow, record.flows, record.bytes), (coflow.0, 2, 3000));
    assert!((record.cct_s - 0.04).abs() < 1e-9, "from the first get: {}", record.cct_s);
}

#[test]
fn status_says_what_a_coflow_waits_for() {
    let mut pair = Pair::new(3);
    let (small, large, idle) = (pair.register(1), pair.register(1), pair.register(1));
    pair.open(small, "a", 1000, 0, 1);
    pair.open(large, "b", 100_000, 2, 1);
    let status = pair.coordinator.status(pair.now);
    let waits = |coflow: CoflowId| {
        status.coflows.iter().find(|status| status.coflow == coflow.0).unwrap().waits_for.clone()
    };
    assert_eq!(waits(large), format!("host 1 down, in use by coflow {small}"));
    assert!(waits(small).contains("it is moving"));
    assert!(waits(idle).contains("to be opened"));
}

/// Of one alone it is the same row, and of one that is complete its record.
#[test]
fn status_of_one_coflow_is_what_the_status_of_all_says_of_it() {
    let mut pair = Pair::new(3);
    let (small, large, done, unregistered) =
        (pair.register(1), pair.register(1), pair.register(1), pair.register(1));
    pair.open(small, "a", 1000, 0, 1);
    pair.open(large, "b", 100_000, 2, 1);
    let flow = pair.open(done, "c", 500, 0, 2);
    pair.finish(0, flow, 500);
    pair.unregister(unregistered);
    let never = CoflowId(unregistered.0 + 10);
    let asked = [CoflowId(0), small, large, done, unregistered, never].into();
    let statuses = pair.coordinator.statuses(pair.now, &asked);
    assert_eq!(statuses[&CoflowId(0)], pair.coordinator.status(pair.now));
    for coflow in [small, large] {
        let row = statuses[&CoflowId(0)].coflows.iter().find(|row| row.coflow == coflow.0);
        assert_eq!(statuses[&coflow].coflows.first(), row);
        assert_eq!((statuses[&coflow].coflows.len(), statuses[&coflow].ended), (1, false));
    }
    assert_eq!((statuses[&done].coflows.len(), statuses[&done].completed.len()), (0, 1));
    assert_eq!(statuses[&done].completed[0].bytes, 500);
    assert!(statuses[&unregistered].ended && statuses[&never].ended);
}

#[test]
fn blocks_are_listed_by_name_page_by_page_with_those_who_hold_them_now() {
    let mut pair = Pair::new(3);
    let coflow = pair.register(1);
    let list = |pair: &Pair, after: &str| {
        let request = v1::ListBlocksRequest { coflow: coflow.0, after: after.to_owned() };
        pair.coordinator.list_blocks(&request)
    };
    assert_eq!(list(&pair, ""), v1::ListBlocksReply::default(), "it is live and has none");
    let names: Vec<String> = (0..=limits::MAX_BLOCKS_LISTED).map(|at| format!("b{at:05}")).collect();
    for name in &names {
        pair.agents[0].handle_put(block(coflow, name, 1000)).unwrap();
    }
    pair.agents[2].handle_put(block(coflow, &names[1], 1000)).unwrap();
    pair.settle();
    let first = list(&pair, "");
    assert_eq!(first.blocks.len(), limits::MAX_BLOCKS_LISTED);
    assert_eq!(first.more_after, names[limits::MAX_BLOCKS_LISTED - 1]);
    let hosts: Vec<u32> = first.blocks[1].holders.iter().map(|holder| holder.host).collect();
    assert_eq!((&first.blocks[1].block, hosts), (&names[1], vec![0, 2]));
    let last = list(&pair, &first.more_after);
    assert_eq!((last.blocks.len(), last.more_after.as_str()), (1, ""));
    // An agent whose session is over holds nothing that could be got.
    let session = pair.sessions[0].take().unwrap();
    pair.agents[0].handle_session_lost();
    pair.coordinator.handle_session_lost(pair.now, session);
    let left = list(&pair, "");
    assert_eq!(left.blocks.iter().map(|block| &block.block).collect::<Vec<_>>(), [&names[1]]);
    pair.unregister(coflow);
    assert!(list(&pair, "").ended);
}

#[test]
fn hosts_outside_the_fabric_and_other_versions_are_refused() {
    let mut coordinator = coordinator(2, 1);
    let hello = v1::Hello { version: 1, host: 2, ..v1::Hello::default() };
    let error = coordinator.handle_hello(Time::ZERO, SessionId(1), hello).unwrap_err();
    assert!(error.to_string().contains("--host"), "{error}");
    let hello = v1::Hello { version: 2, host: 0, ..v1::Hello::default() };
    assert!(coordinator.handle_hello(Time::ZERO, SessionId(1), hello).is_err());
}

#[test]
fn a_call_that_was_given_up_takes_no_room_and_is_not_answered() {
    let mut pair = Pair::new(2);
    let options = v1::CoflowOptions { deadline_ms: 60_000, ..v1::CoflowOptions::default() };
    let request = v1::RegisterRequest { options: Some(options), request_key: 0 };
    let coflow = pair.coordinator.handle_register(pair.now, request).unwrap();
    for token in 1..=3 {
        let request =
            v1::LocateRequest { coflow: coflow.0, block: "b".to_owned(), wait_ms: 600_000, host: 1 };
        pair.coordinator.handle_locate(pair.now, token, request);
        let request = v1::AdmissionRequest { coflow: coflow.0, wait_ms: 600_000 };
        pair.coordinator.handle_await_admission(pair.now, token + 10, &request);
    }
    for token in [1, 3, 11, 13, 99] {
        pair.coordinator.handle_given_up(token);
    }
    assert_eq!((pair.coordinator.waiting.len(), pair.coordinator.awaited.waiting.len()), (1, 1));
    // It keeps no coflow alive either, and the others are answered.
    assert!(pair.coordinator.is_waited_for(coflow));
    pair.open(coflow, "b", 5, 0, 1);
    assert_eq!(pair.coordinator.poll_answer().map(|answer| answer.token), Some(2));
    assert_eq!(pair.coordinator.poll_decision().map(|decision| decision.token), Some(12));
    assert_eq!((pair.coordinator.poll_answer(), pair.coordinator.poll_decision()), (None, None));
    assert!(!pair.coordinator.is_waited_for(coflow));
}

#[test]
fn of_two_coflows_with_one_key_the_one_that_moves_lives_whoever_is_told_first() {
    let mut pair = Pair::new(2);
    let register = |pair: &mut Pair| {
        let options = Some(v1::CoflowOptions { flows: 1, ..v1::CoflowOptions::default() });
        pair.coordinator.handle_register(pair.now, v1::RegisterRequest { options, request_key: 7 }).unwrap()
    };
    // Host 0 alone hears of the first; the answer to its driver is lost with the coordinator, and so is host 0 for a while.
    pair.sessions[1] = None;
    let first = register(&mut pair);
    pair.settle();
    pair.restart_coordinator(1_000);
    pair.start_session(1);
    pair.settle();
    let second = register(&mut pair);
    assert_ne!(first, second);
    pair.settle();
    let flow = pair.open(second, "b", 10_000_000, 1, 0);
    // A third process: host 0 comes first, with what it knows.
    pair.restart_coordinator(2_000);
    for host in 0..2 {
        pair.start_session(host);
        pair.settle();
    }
    assert!(!pair.agents[1].has_ended(second));
    assert_rate(pair.rate(1, flow), CAPACITY);
}

/// A mistyped id, or an attacker's guess: ids are given one after the other.
#[test]
fn an_id_that_was_named_before_it_was_given_is_given_to_nobody() {
    let mut pair = Pair::new(2);
    let first = pair.register(1);
    pair.settle();
    for coflow in [CoflowId(first.0 + 1), CoflowId(first.0 + 2), CoflowId(first.0 + 4)] {
        pair.agents[0].handle_put(block(coflow, "b", 1000)).unwrap();
    }
    pair.settle();
    assert!((1..=4).map(|at| pair.agents[0].has_ended(CoflowId(first.0 + at))).eq([true, true, false, true]));
    assert_eq!([pair.register(1), pair.register(1)], [CoflowId(first.0 + 3), CoflowId(first.0 + 5)]);
    // Another agent that names one of them hears the same, and what is registered goes on.
    pair.agents[1].handle_put(block(CoflowId(first.0 + 2), "b", 1000)).unwrap();
    pair.agents[1].handle_put(block(CoflowId(first.0 + 3), "b", 1000)).unwrap();
    pair.settle();
    assert!(
        pair.agents[1].has_ended(CoflowId(first.0 + 2)) && !pair.agents[1].has_ended(CoflowId(first.0 + 3))
    );
    let listed =
        pair.coordinator.list_blocks(&v1::ListBlocksRequest { coflow: first.0 + 3, after: String::new() });
    assert_eq!(listed.blocks.len(), 1);
    assert_eq!(pair.coordinator.status(pair.now).agents[0].blocks, 0);
}
