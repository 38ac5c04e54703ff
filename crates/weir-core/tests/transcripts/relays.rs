//! Transcripts of relays: what agents, receivers, other relays, a controller and a stranger say, and what relays answer.

use crate::play::{Case, Play, Side};
use crate::relay_side::{RelaySide, address, site};
use crate::text::{self, Event, Line, Who};
use weir_proto::data::{checksum, frame_length};
use weir_proto::relay::{FlowKey, HELLO_BYTES, HOP_LIMIT, Header, Hello, Kind, OPEN_BYTES, Open, Role};
use weir_proto::v1;

const SEED: u8 = 7;
pub(crate) const FRAME: u64 = weir_proto::data::FRAME_BYTES;
const FRAME_HEADER: u64 = weir_proto::data::FRAME_HEADER_BYTES as u64;
/// Less than two messages.
const SMALL_WINDOW: u64 = 300_000;
/// The relays, by what they are in most cases: that of the agent, that of the receiver, and another one.
const FIRST: u8 = 0;
const LAST: u8 = 1;
const OTHER: u8 = 2;

pub(crate) fn all() -> Vec<Case> {
    vec![
        Case {
            name: "detour",
            about: "By the controller's rule a flow of two frames that enters at relay-a goes half by relay-c and half directly; relay-b\n\
                    puts it in order. relay-c has no rule.",
            sides: || relays(3, None),
            script: detour,
        },
        Case {
            name: "window",
            about: "Relays with windows of 300,000 bytes: while no receiver subscribes, relay-a and relay-b take no more than that of a flow of\n\
                    three frames.",
            sides: || relays(2, Some(SMALL_WINDOW)),
            script: window,
        },
        Case {
            name: "reset",
            about: "A receiver goes away in mid-flow: its relay gives the flow up, the relay before it and the agent's connection follow.",
            sides: || relays(2, None),
            script: reset,
        },
        Case {
            name: "waits",
            about: "A flow that no receiver subscribes to, and a receiver whose flow does not come: after 10 s both are given up.",
            sides: || relays(2, None),
            script: waits,
        },
        Case {
            name: "strange",
            about: "What a relay does with what it does not take: another version, a kind that is none, a body that its kind does not have,\n\
                    a kind that does not come from a receiver, bytes of a flow that was not opened, a flow of no bytes.",
            sides: || relays(1, None),
            script: strange,
        },
    ]
}

pub(crate) fn relays(count: u8, window_bytes: Option<u64>) -> Vec<Box<dyn Side>> {
    (0..count).map(|number| -> Box<dyn Side> { Box::new(RelaySide::new(number, window_bytes)) }).collect()
}

pub(crate) fn key(mapper: u32) -> FlowKey {
    FlowKey { coflow: 7, reducer: 3 << 16, mapper }
}

/// What anybody says first to a relay.
pub(crate) fn hello(role: Role) -> Vec<u8> {
    let header = Header {
        length: HELLO_BYTES as u32,
        ..Header::about(FlowKey { coflow: 0, reducer: 0, mapper: 0 }, Kind::Hello, 0)
    };
    [&header.encode()[..], &Hello { role, connections: 1, session: 0 }.encode()].concat()
}

/// A flow to the receiver's relay, of a block of so many bytes.
fn open(key: FlowKey, block_bytes: u64) -> Vec<u8> {
    let number = block_bytes + FRAME_HEADER * block_bytes.div_ceil(FRAME);
    let header = Header { kind: Kind::Open, hop_limit: HOP_LIMIT, length: OPEN_BYTES as u32, key, number };
    let open = Open { source_site: site(FIRST), destination_site: site(LAST), destination: address(LAST) };
    [&header.encode()[..], &open.encode()].concat()
}

/// One frame of a block, from the agent.
pub(crate) fn frame(key: FlowKey, block_bytes: u64, number: u64) -> Vec<u8> {
    let from = number * FRAME;
    let payload = text::bytes(SEED, from, frame_length(block_bytes, from));
    let length = payload.len() as u32;
    let header = Header::data(key, HOP_LIMIT, from + number * FRAME_HEADER, length + FRAME_HEADER as u32);
    let head = [length.to_le_bytes(), checksum(&payload).to_le_bytes()].concat();
    [&header.encode()[..], &head, &payload].concat()
}

/// An agent begins a flow at its relay; the connection.
pub(crate) fn begin(play: &mut Play, key: FlowKey, block_bytes: u64) -> u32 {
    let agent = play.connect(Who::Agent, address(FIRST));
    play.say(agent, Who::Agent, &[hello(Role::Host), open(key, block_bytes)].concat());
    agent
}

/// A receiver subscribes at its relay; the connection.
pub(crate) fn subscribe(play: &mut Play, key: FlowKey) -> u32 {
    let receiver = play.connect(Who::Receiver, address(LAST));
    let subscribe = Header::about(key, Kind::Subscribe, 0).encode();
    play.say(receiver, Who::Receiver, &[&hello(Role::Receiver)[..], &subscribe].concat());
    receiver
}

fn detour(play: &mut Play) {
    play.happens(Who::Relay(FIRST), Event::Attaches);
    let session = 1;
    let entry = |relay: u8| v1::RelayEntry {
        relay: format!("relay-{}", char::from(b'a' + relay)),
        site: site(relay),
        data_address: address(relay).to_string(),
    };
    let list = v1::RelayList { relays: [FIRST, LAST, OTHER].map(entry).to_vec() };
    let say = |kind| v1::ToRelay { kind: Some(kind) };
    play.tell(session, Who::Controller, &say(v1::to_relay::Kind::Relays(list)));
    let next_hop = |to| v1::NextHop { to: Some(to), weight: 1.0 };
    let rule = v1::Rule {
        prefix: Some(v1::FlowPrefix { coflow: Some(7), reducer: None, mapper: None }),
        next_hops: vec![
            next_hop(v1::next_hop::To::Relay("relay-c".to_owned())),
            next_hop(v1::next_hop::To::Deliver(true)),
        ],
        rank: 0,
        weight: 1.0,
        entering: true,
    };
    let rules = v1::Rules { epoch: 1, complete: true, set: vec![rule], withdrawn: Vec::new() };
    play.tell(session, Who::Controller, &say(v1::to_relay::Kind::Rules(rules)));
    let block_bytes = FRAME + 100;
    let agent = begin(play, key(5), block_bytes);
    subscribe(play, key(5));
    (0..2).for_each(|number| play.say(agent, Who::Agent, &frame(key(5), block_bytes, number)));
    play.wait(100);
    play.act(Line::Closes(agent, Who::Agent));
}

fn window(play: &mut Play) {
    let block_bytes = 2 * FRAME + 100;
    let agent = begin(play, key(5), block_bytes);
    (0..3).for_each(|number| play.say(agent, Who::Agent, &frame(key(5), block_bytes, number)));
    subscribe(play, key(5));
    play.act(Line::Closes(agent, Who::Agent));
}

fn reset(play: &mut Play) {
    let block_bytes = FRAME + 100;
    let agent = begin(play, key(5), block_bytes);
    let receiver = subscribe(play, key(5));
    play.say(agent, Who::Agent, &frame(key(5), block_bytes, 0));
    play.act(Line::Closes(receiver, Who::Receiver));
}

fn waits(play: &mut Play) {
    begin(play, key(5), 100);
    subscribe(play, key(6));
    play.wait(10_000);
}

fn strange(play: &mut Play) {
    let empty = key(5);
    let none = FlowKey { coflow: 0, reducer: 0, mapper: 0 };
    let mut other_version = hello(Role::Host);
    other_version[0] = 2;
    let mut no_kind = Header::about(empty, Kind::Subscribe, 0).encode();
    no_kind[1] = 8;
    let no_hello = Header { length: 17, ..Header::about(none, Kind::Hello, 0) }.encode();
    let credit = Header::about(empty, Kind::Credit, 1).encode();
    let mut flow_of_no_bytes = open(empty, 100);
    flow_of_no_bytes[24..32].copy_from_slice(&0_u64.to_le_bytes());
    let sayings = [
        other_version,
        [&hello(Role::Receiver)[..], &no_kind].concat(),
        no_hello.to_vec(),
        [&hello(Role::Receiver)[..], &credit].concat(),
        [hello(Role::Relay), frame(empty, 10, 0)].concat(),
        [hello(Role::Host), flow_of_no_bytes].concat(),
    ];
    for said in sayings {
        let stranger = play.connect(Who::Stranger, address(FIRST));
        play.say(stranger, Who::Stranger, &said);
    }
}
