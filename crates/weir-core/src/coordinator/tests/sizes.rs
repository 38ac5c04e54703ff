//! Messages are no longer than their readers take, whatever is in them.

use super::attacks::{journalled, restart};
use super::*;
use crate::coordinator::Joining;
use weir_proto::{Message, limits};

fn longest(said: &[Said]) -> usize {
    let length = |said: &Said| match said {
        Said::Agent(_, message) => message.encoded_len(),
        Said::Coordinator(message) => message.encoded_len(),
    };
    said.iter().map(length).max().unwrap()
}

#[test]
fn no_message_is_longer_than_its_reader_takes_though_all_names_and_lists_are_as_long_as_they_may_be() {
    let mut pair = Pair::new(7);
    let long = "n".repeat(limits::MAX_NAME_BYTES);
    let parents: Vec<u64> = (0..limits::MAX_COFLOWS_PER_CALL as u64).map(|at| u64::MAX - at).collect();
    let options =
        v1::CoflowOptions { name: long.clone(), tenant: long, parents, ..v1::CoflowOptions::default() };
    // 12 kB each, 12 MB in all: their notes once went as one message.
    for _ in 0..1_000 {
        let request = v1::RegisterRequest { options: Some(options.clone()), request_key: 0 };
        pair.coordinator.handle_register(pair.now, request).unwrap();
    }
    pair.settle();
    pair.agents.iter_mut().for_each(|agent| _ = journalled(agent));
    restart(&mut pair, 1 << 40);
    pair.wait(400_000);
    assert!(pair.agents.iter_mut().all(|agent| journalled(agent) == 0), "nothing of it is news to anybody");
    assert!(longest(&pair.said) <= limits::MAX_PORTION_BYTES + (1 << 19), "{}", longest(&pair.said));
    let known = pair.coordinator.coflows.values().filter(|coflow| !coflow.adopted).count();
    assert_eq!(known, 1_000, "all of it arrived");
    let status = pair.coordinator.status(pair.now);
    assert!(status.encoded_len() < limits::MAX_CONTROL_MESSAGE_BYTES);
    assert_eq!(status.coflows.len() as u64 + status.hidden_coflows, 1_000);
}

#[test]
fn a_look_at_more_hosts_than_a_message_has_room_for_shows_as_many_as_it_has() {
    let joining =
        Joining { link_rate: Some(Rate::from_bytes_per_sec(1e6)), share: 1.0, ..Joining::default() };
    let config =
        CoordinatorConfig { fabric: Fabric::without_hosts(), joining: Some(joining), ..config(1, 1) };
    let mut pair = Pair::with(config);
    let labels: Vec<String> =
        (0..limits::MAX_LABELS).map(|at| format!("label{at:02}={}", "x".repeat(240))).collect();
    for host in 0..2_000_u32 {
        let hello = v1::Hello {
            version: 1,
            host,
            name: format!("{host:0>200}"),
            data_address: format!("{}:7071", "h".repeat(900)),
            labels: labels.clone(),
            ..v1::Hello::default()
        };
        pair.coordinator.handle_hello(pair.now, SessionId(u64::from(host) + 1), hello).unwrap();
    }
    let status = pair.coordinator.status(pair.now);
    assert!(status.encoded_len() < limits::MAX_CONTROL_MESSAGE_BYTES, "{}", status.encoded_len());
    assert_eq!(status.agents.len() as u64 + status.hidden_agents, 2_000);
    let labelled = status.agents.iter().filter(|agent| !agent.labels.is_empty()).count();
    assert!(labelled > 100 && status.agents.len() > labelled && status.hidden_agents > 0);
}

#[test]
fn an_agent_that_says_more_than_it_may_have_is_not_listed_beyond_it() {
    let mut pair = Pair::new(1);
    let coflow = pair.register(0);
    let session = pair.sessions[0].unwrap();
    for part in 0..=limits::MAX_BLOCKS_PER_AGENT as u64 / 50_000 {
        let added = |at: u64| v1::BlockAdded {
            coflow: coflow.0,
            block: format!("{part}-{at}"),
            ..v1::BlockAdded::default()
        };
        let event = |at| v1::AgentEvent { kind: Some(v1::agent_event::Kind::BlockAdded(added(at))) };
        let events = (0..50_000).map(event).collect();
        pair.coordinator.handle_agent(pair.now, session, v1::AgentMessage { events });
    }
    assert_eq!(pair.coordinator.status(pair.now).agents[0].blocks, limits::MAX_BLOCKS_PER_AGENT as u64);
    let listed: usize = pair.coordinator.directory.values().map(|blocks| blocks.len()).sum();
    assert_eq!(listed, limits::MAX_BLOCKS_PER_AGENT);
    // The agent goes for good. What it listed takes no room a minute later.
    pair.agents[0].handle_session_lost();
    pair.coordinator.handle_session_lost(pair.now, session);
    pair.sessions[0] = None;
    pair.wait(600_000);
    let listed: usize = pair.coordinator.directory.values().map(|blocks| blocks.len()).sum();
    assert_eq!(listed, 0);
}
