//! `mrtf`: coflows between datacenters, one after the other on every link, and their flow groups in turn.

use super::{Claims, Parameter, ParameterKind, Policy, PolicyInfo, Settings};
use crate::order::bandwidth::Estimate;
use crate::order::{MinimumRemainingTime, Order};
use crate::share::{FlowGroups, GroupOrder, Residual};
use crate::{CoflowTable, Plan, Slot};
use weir_model::{Fabric, Time};

const SIPHON: &str = "Liu, Chen, Li, Siphon: Expediting Inter-Datacenter Coflows in Wide-Area Data Analytics, USENIX ATC 2018, section 3";

const ESTIMATE: Parameter = Parameter {
    name: "estimate",
    kind: ParameterKind::Choice { of: &["mean", "median", "last"], expected: "`mean`, `median` or `last`" },
    default: "mean",
    about: "what a link is taken to have, of the capacities it was seen to have; the paper does not say which",
};
const GROUPS: Parameter = Parameter {
    name: "groups",
    kind: ParameterKind::Choice {
        of: &["largest", "smallest", "off"],
        expected: "`largest`, `smallest` or `off`",
    },
    default: "largest",
    about: "which flow group of a coflow goes first (LFGF); off: flows by index",
};

pub(super) const MRTF: PolicyInfo = PolicyInfo {
    name: "mrtf",
    summary: "minimum remaining time first by estimated bandwidth, largest flow group first; for links between sites",
    paper: SIPHON,
    claims: Claims { work_conserving: true, starvation_free: false },
    parameters: &[ESTIMATE, GROUPS],
    make: |from| {
        let estimate = match from.choice("estimate") {
            "median" => Estimate::Median,
            "last" => Estimate::Last,
            _ => Estimate::Mean,
        };
        Box::new(BetweenSites::new(Box::new(MinimumRemainingTime::new(estimate)), from))
    },
};

/// An order of coflows, and strict priority.
struct BetweenSites {
    order: Box<dyn Order>,
    sorted: Vec<Slot>,
    residual: Residual,
    groups: FlowGroups,
}

impl BetweenSites {
    fn new(order: Box<dyn Order>, from: &Settings) -> BetweenSites {
        let groups = match from.choice("groups") {
            "smallest" => GroupOrder::SmallestFirst,
            "off" => GroupOrder::ByIndex,
            _ => GroupOrder::LargestFirst,
        };
        BetweenSites {
            order,
            sorted: Vec::new(),
            residual: Residual::default(),
            groups: FlowGroups::new(groups),
        }
    }
}

impl Policy for BetweenSites {
    fn plan(&mut self, _now: Time, fabric: &Fabric, view: &CoflowTable, plan: &mut Plan) {
        plan.clear();
        if !self.residual.knows(fabric) {
            self.order.set_fabric(fabric);
        }
        self.residual.reset(fabric);
        self.order.sort(view, &mut self.sorted);
        self.groups.allocate(view, &self.sorted, &mut self.residual, plan);
    }
}
