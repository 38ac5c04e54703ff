//! The form of a transcript: lines that say who says what on which connection or in which call, in order.

use crate::messages;
use std::fmt::Write;
use std::net::SocketAddr;
use weir_model::Span;

/// Hexadecimal digits of so many bytes on one line.
const WIDTH: usize = 48;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Receiver,
    /// Whose data plane it is, its connection says.
    Agent,
    /// The agent of a host.
    AgentOf(u8),
    /// The first of them is 0.
    Relay(u8),
    /// Connects to a relay, and keeps to no protocol.
    Stranger,
    Coordinator,
    Controller,
    Driver,
    Task,
    /// Or whoever acts for it.
    Executor,
}

impl Who {
    const ALL: [Who; 14] = [
        Who::Receiver,
        Who::Agent,
        Who::AgentOf(0),
        Who::AgentOf(1),
        Who::AgentOf(2),
        Who::Relay(0),
        Who::Relay(1),
        Who::Relay(2),
        Who::Stranger,
        Who::Coordinator,
        Who::Controller,
        Who::Driver,
        Who::Task,
        Who::Executor,
    ];

    fn name(self) -> String {
        match self {
            Who::Receiver => "receiver".to_owned(),
            Who::Agent => "agent".to_owned(),
            Who::AgentOf(host) => format!("agent-{host}"),
            Who::Relay(number) => format!("relay-{}", char::from(b'a' + number)),
            Who::Stranger => "stranger".to_owned(),
            Who::Coordinator => "coordinator".to_owned(),
            Who::Controller => "controller".to_owned(),
            Who::Driver => "driver".to_owned(),
            Who::Task => "task".to_owned(),
            Who::Executor => "executor".to_owned(),
        }
    }

    fn of(name: &str) -> Option<Who> {
        Who::ALL.into_iter().find(|who| who.name() == name)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A get begins: its block, and the agents that are known to hold it.
    Get(String),
    /// A gather begins: what is asked for.
    Gather(String),
    /// The get or gather that began ends, with these words.
    Ends(String),
    /// A connection is made, or one that an earlier get left is used again.
    Connects(u32, Who, SocketAddr),
    /// The receiver tries to, and nobody listens.
    Fails(SocketAddr),
    Reuses(u32),
    Says(u32, Who, Vec<u8>),
    Closes(u32, Who),
    /// A call begins: who makes it, to whom, and its name.
    Calls(u32, Who, Who, String),
    /// A message of a call: its type, and its bytes.
    Message(u32, Who, String, Vec<u8>),
    /// A call ends with this status.
    Refuses(u32, Who, String),
    /// So much virtual time passes before the next line.
    After(Span),
    /// Something happens to somebody that no message tells.
    Happens(Who, Event),
}

/// What happens to somebody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// It connects to its coordinator or controller.
    Attaches,
    /// Its process is killed, and another one starts.
    StartsAnew,
    /// A receiver at a host asks it for a block of a coflow.
    Asked { host: u32, coflow: u64, block: String },
    /// It wrote so many more bytes of a flow.
    Sent { flow: u64, bytes: u64 },
    /// The receiver of a flow acknowledged it.
    Acknowledged { flow: u64 },
    /// It answers a request on the data plane by this status, and sends nothing.
    Answers { status: u8 },
    /// It closes the connection of a flow.
    Aborts { flow: u64 },
    /// An executor writes the output of a map task: the seed of its bytes, and how many each reducer has.
    Writes { shuffle: u32, map: u64, seed: u8, lengths: Vec<u64> },
    /// The next frame that it sends does not have its checksum.
    Spoils,
}

impl Event {
    /// Whether somebody does it, rather than meets with it.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self, Event::Answers { .. } | Event::Aborts { .. })
    }
}

/// Of what the bytes of a block are: see docs/protocol.md.
pub(crate) fn byte(seed: u8, at: u64) -> u8 {
    ((at * 31 + u64::from(seed)) % 251) as u8
}

pub(crate) fn bytes(seed: u8, from: u64, count: u64) -> Vec<u8> {
    (from..from + count).map(|at| byte(seed, at)).collect()
}

/// A run of a block's bytes: seed, from where, and how many.
type Run = (u8, u64, usize);

/// The run that `bytes` begins with, of at least 64. It may go on after the one before.
fn run_of_block(bytes: &[u8], before: Option<Run>) -> Option<Run> {
    // A block's bytes repeat after 251; frames begin at multiples of 262,144.
    let begun = (7..9_u8).flat_map(|seed| [0, 262_144, 524_288_u64].map(|from| (seed, from)));
    let gone_on = before.map(|(seed, from, count)| (seed, from + count as u64));
    begun.chain(gone_on).find_map(|(seed, from)| {
        let count = bytes.iter().zip(from..).take_while(|(seen, at)| **seen == byte(seed, *at)).count();
        (count >= 64).then_some((seed, from, count))
    })
}

pub(crate) fn print(lines: &[Line]) -> String {
    let mut text = String::new();
    let mut run = None;
    for line in lines {
        match line {
            Line::Get(what) => writeln!(text, "get {what}"),
            Line::Gather(what) => writeln!(text, "gather {what}"),
            Line::Ends(how) => writeln!(text, "ends {how}"),
            Line::Connects(number, who, to) => writeln!(text, "{number} {} connects to {to}", who.name()),
            Line::Calls(number, who, whom, call) => {
                writeln!(text, "{number} {} calls {call} of {}", who.name(), whom.name())
            }
            Line::Message(number, who, name, bytes) => {
                let spoken = format!("{number} {} {name} {}", who.name(), hex(bytes));
                writeln!(text, "{}\n# {}", spoken.trim_end(), messages::rendered(name, bytes))
            }
            Line::Refuses(number, who, status) => writeln!(text, "{number} {} refuses {status}", who.name()),
            Line::After(span) => writeln!(text, "after {} ms", millis(*span)),
            Line::Happens(who, event) => writeln!(text, "{} {}", who.name(), happening(event)),
            Line::Fails(to) => writeln!(text, "nobody listens at {to}"),
            Line::Reuses(number) => writeln!(text, "{number} receiver uses it again"),
            Line::Closes(number, who) => writeln!(text, "{number} {} closes", who.name()),
            Line::Says(number, who, bytes) => {
                print_bytes(&mut text, *number, *who, bytes, &mut run);
                Ok(())
            }
        }
        .unwrap();
    }
    text
}

/// `run` is the last run of a block's bytes that was printed.
fn print_bytes(text: &mut String, number: u32, who: Who, bytes: &[u8], run: &mut Option<Run>) {
    let mut left = bytes;
    while !left.is_empty() {
        let lead = format!("{number} {}", who.name());
        if let Some((seed, from, count)) = run_of_block(left, *run) {
            *run = Some((seed, from, count));
            writeln!(text, "{lead} block {seed} from {from} count {count}").unwrap();
            left = &left[count..];
            continue;
        }
        // Up to where a block's bytes begin.
        let mut count = 1;
        while count < left.len().min(WIDTH) && run_of_block(&left[count..], *run).is_none() {
            count += 1;
        }
        writeln!(text, "{lead} {}", hex(&left[..count])).unwrap();
        left = &left[count..];
    }
    if let Some(remark) = messages::relayed(bytes) {
        writeln!(text, "# {remark}").unwrap();
    }
}

/// Adds a line; what one side says in several ones is together.
pub(crate) fn add(lines: &mut Vec<Line>, line: Line) {
    match (lines.last_mut(), line) {
        (Some(Line::Says(before, by, said)), Line::Says(number, who, more))
            if (*before, *by) == (number, who) =>
        {
            said.extend(more);
        }
        (_, line) => lines.push(line),
    }
}

/// The lines of a file.
pub(crate) fn parse(text: &str) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let words: Vec<&str> = line.split(' ').collect();
        let parsed = match words[..] {
            ["get", ..] => Line::Get(words[1..].join(" ")),
            ["gather", ..] => Line::Gather(words[1..].join(" ")),
            ["nobody", "listens", "at", to] => Line::Fails(to.parse().unwrap()),
            ["ends", ..] => Line::Ends(words[1..].join(" ")),
            ["after", millis, "ms"] => Line::After(Span::from_millis(millis.parse().unwrap())),
            [who, ref what @ ..] if let Some(who) = Who::of(who) => Line::Happens(who, happened(what)),
            [number, who, ref what @ ..] => {
                let number = number.parse().unwrap();
                let who = Who::of(who).unwrap();
                match what {
                    ["calls", call, "of", whom] => {
                        Line::Calls(number, who, Who::of(whom).unwrap(), (*call).to_owned())
                    }
                    ["refuses", status] => Line::Refuses(number, who, (*status).to_owned()),
                    ["connects", "to", to] => Line::Connects(number, who, to.parse().unwrap()),
                    ["uses", "it", "again"] => Line::Reuses(number),
                    ["closes"] => Line::Closes(number, who),
                    ["block", seed, "from", from, "count", count] => {
                        let said =
                            bytes(seed.parse().unwrap(), from.parse().unwrap(), count.parse().unwrap());
                        Line::Says(number, who, said)
                    }
                    [name, digits @ ..] if name.starts_with(|first: char| first.is_ascii_uppercase()) => {
                        Line::Message(number, who, (*name).to_owned(), unhex(&digits.concat()))
                    }
                    [digits] => Line::Says(number, who, unhex(digits)),
                    _ => panic!("{line}"),
                }
            }
            _ => panic!("{line}"),
        };
        add(&mut lines, parsed);
    }
    lines
}

fn happening(event: &Event) -> String {
    match event {
        Event::Attaches => "attaches".to_owned(),
        Event::StartsAnew => "starts anew".to_owned(),
        Event::Asked { host, coflow, block } => {
            format!("is asked by host {host} for block {block} of coflow {coflow}")
        }
        Event::Sent { flow, bytes } => format!("wrote {bytes} bytes of flow {flow}"),
        Event::Acknowledged { flow } => format!("has flow {flow} acknowledged"),
        Event::Answers { status } => format!("answers status {status}"),
        Event::Aborts { flow } => format!("closes the connection of flow {flow}"),
        Event::Writes { shuffle, map, seed, lengths } => {
            let lengths: String = lengths.iter().map(|length| format!(" {length}")).collect();
            format!("writes map {map} of shuffle {shuffle} of seed {seed} with bytes{lengths}")
        }
        Event::Spoils => "spoils the next frame".to_owned(),
    }
}

fn happened(words: &[&str]) -> Event {
    match words {
        ["attaches"] => Event::Attaches,
        ["starts", "anew"] => Event::StartsAnew,
        ["is", "asked", "by", "host", host, "for", "block", block, "of", "coflow", coflow] => Event::Asked {
            host: host.parse().unwrap(),
            coflow: coflow.parse().unwrap(),
            block: (*block).to_owned(),
        },
        ["wrote", bytes, "bytes", "of", "flow", flow] => {
            Event::Sent { flow: flow.parse().unwrap(), bytes: bytes.parse().unwrap() }
        }
        ["has", "flow", flow, "acknowledged"] => Event::Acknowledged { flow: flow.parse().unwrap() },
        ["answers", "status", status] => Event::Answers { status: status.parse().unwrap() },
        ["closes", "the", "connection", "of", "flow", flow] => Event::Aborts { flow: flow.parse().unwrap() },
        [
            "writes",
            "map",
            map,
            "of",
            "shuffle",
            shuffle,
            "of",
            "seed",
            seed,
            "with",
            "bytes",
            lengths @ ..,
        ] => Event::Writes {
            shuffle: shuffle.parse().unwrap(),
            map: map.parse().unwrap(),
            seed: seed.parse().unwrap(),
            lengths: lengths.iter().map(|length| length.parse().unwrap()).collect(),
        },
        ["spoils", "the", "next", "frame"] => Event::Spoils,
        other => panic!("{other:?}"),
    }
}

/// Whole milliseconds: all that happens by the clock does so after some.
fn millis(span: Span) -> u64 {
    let millis = span.nanos() / 1_000_000;
    assert_eq!(Span::from_millis(millis), span);
    millis
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(digits: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(byte).collect()
}

/// Where reads and writes are cut: for seed 0 nowhere.
pub(crate) struct Cuts(u64);

impl Cuts {
    pub(crate) fn new(seed: u64) -> Cuts {
        Cuts(seed)
    }

    /// How many bytes go at once, of so many.
    pub(crate) fn next(&mut self, most: usize) -> usize {
        if self.0 == 0 {
            return most;
        }
        // Steele, Lea and Flood's SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let drawn = (mixed ^ (mixed >> 31)) as usize;
        let scale = [3, 40, 5_000, usize::MAX][drawn % 4];
        ((drawn / 4) % scale + 1).min(most)
    }
}
