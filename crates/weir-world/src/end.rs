//! What came of a run, and what is wrong if something is left when all is over.

use crate::data::{Connection, Role};
use crate::jobs::Job;
use crate::receiver::Get;
use crate::world::World;
use std::fmt;
use weir_core::agent::{FactCursor, JournalEntry};
use weir_core::relay::{Relay, RelayCounters};
use weir_model::{CoflowId, Span};

/// What happened in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Events that the world handled.
    pub events: u64,
    /// Messages between agents and coordinators that arrived.
    pub messages: u64,
    /// Bytes of blocks that arrived.
    pub bytes: u64,
    /// Gets that were done.
    pub gets: u64,
    /// Transfers that were begun: more than gets where connections were lost.
    pub transfers: u64,
    /// Bytes of flows that relays took in, at each of them.
    pub relayed: u64,
    /// Faults that happened; a lost answer to a call is one, too.
    pub faults: u64,
    /// Faults that were drawn, though they may have been left out.
    pub faults_drawn: u64,
    /// Machines that were lost, of those.
    pub machines_lost: u64,
    /// Virtual time from the beginning to the end.
    pub took: Span,
    /// Of all events: two runs with one digest did the same.
    pub digest: u64,
}

/// A rule that a run broke, and when.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Seconds since the beginning.
    pub at: f64,
    /// The rule that was broken, in words.
    pub what: String,
    /// What had happened until then.
    pub report: Report,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {:.6} s, after {} faults: {}", self.at, self.report.faults, self.what)
    }
}

impl std::error::Error for Violation {}

impl World {
    /// All parties are there, and know of the others.
    pub(crate) fn is_whole(&self) -> bool {
        let attached = self.hosts.iter().all(|host| host.agent.is_some() && host.session.is_some());
        let attached = attached && self.relays.iter().all(|relay| relay.core.is_some());
        let controlled = self.controllers.are_whole(self.now) && self.are_streams_whole();
        self.is_calm() && self.coordinator.core.is_some() && attached && controlled
    }

    /// What is not over, in words.
    pub(crate) fn unfinished(&self) -> String {
        let jobs: Vec<String> =
            self.jobs
                .iter()
                .enumerate()
                .filter(|(_, job)| !job.is_over())
                .map(|(number, job)| {
                    let gets = self.gets.iter().filter(|get| get.job == number && !get.is_done);
                    let waits = |get: &Get| {
                        let block = &job.blocks[get.block];
                        let side = &self.hosts[block.host as usize];
                        let held = side.agent.as_ref().zip(job.coflow).map(|(agent, coflow)| {
                            agent.places(CoflowId(coflow), &block.name).next().is_some()
                        });
                        format!("{get:?} of {block:?}, held there: {held:?}, session {:?}", side.session)
                    };
                    let gets: Vec<String> = gets.map(waits).take(2).collect();
                    format!("job {number} (coflow {:?}, {:?}): {}", job.coflow, job.stage, gets.join("; "))
                })
                .take(3)
                .collect();
        if jobs.is_empty() { "an agent has no session".to_owned() } else { jobs.join("\n") }
    }

    /// Relays have no flows left, nor agents connections to relays.
    fn look_for_leaks_at_relays(&mut self) {
        let counters: Vec<RelayCounters> =
            self.relays.iter().filter_map(|side| side.core.as_ref()).map(Relay::counters).collect();
        // A flow that was sent in a circle is given up by all who had it, and so is one whose coflow was refused.
        let was_refused = self.jobs.iter().any(|job| job.was_refused);
        let excused = self.report.faults > 0 || self.has_circles || was_refused;
        // One whose receiver died is given up by every relay that had it, or hears of it yet.
        let excused = excused || self.has_relayed_to_dead;
        if !excused && counters.iter().any(|counters| counters.reset > 0) {
            return self.violate(format!("relays gave flows up, though nothing failed: {counters:?}"));
        }
        for (number, side) in self.relays.iter().enumerate() {
            let Some(core) = &side.core else { continue };
            if !core.is_idle() {
                let counters = core.counters();
                return self.violate(format!(
                    "relay {number} still has flows, or receivers that wait: {counters:?}"
                ));
            }
        }
        let is_left = |connection: &&Connection| {
            matches!(connection.role, Role::Upload(_)) && (connection.sends || connection.is_open)
        };
        if let Some(left) = self.connections.values().find(is_left) {
            let (from, to) = (left.from, left.to);
            self.violate(format!("a connection of host {from} to the relay of machine {to} is left"));
        }
    }

    /// Nothing is left of jobs that are over.
    pub(crate) fn look_for_leaks(&mut self) {
        self.look_for_leaks_at_relays();
        self.look_for_leaks_at_controllers();
        let now = self.coordinator.now(self.now);
        if let Some(core) = &mut self.coordinator.core {
            let status = core.status(now);
            if let Some(left) = status.coflows.iter().find(|left| !self.is_forgotten(left.coflow)) {
                self.violate(format!("the coordinator still has {left:?}"));
                return;
            }
            let flows: u64 = status.agents.iter().map(|agent| agent.flows).sum();
            let blocks: u64 = status.agents.iter().map(|agent| agent.blocks).sum();
            if (flows, blocks) != (0, 0) && !self.jobs.iter().any(Job::is_forgotten) {
                let left: Vec<_> =
                    status.agents.iter().filter(|agent| agent.flows + agent.blocks > 0).collect();
                self.violate(format!(
                    "the coordinator still has {flows} flows and {blocks} blocks of agents: {left:?}"
                ));
                return;
            }
        }
        for number in 0..self.hosts.len() {
            let host = &self.hosts[number];
            let Some(agent) = &host.agent else { continue };
            let flows = agent.open_flows();
            let facts = agent.facts(&mut FactCursor::default(), usize::MAX);
            let stays = |fact: &JournalEntry| {
                matches!(fact, JournalEntry::Ended(_) | JournalEntry::EndedRange(..) | JournalEntry::Boot(_))
            };
            let forgotten = |fact: &JournalEntry| match fact {
                JournalEntry::Put(block) => self.is_forgotten(block.coflow.0),
                JournalEntry::Gone { coflow, .. } => self.is_forgotten(coflow.0),
                JournalEntry::Served { coflow, .. } => self.is_forgotten(coflow.0),
                _ => false,
            };
            let left = facts.into_iter().find(|fact| !stays(fact) && !forgotten(fact));
            let file = host
                .disk
                .files
                .iter()
                .find(|(_, job)| !self.jobs[**job].is_forgotten())
                .map(|(path, _)| path.clone());
            if let Some(path) = file {
                self.violate(format!("host {number} still has {path}"));
            } else if flows > 0 || !host.flows.is_empty() {
                self.violate(format!("the agent of host {number} still has {flows} flows"));
            } else if let Some(left) = left {
                self.violate(format!("the agent of host {number} still knows {left:?}"));
            }
        }
    }
}
