//! Jobs of several stages: what they need at least, and when they were complete.

use crate::isolation::isolation;
use crate::outcome::{CoflowRecord, JobRecord};
use std::collections::{BTreeMap, VecDeque};
use weir_model::{CoflowId, CoflowSpec, Fabric, JobId, Span, Tail, Time};

/// Which coflow belongs to which job.
#[derive(Clone, Debug, Default)]
pub struct Jobs {
    job_of: BTreeMap<CoflowId, JobId>,
    arrivals: BTreeMap<JobId, Time>,
}

impl Jobs {
    /// The jobs of a workload; none if each is a bare coflow, for then they are the coflows.
    pub fn of(coflows: &[CoflowSpec]) -> Jobs {
        let mut jobs = Jobs::default();
        if coflows.iter().all(|coflow| coflow.dependencies.job.is_none()) {
            return jobs;
        }
        for coflow in coflows {
            jobs.job_of.insert(coflow.id, coflow.job());
            let arrival = jobs.arrivals.entry(coflow.job()).or_insert(coflow.arrival);
            *arrival = coflow.arrival.min(*arrival);
        }
        jobs
    }

    /// One record per job, by (arrival, id), from those of all its coflows.
    pub fn records(&self, coflows: &[CoflowRecord]) -> Vec<JobRecord> {
        let mut records: BTreeMap<JobId, JobRecord> = BTreeMap::new();
        for coflow in coflows {
            let Some(&id) = self.job_of.get(&coflow.id) else { continue };
            let arrival = self.arrivals.get(&id).copied().unwrap_or(coflow.arrival);
            let record =
                records.entry(id).or_insert(JobRecord { id, arrival, jct: Some(Span::ZERO), coflows: 0 });
            let until = (coflow.arrival + coflow.cct).since(arrival);
            // One refused coflow leaves the job without a completion time, whatever comes after it.
            record.jct = record.jct.filter(|_| coflow.admitted).map(|jct| jct.max(until));
            record.coflows += 1;
        }
        let mut records: Vec<JobRecord> = records.into_values().collect();
        records.sort_by_key(|record| (record.arrival, record.id));
        records
    }
}

/// Tells every coflow that others start after what its job needs at least once it is complete: the longest path of
/// isolation times on this fabric, with and without compute times. Other coflows keep what they have.
pub fn set_tails(fabric: &Fabric, coflows: &mut [CoflowSpec]) {
    // No stage waits for another: all tails stay empty, and no isolation time need be computed.
    if coflows.iter().all(|coflow| coflow.dependencies.after.is_empty()) {
        return;
    }
    let index: BTreeMap<CoflowId, usize> = (0..coflows.len()).map(|at| (coflows[at].id, at)).collect();
    let mut parents: Vec<Vec<usize>> = coflows
        .iter()
        .map(|coflow| coflow.dependencies.after.iter().filter_map(|id| index.get(id).copied()).collect())
        .collect();
    // From the last stages to the first. A coflow in a circle never has all its children done.
    let mut children = vec![0usize; coflows.len()];
    parents.iter().flatten().for_each(|&parent| children[parent] += 1);
    let mut open: VecDeque<usize> = (0..coflows.len()).filter(|&at| children[at] == 0).collect();
    while let Some(at) = open.pop_front() {
        if parents[at].is_empty() {
            continue;
        }
        // All children of this one are done, so its tail is final.
        let own = isolation(fabric, &coflows[at]);
        let Tail { time, transfer } = coflows[at].dependencies.tail;
        let (time, transfer) = (coflows[at].dependencies.compute + own + time, own + transfer);
        for parent in std::mem::take(&mut parents[at]) {
            let tail = &mut coflows[parent].dependencies.tail;
            *tail = Tail { time: tail.time.max(time), transfer: tail.transfer.max(transfer) };
            children[parent] -= 1;
            if children[parent] == 0 {
                open.push_back(parent);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::{Bytes, Dependencies, FlowSpec, HostId, Rate};

    /// A coflow of job 7 that needs `secs` alone on links of 1000 bytes per second.
    fn coflow(id: u64, secs: u64, after: &[u64], compute_ms: u64) -> CoflowSpec {
        let size = Bytes(1000 * secs);
        let flow = FlowSpec { source: HostId(0), destination: HostId(1), size, group: 0 };
        let dependencies = Dependencies {
            job: Some(JobId(7)),
            after: after.iter().map(|&id| CoflowId(id)).collect(),
            compute: Span::from_millis(compute_ms),
            ..Dependencies::default()
        };
        CoflowSpec { dependencies, ..CoflowSpec::new(CoflowId(id), Time::from_millis(10 * id), vec![flow]) }
    }

    #[test]
    fn the_tail_of_a_coflow_is_the_longest_path_behind_it() {
        // Behind 1: 2 (compute 500 ms, 3 s) then 4 (1 s), or 3 (compute 4 s, 1 s) then 4. With compute times the second
        // way is longer, 6 s against 4.5 s; without the first, 4 s against 2 s.
        let fabric = Fabric::big_switch(2, Rate::from_bytes_per_sec(1000.0)).unwrap();
        let mut coflows = [
            coflow(1, 2, &[], 0),
            coflow(2, 3, &[1], 500),
            coflow(3, 1, &[1], 4000),
            coflow(4, 1, &[2, 3], 0),
        ];
        set_tails(&fabric, &mut coflows);
        let tails = coflows.map(|coflow| {
            let Tail { time, transfer } = coflow.dependencies.tail;
            (time.nanos() / 1_000_000, transfer.nanos() / 1_000_000)
        });
        assert_eq!(tails, [(6000, 4000), (1000, 1000), (1000, 1000), (0, 0)]);
        let mut circle = [coflow(1, 2, &[2], 0), coflow(2, 3, &[1], 0)];
        set_tails(&fabric, &mut circle);
        assert!(circle.iter().all(|coflow| coflow.dependencies.tail == Tail::default()));
    }

    #[test]
    fn a_job_ends_with_its_last_coflow_and_has_no_end_if_one_was_refused() {
        let coflows = [coflow(1, 1, &[], 0), coflow(2, 1, &[1], 0)];
        let record = |id, arrival_ms, cct_ms, admitted| CoflowRecord {
            id: CoflowId(id),
            arrival: Time::from_millis(arrival_ms),
            admitted,
            cct: Span::from_millis(cct_ms),
            isolation: Span::ZERO,
            width: 1,
            bytes: Bytes(1),
            bin: 1,
        };
        // From 10 ms to 100 + 50 ms.
        let jobs = Jobs::of(&coflows);
        let of = |admitted| jobs.records(&[record(1, 20, 60, true), record(2, 100, 50, admitted)]);
        assert_eq!((of(true)[0].jct, of(true)[0].coflows), (Some(Span::from_millis(140)), 2));
        assert_eq!(of(false)[0].jct, None);
        let bare = coflows.map(|coflow| CoflowSpec { dependencies: Dependencies::default(), ..coflow });
        assert!(Jobs::of(&bare).records(&[record(1, 20, 60, true)]).is_empty());
    }
}
