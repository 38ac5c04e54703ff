//! What drivers know of a coflow before its flows open.
//!
//! # Problem
//! Tasks come in waves and ask for some megabytes at a time, so the flows that are open are a small part of a large coflow.
//! Its driver knows more: how much each host has for it.
//!
//! # Approach
//! A driver says how many bytes are still to come, by the hosts that they come from. They count for the order of the coflow,
//! at the uplinks of these hosts ([`CoflowTable::expect`](weir_policy::CoflowTable::expect)), and for whether it is small
//! (`readiness`); no rate is kept for them. A flow that is asked for the first time takes its size out of what its host was
//! expected to send. What is said later replaces what was said before.
//!
//! # Properties
//! * Where senders decide, sizes are not used: what is said is not kept.
//! * It is not kept by agents either: after a restart of the coordinator the order is by what is open.
//! * The policy hears of it with the next plan; no flow costs more for it than a look at its host's entry.

use super::directory::SealError;
use super::readiness::Stage;
use super::state::Coordinator;
use crate::ids::HostNumber;
use std::collections::{BTreeMap, BTreeSet};
use weir_model::{CoflowId, Time};
use weir_proto::{limits, v1};

/// Why what a driver expects was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpectError {
    /// The coflow is not known.
    #[error(transparent)]
    Coflow(#[from] SealError),
    /// More hosts than there can be.
    #[error("one call names {0} hosts; at most {max} are possible", max = limits::MAX_HOSTS)]
    TooManyHosts(usize),
    /// What is expected of all coflows together has a bound.
    #[error(
        "drivers have said what they expect of {max} hosts, coflow by coflow; no more is kept",
        max = limits::MAX_EXPECTED
    )]
    TooMany,
}

/// Bytes of a coflow that are to come, by the hosts that they come from.
pub(super) type Expected = BTreeMap<HostNumber, u64>;

/// What is expected of all coflows.
#[derive(Debug, Default)]
pub(super) struct Expectations {
    /// Entries of all coflows together.
    entries: usize,
    /// Coflows of which the policy is to hear anew.
    changed: BTreeSet<CoflowId>,
}

#[cfg(test)]
impl Expectations {
    pub(super) fn entries(&self) -> usize {
        self.entries
    }

    pub(super) fn set_entries(&mut self, entries: usize) {
        self.entries = entries;
    }
}

impl Coordinator {
    /// Takes what a driver expects of a coflow, in place of what it said before. Hosts that are not known count for nothing.
    ///
    /// # Errors
    /// The coflow is not known, or too much is said.
    pub fn handle_expect(&mut self, now: Time, request: &v1::ExpectRequest) -> Result<(), ExpectError> {
        let id = CoflowId(request.coflow);
        if request.sources.len() > limits::MAX_HOSTS as usize {
            return Err(ExpectError::TooManyHosts(request.sources.len()));
        }
        let before = self.coflows.get(&id).ok_or_else(|| self.unknown(id))?.expected.len();
        self.renew(now, id);
        if self.senders.is_some() {
            return Ok(());
        }
        let expected = self.by_host(&request.sources);
        let entries = self.expectations.entries.saturating_sub(before).saturating_add(expected.len());
        if entries > limits::MAX_EXPECTED {
            return Err(ExpectError::TooMany);
        }
        self.expectations.entries = entries;
        if let Some(coflow) = self.coflows.get_mut(&id) {
            coflow.expected = expected;
        }
        self.count("expectations");
        let waits = self
            .coflows
            .get(&id)
            .is_some_and(|coflow| coflow.stage == Stage::Bypassed && !coflow.outside.is_empty());
        if waits && !self.is_small(id) {
            self.gather(now, id);
        }
        self.expect_anew(id);
        self.want_plan(now);
        Ok(())
    }

    /// The hosts that are known of those that a driver names, by number or by the address of their agents.
    fn by_host(&self, sources: &[v1::ExpectedFrom]) -> Expected {
        let by_address: BTreeMap<&str, HostNumber> =
            match sources.iter().any(|from| !from.data_address.is_empty()) {
                true => self.agents.values().map(|agent| (agent.data_address.as_str(), agent.host)).collect(),
                false => BTreeMap::new(),
            };
        let mut expected = Expected::new();
        for from in sources.iter().filter(|from| from.bytes > 0) {
            let host = match from.data_address.as_str() {
                "" => Some(HostNumber(from.host)),
                address => by_address.get(address).copied(),
            };
            let Some(host) = host.filter(|&host| self.network.place(host).is_some()) else { continue };
            let sum = expected.entry(host).or_default();
            *sum = sum.saturating_add(from.bytes).min(limits::MAX_BLOCK_BYTES);
        }
        expected
    }

    /// A flow was asked for the first time: it is not to come any more.
    pub(super) fn take_expected(&mut self, id: CoflowId, host: HostNumber, size: u64) {
        let Some(coflow) = self.coflows.get_mut(&id) else { return };
        let Some(left) = coflow.expected.get_mut(&host) else { return };
        *left = left.saturating_sub(size);
        if *left == 0 {
            coflow.expected.remove(&host);
            self.expectations.entries = self.expectations.entries.saturating_sub(1);
        }
        self.expectations.changed.insert(id);
    }

    /// The policy is to hear what is expected of a coflow with the next plan.
    pub(super) fn expect_anew(&mut self, id: CoflowId) {
        self.expectations.changed.insert(id);
    }

    /// Nothing is expected of a coflow that has ended.
    pub(super) fn forget_expected(&mut self, id: CoflowId, entries: usize) {
        self.expectations.entries = self.expectations.entries.saturating_sub(entries);
        self.expectations.changed.remove(&id);
    }

    /// Tells the policy's table what has changed.
    pub(super) fn tell_expected(&mut self) {
        for id in std::mem::take(&mut self.expectations.changed) {
            let Some(slot) = self.table.find_coflow(id) else { continue };
            let Some(coflow) = self.coflows.get(&id) else { continue };
            let link =
                |(&host, &bytes): (&HostNumber, &u64)| Some((self.network.uplink(host)?, bytes as f64));
            self.table.expect(slot, coflow.expected.iter().filter_map(link).collect());
        }
    }
}
