//! A receiver that gathers. Weir's own is in Java, and its tests play the same files to it; this one keeps to docs/protocol.md,
//! and is here for agents to talk to. It resumes a gather where it is told to, which that one does not.

use crate::cases;
use crate::outputs::Outputs;
use crate::play::Side;
use crate::relays;
use crate::text::{Cuts, Line, Who};
use std::collections::VecDeque;
use std::net::SocketAddr;
use weir_model::Time;
use weir_proto::data::{
    ACK, FRAME_BYTES, FRAME_HEADER_BYTES, FrameHeader, Identity, NAK, RESPONSE_BYTES, Response, Status,
    checksum, frame_length,
};
use weir_proto::gather::{GatherRange, GatherRequest, LENGTH_BYTES};
use weir_proto::relay::{FlowKey, HEADER_BYTES, Header, Kind, RelayPath, Role};

/// A gather as a transcript has it, and the way by relays that is offered for it.
pub(crate) fn line(gather: &GatherRequest, way: Option<&RelayPath>) -> Line {
    let GatherRequest { coflow, destination, group, shuffle, application, executor, .. } = gather;
    let ranges = gather.ranges.iter().map(|range| format!("{}:{}-{}", range.map, range.first, range.end));
    let ranges = ranges.collect::<Vec<String>>().join(",");
    let token = digits(gather.token);
    let mut text = format!(
        "{ranges} of shuffle {shuffle} of executor {executor} of {application} by token {token} \
         of coflow {coflow} for host {destination}, group {group}"
    );
    if let Some(RelayPath { site, mapper, relay }) = way {
        text += &format!(" by relay {relay} of site {site}, mapper {mapper}");
    }
    if gather.identity.is_known() {
        text += &format!(" from {} of {}", gather.offset, digits(gather.identity.0));
    }
    Line::Gather(text)
}

fn digits(of: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(of))
}

fn parse(text: &str) -> GatherRequest {
    let words: Vec<&str> = text.split([' ', ',']).collect();
    let place = |word: &str| words.iter().position(|known| *known == word);
    let after = |word: &str| words[place(word).unwrap() + 1];
    let sixteen = |digits: &str| u128::from_str_radix(digits, 16).unwrap().to_be_bytes();
    let (offset, identity) = match place("from") {
        Some(at) => (words[at + 1].parse().unwrap(), Identity(sixteen(words[at + 3]))),
        None => (0, Identity::UNKNOWN),
    };
    GatherRequest {
        coflow: after("coflow").parse().unwrap(),
        offset,
        destination: after("host").parse().unwrap(),
        group: after("group").parse().unwrap(),
        identity,
        token: sixteen(after("token")),
        shuffle: after("shuffle").parse().unwrap(),
        application: words[place("executor").unwrap() + 3].to_owned(),
        executor: after("executor").to_owned(),
        ranges: words[..place("of").unwrap()].iter().map(|range| range_of(range)).collect(),
    }
}

fn way(text: &str) -> Option<RelayPath> {
    let words: Vec<&str> = text.split([' ', ',']).collect();
    let after = |word: &str| words.iter().position(|known| *known == word).map(|at| words[at + 1]);
    let relay = after("relay")?.parse().unwrap();
    let site = after("site").unwrap().parse().unwrap();
    Some(RelayPath { site, mapper: after("mapper").unwrap().parse().unwrap(), relay })
}

fn range_of(text: &str) -> GatherRange {
    let (map, reducers) = text.split_once(':').unwrap();
    let (first, end) = reducers.split_once('-').unwrap();
    GatherRange { map: map.parse().unwrap(), first: first.parse().unwrap(), end: end.parse().unwrap() }
}

/// How a gather that an agent refuses ends.
fn refused(status: Status) -> &'static str {
    match status {
        Status::NoSuchBlock => "absent",
        Status::CoflowEnded => "ended",
        Status::Unreadable => "unreadable",
        Status::OtherBytes => "changed",
        Status::Forbidden => "forbidden",
        other => panic!("{other:?}"),
    }
}

/// A gather under way.
struct Asked {
    request: GatherRequest,
    number: u32,
    /// What was said and not understood yet.
    input: Vec<u8>,
    size: Option<u64>,
    way: Option<RelayPath>,
    /// The connection to the relay of the way, what it said and is not understood yet, and whether frames come from there.
    relay: Option<u32>,
    messages: Vec<u8>,
    is_relayed: bool,
    /// A frame did not have its checksum, and its agent was told.
    has_doubt: bool,
}

#[derive(Default)]
pub(crate) struct Gatherer {
    asked: Option<Asked>,
    /// The connection that the gather before left.
    idle: Option<u32>,
    /// What was verified of the last block.
    block: Vec<u8>,
    outputs: Outputs,
    acts: VecDeque<Line>,
}

impl Gatherer {
    fn gather(&mut self, request: GatherRequest, way: Option<RelayPath>) {
        self.block.truncate(request.offset as usize);
        let number = self.idle.take();
        self.acts.extend(way.map(|way| Line::Connects(0, Who::Receiver, way.relay)));
        self.acts.push_back(match number {
            Some(number) => Line::Reuses(number),
            None => Line::Connects(0, Who::Receiver, cases::agent(0)),
        });
        self.asked = Some(Asked {
            request,
            number: number.unwrap_or(0),
            input: Vec::new(),
            size: None,
            way,
            relay: None,
            messages: Vec::new(),
            is_relayed: false,
            has_doubt: false,
        });
        if number.is_some() && way.is_none() {
            self.ask();
        }
    }

    fn ask(&mut self) {
        let Asked { request, number, way, .. } = self.asked.as_ref().unwrap();
        let mut said = way.map(|way| way.encode().to_vec()).unwrap_or_default();
        said.extend(request.encode());
        self.acts.push_back(Line::Says(*number, Who::Receiver, said));
    }

    /// Tells the relay to hand the flow's messages on.
    fn subscribe(&mut self) {
        let Asked { request, way, relay, .. } = self.asked.as_ref().unwrap();
        let key = FlowKey::of_gather(request, way.as_ref().unwrap());
        let subscribe = Header::about(key, Kind::Subscribe, 0).encode();
        let said = [&relays::hello(Role::Receiver)[..], &subscribe].concat();
        self.acts.push_back(Line::Says(relay.unwrap(), Who::Receiver, said));
    }

    /// Takes the bytes of the flow out of what the relay said.
    fn unpack(&mut self) {
        let Some(asked) = self.asked.as_mut() else { return };
        while let Some(head) = asked.messages.first_chunk::<HEADER_BYTES>() {
            let header = Header::decode(head).unwrap();
            assert!(matches!(header.kind, Kind::Data | Kind::Alive), "{header:?}");
            let end = HEADER_BYTES + header.length as usize;
            let Some(body) = asked.messages.get(HEADER_BYTES..end) else { return };
            asked.input.extend(body);
            asked.messages.drain(..end);
        }
    }

    /// A connection is there.
    fn connected(&mut self, number: u32, to: SocketAddr) {
        let asked = self.asked.as_mut().unwrap();
        if asked.way.is_some_and(|way| way.relay == to) {
            asked.relay = Some(number);
            // The other one is there already, if it was left by the gather before.
            if asked.number == 0 {
                return;
            }
        } else {
            asked.number = number;
        }
        self.ask();
    }

    /// Understands what is there; false if more is needed.
    fn read(&mut self) -> bool {
        let Some(asked) = self.asked.as_mut().filter(|asked| !asked.has_doubt) else { return false };
        let Some(size) = asked.size else {
            let Some(head) = asked.input.first_chunk::<RESPONSE_BYTES>() else { return false };
            let response = Response::decode(head).unwrap();
            asked.input.drain(..RESPONSE_BYTES);
            if matches!(response.status, Status::Accepted | Status::Relayed) {
                asked.size = Some(response.size);
                asked.is_relayed = response.status == Status::Relayed;
                if asked.is_relayed {
                    self.subscribe();
                }
            } else {
                let number = asked.number;
                self.acts.push_back(Line::Closes(number, Who::Receiver));
                self.end(refused(response.status));
            }
            return true;
        };
        let (at, number) = (self.block.len() as u64, asked.number);
        if at == size {
            let (_, block) = self.outputs.find(&asked.request).unwrap();
            assert!(self.block == block, "what was gathered is what was written");
            self.acts.push_back(Line::Says(number, Who::Receiver, vec![ACK]));
            self.end("ok");
            self.idle = Some(number);
            return false;
        }
        let Some(header) = asked.input.first_chunk() else { return false };
        let header = FrameHeader::decode(header).unwrap();
        let end = FRAME_HEADER_BYTES + frame_length(size, at) as usize;
        assert_eq!(u64::from(header.length), frame_length(size, at));
        let Some(payload) = asked.input.get(FRAME_HEADER_BYTES..end) else { return false };
        if checksum(payload) == header.checksum {
            self.block.extend(payload);
            asked.input.drain(..end);
        } else {
            let doubt = [&[NAK][..], &(at / FRAME_BYTES).to_le_bytes()].concat();
            asked.has_doubt = true;
            self.acts.push_back(Line::Says(number, Who::Receiver, doubt));
        }
        true
    }

    fn end(&mut self, how: &str) {
        let asked = self.asked.take();
        self.acts.extend(asked.and_then(|asked| asked.relay).map(|relay| Line::Closes(relay, Who::Receiver)));
        self.acts.push_back(Line::Ends(how.to_owned()));
    }

    /// Whether a connection is that to the relay.
    fn is_relay(&self, number: u32) -> bool {
        self.asked.as_ref().is_some_and(|asked| asked.relay == Some(number))
    }

    /// Ranges whose last byte was verified.
    fn whole_ranges(&self, of: usize) -> usize {
        let (mut end, mut whole) = (LENGTH_BYTES * of as u64, 0);
        let table = self.block.get(..end as usize).unwrap_or_default();
        for length in table.chunks_exact(LENGTH_BYTES as usize) {
            end += u64::from_le_bytes(*length.first_chunk().unwrap());
            whole += usize::from(end <= self.block.len() as u64);
        }
        whole
    }
}

impl Side for Gatherer {
    fn who(&self) -> Who {
        Who::Receiver
    }

    fn hear(&mut self, _: Time, line: &Line, cuts: &mut Cuts) {
        match line {
            Line::Gather(text) => self.gather(parse(text), way(text)),
            Line::Happens(Who::Executor, event) => self.outputs.happens(event),
            Line::Connects(number, Who::Receiver, to) => self.connected(*number, *to),
            Line::Says(number, who, said) if *who != Who::Receiver && self.is_relay(*number) => {
                let mut left = &said[..];
                while let Some(asked) = self.asked.as_mut().filter(|_| !left.is_empty()) {
                    let (part, rest) = left.split_at(cuts.next(left.len()));
                    asked.messages.extend(part);
                    left = rest;
                    self.unpack();
                    while self.read() {}
                }
            }
            Line::Says(number, who, said) if *who != Who::Receiver => {
                let mut left = &said[..];
                while let Some(asked) = self.asked.as_mut().filter(|asked| asked.number == *number) {
                    let count = cuts.next(left.len());
                    asked.input.extend(&left[..count]);
                    left = &left[count..];
                    while self.read() {}
                    if left.is_empty() {
                        return;
                    }
                }
            }
            Line::Closes(number, who) if *who != Who::Receiver => {
                self.idle = self.idle.filter(|idle| idle != number);
                if let Some(asked) = self.asked.as_ref().filter(|asked| asked.number == *number) {
                    let ranges = self.whole_ranges(asked.request.ranges.len());
                    let how = if asked.has_doubt { "doubt" } else { "broken" };
                    self.end(&format!("{how} after {ranges} ranges"));
                }
            }
            _ => {}
        }
    }

    fn poll(&mut self, _: Time) -> Option<Line> {
        self.acts.pop_front()
    }

    fn pass_time(&mut self, _: Time) {}

    fn next_timeout(&self) -> Option<Time> {
        None
    }
}
