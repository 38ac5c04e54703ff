//! A simulation as a value: what is simulated goes in, what became of it comes out.

use crate::report::{LinkRecorder, LinkUse};
use crate::{CoflowRow, FlowRecorder, Mode, Run, thread_cpu_secs};
use std::collections::BTreeMap;
use weir_model::{CapacityChange, CoflowSpec, Fabric, Time};
use weir_policy::{Chosen, CoflowTable, Plan, Slot};
use weir_sim::{CoflowRecord, FlowRecord, Observer, Options, SimError};

/// What is simulated: a network, what is to move over it, and how it is planned. A policy besides makes it a run.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Links and what each carries, in bytes per second.
    pub fabric: Fabric,
    /// Coflows in any order; times count from the beginning.
    pub coflows: Vec<CoflowSpec>,
    /// Capacities that change on the way, in any order.
    pub changes: Vec<CapacityChange>,
    /// When the policy plans, and when coflows arrive.
    pub options: Options,
}

/// What is written down of a simulation besides its coflows and jobs; it costs time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recorded {
    /// How busy links were.
    pub link_use: bool,
    /// What became of each flow.
    pub flows: bool,
}

/// What became of a simulation.
#[derive(Clone, Debug)]
pub struct Simulated {
    /// Rows of coflows and jobs, and of flows if they were to be recorded.
    pub run: Run,
    /// If it was to be recorded.
    pub link_use: Option<LinkUse>,
}

/// Runs a workload under a policy. `left` is called with every coflow that leaves, complete or refused, when it does.
///
/// # Errors
/// As [`weir_sim::simulate_changing`].
///
/// # Panics
/// A change is of a link that the fabric does not have.
pub fn simulate(
    spec: &Spec,
    policy: &Chosen,
    recorded: Recorded,
    left: &mut dyn FnMut(&CoflowRecord),
) -> Result<Simulated, SimError> {
    let Spec { fabric, coflows, changes, options } = spec;
    let mut watch = Watch {
        left,
        links: recorded.link_use.then(|| LinkRecorder::new(fabric, coflows)),
        flows: recorded.flows.then(|| FlowRecorder::new(coflows)),
    };
    let (changes, copy, mut instance) = (changes.clone(), coflows.clone(), policy.create());
    // Of this thread alone, as several simulations may run at once.
    let before = thread_cpu_secs();
    let outcome = weir_sim::simulate_changing(fabric, changes, copy, instance.as_mut(), options, &mut watch)?;
    let cpu_s = thread_cpu_secs() - before;
    let rows = coflow_rows(&outcome.coflows, coflows);
    let mut run = Run::new(&policy.name, Mode::Simulated, rows, cpu_s).with_jobs(&outcome.jobs);
    run.flows = watch.flows.map(FlowRecorder::finish).unwrap_or_default();
    Ok(Simulated { run, link_use: watch.links.map(LinkRecorder::finish) })
}

/// Rows of what became of coflows, with the deadlines that these had.
pub fn coflow_rows(records: &[CoflowRecord], coflows: &[CoflowSpec]) -> Vec<CoflowRow> {
    let stated = coflows.iter().filter_map(|coflow| coflow.deadline.map(|deadline| (coflow.id, deadline)));
    let deadlines: BTreeMap<_, _> = stated.collect();
    records.iter().map(|record| CoflowRow::new(record, deadlines.get(&record.id).copied())).collect()
}

/// Hands what happens on to the recorders there are.
struct Watch<'a> {
    left: &'a mut dyn FnMut(&CoflowRecord),
    links: Option<LinkRecorder<'a>>,
    flows: Option<FlowRecorder>,
}

impl Observer for Watch<'_> {
    fn planned(&mut self, table: &CoflowTable, plan: &Plan, arrived: &[Slot]) {
        if let Some(recorder) = &mut self.flows {
            recorder.planned(table, plan, arrived);
        }
    }
    fn moved(&mut self, from: Time, to: Time, table: &CoflowTable, plan: &Plan) {
        if let Some(recorder) = &mut self.links {
            recorder.moved(from, to, table, plan);
        }
        if let Some(recorder) = &mut self.flows {
            recorder.moved(from, to, table, plan);
        }
    }
    fn flow_completed(&mut self, flow: FlowRecord) {
        if let Some(recorder) = &mut self.links {
            recorder.flow_completed(flow);
        }
        if let Some(recorder) = &mut self.flows {
            recorder.flow_completed(flow);
        }
    }
    fn coflow_completed(&mut self, coflow: &CoflowRecord) {
        (self.left)(coflow);
        if let Some(recorder) = &mut self.flows {
            recorder.coflow_completed(coflow);
        }
    }
    fn coflow_refused(&mut self, coflow: &CoflowRecord) {
        (self.left)(coflow);
        if let Some(recorder) = &mut self.flows {
            recorder.coflow_refused(coflow);
        }
    }
}
