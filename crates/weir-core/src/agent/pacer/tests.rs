//! Flows with rates, without, and in classes.

use super::*;
use proptest::prelude::*;

fn ms(millis: u64) -> Time {
    Time::from_millis(millis)
}
fn rated(bytes_per_sec: f64) -> Pacing {
    Pacing::Rated(Rate::from_bytes_per_sec(bytes_per_sec))
}
fn poll(pacer: &mut Pacer, now: Time) -> Option<(u64, u64)> {
    pacer.poll(now).map(|transmit| (transmit.flow.0, transmit.bytes))
}
#[test]
fn a_short_flow_is_written_as_one_and_a_longer_one_begins_with_a_segment() {
    let mut pacer = Pacer::new(1);
    for (flow, left, first) in [(1, 4_096, 4_096), (2, 5_792, 5_792), (3, 5_793, 1_448)] {
        pacer.insert(ms(0), FlowNumber(flow), left, rated(1e6));
        // Nothing of it can be under way.
        let transmit = pacer.poll(ms(0)).unwrap();
        assert_eq!((transmit.bytes, transmit.in_flight_limit), (first, u64::MAX));
        pacer.sent(ms(0), FlowNumber(flow), first);
        pacer.remove(FlowNumber(flow));
        pacer.host_ready = Time::ZERO;
    }
    // What was begun is bounded: at 1 MB/s and a round trip of nothing, 2,500 bytes less a chunk, or a segment.
    pacer.insert(ms(0), FlowNumber(4), 100_000, rated(1e6));
    let first = pacer.poll(ms(0)).unwrap();
    pacer.sent(ms(0), FlowNumber(4), first.bytes);
    assert!(pacer.poll(ms(20)).unwrap().in_flight_limit < 2_500);
}

/// Writes whatever is due until `end` and returns the bytes.
fn drain(pacer: &mut Pacer, from: Time, end: Time) -> u64 {
    let (mut now, mut total) = (from, 0);
    while let Some(next) = pacer.next_timeout().filter(|&next| next <= end) {
        now = now.max(next);
        while let Some(Transmit { flow, bytes, .. }) = pacer.poll(now) {
            pacer.sent(now, flow, bytes);
            total += bytes;
        }
    }
    total
}

#[test]
fn a_rated_flow_gets_its_rate_and_starts_at_once() {
    let mut pacer = Pacer::default();
    pacer.insert(ms(0), FlowNumber(1), u64::MAX, rated(1e6));
    assert_eq!(poll(&mut pacer, ms(0)), Some((1, 1448)));
    pacer.sent(ms(0), FlowNumber(1), 1448);
    // 1 MB/s for 100 ms is 100,000 bytes; the chunk under way may be missing, and the first two
    // chunks (1448 and 11,584 bytes) come early.
    let sent = drain(&mut pacer, ms(0), ms(100)) + 1448;
    assert!((88_416..=113_032).contains(&sent), "{sent}");
}

#[test]
fn a_stalled_flow_does_not_catch_up_at_line_rate() {
    let mut pacer = Pacer::default();
    pacer.insert(ms(0), FlowNumber(1), u64::MAX, rated(1e6));
    pacer.blocked(ms(0), FlowNumber(1));
    assert_eq!(poll(&mut pacer, ms(5000)), None);
    pacer.writable(ms(5000), FlowNumber(1));
    pacer.sent(ms(5000), FlowNumber(1), 1448);
    // Bucket: a first chunk of 1448 and 16 ms at 1 MB/s, though 5 s passed; the first chunk takes the
    // host a little over 1 ms, so the rest comes after it, with what 2 ms more bring.
    assert_eq!(poll(&mut pacer, ms(5002)), Some((1, 16_000 + 2000)));
}

#[test]
fn a_higher_rate_brings_the_next_chunk_forward() {
    let mut pacer = Pacer::default();
    pacer.insert(ms(0), FlowNumber(1), u64::MAX, rated(1e5));
    pacer.sent(ms(0), FlowNumber(1), 1448);
    assert!(pacer.next_timeout().unwrap() > ms(10));
    pacer.set(ms(10), FlowNumber(1), rated(1e7));
    assert!(pacer.next_timeout().unwrap() < ms(14));
}

#[test]
fn flows_that_fall_due_at_once_are_spaced_at_the_sum_of_their_rates() {
    // 15 flows at 0.1 MB/s, all with a full bucket: together 1.5 MB/s.
    let mut pacer = Pacer::default();
    for flow in 0..15 {
        pacer.insert(ms(0), FlowNumber(flow), u64::MAX, rated(1e5));
    }
    drain(&mut pacer, ms(0), ms(200));
    for flow in 0..15 {
        pacer.blocked(ms(200), FlowNumber(flow));
    }
    for flow in 0..15 {
        pacer.writable(ms(300), FlowNumber(flow));
    }
    // At most 10 ms x 1.65 MB/s, 0.7 ms ahead of it, and the chunk that passes the limit.
    let burst = drain(&mut pacer, ms(300), ms(310));
    assert!(burst as f64 <= 1.65e6 * 0.0107 + 2.0 * MIN_CHUNK_BYTES, "{burst}");
}

#[test]
fn a_flow_that_crawls_does_not_hold_up_those_that_come_after_it() {
    let mut pacer = Pacer::default();
    pacer.insert(ms(0), FlowNumber(1), 1448, rated(1.0));
    assert_eq!(poll(&mut pacer, ms(0)), Some((1, 1448)));
    pacer.sent(ms(0), FlowNumber(1), 1448);
    // At the sum of the rates, 1 B/s, what was sent takes 22 minutes to leave the host.
    pacer.insert(ms(1), FlowNumber(2), 1_000_000, rated(1e6));
    assert!(pacer.next_timeout().unwrap() <= ms(10));
    assert_eq!(poll(&mut pacer, ms(10)).map(|(flow, _)| flow), Some(2));
}

#[test]
fn a_fast_flow_does_not_wait_for_what_a_slow_one_sent() {
    let mut pacer = Pacer::default();
    pacer.insert(ms(0), FlowNumber(1), u64::MAX, rated(1e6));
    drain(&mut pacer, ms(0), ms(100));
    // The last 5792 bytes take 5.3 ms at 1.1 times 1 MB/s, but at 1.1 times 11 MB/s less than 0.5 ms.
    pacer.insert(ms(100), FlowNumber(2), u64::MAX, rated(1e7));
    assert!(pacer.next_timeout().unwrap() <= ms(100));
    assert_eq!(poll(&mut pacer, ms(100)), Some((2, 1448)));
}

#[test]
fn what_a_fast_flow_left_does_not_hold_up_a_slow_one() {
    let mut pacer = Pacer::default();
    pacer.insert(ms(0), FlowNumber(1), 50_000, rated(1e7));
    pacer.insert(ms(0), FlowNumber(2), 1, rated(100.0));
    pacer.sent(ms(1), FlowNumber(1), 50_000);
    // 50,000 bytes take 4.5 ms at 1.1 times 10 MB/s; the slow flow alone would need 8 minutes.
    pacer.remove(FlowNumber(1));
    assert!(pacer.next_timeout().unwrap() <= ms(6));
    assert_eq!(poll(&mut pacer, ms(6)), Some((2, 1)));
}

#[test]
fn a_flow_waits_while_more_is_under_way_than_its_rate_and_an_empty_path_explain() {
    let mut pacer = Pacer::default();
    pacer.insert(ms(0), FlowNumber(1), u64::MAX, rated(1e7));
    pacer.sent(ms(0), FlowNumber(1), 1448);
    // Chunks of 20,000 bytes at 10 MB/s; 25,000 may be under way, so 5,000 when the next one is written.
    assert_eq!(pacer.poll(ms(5)).unwrap().in_flight_limit, 5_000);
    // 30,000 too many leave in 3 ms, if they leave as planned.
    let crowd = Crowd { in_flight: 35_000, round_trip: Span::ZERO, segment_bytes: 1448 };
    pacer.crowded(ms(5), FlowNumber(1), crowd);
    assert_eq!((pacer.poll(ms(7)), pacer.next_timeout()), (None, Some(ms(8))));
    // A path of 20 ms holds 200,000 bytes more before any queue does: write at once.
    assert_eq!(pacer.poll(ms(8)).unwrap().in_flight_limit, 5_000);
    pacer.crowded(ms(8), FlowNumber(1), Crowd { round_trip: Span::from_millis(20), ..crowd });
    assert_eq!(pacer.poll(ms(8)).unwrap().in_flight_limit, 205_000);
}

#[test]
fn a_slow_flow_may_leave_one_segment_unacknowledged() {
    let mut pacer = Pacer::default();
    pacer.insert(ms(0), FlowNumber(1), u64::MAX, rated(1e5));
    pacer.sent(ms(0), FlowNumber(1), 1448);
    assert_eq!(pacer.poll(ms(100)).unwrap().in_flight_limit, 0);
    let crowd = Crowd { in_flight: 8948, round_trip: Span::ZERO, segment_bytes: 8948 };
    pacer.crowded(ms(100), FlowNumber(1), crowd);
    assert_eq!(pacer.poll(ms(100)).unwrap().in_flight_limit, 8948);
}

/// Flows without a rate, in these classes, at a host whose link carries 10 MB/s.
fn in_classes(classes: &[Option<u8>]) -> Pacer {
    let mut pacer = Pacer::default();
    pacer.set_uplink(1e7);
    for (flow, &class) in (1..).map(FlowNumber).zip(classes) {
        pacer.insert(ms(0), flow, u64::MAX, Pacing::Unscheduled);
        pacer.place(flow, class);
    }
    pacer
}

/// Flows that write until `end`, each of them all that it may.
fn writers(pacer: &mut Pacer, from: Time, end: Time) -> Vec<u64> {
    let (mut now, mut writers) = (from, Vec::new());
    while let Some(next) = pacer.next_timeout().filter(|&next| next <= end) {
        now = now.max(next);
        while let Some(Transmit { flow, bytes, .. }) = pacer.poll(now) {
            pacer.sent(now, flow, bytes);
            writers.push(flow.0);
        }
    }
    writers
}

#[test]
fn classes_go_one_after_the_other_at_what_the_link_carries() {
    let mut pacer = in_classes(&[Some(1), Some(0), Some(1), Some(0)]);
    // 20,000 bytes at a time, at 10 MB/s: the flows of a class in turn.
    assert_eq!(writers(&mut pacer, ms(0), ms(8)), [2, 4, 2, 4, 2]);
    pacer.place(FlowNumber(3), Some(0));
    assert_eq!(writers(&mut pacer, ms(8), ms(15)), [4, 2, 3]);
    // Those that wait for their receivers keep no other waiting.
    for at in [20, 21, 22] {
        let flow = pacer.poll(ms(at)).unwrap().flow;
        assert!(flow != FlowNumber(1));
        pacer.blocked(ms(at), flow);
        pacer.sent(ms(at), flow, 0);
    }
    assert_eq!(writers(&mut pacer, ms(25), ms(28)), [1, 1]);
    pacer.writable(ms(28), FlowNumber(4));
    assert_eq!(writers(&mut pacer, ms(31), ms(32)), [4]);
    pacer.remove(FlowNumber(4));
    pacer.remove(FlowNumber(1));
    assert_eq!((pacer.poll(ms(100)), pacer.next_timeout()), (None, None));
}

#[test]
fn a_slow_link_is_handed_no_more_than_it_carries_either() {
    let mut pacer = in_classes(&[Some(0)]);
    // 1 Mbit/s: 93 ms for a chunk of 11,584 bytes.
    pacer.set_uplink(125_000.0);
    assert_eq!(writers(&mut pacer, ms(0), ms(1_000)).len(), 11);
    // A rate that is next to nothing stops no flow for long.
    pacer.set_uplink(1.0);
    assert_eq!(writers(&mut pacer, ms(1_100), ms(2_050)).len(), 10);
}

#[test]
fn who_is_in_no_class_or_has_a_rate_waits_for_no_class() {
    let mut pacer = in_classes(&[Some(0), None]);
    assert_eq!(poll(&mut pacer, ms(0)), Some((2, UNSCHEDULED_BYTES)));
    pacer.sent(ms(0), FlowNumber(2), u64::MAX);
    assert_eq!(poll(&mut pacer, ms(0)), Some((1, 20_000)));
    pacer.sent(ms(0), FlowNumber(1), 20_000);
    assert_eq!(poll(&mut pacer, ms(0)), None);
    pacer.place(FlowNumber(1), None);
    assert_eq!(poll(&mut pacer, ms(0)), Some((1, UNSCHEDULED_BYTES)), "TCP alone decides again");
    pacer.sent(ms(0), FlowNumber(1), 1);
    pacer.place(FlowNumber(1), Some(3));
    pacer.set(ms(0), FlowNumber(1), rated(1e6));
    pacer.set(ms(0), FlowNumber(1), Pacing::Paused);
    assert_eq!((pacer.poll(ms(1_000)), pacer.next_timeout()), (None, None));
    pacer.set(ms(1_000), FlowNumber(1), Pacing::Unscheduled);
    assert_eq!(poll(&mut pacer, ms(1_000)), Some((1, 20_000)));
    // Where nobody said what the link carries there is an order alone.
    let mut pacer = in_classes(&[Some(1), Some(0)]);
    pacer.set_uplink(0.0);
    for _ in 0..3 {
        assert_eq!(poll(&mut pacer, ms(0)), Some((2, UNSCHEDULED_BYTES)));
        pacer.sent(ms(0), FlowNumber(2), UNSCHEDULED_BYTES);
    }
}

#[test]
fn paused_flows_are_never_due_and_unscheduled_ones_always() {
    let mut pacer = Pacer::default();
    pacer.insert(ms(0), FlowNumber(1), 10, Pacing::Paused);
    pacer.insert(ms(0), FlowNumber(2), 10, Pacing::Unscheduled);
    assert_eq!(poll(&mut pacer, ms(1)).map(|(flow, _)| flow), Some(2));
    pacer.sent(ms(1), FlowNumber(2), 10);
    assert_eq!((poll(&mut pacer, ms(9)), pacer.next_timeout()), (None, None));
}

proptest! {
    #[test]
    fn never_more_than_the_rates_allow(
        changes in proptest::collection::vec((0u64..50, 0.0f64..5e7, 0u8..3), 1..60),
    ) {
        let mut pacer = Pacer::default();
        let (mut now, mut allowed, mut sent, mut rate) = (ms(0), 1448.0 + MIN_CHUNK_BYTES, 0, 0.0);
        pacer.insert(now, FlowNumber(7), u64::MAX, Pacing::Paused);
        let mut slack: f64 = 0.0;
        for (wait, next, kind) in changes {
            let end = now + Span::from_millis(wait);
            sent += drain(&mut pacer, now, end);
            allowed += rate * end.since(now).as_secs();
            now = end;
            rate = if kind == 0 { 0.0 } else { next };
            slack = slack.max(rate * BUCKET_TIME_S + MAX_CHUNK_BYTES);
            pacer.set(now, FlowNumber(7), Pacing::Rated(Rate::from_bytes_per_sec(rate)));
            prop_assert!(sent as f64 <= allowed + slack, "{sent} {allowed}");
        }
    }
}
