//! Credits: when each flow of a host may write its next chunk, and how much.
//!
//! # Problem
//! Rates change hundreds of times a second. The kernel's own pacing cannot follow: a send it has already
//! scheduled is not brought forward when the rate rises.
//!
//! # Approach
//! Every scheduled flow has a bucket that fills at its rate. A chunk is written when the bucket holds it,
//! so that the kernel's queue stays short and a new rate counts from the next chunk on. A flow with rate
//! zero is paused by not being written to. A flow that is not scheduled is always due. All scheduled flows
//! together are spaced at little more than the sum of their rates: chunks of many flows that fall due at
//! once would otherwise overflow the queue of the host's own link.
//!
//! Rates that sum up to what a link carries still leave a queue behind every disturbance: what came too early
//! waits, what came too late is lost, and nothing drains the difference. So a chunk also waits while more of
//! its flow is under way than its rate and an empty path account for; every queue then drains to a few
//! milliseconds.
//!
//! Flows in classes of priority have no rates, and go one class after the other at what the host's link carries: a packet that was
//! handed down in a class waits for that class, whatever class its flow has later, and all of its connection waits with it. So nothing
//! is handed down that the link does not take at once. Who waits for its receiver keeps no other waiting.
//!
//! # Properties
//! - Over any interval a scheduled flow is given at most rate x interval + one bucket of bytes. The bucket
//!   is bounded, so a flow that could not send for a while does not catch up at line rate.
//! - Bytes under way of a scheduled flow are at most rate x (2.5 ms + round trip of the empty path), or one
//!   chunk and a segment where that is more.
//! - No flow in a class writes while one of an earlier class may.
//! - Flows become due in order of due time, ties by id.

use super::facts::{Crowd, Transmit};
use crate::ids::FlowNumber;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use weir_model::{Rate, Span, Time};

/// A chunk is what the flow's rate moves in this time, or the host's link if the flow is in a class, within the two bounds below.
const CHUNK_TIME_S: f64 = 0.002;
/// Smallest chunk in bytes: eight full segments. Many flows that share a receiver write one each per period, and all of these chunks may meet
/// in the receiver's queue at once; each of them wakes the agent and the receiver, and takes the kernel as much work as a large one.
const MIN_CHUNK_BYTES: f64 = 11_584.0;
/// Largest chunk in bytes.
const MAX_CHUNK_BYTES: f64 = 65_536.0;
/// What a new flow may write at once, in bytes: one segment, so that it starts without delay.
const FIRST_CHUNK_BYTES: f64 = 1_448.0;
/// A flow of no more bytes may write all of them at once.
const SHORT_FLOW_BYTES: f64 = 5_792.0;
/// A bucket holds at most a chunk and what the rate moves in this time.
const BUCKET_TIME_S: f64 = 0.016;
/// All scheduled flows together may go this much faster than the sum of their rates,
const HOST_SPEEDUP: f64 = 1.1;
/// and be ahead of it by what it moves in this time.
const HOST_SLACK: Span = Span::from_nanos(700_000);
/// One chunk keeps the others waiting no longer than this. At rates so low that it would, no queue can
/// overflow; and rates may be higher a moment later.
const HOST_LONGEST_WAIT: Span = Span::from_nanos(10_000_000);
/// Where flows go in classes a chunk keeps them waiting for as long as the host's link takes for it, and no longer than this: what the
/// smallest chunk takes on a link of 1 Mbit/s.
const LINK_LONGEST_WAIT: Span = Span::from_nanos(100_000_000);
/// What a rate moves in this time and the round trip of an empty path may be under way; more waits in queues.
const IN_FLIGHT_TIME_S: f64 = 0.002_5;
/// A flow with too much under way looks again no sooner,
const SHORTEST_HOLD: Span = Span::from_nanos(500_000);
/// and no later than this.
const LONGEST_HOLD: Span = Span::from_nanos(10_000_000);
/// Bytes given to an unscheduled flow at once.
const UNSCHEDULED_BYTES: u64 = 1 << 20;

/// How one flow is metered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pacing {
    /// Not metered: the transport decides, as without Weir.
    Unscheduled,
    /// Nothing may be sent until another pacing is set.
    Paused,
    /// Metered to a rate above zero.
    Rated(Rate),
}

impl Pacing {
    /// Planned bytes per second.
    fn bytes_per_sec(self) -> f64 {
        if let Pacing::Rated(rate) = self { rate.bytes_per_sec() } else { 0.0 }
    }
}

#[derive(Debug)]
struct Bucket {
    pacing: Pacing,
    credit: f64,
    chunk: f64,
    updated: Time,
    due: Time,
    blocked: bool,
    started: bool,
    left: u64,
    /// Seconds that a round trip takes on an empty path, and bytes of a segment, as far as they had to be asked for.
    round_trip: f64,
    segment: f64,
    /// Its class of priority, while it is unscheduled, and its turn among those of the class that may write.
    class: Option<u8>,
    turn: u64,
}

/// The buckets of all flows of one host.
#[derive(Debug, Default)]
pub struct Pacer {
    salt: u64,
    buckets: BTreeMap<FlowNumber, Bucket>,
    due: BTreeSet<(Time, FlowNumber)>,
    unscheduled: VecDeque<FlowNumber>,
    /// Unscheduled flows in classes that may write, by class and turn.
    in_order: BTreeMap<(u8, u64), FlowNumber>,
    /// Turns that were given so far.
    turns: u64,
    /// Bytes per second that the host's link carries of them; 0: not known.
    uplink: f64,
    /// Sum of the rates of all scheduled flows in bytes per second.
    total_rate: f64,
    /// Bytes that flows were allowed by their rates up to a time.
    granted: (f64, Time),
    /// When what was written so far will have left the host at the sum of the rates.
    host_ready: Time,
}

impl Pacer {
    /// A pacer without flows. Pacers of different hosts should differ in `salt`: it decides at which
    /// point of its period a flow that starts writes its second chunk, so that flows which start
    /// together do not stay in step.
    pub fn new(salt: u64) -> Pacer {
        Pacer { salt, ..Pacer::default() }
    }

    /// A share of a period that belongs to a flow, the same at every run.
    fn phase(&self, flow: FlowNumber) -> f64 {
        // Fibonacci hashing: the high bits are well mixed, and 24 of them are taken as a fraction.
        let mixed = (flow.0 ^ self.salt.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 40) as f64 / (1u64 << 24) as f64
    }

    /// Adds a flow with `left` bytes to send.
    pub fn insert(&mut self, now: Time, flow: FlowNumber, left: u64, pacing: Pacing) {
        let first = first_chunk(left);
        let bucket = Bucket {
            pacing: Pacing::Paused,
            credit: first.max(FIRST_CHUNK_BYTES + self.phase(flow) * MIN_CHUNK_BYTES),
            chunk: first,
            updated: now,
            due: Time::MAX,
            blocked: false,
            started: false,
            left,
            round_trip: 0.0,
            segment: 0.0,
            class: None,
            turn: 0,
        };
        self.buckets.insert(flow, bucket);
        self.set(now, flow, pacing);
    }

    /// Removes a flow with its credit; does nothing if the pacer does not have it.
    pub fn remove(&mut self, flow: FlowNumber) {
        if let Some(bucket) = self.buckets.remove(&flow) {
            self.due.remove(&(bucket.due, flow));
            Self::leave_order(&mut self.in_order, &bucket);
            self.count_rate(bucket.updated, -bucket.pacing.bytes_per_sec());
        }
    }

    /// Bytes that all flows with a rate were allowed so far.
    pub fn granted(&self, now: Time) -> f64 {
        self.granted.0 + self.total_rate * now.since(self.granted.1).as_secs()
    }

    /// How many flows are unscheduled, are paused, and move at a rate.
    pub fn kinds(&self) -> [u64; 3] {
        let of = |kind: fn(&Pacing) -> bool| {
            self.buckets.values().filter(|bucket| kind(&bucket.pacing)).count() as u64
        };
        let (unscheduled, paused) =
            (of(|pacing| *pacing == Pacing::Unscheduled), of(|pacing| *pacing == Pacing::Paused));
        let rated = (self.buckets.len() as u64).saturating_sub(unscheduled).saturating_sub(paused);
        [unscheduled, paused, rated]
    }

    /// The pacing in force for a flow.
    pub fn pacing(&self, flow: FlowNumber) -> Option<Pacing> {
        self.buckets.get(&flow).map(|bucket| bucket.pacing)
    }

    /// Sets what the host's link carries, in bytes per second.
    pub fn set_uplink(&mut self, bytes_per_sec: f64) {
        self.uplink = bytes_per_sec;
    }

    /// Has a flow in a class of priority, counted from 0, while it is unscheduled; in none, it is always due.
    pub fn place(&mut self, flow: FlowNumber, class: Option<u8>) {
        let Some(bucket) = self.buckets.get_mut(&flow).filter(|bucket| bucket.class != class) else { return };
        let was_ready = Self::leave_order(&mut self.in_order, bucket);
        bucket.class = class;
        // One that was in no class is in the other queue, and moves from there when it is its turn.
        if was_ready {
            self.queue(flow);
        }
    }

    /// An unscheduled flow may write.
    fn queue(&mut self, flow: FlowNumber) {
        let Some(bucket) = self.buckets.get_mut(&flow) else { return };
        match bucket.class {
            None => self.unscheduled.push_back(flow),
            Some(class) => {
                self.turns = self.turns.saturating_add(1);
                bucket.turn = self.turns;
                self.in_order.insert((class, bucket.turn), flow);
            }
        }
    }

    /// Takes a flow out of those in classes that may write; says whether it was among them.
    fn leave_order(in_order: &mut BTreeMap<(u8, u64), FlowNumber>, bucket: &Bucket) -> bool {
        bucket.class.is_some_and(|class| in_order.remove(&(class, bucket.turn)).is_some())
    }

    /// Sets how a flow is metered from `now` on.
    pub fn set(&mut self, now: Time, flow: FlowNumber, pacing: Pacing) {
        let Some(bucket) = self.buckets.get_mut(&flow) else { return };
        if bucket.pacing == pacing {
            return;
        }
        bucket.settle(now);
        let before = bucket.pacing;
        let was_unscheduled = before == Pacing::Unscheduled;
        bucket.pacing = match pacing {
            Pacing::Rated(rate) if rate.bytes_per_sec() <= 0.0 => Pacing::Paused,
            other => other,
        };
        let after = bucket.pacing;
        let begins = after == Pacing::Unscheduled && !was_unscheduled && !bucket.blocked;
        if was_unscheduled {
            // What it wrote as an unscheduled flow was not charged: it begins without credit, not with what it had before.
            bucket.credit = 0.0;
            Self::leave_order(&mut self.in_order, bucket);
        }
        Self::reschedule(&mut self.due, flow, bucket);
        if begins {
            self.queue(flow);
        }
        self.count_rate(now, after.bytes_per_sec() - before.bytes_per_sec());
    }

    /// Notes that a flow's rate went up or down by `change`.
    fn count_rate(&mut self, now: Time, change: f64) {
        let before = self.total_rate;
        // Before the rate changes: so far flows were allowed the old one.
        self.granted = (self.granted(now), now.max(self.granted.1));
        // Without buckets the sum is exactly 0: what sums and differences leave is rounding.
        self.total_rate = if self.buckets.is_empty() { 0.0 } else { (before + change).max(0.0) };
        // What is still to leave the host leaves it at the new rate.
        let wait = self.host_ready.since(now).as_secs();
        if change > 0.0 && wait > 0.0 {
            self.host_ready = now + Span::from_secs_ceil(wait * before / self.total_rate);
        }
    }

    /// The next flow that may write now. The caller answers with [`Pacer::sent`], [`Pacer::blocked`] or
    /// [`Pacer::crowded`] before it asks again.
    pub fn poll(&mut self, now: Time) -> Option<Transmit> {
        if let Some(&(due, flow)) = self.due.first()
            && due <= now
            && self.host_ready <= now + HOST_SLACK
        {
            let bucket = self.buckets.get_mut(&flow)?;
            bucket.settle(now);
            // Rounding may leave the bucket a fraction of a byte short at its due time.
            let bytes = if bucket.started { bucket.credit.max(bucket.chunk) } else { bucket.chunk };
            // Nothing of a flow is under way before its first chunk.
            let in_flight_limit = if bucket.started { bucket.in_flight_limit() as u64 } else { u64::MAX };
            return Some(Transmit { flow, bytes: bytes.round() as u64, in_flight_limit });
        }
        while let Some(flow) = self.unscheduled.pop_front() {
            match self.buckets.get(&flow) {
                Some(bucket) if bucket.pacing == Pacing::Unscheduled && !bucket.blocked => {
                    if bucket.class.is_some() {
                        self.queue(flow);
                        continue;
                    }
                    return Some(Transmit { flow, bytes: UNSCHEDULED_BYTES, in_flight_limit: u64::MAX });
                }
                _ => {}
            }
        }
        if self.host_ready > now + HOST_SLACK {
            return None;
        }
        let (_, flow) = self.in_order.pop_first()?;
        let chunk = (self.uplink * CHUNK_TIME_S).clamp(MIN_CHUNK_BYTES, MAX_CHUNK_BYTES) as u64;
        let bytes = if self.uplink > 0.0 { chunk } else { UNSCHEDULED_BYTES };
        Some(Transmit { flow, bytes, in_flight_limit: u64::MAX })
    }

    /// Notes that `bytes` were written.
    pub fn sent(&mut self, now: Time, flow: FlowNumber, bytes: u64) {
        let Some(bucket) = self.buckets.get_mut(&flow) else { return };
        bucket.settle(now);
        bucket.started = true;
        bucket.left = bucket.left.saturating_sub(bytes);
        if bucket.pacing == Pacing::Unscheduled {
            let again = !bucket.blocked && bucket.left > 0;
            if bucket.class.is_some() && self.uplink > 0.0 {
                // Not a little faster, as flows with rates are: what stands in the host's queue is beyond recall.
                let spacing = Span::from_secs_ceil(bytes as f64 / self.uplink);
                self.host_ready = self.host_ready.max(now) + spacing.min(LINK_LONGEST_WAIT);
            }
            if again {
                self.queue(flow);
            }
            return;
        }
        bucket.credit -= bytes as f64;
        // A sum of 0 (all were paused meanwhile) gives an infinite spacing, which the bound below cuts.
        let spacing = Span::from_secs_ceil(bytes as f64 / (self.total_rate * HOST_SPEEDUP));
        self.host_ready = self.host_ready.max(now) + spacing.min(HOST_LONGEST_WAIT);
        Self::reschedule(&mut self.due, flow, bucket);
    }

    /// Notes that nothing was written because more than the flow's [`Transmit`] allows is under way.
    pub fn crowded(&mut self, now: Time, flow: FlowNumber, crowd: Crowd) {
        let Some(bucket) = self.buckets.get_mut(&flow) else { return };
        let Pacing::Rated(rate) = bucket.pacing else { return };
        bucket.settle(now);
        bucket.round_trip = crowd.round_trip.as_secs();
        bucket.segment = f64::from(crowd.segment_bytes);
        let excess = crowd.in_flight as f64 - bucket.in_flight_limit().floor();
        self.due.remove(&(bucket.due, flow));
        // Not by its credit, which it has: by what must leave the path before it may write.
        bucket.due = now;
        if excess > 0.0 {
            let drained = Span::from_secs_ceil(excess / rate.bytes_per_sec());
            bucket.due = now + drained.clamp(SHORTEST_HOLD, LONGEST_HOLD);
        }
        self.due.insert((bucket.due, flow));
    }

    /// Notes that the socket takes no more for now.
    pub fn blocked(&mut self, now: Time, flow: FlowNumber) {
        let Some(bucket) = self.buckets.get_mut(&flow) else { return };
        bucket.settle(now);
        bucket.blocked = true;
        Self::leave_order(&mut self.in_order, bucket);
        Self::reschedule(&mut self.due, flow, bucket);
    }

    /// Notes that the socket takes bytes again.
    pub fn writable(&mut self, now: Time, flow: FlowNumber) {
        let Some(bucket) = self.buckets.get_mut(&flow) else { return };
        if !std::mem::take(&mut bucket.blocked) {
            return;
        }
        bucket.settle(now);
        let again = bucket.pacing == Pacing::Unscheduled && bucket.left > 0;
        Self::reschedule(&mut self.due, flow, bucket);
        if again {
            self.queue(flow);
        }
    }

    /// When [`Pacer::poll`] will next have something to give; now or earlier if it has already.
    pub fn next_timeout(&self) -> Option<Time> {
        if !self.unscheduled.is_empty() {
            return Some(Time::ZERO);
        }
        let host_due = Time::from_nanos(self.host_ready.nanos().saturating_sub(HOST_SLACK.nanos()));
        let first = if self.in_order.is_empty() { self.due.first()?.0 } else { Time::ZERO };
        Some(first.max(host_due))
    }

    fn reschedule(due: &mut BTreeSet<(Time, FlowNumber)>, flow: FlowNumber, bucket: &mut Bucket) {
        due.remove(&(bucket.due, flow));
        bucket.due = Time::MAX;
        if let Pacing::Rated(rate) = bucket.pacing
            && !bucket.blocked
            && bucket.left > 0
        {
            let rate = rate.bytes_per_sec();
            let chunk = if bucket.started {
                (rate * CHUNK_TIME_S).clamp(MIN_CHUNK_BYTES, MAX_CHUNK_BYTES)
            } else {
                first_chunk(bucket.left)
            };
            bucket.chunk = chunk.min(bucket.left as f64);
            let wait = (bucket.chunk - bucket.credit).max(0.0) / rate;
            bucket.due = bucket.updated + Span::from_secs_ceil(wait);
            due.insert((bucket.due, flow));
        }
    }
}

/// A short flow goes as one: to write it in two takes longer than the rest of it.
fn first_chunk(left: u64) -> f64 {
    let left = left as f64;
    if left <= SHORT_FLOW_BYTES { left } else { FIRST_CHUNK_BYTES }
}

impl Bucket {
    /// Unacknowledged bytes with which it may still write its next chunk: at least a segment, for one that
    /// comes alone is acknowledged when its receiver likes.
    fn in_flight_limit(&self) -> f64 {
        let moved = self.pacing.bytes_per_sec() * (IN_FLIGHT_TIME_S + self.round_trip);
        (moved - self.chunk).max(self.segment)
    }

    /// Brings the credit up to `now`.
    fn settle(&mut self, now: Time) {
        if let Pacing::Rated(rate) = self.pacing {
            let rate = rate.bytes_per_sec();
            let limit = self.chunk + rate * BUCKET_TIME_S;
            let earned = rate * now.since(self.updated).as_secs();
            // Never less than it has: a rate that fell, and a smaller bucket with it, takes nothing away that was earned.
            self.credit = (self.credit + earned).min(limit.max(self.credit));
        }
        self.updated = self.updated.max(now);
    }
}

#[cfg(test)]
mod tests;
