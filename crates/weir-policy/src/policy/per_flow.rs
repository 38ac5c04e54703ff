//! `smallest-flow` and `flow-edf`: prioritization between flows, blind to coflows. `local-smallest`: between coflows,
//! by what each sender has of them.

use super::{Claims, Policy, PolicyInfo};
use crate::share::{FlowByFlow, FlowOrder};
use crate::{CoflowTable, Plan};
use weir_model::{Fabric, Time};

pub(super) const SMALLEST_FLOW: PolicyInfo = PolicyInfo {
    name: "smallest-flow",
    summary: "smallest flow first over all coflows, as an ideal pFabric",
    paper: "Alizadeh et al., pFabric, SIGCOMM 2013; the per-flow prioritization of Varys section 7",
    claims: Claims { work_conserving: true, starvation_free: false },
    between_sites: false,
    local: None,
    parameters: &[],
    make: |_| Box::new(PerFlow(FlowByFlow::new(FlowOrder::SmallestFirst))),
};

pub(super) const FLOW_EDF: PolicyInfo = PolicyInfo {
    name: "flow-edf",
    summary: "earliest deadline first over all flows, then smallest first, as an ideal PDQ",
    paper: "Hong, Caesar, Godfrey, PDQ, SIGCOMM 2012; the per-flow prioritization of Varys section 7.3",
    claims: Claims { work_conserving: true, starvation_free: false },
    between_sites: false,
    local: None,
    parameters: &[],
    make: |_| Box::new(PerFlow(FlowByFlow::new(FlowOrder::EarliestDeadlineFirst))),
};

/// Without a coordinator a sender can order coflows only by what it has of them itself, and it has as much of a large
/// one as of a small one where it has a small part: what one sender puts first another puts last, and a coflow waits
/// for the last of its parts. Receivers serve what arrives in the order of the numbers that senders put on it. That is
/// the most that can be had without a coordinator, in switches as of pFabric: where receivers shared equally instead,
/// coflows that meet at one would move side by side, too. The sizes of parts count as they were at the beginning, so
/// that no part overtakes another; the talk shows neither its rule nor its sizes.
pub(super) const LOCAL_SMALLEST: PolicyInfo = PolicyInfo {
    name: "local-smallest",
    summary: "smallest coflow first by what each sender alone has of it, without a coordinator",
    paper: "Chowdhury, Zhong, Stoica, Varys, SIGCOMM 2014, and its talk, the need for coordination; rule ours",
    claims: Claims { work_conserving: true, starvation_free: false },
    between_sites: false,
    local: None,
    parameters: &[],
    make: |_| Box::new(PerFlow(FlowByFlow::new(FlowOrder::SmallestPartFirst))),
};

struct PerFlow(FlowByFlow);

impl Policy for PerFlow {
    fn plan(&mut self, _now: Time, fabric: &Fabric, view: &CoflowTable, plan: &mut Plan) {
        plan.clear();
        self.0.allocate(fabric, view, plan);
    }
}
