//! What one round does, drawn from its seed alone.

use crate::support::chance::Chance;
use std::time::Duration;
use weir_client::{CoflowOptions, Pattern};
use weir_proto::data::FRAME_BYTES;
use weir_proto::limits::MIN_COFLOW_LEASE_MS;

/// A driver that is silent for no longer loses nothing: it renews at a third of the lease, and the coordinator may be stopped
/// for another third unnoticed.
const HARMLESS_SILENCE_MS: u64 = MIN_COFLOW_LEASE_MS / 3 - 200;
/// How long all gets may take in a round in which nothing is stopped.
const GET_LIMIT: Duration = Duration::from_secs(40);
/// The longest stop, of rounds that run with every `cargo test` and of those after them.
const LONGEST_STOP_MS: (u64, u64) = (14_000, 60_000);
/// So many rounds have the first.
const QUICK_ROUNDS: u64 = 20;
/// For how long agents are stopped in a round, all stops together, at most: a put and a call wait 10 s for their answer, and the
/// stops of one round may follow on each other.
const AGENTS_STOP_MS: u64 = 8_000;
/// In how many rounds of a hundred something is stopped.
const ROUNDS_WITH_STOPS: u64 = 25;

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
    /// Its driver is a process of its own, which may be stopped; otherwise it is the round itself.
    pub(crate) apart: bool,
    /// Asks for the shortest lease; otherwise it has the coordinator's, which is as short.
    pub(crate) own_lease: bool,
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
    /// SIGSTOP, and SIGCONT after so many milliseconds.
    Stop(Stopped, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    One(Victim),
    /// The driver that is a process of its own.
    Driver,
    /// All processes, as on a machine that is suspended.
    All,
}

impl Stopped {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Stopped::One(Victim::Coordinator) => "coordinator stopped",
            Stopped::One(Victim::Agent(_)) => "agent stopped",
            Stopped::One(Victim::Receiver(_)) => "receiver stopped",
            Stopped::Driver => "driver stopped",
            Stopped::All => "all stopped",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Victim {
    Coordinator,
    Agent(u32),
    Receiver(u32),
}

impl Plan {
    pub(crate) fn draw(seed: u64) -> Plan {
        let longest = if seed < QUICK_ROUNDS { LONGEST_STOP_MS.0 } else { LONGEST_STOP_MS.1 };
        let chance = &mut Chance::new(seed);
        let hosts = chance.between(2, 3) as u32;
        let mut coflows: Vec<Coflow> = (0..chance.between(2, 5))
            .map(|_| Coflow {
                counted: chance.percent(50),
                apart: false,
                own_lease: false,
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
        let mut events = events(chance, hosts, coflows.len(), &gets, total);
        let link_rate = chance.of(&["300mbit", "600mbit", "1gbit"]);
        let lease_ms = chance.of(&[120, 400, 1000]);
        // All coflows, none of them, and such as outgrow the bound while they move.
        let bypass = chance.of(&["0", "0", "0.01", "0.25"]);
        let ready_wait = chance.of(&["0", "3", "500"]);
        for coflow in &mut coflows {
            (coflow.apart, coflow.own_lease) = (chance.percent(50), chance.percent(50));
        }
        if chance.percent(ROUNDS_WITH_STOPS) {
            let mut left_ms = AGENTS_STOP_MS;
            for _ in 0..chance.between(1, 3) {
                let mut event = stop(chance, hosts, total, longest);
                if let What::Stop(Stopped::All | Stopped::One(Victim::Agent(_)), millis) = &mut event.what {
                    *millis = left_ms.min(*millis);
                    left_ms -= *millis;
                }
                events.push(event);
            }
            events.sort_by_key(|event| event.at_bytes);
        }
        Plan { hosts, link_rate, lease_ms, bypass, ready_wait, coflows, blocks, gets, events }
    }

    /// Options of a coflow.
    pub(crate) fn options(&self, index: usize) -> CoflowOptions {
        let coflow = &self.coflows[index];
        let flows = self.gets.iter().filter(|get| self.blocks[get.block].coflow == index).count();
        CoflowOptions {
            name: format!("coflow-{index}"),
            pattern: coflow.pattern.into(),
            flows: if coflow.counted { flows as u64 } else { 0 },
            lease_ms: if coflow.own_lease { MIN_COFLOW_LEASE_MS } else { 0 },
            ..CoflowOptions::default()
        }
    }

    /// Whether the driver that is a process of its own is silent for so long that its coflows may end: while all others
    /// run, nothing tells it from one that died. A machine that is suspended costs nobody a coflow.
    pub(crate) fn may_end_unasked(&self, coflow: usize) -> bool {
        let silent = |event: &Event| matches!(event.what, What::Stop(Stopped::Driver, millis) if millis > HARMLESS_SILENCE_MS);
        self.coflows[coflow].apart && self.events.iter().any(silent)
    }

    /// How long gets may take: what is stopped takes its time.
    pub(crate) fn get_limit(&self) -> Duration {
        let stopped = self.events.iter().map(|event| match event.what {
            What::Stop(_, millis) => millis,
            _ => 0,
        });
        GET_LIMIT + Duration::from_millis(stopped.sum())
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

/// Mostly for about a lease, and for more than an agent or a receiver is waited for.
fn stop(chance: &mut Chance, hosts: u32, total: u64, longest: u64) -> Event {
    let mut host = || chance.below(u64::from(hosts)) as u32;
    let (agent, receiver) = (Victim::Agent(host()), Victim::Receiver(host()));
    let who = match chance.below(20) {
        0..=6 => Stopped::One(Victim::Coordinator),
        7..=11 => Stopped::One(agent),
        12..=14 => Stopped::One(receiver),
        15..=17 => Stopped::Driver,
        _ => Stopped::All,
    };
    let millis = match (chance.below(10), who) {
        (0 | 1, _) | (2..=4, Stopped::Driver) => chance.between(100, HARMLESS_SILENCE_MS),
        // Agents are stopped for less: see AGENTS_STOP_MS.
        (9, Stopped::One(Victim::Coordinator | Victim::Receiver(_)) | Stopped::Driver) => {
            chance.between(6_000, longest)
        }
        _ => chance.between(HARMLESS_SILENCE_MS, 6_000),
    };
    Event { at_bytes: chance.below(total * 85 / 100 + 1), what: What::Stop(who, millis) }
}
