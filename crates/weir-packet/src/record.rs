//! What a run says of flows, and of itself.

use crate::port::PortCounts;
use crate::time::Picos;
use weir_model::Bytes;
use weir_trace::FlowArrival;

/// A flow whose last byte has arrived.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowRecord {
    /// As it was given; without that, flows are counted from 0 in the order in which they begin.
    pub number: u64,
    /// The flow as it was given.
    pub flow: FlowArrival,
    /// Time at which its receiver had all of its bytes.
    pub finish: Picos,
    /// Segments sent more than once, each time beyond the first.
    pub retransmitted: u32,
    /// Retransmission timeouts of its sender.
    pub timeouts: u32,
    /// How long it takes alone in an empty network that its window fills at once: the last bit at the host's rate, and
    /// the way of a segment.
    pub ideal: Picos,
}

impl FlowRecord {
    /// The time from its beginning to its last byte.
    pub fn completion(&self) -> Picos {
        self.finish.since(Picos::from(self.flow.arrival))
    }
    /// Whether it had a deadline, and met it.
    pub fn met(&self) -> Option<bool> {
        crate::transport::deadline_of(&self.flow).map(|deadline| self.finish <= deadline)
    }
    /// Completion over the time that it had until its deadline; of a flow that met it, at most 1.
    pub fn used(&self) -> Option<f64> {
        let deadline = crate::transport::deadline_of(&self.flow)?;
        let had = deadline.since(Picos::from(self.flow.arrival));
        Some(self.completion().as_secs() / had.as_secs())
    }
    /// It had a deadline that it could not have met alone.
    pub fn infeasible(&self) -> bool {
        infeasible(&self.flow, self.ideal)
    }
}

/// Whether a flow has a deadline that it cannot meet alone, when it needs `ideal`.
pub(crate) fn infeasible(flow: &FlowArrival, ideal: Picos) -> bool {
    let alone = Picos::from(flow.arrival) + ideal;
    crate::transport::deadline_of(flow).is_some_and(|deadline| alone > deadline)
}

/// A flow whose last byte had not arrived when a run ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Unfinished {
    /// As [`FlowRecord::number`] is for flows that ended.
    pub number: u64,
    /// The flow as it was given.
    pub flow: FlowArrival,
    /// As [`FlowRecord::ideal`] is for flows that ended.
    pub ideal: Picos,
    /// Payload that its receiver has.
    pub received: Bytes,
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunCounts {
    /// Events that the simulation handled.
    pub events: u64,
    /// Packets sent by ports, acknowledgements too.
    pub hops: u64,
    /// Packets dropped, at all ports together.
    pub dropped: u64,
    /// Packets marked, at all ports together.
    pub marked: u64,
    /// Flows that began before the end of the run.
    pub begun: u64,
    /// Flows whose last byte arrived.
    pub finished: u64,
    /// Packets in the network at a time, at most.
    pub most_packets: u64,
    /// Flows that had not been forgotten at a time, at most.
    pub most_flows: u64,
    /// When the run ended.
    pub end: Picos,
}

impl RunCounts {
    pub(crate) fn add(&mut self, port: &PortCounts) {
        self.hops += port.sent;
        self.dropped += port.dropped;
        self.marked += port.marked;
    }
}
