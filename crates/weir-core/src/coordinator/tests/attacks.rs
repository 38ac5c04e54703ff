//! Peers that lie, drivers that die, and loads up to the bounds.

use super::*;
use crate::coordinator::{HelloError, IDS_AT_ONCE, RegisterError, first_coflow};
use weir_proto::limits;
use weir_proto::v1::agent_event::Kind;

/// Restarts the coordinator: agents attach anew to one that knows nothing and gives other ids.
pub(super) fn restart(pair: &mut Pair, first: u64) {
    pair.agents.iter_mut().for_each(Agent::handle_session_lost);
    let hosts = pair.agents.len() as u32;
    pair.coordinator = coordinator(hosts, first);
    pair.connect_all();
}

pub(super) fn journalled(agent: &mut Agent) -> usize {
    std::iter::from_fn(|| agent.poll_journal()).count()
}

fn messages_since(pair: &Pair, before: usize) -> Vec<v1::coordinator_message::Kind> {
    let said = pair.said[before..].iter();
    said.filter_map(|said| if let Said::Coordinator(message) = said { message.kind.clone() } else { None })
        .collect()
}

#[test]
fn a_resumed_get_is_refused_by_a_holder_of_other_bytes() {
    let mut pair = Pair::new(3);
    let coflow = pair.register(1);
    let identity = |byte| Identity::drawn([byte; 16]);
    let of = |byte| BlockEntry { identity: identity(byte), ..block(coflow, "b", 1_000_000) };
    pair.agents[0].handle_put(of(1)).unwrap();
    pair.agents[1].handle_put(of(2)).unwrap();
    pair.settle();
    let ask = |identity, offset| Request {
        coflow: coflow.0,
        offset,
        destination: 2,
        group: 0,
        identity,
        block: "b".to_owned(),
    };
    let now = pair.now;
    let begun = pair.agents[0].handle_request(now, &ask(Identity::UNKNOWN, 0)).unwrap();
    assert_eq!(begun.block.identity, identity(1));
    assert_eq!(
        pair.agents[1].handle_request(now, &ask(identity(1), 262_144)).unwrap_err(),
        Status::OtherBytes
    );
    assert!(pair.agents[0].handle_request(now, &ask(identity(1), 262_144)).is_ok());
    // The coordinator says which bytes each holder has.
    let request = v1::LocateRequest { coflow: coflow.0, block: "b".to_owned(), wait_ms: 0, host: 2 };
    pair.coordinator.handle_locate(now, 1, request);
    let holders = pair.coordinator.poll_answer().unwrap().reply.holders;
    let identities: Vec<_> =
        holders.iter().map(|holder| (holder.host, Identity::from_wire(&holder.identity))).collect();
    assert!(
        identities.contains(&(0, identity(1))) && identities.contains(&(1, identity(2))),
        "{identities:?}"
    );
}

#[test]
fn twenty_thousand_unfinished_coflows_are_told_in_few_messages_and_journalled_once() {
    let mut pair = Pair::new(5);
    for _ in 0..20_000 {
        let request = v1::RegisterRequest { options: Some(v1::CoflowOptions::default()), request_key: 0 };
        pair.coordinator.handle_register(pair.now, request).unwrap();
    }
    pair.settle();
    pair.agents.iter_mut().for_each(|agent| _ = journalled(agent));
    for _ in 0..2 {
        let before = pair.said.len();
        pair.connect_all();
        // Three agents of five keep each note: 12,000 notes come with every agent's Hello, 512 a message. Nothing of that
        // is news to any agent.
        assert!(messages_since(&pair, before).len() < 50);
        assert!(pair.agents.iter_mut().all(|agent| journalled(agent) == 0));
    }
    let before = pair.said.len();
    restart(&mut pair, 1 << 40);
    let messages = messages_since(&pair, before).len();
    assert!(messages < 200, "{messages} messages after a restart");
    // Its witnesses came one by one, and no others were taken for them; nor later.
    pair.wait(20_000);
    assert!(pair.agents.iter_mut().all(|agent| journalled(agent) == 0));
    let status = pair.coordinator.status(pair.now);
    assert_eq!(status.coflows.len() as u64 + status.hidden_coflows, 20_000);
}

#[test]
fn a_coflow_whose_driver_died_ends_when_its_lease_does_and_its_blocks_go() {
    let mut pair = Pair::with(CoordinatorConfig { coflow_lease: Span::from_millis(10_000), ..config(2, 1) });
    let (dead, alive, own) = (pair.register(1), pair.register(1), {
        let options = v1::CoflowOptions { lease_ms: 60_000, ..v1::CoflowOptions::default() };
        let request = v1::RegisterRequest { options: Some(options), request_key: 0 };
        pair.coordinator.handle_register(pair.now, request).unwrap()
    });
    for coflow in [dead, alive, own] {
        pair.agents[0]
            .handle_put(BlockEntry {
                spooled: true,
                path: format!("/spool/{coflow}"),
                ..block(coflow, "b", 5)
            })
            .unwrap();
    }
    pair.settle();
    for _ in 0..3 {
        pair.wait(4_000);
        let renewal = v1::RenewRequest { coflows: vec![alive.0, own.0] };
        assert!(pair.coordinator.handle_renew(pair.now, &renewal).ended.is_empty());
    }
    // 12 s without a sign of life, beside one that was renewed and one with a lease of a minute.
    assert_eq!(pair.coordinator.poll_expired(), Some(dead));
    assert_eq!(pair.coordinator.poll_expired(), None);
    pair.wait(300);
    assert_eq!(pair.agents[0].poll_discard(), Some(format!("/spool/{dead}")));
    assert_eq!(pair.agents[0].poll_discard(), None);
    let reply =
        pair.coordinator.handle_renew(pair.now, &v1::RenewRequest { coflows: vec![alive.0, dead.0, 999] });
    assert_eq!(reply.ended, [dead.0, 999]);
}

#[test]
fn a_coflow_does_not_end_while_it_moves_or_somebody_waits_for_it() {
    let mut pair = Pair::with(CoordinatorConfig { coflow_lease: Span::from_millis(1_000), ..config(2, 1) });
    let (moves, waited) = (pair.register(1), pair.register(1));
    pair.open(moves, "b", 1_000_000, 0, 1);
    let request = v1::LocateRequest { coflow: waited.0, block: "later".to_owned(), wait_ms: 8_000, host: 1 };
    pair.coordinator.handle_locate(pair.now, 1, request);
    for _ in 0..7 {
        pair.wait(1_000);
    }
    assert_eq!(pair.coordinator.poll_expired(), None);
    // The wait is over at 8 s; a second later its lease has ended.
    for _ in 0..3 {
        pair.wait(1_000);
    }
    assert_eq!(pair.coordinator.poll_expired(), Some(waited));
}

#[test]
fn ids_that_were_never_given_are_refused_in_every_call_and_message() {
    let mut pair = Pair::new(2);
    let given = pair.register(0);
    for never in [given.0 + 1, IDS_AT_ONCE, IDS_AT_ONCE - 1].map(CoflowId) {
        assert_eq!(pair.unregister(never), None);
        pair.coordinator.handle_seal(pair.now, never).unwrap_err();
        let request = v1::LocateRequest { coflow: never.0, block: "b".to_owned(), wait_ms: 5_000, host: 1 };
        pair.coordinator.handle_locate(pair.now, 7, request);
        assert!(pair.coordinator.poll_answer().unwrap().reply.ended, "nobody waits for what never comes");
        let note = v1::CoflowNote { coflow: never.0, ..v1::CoflowNote::default() };
        let block = v1::BlockAdded { coflow: never.0, block: "b".to_owned(), ..v1::BlockAdded::default() };
        let flow = v1::FlowOpened { flow: 1, coflow: never.0, destination: 1, ..v1::FlowOpened::default() };
        let hello = v1::Hello {
            version: 1,
            coflows: vec![note],
            blocks: vec![block],
            flows: vec![flow],
            ..v1::Hello::default()
        };
        pair.coordinator.handle_hello(pair.now, SessionId(1_000), hello).unwrap();
        assert!(pair.coordinator.coflows.keys().eq([&given]));
    }
    // What was named is given to no driver.
    assert_eq!(pair.register(0), CoflowId(given.0 + 2));
}

#[test]
fn the_largest_ids_crash_nobody_and_the_next_ids_go_on() {
    let mut pair = Pair::new(2);
    let first = pair.register(0);
    for (number, huge) in (0..).zip([u64::MAX, u64::MAX - 1, u64::MAX / 2]) {
        let note = v1::CoflowNote {
            coflow: huge,
            age_ns: u64::MAX,
            done_flows: u64::MAX,
            done_bytes: u64::MAX,
            ..v1::CoflowNote::default()
        };
        let flow = v1::FlowOpened {
            flow: u64::MAX,
            coflow: huge,
            destination: 1,
            size: u64::MAX,
            ..v1::FlowOpened::default()
        };
        let block = v1::BlockAdded {
            coflow: huge,
            block: "b".to_owned(),
            size: u64::MAX,
            ..v1::BlockAdded::default()
        };
        for host in 0..2 {
            let (coflows, flows, blocks) = (vec![note.clone()], vec![flow.clone()], vec![block.clone()]);
            let hello = v1::Hello { version: 1, host, coflows, flows, blocks, ..v1::Hello::default() };
            pair.coordinator.handle_hello(pair.now, SessionId(100 + u64::from(host)), hello).unwrap();
        }
        pair.coordinator.status(pair.now);
        let request =
            v1::LocateRequest { coflow: huge, block: "c".to_owned(), wait_ms: u64::MAX, host: u32::MAX };
        pair.coordinator.handle_locate(pair.now, 1, request);
        pair.unregister(CoflowId(huge));
        pair.agents[0].handle_put(block_of_size(CoflowId(huge), 5)).unwrap();
        let ended = v1::CoflowsEnded {
            ranges: vec![v1::IdRange { first: huge, last: u64::MAX }, v1::IdRange { first: 5, last: 1 }],
        };
        let message = v1::CoordinatorMessage {
            epoch: u64::MAX - 3 + number,
            lease_ms: u64::MAX,
            heard_ns: u64::MAX - number,
            kind: Some(v1::coordinator_message::Kind::CoflowsEnded(ended)),
        };
        pair.agents[0].handle_coordinator(pair.now, message);
        assert!(pair.agents[0].has_ended(CoflowId(huge)));
    }
    assert_eq!(pair.register(0), CoflowId(first.0 + 1));
}

fn block_of_size(coflow: CoflowId, size: u64) -> BlockEntry {
    block(coflow, "x", size)
}

#[test]
fn names_and_lists_beyond_their_bounds_are_refused_with_the_bound() {
    let mut pair = Pair::new(2);
    let long = "x".repeat(limits::MAX_NAME_BYTES + 1);
    let refused = [
        v1::CoflowOptions { name: long.clone(), ..v1::CoflowOptions::default() },
        v1::CoflowOptions { tenant: long.clone(), ..v1::CoflowOptions::default() },
        v1::CoflowOptions {
            parents: vec![1; limits::MAX_COFLOWS_PER_CALL + 1],
            ..v1::CoflowOptions::default()
        },
        v1::CoflowOptions { deadline_ms: u64::MAX / 1_000_000, ..v1::CoflowOptions::default() },
        v1::CoflowOptions { lease_ms: u64::MAX, ..v1::CoflowOptions::default() },
        v1::CoflowOptions { weight: f64::NAN, ..v1::CoflowOptions::default() },
    ];
    for options in refused {
        let request = v1::RegisterRequest { options: Some(options.clone()), request_key: 0 };
        let error = pair.coordinator.handle_register(pair.now, request).unwrap_err();
        assert!(matches!(error, RegisterError::Invalid(_)), "{error}");
        let note = v1::CoflowNote { coflow: 1 << 50, options: Some(options), ..v1::CoflowNote::default() };
        let hello = v1::Hello { version: 1, coflows: vec![note], ..v1::Hello::default() };
        pair.coordinator.handle_hello(pair.now, SessionId(50), hello).unwrap();
        assert!(pair.coordinator.coflows.is_empty());
    }
    let hello = v1::Hello { version: 1, data_address: long, ..v1::Hello::default() };
    let error = pair.coordinator.handle_hello(pair.now, SessionId(51), hello).unwrap_err();
    assert!(matches!(error, HelloError::Address(1_025)), "{error}");
}

#[test]
fn a_hello_of_fifty_thousand_blocks_comes_in_parts_and_nothing_is_missing() {
    let mut pair = Pair::new(2);
    let coflow = pair.register(0);
    for number in 0..50_000 {
        let name = format!("{number:0200}");
        pair.agents[0].handle_put(block(coflow, &name, 10)).unwrap();
    }
    pair.open(coflow, "moving", 1_000_000, 0, 1);
    let before = pair.said.len();
    restart(&mut pair, 1 << 40);
    let parts: Vec<usize> = pair.said[before..]
        .iter()
        .filter_map(|said| match said {
            Said::Agent(0, message) => message.events.iter().find_map(|event| match &event.kind {
                Some(Kind::Hello(hello)) => Some(hello.blocks.len()),
                Some(Kind::HelloPart(part)) => Some(part.blocks.len()),
                _ => None,
            }),
            _ => None,
        })
        .collect();
    // 4,096 entries a message, of which the first one has the note too.
    assert_eq!(parts.len(), 13);
    assert!(parts.iter().all(|&blocks| blocks <= limits::MAX_ENTRIES_PER_MESSAGE));
    assert_eq!(parts.iter().sum::<usize>(), 50_001);
    let status = pair.coordinator.status(pair.now);
    assert_eq!((status.agents[0].blocks, status.agents[0].flows), (50_001, 1));
    assert_eq!(status.coflows[0].live_flows, 1);
}

#[test]
fn a_second_agent_of_a_host_is_refused_and_both_are_told_until_the_first_is_gone() {
    let mut pair = Pair::new(2);
    let hello = |identity, address: &str| v1::Hello {
        version: 1,
        host: 1,
        data_address: address.to_owned(),
        spool_identity: identity,
        ..v1::Hello::default()
    };
    pair.coordinator.handle_session_lost(pair.now, pair.sessions[1].unwrap());
    let (first, second, third) = (SessionId(20), SessionId(21), SessionId(22));
    pair.coordinator.handle_hello(pair.now, first, hello(7, "10.0.0.1:1")).unwrap();
    while pair.coordinator.poll_message().is_some() {}
    for _ in 0..3 {
        let error = pair.coordinator.handle_hello(pair.now, second, hello(8, "10.0.0.2:1")).unwrap_err();
        assert!(error.to_string().contains("10.0.0.1:1"), "{error}");
    }
    let told: Vec<_> = std::iter::from_fn(|| pair.coordinator.poll_message()).collect();
    let notices = told.iter().filter(|(session, message)| {
        *session == first && matches!(&message.kind, Some(v1::coordinator_message::Kind::Notice(notice)) if notice.text.contains("10.0.0.2:1"))
    });
    assert_eq!(notices.count(), 1, "once a minute, not at every attempt");
    // The first one's own new session replaces its old one, which the driver closes.
    pair.coordinator.handle_hello(pair.now, third, hello(7, "10.0.0.1:1")).unwrap();
    assert_eq!(pair.coordinator.poll_closed(), Some(first));
    pair.coordinator.handle_session_lost(pair.now, third);
    pair.coordinator.handle_hello(pair.now, second, hello(8, "10.0.0.2:1")).unwrap();
}

#[test]
fn coflows_that_ended_while_a_host_was_away_stay_ended_however_many_there_are() {
    let mut pair = Pair::new(2);
    let coflow = pair.register(0);
    pair.agents[0].handle_put(block(coflow, "b", 5)).unwrap();
    pair.settle();
    pair.agents[0].handle_session_lost();
    pair.coordinator.handle_session_lost(pair.now, pair.sessions[0].take().unwrap());
    pair.unregister(coflow);
    // More than any list would hold.
    for _ in 0..120_000 {
        let id = pair.coordinator.handle_register(pair.now, v1::RegisterRequest::default()).unwrap();
        pair.coordinator.handle_unregister(pair.now, 1, id);
        if id.0.is_multiple_of(1000) {
            pair.settle();
        }
        while pair.coordinator.poll_unregistered().is_some() {}
    }
    pair.settle();
    pair.connect_all();
    assert!(pair.agents[0].has_ended(coflow));
    assert!(pair.coordinator.coflows.is_empty());
    // One range in all, in every memory.
    assert_eq!(pair.coordinator.ended.range_count(), 1);
    // And a coordinator that begins anew hears of all of it.
    restart(&mut pair, 1 << 40);
    assert!(pair.coordinator.has_ended(coflow) && pair.coordinator.has_ended(CoflowId(coflow.0 + 120_000)));
}

#[test]
fn a_clock_that_steps_back_between_two_coordinators_ends_no_unregister() {
    let mut pair = Pair::with(config(2, first_coflow(2_000_000, 3).0));
    let coflow = pair.register(0);
    pair.agents[0].handle_put(block(coflow, "b", 5)).unwrap();
    pair.settle();
    // The new process believes that it is earlier, and gives smaller ids.
    restart(&mut pair, first_coflow(1_000_000, 3).0);
    let other = pair.register(0);
    assert!(other < coflow);
    assert!(pair.unregister(coflow).is_some());
    assert!(pair.agents[0].has_ended(coflow) && !pair.agents[0].has_ended(other));
    // A clock that stands still: sixteen processes of one millisecond still differ.
    let starts: std::collections::BTreeSet<_> =
        (0..16).map(|random| first_coflow(1_000_000, random)).collect();
    assert_eq!(starts.len(), 16);
    assert!(starts.iter().zip(starts.iter().skip(1)).all(|(one, next)| next.0 - one.0 >= IDS_AT_ONCE));
    assert!(first_coflow(u64::MAX, u64::MAX) < CoflowId(1 << 63));
}

#[test]
fn an_agent_that_lies_about_ends_ends_no_coflow_of_this_process() {
    let mut pair = Pair::new(2);
    let coflow = pair.register(0);
    let ended_ranges = vec![v1::IdRange { first: 0, last: u64::MAX }];
    let hello = v1::Hello { version: 1, ended: vec![coflow.0], ended_ranges, ..v1::Hello::default() };
    pair.coordinator.handle_hello(pair.now, SessionId(9), hello).unwrap();
    assert!(pair.coordinator.coflows.contains_key(&coflow));
    assert_eq!(pair.register(0), CoflowId(coflow.0 + 1));
    assert!(pair.unregister(coflow).is_some());
}

#[test]
fn ends_of_more_foreign_coflows_than_are_remembered_end_none_that_lives() {
    let mut pair = Pair::new(2);
    let (live, ended) = (pair.register(0), pair.register(0));
    pair.unregister(ended);
    // Below and above those of this process, with a gap behind each. The bound is at 200,000.
    let far = CoflowId(pair.coordinator.config.first_coflow.0 + (1 << 40));
    for id in 0..limits::MAX_ENDED_RANGES as u64 + 5 {
        pair.coordinator.handle_unregister(pair.now, 2, CoflowId(far.0 + 2 * id));
        _ = pair.coordinator.poll_unregistered();
    }
    assert!(pair.coordinator.coflows.contains_key(&live));
    assert!(!pair.coordinator.has_ended(live) && pair.coordinator.has_ended(ended));
    // No agent told of any of them, so that they push out no other end: what comes beyond the bound is not remembered.
    assert!(pair.coordinator.has_ended(far) && !pair.coordinator.has_ended(CoflowId(far.0 + 400_000)));
    // An agent hears of more ends than it remembers, and takes none for the end of what lives.
    pair.wait(1000);
    assert!(!pair.agents[0].has_ended(live) && !pair.agents[0].has_ended(CoflowId(far.0 + 1)));
    pair.open(live, "a", 1000, 0, 1);
    assert_eq!(pair.coordinator.status(pair.now).coflows.len(), 1);
}

#[test]
fn hosts_that_came_before_a_coflows_note_hear_it_when_it_comes() {
    let mut pair = Pair::new(5);
    let coflow = pair.register(1);
    let knowing = &pair.coordinator.coflows[&coflow].knowing;
    let holder = (0..5).find(|&host| !knowing.contains(&HostNumber(host))).unwrap() as usize;
    // A block is put, and the coordinator gone before it hears of it. The holder comes first to the next one.
    pair.agents[holder].handle_put(block(coflow, "b", 1000)).unwrap();
    pair.agents.iter_mut().for_each(Agent::handle_session_lost);
    pair.sessions.fill(None);
    pair.coordinator = coordinator(5, 1 << 30);
    pair.start_session(holder);
    pair.settle();
    assert!(pair.coordinator.coflows[&coflow].adopted);
    let has_note = |agent: &mut Agent| {
        std::iter::from_fn(|| agent.poll_journal()).any(
            |entry| matches!(entry, crate::agent::JournalEntry::Coflow { coflow: of, .. } if of == coflow),
        )
    };
    assert!(!has_note(&mut pair.agents[holder]));
    (0..5).filter(|&host| host != holder).for_each(|host| pair.start_session(host));
    pair.settle();
    assert!(!pair.coordinator.coflows[&coflow].adopted);
    assert!(has_note(&mut pair.agents[holder]));
}

#[test]
fn two_gets_of_one_block_by_one_receiver_are_one_flow_of_two() {
    let mut pair = Pair::new(3);
    let coflow = pair.register(2);
    for _ in 0..2 {
        let flow = pair.open(coflow, "a", 1000, 0, 1);
        pair.finish(0, flow, 1000);
    }
    let status = pair.coordinator.status(pair.now);
    assert_eq!(status.coflows[0].done_flows, 1);
    assert!(!status.coflows[0].sealed);
    // Another receiver of the same block is another flow: a broadcast.
    let flow = pair.open(coflow, "a", 1000, 0, 2);
    pair.finish(0, flow, 1000);
    let record = &pair.coordinator.status(pair.now).completed[0];
    assert_eq!((record.flows, record.bytes), (2, 2000));
    // And after the agent came back from its journal, the first receiver still counts once.
    let entries: Vec<_> = std::iter::from_fn(|| pair.agents[0].poll_journal()).collect();
    assert_eq!(
        entries.iter().filter(|entry| matches!(entry, crate::agent::JournalEntry::Done { .. })).count(),
        2
    );
}

#[test]
fn the_longest_deadline_is_a_long_one() {
    let mut pair = Pair::under(config(2, 1), "varys-deadline");
    let options =
        v1::CoflowOptions { flows: 1, deadline_ms: limits::MAX_DEADLINE_MS, ..v1::CoflowOptions::default() };
    let request = v1::RegisterRequest { options: Some(options), request_key: 0 };
    let coflow = pair.coordinator.handle_register(pair.now, request).unwrap();
    pair.settle();
    let flow = pair.open(coflow, "b", 1_000_000, 0, 1);
    assert!(pair.rate(0, flow) > 0.0);
    assert_eq!(Span::from_millis(u64::MAX), Span::MAX);
}

#[test]
fn the_record_has_what_receivers_acknowledged_before_unregister_was_called() {
    let mut pair = Pair::new(3);
    let coflow = pair.register(2);
    let first = pair.open(coflow, "a", 1000, 0, 1);
    let second = pair.open(coflow, "b", 1000, 0, 2);
    let now = pair.now;
    for flow in [first, second] {
        pair.agents[0].handle_sent(now, flow, 1000);
    }
    pair.settle();
    // Both receivers have all and say so; their bytes are on the way when the driver unregisters.
    pair.coordinator.handle_unregister(pair.now, 9, coflow);
    pair.settle();
    assert_eq!(pair.coordinator.poll_unregistered(), None, "the agent still waits for two acknowledgements");
    pair.agents[0].handle_closed(first, true);
    pair.agents[0].handle_closed(second, true);
    pair.settle();
    let record = pair.coordinator.poll_unregistered().unwrap().record.unwrap();
    assert_eq!((record.flows, record.bytes), (2, 2000));
}

#[test]
fn a_record_has_flows_that_nobody_had_told_of_when_unregister_was_called() {
    let mut pair = Pair::new(3);
    let coflow = pair.register(1);
    pair.agents[0].handle_put(block(coflow, "a", 1000)).unwrap();
    pair.settle();
    let flow = pair.ask(coflow, "a", 0, 1);
    pair.agents[0].handle_sent(pair.now, flow, 1000);
    pair.agents[0].handle_closed(flow, true);
    // What the agent has to say is still on its way.
    pair.coordinator.handle_unregister(pair.now, 9, coflow);
    pair.settle();
    let record = pair.coordinator.poll_unregistered().unwrap().record.unwrap();
    assert_eq!((record.flows, record.bytes), (1, 1000));
}

#[test]
fn unregistering_waits_for_no_agent_that_does_not_answer() {
    let mut pair = Pair::new(2);
    let coflow = pair.register(2);
    let flow = pair.open(coflow, "a", 1000, 0, 1);
    let now = pair.now;
    pair.agents[0].handle_sent(now, flow, 1000);
    pair.settle();
    let silent = pair.sessions[0].take();
    pair.coordinator.handle_unregister(pair.now, 9, coflow);
    pair.coordinator.handle_unregister(pair.now, 10, coflow);
    pair.wait(249);
    assert_eq!(pair.coordinator.poll_unregistered(), None);
    pair.wait(1);
    let answered: Vec<u64> =
        std::iter::from_fn(|| pair.coordinator.poll_unregistered()).map(|reply| reply.token).collect();
    assert_eq!(answered, [9, 10]);
    // Nor for one whose session ends.
    let other = pair.register(1);
    pair.sessions[0] = silent;
    let flow = pair.open(other, "c", 1000, 0, 1);
    pair.agents[0].handle_sent(pair.now, flow, 1000);
    pair.settle();
    pair.sessions[0] = None;
    pair.coordinator.handle_unregister(pair.now, 11, other);
    pair.settle();
    assert_eq!(pair.coordinator.poll_unregistered(), None, "the other agent has answered");
    pair.coordinator.handle_session_lost(pair.now, silent.unwrap());
    assert_eq!(pair.coordinator.poll_unregistered().unwrap().token, 11);
}

#[test]
fn a_block_without_bytes_is_a_flow_that_is_complete_at_once() {
    let mut pair = Pair::new(2);
    let coflow = pair.register(1);
    let flow = pair.open(coflow, "empty", 0, 0, 1);
    pair.agents[0].handle_closed(flow, true);
    pair.settle();
    let record = &pair.coordinator.status(pair.now).completed[0];
    assert_eq!((record.coflow, record.flows, record.bytes), (coflow.0, 1, 0));
}

#[test]
fn a_block_whose_file_changed_is_not_located_any_more_and_may_be_put_again() {
    let mut pair = Pair::new(2);
    let coflow = pair.register(0);
    pair.agents[0].handle_put(block(coflow, "b", 5)).unwrap();
    pair.settle();
    let place = block(coflow, "b", 5).place();
    assert!(!pair.agents[0].handle_changed(coflow, "b", &place), "it was its only file");
    pair.settle();
    let request = v1::LocateRequest { coflow: coflow.0, block: "b".to_owned(), wait_ms: 0, host: 1 };
    pair.coordinator.handle_locate(pair.now, 1, request);
    assert_eq!(pair.coordinator.poll_answer().unwrap().reply.holders, []);
    assert_eq!(pair.coordinator.status(pair.now).agents[0].blocks, 0);
    // A driver that asks all the same is told what became of it.
    let asked = |pair: &mut Pair| pair.agents[0].handle_request(pair.now, &super::request(coflow, 0, 1, "b"));
    assert_eq!(asked(&mut pair).unwrap_err(), Status::Changed);
    pair.agents[0]
        .handle_put(BlockEntry { identity: Identity::drawn([9; 16]), ..block(coflow, "b", 7) })
        .unwrap();
    assert!(asked(&mut pair).is_ok());
}

#[test]
fn a_spooled_file_has_one_owner() {
    let mut pair = Pair::new(2);
    let (one, two) = (pair.register(0), pair.register(0));
    let spooled =
        |coflow| BlockEntry { spooled: true, path: "/spool/f.block".to_owned(), ..block(coflow, "b", 5) };
    pair.agents[0].handle_put(spooled(one)).unwrap();
    let error = pair.agents[0].handle_put(spooled(two)).unwrap_err();
    assert_eq!(error, crate::agent::PutError::Owned("/spool/f.block".to_owned()));
    pair.unregister(one);
    assert_eq!(pair.agents[0].poll_discard(), Some("/spool/f.block".to_owned()));
}

#[test]
fn a_block_beyond_the_bound_is_refused_with_a_reason() {
    let mut agent = Pair::new(2).agents.remove(0);
    let error = agent.handle_put(block(CoflowId(1 << 50), "b", limits::MAX_BLOCK_BYTES + 1)).unwrap_err();
    assert!(error.to_string().contains("8796093022208"), "{error}");
    let odd = BlockEntry { frame_checksums: vec![1, 2], ..block(CoflowId(1 << 50), "b", 5) };
    assert!(agent.handle_put(odd).unwrap_err().to_string().contains("2 checksums for a block of 1"));
}
