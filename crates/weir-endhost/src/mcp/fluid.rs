//! A fluid model of flows with deadlines on one link: the second method by which the laws are checked.
//!
//! # Problem
//! The laws are to be judged by what they do together, before there are packets: who meets its deadline, who takes
//! more than it should, how long the queue grows.
//!
//! # Approach
//! Time goes in steps. A sender pours segments at window / round trip into one queue that the link empties in order.
//! What goes in behind more than K segments is marked. What comes out is acknowledged an empty round trip later,
//! with its mark and the round trip it had; so feedback is as old as it is in a network, and a window ends when a
//! round trip is over and something was acknowledged.
//!
//! Segments are divisible, or whole ones if asked for: then a sender sends one when it has credit for it, and it is
//! acknowledged when the last of it was served.
//!
//! # Departures
//! All propagation lies behind the queue, nothing is lost, lower priorities do not exist
//! (they cannot disturb). A sender stops at its deadline. Our own model.

use super::{Mcp, Params, WindowFacts};
use std::collections::VecDeque;
use weir_model::{Bytes, Rate, Span};

/// Length of a step in seconds: a fiftieth of a round trip of 100 microseconds.
const STEP: f64 = 2e-6;
/// Rates are averaged over this many seconds.
const BIN: f64 = 1e-3;
/// Weight of an acknowledged segment in the smoothed round trip.
const RTT_GAIN: f64 = 1.0 / 8.0;
/// Less than this many segments are none: rounding.
const NOTHING: f64 = 1e-9;

/// A flow with a deadline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    /// Payload bytes of the flow, without headers.
    pub size: Bytes,
    /// From the beginning of the run.
    pub start: Span,
    /// Time allowed, from `start` on.
    pub deadline: Span,
}

/// The one link that all flows cross.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub rate: Rate,
    /// What goes in behind more is marked.
    pub mark_segments: f64,
    /// Whether segments are whole.
    pub whole: bool,
}

/// What became of a flow.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// When its last segment arrived, as a share of the time it had; none if it was not all sent by then.
    pub finish: Option<f64>,
    /// Payload rate in each bin of the run, in bits per second.
    pub rates: Vec<f64>,
}

/// What became of all.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub flows: Vec<Outcome>,
    /// Longest queue in segments.
    pub longest_queue: f64,
}

struct Parcel {
    flow: usize,
    /// What is left of it.
    segments: f64,
    size: f64,
    marked: bool,
    sent: f64,
}

struct Ack {
    at: f64,
    flow: usize,
    segments: f64,
    marked: bool,
    rtt: f64,
}

struct Sender {
    start: f64,
    due: f64,
    law: Option<Mcp>,
    unsent: f64,
    /// Segments that may be sent now.
    credit: f64,
    undelivered: f64,
    rtt: f64,
    acked: f64,
    marked: f64,
    window_ends: f64,
    sent: Vec<f64>,
}

struct Model<'a> {
    params: &'a Params,
    link: Link,
    senders: Vec<Sender>,
    queue: VecDeque<Parcel>,
    queued: f64,
    acks: VecDeque<Ack>,
    received: Vec<Option<f64>>,
}

/// Runs the flows until all are done or past their deadlines.
pub(super) fn run(params: &Params, link: Link, demands: &[Demand]) -> Run {
    let senders: Vec<Sender> = demands.iter().map(|demand| Sender::new(params, demand)).collect();
    let end = senders.iter().map(|sender| sender.due).fold(0.0, f64::max) + 5e-3;
    let received = vec![None; demands.len()];
    let (queue, acks) = (VecDeque::new(), VecDeque::new());
    let mut model = Model { params, link, senders, queue, queued: 0.0, acks, received };
    let mut longest_queue = 0.0f64;
    for step in 0..(end / STEP) as u64 {
        let now = step as f64 * STEP;
        // Acknowledgements first: they may end a window, and then what is sent in this step goes by
        // the next one.
        model.acknowledge(now);
        model.send(now);
        longest_queue = longest_queue.max(model.queued);
        model.serve(now);
    }
    Run { flows: model.outcomes(), longest_queue }
}

impl Sender {
    fn new(params: &Params, demand: &Demand) -> Sender {
        let segments = demand.size.0 as f64 / params.payload.0 as f64;
        let start = demand.start.as_secs();
        let due = start + demand.deadline.as_secs();
        let rtt = params.base_rtt.as_secs();
        Sender {
            start,
            due,
            law: None,
            unsent: segments,
            credit: 0.0,
            undelivered: segments,
            rtt,
            acked: 0.0,
            marked: 0.0,
            window_ends: start,
            sent: Vec::new(),
        }
    }

    /// Starts the law, or ends its window if one is over; returns the rate in segments per second.
    fn rate(&mut self, now: f64, params: &Params, link: Rate) -> f64 {
        if now >= self.window_ends && (self.law.is_none() || self.acked > 0.0) {
            let facts = WindowFacts {
                remaining: Bytes((self.unsent * params.payload.0 as f64).ceil() as u64),
                left: Span::from_secs_ceil(self.due - now),
                rtt: Span::from_secs_ceil(self.rtt),
                marked_share: if self.acked > 0.0 { self.marked / self.acked } else { 0.0 },
                link: Some(link),
            };
            match &mut self.law {
                Some(law) => {
                    law.on_window(&facts);
                }
                None => self.law = Some(Mcp::new(params, &facts)),
            }
            (self.acked, self.marked) = (0.0, 0.0);
            self.window_ends = now + self.rtt;
        }
        self.law.as_ref().map_or(0.0, |law| 1.0 / law.gap().as_secs())
    }
}

impl Model<'_> {
    fn acknowledge(&mut self, now: f64) {
        while self.acks.front().is_some_and(|ack| ack.at <= now)
            && let Some(ack) = self.acks.pop_front()
        {
            let sender = &mut self.senders[ack.flow];
            sender.acked += ack.segments;
            sender.marked += if ack.marked { ack.segments } else { 0.0 };
            // What is acknowledged may be a part of a segment, and weighs as such a part of a
            // sample.
            sender.rtt += (ack.rtt - sender.rtt) * (ack.segments * RTT_GAIN).min(1.0);
        }
    }

    fn send(&mut self, now: f64) {
        for (flow, sender) in self.senders.iter_mut().enumerate() {
            if now < sender.start || now >= sender.due || sender.unsent <= 0.0 {
                continue;
            }
            let first = sender.law.is_none();
            let due = sender.rate(now, self.params, self.link.rate) * STEP;
            // The first whole segment leaves at once.
            sender.credit += if first && self.link.whole { 1.0 } else { due };
            if self.link.whole && sender.credit < 1.0 {
                continue;
            }
            let segments = sender.credit.min(sender.unsent).min(if self.link.whole { 1.0 } else { f64::MAX });
            // A divisible flow has no use for what is left over; a whole segment costs exactly one.
            sender.credit -= if self.link.whole { 1.0 } else { sender.credit };
            sender.unsent -= segments;
            if sender.unsent < NOTHING {
                sender.unsent = 0.0;
            }
            sender.sent.resize((now / BIN) as usize + 1, 0.0);
            if let Some(bin) = sender.sent.last_mut() {
                *bin += segments;
            }
            let marked = self.queued > self.link.mark_segments;
            self.queue.push_back(Parcel { flow, segments, size: segments, marked, sent: now });
            self.queued += segments;
        }
    }

    fn serve(&mut self, now: f64) {
        let base = self.params.base_rtt.as_secs();
        let mut budget = self.link.rate.bytes_per_sec() / self.params.wire.0 as f64 * STEP;
        while budget > 0.0
            && let Some(parcel) = self.queue.front_mut()
        {
            let (flow, marked, rtt) = (parcel.flow, parcel.marked, now - parcel.sent + base);
            let served = parcel.segments.min(budget);
            parcel.segments -= served;
            budget -= served;
            self.queued -= served;
            let done = parcel.segments < 1e-3 * NOTHING;
            // A whole segment is acknowledged when its last part was served.
            let whole = if done { parcel.size } else { 0.0 };
            let segments = if self.link.whole { whole } else { served };
            if done {
                self.queue.pop_front();
            }
            if segments > 0.0 {
                self.acks.push_back(Ack { at: now + base, flow, segments, marked, rtt });
                self.senders[flow].undelivered -= segments;
            }
            if self.senders[flow].undelivered < 1e3 * NOTHING && self.received[flow].is_none() {
                // All propagation lies behind the queue, half of it on the way to the receiver; the
                // other half is the acknowledgement's.
                self.received[flow] = Some(now + base / 2.0);
            }
        }
        if self.queue.is_empty() {
            // Exactly 0, whatever rounding left of the sum.
            self.queued = 0.0;
        }
    }

    fn outcomes(&self) -> Vec<Outcome> {
        let outcome = |(sender, received): (&Sender, &Option<f64>)| {
            let bits = self.params.payload.0 as f64 * 8.0;
            let rates: Vec<f64> = sender.sent.iter().map(|segments| segments * bits / BIN).collect();
            let finish = received.map(|at| (at - sender.start) / (sender.due - sender.start));
            Outcome { finish, rates }
        };
        self.senders.iter().zip(&self.received).map(outcome).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Variant;
    use super::*;

    const RTT: Span = Span::from_nanos(100_000);
    const LINK: Link = Link { rate: Rate::from_bits_per_sec(1e9), mark_segments: 20.0, whole: false };

    fn demand(mbit: u64) -> Demand {
        Demand { size: Bytes(mbit * 125_000), start: Span::ZERO, deadline: Span::from_millis(60) }
    }

    #[test]
    fn what_is_sent_is_the_size() {
        let run = run(&Params::new(Variant::Yielding, RTT), LINK, &[demand(30)]);
        let sent: f64 = run.flows[0].rates.iter().map(|rate| rate * BIN).sum();
        assert!((sent - 30e6).abs() < 1.0, "{sent}");
    }

    #[test]
    fn the_link_serves_in_order_and_a_segment_in_twelve_microseconds() {
        let params = Params::new(Variant::Yielding, RTT);
        let senders = [demand(1), demand(1)].iter().map(|demand| Sender::new(&params, demand)).collect();
        let parcel = |flow| Parcel { flow, segments: 10.0, size: 10.0, marked: flow == 1, sent: 0.0 };
        let mut model = Model {
            params: &params,
            link: LINK,
            senders,
            queue: [parcel(0), parcel(1)].into(),
            queued: 20.0,
            acks: VecDeque::new(),
            received: vec![None; 2],
        };
        // 90 steps of 2 us: 15 segments of 1500 bytes, the first ten of flow 0.
        (0..90).for_each(|step| model.serve(f64::from(step) * STEP));
        assert!((model.queued - 5.0).abs() < 1e-9, "{}", model.queued);
        let acked =
            |flow| -> f64 { model.acks.iter().filter(|ack| ack.flow == flow).map(|ack| ack.segments).sum() };
        assert!((acked(0) - 10.0).abs() < 1e-9 && (acked(1) - 5.0).abs() < 1e-9);
        assert!(model.acks.iter().all(|ack| ack.marked == (ack.flow == 1)));
        // The last of them left in the step at 178 us, and its acknowledgement comes an empty round trip later.
        let last = model.acks.back().unwrap();
        assert!((last.rtt - 278e-6).abs() < 1e-9 && (last.at - 278e-6).abs() < 1e-9);
    }
}
