//! Scenarios: a network, and the flows that are to move in it, as a file says ([`file`] has the form).

mod file;

use crate::packet::{HEADER_BYTES, SEGMENT_BYTES};
use crate::setup::Buffer;
use crate::time::Picos;
use crate::topology::{LeafSpine, SingleSwitch, Topology, TopologyError};
use crate::transport::{Network, TrafficFacts};
use std::fmt;
use thiserror::Error;
use weir_model::{Bytes, Rate};
use weir_trace::{FlowArrival, Poisson, PoissonError, PoissonSpec};

pub use file::DEFAULTS;

/// An endless flow: more bytes than any run moves.
pub const ENDLESS: Bytes = Bytes(1 << 42);

/// A network of one of two kinds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// Hosts at one switch.
    SingleSwitch(SingleSwitch),
    /// Racks of hosts below spine switches.
    LeafSpine(LeafSpine),
}

/// A network and its flows.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Name for tables and reports.
    pub name: String,
    /// What the scenario shows, for people.
    pub about: String,
    /// The network that its flows cross.
    pub shape: Shape,
    /// What switches have for each port.
    pub buffer: Buffer,
    /// The queue above which packets are marked.
    pub marking: Bytes,
    /// The least retransmission timeout.
    pub least_timeout: Picos,
    /// The window that flows begin with, in segments.
    pub initial_window: f64,
    /// When the run ends even if flows are left.
    pub until: Option<Picos>,
    /// Flows one by one, as the file has them.
    pub flows: Vec<FlowArrival>,
    /// Flows by the rate and size at which they come.
    pub traffic: Option<PoissonSpec>,
}

/// Why a scenario cannot be used.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum ScenarioError {
    /// The text is not a scenario.
    #[error("{}{problem}", Line(*.line))]
    Text {
        /// Where, counted from 1.
        line: Option<usize>,
        /// What is wrong there, in words.
        problem: String,
    },
    /// There is no such network.
    #[error("[network]: {0}")]
    Topology(#[from] TopologyError),
    /// There is no such traffic.
    #[error("[traffic]: {0}")]
    Traffic(#[from] PoissonError),
}

/// `line 3: `, or nothing where the whole file is meant.
struct Line(Option<usize>);

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |line| write!(f, "line {line}: "))
    }
}

impl Scenario {
    /// Reads a scenario.
    ///
    /// # Errors
    /// The text has not the form of [`file`], or describes a network or traffic that cannot be.
    pub fn from_text(text: &str) -> Result<Scenario, ScenarioError> {
        file::read(text)
    }

    /// The network's ports and ways.
    ///
    /// # Errors
    /// It has too few hosts, or more ports than can be counted.
    pub fn topology(&self) -> Result<Topology, TopologyError> {
        match &self.shape {
            Shape::SingleSwitch(spec) => Topology::single_switch(spec),
            Shape::LeafSpine(spec) => Topology::leaf_spine(spec),
        }
    }

    /// Of every host's link.
    pub fn host_rate(&self) -> Rate {
        match &self.shape {
            Shape::SingleSwitch(spec) => spec.rate,
            Shape::LeafSpine(spec) => spec.host_rate,
        }
    }

    /// Number of flows: those listed, and those of the traffic.
    pub fn flow_count(&self) -> u64 {
        let drawn = self.traffic.as_ref().map_or(0, |traffic| traffic.flows);
        drawn.saturating_add(self.flows.len() as u64)
    }

    /// Number of hosts in the network.
    pub fn hosts(&self) -> u32 {
        match &self.shape {
            Shape::SingleSwitch(spec) => spec.hosts,
            Shape::LeafSpine(spec) => spec.racks.saturating_mul(spec.hosts_per_rack),
        }
    }

    /// What transports may know of the network.
    pub fn network(&self, topology: &Topology) -> Network {
        let last = topology.hosts() - 1;
        let there = topology.empty_delay(0, last, SEGMENT_BYTES + HEADER_BYTES);
        Network {
            host_rate: topology.host_rate(),
            round_trip: there + topology.empty_delay(last, 0, HEADER_BYTES),
            reorders: topology.reorders(),
            buffer: self.buffer,
            marking: self.marking,
            least_timeout: self.least_timeout,
            initial_window: self.initial_window,
            traffic: self.traffic.as_ref().map(|traffic| TrafficFacts {
                sizes: traffic.sizes.clone(),
                load: traffic.load,
                mix: traffic.mix,
            }),
        }
    }

    /// All flows with their numbers, in order of arrival: those that are listed have the number of their place, those that
    /// are drawn have the next.
    ///
    /// # Errors
    /// There can be no such traffic.
    pub fn numbered(&self) -> Result<impl Iterator<Item = (u64, FlowArrival)> + use<>, PoissonError> {
        let mut listed: Vec<_> = (0..).zip(self.flows.iter().copied()).collect();
        listed.sort_by_key(|(_, flow)| flow.arrival);
        let next = listed.len() as u64;
        let mut listed = listed.into_iter().peekable();
        let drawn = self.traffic.clone().map(Poisson::new).transpose()?.into_iter().flatten();
        let mut drawn = (next..).zip(drawn).peekable();
        // Of equal times a flow that is listed comes before one that is drawn.
        Ok(std::iter::from_fn(move || match (listed.peek(), drawn.peek()) {
            (Some((_, one)), Some((_, other))) if one.arrival > other.arrival => drawn.next(),
            (Some(_), _) => listed.next(),
            (None, _) => drawn.next(),
        }))
    }

    /// All flows, in order of arrival.
    ///
    /// # Errors
    /// There can be no such traffic.
    pub fn arrivals(&self) -> Result<impl Iterator<Item = FlowArrival> + use<>, PoissonError> {
        Ok(self.numbered()?.map(|(_, flow)| flow))
    }
}
