//! Which agents keep the notes of coflows while hosts come, go and are exchanged.

use super::attacks::{journalled, restart};
use super::*;

fn witnesses(pair: &Pair, coflow: CoflowId) -> Vec<usize> {
    pair.coordinator.coflows[&coflow].knowing.iter().map(|&host| host.0 as usize).collect()
}

fn named(pair: &mut Pair, name: &str) -> CoflowId {
    let options = v1::CoflowOptions { name: name.to_owned(), ..v1::CoflowOptions::default() };
    let request = v1::RegisterRequest { options: Some(options), request_key: 0 };
    let coflow = pair.coordinator.handle_register(pair.now, request).unwrap();
    pair.settle();
    coflow
}

/// The agent of a host goes.
fn lose(pair: &mut Pair, host: usize) {
    let session = pair.sessions[host].take().unwrap();
    pair.agents[host].handle_session_lost();
    pair.coordinator.handle_session_lost(pair.now, session);
}

fn come(pair: &mut Pair, host: usize) {
    pair.start_session(host);
    pair.settle();
}

/// Another machine, with an empty spool, takes a host's place.
fn exchange(pair: &mut Pair, host: usize) {
    lose(pair, host);
    pair.agents[host] = agent(host as u32, 2);
    pair.agents[host].handle_terms(pair.now, pair.coordinator.terms());
    come(pair, host);
}

fn name_after_restart(pair: &mut Pair, coflow: CoflowId) -> Option<String> {
    restart(pair, 1 << 40);
    let status = pair.coordinator.status(pair.now).coflows;
    status.into_iter().find(|other| other.coflow == coflow.0).map(|coflow| coflow.name)
}

#[test]
fn a_coflow_outlives_the_exchange_of_all_hosts_that_had_its_note() {
    let mut pair = Pair::new(5);
    let coflow = named(&mut pair, "shuffle 7");
    for host in witnesses(&pair, coflow) {
        exchange(&mut pair, host);
        pair.wait(1_000);
    }
    assert_eq!(name_after_restart(&mut pair, coflow).as_deref(), Some("shuffle 7"));
}

#[test]
fn others_are_given_the_notes_of_hosts_that_are_gone_for_good() {
    let mut pair = Pair::new(6);
    let coflow = named(&mut pair, "shuffle 7");
    let first = witnesses(&pair, coflow);
    for &host in &first {
        lose(&mut pair, host);
        pair.wait(61_000);
    }
    assert!(witnesses(&pair, coflow).iter().all(|host| !first.contains(host)), "all of them are others now");
    // They never come back.
    first.iter().for_each(|&host| pair.agents[host] = agent(host as u32, 2));
    assert_eq!(name_after_restart(&mut pair, coflow).as_deref(), Some("shuffle 7"));
}

#[test]
fn agents_that_restart_cost_no_other_agent_a_line_of_its_journal() {
    let mut pair = Pair::new(5);
    (0..100).for_each(|_| _ = pair.register(1));
    pair.agents.iter_mut().for_each(|agent| _ = journalled(agent));
    for host in 0..5 {
        lose(&mut pair, host);
        pair.wait(20_000);
        come(&mut pair, host);
    }
    pair.wait(120_000);
    assert!(pair.agents.iter_mut().all(|agent| journalled(agent) == 0));
}

#[test]
fn a_note_that_was_lost_on_its_way_is_told_again() {
    let mut pair = Pair::new(1);
    let request = v1::RegisterRequest::default();
    let coflow = pair.coordinator.handle_register(pair.now, request).unwrap();
    // The session breaks before the note is there.
    lose(&mut pair, 0);
    come(&mut pair, 0);
    assert_eq!(journalled(&mut pair.agents[0]), 1);
    restart(&mut pair, 1 << 40);
    assert!(pair.coordinator.coflows.contains_key(&coflow));
}

#[test]
fn an_agent_that_knows_a_coflow_by_its_flows_alone_hides_no_note() {
    let mut pair = Pair::new(5);
    let coflow = named(&mut pair, "shuffle 7");
    // Of before it heard the note, it served a flow: it names the coflow and knows nothing of it.
    let unnoted =
        v1::CoflowNote { coflow: coflow.0, done_flows: 1, done_bytes: 5, ..v1::CoflowNote::default() };
    let hello = v1::Hello { version: 1, host: 7, coflows: vec![unnoted], ..v1::Hello::default() };
    let mut later = coordinator(8, 1 << 40);
    later.handle_hello(pair.now, SessionId(77), hello).unwrap();
    pair.agents.iter_mut().for_each(Agent::handle_session_lost);
    pair.coordinator = later;
    pair.connect_all();
    let status = pair.coordinator.status(pair.now).coflows;
    assert_eq!((status[0].name.as_str(), status[0].done_flows), ("shuffle 7", 1));
}

#[test]
fn witnesses_that_take_long_to_introduce_themselves_are_waited_for() {
    let mut pair = Pair::new(5);
    let coflow = named(&mut pair, "shuffle 7");
    let mut introductions: Vec<Vec<v1::HelloPart>> = Vec::new();
    for host in witnesses(&pair, coflow) {
        pair.agents[host].handle_session_lost();
        pair.agents[host].handle_session_up(pair.now);
        let message = pair.agents[host].poll_message(pair.now).unwrap();
        let Some(v1::agent_event::Kind::Hello(hello)) = message.events.into_iter().next().unwrap().kind
        else {
            panic!("the first message is Hello")
        };
        introductions.push(vec![v1::HelloPart {
            coflows: hello.coflows,
            last: true,
            ..v1::HelloPart::default()
        }]);
    }
    let hosts = witnesses(&pair, coflow);
    let mut anew = coordinator(5, 1 << 40);
    let mut now = pair.now;
    for host in 0..5 {
        let more = hosts.contains(&host);
        let hello = v1::Hello { version: 1, host: host as u32, more, ..v1::Hello::default() };
        anew.handle_hello(now, SessionId(host as u64), hello).unwrap();
    }
    // Gigabytes of notes of other coflows come first: a part every second for 20 s. The coflow is among the first ones.
    let of_first = introductions[0].pop().unwrap();
    let last = std::mem::replace(&mut introductions[0], vec![v1::HelloPart { last: false, ..of_first }]);
    assert!(last.is_empty());
    for second in 0..20 {
        now = now + Span::from_millis(1_000);
        for (index, &host) in hosts.iter().enumerate() {
            let part = if index == 0 { introductions[0].pop() } else { None };
            let event =
                v1::AgentEvent { kind: Some(v1::agent_event::Kind::HelloPart(part.unwrap_or_default())) };
            anew.handle_agent(now, SessionId(host as u64), v1::AgentMessage { events: vec![event] });
        }
        anew.handle_timeout(now);
        let others: Vec<_> =
            anew.coflows[&coflow].knowing.iter().filter(|&&host| host.0 as usize != hosts[0]).collect();
        assert!(others.is_empty(), "after {second} s it was given to {others:?}");
    }
}

#[test]
fn ids_that_nobody_gave_push_no_ends_out() {
    let mut pair = Pair::new(2);
    let coflow = pair.register(1);
    pair.agents[0].handle_put(block(coflow, "b", 5)).unwrap();
    pair.settle();
    // Host 0 goes, the coordinator begins anew, and the driver ends what that one does not know yet.
    restart(&mut pair, 1 << 40);
    lose(&mut pair, 0);
    pair.unregister(coflow);
    let unseen = 1u64 << 50;
    for id in 0..250_000 {
        pair.coordinator.handle_unregister(pair.now, 2, CoflowId(unseen + 2 * id));
        while pair.coordinator.poll_unregistered().is_some() {}
    }
    pair.settle();
    assert!(pair.coordinator.ended_unseen.range_count() <= weir_proto::limits::MAX_UNSEEN_ENDS);
    let before = pair.said.len();
    pair.wait(1_000);
    let told = pair.said[before..].iter().filter(|said| format!("{said:?}").contains("CoflowsEnded")).count();
    assert_eq!(told, 0, "agents hear nothing of them");
    // Host 0 comes back, with the coflow that ended meanwhile.
    come(&mut pair, 0);
    assert!(pair.agents[0].has_ended(coflow));
    assert!(!pair.coordinator.coflows.contains_key(&coflow));
}
