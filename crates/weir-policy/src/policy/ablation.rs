//! `varys-madd` and `varys-paper-backfill`: what the backfill of `varys` is worth.

use super::{Claims, Policy, PolicyInfo};
use crate::order::{Order, Sebf};
use crate::share::{Madd, PortBackfill, Residual};
use crate::{CoflowTable, Plan, Slot};
use weir_model::{Fabric, Time};

const PAPER: &str =
    "Chowdhury, Zhong, Stoica, Efficient Coflow Scheduling with Varys, SIGCOMM 2014, section 5.3.4";

pub(super) const MADD: PolicyInfo = PolicyInfo {
    name: "varys-madd",
    summary: "smallest effective bottleneck first, MADD on residual capacity, no backfill",
    paper: PAPER,
    claims: Claims { work_conserving: false, starvation_free: false },
    between_sites: false,
    local: None,
    parameters: &[],
    make: |_| Box::new(Ablation::default()),
};

pub(super) const PAPER_BACKFILL: PolicyInfo = PolicyInfo {
    name: "varys-paper-backfill",
    summary: "varys with the paper's backfill: per ingress port, in the ratio of rates",
    paper: PAPER,
    claims: Claims { work_conserving: false, starvation_free: false },
    between_sites: false,
    local: None,
    parameters: &[],
    make: |_| Box::new(Ablation { backfill: Some(PortBackfill::default()), ..Ablation::default() }),
};

/// SEBF and MADD, and a backfill that may be missing.
#[derive(Default)]
struct Ablation {
    sebf: Sebf,
    sorted: Vec<Slot>,
    residual: Residual,
    madd: Madd,
    backfill: Option<PortBackfill>,
}

impl Policy for Ablation {
    fn plan(&mut self, _now: Time, fabric: &Fabric, view: &CoflowTable, plan: &mut Plan) {
        plan.clear();
        if !self.residual.knows(fabric) {
            self.sebf.set_fabric(fabric);
        }
        self.residual.reset(fabric);
        self.sebf.sort(view, &mut self.sorted);
        self.madd.allocate(view, &self.sorted, &mut self.residual, plan);
        if let Some(backfill) = &mut self.backfill {
            backfill.allocate(view, &self.sorted, &mut self.residual, plan);
        }
    }
}
