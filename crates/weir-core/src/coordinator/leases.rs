//! How long a coflow is kept without a sign of life.
//!
//! # Problem
//! A driver that dies never unregisters. Its coflows, their blocks and the files of these would stay for ever, until
//! some bound is reached and no driver can register any more.
//!
//! # Approach
//! Every coflow has a lease. Each sign that it is still used begins it anew: a renewal by its driver, which
//! the client library sends by itself as long as the driver lives, a put, a get, a flow that moves. A coflow whose
//! lease ends is ended as if it had been unregistered.
//!
//! # Properties
//! * No coflow ends while a flow of it has bytes to move or a receiver waits for a block of it. A flow whose bytes were all
//!   sent begins the lease anew then, and no longer keeps it: its receiver may never acknowledge.
//! * A lease counts from the moment this process hears of the coflow: the time that a coordinator was away, was stopped,
//!   or could not hear (`pauses`) costs no coflow its life.

use super::state::Coordinator;
use crate::planted::{Defect, is_planted};
use weir_model::{CoflowId, Span, Time};
use weir_proto::{limits, v1};

impl Coordinator {
    /// The owner of coflows is alive.
    pub fn handle_renew(&mut self, now: Time, request: &v1::RenewRequest) -> v1::RenewReply {
        let (mut ended, mut shortest) = (Vec::new(), 0);
        for id in request.coflows.iter().take(limits::MAX_COFLOWS_PER_CALL).copied().map(CoflowId) {
            if !is_planted(Defect::LeaseNotRenewed) {
                self.renew(now, id);
            }
            if self.has_ended(id) || self.was_never_given(id) {
                ended.push(id.0);
            }
            // 0 stands for a coflow without a lease, after which no renewal has to come.
            shortest =
                [shortest, self.lease_ms(id)].into_iter().filter(|&lease_ms| lease_ms > 0).min().unwrap_or(0);
        }
        v1::RenewReply { ended, lease_ms: shortest }
    }

    /// The lease of a live coflow in milliseconds; 0 if it has none.
    pub fn lease_ms(&self, id: CoflowId) -> u64 {
        let lease = self.coflows.get(&id).map(|coflow| coflow.lease(self.config.coflow_lease));
        lease.filter(|&lease| lease != Span::MAX).map_or(0, |lease| lease.nanos() / 1_000_000)
    }

    /// Something shows that a coflow is still used.
    pub(super) fn renew(&mut self, now: Time, id: CoflowId) {
        let default = self.config.coflow_lease;
        let Some(coflow) = self.coflows.get_mut(&id) else { return };
        coflow.renewed = now;
        // A coflow that an agent named before its note was told may have a shorter lease than was believed.
        let until = now + coflow.lease(default);
        let shorter = |at| at > until && !is_planted(Defect::LeaseNotShortened);
        if coflow.expiry.is_none_or(shorter) {
            let before = coflow.expiry.replace(until);
            before.into_iter().for_each(|at| _ = self.expiries.remove(&(at, id)));
            self.expiries.insert((until, id));
        }
    }

    /// Ends the coflows whose leases were not renewed.
    pub(super) fn expire_coflows(&mut self, now: Time) {
        let heard_since = self.heard_since();
        while let Some(&(at, id)) = self.expiries.first().filter(|&&(at, _)| at <= now) {
            self.expiries.remove(&(at, id));
            let waited_for = self.is_waited_for(id) || self.has_bytes_to_move(id);
            let Some(coflow) = self.coflows.get_mut(&id) else { continue };
            let lease = coflow.lease(self.config.coflow_lease);
            if waited_for || is_planted(Defect::LeaseForever) {
                coflow.renewed = now;
            }
            // Entries are not moved with every renewal, which may come with every flow: here it shows whether the lease is over.
            let until = coflow.renewed.max(heard_since) + lease;
            coflow.expiry = Some(until);
            if until > now {
                self.expiries.insert((until, id));
                continue;
            }
            self.count("coflows_expired");
            self.expired.push_back(id);
            self.end(now, id);
        }
    }

    /// Where senders decide sizes are not known: every open flow counts.
    fn has_bytes_to_move(&self, id: CoflowId) -> bool {
        let flows = self.coflows.get(&id).into_iter().flat_map(|coflow| &coflow.flows);
        flows.filter_map(|key| self.flows.get(key)).any(|flow| flow.left() > 0)
    }

    /// When the first lease may end.
    pub(super) fn next_coflow_expiry(&self) -> Option<Time> {
        self.expiries.first().map(|&(at, _)| at)
    }

    /// The next coflow that ended with its lease, for the log.
    pub(super) fn poll_expired(&mut self) -> Option<CoflowId> {
        self.expired.pop_front()
    }
}

impl super::state::CoflowEntry {
    fn lease(&self, default: Span) -> Span {
        if self.options.lease_ms == 0 { default } else { Span::from_millis(self.options.lease_ms) }
    }
}
