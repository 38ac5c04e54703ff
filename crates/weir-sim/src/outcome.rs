//! What a run gives back, and what may watch it.

use weir_model::{Bytes, CoflowId, FlowId, JobId, Span, Time};
use weir_policy::{CoflowTable, Plan, Slot};

/// One coflow that was completed or refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoflowRecord {
    /// Id from the coflow's specification.
    pub id: CoflowId,
    /// When its flows could start: completion time counts from here.
    pub arrival: Time,
    /// Whether the policy let it in. If not, it left as it came.
    pub admitted: bool,
    /// Completion time: from arrival to the last byte. If it was refused, the time until it was.
    pub cct: Span,
    /// Completion time in an empty fabric (Gamma), rounded up like every completion.
    pub isolation: Span,
    /// Number of flows (the coflow's width).
    pub width: usize,
    /// Bytes of all its flows.
    pub bytes: Bytes,
    /// Bin of Varys' Table 4, 1 to 4.
    pub bin: u8,
}

/// One flow that was completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowRecord {
    /// Identity: flows count from 0 over all coflows as they arrive, in the order of their coflow.
    pub id: FlowId,
    /// Coflow that the flow belonged to.
    pub coflow: CoflowId,
    /// Its index among the coflow's flows.
    pub index: usize,
    /// When its last byte arrived.
    pub completed: Time,
    /// Size of the flow, all of which moved.
    pub size: Bytes,
}

/// One job of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobRecord {
    /// Id that the job's coflows have.
    pub id: JobId,
    /// When its first stage could begin.
    pub arrival: Time,
    /// Completion time (JCT): from `arrival` to the last byte of its last coflow. None if one of them was refused.
    pub jct: Option<Span>,
    /// Number of its coflows.
    pub coflows: usize,
}

/// Why a coflow was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedCoflow {
    /// Id of the refused coflow.
    pub id: CoflowId,
    /// What the policy says, for people.
    pub reason: String,
}

/// How much work a run was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Instants at which something happened.
    pub events: u64,
    /// Times that the policy planned.
    pub plans: u64,
    /// Flows given a rate of their own by backfill, over all plans.
    pub grants: u64,
    /// Flows that completed, of all coflows.
    pub flows: u64,
    /// Most coflows live at once.
    pub most_coflows: usize,
    /// Most flows live at once.
    pub most_flows: usize,
}

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// One record per coflow, by (arrival, id).
    pub coflows: Vec<CoflowRecord>,
    /// One record per job, by (arrival, id); none where every job is a bare coflow.
    pub jobs: Vec<JobRecord>,
    /// The coflows that were refused, in the order in which they were.
    pub refused: Vec<RefusedCoflow>,
    /// How much work it was.
    pub counters: Counters,
    /// Bytes of all completed flows.
    pub delivered: Bytes,
    /// When the last flow completed.
    pub makespan: Time,
}

impl Outcome {
    /// Mean completion time of the coflows let in, in seconds; 0 without any.
    pub fn average_cct_secs(&self) -> f64 {
        self.average(|record| record.cct)
    }

    /// Mean isolation time of the coflows let in, in seconds; 0 without any.
    pub fn average_isolation_secs(&self) -> f64 {
        self.average(|record| record.isolation)
    }

    fn average(&self, span: impl Fn(&CoflowRecord) -> Span) -> f64 {
        let admitted = || self.coflows.iter().filter(|record| record.admitted);
        // 64 bits hold 584 years in nanoseconds; the sum over many coflows may be more.
        let nanos: u128 = admitted().map(|record| u128::from(span(record).nanos())).sum();
        let count = admitted().count();
        if count == 0 { 0.0 } else { nanos as f64 / 1e9 / count as f64 }
    }

    /// Completion times of the jobs that were complete, in seconds.
    pub fn jcts_secs(&self) -> Vec<f64> {
        self.jobs.iter().filter_map(|job| Some(job.jct?.as_secs())).collect()
    }
}

/// Watches a run, for reports. Every method does nothing unless implemented.
pub trait Observer {
    /// From now on `table` moves by `plan`, which it has adopted; `arrived` came since the last plan. The next plan may
    /// come at the same instant, before anything moved.
    fn planned(&mut self, table: &CoflowTable, plan: &Plan, arrived: &[Slot]) {
        let _ = (table, plan, arrived);
    }
    /// From `from` to `to` everything in `table` moved by `plan`; the table is as of `from`.
    fn moved(&mut self, from: Time, to: Time, table: &CoflowTable, plan: &Plan) {
        let _ = (from, to, table, plan);
    }
    /// The last byte of a flow has arrived.
    fn flow_completed(&mut self, flow: FlowRecord) {
        let _ = flow;
    }
    /// The last flow of a coflow has completed.
    fn coflow_completed(&mut self, coflow: &CoflowRecord) {
        let _ = coflow;
    }
    /// A coflow was refused.
    fn coflow_refused(&mut self, coflow: &CoflowRecord) {
        let _ = coflow;
    }
}

impl Observer for () {}
