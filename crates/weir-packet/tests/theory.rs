//! Transports and queues against the formulas of their papers, each within 5 %.
//!
//! Rates are of 10 Gbit/s, so a full packet (1500 bytes) takes 1.2 us. Times are simulated.

use std::collections::BTreeMap;
use weir_endhost::tagging::ClassLaw;
use weir_model::{Bytes, HostId, Rate, Time};
use weir_packet::topology::SingleSwitch;
use weir_packet::transport::{self, Network, Recovery, Sending, Setup, Timeouts, Transport};
use weir_packet::{
    Acked, Acknowledging, Allowance, Buffer, Control, Discipline, FlowRecord, FlowSeen, HEADER_BYTES, Loss,
    Marking, Observer, Picos, PortCounts, SEGMENT_BYTES, Simulation, Topology,
};
use weir_trace::{FlowArrival, FlowKind};

const TOLERANCE: f64 = 0.05;
const BITS_PER_SEC: f64 = 10e9;
const PACKET: f64 = (SEGMENT_BYTES + HEADER_BYTES) as f64;
const PACKET_SECS: f64 = PACKET * 8.0 / BITS_PER_SEC;
/// More than any run of these tests moves.
const ENDLESS: Bytes = Bytes(1 << 40);

/// Hosts at a switch, 20 us from end to end and back but for serialization.
fn switch(hosts: u32) -> Topology {
    switch_of(hosts, 4)
}

/// Hosts at a switch, each of which delays a packet by so many microseconds, and each link by one.
fn switch_of(hosts: u32, host_delay_us: u64) -> Topology {
    Topology::single_switch(&SingleSwitch {
        hosts,
        rate: Rate::from_bits_per_sec(BITS_PER_SEC),
        link_delay: Picos::from_micros(1),
        host_delay: Picos::from_micros(host_delay_us),
    })
    .expect("two hosts and more")
}

/// Two links of 5 us each way, 1500 bytes there and 40 back.
const ROUND_TRIP_SECS: f64 = 20e-6 + 2.0 * PACKET_SECS + 2.0 * 0.032e-6;

fn network(buffer_packets: f64, marking_packets: f64) -> Network {
    Network {
        host_rate: Rate::from_bits_per_sec(BITS_PER_SEC),
        round_trip: Picos::from_secs(ROUND_TRIP_SECS),
        reorders: false,
        buffer: Buffer::PerPort(Bytes((buffer_packets * PACKET) as u64)),
        marking: Bytes((marking_packets * PACKET) as u64),
        least_timeout: Picos::from_millis(2),
        initial_window: 10.0,
        traffic: None,
    }
}

fn flow(arrival_us: u64, source: u32, destination: u32, size: Bytes) -> FlowArrival {
    FlowArrival {
        arrival: Time::from_nanos(arrival_us * 1000),
        source: HostId(source),
        destination: HostId(destination),
        size,
        kind: FlowKind::Known,
    }
}

/// Bytes that flows received after the warm-up, and the queue at a port as sampled.
struct Watch {
    every: Picos,
    from: Picos,
    port: u32,
    bytes: BTreeMap<u64, u64>,
    queue_packets: Vec<f64>,
    windows: Vec<f64>,
    /// What the port had done when watching began.
    before: Option<PortCounts>,
}

impl Watch {
    fn new(port: u32, from_ms: u64, every_ns: u64) -> Watch {
        Watch {
            every: Picos::from_nanos(every_ns),
            from: Picos::from_millis(from_ms),
            port,
            bytes: BTreeMap::new(),
            queue_packets: Vec::new(),
            windows: Vec::new(),
            before: None,
        }
    }
}

impl Observer for Watch {
    fn sample_every(&self) -> Option<Picos> {
        Some(self.every)
    }
    fn delivered(&mut self, flow: u64, bytes: u32, now: Picos) {
        if now >= self.from {
            *self.bytes.entry(flow).or_default() += u64::from(bytes);
        }
    }
    fn sampled_port(&mut self, port: u32, queued: Bytes, counts: &PortCounts, now: Picos) {
        if port == self.port && now >= self.from {
            self.before.get_or_insert(*counts);
            self.queue_packets.push(queued.0 as f64 / PACKET);
        }
    }
    fn sampled_flow(&mut self, seen: &FlowSeen, now: Picos) {
        let window = seen.window;
        if now >= self.from {
            self.windows.push(window);
        }
    }
}

/// Runs flows for so many milliseconds and watches from `from_ms` on.
fn watched(
    name: &str,
    hosts: u32,
    network: Network,
    flows: Vec<FlowArrival>,
    span_ms: (u64, u64),
) -> (Watch, PortCounts) {
    watched_on(&switch(hosts), name, network, flows, span_ms)
}

fn watched_on(
    topology: &Topology,
    name: &str,
    network: Network,
    flows: Vec<FlowArrival>,
    span_ms: (u64, u64),
) -> (Watch, PortCounts) {
    let transport = transport::named(name).expect("a transport");
    // One flow waits at its host, several meet at the switch.
    let port = if flows.len() == 1 { flows[0].source.0 } else { topology.port_to(flows[0].destination.0) };
    let mut watch = Watch::new(port, span_ms.0, 500);
    let mut simulation = Simulation::new(topology, transport, network, flows.into_iter());
    simulation.observe(&mut watch);
    simulation.run(Picos::from_millis(span_ms.1), &mut |_| {});
    let counts = simulation.port_counts(port);
    drop(simulation);
    (watch, counts)
}

fn finished(
    transport: Box<dyn Transport>,
    topology: &Topology,
    network: Network,
    flows: impl Iterator<Item = FlowArrival>,
) -> Vec<FlowRecord> {
    let mut records = Vec::new();
    let mut simulation = Simulation::new(topology, transport, network, flows);
    simulation.run(Picos::MAX, &mut |record| records.push(record));
    records
}

#[track_caller]
fn close(what: &str, is: f64, theory: f64) {
    println!("{what}: {is:.4}, in theory {theory:.4} ({:+.1} %)", (is / theory - 1.0) * 100.0);
    assert!((is / theory - 1.0).abs() <= TOLERANCE, "{what}: {is}, in theory {theory}");
}

/// Payload a full link carries.
fn full_rate() -> f64 {
    BITS_PER_SEC / 8.0 * f64::from(SEGMENT_BYTES) / PACKET
}

#[test]
fn one_flow_fills_its_link() {
    for name in [
        "tcp",
        "tcp:acks=delayed",
        "dctcp",
        "dctcp:acks=delayed",
        "d2tcp",
        "pias:thresholds=1MB",
        "pfabric",
        "pfabric-edf",
    ] {
        let (watch, _) = watched(name, 2, network(100.0, 20.0), vec![flow(0, 0, 1, ENDLESS)], (20, 120));
        close(name, watch.bytes[&0] as f64 / 0.1, full_rate());
    }
}

#[test]
fn flows_share_a_link_equally() {
    for (name, flows) in [("dctcp", 4), ("dctcp", 8), ("d2tcp", 4)] {
        let all = (0..flows).map(|i| flow(u64::from(i) * 100, i, flows, ENDLESS)).collect();
        let (watch, _) = watched(name, flows + 1, network(300.0, 40.0), all, (50, 2_050));
        for bytes in watch.bytes.values() {
            close(&format!("{name}, one of {flows}"), *bytes as f64 / 2.0, full_rate() / f64::from(flows));
        }
    }
}

/// DCTCP, section 3.3, with the case of its Figure 12: 10 Gbit/s, 100 us, K = 40, two flows in step. W* = (C RTT + K) / N,
/// alpha = sqrt(2 / W*), the window swings by D = W* alpha / 2, the queue by A = N D, and it is K + N at most.
#[test]
fn dctcp_queue_swings_around_its_threshold_as_analysed() {
    const THRESHOLD: f64 = 40.0;
    let round_trip = ROUND_TRIP_SECS + 80e-6;
    for flows in [1, 2] {
        let all = (0..flows).map(|i| flow(0, i, flows, ENDLESS)).collect();
        let topology = switch_of(flows + 1, 24);
        let (watch, _) = watched_on(&topology, "dctcp", network(500.0, THRESHOLD), all, (100, 400));
        let n = f64::from(flows);
        // What is being sent is not in the queue, so the round trip without a queue has it.
        let star = (round_trip / PACKET_SECS + THRESHOLD) / n;
        let swing = n * star * (2.0 / star).sqrt() / 2.0;
        let most = watch.queue_packets.iter().copied().fold(0.0, f64::max);
        let least = watch.queue_packets.iter().copied().fold(f64::INFINITY, f64::min);
        let mean = watch.queue_packets.iter().sum::<f64>() / watch.queue_packets.len() as f64;
        let (high, low) = (THRESHOLD + n, THRESHOLD + n - swing);
        println!("{flows} flows: queue {least} to {most}, in theory {low:.1} to {high}");
        close("the highest queue", most, high);
        close("the queue on average", mean, (high + low) / 2.0);
    }
}

/// Choudhury and Hahne 1998: one port that is full has share / (1 + share) of the memory, here half of 200 packets.
#[test]
fn a_full_port_has_its_share_of_a_shared_buffer() {
    let buffer = Buffer::Shared { all: Bytes((200.0 * PACKET) as u64), share: 1.0 };
    let all = (0..2).map(|i| flow(0, i, 2, ENDLESS)).collect();
    let (watch, counts) = watched("tcp", 3, Network { buffer, ..network(1.0, 1.0) }, all, (10, 200));
    let most = watch.queue_packets.iter().copied().fold(0.0, f64::max);
    assert!(counts.dropped > 0);
    close("the highest queue", most, 100.0);
}

/// Mathis et al. 1997: between losses Reno's window goes from W/2 to W by one a round trip, so one segment in 3/8 W^2 is
/// lost; and a round of W more passes before the sender knows. W is what path and buffer hold, and the one that is lost.
#[test]
fn reno_loses_a_segment_per_sawtooth() {
    let (watch, counts) = watched("tcp", 2, network(60.0, 1.0), vec![flow(0, 0, 1, ENDLESS)], (50, 1050));
    let peak = (ROUND_TRIP_SECS / PACKET_SECS + 60.0).floor() + 2.0;
    let before = watch.before.unwrap();
    let (sent, lost) = (counts.sent - before.sent, counts.dropped - before.dropped);
    let most = watch.windows.iter().copied().fold(0.0, f64::max);
    println!("{lost} losses among {sent}; highest window {most}, path and buffer {peak}");
    close("segments per loss", sent as f64 / lost as f64, 3.0 / 8.0 * peak * peak + peak);
}

/// All at once, flows of known size in class 0 and the others in class 1.
struct ByKind;

struct Unlimited;

impl Control for Unlimited {
    fn allowance(&self) -> Allowance {
        Allowance { window: 1e6, gap: Picos::ZERO }
    }
    fn on_ack(&mut self, _: &Acked) {}
    fn on_loss(&mut self, _: &Loss) {}
    fn on_timeout(&mut self, _: &Loss, _: bool) {}
}

impl Transport for ByKind {
    fn setup(&self, network: &Network) -> Setup {
        Setup {
            discipline: Discipline::Classes { first: Marking::Off, others: Marking::Off, reserved: Bytes(0) },
            buffer: network.buffer,
            acknowledging: Acknowledging::Each,
            ages_after: None,
            probes_after: None,
            gives: None,
        }
    }
    fn last_class(&self) -> u8 {
        1
    }
    fn sending(&self, flow: &FlowArrival, _: &Network) -> Sending {
        Sending {
            control: Box::new(Unlimited),
            tagging: ClassLaw::Fixed(u8::from(flow.kind != FlowKind::Known)).into(),
            recovery: Recovery::Selective,
            timeouts: Timeouts::Fixed(Picos::from_millis(1000)),
        }
    }
}

/// Two classes, packets that arrive as a Poisson process: what waits, by Cobham (1954) for non-preemptive priorities.
/// W1 = R / (1 - rho1), W2 = R / ((1 - rho1) (1 - rho)), R = rho D / 2 for equal lengths D.
#[test]
fn strict_priorities_wait_as_in_mg1() {
    let topology = switch(101);
    let load = 0.8;
    // Half of the flows are one segment sent at once in class 0, the others the second class, by their size.
    let spec = weir_trace::PoissonSpec {
        hosts: 101,
        access_rate: Rate::from_bits_per_sec(BITS_PER_SEC),
        load,
        sizes: weir_trace::FlowSizes::from_text("one", "1459 0\n1460 1\n").unwrap(),
        mix: weir_trace::Mix { known: 0.5, ..weir_trace::Mix::UNKNOWN },
        ends: weir_trace::Ends::Into(HostId(100)),
        seed: 7,
        flows: 400_000,
    };
    let flows = weir_trace::Poisson::new(spec).unwrap();
    let records = finished(Box::new(ByKind), &topology, network(10_000.0, 10_000.0), flows);
    let least = topology.empty_delay(0, 100, 1500).as_secs();
    let mean = |kind| {
        let waits: Vec<f64> = records
            .iter()
            .filter(|record| record.flow.kind == kind)
            .map(|record| record.completion().as_secs() - least)
            .collect();
        waits.iter().sum::<f64>() / waits.len() as f64
    };
    let residual = load * PACKET_SECS / 2.0;
    close("first class", mean(FlowKind::Known), residual / (1.0 - load / 2.0));
    close("second class", mean(FlowKind::Unknown), residual / ((1.0 - load / 2.0) * (1.0 - load)));
}
