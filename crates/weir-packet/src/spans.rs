//! How long things take that nothing delays.

use crate::packet::{HEADER_BYTES, SEGMENT_BYTES, segments_of};
use crate::port::PortSpec;
use crate::time::{PerByte, Picos};
use crate::topology::Topology;
use crate::transport::Network;
use weir_model::Bytes;
use weir_trace::FlowArrival;

/// How long it is from what a port is told of a packet until that is at the next, at most: the way, and in a line, of which
/// this is known before, what goes before it.
pub(crate) fn reach(topology: &Topology, most_waiting: Bytes) -> Picos {
    let bytes = u64::from(SEGMENT_BYTES + HEADER_BYTES).saturating_add(most_waiting.0);
    let hop = |port: &PortSpec| PerByte::at(port.rate).of_many(bytes) + port.delay;
    topology.ports().iter().map(hop).max().unwrap_or_default()
}

/// How long it is from one event to the next where all hosts are busy with full segments: a segment has one at each port,
/// and another where ports have no line.
pub(crate) fn spacing(topology: &Topology, in_line: bool) -> Picos {
    let events = if in_line { 1.0 } else { 2.0 };
    let segment = |port: &PortSpec| PerByte::at(port.rate).of(SEGMENT_BYTES + HEADER_BYTES).0.max(1);
    let rate: f64 = topology.ports().iter().map(|port| events / segment(port) as f64).sum();
    // `rate` is in events per picosecond, summed over all ports.
    Picos((1.0 / rate) as u64)
}

/// The time that a flow needs in an empty network: all its bits at the rate of its host, and the way of the last segment.
pub fn ideal(flow: &FlowArrival, topology: &Topology, network: &Network) -> Picos {
    let segments = u64::from(segments_of(flow.size.0));
    let wire = flow.size.0.max(1) + segments * u64::from(HEADER_BYTES);
    let last = flow.size.0.max(1) - (segments - 1) * u64::from(SEGMENT_BYTES);
    let last_bytes = last as u32 + HEADER_BYTES;
    let before = wire - u64::from(last_bytes);
    let per_byte = PerByte::at(network.host_rate);
    let full = u64::from(SEGMENT_BYTES + HEADER_BYTES);
    // All segments but the last are full. Each is rounded by itself, as ports do it.
    Picos(per_byte.of(full as u32).0.saturating_mul(before / full))
        + topology.empty_delay(flow.source.0, flow.destination.0, last_bytes)
}
