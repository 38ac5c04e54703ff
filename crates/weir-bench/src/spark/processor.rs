//! Processor time of what a cluster runs, and of the machine that it runs on.

use std::ops::Sub;
use std::process::Child;

/// Processor time so far, in seconds.
#[derive(Clone, Copy)]
pub(super) struct Processor {
    pub(super) executors: f64,
    pub(super) agents: f64,
    /// All of the machine's, soft interrupts included, which a kernel may charge to no process.
    pub(super) machine: f64,
}

impl Processor {
    /// As it is now; none where not every worker has one executor.
    pub(super) fn of(workers: &[Child], agents: &[Child]) -> Option<Processor> {
        let executors: Vec<String> = workers.iter().flat_map(executors_of).collect();
        let agents: Vec<String> = agents.iter().map(|agent| agent.id().to_string()).collect();
        let seconds = |processes: &[String]| -> Option<f64> {
            processes.iter().map(|process| weir_metrics::cpu_seconds(process)).sum()
        };
        // A worker has one executor. Where one is being started again, its time so far is lost.
        if executors.len() != workers.len() {
            return None;
        }
        Some(Processor {
            executors: seconds(&executors)?,
            agents: seconds(&agents)?,
            machine: weir_testbed::busy_seconds().ok()?,
        })
    }
}

impl Sub for Processor {
    type Output = Processor;

    fn sub(self, before: Processor) -> Processor {
        Processor {
            executors: self.executors - before.executors,
            agents: self.agents - before.agents,
            machine: self.machine - before.machine,
        }
    }
}

/// The executors that run under a worker, by their numbers. A worker has other children for a moment: when an application has
/// ended, it has `rm` remove its files.
pub(super) fn executors_of(worker: &Child) -> Vec<String> {
    let threads = std::fs::read_dir(format!("/proc/{}/task", worker.id())).into_iter().flatten().flatten();
    let children = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let is_java = |process: &String| {
        std::fs::read_to_string(format!("/proc/{process}/comm")).is_ok_and(|name| name.trim() == "java")
    };
    let processes = children.flat_map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    processes.filter(is_java).collect()
}
