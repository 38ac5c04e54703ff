//! What is under way to a neighbour, over a link in virtual time.

use super::super::facts::{HopId, Output, RelayConfig, UpstreamId, UpstreamKind};
use super::super::flight::{Flight, UnderWay};
use super::super::state::Relay;
use super::super::window::WINDOW_BYTES;
use super::network::{address, key};
use std::collections::VecDeque;
use weir_model::{Span, Time};
use weir_proto::relay::{HOP_LIMIT, Header, Kind, MAX_DATA_BYTES, OPEN_BYTES, Open};
use weir_proto::v1;

const MESSAGE: u64 = MAX_DATA_BYTES as u64;
/// Bytes that are acknowledged together.
const SEGMENT: u64 = 16_384;
const MS: Span = Span::from_millis(1);

/// A relay that sends to another one over a link, first come first served.
struct Scene {
    now: Time,
    relay: Relay<()>,
    hop: HopId,
    /// Bytes per second, and the round trip when nothing waits.
    rate: f64,
    round_trip: Span,
    /// The round trip as the kernel has it.
    known_round_trip: Span,
    /// When the link has carried all that was written.
    free: Time,
    /// When bytes are acknowledged.
    acknowledged: VecDeque<(Time, u64)>,
    /// Bytes that were acknowledged.
    carried: u64,
    /// Whether flow 1 has more to send.
    has_more: bool,
    /// By flow, bytes that came.
    came: [u64; 2],
    /// When the last byte of each flow so far has left the link.
    left: [Time; 2],
    /// The longest that the link was busy with what had been written, lately.
    ahead: Span,
}

impl Scene {
    /// Flow 0 has a better rank than flow 1, which has more to send than ever gets through.
    fn new(rate: f64, round_trip: Span) -> Scene {
        let config = RelayConfig {
            name: "r0".to_owned(),
            site: 0,
            address: address(0),
            started_ms: 0,
            window_bytes: WINDOW_BYTES,
        };
        let now = Time::from_millis(1_000);
        let mut relay = Relay::new(config);
        let entry = v1::RelayEntry { relay: "r1".to_owned(), site: 1, data_address: address(1).to_string() };
        let list = v1::RelayList { relays: vec![entry] };
        relay.handle_controller(now, &v1::ToRelay { kind: Some(v1::to_relay::Kind::Relays(list)) });
        let rule = |flow: u32| v1::Rule {
            prefix: Some(v1::FlowPrefix { coflow: Some(1), reducer: Some(flow), mapper: None }),
            next_hops: vec![v1::NextHop { to: Some(v1::next_hop::To::Deliver(true)), weight: 1.0 }],
            rank: flow.into(),
            weight: 1.0,
            entering: true,
        };
        let rules = v1::Rules { epoch: 1, set: vec![rule(0), rule(1)], ..v1::Rules::default() };
        relay.handle_controller(now, &v1::ToRelay { kind: Some(v1::to_relay::Kind::Rules(rules)) });
        let dialled = std::iter::from_fn(|| relay.poll_output()).find_map(|output| match output {
            Output::Dial { hop, .. } => Some(hop),
            _ => None,
        });
        let hop = dialled.unwrap();
        relay.handle_hop_up(now, hop);
        for flow in 0..2 {
            open(&mut relay, now, flow);
            relay.handle_credit(hop, key(flow), 1 << 40);
        }
        Scene {
            now,
            relay,
            hop,
            rate,
            round_trip,
            known_round_trip: round_trip,
            free: now,
            acknowledged: VecDeque::new(),
            carried: 0,
            has_more: true,
            came: [0; 2],
            left: [now; 2],
            ahead: Span::ZERO,
        }
    }

    fn send(&mut self, flow: u32) {
        let (from, at) = (UpstreamId(1000 + u64::from(flow)), flow as usize);
        let header = Header::data(key(flow), HOP_LIMIT, self.came[at], MESSAGE as u32);
        self.relay.handle_data(self.now, from, &header, ());
        self.came[at] += MESSAGE;
    }

    fn unacknowledged(&self) -> u64 {
        self.acknowledged.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Lets time pass; the relay wakes every `step`.
    fn run(&mut self, span: Span, step: Span) {
        let end = self.now + span;
        self.ahead = Span::ZERO;
        while self.now < end {
            self.now = self.now + step;
            while self.acknowledged.front().is_some_and(|(at, _)| *at <= self.now) {
                self.carried += self.acknowledged.pop_front().map_or(0, |(_, bytes)| bytes);
            }
            while self.has_more && self.relay.held() < 8 * MESSAGE {
                self.send(1);
            }
            if self.relay.next_timeout().is_some_and(|next| next <= self.now) {
                self.relay.handle_timeout(self.now);
            }
            while self.relay.poll_output().is_some() {}
            self.write();
            self.ahead = self.ahead.max(self.free.since(self.now));
        }
    }

    fn write(&mut self) {
        loop {
            if self.relay.wants_look(self.now, self.hop) {
                let unacknowledged = self.unacknowledged();
                let seen = UnderWay { unacknowledged, unwritten: 0, round_trip: self.known_round_trip };
                self.relay.handle_under_way(self.now, self.hop, seen);
            }
            let Some(message) = self.relay.poll_message(self.hop) else { return };
            let mut left = u64::from(message.length);
            while left > 0 {
                let bytes = left.min(SEGMENT);
                self.free = self.free.max(self.now) + Span::from_secs_ceil(bytes as f64 / self.rate);
                self.acknowledged.push_back((self.free + self.round_trip, bytes));
                left -= bytes;
            }
            self.left[message.key.reducer as usize] = self.free;
            self.relay.handle_written(self.now, self.hop, message.length.into(), false);
        }
    }

    /// Share of the link's time that it carried something, over `span`.
    fn used(&mut self, span: Span, step: Span) -> f64 {
        let before = self.carried;
        self.run(span, step);
        (self.carried - before) as f64 / self.rate / span.as_secs()
    }
}

fn open(relay: &mut Relay<()>, now: Time, flow: u32) {
    let (length, number) = (OPEN_BYTES as u32, 1 << 40);
    let header = Header { kind: Kind::Open, hop_limit: HOP_LIMIT, length, key: key(flow), number };
    let open = Open { source_site: 0, destination_site: 1, destination: address(1) };
    relay.handle_open(now, UpstreamId(1000 + u64::from(flow)), UpstreamKind::Host, &header, open);
}

/// At 5 MB/s and 10 ms, 40 ms are 200 kB; with the message on top 462 kB, which take 92.4 ms. The message itself takes
/// 52.4 ms. Rates are measured to a segment in 50 ms (6.6 %), and the relay wakes within 1 ms.
#[test]
fn a_message_of_a_better_rank_overtakes_all_but_what_is_under_way() {
    let mut scene = Scene::new(5e6, Span::from_millis(10));
    scene.run(Span::from_millis(2_000), MS);
    let came = scene.now;
    scene.send(0);
    scene.run(Span::from_millis(200), MS);
    let took = scene.left[0].since(came).as_secs() * 1e3;
    assert!(took > 52.4 && took < 52.4 + 92.4 + 4.0, "{took} ms");
}

#[test]
fn a_link_with_messages_is_full_and_what_stands_before_it_is_bounded_in_time() {
    for (rate, round_trip_ms) in [(1e6, 1), (5e6, 10), (20e6, 100), (100e6, 1), (100e6, 200)] {
        let mut scene = Scene::new(rate, Span::from_millis(round_trip_ms));
        scene.run(Span::from_millis(4_000), MS);
        let used = scene.used(Span::from_millis(4_000), MS);
        assert!(used > 0.99, "{used} of {rate} at {round_trip_ms} ms");
        // A round trip, 20 ms, 1 to wake and a message; and a tenth for what rates are measured to.
        let most = 1.1 * (0.021 + 1e-3 * round_trip_ms as f64 + MESSAGE as f64 / rate);
        assert!(scene.ahead.as_secs() < most, "{:?} before {rate} at {round_trip_ms} ms", scene.ahead);
    }
}

#[test]
fn a_link_whose_rate_changes_is_full_again_and_no_queue_stays() {
    let mut scene = Scene::new(5e6, Span::from_millis(20));
    scene.run(Span::from_millis(2_000), MS);
    scene.rate = 40e6;
    scene.run(Span::from_millis(1_000), MS);
    assert!(scene.used(Span::from_millis(1_000), MS) > 0.99);
    scene.rate = 2e6;
    scene.run(Span::from_millis(3_000), MS);
    assert!(scene.used(Span::from_millis(1_000), MS) > 0.99);
    // Two round trips, 20 ms and 1; a message of 131 ms; and a tenth for what rates are measured to.
    assert!(scene.ahead < Span::from_millis(215), "{:?}", scene.ahead);
}

/// What is not there to be sent says nothing of the link.
#[test]
fn a_link_that_was_idle_is_not_taken_for_slow() {
    let mut scene = Scene::new(20e6, Span::from_millis(10));
    scene.run(Span::from_millis(2_000), MS);
    scene.has_more = false;
    scene.run(Span::from_millis(5_000), MS);
    assert_eq!(scene.relay.held(), 0);
    scene.has_more = true;
    scene.run(Span::from_millis(100), MS);
    assert!(scene.used(Span::from_millis(1_000), MS) > 0.98);
}

/// The kernel still says 50 ms. At 20 MB/s and 100 ms, 2 MB must be under way; 2 * 50 + 20 ms are 2.4 MB.
#[test]
fn a_link_whose_round_trip_doubles_stays_full() {
    let mut scene = Scene::new(20e6, Span::from_millis(50));
    scene.run(Span::from_millis(2_000), MS);
    scene.round_trip = Span::from_millis(100);
    scene.run(Span::from_millis(500), MS);
    let used = scene.used(Span::from_millis(10_000), MS);
    assert!(used > 0.99, "{used}");
}

/// Such a link is empty at most looks. A limit that is too low holds it for 10 ms all the same: four messages in 10 ms are
/// 104 MB/s, of which 20 ms are 2.1 MB.
#[test]
fn a_link_that_drains_at_once_is_not_taken_for_slow() {
    let (mut flight, mut now) = (Flight::default(), Time::from_millis(1_000));
    let seen = |unacknowledged| UnderWay { unacknowledged, ..UnderWay::default() };
    // 16 kB and more under way, and 50 kB in 50 ms.
    for unacknowledged in [100_000, 50_000] {
        flight.look(now, seen(unacknowledged));
        flight.note_written(100_000);
        now = now + Span::from_millis(50);
    }
    flight.look(now, seen(50_000));
    for _ in 0..20 {
        for unacknowledged in [0, 0, 0, MESSAGE] {
            flight.look(now, seen(unacknowledged));
            flight.note_gone(MESSAGE);
            flight.note_written(MESSAGE);
        }
        now = now + Span::from_millis(10);
    }
    assert!(flight.limit() > 2_000_000, "{flight:?}");
}
