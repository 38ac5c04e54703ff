//! A policy of another crate: every coflow gets the same part of each link, and its flows end together.

use weir_model::{Fabric, LinkId, Time};
use weir_policy::{Claims, CoflowTable, Plan, Policy, PolicyInfo};

/// All that is to be registered.
pub static POLICIES: [PolicyInfo; 1] = [PolicyInfo {
    name: "equal-parts",
    summary: "every coflow gets the same part of each link; its flows end together",
    paper: "none",
    claims: Claims { work_conserving: false, starvation_free: true },
    between_sites: false,
    local: None,
    parameters: &[],
    make: |_| Box::new(EqualParts),
}];

/// It keeps nothing from plan to plan.
struct EqualParts;

impl Policy for EqualParts {
    fn plan(&mut self, _: Time, fabric: &Fabric, view: &CoflowTable, plan: &mut Plan) {
        plan.clear();
        let part = 1.0 / view.coflows().count() as f64;
        for (slot, coflow) in view.coflows() {
            // Per second, the share of what is left that the slowest link has room for.
            let drain = |&link: &LinkId| {
                part * fabric.links()[link.index()].capacity.bytes_per_sec() / view.demand(slot, link)
            };
            let least = coflow.links().iter().map(drain).fold(f64::INFINITY, f64::min);
            plan.drains.extend(least.is_finite().then_some((slot, least)));
        }
    }
}

#[test]
fn it_keeps_the_laws() {
    weir_policy::laws::check(&POLICIES[0], 64);
}
