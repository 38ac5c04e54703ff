//! What watchers see of an agent: sums since its process began, and how many there are of what.

use super::pacer::Pacing;
use super::state::Agent;
use weir_model::{Span, Time};

/// Sums since the process began.
#[derive(Debug, Default)]
pub(super) struct Account {
    leases_lost: u64,
    /// Time without a lease, up to the last one,
    open: Span,
    /// and since when there is none.
    open_since: Option<Time>,
    sent: u64,
    sent_at_rates: u64,
    done: u64,
    broken: u64,
}

impl Account {
    /// A lease ended, if there was one.
    pub(super) fn lapse(&mut self, now: Time) {
        if self.open_since.is_some() {
            return;
        }
        self.leases_lost = self.leases_lost.saturating_add(1);
        self.open_since = Some(now);
    }

    /// A lease holds from now on: the time without one ends.
    pub(super) fn hold(&mut self, now: Time) {
        if let Some(since) = self.open_since.take() {
            self.open = self.open + now.since(since);
        }
    }

    /// Bytes of a flow were handed to its socket.
    pub(super) fn send(&mut self, bytes: u64, pacing: Option<Pacing>) {
        self.sent = self.sent.saturating_add(bytes);
        if matches!(pacing, Some(Pacing::Rated(_))) {
            self.sent_at_rates = self.sent_at_rates.saturating_add(bytes);
        }
    }

    /// A flow ended: its receiver has all, or broke off.
    pub(super) fn close(&mut self, done: bool) {
        let sum = if done { &mut self.done } else { &mut self.broken };
        *sum = sum.saturating_add(1);
    }
}

/// An agent at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// Whether it has a session with a coordinator,
    pub session: bool,
    /// and a lease: its flows go by what that said.
    pub lease: bool,
    /// Leases that ended before another word came,
    pub leases_lost: u64,
    /// and the time without one since the first of them.
    pub without_lease: Span,
    /// Whether it takes no more blocks.
    pub draining: bool,
    /// Blocks that it holds.
    pub blocks: u64,
    /// Coflows that it knows.
    pub coflows: u64,
    /// Open flows that are unscheduled: TCP shares out what they get.
    pub unscheduled: u64,
    /// Open flows that are paused: scheduled at rate 0.
    pub paused: u64,
    /// Open flows that have a rate above 0.
    pub rated: u64,
    /// Payload bytes that flows were allowed by their rates,
    pub granted_bytes: f64,
    /// those of them that were handed to sockets,
    pub sent_at_rates_bytes: u64,
    /// and all that were.
    pub sent_bytes: u64,
    /// Flows whose receivers have all,
    pub done: u64,
    /// and those that ended before.
    pub broken: u64,
    /// Messages dropped because newer ones had come.
    pub stale: u64,
}

impl Agent {
    /// State and counters at this moment, as metrics show them.
    pub fn observe(&self, now: Time) -> Observed {
        let account = &self.account;
        let [unscheduled, paused, rated] = self.pacer.kinds();
        // Who waits for its turn waits for no plan.
        let turns = self.turns.waiting();
        let (unscheduled, paused) = (unscheduled.saturating_add(turns), paused.saturating_sub(turns));
        let open = account.open_since.map_or(Span::ZERO, |since| now.since(since));
        Observed {
            session: self.session,
            lease: self.lease_holds(now),
            leases_lost: account.leases_lost,
            without_lease: account.open + open,
            draining: self.draining,
            blocks: self.blocks.len() as u64,
            coflows: self.coflows.len() as u64,
            unscheduled,
            paused,
            rated,
            granted_bytes: self.pacer.granted(now),
            sent_at_rates_bytes: account.sent_at_rates,
            sent_bytes: account.sent,
            done: account.done,
            broken: account.broken,
            stale: self.stale_dropped,
        }
    }
}
