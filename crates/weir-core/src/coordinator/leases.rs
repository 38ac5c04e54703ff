//! How long a coflow is kept without a sign of life.
//!
//! # Problem
//! A driver that dies never unregisters. Its coflows, their blocks and the files of these would stay for ever, until
//! some bound is reached and nobody can register any more.
//!
//! # Approach
//! Every coflow has a lease. Whatever shows that somebody still cares begins it anew: a renewal by its driver, which
//! the client library sends by itself as long as the driver lives, a put, a get, a flow that moves. A coflow whose
//! lease ends is ended as if it had been unregistered.
//!
//! # Properties
//! * No coflow ends while a flow of it is open or somebody waits for a block of it.
//! * A lease counts from the moment this process hears of the coflow: the time that a coordinator was away costs no
//!   coflow its life.

use super::state::Coordinator;
use weir_model::{Span, Time};
use weir_proto::{limits, v1};

impl Coordinator {
    /// The owner of coflows is alive.
    pub fn handle_renew(&mut self, now: Time, request: &v1::RenewRequest) -> v1::RenewReply {
        let mut ended = Vec::new();
        for &id in request.coflows.iter().take(limits::MAX_COFLOWS_PER_CALL) {
            self.renew(now, id);
            if self.has_ended(id) || self.was_never_given(id) {
                ended.push(id);
            }
        }
        v1::RenewReply { ended }
    }

    /// Something shows that somebody cares for a coflow.
    pub(super) fn renew(&mut self, now: Time, id: u64) {
        let default = self.config.coflow_lease;
        let Some(coflow) = self.coflows.get_mut(&id) else { return };
        coflow.renewed = now;
        if !coflow.has_expiry {
            coflow.has_expiry = true;
            let expiry = now + coflow.lease(default);
            self.expiries.insert((expiry, id));
        }
    }

    /// Ends the coflows that nobody cared for.
    pub(super) fn expire_coflows(&mut self, now: Time) {
        while let Some(&(at, id)) = self.expiries.first().filter(|&&(at, _)| at <= now) {
            self.expiries.remove(&(at, id));
            let waited_for = self.is_waited_for(id);
            let Some(coflow) = self.coflows.get_mut(&id) else { continue };
            let lease = coflow.lease(self.config.coflow_lease);
            if !coflow.flows.is_empty() || waited_for {
                coflow.renewed = now;
            }
            let until = coflow.renewed + lease;
            if until > now {
                self.expiries.insert((until, id));
                continue;
            }
            self.count("coflows_expired");
            self.expired.push_back(id);
            self.end(now, id);
        }
    }

    /// When the first lease may end.
    pub(super) fn next_coflow_expiry(&self) -> Option<Time> {
        self.expiries.first().map(|&(at, _)| at)
    }

    /// The next coflow that ended because nobody cared for it, for the log.
    pub fn poll_expired(&mut self) -> Option<u64> {
        self.expired.pop_front()
    }
}

impl super::state::CoflowEntry {
    fn lease(&self, default: Span) -> Span {
        if self.options.lease_ms == 0 { default } else { Span::from_millis(self.options.lease_ms) }
    }
}
