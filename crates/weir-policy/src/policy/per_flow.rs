//! `smallest-flow` and `flow-edf`: prioritization between flows, blind to coflows.

use super::{Claims, Policy, PolicyInfo};
use crate::share::{FlowByFlow, FlowOrder};
use crate::{CoflowTable, Plan};
use weir_model::{Fabric, Time};

pub(super) const SMALLEST_FLOW: PolicyInfo = PolicyInfo {
    name: "smallest-flow",
    summary: "smallest flow first over all coflows, as an ideal pFabric",
    paper: "Alizadeh et al., pFabric, SIGCOMM 2013; the per-flow prioritization of Varys section 7",
    claims: Claims { work_conserving: true, starvation_free: false },
    parameters: &[],
    make: |_| Box::new(PerFlow(FlowByFlow::new(FlowOrder::SmallestFirst))),
};

pub(super) const FLOW_EDF: PolicyInfo = PolicyInfo {
    name: "flow-edf",
    summary: "earliest deadline first over all flows, then smallest first, as an ideal PDQ",
    paper: "Hong, Caesar, Godfrey, PDQ, SIGCOMM 2012; the per-flow prioritization of Varys section 7.3",
    claims: Claims { work_conserving: true, starvation_free: false },
    parameters: &[],
    make: |_| Box::new(PerFlow(FlowByFlow::new(FlowOrder::EarliestDeadlineFirst))),
};

struct PerFlow(FlowByFlow);

impl Policy for PerFlow {
    fn plan(&mut self, _now: Time, fabric: &Fabric, view: &CoflowTable, plan: &mut Plan) {
        plan.clear();
        self.0.allocate(fabric, view, plan);
    }
}
