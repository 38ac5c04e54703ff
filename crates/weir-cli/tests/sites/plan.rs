//! What one round does, drawn from its seed alone.

use crate::support::chance::Chance;

/// Sites, with a host each.
pub(crate) const SITES: u64 = 3;
/// Relays by name, and the site of each: two at one of them.
pub(crate) const RELAYS: [(&str, u32); 4] = [("a", 0), ("b", 1), ("c", 1), ("d", 2)];
/// Servers of the controller, and decision makers.
pub(crate) const CONTROLLERS: usize = 2;

/// A round's flows and misfortunes.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// What each relay's link carries.
    pub(crate) bytes_per_sec: f64,
    pub(crate) flows: Vec<Flow>,
    /// The faults of a round, the last one first.
    pub(crate) faults: Vec<Fault>,
    /// From where to where a coflow goes afterwards.
    pub(crate) afterwards: (u32, u32),
}

/// A block that moves from one site to another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub(crate) coflow: u64,
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) size: u64,
    /// Seed of the content.
    pub(crate) content: u64,
    /// Flows of a group may go by detours. Those of one receiver are one, or all of a coflow: detours that suit some of
    /// them then lead others in circles.
    pub(crate) group: u32,
    pub(crate) start_ms: u64,
}

/// Happens when this many bytes have arrived at all receivers together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) at_bytes: u64,
    pub(crate) victim: Victim,
    /// After which it is there again.
    pub(crate) pause_ms: u64,
}

/// What can be killed, stopped or cut between sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Victim {
    Redis,
    Server(usize),
    Decider(usize),
    Relay(usize),
    /// All connections to a relay.
    Link(usize),
}

impl Victim {
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Victim::Redis => "redis",
            Victim::Server(_) => "server",
            Victim::Decider(_) => "decision maker",
            Victim::Relay(_) => "relay",
            Victim::Link(_) => "link",
        }
    }
}

impl Plan {
    pub(crate) fn draw(seed: u64) -> Plan {
        let chance = &mut Chance::new(seed);
        let (coflows, one_group) = (chance.between(2, 4), chance.percent(40));
        let mut flows = Vec::new();
        for coflow in 1..=coflows {
            let start_ms = chance.of(&[0, 0, 50, 150]);
            for _ in 0..chance.between(2, 4) {
                let (from, to) = pair(chance);
                let size = chance.of(&[200_000, 1_500_000, 4_000_000, 8_000_000]) + chance.below(300_000);
                let group = if one_group { 0 } else { to };
                flows.push(Flow { coflow, from, to, size, content: chance.next(), group, start_ms });
            }
        }
        let total = flows.iter().map(|flow| flow.size).sum();
        Plan {
            bytes_per_sec: chance.of(&[15e6, 30e6, 60e6]),
            flows,
            faults: faults(chance, total),
            afterwards: pair(chance),
        }
    }
}

/// Two different sites, drawn with equal chance.
fn pair(chance: &mut Chance) -> (u32, u32) {
    let from = chance.below(SITES);
    (from as u32, ((from + chance.between(1, SITES - 1)) % SITES) as u32)
}

/// One to three kinds of failure, at once or one after the other. Of what is there more than once, sometimes all fails.
fn faults(chance: &mut Chance, total: u64) -> Vec<Fault> {
    let controllers = 0..CONTROLLERS;
    let mut kinds = vec![
        vec![Victim::Redis],
        controllers.clone().map(Victim::Server).collect(),
        controllers.map(Victim::Decider).collect(),
        (0..RELAYS.len()).map(Victim::Relay).collect(),
        (0..RELAYS.len()).map(Victim::Link).collect(),
    ];
    let (at_once, together) = (chance.below(total * 85 / 100), chance.percent(40));
    let mut faults = Vec::new();
    for _ in 0..chance.between(1, 3) {
        let kind = kinds.swap_remove(chance.below(kinds.len() as u64) as usize);
        let at_bytes = if together { at_once } else { chance.below(total * 85 / 100) };
        let victims = if chance.percent(25) { kind } else { vec![chance.of(&kind)] };
        let pause_ms = chance.of(&[0, 20, 150, 450, 1_200]);
        faults.extend(victims.into_iter().map(|victim| Fault { at_bytes, victim, pause_ms }));
    }
    faults.sort_by_key(|fault| std::cmp::Reverse(fault.at_bytes));
    faults
}
