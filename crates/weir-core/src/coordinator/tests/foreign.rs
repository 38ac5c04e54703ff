//! What foreign traffic leaves of a link, with exact numbers. Links carry 1 MB/s; interfaces count 1.05 bytes for
//! one of payload, and links carry a little more than is planned with.

use super::*;
use crate::agent::InterfaceBytes;
use std::collections::BTreeMap;

const WIRE: Wire = Wire { bytes_per_byte: 1.05, headroom: 1.01 };

/// Agents whose interfaces are given by hand, looked at every 250 ms.
struct Measured {
    pair: Pair,
    passed: Vec<InterfaceBytes>,
}

impl Measured {
    fn new(hosts: u32, policy: &str) -> Measured {
        let mut pair = Pair::with(CoordinatorConfig { wire: WIRE, ..config(hosts, 1) });
        let config = CoordinatorConfig { wire: WIRE, ..config(hosts, 1) };
        pair.coordinator = Coordinator::new(config, &weir_policy::find(policy).unwrap());
        for (host, agent) in (0..).zip(&mut pair.agents) {
            *agent = Agent::new(AgentConfig {
                host: HostNumber(host),
                data_address: format!("10.0.0.{host}:7071"),
                incarnation: 1,
                spool_identity: 0,
                first_plan_wait: Span::from_millis(100),
                report_interval: Span::from_millis(20),
                batch: Span::ZERO,
                measures_interface: true,
                ..AgentConfig::default()
            });
        }
        pair.connect_all();
        let mut measured = Measured { pair, passed: vec![InterfaceBytes::default(); hosts as usize] };
        measured.look(&BTreeMap::new());
        measured
    }

    fn look(&mut self, unacknowledged: &BTreeMap<FlowNumber, u64>) {
        let now = self.pair.now;
        for (agent, passed) in self.pair.agents.iter_mut().zip(&self.passed) {
            assert!(agent.wants_interface(now));
            agent.handle_interface(now, *passed, unacknowledged);
            assert!(!agent.wants_interface(now));
        }
        self.pair.settle();
    }

    /// A quarter of a second in which host 1 received and host 0 sent so many bytes that are not Weir's.
    fn quarter(&mut self, sent_by_0: u64, received_by_1: u64) {
        self.pair.now = self.pair.now + Span::from_millis(250);
        self.passed[0].sent += sent_by_0;
        self.passed[1].received += received_by_1;
        self.look(&BTreeMap::new());
    }

    fn counter(&mut self, name: &str) -> u64 {
        let counters = self.pair.coordinator.status(self.pair.now).counters;
        counters.iter().find(|counter| counter.name == name).map_or(0, |counter| counter.value)
    }
}

#[test]
fn foreign_traffic_lowers_the_rate_of_a_plan_and_its_end_brings_it_back() {
    for policy in ["varys", "fair"] {
        let mut measured = Measured::new(3, policy);
        let coflow = measured.pair.register(1);
        let flow = measured.pair.open(coflow, "b", 100_000_000, 2, 1);
        assert_rate(measured.pair.rate(2, flow), CAPACITY);
        // 105,000 bytes in 0.25 s are 0.42 MB/s, which is 0.40 MB/s of payload. Three of four quarters: not yet.
        for _ in 0..3 {
            measured.quarter(0, 105_000);
            assert_rate(measured.pair.rate(2, flow), CAPACITY);
        }
        measured.quarter(0, 105_000);
        assert_rate(measured.pair.rate(2, flow), 1_010_000.0 - 400_000.0);
        let host = &measured.pair.coordinator.status(measured.pair.now).agents[1];
        assert_rate(host.foreign_received_per_s, 420_000.0);
        assert_rate(host.foreign_sent_per_s, 0.0);
        measured.quarter(0, 0);
        assert_rate(measured.pair.rate(2, flow), CAPACITY);
    }
}

#[test]
fn what_weir_sent_itself_is_not_foreign() {
    let mut measured = Measured::new(2, "varys");
    let coflow = measured.pair.register(1);
    let flow = measured.pair.open(coflow, "b", 100_000_000, 0, 1);
    for _ in 0..8 {
        // A quarter of a second at the full rate, headers and all.
        let now = measured.pair.now;
        measured.pair.agents[0].handle_sent(now, flow, 250_000);
        measured.quarter(262_500, 262_500);
        assert_rate(measured.pair.rate(0, flow), CAPACITY);
    }
    assert_eq!(measured.counter("capacity_changes"), 0);
}

#[test]
fn own_bytes_that_wait_in_a_socket_have_not_passed_yet() {
    let mut measured = Measured::new(2, "varys");
    let coflow = measured.pair.register(1);
    let flow = measured.pair.open(coflow, "b", 100_000_000, 0, 1);
    // A megabyte at once into the socket; it leaves in four quarters of a second.
    let now = measured.pair.now;
    measured.pair.agents[0].handle_sent(now, flow, 1_000_000);
    for waiting in [750_000, 500_000, 250_000, 0] {
        measured.pair.now = measured.pair.now + Span::from_millis(250);
        measured.passed[0].sent += 262_500;
        measured.passed[1].received += 262_500;
        measured.look(&BTreeMap::from([(flow, waiting)]));
    }
    let agents = measured.pair.coordinator.status(measured.pair.now).agents;
    assert_eq!((agents[0].foreign_sent_per_s, agents[1].foreign_received_per_s), (0.0, 0.0));
}

#[test]
fn blocks_that_stay_within_a_host_pass_no_interface() {
    let mut measured = Measured::new(2, "varys");
    let coflow = measured.pair.register(1);
    let flow = measured.pair.open(coflow, "b", 100_000_000, 0, 0);
    for _ in 0..4 {
        let now = measured.pair.now;
        measured.pair.agents[0].handle_sent(now, flow, 250_000);
        // 0.42 MB/s are foreign, though Weir moved more than twice that inside the host.
        measured.quarter(105_000, 0);
    }
    assert_rate(measured.pair.rate(0, flow), 610_000.0);
}

#[test]
fn a_link_keeps_a_quarter_of_its_capacity() {
    let mut measured = Measured::new(3, "varys");
    let coflow = measured.pair.register(1);
    let flow = measured.pair.open(coflow, "b", 100_000_000, 2, 1);
    for _ in 0..4 {
        measured.quarter(0, 10_000_000);
    }
    assert_rate(measured.pair.rate(2, flow), CAPACITY / 4.0);
}

#[test]
fn acknowledgements_and_short_bursts_change_no_capacity() {
    let mut measured = Measured::new(3, "varys");
    for quarter in 0..12 {
        // 4 % of the link at all times, and all of it for three quarters in a row.
        let burst = if quarter % 4 < 3 { 252_500 } else { 0 };
        measured.quarter(10_000, 10_000 + burst);
    }
    assert_eq!(measured.counter("capacity_changes"), 0);
}

#[test]
fn the_order_of_coflows_follows_the_capacity_that_is_left() {
    let mut measured = Measured::new(4, "varys");
    // The uplink of host 0 is left with 1.01 - 0.8 MB/s, which a least share makes 0.25 MB/s: one coflow that
    // needs 0.4 s of a free link now needs 1.6 s, the other needs 0.8 s still. They meet at host 3.
    let (through_0, through_1) = (measured.pair.register(1), measured.pair.register(1));
    let first = measured.pair.open(through_0, "a", 400_000, 0, 3);
    let second = measured.pair.open(through_1, "b", 800_000, 1, 3);
    assert_rate(measured.pair.rate(0, first), CAPACITY);
    assert_rate(measured.pair.rate(1, second), 0.0);
    for _ in 0..4 {
        measured.quarter(210_000, 0);
    }
    assert_rate(measured.pair.rate(1, second), CAPACITY);
    assert_rate(measured.pair.rate(0, first), 0.0);
}

#[test]
fn a_host_whose_agent_is_gone_has_its_whole_link_again() {
    let mut measured = Measured::new(3, "varys");
    for _ in 0..4 {
        measured.quarter(0, 105_000);
    }
    let session = measured.pair.sessions[1].unwrap();
    let now = measured.pair.now;
    measured.pair.coordinator.handle_session_lost(now, session);
    let coflow = measured.pair.register(1);
    let flow = measured.pair.open(coflow, "b", 100_000_000, 2, 1);
    assert_rate(measured.pair.rate(2, flow), CAPACITY);
}

#[test]
fn nonsense_in_a_report_is_survived() {
    let mut pair = Pair::new(2);
    let session = pair.sessions[0].unwrap();
    let own = |host, bytes| v1::HostBytes { host, bytes };
    for interval_ns in [0, 1, u64::MAX] {
        let report = v1::InterfaceReport {
            interval_ns,
            sent: u64::MAX,
            received: u64::MAX,
            own: vec![own(7, u64::MAX), own(1, u64::MAX), own(1, u64::MAX)],
        };
        let events = vec![v1::AgentEvent { kind: Some(v1::agent_event::Kind::Interface(report)) }; 5];
        pair.coordinator.handle_agent(pair.now, session, v1::AgentMessage { events });
        pair.settle();
    }
    let coflow = pair.register(1);
    let flow = pair.open(coflow, "b", 1_000_000, 1, 0);
    assert!(pair.rate(1, flow) >= CAPACITY / 4.0);
}
