//! Queues by attained service (Chowdhury, Stoica, Efficient Coflow Scheduling Without Prior Knowledge, SIGCOMM
//! 2015, section 4.2: D-CLAS).
//!
//! # Problem
//! Without knowing sizes, the coflow that has got least so far is the best guess of the one with least left. But to serve the coflow that
//! has got least, exactly, makes coflows of equal length take turns until all of them end late.
//!
//! # Approach
//! Few queues, with thresholds that grow by a factor: a coflow moves down one queue when all its flows together
//! have sent so much. Within a queue no coflow is preempted for a few bytes more or less.
//!
//! # Terminology
//! * attained service: bytes that all flows of a coflow have sent, those that ended and were removed too.
//! * first threshold A, exponent E, K queues: queue q holds what has sent `A * E^(q-1)` to `A * E^q` bytes; the
//!   first holds what has sent less than A, the last everything else.
//! * sync interval: how often the sums over all senders become known to all. In between every sender goes by the
//!   queues it last heard; a new coflow is in the first queue at once.
//!
//! # Properties
//! * A coflow never moves up: attained service is never forgotten.
//! * With interval 0 it moves at the nanosecond at which the threshold is reached.
//!
//! # Departures
//! None known. The values of A, E and K are those of the released code.

use crate::{CoflowTable, Slot};
use weir_model::{Span, Time};

/// Bytes by which rounding may leave a coflow short of its threshold.
const ROUNDING_BYTES: f64 = 0.5;

/// Sizes of the queues, and when they become known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueueSettings {
    /// Number of queues, 1 to [`MAX_QUEUES`]; others are taken for the nearest of these.
    pub queues: u32,
    /// Factor between thresholds, above 1.
    pub exponent: f64,
    /// First threshold in bytes.
    pub first_bytes: f64,
    /// How often sums become known; zero: at once.
    pub sync_interval: Span,
}

/// Queues at most: more than there are bytes between thresholds change no order, and a peer may ask for any number.
pub const MAX_QUEUES: u32 = 1000;

/// Bytes at which coflows move down.
#[derive(Clone, Debug)]
pub struct Thresholds(Vec<f64>);

impl Thresholds {
    /// Thresholds between queues with these settings.
    pub fn new(settings: &QueueSettings) -> Thresholds {
        let last = settings.queues.clamp(1, MAX_QUEUES) as i32 - 1;
        Thresholds((0..last).map(|q| settings.first_bytes * settings.exponent.powi(q)).collect())
    }

    /// How many queues there are.
    pub fn count(&self) -> u32 {
        self.0.len() as u32 + 1
    }

    /// The queue of a coflow that was in `queue` and has sent `attained` bytes: that one or a later one.
    pub fn queue(&self, queue: u32, attained: f64) -> u32 {
        let mut queue = queue.min(self.count() - 1);
        while self.of(queue).is_some_and(|threshold| attained + ROUNDING_BYTES >= threshold) {
            queue += 1;
        }
        queue
    }

    /// Where the queue ends; the last one does not.
    fn of(&self, queue: u32) -> Option<f64> {
        self.0.get(queue as usize).copied()
    }
}

/// The queue of every coflow, as last heard.
#[derive(Debug)]
pub struct Queues {
    settings: QueueSettings,
    thresholds: Thresholds,
    /// Per slot: id of the coflow, and the queue that it was last known to be in.
    known: Vec<(u64, u32)>,
}

impl Queues {
    /// Queues by these settings, without coflows.
    pub fn new(settings: QueueSettings) -> Queues {
        Queues { thresholds: Thresholds::new(&settings), settings, known: Vec::new() }
    }

    /// How many queues there are, the first counted.
    pub fn count(&self) -> u32 {
        self.thresholds.count()
    }

    /// The queue of a live coflow since the last update, counted from 0.
    pub fn queue(&self, slot: Slot) -> u32 {
        self.known[slot.0 as usize].1
    }

    /// Takes over what has become known by `now`.
    pub fn update(&mut self, now: Time, view: &CoflowTable) {
        self.known.resize(view.slot_bound(), (u64::MAX, 0));
        let in_time = self.is_sync(now);
        for (slot, coflow) in view.coflows() {
            let known = &mut self.known[slot.0 as usize];
            // Slots are used again: a new coflow must not begin in the queue of the one that had its slot.
            if known.0 != coflow.id().0 {
                *known = (coflow.id().0, 0);
            }
            if in_time {
                known.1 = self.thresholds.queue(known.1, view.attained(slot));
            }
        }
    }

    /// When the next coflow will be known to move to another queue if rates stay what they are.
    pub fn next_move(&self, now: Time, view: &CoflowTable) -> Option<Time> {
        let reaches = view.coflows().filter_map(|(slot, coflow)| {
            let &(id, queue) = self.known.get(slot.0 as usize)?;
            let threshold = self.thresholds.of(if id == coflow.id().0 { queue } else { 0 })?;
            let left = (threshold - view.attained(slot)).max(0.0);
            let rate = view.shared_rate(slot);
            (left == 0.0 || rate > 0.0).then(|| if left == 0.0 { 0.0 } else { left / rate })
        });
        let first = reaches.fold(f64::INFINITY, f64::min);
        let reached = now + Span::until_done(first);
        (first < f64::INFINITY).then(|| self.sync_after(now, reached))
    }

    fn is_sync(&self, now: Time) -> bool {
        let interval = self.settings.sync_interval.nanos();
        interval == 0 || now.nanos().is_multiple_of(interval)
    }

    /// The first sync not before `reached`, and after `now`.
    fn sync_after(&self, now: Time, reached: Time) -> Time {
        let interval = self.settings.sync_interval.nanos();
        if interval == 0 {
            return reached;
        }
        // A sum that reaches its threshold at a sync is known at that sync, so the division rounds up.
        let sync = reached.nanos().div_ceil(interval).saturating_mul(interval);
        // Never `now` itself: this sync has been taken over already, and the caller would be woken for ever at one time.
        Time::from_nanos(if sync > now.nanos() { sync } else { sync + interval })
    }
}
