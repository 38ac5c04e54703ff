//! Traffic on the hosts' links that is not Weir's, and what it leaves of them.
//!
//! # Problem
//! A plan for whole links gives rates that no flow reaches where something else uses the links too: orders are
//! wrong, flows of a coflow do not end together, and what was promised to one is missed by all.
//!
//! # Approach
//! Agents count what passes their interface, and how much of Weir's own bytes left them for each other host.
//! What an interface sent beyond the own bytes of its host is foreign on the host's uplink; what it received
//! beyond the bytes that all agents sent to it is foreign on its downlink. The fabric that policies see has
//! that much less capacity, so that the bottleneck, the order, the rates, and what is promised follow.
//!
//! # Terminology
//! A sample is the foreign rate over one report of an agent, about 250 ms. The foreign rate in force is the
//! smallest of the last [`SAMPLES`].
//!
//! # Properties
//! - Foreign traffic counts when it lasted for a second, and no more after the first report without it. The
//!   smallest sample is taken, and not a mean: reports of two hosts cover different quarters of a second, so
//!   own bytes of a flow that starts or ends would be foreign for one of them.
//! - Less than [`NOTICED`] of a link is taken for acknowledgements and messages, and ignored.
//! - A link keeps [`LEAST_SHARE`] of its capacity. Foreign TCP takes what is left to it: without a least share,
//!   one long foreign transfer would drive all coflows off a link for as long as it goes on.
//! - Bytes of Weir's own flows are never foreign, though no plan counts them (coflows that are bypassed, flows
//!   without a plan): what is bypassed is over before a second has passed.
//!
//! # Departures
//! Varys, section 4.2, Rem(.): the bandwidth that is left on a port. How it is measured is not in the paper.

use super::state::{Coordinator, SessionId};
use crate::ids::HostNumber;
use std::collections::{BTreeMap, VecDeque};
use weir_model::{LinkId, Rate, Span, Time};
use weir_proto::v1;

/// Samples of which the smallest counts.
const SAMPLES: usize = 4;
/// A smaller share of a link's capacity is no foreign traffic.
const NOTICED: f64 = 0.05;
/// What a link keeps for Weir, as a share of its capacity.
const LEAST_SHARE: f64 = 0.25;
/// A capacity that differs by less than this share of the whole from the one in force is left alone.
const TOLERANCE: f64 = 0.02;

/// How the fabric's capacities relate to what interfaces count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wire {
    /// Bytes that pass an interface for one byte of payload, at least 1.
    pub bytes_per_byte: f64,
    /// Payload that a link carries over the capacity that the fabric has for it, at least 1.
    pub headroom: f64,
}

/// One direction of a host's link.
#[derive(Clone, Debug, Default)]
struct Direction {
    /// Own payload bytes since its last sample.
    own: u64,
    /// Foreign bytes per second, headers included, newest last.
    samples: VecDeque<f64>,
}

impl Direction {
    fn sample(&mut self, wire: &Wire, passed: u64, interval: Span) {
        let own = std::mem::take(&mut self.own) as f64 * wire.bytes_per_byte;
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back((passed as f64 - own).max(0.0) / interval.as_secs());
    }

    fn foreign(&self) -> f64 {
        // Foreign traffic counts once it has lasted for all samples.
        if self.samples.len() < SAMPLES {
            return 0.0;
        }
        self.samples.iter().copied().fold(f64::INFINITY, f64::min)
    }
}

/// What is known of one host's links.
#[derive(Clone, Debug, Default)]
pub(super) struct HostTraffic {
    up: Direction,
    down: Direction,
}

pub(super) type Traffic = BTreeMap<HostNumber, HostTraffic>;

impl Coordinator {
    /// What passed an agent's interface.
    pub(super) fn handle_interface(&mut self, now: Time, session: SessionId, report: &v1::InterfaceReport) {
        let Some(host) = self.agents.get(&session).map(|agent| agent.host) else { return };
        let wire = self.config.wire;
        let interval = Span::from_nanos(report.interval_ns);
        let known = |own: &&v1::HostBytes| self.network.place(HostNumber(own.host)).is_some();
        for own in report.own.iter().filter(known) {
            let down = &mut self.traffic.entry(HostNumber(own.host)).or_default().down;
            down.own = down.own.saturating_add(own.bytes);
        }
        let own = report.own.iter().fold(0, |sum: u64, own| sum.saturating_add(own.bytes));
        let traffic = self.traffic.entry(host).or_default();
        // Set and not added: this report has all that left by the uplink. A downlink sums over the
        // reports of all senders.
        traffic.up.own = own;
        // Own bytes above are counted all the same; a rate over no time is none.
        if interval == Span::ZERO {
            return;
        }
        traffic.up.sample(&wire, report.sent, interval);
        traffic.down.sample(&wire, report.received, interval);
        let (up, down) = (traffic.up.foreign(), traffic.down.foreign());
        self.leave(now, self.network.uplink(host), up);
        self.leave(now, self.network.downlink(host), down);
    }

    /// Foreign bytes per second on a host's uplink and downlink, headers included.
    pub(super) fn foreign(&self, host: HostNumber) -> (f64, f64) {
        self.traffic.get(&host).map_or((0.0, 0.0), |traffic| (traffic.up.foreign(), traffic.down.foreign()))
    }

    /// No agent measures a host's links any more: they count as free.
    pub(super) fn forget_traffic(&mut self, now: Time, host: HostNumber) {
        if self.traffic.remove(&host).is_some() {
            self.leave(now, self.network.uplink(host), 0.0);
            self.leave(now, self.network.downlink(host), 0.0);
        }
    }

    /// Leaves to policies what foreign traffic does not use of a link.
    fn leave(&mut self, now: Time, link: Option<LinkId>, foreign: f64) {
        let Some(link) = link else { return };
        let whole = self.network.whole().capacity(link).bytes_per_sec();
        let Wire { bytes_per_byte, headroom } = self.config.wire;
        let foreign = foreign / bytes_per_byte;
        // The fabric has only the plan's share of what the link carries: foreign bytes take of the rest (`headroom`) first.
        let left = if foreign < NOTICED * whole { whole } else { headroom * whole - foreign };
        let left = left.clamp(LEAST_SHARE * whole, whole);
        let before = self.network.left().capacity(link).bytes_per_sec();
        // The whole is given back at any rate, or a link without foreign traffic would go on with a
        // little less.
        let same = left == before || (left != whole && (left - before).abs() < TOLERANCE * whole);
        // What is left is above 0, for the whole is.
        if !same && self.network.leave(link, Rate::from_bytes_per_sec(left)).is_ok() {
            self.disturb_senders();
            self.count("capacity_changes");
            self.want_plan(now);
        }
    }
}
