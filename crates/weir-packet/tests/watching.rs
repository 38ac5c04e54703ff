//! Who looks at a run sees it in order and whole, and changes nothing.

#[expect(dead_code, reason = "other tests use the rest")]
mod common;

use common::{Star, star};
use weir_model::{Bytes, HostId, Span, Time};
use weir_packet::{
    HEADER_BYTES, Observer, PacketSeen, Picos, PortCounts, SEGMENT_BYTES, Simulation, transport,
};
use weir_trace::{FlowArrival, FlowKind};

const HOSTS: u32 = 6;

/// Counts what it is shown, in order of time.
#[derive(Default)]
struct Watch {
    last: Picos,
    /// Packets and bytes that each port was seen to send.
    sent: Vec<(u64, u64)>,
    dropped: u64,
    samples: u64,
}

impl Watch {
    #[track_caller]
    fn at(&mut self, now: Picos) {
        assert!(self.last <= now, "{now} after {}", self.last);
        self.last = now;
    }
}

impl Observer for Watch {
    fn sent(&mut self, packet: &PacketSeen, now: Picos) {
        self.at(now);
        let port = packet.port as usize;
        if self.sent.len() <= port {
            self.sent.resize(port + 1, (0, 0));
        }
        self.sent[port].0 += 1;
        self.sent[port].1 += u64::from(packet.bytes);
    }
    fn dropped(&mut self, _: &PacketSeen, now: Picos) {
        self.at(now);
        self.dropped += 1;
    }
    fn sample_every(&self) -> Option<Picos> {
        // Packets begin and end at other times.
        Some(Picos(7_654_321))
    }
    fn sampled_port(&mut self, port: u32, _: Bytes, counts: &PortCounts, now: Picos) {
        self.at(now);
        self.samples += 1;
        let seen = self.sent.get(port as usize).copied().unwrap_or_default();
        assert_eq!((counts.sent, counts.bytes), seen, "port {port} at {now}");
    }
}

/// Five senders and one receiver, in bursts that no buffer holds.
fn bursts() -> Vec<FlowArrival> {
    let flow = |number: u64| FlowArrival {
        arrival: Time::from_nanos(number / 10 * 400_000 + number % 3),
        source: HostId((number % 5) as u32),
        destination: HostId(HOSTS - 1),
        size: Bytes(2_000 + number * 7_919 % 60_000),
        kind: match number % 3 {
            0 => FlowKind::Deadline { within: Span::from_millis(500) },
            1 => FlowKind::Known,
            _ => FlowKind::Unknown,
        },
    };
    (0..60).map(flow).collect()
}

fn network() -> Star {
    star(HOSTS, 1e9, 10).queues(24.0, 10.0)
}

#[test]
fn a_run_that_is_watched_is_the_same_and_is_seen_whole_and_in_order() {
    for name in ["tcp", "dctcp", "d2tcp", "d3", "pias", "karuna", "pfabric-edf"] {
        let network = network();
        let alone = network.finished(name, bursts().into_iter(), 60_000);
        assert_eq!(alone.len(), bursts().len(), "{name}: not all complete");
        let mut watch = Watch::default();
        let watched = network.watched(name, bursts(), 60_000, &mut watch);
        let times = |records: &[weir_packet::FlowRecord]| -> Vec<_> {
            records.iter().map(|record| (record.number, record.finish, record.retransmitted)).collect()
        };
        assert_eq!(times(&watched), times(&alone), "{name}");
        assert!(watch.samples > 1_000, "{name}: {} samples", watch.samples);
        // The switch's port towards the receiver sends each segment once, and what is lost there is sent again before.
        let segments = |flow: &FlowArrival| flow.size.0.div_ceil(u64::from(SEGMENT_BYTES));
        let wire = |flow: FlowArrival| flow.size.0 + segments(&flow) * u64::from(HEADER_BYTES);
        let least: u64 = bursts().into_iter().map(wire).sum();
        let through = watch.sent.iter().map(|&(_, bytes)| bytes).max().unwrap_or(0);
        assert!(through >= least, "{name}: {through} of {least}");
        assert!(watch.dropped > 0, "{name}: the buffer held all");
    }
}

#[test]
fn a_run_in_parts_is_the_run_in_one() {
    let network = network();
    let whole = network.finished("karuna", bursts().into_iter(), 60_000);
    let transport = transport::named("karuna").expect("a transport");
    let flows = bursts().into_iter();
    let mut simulation = Simulation::new(&network.topology, transport, network.network.clone(), flows);
    let mut parts = Vec::new();
    // No packet ends at these moments, so that each part ends before an event of the next.
    for end in (1..).map(|part| Picos(part * 77_777_777)).take_while(|end| *end < Picos::from_millis(60)) {
        simulation.run(end, &mut |record| parts.push(record));
    }
    simulation.run(Picos::from_millis(60_000), &mut |record| parts.push(record));
    let ends = |records: &[weir_packet::FlowRecord]| -> Vec<_> {
        records.iter().map(|record| (record.number, record.finish)).collect()
    };
    assert_eq!(ends(&parts), ends(&whole));
}
