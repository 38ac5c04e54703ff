//! Jobs of stages, made from the bare coflows of a workload.
//!
//! Coflows are taken by (arrival, id), each once: what is moved, and about when, stays what it was. One to so many of
//! them, all as likely, are the stages of a job, which arrives with the first. Every job is of one of the classes of
//! Varys' Table 3, drawn in the shares given there. Each of its stages computes for so long that its coflow's time is the
//! class's share of the stage, if the coflow takes as long as under fair sharing of the bare coflows.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weir_model::{CoflowId, CoflowSpec, Dependencies, Fabric, JobId, Span};
use weir_trace::synthetic::Draw;

/// Shares of a job's time that it spends in communication under fair sharing, for the classes of Varys' Table 3: the
/// middle of each class.
pub(crate) const JOB_CLASSES: [(&str, f64); 4] =
    [("<25 %", 0.125), ("25-49 %", 0.375), ("50-74 %", 0.625), (">=75 %", 0.875)];
/// Jobs of each class, in percent (Table 3).
const OF_CLASS: [u64; 4] = [61, 13, 14, 12];

/// How coflows become jobs.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct JobSetup {
    /// Stages of a job at most; at least 1.
    pub stages: u64,
    /// Stages do not wait for the coflows of those before, only for their compute times: their coflows may be live
    /// together, and then descend from each other.
    #[serde(default)]
    pub pipelined: bool,
}

/// Which class each job is of, an index into [`JOB_CLASSES`].
pub(crate) type Classes = BTreeMap<JobId, usize>;

/// Makes jobs of the coflows. `fair` has their completion times under fair sharing.
pub(crate) fn into_jobs(
    mut coflows: Vec<CoflowSpec>,
    fair: &BTreeMap<CoflowId, Span>,
    setup: JobSetup,
    draw: &mut Draw,
) -> (Vec<CoflowSpec>, Classes) {
    coflows.sort_by_key(|coflow| (coflow.arrival, coflow.id));
    let mut classes = Classes::new();
    let mut rest = coflows.as_mut_slice();
    while !rest.is_empty() {
        let count = (1 + draw.below(setup.stages.max(1)) as usize).min(rest.len());
        let (stages, others) = rest.split_at_mut(count);
        let class = class(draw);
        classes.insert(chain(stages, JOB_CLASSES[class].1, fair, setup.pipelined), class);
        rest = others;
    }
    (coflows, classes)
}

fn class(draw: &mut Draw) -> usize {
    let mut drawn = draw.below(OF_CLASS.iter().sum());
    let mut class = 0;
    while drawn >= OF_CLASS[class] {
        drawn -= OF_CLASS[class];
        class += 1;
    }
    class
}

/// Makes a job of stages that follow on each other; gives its id, which is that of its first coflow.
fn chain(stages: &mut [CoflowSpec], share: f64, fair: &BTreeMap<CoflowId, Span>, pipelined: bool) -> JobId {
    let (job, arrival) = (JobId(stages[0].id.0), stages[0].arrival);
    let ids: Vec<CoflowId> = stages.iter().map(|stage| stage.id).collect();
    let mut computed = Span::ZERO;
    for (at, stage) in stages.iter_mut().enumerate() {
        let transfer = fair.get(&stage.id).map_or(0.0, |span| span.as_secs());
        // So that transfer / (transfer + compute) is the share of the class.
        let compute = Span::from_secs_ceil(transfer * (1.0 - share) / share);
        // In a pipeline a stage computes beside the transfers before it, once those stages have computed.
        stage.arrival = if pipelined { arrival + computed } else { arrival };
        let (after, ancestors) = match pipelined {
            true => (Vec::new(), ids[..at].to_vec()),
            false => (ids[..at].last().copied().into_iter().collect(), Vec::new()),
        };
        stage.dependencies =
            Dependencies { job: Some(job), after, compute, ancestors, ..Dependencies::default() };
        computed = computed + compute;
    }
    job
}

/// Completion times of coflows under fair sharing.
pub(crate) fn fair_times(
    fabric: &Fabric,
    coflows: &[CoflowSpec],
) -> Result<BTreeMap<CoflowId, Span>, String> {
    let mut policy = weir_policy::create("fair").map_err(|error| error.to_string())?;
    let outcome = weir_sim::simulate(fabric, coflows.to_vec(), policy.as_mut(), &Default::default());
    let outcome = outcome.map_err(|error| error.to_string())?;
    Ok(outcome.coflows.iter().map(|record| (record.id, record.cct)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::Time;

    fn made(setup: JobSetup) -> (Vec<CoflowSpec>, Classes) {
        let coflows = (0..3000).map(|id| CoflowSpec::new(CoflowId(id), Time::from_millis(id), Vec::new()));
        let fair = (0..3000).map(|id| (CoflowId(id), Span::from_millis(210))).collect();
        into_jobs(coflows.collect(), &fair, setup, &mut Draw::new(1))
    }

    #[test]
    fn classes_have_the_shares_of_the_paper_and_compute_times_those_of_their_class() {
        let (coflows, classes) = made(JobSetup { stages: 1, pipelined: false });
        let percent = |class: usize| {
            100.0 * classes.values().filter(|&&other| other == class).count() as f64 / classes.len() as f64
        };
        for (class, expected) in OF_CLASS.iter().enumerate() {
            assert!((percent(class) - *expected as f64).abs() < 3.0, "{class}: {} %", percent(class));
        }
        // 210 ms are 1/8, 3/8, 5/8, 7/8 of a stage that computes for 1470, 350, 126, 30 ms.
        for coflow in &coflows {
            let expected = [1470, 350, 126, 30][classes[&coflow.job()]];
            assert_eq!(coflow.dependencies.compute.nanos() / 1_000_000, expected, "{coflow:?}");
            assert!(coflow.dependencies.after.is_empty());
        }
    }

    #[test]
    fn stages_of_a_job_follow_on_each_other_and_every_coflow_is_in_one_job() {
        for pipelined in [false, true] {
            let (coflows, classes) = made(JobSetup { stages: 3, pipelined });
            assert_eq!(coflows.len(), 3000);
            // One to three stages, two on average.
            assert!((1400..1600).contains(&classes.len()), "{}", classes.len());
            for pair in coflows.windows(2).filter(|pair| pair[0].job() == pair[1].job()) {
                let (before, stage) = (&pair[0], &pair[1].dependencies);
                let named = if pipelined { &stage.ancestors } else { &stage.after };
                assert_eq!(named.last(), Some(&before.id));
                let behind = if pipelined { before.dependencies.compute } else { Span::ZERO };
                assert_eq!(pair[1].arrival, before.arrival + behind);
            }
        }
    }
}
