//! `fair-coflows`: equal progress for all coflows.

use super::{Claims, Policy, PolicyInfo};
use crate::share::{Backfill, EqualProgress, Residual};
use crate::{CoflowTable, Plan};
use weir_model::{Fabric, Time};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "fair-coflows",
    summary: "weighted max-min fairness between coflows by progress, with isolation; then backfill",
    paper: "Ghodsi et al., Dominant Resource Fairness, NSDI 2011; Chowdhury et al., HUG, NSDI 2016",
    claims: Claims { work_conserving: true, starvation_free: true },
    between_sites: false,
    local: None,
    parameters: &[],
    make: |_| Box::new(FairCoflows::default()),
};

pub(super) struct FairCoflows {
    residual: Residual,
    progress: EqualProgress,
    backfill: Backfill,
}

impl Default for FairCoflows {
    fn default() -> FairCoflows {
        // What backfill adds to a flow changes the Gamma of its coflow all the time: no plan goes on.
        FairCoflows {
            residual: Residual::default(),
            progress: EqualProgress::default(),
            backfill: Backfill::anew(),
        }
    }
}

impl Policy for FairCoflows {
    fn plan(&mut self, _now: Time, fabric: &Fabric, view: &CoflowTable, plan: &mut Plan) {
        plan.clear();
        self.residual.reset(fabric);
        self.progress.allocate(view, &mut self.residual, plan);
        self.backfill.allocate(view, view.slots(), &mut self.residual, plan);
    }
}
