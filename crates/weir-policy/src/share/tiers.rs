//! Plans made of tiers: what changed since the last one.

use super::{Fill, Residual, Weigh};
use crate::{CoflowTable, Form, Plan, Share, Slot};

/// One tier that a coflow was in: by which fill, the tier's first coflow, and the version of its rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    fill: usize,
    first: Slot,
    version: u64,
}

/// What a coflow gets.
#[derive(Debug, Default)]
struct Given {
    coflow: u64,
    now: Vec<Part>,
    last: Vec<Part>,
}

/// A plan in the making whose coflows are served in tiers, in several rounds if need be: a coflow may be in
/// one tier of each.
#[derive(Debug)]
pub struct Tiers {
    weigh: Weigh,
    fills: Vec<Fill>,
    /// By slot of the coflow.
    given: Vec<Given>,
    planned: bool,
}

impl Tiers {
    /// Tiers whose flows weigh like this.
    pub fn new(weigh: Weigh) -> Tiers {
        Tiers { weigh, fills: Vec::new(), given: Vec::new(), planned: false }
    }

    /// Gives a tier what it can use of what is left. Rounds count from 0.
    pub fn take(&mut self, view: &CoflowTable, round: usize, coflows: &[Slot], residual: &mut Residual) {
        let Some(&first) = coflows.first() else { return };
        // Grows only: a fill that this plan does not need remembers tiers that the next plan may
        // need.
        self.fills.resize_with(self.fills.len().max(round + 1), Fill::default);
        self.given.resize_with(view.slot_bound(), Given::default);
        self.fills[round].take(view, coflows, self.weigh, residual);
        let part = Part { fill: round, first, version: self.fills[round].version(first) };
        coflows.iter().for_each(|slot| self.given[slot.0 as usize].now.push(part));
    }

    /// Writes the shares that changed into the plan.
    pub fn finish(&mut self, view: &CoflowTable, plan: &mut Plan) {
        plan.form = Form::Shares;
        plan.continues = std::mem::replace(&mut self.planned, true);
        self.given.resize_with(view.slot_bound(), Given::default);
        for (slot, coflow) in view.coflows() {
            let given = &mut self.given[slot.0 as usize];
            let Given { now, last, .. } = given;
            let known = std::mem::replace(&mut given.coflow, coflow.id().0) == coflow.id().0;
            // The slot may have passed to another coflow since the last plan. Equal parts then say
            // nothing of what that one was told.
            if now != last || !known || !plan.continues {
                let fills = &self.fills;
                let share = |part: &Part| fills[part.fill].share(part.first, slot, self.weigh);
                plan.shares.extend(now.iter().map(share));
                // A plan that continues the last one names changes only: a share without levels says that the coflow gets nothing any more.
                if now.is_empty() {
                    plan.shares.push(Share { coflow: slot, by_size: false, levels: Vec::new() });
                }
            }
            std::mem::swap(now, last);
            now.clear();
        }
    }
}
