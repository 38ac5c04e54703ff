//! What a store does, in memory and without a clock: the embedded store is this behind a lock, and the scripts of the
//! Redis store do the same.
//!
//! One counter gives epochs to states, and numbers to decisions and rules: whatever has the greater number came later.

use super::{MAX_NUMBER, Notice, PAUSE, Renewal, Report, SERVER_LIFETIME, Snapshot};
use crate::decision::{Decision, Finality, Proposal};
use crate::records::Documents;
use std::collections::BTreeMap;
use weir_model::Time;
use weir_policy::order::tally::Tally;

/// What is known of a server.
#[derive(Debug, Default)]
struct Server {
    /// Time at which its documents are dropped unless it renews them.
    until: Time,
    documents: Documents,
}

/// All that a store knows. Calls that take the time also forget servers whose time is over.
#[derive(Debug, Default)]
pub struct Ledger {
    counter: u64,
    epoch: u64,
    servers: BTreeMap<String, Server>,
    /// Of the current epoch, by decision maker.
    tallies: BTreeMap<String, Tally>,
    decision: Option<Decision>,
    /// When it was last asked for anything by which servers are forgotten.
    asked: Time,
    notices: Vec<Notice>,
}

impl Ledger {
    /// Takes a server's documents over: see [`super::Store::report`].
    pub fn report(&mut self, now: Time, report: &Report) -> Option<u64> {
        let new = !self.servers.contains_key(&report.server);
        // Changes of documents that are not here would leave a part that passes for the whole.
        if new && !report.complete {
            return None;
        }
        let server = self.servers.entry(report.server.clone()).or_default();
        server.until = now + SERVER_LIFETIME;
        if report.complete {
            server.documents.clear();
        }
        for (name, text) in &report.changes {
            match text {
                Some(text) => drop(server.documents.insert(name.clone(), text.clone())),
                None => drop(server.documents.remove(name)),
            }
        }
        // After the reporting server was prolonged: it is heard just now.
        let expired = self.forget_expired(now);
        // A store that lost its counter must not give numbers again that relays have seen.
        self.counter = self.counter.max(report.floor.min(MAX_NUMBER));
        if expired || new || report.complete || !report.changes.is_empty() {
            self.state_changed();
        }
        Some(self.epoch)
    }

    /// Prolongs the life of a server's documents: see [`super::Store::renew`].
    pub fn renew(&mut self, now: Time, server: &str) -> Renewal {
        let known = self.servers.get_mut(server).map(|server| server.until = now + SERVER_LIFETIME).is_some();
        if self.forget_expired(now) {
            self.state_changed();
        }
        Renewal { known, decision: self.decision.as_ref().map_or(0, |decision| decision.number) }
    }

    /// Documents and decision at this moment: see [`super::Store::read`].
    pub fn read(&self) -> Snapshot {
        let documents = |(name, server): (&String, &Server)| (name.clone(), server.documents.clone());
        Snapshot {
            epoch: self.epoch,
            servers: self.servers.iter().map(documents).collect(),
            decision: self.decision.clone(),
        }
    }

    /// Gives out a number for rules: see [`super::Store::issue`].
    pub fn issue(&mut self, floor: u64) -> (u64, Snapshot) {
        self.counter = self.counter.max(floor.min(MAX_NUMBER)) + 1;
        (self.counter, self.read())
    }

    /// Adds a decision maker's tally: see [`super::Store::share`].
    pub fn share(&mut self, epoch: u64, maker: &str, tally: &Tally) -> Option<Vec<Tally>> {
        if self.is_over(epoch, Finality::Final) {
            return None;
        }
        self.tallies.insert(maker.to_owned(), tally.clone());
        Some(self.tallies.values().cloned().collect())
    }

    /// Takes a proposal as the decision: see [`super::Store::propose`].
    pub fn propose(&mut self, proposal: &Proposal) -> Option<u64> {
        if self.is_over(proposal.epoch, proposal.finality) {
            return None;
        }
        self.counter += 1;
        self.decision = Some(Decision { number: self.counter, proposal: proposal.clone() });
        self.notices.push(Notice::Decision);
        Some(self.counter)
    }

    /// What happened since this was asked last.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// Whether an epoch is not the current one, or decided as finally.
    fn is_over(&self, epoch: u64, finality: Finality) -> bool {
        epoch != self.epoch
            || self.decision.as_ref().is_some_and(|decision| decision.settles(epoch, finality))
    }

    fn forget_expired(&mut self, now: Time) -> bool {
        let asked = std::mem::replace(&mut self.asked, now);
        if now.since(asked) > PAUSE {
            // No server could be heard meanwhile, as where the process was stopped: this does not count as silence of any of them.
            let until = now + SERVER_LIFETIME;
            self.servers.values_mut().for_each(|server| server.until = server.until.max(until));
        }
        let before = self.servers.len();
        self.servers.retain(|_, server| server.until > now);
        self.servers.len() < before
    }

    fn state_changed(&mut self) {
        self.counter += 1;
        self.epoch = self.counter;
        // Tallies are of branches of the epoch before.
        self.tallies.clear();
        self.notices.push(Notice::State);
    }
}
