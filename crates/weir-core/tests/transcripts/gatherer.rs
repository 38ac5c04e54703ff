//! A receiver that gathers. Weir's own is in Java, and its tests play the same files to it; this one keeps to docs/protocol.md,
//! and is here for agents to talk to. It resumes a gather where it is told to, which that one does not.

use crate::cases;
use crate::outputs::Outputs;
use crate::play::Side;
use crate::text::{Cuts, Line, Who};
use std::collections::VecDeque;
use weir_model::Time;
use weir_proto::data::{
    ACK, FRAME_BYTES, FRAME_HEADER_BYTES, FrameHeader, Identity, NAK, RESPONSE_BYTES, Response, Status,
    checksum, frame_length,
};
use weir_proto::gather::{GatherRange, GatherRequest, LENGTH_BYTES};

/// A gather as a transcript has it.
pub(crate) fn line(gather: &GatherRequest) -> Line {
    let GatherRequest { coflow, destination, group, shuffle, application, executor, .. } = gather;
    let ranges = gather.ranges.iter().map(|range| format!("{}:{}-{}", range.map, range.first, range.end));
    let ranges = ranges.collect::<Vec<String>>().join(",");
    let token = digits(gather.token);
    let mut text = format!(
        "{ranges} of shuffle {shuffle} of executor {executor} of {application} by token {token} \
         of coflow {coflow} for host {destination}, group {group}"
    );
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
    fn gather(&mut self, request: GatherRequest) {
        self.block.truncate(request.offset as usize);
        let number = self.idle.take();
        self.acts.push_back(match number {
            Some(number) => Line::Reuses(number),
            None => Line::Connects(0, Who::Receiver, cases::agent(0)),
        });
        self.asked = Some(Asked {
            request,
            number: number.unwrap_or(0),
            input: Vec::new(),
            size: None,
            has_doubt: false,
        });
        if number.is_some() {
            self.ask();
        }
    }

    fn ask(&mut self) {
        let Asked { request, number, .. } = self.asked.as_ref().unwrap();
        self.acts.push_back(Line::Says(*number, Who::Receiver, request.encode()));
    }

    /// Understands what is there; false if more is needed.
    fn read(&mut self) -> bool {
        let Some(asked) = self.asked.as_mut().filter(|asked| !asked.has_doubt) else { return false };
        let Some(size) = asked.size else {
            let Some(head) = asked.input.first_chunk::<RESPONSE_BYTES>() else { return false };
            let response = Response::decode(head).unwrap();
            asked.input.drain(..RESPONSE_BYTES);
            if response.status == Status::Accepted {
                asked.size = Some(response.size);
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
        self.asked = None;
        self.acts.push_back(Line::Ends(how.to_owned()));
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
            Line::Gather(text) => self.gather(parse(text)),
            Line::Happens(Who::Executor, event) => self.outputs.happens(event),
            Line::Connects(number, Who::Receiver, _) => {
                self.asked.as_mut().unwrap().number = *number;
                self.ask();
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
