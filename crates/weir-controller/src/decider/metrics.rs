//! The metrics of a decision maker that is a process of its own.

use super::{Reply, Request};
use crate::decision::Finality;
use std::sync::{Arc, Mutex, PoisonError};
use weir_metrics::{Look, Looked, Metric, PROCESS, Sheet};

const EPOCH: Metric = Metric::gauge(
    "weir_decider_epoch",
    "Epoch of the state that it decided on last; servers make a new one with what they report",
);
const PROPOSALS: Metric = Metric::counter(
    "weir_decider_proposals",
    "Orders that it proposed: in force for the time being (provisional) or until the next epoch (final), or refused because \
     others had decided or the epoch was over (superseded)",
)
.by(&["result"]);
const FAILURES: Metric =
    Metric::counter("weir_decider_store_failures", "Requests that the store did not answer");

/// The metrics of a decision maker that is a process of its own.
pub const METRICS: &[Metric] = &[EPOCH, PROPOSALS, FAILURES];
/// With those that all processes have.
pub(super) const ALL: &[&[Metric]] = &[METRICS, PROCESS];

/// What a decision maker has done; clones count together.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts(Arc<Mutex<Done>>);

#[derive(Clone, Copy, Debug, Default)]
struct Done {
    epoch: u64,
    provisional: u64,
    fin: u64,
    superseded: u64,
    failures: u64,
    is_failing: bool,
}

impl Counts {
    /// A request was answered so.
    pub(super) fn note(&self, request: &Request, reply: &Reply) {
        let mut done = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        done.is_failing = *reply == Reply::Failed;
        done.failures += u64::from(done.is_failing);
        if let (Request::Propose(proposal), Reply::Proposed(number)) = (request, reply) {
            done.epoch = proposal.epoch;
            let count = match (number, proposal.finality) {
                (None, _) => &mut done.superseded,
                (Some(_), Finality::Provisional) => &mut done.provisional,
                (Some(_), Finality::Final) => &mut done.fin,
            };
            *count += 1;
        }
    }

    pub(super) fn look(&self) -> Looked {
        let done = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Box::pin(async move {
            let mut sheet = Sheet::default();
            sheet.set(&EPOCH, done.epoch as f64);
            let results =
                [("provisional", done.provisional), ("final", done.fin), ("superseded", done.superseded)];
            for (result, count) in results {
                sheet.set_of(&PROPOSALS, &[result], count as f64);
            }
            sheet.set(&FAILURES, done.failures as f64);
            let unready = done.is_failing.then(|| "the store does not answer".to_owned());
            Some(Look { sheet, unready })
        })
    }
}
