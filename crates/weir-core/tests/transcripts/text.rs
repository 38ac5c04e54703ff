//! The form of a transcript: lines that say who says what on which connection, in order.

use std::fmt::Write;
use std::net::SocketAddr;

/// Hexadecimal digits of so many bytes on one line.
const WIDTH: usize = 48;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Receiver,
    Agent,
    Relay,
}

impl Who {
    const ALL: [Who; 3] = [Who::Receiver, Who::Agent, Who::Relay];

    fn name(self) -> &'static str {
        match self {
            Who::Receiver => "receiver",
            Who::Agent => "agent",
            Who::Relay => "relay",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A get begins: its block, and the agents that are known to hold it.
    Get(String),
    /// It ends so.
    Ends(String),
    /// A connection is made, or one that an earlier get left is used again.
    Connects(u32, Who, SocketAddr),
    /// The receiver tries to, and nobody listens.
    Fails(SocketAddr),
    Reuses(u32),
    Says(u32, Who, Vec<u8>),
    Closes(u32, Who),
}

/// Of what the bytes of a block are: see docs/protocol.md.
pub(crate) fn byte(seed: u8, at: u64) -> u8 {
    ((at * 31 + u64::from(seed)) % 251) as u8
}

pub(crate) fn bytes(seed: u8, from: u64, count: u64) -> Vec<u8> {
    (from..from + count).map(|at| byte(seed, at)).collect()
}

/// The longest run of a block's bytes that `bytes` begins with, of at least 64: seed, from where, and how many.
fn run_of_block(bytes: &[u8]) -> Option<(u8, u64, usize)> {
    // A block's bytes repeat after 251; frames begin at multiples of 262,144.
    for seed in 7..9_u8 {
        for from in [0, 262_144_u64] {
            let count = bytes.iter().zip(from..).take_while(|(seen, at)| **seen == byte(seed, *at)).count();
            if count >= 64 {
                return Some((seed, from, count));
            }
        }
    }
    None
}

pub(crate) fn print(lines: &[Line]) -> String {
    let mut text = String::new();
    for line in lines {
        match line {
            Line::Get(what) => writeln!(text, "get {what}"),
            Line::Ends(how) => writeln!(text, "ends {how}"),
            Line::Connects(number, who, to) => writeln!(text, "{number} {} connects to {to}", who.name()),
            Line::Fails(to) => writeln!(text, "nobody listens at {to}"),
            Line::Reuses(number) => writeln!(text, "{number} receiver uses it again"),
            Line::Closes(number, who) => writeln!(text, "{number} {} closes", who.name()),
            Line::Says(number, who, bytes) => {
                print_bytes(&mut text, *number, *who, bytes);
                Ok(())
            }
        }
        .unwrap();
    }
    text
}

fn print_bytes(text: &mut String, number: u32, who: Who, mut left: &[u8]) {
    while !left.is_empty() {
        let lead = format!("{number} {}", who.name());
        if let Some((seed, from, count)) = run_of_block(left) {
            writeln!(text, "{lead} block {seed} from {from} count {count}").unwrap();
            left = &left[count..];
            continue;
        }
        // Up to where a block's bytes begin.
        let mut count = 1;
        while count < left.len().min(WIDTH) && run_of_block(&left[count..]).is_none() {
            count += 1;
        }
        let digits: String = left[..count].iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(text, "{lead} {digits}").unwrap();
        left = &left[count..];
    }
}

/// The lines of a file; what one side says in several lines is together.
pub(crate) fn parse(text: &str) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let words: Vec<&str> = line.split(' ').collect();
        let parsed = match words[..] {
            ["get", ..] => Line::Get(words[1..].join(" ")),
            ["nobody", "listens", "at", to] => Line::Fails(to.parse().unwrap()),
            ["ends", how] => Line::Ends(how.to_owned()),
            [number, who, ref what @ ..] => {
                let number = number.parse().unwrap();
                let who = Who::ALL.into_iter().find(|known| known.name() == who).unwrap();
                match what {
                    ["connects", "to", to] => Line::Connects(number, who, to.parse().unwrap()),
                    ["uses", "it", "again"] => Line::Reuses(number),
                    ["closes"] => Line::Closes(number, who),
                    ["block", seed, "from", from, "count", count] => {
                        let said =
                            bytes(seed.parse().unwrap(), from.parse().unwrap(), count.parse().unwrap());
                        Line::Says(number, who, said)
                    }
                    [digits] => Line::Says(number, who, unhex(digits)),
                    _ => panic!("{line}"),
                }
            }
            _ => panic!("{line}"),
        };
        match (lines.last_mut(), parsed) {
            (Some(Line::Says(before, by, said)), Line::Says(number, who, more))
                if (*before, *by) == (number, who) =>
            {
                said.extend(more);
            }
            (_, parsed) => lines.push(parsed),
        }
    }
    lines
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
