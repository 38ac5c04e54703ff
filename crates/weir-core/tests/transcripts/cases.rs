//! What transcripts are of.

use std::net::SocketAddr;
use weir_proto::data::Identity;

/// A block that an agent holds; its bytes follow from its seed.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) name: &'static str,
    pub(crate) size: u64,
    pub(crate) seed: u8,
    pub(crate) identity: Identity,
}

/// What an agent does besides serving.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fault {
    #[default]
    None,
    /// It dies when it has sent so many bytes of payload.
    Dies(u64),
    /// The first frame's checksum is not its bytes'.
    Spoils,
    /// The coflow has ended.
    Ended,
    /// The block's file changed since it was put.
    Changed,
}

#[derive(Clone, Debug)]
pub(crate) struct AgentOf {
    pub(crate) holds: Vec<Held>,
    pub(crate) fault: Fault,
}

/// A transcript: who takes part, what is got, and how that ends.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) agents: Vec<AgentOf>,
    /// The blocks that are got, one after the other; each get may use connections that the one before left.
    pub(crate) gets: Vec<&'static str>,
    /// How each of the gets has to end.
    pub(crate) ends: Vec<&'static str>,
    pub(crate) relays: bool,
}

/// The address of an agent, by its number.
pub(crate) fn agent(number: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, number as u8 + 1], 7071))
}

/// The relays of the agents' site and of the receiver's.
pub(crate) const AGENTS_RELAY: u8 = 0;
pub(crate) const RECEIVERS_RELAY: u8 = 1;

fn held(name: &'static str, size: u64) -> Held {
    Held { name, size, seed: 7, identity: Identity([0x11; 16]) }
}

fn other(name: &'static str, size: u64, seed: u8) -> Held {
    Held { name, size, seed, identity: Identity([0x22; 16]) }
}

fn holds(holds: Vec<Held>) -> AgentOf {
    AgentOf { holds, fault: Fault::None }
}

pub(crate) fn all() -> Vec<Case> {
    let two_frames = 262_154;
    let case =
        |name, about, agents| Case { name, about, agents, gets: vec!["b"], ends: vec!["ok"], relays: false };
    vec![
        case(
            "small",
            "A block of one frame is asked for, sent and acknowledged.",
            vec![holds(vec![held("b", 10)])],
        ),
        case(
            "empty",
            "An empty block has no frames, and is acknowledged all the same.",
            vec![holds(vec![held("b", 0)])],
        ),
        case(
            "frames",
            "A block of two frames: one of 262,144 bytes, and the rest.",
            vec![holds(vec![held("b", two_frames)])],
        ),
        Case {
            gets: vec!["a", "b"],
            ends: vec!["ok", "ok"],
            ..case(
                "next",
                "Two blocks one after the other on one connection.",
                vec![holds(vec![held("a", 3), held("b", 4)])],
            )
        },
        case(
            "resume",
            "An agent dies in the second frame; another one that has the same bytes goes on at its beginning.",
            vec![
                AgentOf { fault: Fault::Dies(262_146), ..holds(vec![held("b", two_frames)]) },
                holds(vec![held("b", two_frames)]),
            ],
        ),
        case(
            "anew",
            "An agent dies in the second frame. The other one has the same bytes under another identity: the block is asked for from its \
             beginning, and what was handed out is compared.",
            vec![
                AgentOf { fault: Fault::Dies(262_146), ..holds(vec![held("b", two_frames)]) },
                holds(vec![other("b", two_frames, 7)]),
            ],
        ),
        Case {
            ends: vec!["changed"],
            ..case(
                "changed",
                "The same, and the other agent has other bytes: the get ends.",
                vec![
                    AgentOf { fault: Fault::Dies(262_146), ..holds(vec![held("b", two_frames)]) },
                    holds(vec![other("b", two_frames, 8)]),
                ],
            )
        },
        case(
            "elsewhere",
            "The first agent does not hold the block, and the second does.",
            vec![holds(vec![held("a", 3)]), holds(vec![held("b", 10)])],
        ),
        Case {
            ends: vec!["ended"],
            ..case(
                "ended",
                "The coflow has ended.",
                vec![AgentOf { fault: Fault::Ended, ..holds(vec![held("b", 10)]) }],
            )
        },
        Case {
            ends: vec!["gone"],
            ..case(
                "gone",
                "The block's file was changed since it was put, and nobody else has it.",
                vec![AgentOf { fault: Fault::Changed, ..holds(vec![held("b", 10)]) }],
            )
        },
        case(
            "doubt",
            "A frame does not have its checksum: the agent is told which, and another one is asked.",
            vec![AgentOf { fault: Fault::Spoils, ..holds(vec![held("b", 10)]) }, holds(vec![held("b", 10)])],
        ),
        Case {
            relays: true,
            ..case(
                "relayed",
                "The receiver offers a way by relays; frames come by it, and the acknowledgement goes straight. relay-a is the agent's, relay-b \
                 the receiver's.",
                vec![holds(vec![held("b", two_frames)])],
            )
        },
    ]
}
