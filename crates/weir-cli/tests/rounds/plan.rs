//! What one round does, drawn from its seed alone.

use crate::support::chance::Chance;
use weir_client::Pattern;
use weir_proto::data::FRAME_BYTES;

/// A round's hosts, coflows, blocks, gets and misfortunes.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) hosts: u32,
    pub(crate) link_rate: &'static str,
    pub(crate) lease_ms: u64,
    /// Below how many seconds of its bottleneck a coflow is left to TCP.
    pub(crate) bypass: &'static str,
    /// How many milliseconds a coflow waits for the rest of its gets.
    pub(crate) ready_wait: &'static str,
    pub(crate) coflows: Vec<Coflow>,
    pub(crate) blocks: Vec<Block>,
    pub(crate) gets: Vec<Get>,
    /// In order of their byte counts.
    pub(crate) events: Vec<Event>,
}

#[derive(Clone, Debug)]
pub(crate) struct Coflow {
    /// Declares its number of flows; otherwise its driver seals it.
    pub(crate) counted: bool,
    pub(crate) pattern: Pattern,
}

#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) coflow: usize,
    pub(crate) host: u32,
    pub(crate) name: String,
    pub(crate) size: u64,
    pub(crate) content: u64,
    /// Bytes in memory, otherwise a range of a file.
    pub(crate) memory: bool,
    /// When it is put, after the receivers started.
    pub(crate) put_ms: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Get {
    pub(crate) block: usize,
    pub(crate) host: u32,
    /// Names the holder instead of asking the coordinator.
    pub(crate) direct: bool,
    pub(crate) start_ms: u64,
}

/// Happens when this many bytes have arrived at all receivers together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) at_bytes: u64,
    pub(crate) what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// SIGKILL, and started again after a pause.
    Kill(Victim, u64),
    /// SIGKILL of a receiver that comes back only when all others are done.
    KillUntilOthersEnd(u32),
    /// The driver ends this coflow while it moves.
    Unregister(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Victim {
    Coordinator,
    Agent(u32),
    Receiver(u32),
}

impl Plan {
    pub(crate) fn draw(seed: u64) -> Plan {
        let chance = &mut Chance::new(seed);
        let hosts = chance.between(2, 3) as u32;
        let coflows: Vec<Coflow> = (0..chance.between(2, 5))
            .map(|_| Coflow {
                counted: chance.percent(50),
                pattern: chance.of(&[Pattern::Any, Pattern::Shuffle, Pattern::Broadcast]),
            })
            .collect();
        let blocks: Vec<Block> = (0..chance.between(5, 14))
            .map(|index| Block {
                coflow: chance.below(coflows.len() as u64) as usize,
                host: chance.below(u64::from(hosts)) as u32,
                name: format!("block-{index}"),
                size: size(chance),
                content: chance.next(),
                memory: chance.percent(50),
                put_ms: if chance.percent(60) { 0 } else { chance.below(120) },
            })
            .collect();
        let mut gets = Vec::new();
        for (block, held) in blocks.iter().enumerate() {
            let receivers = if chance.percent(25) { u64::from(hosts) } else { 1 };
            for _ in 0..receivers {
                gets.push(Get {
                    block,
                    // Mostly to another host.
                    host: (held.host + chance.between(1, u64::from(hosts)) as u32) % hosts,
                    direct: chance.percent(50),
                    start_ms: if chance.percent(70) { 0 } else { chance.below(80) },
                });
            }
        }
        let total = gets.iter().map(|get| blocks[get.block].size).sum();
        let events = events(chance, hosts, coflows.len(), &gets, total);
        let link_rate = chance.of(&["300mbit", "600mbit", "1gbit"]);
        let lease_ms = chance.of(&[120, 400, 1000]);
        // All coflows, none of them, and such as outgrow the bound while they move.
        let bypass = chance.of(&["0", "0", "0.01", "0.25"]);
        let ready_wait = chance.of(&["0", "3", "500"]);
        Plan { hosts, link_rate, lease_ms, bypass, ready_wait, coflows, blocks, gets, events }
    }
}

fn size(chance: &mut Chance) -> u64 {
    match chance.below(8) {
        0 => 1,
        1 => chance.between(2, 2_000),
        2 => FRAME_BYTES - 1 + chance.below(3),
        3 => chance.between(2_001, FRAME_BYTES),
        4 | 5 => chance.between(2, 6) * FRAME_BYTES + chance.below(FRAME_BYTES),
        6 => 4 * FRAME_BYTES,
        _ => chance.between(2_000_000, 6_000_000),
    }
}

fn events(chance: &mut Chance, hosts: u32, coflows: usize, gets: &[Get], total: u64) -> Vec<Event> {
    let mut events = Vec::new();
    for _ in 0..chance.of(&[1, 1, 2]) {
        let pause = chance.of(&[0, 20, 150, 450]);
        let what = match chance.below(4) {
            0 => What::Kill(Victim::Coordinator, pause),
            1 => What::Kill(Victim::Agent(chance.below(u64::from(hosts)) as u32), pause),
            other => {
                let receiver = gets[chance.below(gets.len() as u64) as usize].host;
                if other == 2 {
                    What::Kill(Victim::Receiver(receiver), pause)
                } else {
                    What::KillUntilOthersEnd(receiver)
                }
            }
        };
        events.push(Event { at_bytes: chance.below(total * 85 / 100 + 1), what });
    }
    if chance.percent(35) {
        let coflow = chance.below(coflows as u64) as usize;
        events.push(Event { at_bytes: chance.below(total * 85 / 100 + 1), what: What::Unregister(coflow) });
    }
    events.sort_by_key(|event| event.at_bytes);
    events
}
