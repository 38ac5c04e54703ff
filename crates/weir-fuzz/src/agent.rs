//! An agent, its coordinator, its receivers, and its journal.

use crate::input::Input;
use weir_core::agent::{Agent, AgentConfig, BlockEntry, Crowd, JournalEntry, Output};
use weir_core::ids::{BlockKey, FlowNumber};
use weir_model::{CoflowId, Rate, Span, Time};
use weir_proto::data::{Identity, Request};
use weir_proto::v1;

/// Plays the sequence in `data` against an agent and its journal.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let Some(choice) = input.byte() else { return };
    let mut agent = Agent::new(AgentConfig {
        data_address: "10.0.0.1:7071".to_owned(),
        incarnation: 1,
        spool_identity: 1,
        first_plan_wait: Span::from_millis(100),
        report_interval: Span::from_millis(20),
        batch: Span::from_millis(1),
        uplink: (choice & 1 == 1).then(|| Rate::from_bytes_per_sec(1e6)),
        measures_interface: choice & 2 == 2,
        ..AgentConfig::default()
    });
    let mut now = Time::from_millis(1_000_000);
    while step(&mut agent, &mut input, &mut now).is_some() {
        agent.handle_timeout(now);
        for _ in 0..1_000 {
            let Some(transmit) = agent.poll_transmit(now) else { break };
            agent.handle_sent(now, transmit.flow, transmit.bytes.min(100_000));
            agent.handle_blocked(now, transmit.flow);
        }
        while let Some(output) = agent.poll_output(now) {
            match output {
                Output::Suspect(flow) => agent.handle_waited(now, flow, Span::from_nanos(now.nanos())),
                // What is journalled can be read again.
                Output::Journal(entry) => {
                    let text = serde_json(&entry);
                    assert_eq!(serde_json(&from_json(&text).expect("its own entry")), text);
                }
                _ => {}
            }
        }
        agent.next_timeout();
    }
}

fn serde_json(entry: &JournalEntry) -> String {
    serde_json::to_string(entry).expect("an entry")
}

fn from_json(text: &str) -> Option<JournalEntry> {
    serde_json::from_str(text).ok()
}

fn step(agent: &mut Agent, input: &mut Input<'_>, now: &mut Time) -> Option<()> {
    match input.byte()? % 12 {
        0 | 1 => {
            let message: v1::CoordinatorMessage = input.message()?;
            agent.handle_coordinator(*now, message);
        }
        2 => agent.handle_session_up(*now),
        3 => agent.handle_session_lost(),
        4 => {
            let (coflow, size, offset) = (CoflowId(input.number()?), input.number()?, input.number()?);
            let block = String::from_utf8_lossy(input.part()?).into_owned();
            let spooled = input.byte()? & 1 == 1;
            let path = if spooled { format!("/spool/{block}") } else { "/data/file".to_owned() };
            let identity = Identity::drawn([input.byte()?; 16]);
            let whole = BlockEntry::of_file(coflow, block, path, size, identity);
            let entry = BlockEntry { offset, spooled, ..whole };
            let _ = agent.handle_put(entry);
        }
        5 => {
            let request = Request {
                coflow: input.number()?,
                offset: input.number()?,
                destination: input.number()? as u32,
                group: input.number()? as u32,
                identity: Identity([input.byte()?; 16]),
                block: String::from_utf8_lossy(input.part()?).into_owned(),
            };
            let _ = agent.handle_request(*now, &request);
        }
        6 => agent.handle_closed(FlowNumber(input.number()?), input.byte()? & 1 == 1),
        7 => agent.handle_writable(*now, FlowNumber(input.number()?)),
        8 => {
            let (flow, in_flight) = (FlowNumber(input.number()?), input.number()?);
            let crowd =
                Crowd { in_flight, round_trip: Span::from_nanos(input.number()?), segment_bytes: 1448 };
            agent.handle_crowded(*now, flow, crowd);
        }
        9 => {
            let coflow = CoflowId(input.number()?);
            let block = String::from_utf8_lossy(input.part()?).into_owned();
            let Some(place) = agent.places(coflow, &block).last().map(BlockEntry::place) else {
                return Some(());
            };
            if coflow.0 & 1 == 0 {
                agent.handle_changed(coflow, &block, &place);
            } else {
                agent.handle_unwritten(&BlockKey { coflow, name: block }, &place);
            }
        }
        10 => {
            if let Some(entry) = std::str::from_utf8(input.part()?).ok().and_then(from_json) {
                agent.restore(entry);
            }
        }
        _ => *now = *now + Span::from_nanos(input.number()?.saturating_mul(1_000_000) % (1 << 40)),
    }
    Some(())
}
