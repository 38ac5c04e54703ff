//! What one round does, drawn from its seed alone.

use super::bed::{Daemon, HOSTS};
use crate::support::chance::Chance;
use weir_proto::data::FRAME_BYTES;

/// A round's coflows, blocks, gets and misfortunes.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) coflows: u64,
    pub(crate) blocks: Vec<Block>,
    pub(crate) gets: Vec<Get>,
    /// In order of their byte counts.
    pub(crate) misfortunes: Vec<Misfortune>,
}

#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) coflow: usize,
    pub(crate) host: u32,
    pub(crate) size: u64,
    pub(crate) content: u64,
    /// Bytes in memory, otherwise a file of its own.
    pub(crate) memory: bool,
    pub(crate) put_ms: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Get {
    pub(crate) block: usize,
    pub(crate) host: u32,
    /// Names the holder instead of asking the coordinator.
    pub(crate) direct: bool,
    pub(crate) pace: Pace,
}

/// How a receiver reads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    Free,
    /// So many bytes per second.
    Slow(u64),
    /// Stops after so many bytes, for so many milliseconds.
    Stops(u64, u64),
    /// Goes away after so many bytes, and gets all of it anew later.
    Leaves(u64),
}

/// Happens when this many bytes have arrived at all receivers together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Misfortune {
    pub(crate) at_bytes: u64,
    pub(crate) what: What,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    /// SIGKILL; started again after so many milliseconds, perhaps with few descriptors.
    Kill(Daemon, u64, bool),
    /// SIGSTOP, for so many milliseconds.
    Stop(Daemon, u64),
    /// The wall clock is so many seconds ahead from now on.
    Clock(Daemon, i64),
    /// The small disk is full, for so many milliseconds.
    FullDisk(u64),
    /// The file of a block gets other bytes.
    Replace(usize),
    /// A second agent is started on a spool that has one.
    SpoolTwice(u32),
    /// A second agent for a host, for so many milliseconds.
    HostTwice(u32, u64),
    /// Somebody says what he should not.
    Stranger(Stranger, u64),
    /// A member of the group that the agent of a host is open to plants files, and takes some away.
    Member(u32, u64),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Stranger {
    /// Connections that say nothing, or nonsense.
    Noise,
    /// An agent that lies.
    Liar,
    /// Calls that ask for too much, or for what was never there.
    Calls,
    /// Receivers that ask an agent for what was never there, or read nothing of what is.
    Requests,
}

impl What {
    pub(crate) fn name(self) -> &'static str {
        match self {
            What::Kill(Daemon::Coordinator, ..) => "coordinator killed",
            What::Kill(Daemon::Agent(_), ..) => "agent killed",
            What::Stop(..) => "stopped",
            What::Clock(..) => "clock step",
            What::FullDisk(_) => "full disk",
            What::Replace(_) => "file replaced",
            What::SpoolTwice(_) => "second agent of a spool",
            What::HostTwice(..) => "second agent of a host",
            What::Stranger(Stranger::Noise, _) => "noise",
            What::Stranger(Stranger::Liar, _) => "lying agent",
            What::Stranger(Stranger::Calls, _) => "forged calls",
            What::Stranger(Stranger::Requests, _) => "forged requests",
            What::Member(..) => "member planting files",
        }
    }
}

impl Plan {
    pub(crate) fn draw(seed: u64) -> Plan {
        let chance = &mut Chance::new(seed);
        let coflows = chance.between(1, 3);
        let blocks: Vec<Block> = (0..chance.between(3, 8))
            .map(|_| Block {
                coflow: chance.below(coflows) as usize,
                host: chance.below(u64::from(HOSTS)) as u32,
                size: size(chance),
                content: chance.next(),
                memory: chance.percent(50),
                put_ms: if chance.percent(60) { 0 } else { chance.below(200) },
            })
            .collect();
        let gets = (0..blocks.len()).flat_map(|block| {
            let held = &blocks[block];
            let receivers = if chance.percent(25) { 2 } else { 1 };
            let mut get = |away: u64| Get {
                block,
                host: (held.host + away as u32) % HOSTS,
                direct: chance.percent(40),
                pace: pace(chance, held.size),
            };
            (1..=receivers).map(&mut get).collect::<Vec<_>>()
        });
        let gets: Vec<Get> = gets.collect();
        let total: u64 = gets.iter().map(|get| blocks[get.block].size).sum();
        let mut misfortunes: Vec<Misfortune> = (0..chance.between(2, 5))
            .map(|_| Misfortune { at_bytes: chance.below(total * 85 / 100 + 1), what: what(chance, &blocks) })
            .collect();
        if chance.percent(60) {
            let at_bytes = chance.below(total * 85 / 100 + 1);
            misfortunes.push(Misfortune { at_bytes, what: What::Member(host(chance), chance.next()) });
        }
        misfortunes.sort_by_key(|misfortune| misfortune.at_bytes);
        Plan { coflows, blocks, gets, misfortunes }
    }
}

fn size(chance: &mut Chance) -> u64 {
    match chance.below(8) {
        0 => chance.below(2),
        1 => chance.between(2, 2_000),
        2 => FRAME_BYTES - 1 + chance.below(3),
        3 | 4 => chance.between(2, 6) * FRAME_BYTES + chance.below(FRAME_BYTES),
        _ => chance.between(2_000_000, 8_000_000),
    }
}

fn pace(chance: &mut Chance, size: u64) -> Pace {
    match chance.below(8) {
        0 => Pace::Slow((size / chance.between(1, 3)).max(100_000)),
        1 => Pace::Stops(chance.below(size + 1), chance.between(200, 1_500)),
        2 => Pace::Leaves(chance.below(size + 1)),
        _ => Pace::Free,
    }
}

fn daemon(chance: &mut Chance) -> Daemon {
    if chance.percent(40) { Daemon::Coordinator } else { Daemon::Agent(host(chance)) }
}

fn host(chance: &mut Chance) -> u32 {
    chance.below(u64::from(HOSTS)) as u32
}

fn what(chance: &mut Chance, blocks: &[Block]) -> What {
    match chance.below(16) {
        0..=3 => What::Kill(daemon(chance), chance.of(&[0, 20, 150, 450, 1_200]), chance.percent(30)),
        4 | 5 => What::Stop(daemon(chance), chance.of(&[100, 500, 1_500, 2_500])),
        6 | 7 => What::Clock(daemon(chance), chance.of(&[-864_000, -3_600, -1, 0, 1, 3_600, 864_000])),
        8 | 9 => What::FullDisk(chance.of(&[200, 1_000, 2_000])),
        10 => What::Replace(chance.below(blocks.len() as u64) as usize),
        11 => What::SpoolTwice(host(chance)),
        12 => What::HostTwice(host(chance), chance.of(&[100, 700, 1_500])),
        _ => {
            let who = chance.of(&[Stranger::Noise, Stranger::Liar, Stranger::Calls, Stranger::Requests]);
            What::Stranger(who, chance.next())
        }
    }
}
