//! The job that asks least of the network first, and in a job the longest path first.
//!
//! # Problem
//! A job waits for its last stage. SEBF looks at one coflow at a time: it lets a job with much ahead of it pass one
//! that is nearly done, and between coflows of one job it serves the small one first, though the job waits for the
//! other.
//!
//! # Approach
//! Two rules for two questions. *Which job?* That with the least left to transfer on its longest path: SEBF with jobs
//! in place of coflows. Compute times do not count here, for while a job computes others use the network. *Which
//! coflow of the job?* That with the longest path to the job's end, compute times included: what has no slack goes
//! first (the Critical-Path Method).
//!
//! # Terminology
//! * tail of a coflow: what the job needs at least once it is complete ([`weir_model::Tail`]).
//! * path of a coflow: its Gamma (see `sebf`) and then its tail.
//!
//! # Pseudo-code
//! ```text
//! for c in live coflows:
//!     transfer = gamma(c) + tail(c).transfer;  path[c] = gamma(c) + tail(c).time
//!     job[c].left = max(job[c].left, transfer)
//! sort by (left of job, arrival and id of the job's first live coflow, longest path, arrival, id)
//! ```
//!
//! # Properties
//! * Coflows of one job stand together.
//! * Where no coflow has a tail or shares its job with another, it is SEBF.
//!
//! # Departures
//! Varys (SIGCOMM 2014, section 8) says that "some variation of the Critical-Path Method might perform even better"
//! than ancestry, and leaves it for future work: the rule is ours. A stage that computes has no live coflow, so
//! what a job has left on that path is not counted until its coflow arrives.

use super::Order;
use super::sebf::Bottlenecks;
use crate::{CoflowTable, Slot};
use std::collections::BTreeMap;
use weir_model::{Fabric, JobId};

/// Jobs by what is left to transfer, their coflows by path.
#[derive(Default)]
pub struct CriticalPath {
    bottlenecks: Bottlenecks,
}

/// What is known of a job.
struct Ahead {
    /// Seconds of transfers on its longest path.
    left: f64,
    /// Rank of its first live coflow by (arrival, id).
    rank: usize,
}

impl Order for CriticalPath {
    fn set_fabric(&mut self, fabric: &Fabric) {
        self.bottlenecks.set_fabric(fabric);
    }

    fn sort(&mut self, view: &CoflowTable, sorted: &mut Vec<Slot>) {
        self.bottlenecks.make_room(view);
        let mut jobs: BTreeMap<JobId, Ahead> = BTreeMap::new();
        let mut paths = Vec::with_capacity(view.slots().len());
        for (rank, (slot, coflow)) in view.coflows().enumerate() {
            let gamma = self.bottlenecks.gamma(view, slot, coflow);
            let tail = coflow.dependencies().tail;
            let job = jobs.entry(coflow.job()).or_insert(Ahead { left: 0.0, rank });
            // Transfers only: while the job computes, links are free for others, so compute time does not make it a longer job for them.
            job.left = job.left.max(gamma + tail.transfer.as_secs());
            paths.push((coflow.job(), gamma + tail.time.as_secs(), rank, slot));
        }
        let key = |&(job, path, rank, slot): &(JobId, f64, usize, Slot)| {
            (jobs[&job].left, jobs[&job].rank, path, rank, slot)
        };
        let mut keys: Vec<(f64, usize, f64, usize, Slot)> = paths.iter().map(key).collect();
        keys.sort_by(|a, b| {
            let by_job = a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
            // `b` before `a`: within a job the longest path goes first, for it has no slack.
            by_job.then(b.2.total_cmp(&a.2)).then(a.3.cmp(&b.3))
        });
        sorted.clear();
        sorted.extend(keys.into_iter().map(|(_, _, _, _, slot)| slot));
    }
}
