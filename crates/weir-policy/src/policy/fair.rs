//! `fair`: what ideal TCP would do.

use super::{Claims, Policy, PolicyInfo};
use crate::share::MaxMin;
use crate::{CoflowTable, Plan};
use weir_model::{Fabric, Time};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "fair",
    summary: "exact max-min fairness between flows, as ideal TCP",
    paper: "Bertsekas and Gallager, Data Networks, section 6.5.2; the per-flow fairness of Varys section 7",
    claims: Claims { work_conserving: true, starvation_free: true },
    between_sites: false,
    local: None,
    parameters: &[],
    make: |_| Box::new(Fair::default()),
};

#[derive(Default)]
struct Fair {
    max_min: MaxMin,
}

impl Policy for Fair {
    fn plan(&mut self, _now: Time, fabric: &Fabric, view: &CoflowTable, plan: &mut Plan) {
        plan.clear();
        self.max_min.allocate(fabric, view, plan);
    }
}
