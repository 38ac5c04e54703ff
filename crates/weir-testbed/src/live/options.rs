//! What a run is told.

use crate::BedLinks;
use std::path::PathBuf;
use weir_model::{Bytes, Rate, Span};

/// What a run needs to know: programs, links, policy, and times.
#[derive(Clone, Debug)]
pub struct LiveOptions {
    /// The `weir` program, for the other processes.
    pub program: PathBuf,
    /// The hosts and their links, as shaped. Where these are not alike, the coordinator knows the network as a topology, and
    /// hosts join.
    pub links: BedLinks,
    /// The coordinator's policy; `None` leaves sharing to TCP (no coordinator at all).
    pub policy: Option<String>,
    /// Share of the payload rate that the coordinator plans with.
    pub plan_share: f64,
    /// Coflows with a shorter bottleneck are left to TCP.
    pub bypass: Span,
    /// Plans, and messages of an agent, are at least this far apart.
    pub batch_window: Span,
    /// How long a coflow waits for the rest of its announced flows.
    pub ready_wait: Span,
    /// Where senders decide: how often they report bytes and hear queues.
    pub sync_interval: Span,
    /// What the coordinator shortens deadlines by: a share of them, and a time.
    pub deadline_margin: (f64, Span),
    /// Agents measure what on their links is not Weir's.
    pub foreign_traffic: bool,
    /// Agents tag what they send with the class of its coflow, or of its size.
    pub tags: bool,
    /// Relays, on a bed of sites.
    pub relays: Option<RelaySetup>,
}

/// The relays of a run.
#[derive(Clone, Debug)]
pub struct RelaySetup {
    /// Parallel connections from each relay to each other one.
    pub connections: u8,
    /// The most that one of these connections may carry, by sending and receiving site; none: all it can.
    pub connection_rates: Option<Vec<Vec<Rate>>>,
    /// Options of `weir controller` for its decisions. `None`: no controller, so that relays send everything straight to
    /// the receiver's, flow by flow in turn.
    pub controller: Option<Vec<String>>,
    /// Bytes from every site to every other before the run begins. It is what links are learned from: the controller is not told their
    /// rates.
    pub warm_up: Bytes,
    /// What links get from these moments of the run on.
    pub changes: Vec<RateChange>,
}

/// A link gets another rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateChange {
    /// When, from the run's start.
    pub at: Span,
    /// Number of the sending site, from 0.
    pub from: usize,
    /// Number of the receiving site, from 0.
    pub to: usize,
    /// The rate, as shaped (headers included).
    pub rate: Rate,
}
