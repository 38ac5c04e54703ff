//! What tests against papers share: one switch, flows towards its last host, runs.

use weir_model::{Bytes, HostId, Rate, Span, Time};
use weir_packet::topology::SingleSwitch;
use weir_packet::transport::{self, Network};
use weir_packet::{Buffer, FlowRecord, HEADER_BYTES, Observer, Picos, SEGMENT_BYTES, Simulation, Topology};
use weir_trace::{FlowArrival, FlowKind};

/// Bytes of a full packet.
pub(crate) const PACKET: f64 = (SEGMENT_BYTES + HEADER_BYTES) as f64;
/// More than any run of these tests moves.
pub(crate) const ENDLESS: Bytes = Bytes(1 << 40);

/// Hosts at one switch, and what transports know of it.
pub(crate) struct Star {
    pub(crate) topology: Topology,
    pub(crate) network: Network,
}

/// So many hosts with links of so many bits a second; a host delays a packet by so many microseconds, a link by one.
pub(crate) fn star(hosts: u32, bits_per_sec: f64, host_delay_us: u64) -> Star {
    let rate = Rate::from_bits_per_sec(bits_per_sec);
    let topology = Topology::single_switch(&SingleSwitch {
        hosts,
        rate,
        link_delay: Picos::from_micros(1),
        host_delay: Picos::from_micros(host_delay_us),
    })
    .expect("two hosts and more");
    let round_trip =
        topology.empty_delay(0, hosts - 1, PACKET as u32) + topology.empty_delay(hosts - 1, 0, HEADER_BYTES);
    let network = Network {
        host_rate: rate,
        round_trip,
        reorders: false,
        buffer: Buffer::PerPort(Bytes((200.0 * PACKET) as u64)),
        marking: Bytes((65.0 * PACKET) as u64),
        least_timeout: Picos::from_millis(2),
        initial_window: 10.0,
        traffic: None,
    };
    Star { topology, network }
}

impl Star {
    /// With so many packets of buffer at each port, and marks where so many wait.
    pub(crate) fn queues(mut self, buffer_packets: f64, marking_packets: f64) -> Star {
        self.network.buffer = Buffer::PerPort(Bytes((buffer_packets * PACKET) as u64));
        self.network.marking = Bytes((marking_packets * PACKET) as u64);
        self
    }

    /// The flows of a run that are complete by its end.
    pub(crate) fn finished(
        &self,
        name: &str,
        flows: impl Iterator<Item = FlowArrival>,
        end_ms: u64,
    ) -> Vec<FlowRecord> {
        let mut records = Vec::new();
        let mut simulation = Simulation::new(&self.topology, named(name), self.network.clone(), flows);
        simulation.run(Picos::from_millis(end_ms), &mut |record| records.push(record));
        records
    }

    /// Shows an observer a run, and gives the flows that are complete by its end.
    pub(crate) fn watched(
        &self,
        name: &str,
        flows: Vec<FlowArrival>,
        end_ms: u64,
        observer: &mut dyn Observer,
    ) -> Vec<FlowRecord> {
        let mut records = Vec::new();
        let flows = flows.into_iter();
        let mut simulation = Simulation::new(&self.topology, named(name), self.network.clone(), flows);
        simulation.observe(observer);
        simulation.run(Picos::from_millis(end_ms), &mut |record| records.push(record));
        records
    }

    /// Payload a full link carries, in bytes a second.
    pub(crate) fn full_rate(&self) -> f64 {
        self.network.host_rate.bytes_per_sec() * f64::from(SEGMENT_BYTES) / PACKET
    }
}

fn named(name: &str) -> Box<dyn transport::Transport> {
    transport::named(name).expect("a transport")
}

/// From `source` to the last of so many hosts, at a microsecond.
pub(crate) fn flow(
    arrival_us: u64,
    source: u32,
    hosts: u32,
    size: Bytes,
    within: Option<Span>,
) -> FlowArrival {
    FlowArrival {
        arrival: Time::from_nanos(arrival_us * 1000),
        source: HostId(source),
        destination: HostId(hosts - 1),
        size,
        kind: within.map_or(FlowKind::Known, |within| FlowKind::Deadline { within }),
    }
}

#[track_caller]
pub(crate) fn close(what: &str, is: f64, theory: f64, tolerance: f64) {
    println!("{what}: {is:.4}, in theory {theory:.4} ({:+.1} %)", (is / theory - 1.0) * 100.0);
    assert!((is / theory - 1.0).abs() <= tolerance, "{what}: {is}, in theory {theory}");
}
