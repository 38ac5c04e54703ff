//! `lp-routed`: order, routes and rates together, with routes by linear programming.

use crate::least_makespan;
use std::sync::Arc;
use weir_policy::route::{Router, Routes, Rule, SiteDemand};
use weir_policy::share::GroupOrder;
use weir_policy::{Claims, PolicyInfo, Routed};

/// What this crate adds to the registry ([`weir_policy::add_policies`]).
pub const POLICIES: &[PolicyInfo] = &[PolicyInfo {
    name: "lp-routed",
    summary: "as sebf-routed, with routes by linear programming; the bound of what its water-filling can do, and slow",
    paper: "You, Chowdhury, Terra: Scalable Cross-Layer GDA Optimizations, 2019; with one relay at most",
    claims: Claims { work_conserving: true, starvation_free: false },
    between_sites: true,
    local: None,
    parameters: &[],
    make: |_| Box::new(Routed::together(Arc::new(LinearProgram), GroupOrder::LargestFirst)),
}];

/// The routes of [`least_makespan`]; should the solver fail, those of converged water-filling.
struct LinearProgram;

impl Router for LinearProgram {
    fn route(&self, demand: &SiteDemand) -> Routes {
        least_makespan(demand).unwrap_or_else(|_| Rule::Converged.route(demand))
    }
}
