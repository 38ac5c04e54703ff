//! Rates that a port gives to flows that ask (D3: Wilson, Ballani, Karagiannis, Rowstron, SIGCOMM 2011, section 4).
//!
//! A port keeps three numbers and nothing of single flows: how many flows there are (N), what they ask for together (D)
//! and what it has given them (A). A request brings back what the flow asked for and was given last time. First come is
//! first served: a request gets what it asks for if so much is left of the capacity, and a fair share of what no flow
//! asks for on top; otherwise it gets what is left. No flow gets less than the base rate, one header a round trip, by
//! which a flow that pauses can go on asking.
//!
//! **Ours.** The paper adapts the capacity to use and queue, C <- C + alpha (C - u / T) - beta q / T, every T. Here that
//! is done when a request finds that T has passed, so that idle ports cost nothing. `q` is the least queue that a request
//! met since then, as in XCP: packets of paced flows that happen to meet are no congestion. The capacity stays
//! between half the link and all of it. Formula and weights (0.1 and 1) are from memory of the paper, not from its text.

use crate::setup::Giving;
use crate::time::Picos;
use weir_model::Rate;

/// The least share of a link that is given away, however long its queue.
const LEAST_CAPACITY: f64 = 0.5;

/// What a flow and a port know of each other since the flow's last request. Whole bytes per second, so that sums over
/// flows come back to zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Given {
    asked: u64,
    given: u64,
    /// The flow is one of those that the port counts.
    pub(crate) counted: bool,
}

impl Given {
    /// What the port gave.
    pub(crate) fn rate(&self) -> Rate {
        Rate::from_bytes_per_sec(self.given as f64)
    }
}

/// What a port keeps in order to give rates to flows.
#[derive(Clone, Debug)]
pub(crate) struct Allocator {
    giving: Giving,
    /// Of the link, and what of it may be given; bytes per second.
    link: f64,
    capacity: f64,
    flows: u64,
    asked: u64,
    given: u64,
    /// When the capacity was last adapted, and what the port had sent then.
    adapted: Picos,
    sent_then: u64,
    /// The least queue a request met since.
    least_queue: u64,
}

impl Allocator {
    pub(crate) fn new(giving: Giving, link: Rate) -> Allocator {
        let link = link.bytes_per_sec();
        Allocator {
            giving,
            link,
            capacity: link,
            flows: 0,
            asked: 0,
            given: 0,
            adapted: Picos::ZERO,
            sent_then: 0,
            least_queue: u64::MAX,
        }
    }

    /// A request meets so many bytes waiting at a port that has sent so many.
    pub(crate) fn adapt(&mut self, now: Picos, sent: u64, queued: u64) {
        self.least_queue = self.least_queue.min(queued);
        let span = now.since(self.adapted);
        if span < self.giving.round_trip {
            return;
        }
        let used = (sent - self.sent_then) as f64 / span.as_secs();
        // The rate that drains the least queue within a round trip.
        let excess = self.least_queue as f64 / self.giving.round_trip.as_secs();
        let adapted = self.capacity + self.giving.alpha * (self.link - used) - self.giving.beta * excess;
        self.capacity = adapted.clamp(self.link * LEAST_CAPACITY, self.link);
        // The next request sets the least queue anew.
        (self.adapted, self.sent_then, self.least_queue) = (now, sent, u64::MAX);
    }

    /// Gives a flow a rate for one that it asks for, and takes the last one back.
    pub(crate) fn give(&mut self, last: &mut Given, asks: Rate) {
        self.take_back(last);
        let asks = asks.bytes_per_sec() as u64;
        self.flows += 1;
        self.asked += asks;
        let capacity = self.capacity as u64;
        let left = capacity.saturating_sub(self.given);
        // The flow that asks is counted by now, so `flows` is not 0. Where flows ask for more than
        // there is, nothing is left to share.
        let fair = capacity.saturating_sub(self.asked) / self.flows;
        // `given` may exceed the capacity, which shrinks, and which base rates do not heed: `left` is then zero.
        let gives = if left > asks { asks + fair } else { left };
        let gives = gives.max(self.giving.base.bytes_per_sec() as u64);
        self.given += gives;
        *last = Given { asked: asks, given: gives, counted: true };
    }

    /// A flow that the port counts is over.
    pub(crate) fn take_back(&mut self, last: &mut Given) {
        if last.counted {
            self.flows -= 1;
            self.asked -= last.asked;
            self.given -= last.given;
        }
        *last = Given::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Picos = Picos::from_micros(100);

    /// 1000 MB/s, of which a flow gets at least 0.4.
    fn allocator() -> Allocator {
        let giving = Giving { round_trip: T, alpha: 0.1, beta: 1.0, base: mb(0.4) };
        Allocator::new(giving, mb(1000.0))
    }

    fn mb(rate: f64) -> Rate {
        Rate::from_bytes_per_sec(rate * 1e6)
    }

    fn ask(allocator: &mut Allocator, last: &mut Given, rate: f64) -> f64 {
        allocator.give(last, mb(rate));
        last.rate().bytes_per_sec() / 1e6
    }

    #[test]
    fn a_request_gets_what_it_asks_for_and_a_fair_share_of_the_rest() {
        let mut port = allocator();
        let mut flows = [Given::default(); 3];
        // Alone: 300 + (1000 - 300) / 1.
        assert_eq!(ask(&mut port, &mut flows[0], 300.0), 1000.0);
        // Nothing is left, so the base rate; then the first returns its own: 300 + (1000 - 500) / 2, and 450 are left.
        assert_eq!(ask(&mut port, &mut flows[1], 200.0), 0.4);
        assert_eq!(ask(&mut port, &mut flows[0], 300.0), 550.0);
        assert_eq!(ask(&mut port, &mut flows[1], 200.0), 450.0);
        // One more without a deadline: (1000 - 500) / 3 for each beyond what it asks, once all have asked again.
        ask(&mut port, &mut flows[2], 0.0);
        let all: Vec<f64> =
            [(0, 300.0), (1, 200.0), (2, 0.0)].map(|(i, rate)| ask(&mut port, &mut flows[i], rate)).to_vec();
        let third = 500.0 / 3.0;
        for (is, theory) in all.iter().zip([300.0 + third, 200.0 + third, third]) {
            assert!((is - theory).abs() < 1e-5, "{is}, in theory {theory}");
        }
    }

    #[test]
    fn first_come_is_first_served_where_more_is_asked_for_than_there_is() {
        let mut port = allocator();
        let mut flows = [Given::default(); 3];
        for _ in 0..3 {
            for (flow, asks) in flows.iter_mut().zip([600.0, 500.0, 100.0]) {
                ask(&mut port, flow, asks);
            }
        }
        // 600 of 1000; then the 400 that are left; then nothing. Urgency counts for nothing.
        assert_eq!(flows.map(|flow| flow.rate().bytes_per_sec() / 1e6), [600.0, 399.6, 0.4]);
    }

    #[test]
    fn flows_that_leave_leave_nothing_behind() {
        let mut port = allocator();
        let mut flows = [Given::default(); 5];
        for round in 0..7 {
            for (i, flow) in flows.iter_mut().enumerate() {
                ask(&mut port, flow, (i * round) as f64 * 33.3);
            }
        }
        for flow in &mut flows {
            port.take_back(flow);
            port.take_back(flow);
        }
        assert_eq!((port.flows, port.asked, port.given), (0, 0, 0));
    }

    #[test]
    fn a_queue_that_lasts_lowers_the_capacity_and_room_raises_it_again() {
        let mut port = allocator();
        // 100 MB/s unused of 1000, 5 kB of queue at least: + 0.1 * 100 - 5 kB / 100 us = 10 - 50.
        port.adapt(Picos::from_micros(50), 1, 5_000);
        port.adapt(T, 90_000, 9_000);
        assert!((port.capacity / 1e6 - 960.0).abs() < 1e-6, "{}", port.capacity);
        // No queue, 100 MB/s unused: + 10; then never above the link, nor below half of it.
        port.adapt(Picos::from_micros(200), 180_000, 0);
        assert!((port.capacity / 1e6 - 970.0).abs() < 1e-6, "{}", port.capacity);
        port.adapt(Picos::from_micros(300), 180_000, 0);
        assert_eq!(port.capacity / 1e6, 1000.0);
        port.adapt(Picos::from_micros(400), 280_000, 1_000_000);
        assert_eq!(port.capacity / 1e6, 500.0);
    }
}
