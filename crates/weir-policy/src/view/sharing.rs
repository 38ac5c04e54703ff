//! Coflows that move by the shares of a plan.

use super::paced::{Levels, NEVER};
use super::{CoflowTable, FlowRef, Slot};
use crate::Plan;

impl CoflowTable {
    /// Bytes that a coflow has sent over links in all: of flows that have ended too, and of those that were
    /// removed as far as they had come.
    pub fn attained(&self, slot: Slot) -> f64 {
        let coflow = self.coflow(slot);
        if let Some(paced) = &coflow.paced {
            return paced.attained(self.moving.clock);
        }
        let live = (0u32..).zip(coflow.flows()).filter(|(_, flow)| flow.live() && flow.class().is_some());
        let moved =
            live.map(|(at, flow)| flow.size().0 as f64 - self.remaining(FlowRef { coflow: slot, flow: at }));
        coflow.sent + moved.sum::<f64>()
    }

    /// Counts bytes that a coflow sent before it (or a flow of it) entered the table.
    pub fn add_attained(&mut self, slot: Slot, bytes: f64) {
        let coflow = self.coflow_mut(slot);
        match &mut coflow.paced {
            Some(paced) => paced.add_attained(bytes),
            None => coflow.sent += bytes,
        }
    }

    /// The sum of the rates of a coflow's flows by its shares; 0 without any.
    pub fn shared_rate(&self, slot: Slot) -> f64 {
        self.coflow(slot).paced.as_ref().map_or(0.0, |paced| paced.per_sec())
    }

    /// The time until the first end of a flow with a share, as a reading of the clock.
    pub(super) fn first_paced_end(&self) -> u64 {
        let ends = self.order.iter().filter_map(|&slot| Some(self.coflow(slot).paced.as_ref()?.first_end()));
        ends.min().unwrap_or(NEVER)
    }

    /// Adds flows that have nothing left by their shares.
    pub(super) fn take_paced_ends(&self, flows: &mut Vec<FlowRef>) {
        let mut ended = Vec::new();
        for &coflow in &self.order {
            if let Some(paced) = &self.coflow(coflow).paced {
                paced.take_ends(self.moving.clock, &mut ended);
                flows.extend(ended.drain(..).map(|flow| FlowRef { coflow, flow }));
            }
        }
    }

    /// Starts the shares of a plan; each coflow it names stops what it did before.
    pub(super) fn start_sharing(&mut self, plan: &Plan) {
        let clock = self.moving.clock;
        if !plan.continues {
            for at in 0..self.order.len() {
                if let Some(paced) = &mut self.coflow_mut(self.order[at]).paced {
                    paced.restart(clock, &[]);
                }
            }
        }
        let mut levels: Vec<Levels> = Vec::new();
        for shares in plan.shares.chunk_by(|a, b| a.coflow == b.coflow) {
            let links = self.links;
            levels.resize_with(levels.len().max(shares.len()), || Levels {
                by_size: false,
                of: vec![0.0; links],
            });
            for (share, levels) in shares.iter().zip(&mut levels) {
                levels.by_size = share.by_size;
                share.levels.iter().for_each(|&(link, level)| levels.of[link.index()] = level);
            }
            if let Some(paced) = &mut self.coflow_mut(shares[0].coflow).paced {
                paced.restart(clock, &levels[..shares.len()]);
            }
            for (share, levels) in shares.iter().zip(&mut levels) {
                // Back to 0 where it was set, so that the table of all links is not cleared for every coflow.
                share.levels.iter().for_each(|&(link, _)| levels.of[link.index()] = 0.0);
            }
        }
        for at in 0..self.order.len() {
            if let Some(paced) = &mut self.coflow_mut(self.order[at]).paced {
                paced.settle();
            }
        }
    }
}
