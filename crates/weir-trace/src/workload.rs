//! A workload: jobs of stages, each of which computes and then waits for a coflow.

use weir_model::{CoflowId, CoflowSpec, Dependencies, JobId, Span, Time};

/// Jobs over a number of hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// What it is called in results: the file's name, or `synthetic:NAME`.
    pub name: String,
    /// Number of hosts; every flow's ends are below it.
    pub hosts: u32,
    /// Its jobs, in the order of the file.
    pub jobs: Vec<Job>,
}

/// A graph of stages. A bare coflow is a job of one stage without compute time.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Number of the job, unique in its workload.
    pub id: JobId,
    /// When stages that wait for no other may begin to compute.
    pub arrival: Time,
    /// A name for people.
    pub name: Option<String>,
    /// Its stages. Each waits only for earlier ones, so there is no cycle.
    pub stages: Vec<Stage>,
}

/// A stage begins when those it waits for are complete, computes, then waits for its coflow.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// Compute time before the coflow's flows may start.
    pub compute: Span,
    /// Indices of the stages of the same job whose coflows must be complete first.
    pub after: Vec<usize>,
    /// What it transfers. Its `arrival` is the earliest possible one: see [`Job::set_arrivals`].
    pub coflow: CoflowSpec,
}

impl Job {
    /// A job of one stage without compute time, with the id and arrival of its coflow.
    pub fn bare(coflow: CoflowSpec) -> Job {
        let (id, arrival) = (JobId(coflow.id.0), coflow.arrival);
        let stage = Stage { compute: Span::ZERO, after: Vec::new(), coflow };
        Job { id, arrival, name: None, stages: vec![stage] }
    }

    /// Whether it is what [`Job::bare`] makes.
    pub fn is_bare(&self) -> bool {
        let [stage] = self.stages.as_slice() else { return false };
        self.id.0 == stage.coflow.id.0
            && self.arrival == stage.coflow.arrival
            && self.name.is_none()
            && stage.compute == Span::ZERO
            && stage.after.is_empty()
    }

    /// Sets every coflow's arrival to the earliest possible one: all compute times on the longest chain of
    /// stages up to its own, as if transfers took no time. Entries of `after` that are not earlier stages
    /// are left out.
    pub fn set_arrivals(&mut self) {
        for index in 0..self.stages.len() {
            // Stages stand behind those that they wait for, so that one pass in order is enough.
            let earlier = self.stages[index].after.iter().filter(|&&other| other < index);
            let start = earlier.map(|&other| self.stages[other].coflow.arrival).fold(self.arrival, Time::max);
            let stage = &mut self.stages[index];
            stage.coflow.arrival = start + stage.compute;
        }
    }

    /// Its coflows in the order of its stages. Entries of `after` that are no stages are left out.
    fn into_coflows(self) -> Vec<CoflowSpec> {
        if self.is_bare() {
            return self.stages.into_iter().map(|stage| stage.coflow).collect();
        }
        let ids: Vec<CoflowId> = self.stages.iter().map(|stage| stage.coflow.id).collect();
        let coflow = |stage: Stage| {
            let after = stage.after.iter().filter_map(|&other| ids.get(other).copied()).collect();
            let dependencies = Dependencies {
                job: Some(self.id),
                after,
                compute: stage.compute,
                ..stage.coflow.dependencies
            };
            CoflowSpec { arrival: self.arrival, dependencies, ..stage.coflow }
        };
        self.stages.into_iter().map(coflow).collect()
    }
}

impl Workload {
    /// Bare coflows as jobs of one stage.
    pub fn from_coflows(name: impl Into<String>, hosts: u32, coflows: Vec<CoflowSpec>) -> Workload {
        Workload { name: name.into(), hosts, jobs: coflows.into_iter().map(Job::bare).collect() }
    }

    /// All coflows of all jobs, each with what it waits for, by (arrival, id). Those of stages have the arrival of
    /// their job: when the stage may begin, if it waits for no other.
    pub fn into_coflows(self) -> Vec<CoflowSpec> {
        let mut coflows: Vec<CoflowSpec> = self.jobs.into_iter().flat_map(Job::into_coflows).collect();
        coflows.sort_by_key(|coflow| (coflow.arrival, coflow.id));
        coflows
    }

    /// Like [`Workload::into_coflows`], leaving the workload as it is.
    pub fn coflows(&self) -> Vec<CoflowSpec> {
        self.clone().into_coflows()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::CoflowId;

    fn stage(id: u64, compute_ms: u64, after: &[usize]) -> Stage {
        let coflow = CoflowSpec::new(CoflowId(id), Time::ZERO, Vec::new());
        Stage { compute: Span::from_millis(compute_ms), after: after.to_vec(), coflow }
    }

    fn diamond() -> Job {
        let stages = vec![stage(1, 10, &[]), stage(2, 20, &[0]), stage(3, 3, &[0]), stage(4, 5, &[1, 2])];
        Job { id: JobId(9), arrival: Time::from_millis(100), name: None, stages }
    }

    #[test]
    fn the_earliest_arrival_is_after_the_longest_chain_of_compute() {
        // 0 -> 1 -> 3 takes 10 + 20 + 5, 0 -> 2 -> 3 takes 10 + 3 + 5: the first decides.
        let mut job = diamond();
        job.set_arrivals();
        let arrivals: Vec<_> = job.stages.iter().map(|stage| stage.coflow.arrival).collect();
        assert_eq!(arrivals, [110, 130, 113, 135].map(Time::from_millis));
    }

    #[test]
    fn coflows_of_stages_say_what_they_wait_for() {
        let workload = Workload { name: String::new(), hosts: 1, jobs: vec![diamond()] };
        let coflows = workload.into_coflows();
        let after: Vec<Vec<u64>> =
            coflows.iter().map(|coflow| coflow.dependencies.after.iter().map(|id| id.0).collect()).collect();
        assert_eq!(after, [vec![], vec![1], vec![1], vec![2, 3]]);
        let same = |coflow: &CoflowSpec| (coflow.arrival, coflow.job()) == (Time::from_millis(100), JobId(9));
        assert!(coflows.iter().all(same));
        assert_eq!(coflows[3].dependencies.compute, Span::from_millis(5));
    }

    #[test]
    fn bare_coflows_come_back_as_they_were() {
        let coflows = vec![
            CoflowSpec::new(CoflowId(9), Time::from_millis(1), Vec::new()),
            CoflowSpec::new(CoflowId(3), Time::from_millis(2), Vec::new()),
        ];
        let workload = Workload::from_coflows("x", 4, coflows.clone());
        assert!(workload.jobs.iter().all(Job::is_bare));
        assert_eq!(workload.into_coflows(), coflows);
    }
}
