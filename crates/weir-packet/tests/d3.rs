//! D3 (Wilson, Ballani, Karagiannis, Rowstron, SIGCOMM 2011): rates asked for and given.
//!
//! Links are of 10 Gbit/s, so a full packet (1500 bytes) takes 1.2 us; a round trip without queues is 22.5 us.

mod common;

use common::{ENDLESS, PACKET, Star, close, flow, star};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet};
use weir_model::{Bytes, Rate, Span};
use weir_packet::topology::{Balance, LeafSpine};
use weir_packet::{FlowRecord, Observer, PacketSeen, Picos, PortCounts, Simulation, Topology, transport};
use weir_trace::FlowArrival;

fn switch(hosts: u32) -> Star {
    star(hosts, 10e9, 4)
}

/// Bytes that flows received in a span, and the longest queue in it.
struct Watch {
    from: Picos,
    port: u32,
    bytes: BTreeMap<u64, u64>,
    most_queued: f64,
}

impl Observer for Watch {
    fn sample_every(&self) -> Option<Picos> {
        Some(Picos::from_nanos(500))
    }
    fn delivered(&mut self, flow: u64, bytes: u32, now: Picos) {
        if now >= self.from {
            *self.bytes.entry(flow).or_default() += u64::from(bytes);
        }
    }
    fn sampled_port(&mut self, port: u32, queued: Bytes, _: &PortCounts, now: Picos) {
        if port == self.port && now >= self.from {
            self.most_queued = self.most_queued.max(queued.0 as f64 / PACKET);
        }
    }
}

/// Watches flows from one millisecond to another.
fn watched(name: &str, hosts: u32, flows: Vec<FlowArrival>, span_ms: (u64, u64)) -> Watch {
    let star = switch(hosts);
    let port = star.topology.port_to(hosts - 1);
    let mut watch =
        Watch { from: Picos::from_millis(span_ms.0), port, bytes: BTreeMap::new(), most_queued: 0.0 };
    star.watched(name, flows, span_ms.1, &mut watch);
    watch
}

#[test]
fn one_flow_fills_its_link() {
    let watch = watched("d3", 2, vec![flow(0, 0, 2, ENDLESS, None)], (1, 21));
    close("d3", watch.bytes[&0] as f64 / 0.02, switch(2).full_rate(), 0.05);
}

#[test]
fn flows_without_deadlines_share_a_link_equally() {
    for flows in [2, 4, 8, 32] {
        let all = (0..flows).map(|i| flow(u64::from(i) * 100, i, flows + 1, ENDLESS, None)).collect();
        let watch = watched("d3", flows + 1, all, (5, 25));
        println!("longest queue of {flows}: {} packets", watch.most_queued);
        for bytes in watch.bytes.values() {
            let theory = switch(2).full_rate() / f64::from(flows);
            close(&format!("one of {flows}"), *bytes as f64 / 0.02, theory, 0.05);
        }
    }
}

/// Nine endless flows have a link when one of 2 MB comes that has 3.3 ms. On the wire that is 2 MB * 1500 / 1460 in 3.3 ms:
/// half of the link, where an equal share is a tenth, by which it would need 16 ms. It gets its half and a tenth of the other,
/// at first; what it asks for falls a little faster than time runs, so it ends a little before its deadline.
#[test]
fn a_deadline_gets_what_it_needs_and_its_share_of_the_rest() {
    let mut all: Vec<FlowArrival> = (0..9).map(|i| flow(u64::from(i) * 10, i, 11, ENDLESS, None)).collect();
    all.push(flow(2_000, 9, 11, Bytes(2_000_000), Some(Span::from_nanos(3_300_000))));
    let records = switch(11).finished("d3", all.iter().copied(), 100);
    let record = &records[0];
    assert_eq!((record.number, record.met()), (9, Some(true)));
    // Not before it would end at 55 % of the link.
    let needed = record.completion().as_secs() * 1e3;
    println!("done after {needed:.3} ms");
    assert!((2.0 / 1.2167 / 0.55 * 0.98..3.3).contains(&needed));
    // While it is there the others share what it leaves them, equally.
    let watch = watched("d3", 11, all, (2, 5));
    let others: Vec<u64> = (0..9).map(|i| watch.bytes[&i]).collect();
    let mean = others.iter().sum::<u64>() as f64 / 9.0;
    for bytes in others {
        close("one of the others", bytes as f64, mean, 0.05);
    }
}

/// The known weakness: rates go to who came first. A: 10 MB in 10 ms. B: 1 MB in 2 ms, from 1 ms on. On the wire at
/// 1.25 MB/ms both fit in turn (B first: B ends 1.9 ms, A 9.2 ms after A's start), but A has 80 % of the link promised
/// when B asks for 50 %.
#[test]
fn first_come_is_first_served_even_if_the_later_deadline_came_first() {
    let large = |at| flow(at, 0, 3, Bytes(10_000_000), Some(Span::from_millis(10)));
    let urgent = |at| flow(at, 1, 3, Bytes(1_000_000), Some(Span::from_millis(2)));
    let met = |name: &str, flows: [FlowArrival; 2]| {
        let records = switch(3).finished(name, flows.into_iter(), 100);
        flows.map(|flow| records.iter().any(|record| record.flow == flow && record.met() == Some(true)))
    };
    let large_first = [large(0), urgent(1_000)];
    assert_eq!(met("pfabric-edf", large_first), [true, true]);
    assert_eq!(met("d3", large_first), [true, false]);
    assert_eq!(met("d3:late=share", large_first), [true, false]);
    assert_eq!(met("d3", [urgent(0), large(1)]), [true, true]);
}

/// Flows that are quenched take nothing from others: 8 flows of 1 MB at once with 3.5 ms each need 6.6 ms. The first three
/// or four get all they ask for. If the others go on, they still cannot be in time.
#[test]
fn hopeless_flows_stop_and_are_not_complete() {
    let all = || (0..8).map(|i| flow(0, i, 9, Bytes(1_000_000), Some(Span::from_nanos(3_500_000))));
    let stopped = switch(9).finished("d3", all(), 100);
    let shared = switch(9).finished("d3:late=share", all(), 100);
    let met = |records: &[FlowRecord]| records.iter().filter(|record| record.met() == Some(true)).count();
    println!("met: {} of {} complete; {} of {}", met(&stopped), stopped.len(), met(&shared), shared.len());
    // 3.5 ms move 4.26 flows.
    assert!((3..=4).contains(&met(&stopped)));
    assert_eq!(met(&stopped), stopped.len());
    assert!(met(&shared) <= met(&stopped));
    assert_eq!(shared.len(), 8);
}

/// 60 flows at once into 5 packets of buffer, where even requests are lost, and asked again. Whatever ports were asked for
/// is given back in the end: one more flow has the link for itself, one round trip after it has asked.
#[test]
fn requests_that_are_lost_leave_nothing_behind() {
    let late = flow(50_000, 7, 61, Bytes(1_000_000), None);
    let mut all: Vec<FlowArrival> = (0..60)
        .map(|i| flow(u64::from(i) % 7, i, 61, Bytes(20_000 + 1_000 * u64::from(i)), None))
        .chain([late])
        .collect();
    all.sort_by_key(|flow| flow.arrival);
    let star = switch(61).queues(5.0, 5.0);
    let run = || star.finished("d3", all.iter().copied(), 100);
    let records = run();
    assert_eq!(records.len(), 61);
    assert!(records.iter().any(|record| record.timeouts > 0 || record.retransmitted > 0));
    let last = records.iter().find(|record| record.flow == late).unwrap();
    let alone = last.ideal + star.network.round_trip;
    close("one more flow", last.completion().as_secs(), alone.as_secs(), 0.02);
    // The same flows give the same run.
    assert_eq!(records, run());
}

/// Ports that a flow's packets leave by.
#[derive(Default)]
struct Ways(BTreeMap<u64, BTreeSet<u32>>);

impl Observer for Ways {
    fn sent(&mut self, packet: &PacketSeen, _: Picos) {
        if !packet.is_ack {
            self.0.entry(packet.flow).or_default().insert(packet.port);
        }
    }
}

/// Between racks a packet leaves by four ports: its host's, up, down, and the last switch's. Where others are sprayed over both
/// spines, D3's stay on the way whose ports gave their rate, and none is overtaken.
#[test]
fn a_flow_stays_on_the_way_that_gave_its_rate() {
    let topology = Topology::leaf_spine(&LeafSpine {
        racks: 2,
        hosts_per_rack: 4,
        spines: 2,
        host_rate: Rate::from_bits_per_sec(10e9),
        spine_rate: Rate::from_bits_per_sec(20e9),
        link_delay: Picos::from_micros(1),
        host_delay: Picos::from_micros(4),
        balance: Balance::Spray,
    })
    .unwrap();
    let star = Star { topology, network: switch(8).network };
    let all: Vec<FlowArrival> = (0..4).map(|i| flow(0, i, 8, Bytes(500_000), None)).collect();
    let ports = |name: &str| {
        let mut ways = Ways::default();
        let records = star.watched(name, all.clone(), 100, &mut ways);
        let again: u32 = records.iter().map(|record| record.retransmitted).sum();
        assert_eq!((records.len(), again), (4, 0));
        ways.0.values().map(BTreeSet::len).collect::<Vec<_>>()
    };
    assert_eq!(ports("d3"), [4; 4]);
    assert_eq!(ports("dctcp:recovery=selective"), [6; 4]);
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    for text in ["d3:late=never", "d3:alpha=2", "d3:beta=-1", "d3:rto=0us", "d3:marking=30kB"] {
        assert!(transport::named(text).is_err(), "{text}");
    }
}

/// The fan-in of section 6.1 (flow burst): at one moment n flows of 2 to 50 kB start towards one receiver at 1 Gbit/s, with deadlines
/// drawn from an exponential distribution of mean 20 ms ("tight"), none below 3 ms. The paper asks how many may start
/// until more than one in a hundred misses.
fn bursts(senders: u32, seed: u64) -> Vec<FlowArrival> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut flows = Vec::new();
    for burst in 0..BURSTS {
        for sender in 0..senders {
            let size = Bytes(random.random_range(2_000..=50_000));
            let within = (-random.random::<f64>().ln() * 20e-3).max(3e-3);
            let at = burst * BURST_GAP_MS * 1000;
            flows.push(flow(at, sender, senders + 1, size, Some(Span::from_secs_ceil(within))));
        }
    }
    flows
}

const BURSTS: u64 = 50;
const BURST_GAP_MS: u64 = 400;

/// Share of the flows that miss their deadline, those that are never complete among them.
fn missed(name: &str, senders: u32) -> f64 {
    let mut star = star(senders + 1, 1e9, 20).queues(100.0, 20.0);
    star.network.least_timeout = Picos::from_millis(10);
    star.network.initial_window = 2.0;
    let flows = bursts(senders, 3);
    let all = flows.len();
    let records = star.finished(name, flows.into_iter(), BURSTS * BURST_GAP_MS);
    let met = records.iter().filter(|record| record.met() == Some(true)).count();
    (all - met) as f64 / all as f64
}

/// How many may start at once until more than one in a hundred misses.
fn supported(name: &str) -> u32 {
    (2..100).take_while(|&senders| missed(name, senders) <= 0.01).last().unwrap_or(0)
}

/// The paper's claim in its abstract and section 6: D3 about doubles the load at which deadlines are met, against TCP. Numbers
/// of flows in its figure were not at hand, nor were its buffers; round trip (0.1 ms), buffer (100 packets) and TCP's least
/// timeout (10 ms) are ours. So the ratio is held to 2 within a quarter.
#[test]
fn about_twice_as_many_flows_meet_their_deadlines_as_under_tcp() {
    let (tcp, d3) = (supported("tcp"), supported("d3"));
    println!("flows at once with 99 % in time: tcp {tcp}, d3 {d3}");
    close("D3 over TCP", f64::from(d3) / f64::from(tcp), 2.0, 0.25);
}

/// Section 6, quenching: beyond what the link can carry D3 with it misses fewer deadlines than without, and both fewer than
/// TCP. 80 flows of 26 kB on average are 17 ms of the link, the mean deadline is 20 ms. With or without
/// selective acknowledgements TCP misses 15 to 17 % more than D3 without quenching (seen), which is held to 10 %.
#[test]
fn quenching_helps_where_not_all_can_be_met() {
    let names = ["d3", "d3:late=share", "tcp", "tcp:recovery=newreno"];
    let [stop, share, tcp, newreno] = names.map(|name| missed(name, 80));
    println!(
        "missed of 80 at once: d3 {stop:.3}, without quenching {share:.3}, tcp {tcp:.3}, NewReno {newreno:.3}"
    );
    assert!(stop < share * 0.95 && share < tcp * 0.9 && share < newreno * 0.9);
}

/// Flows that were given up take no room for the rest of a run: 50 bursts of 80 leave no more than one burst at a time.
#[test]
fn flows_that_were_given_up_are_told_of_and_forgotten() {
    let star = star(81, 1e9, 20).queues(100.0, 20.0);
    let flows = bursts(80, 3);
    let all = flows.len();
    let transport = transport::named("d3").unwrap();
    let mut simulation = Simulation::new(&star.topology, transport, star.network.clone(), flows.into_iter());
    let mut finished = 0;
    let counts = simulation.run(Picos::from_millis(BURSTS * BURST_GAP_MS), &mut |_| finished += 1);
    let stopped = simulation.unfinished().count();
    println!("{finished} finished, {stopped} given up, {} at a time", counts.most_flows);
    assert_eq!(finished + stopped, all);
    assert!(stopped > 400 && counts.most_flows <= 80);
}
