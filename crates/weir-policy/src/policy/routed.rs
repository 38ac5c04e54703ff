//! `siphon` and `sebf-routed`: coflows between datacenters that may take detours.

use super::between_sites::{self, GROUPS};
use super::{Claims, Parameter, ParameterKind, Policy, PolicyInfo, Settings};
use crate::order::{Order, RoutedBottleneck};
use crate::route::{Router, Rule, SiteNetwork};
use crate::share::{ByRoute, GroupOrder, Knowing, Residual};
use crate::{CoflowTable, Plan, Slot};
use std::sync::Arc;
use weir_model::{Fabric, Time};

const ROUTES: Parameter = Parameter {
    name: "routes",
    kind: ParameterKind::Choice {
        of: &["converged", "published", "one-iteration", "direct"],
        expected: "`converged`, `published`, `one-iteration` or `direct`",
    },
    default: "converged",
    about: "how far water-filling goes; the paper's ends as published",
};

const REROUTE: Parameter = Parameter {
    name: "reroute",
    kind: ParameterKind::Switch,
    default: "on",
    about: "whether routes follow what a coflow has left; off: as they were for the whole of it",
};

pub(super) const SIPHON: PolicyInfo = PolicyInfo {
    name: "siphon",
    summary: "monte-carlo order, each coflow routed by water-filling as if alone, largest flow group first; for links between sites",
    paper: between_sites::SIPHON,
    claims: Claims { work_conserving: true, starvation_free: false },
    between_sites: true,
    local: None,
    parameters: &[
        between_sites::DEPTH,
        between_sites::BREADTH,
        between_sites::ROUNDS,
        between_sites::DECIDE,
        between_sites::SEED,
        GROUPS,
        ROUTES,
        REROUTE,
    ],
    make: |from| {
        let order = Box::new(between_sites::monte_carlo(from));
        let knowing = if from.switch("reroute") { Knowing::Capacity } else { Knowing::Beginning };
        Box::new(Routed::new(order, router(from), knowing, between_sites::group_order(from)))
    },
};

pub(super) const SEBF_ROUTED: PolicyInfo = PolicyInfo {
    name: "sebf-routed",
    summary: "smallest effective bottleneck first over all one-relay routes, each coflow routed on what those before it leave; for links between sites",
    paper: "Ours; after Varys (Chowdhury, Zhong, Stoica, SIGCOMM 2014), Siphon's water-filling, and Terra (You, Chowdhury, 2019), which solves linear programs",
    claims: Claims { work_conserving: true, starvation_free: false },
    between_sites: true,
    local: None,
    parameters: &[GROUPS, ROUTES],
    make: |from| Box::new(Routed::together(router(from), between_sites::group_order(from))),
};

fn router(from: &Settings) -> Arc<dyn Router> {
    Arc::new(match from.choice("routes") {
        "direct" => Rule::Direct,
        "one-iteration" => Rule::OneIteration,
        "published" => Rule::Published,
        _ => Rule::Converged,
    })
}

/// An order of coflows, and routes for each.
pub struct Routed {
    order: Box<dyn Order>,
    sorted: Vec<Slot>,
    network: SiteNetwork,
    residual: Residual,
    share: ByRoute,
}

impl Routed {
    /// Order, routes and rates together, by these routes: `sebf-routed` with another router.
    pub fn together(router: Arc<dyn Router>, groups: GroupOrder) -> Routed {
        Routed::new(Box::new(RoutedBottleneck::new(router.clone())), router, Knowing::Others, groups)
    }

    fn new(order: Box<dyn Order>, router: Arc<dyn Router>, knowing: Knowing, groups: GroupOrder) -> Routed {
        Routed {
            order,
            sorted: Vec::new(),
            network: SiteNetwork::default(),
            residual: Residual::default(),
            share: ByRoute::new(router, knowing, groups),
        }
    }
}

impl Policy for Routed {
    fn plan(&mut self, _now: Time, fabric: &Fabric, view: &CoflowTable, plan: &mut Plan) {
        plan.clear();
        if !self.residual.knows(fabric) {
            self.order.set_fabric(fabric);
            self.network = SiteNetwork::of(fabric);
        }
        self.residual.reset(fabric);
        self.order.sort(view, &mut self.sorted);
        self.share.allocate(&self.network, view, &self.sorted, &mut self.residual, plan);
        plan.order.extend_from_slice(&self.sorted);
    }
}
