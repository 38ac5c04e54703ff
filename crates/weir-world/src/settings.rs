//! What a run is like, before anything is drawn.

use std::collections::BTreeSet;
use weir_model::{Rate, Span};

/// The policies that seeds take in turn.
const POLICIES: [&str; 5] = ["varys-deadline", "dclas-strict", "fair", "dclas", "fifo"];
/// One seed in so many runs without a fault: there what is counted has to be exact.
const WITHOUT_FAULTS: u64 = 8;
/// In one seed of so many the coordinator is killed again and again: what several of them know differs most there.
const KILLING_COORDINATORS: u64 = 7;
/// In one seed of so many machines are lost, which takes some of what is checked; in every other one of them puts are durable.
const LOSING_MACHINES: u64 = 3;

/// In one seed of so many the coordinator is told of no hosts: they join.
const OPEN: u64 = 3;

/// Relays of a site that seeds take in turn.
const RELAYS: [u32; 11] = [2, 1, 0, 2, 1, 2, 0, 2, 1, 2, 2];
/// Controllers that seeds take in turn.
const CONTROLLERS: [u32; 13] = [0, 2, 0, 1, 0, 2, 0, 1, 0, 2, 0, 1, 2];

/// What a run is like.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Hosts, each with an agent.
    pub hosts: u32,
    /// Relays at each of two sites, or of three with controllers, which share the hosts; without relays there is one site.
    pub relays: u32,
    /// Servers of the controller that relays attach to, each with a decision maker; without one, what relays are told is drawn.
    pub controllers: u32,
    /// Coflows, which begin within `arrivals`.
    pub coflows: u32,
    /// Flows of a coflow, at most.
    pub flows: u32,
    /// Bytes of a block, at most.
    pub block_bytes: u64,
    /// Name of the coordinator's policy, as in the registry.
    pub policy: String,
    /// Of each host's link, up and down.
    pub link: Rate,
    /// How long a message takes, at most.
    pub delay: Span,
    /// When the last coflow begins.
    pub arrivals: Span,
    /// Whether anything fails, and until when.
    pub faults: Option<Span>,
    /// Faults, by number in the order in which they are drawn, that do not happen.
    pub skip_faults: BTreeSet<u64>,
    /// Whether half of the faults are kills of the coordinator.
    pub kills_coordinators: bool,
    /// Whether machines are lost too, with what their kernels had in memory.
    pub loses_machines: bool,
    /// Whether agents sync what a put is answered for (`--durable machine`).
    pub durable: bool,
    /// Whether hosts join as they come, some of them late, are drained, and have links that become faster and slower.
    pub is_open: bool,
    /// When all has to be over, counted from when the last fault is repaired.
    pub patience: Span,
    /// Whether every event is printed.
    pub trace: bool,
}

impl Settings {
    /// What a seed runs with: the next of several policies, and mostly with faults.
    pub fn of_seed(seed: u64) -> Settings {
        let usual = Settings::usual();
        Settings {
            policy: POLICIES[(seed % POLICIES.len() as u64) as usize].to_owned(),
            faults: usual.faults.filter(|_| seed % WITHOUT_FAULTS != WITHOUT_FAULTS - 1),
            kills_coordinators: seed % KILLING_COORDINATORS == KILLING_COORDINATORS - 1,
            loses_machines: seed.is_multiple_of(LOSING_MACHINES),
            durable: seed.is_multiple_of(2 * LOSING_MACHINES),
            is_open: seed % OPEN == OPEN - 1,
            relays: RELAYS[(seed % RELAYS.len() as u64) as usize],
            controllers: CONTROLLERS[(seed % CONTROLLERS.len() as u64) as usize],
            ..usual
        }
    }

    /// Whether relays are told what to do by controllers.
    pub(crate) fn is_controlled(&self) -> bool {
        self.relays > 0 && self.controllers > 0
    }

    /// How many sites there are: one without relays, and a third one where controllers may lead flows around.
    pub(crate) fn sites(&self) -> u32 {
        match self.relays {
            0 => 1,
            _ if self.is_controlled() => 3,
            _ => 2,
        }
    }

    /// How long a link needs for so many bytes.
    pub(crate) fn time_for(&self, bytes: u64) -> Span {
        Span::from_secs_ceil(bytes as f64 / self.link.bytes_per_sec())
    }

    /// A run with faults: 16 hosts at two sites, 50 coflows.
    pub fn usual() -> Settings {
        Settings {
            hosts: 16,
            relays: 2,
            controllers: 0,
            coflows: 50,
            flows: 8,
            block_bytes: 2_000_000,
            policy: "varys".to_owned(),
            link: Rate::from_bits_per_sec(1e9),
            delay: Span::from_millis(1),
            arrivals: Span::from_millis(3_000),
            faults: Some(Span::from_millis(4_000)),
            skip_faults: BTreeSet::new(),
            kills_coordinators: false,
            loses_machines: false,
            durable: false,
            is_open: false,
            patience: Span::from_millis(200_000),
            trace: false,
        }
    }
}
