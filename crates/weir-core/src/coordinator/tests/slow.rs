//! Receivers that read slowly or not at all, beside others.

use super::*;

/// Bytes that a receiver takes per second; infinite: all it is sent.
type Taken = f64;

/// Moves for `millis`: every flow of host 0 writes when it may, and its receiver takes what it takes. Returns the bytes
/// of each flow.
fn run(pair: &mut Pair, flows: &[(FlowNumber, Taken)], millis: u64) -> Vec<u64> {
    run_on(pair, flows, &mut vec![0.0; flows.len()], millis)
}

/// The same, where so many bytes are in the sockets already.
fn run_on(pair: &mut Pair, flows: &[(FlowNumber, Taken)], held: &mut [f64], millis: u64) -> Vec<u64> {
    // What a socket holds while its reader does not read.
    const SOCKET: f64 = 30_000.0;
    let mut sent = vec![0; flows.len()];
    for _ in 0..millis {
        let now = pair.now;
        for (at, &(flow, taken)) in flows.iter().enumerate() {
            held[at] = (held[at] - taken / 1000.0).max(0.0);
            if held[at] < SOCKET {
                pair.agents[0].handle_writable(now, flow);
            }
        }
        while let Some(transmit) = pair.agents[0].poll_transmit(now) {
            let at = flows.iter().position(|&(flow, _)| flow == transmit.flow).unwrap();
            let room = if flows[at].1.is_infinite() { u64::MAX } else { (SOCKET - held[at]).max(0.0) as u64 };
            let bytes = transmit.bytes.min(room);
            if bytes < transmit.bytes {
                pair.agents[0].handle_blocked(now, transmit.flow);
            }
            held[at] += if flows[at].1.is_infinite() { 0.0 } else { bytes as f64 };
            pair.agents[0].handle_sent(now, transmit.flow, bytes);
            sent[at] += bytes;
        }
        pair.wait(1);
    }
    sent
}

/// A slow reader of a coflow that goes first, and another coflow on the same uplink. The links carry 1 MB/s.
fn beside_a_reader_of(taken: Taken, policy: &str) -> Vec<u64> {
    let mut pair = Pair::under(config(3, 1), policy);
    let (slow, other) = (pair.register(1), pair.register(1));
    let small = pair.open(slow, "small", 5_000_000, 0, 1);
    let large = pair.open(other, "large", 50_000_000, 0, 2);
    let flows = [(small, taken), (large, f64::INFINITY)];
    // A second in which it shows, and three that count.
    run(&mut pair, &flows, 1000);
    run(&mut pair, &flows, 3000)
}

#[test]
fn what_a_stalled_or_slow_reader_leaves_goes_to_others_under_every_policy() {
    for policy in [
        "varys",
        "varys:delta=200ms",
        "fair",
        "fair-coflows",
        "fifo",
        "scf",
        "dclas",
        "dclas-strict",
        "baraat",
    ] {
        for taken in [0.0, 10_000.0] {
            let sent = beside_a_reader_of(taken, policy);
            // Alone the large coflow would get 3 MB in these three seconds. The slow one is offered a 64th of the link
            // at least, and what it takes is a hundredth at most.
            assert!(sent[1] >= 2_700_000, "{policy} beside a reader of {taken} B/s: {} bytes", sent[1]);
            let most = 30_000.0 + 3.0 * taken.max(CAPACITY / 64.0);
            assert!((sent[0] as f64) < most, "{policy}: the slow reader got {} bytes", sent[0]);
        }
    }
}

#[test]
fn a_reader_that_reads_again_gets_its_rate_back() {
    let mut pair = Pair::new(3);
    let (first, second) = (pair.register(1), pair.register(1));
    let small = pair.open(first, "small", 5_000_000, 0, 1);
    let large = pair.open(second, "large", 50_000_000, 0, 2);
    run(&mut pair, &[(small, 0.0), (large, f64::INFINITY)], 1000);
    assert!(pair.rate(0, large) > 0.9 * CAPACITY, "{}", pair.rate(0, large));
    // From a 64th of the link six doublings lead back, each after 49,152 bytes or half a second.
    run(&mut pair, &[(small, f64::INFINITY), (large, f64::INFINITY)], 4000);
    assert_rate(pair.rate(0, small), CAPACITY);
    assert_rate(pair.rate(0, large), 0.0);
}

#[test]
fn no_rate_that_is_told_is_above_the_link_however_long_a_reader_sleeps() {
    let mut pair = Pair::new(3);
    let (first, second) = (pair.register(1), pair.register(1));
    let small = pair.open(first, "small", 200_000, 0, 1);
    let large = pair.open(second, "large", 50_000_000, 0, 2);
    let mut held = [0.0; 2];
    for _ in 0..50 {
        run_on(&mut pair, &[(small, 0.0), (large, f64::INFINITY)], &mut held, 100);
        let told = pair.rate(0, small) + pair.rate(0, large);
        assert!(told <= 1.02 * CAPACITY, "{told} told to one uplink");
        let status = pair.coordinator.status(pair.now);
        for coflow in &status.coflows {
            assert!(coflow.rate_bytes_per_s <= 1.02 * CAPACITY, "{coflow:?}");
        }
    }
}

#[test]
fn no_rate_that_is_shown_is_above_the_link_when_far_more_is_left_than_was_said() {
    let mut pair = Pair::new(3);
    let (coflow, other) = (pair.register(1), pair.register(1));
    let flow = pair.open(coflow, "lied-about", 50_000_000, 0, 1);
    pair.open(other, "beside", 50_000_000, 0, 2);
    let session = pair.sessions[0].unwrap();
    // As if all but a byte had moved, which is what the next plan is made for; then as if nothing had.
    pair.coordinator.handle_agent(pair.now, session, super::defects::progress(flow, 49_999_999));
    pair.now = pair.now + Span::from_millis(20);
    pair.coordinator.plan_now(pair.now);
    pair.coordinator.handle_agent(pair.now, session, super::defects::progress(flow, 0));
    let shown: Vec<f64> =
        pair.coordinator.status(pair.now).coflows.iter().map(|c| c.rate_bytes_per_s).collect();
    assert!(shown[0] > 0.0 && shown.iter().sum::<f64>() <= 1.02 * CAPACITY, "{shown:?} B/s");
}

#[test]
fn a_coordinator_that_restarted_hears_again_what_flows_can_use() {
    let mut pair = Pair::new(3);
    let (first, second) = (pair.register(1), pair.register(1));
    let small = pair.open(first, "small", 5_000_000, 0, 1);
    let large = pair.open(second, "large", 50_000_000, 0, 2);
    let (flows, mut held) = ([(small, 0.0), (large, f64::INFINITY)], [0.0; 2]);
    run_on(&mut pair, &flows, &mut held, 1000);
    pair.restart_coordinator(1 << 30);
    pair.connect_all();
    run_on(&mut pair, &flows, &mut held, 100);
    // The small coflow goes first again, and is offered what it showed that it takes: a 64th of the link.
    assert_rate(pair.rate(0, small), CAPACITY / 64.0);
    assert_rate(pair.rate(0, large), CAPACITY * 63.0 / 64.0);
}

#[test]
fn a_flow_that_its_path_holds_up_keeps_its_rate_and_catches_up() {
    let mut pair = Pair::new(3);
    pair.path_is_full = true;
    let (first, second) = (pair.register(1), pair.register(1));
    let small = pair.open(first, "small", 5_000_000, 0, 1);
    let large = pair.open(second, "large", 50_000_000, 0, 2);
    run(&mut pair, &[(small, 100_000.0), (large, f64::INFINITY)], 1000);
    assert!(pair.rate(0, small) >= CAPACITY, "{}", pair.rate(0, small));
    assert_rate(pair.rate(0, large), 0.0);
}
