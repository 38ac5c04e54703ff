//! What fails, and when.

use crate::events::Event;
use crate::world::World;
use rand::RngExt;

impl World {
    /// The next fault, while there are to be any.
    pub(crate) fn next_fault(&mut self) {
        if !self.is_calm() {
            let after = self.millis(20, 400);
            self.later(after, Event::Fault);
        }
    }

    pub(crate) fn fail(&mut self) {
        if self.is_calm() {
            return;
        }
        self.report.faults += 1;
        match self.rng.random_range(0..10) {
            0 if self.coordinator.core.is_some() => {
                self.kill_coordinator();
                let after = self.millis(5, 2_000);
                self.later(after, Event::CoordinatorStarts);
            }
            1..4 => {
                let host = self.some_host();
                if self.hosts[host as usize].agent.is_some() {
                    self.kill_agent(host);
                    let after = self.millis(5, 2_500);
                    self.later(after, Event::AgentStarts { host });
                }
            }
            4..7 => {
                let open: Vec<_> =
                    self.sessions.iter().filter(|(_, session)| !session.is_cut).map(|(&id, _)| id).collect();
                if !open.is_empty() {
                    let id = open[self.rng.random_range(0..open.len())];
                    self.cut(id, None, true);
                }
            }
            _ => {
                let open: Vec<u64> = self.transfers.keys().copied().collect();
                if !open.is_empty() {
                    let number = open[self.rng.random_range(0..open.len())];
                    self.break_transfer(number);
                }
            }
        }
        self.next_fault();
    }
}
