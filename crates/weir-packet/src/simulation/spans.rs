//! How long things take that nothing delays.

use crate::port::PortSpec;
use crate::sender::{HEADER_BYTES, SEGMENT_BYTES};
use crate::time::{PerByte, Picos};
use crate::topology::Topology;
use crate::transport::Network;
use weir_trace::FlowArrival;

/// How long a packet is on its way from a port to the next, at most.
pub(super) fn reach(topology: &Topology) -> Picos {
    let hop = |port: &PortSpec| PerByte::at(port.rate).of(SEGMENT_BYTES + HEADER_BYTES) + port.delay;
    topology.ports().iter().map(hop).max().unwrap_or_default()
}

/// How long it is from one event to the next where all hosts are busy with full segments and acknowledgements: each port
/// that is busy has some four events for a segment.
pub(super) fn spacing(topology: &Topology) -> Picos {
    const EVENTS: u64 = 1;
    let segment = |port: &PortSpec| PerByte::at(port.rate).of(SEGMENT_BYTES + HEADER_BYTES).0.max(1);
    let rate: f64 = topology.ports().iter().map(|port| EVENTS as f64 / segment(port) as f64).sum();
    Picos((1.0 / rate) as u64)
}

/// The time that a flow needs in an empty network: all its bits at the rate of its host, and the way of the last segment.
pub(crate) fn ideal(flow: &FlowArrival, topology: &Topology, network: &Network) -> Picos {
    let segments = u64::from(crate::sender::segments_of(flow.size.0));
    let wire = flow.size.0.max(1) + segments * u64::from(HEADER_BYTES);
    let last = flow.size.0.max(1) - (segments - 1) * u64::from(SEGMENT_BYTES);
    let last_bytes = last as u32 + HEADER_BYTES;
    let before = wire - u64::from(last_bytes);
    let per_byte = PerByte::at(network.host_rate);
    let full = u64::from(SEGMENT_BYTES + HEADER_BYTES);
    Picos(per_byte.of(full as u32).0 * (before / full))
        + topology.empty_delay(flow.source.0, flow.destination.0, last_bytes)
}
