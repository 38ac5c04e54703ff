//! Time in which this process did not run, or could not hear agents and drivers.
//!
//! # Problem
//! A process that is stopped, a machine that is suspended, and a host without its network hear nothing. What drivers and
//! agents said meanwhile waits in sockets, or could not be said at all. Were that time counted as silence of theirs, the
//! first thing after it would be the end of all coflows of all living drivers.
//!
//! # Approach
//! The driver of this state machine lets time pass ([`Coordinator::handle_timeout`]) every [`TICK`] at least, however
//! little happens. A gap that is longer than [`PAUSE`] means that the process did not run, or was so busy that it heard no
//! agent. Then every lease of a coflow begins anew, and what waits for others waits longer by the gap. While no agent is
//! attached, leases do not pass either: most likely this host is cut off, and no agent keeps anything then.
//!
//! Time limits of calls (`Locate`, `AwaitAdmission`) are their callers' own and go on: a caller that is answered too early asks
//! again.
//!
//! # Properties
//! * After a gap every coflow has a full lease.
//! * A coordinator that is held up again and again ends no coflow too early, but may end some late.

use super::readiness::Stage;
use super::state::Coordinator;
use weir_model::{Span, Time};

/// Time passes in steps that are no longer, in a process that runs.
const TICK: Span = Span::from_millis(500);
/// The process did not run for so long: a third of the shortest lease, which is how often that one is renewed.
const PAUSE: Span = Span::from_millis(1_000);

/// When this process last ran and heard others.
#[derive(Debug, Default)]
pub(super) struct Hearing {
    /// When time last passed.
    ticked: Option<Time>,
    /// Silence before this counts against no driver or agent.
    since: Time,
    /// When the first agent came.
    started: Option<Time>,
}

impl Coordinator {
    /// When others could be heard again after the last time they could not.
    pub(super) fn heard_since(&self) -> Time {
        self.hearing.since
    }

    /// When agents could first come: now, if this is the first time that it is asked.
    pub(super) fn started(&mut self, now: Time) -> Time {
        *self.hearing.started.get_or_insert(now)
    }

    /// When time must have passed again.
    pub(super) fn next_tick(&self) -> Option<Time> {
        self.hearing.ticked.map(|at| at + TICK)
    }

    /// Time has passed, all of it or only a part while the process ran.
    pub(super) fn notice_pause(&mut self, now: Time) {
        let ticked = self.hearing.ticked.replace(now).unwrap_or(now);
        let gap = now.since(ticked);
        // Without any agent most likely this host is cut off, and drivers cannot renew leases either.
        if self.hosts.is_empty() {
            self.hearing.since = now;
        }
        if gap <= PAUSE {
            return;
        }
        self.count("pauses");
        self.hearing.since = now;
        self.hearing.started = self.hearing.started.map(|at| at + gap);
        self.endings.put_off(gap);
        self.witnesses.put_off(gap);
        for (until, id) in std::mem::take(&mut self.gathering) {
            self.gathering.insert((until + gap, id));
            if let Some(coflow) = self.coflows.get_mut(&id) {
                coflow.stage = Stage::Gathering(until + gap);
            }
        }
    }
}
