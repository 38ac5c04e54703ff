//! `mrtf`, `lookahead` and `monte-carlo`: coflows between datacenters, one after the other on every link, and their
//! flow groups in turn.

use super::{Claims, Parameter, ParameterKind, Policy, PolicyInfo, Settings};
use crate::order::bandwidth::Estimate;
use crate::order::branches::Reach;
use crate::order::monte_carlo::{Draw, Lookahead};
use crate::order::tally::Decide;
use crate::order::{MinimumRemainingTime, Order};
use crate::share::{FlowGroups, GroupOrder, Residual};
use crate::{CoflowTable, Plan, Slot};
use weir_model::{Fabric, Time};

pub(super) const SIPHON: &str = "Liu, Chen, Li, Siphon: Expediting Inter-Datacenter Coflows in Wide-Area Data Analytics, USENIX ATC 2018, section 3";

const ESTIMATE: Parameter = Parameter {
    name: "estimate",
    kind: ParameterKind::Choice { of: &["mean", "median", "last"], expected: "`mean`, `median` or `last`" },
    default: "mean",
    about: "what a link is taken to have, of the capacities it was seen to have; the paper does not say which",
};
pub(super) const GROUPS: Parameter = Parameter {
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
    between_sites: true,
    local: None,
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

pub(super) const DEPTH: Parameter = Parameter {
    name: "depth",
    kind: ParameterKind::Count,
    default: "3",
    about: "coflows whose order is looked at, at most 5; the paper has a bound d and does not say which",
};
pub(super) const BREADTH: Parameter = Parameter {
    name: "breadth",
    kind: ParameterKind::Count,
    default: "10",
    about: "coflows that they are taken from, first by remaining time, at most 16",
};
pub(super) const ROUNDS: Parameter = Parameter {
    name: "rounds",
    kind: ParameterKind::Count,
    default: "200",
    about: "draws of bandwidth per decision, at most",
};
pub(super) const DECIDE: Parameter = Parameter {
    name: "decide",
    kind: ParameterKind::Choice { of: &["wins", "mean"], expected: "`wins` or `mean`" },
    default: "wins",
    about: "whether the order that was best most often is taken, or the one that was best on average",
};
pub(super) const SEED: Parameter =
    Parameter { name: "seed", kind: ParameterKind::Count, default: "1", about: "seed of the draws" };

pub(super) const LOOKAHEAD: PolicyInfo = PolicyInfo {
    name: "lookahead",
    summary: "the best order of the next few coflows at the mean bandwidth, largest flow group first; for links between sites",
    paper: SIPHON,
    claims: Claims { work_conserving: true, starvation_free: false },
    between_sites: true,
    local: None,
    parameters: &[DEPTH, BREADTH, GROUPS],
    make: |from| Box::new(BetweenSites::new(Box::new(Lookahead::new(reach(from), Draw::Mean)), from)),
};

pub(super) const MONTE_CARLO: PolicyInfo = PolicyInfo {
    name: "monte-carlo",
    summary: "the order of the next few coflows that is best most often by simulation, largest flow group first; for links between sites",
    paper: SIPHON,
    claims: Claims { work_conserving: true, starvation_free: false },
    between_sites: true,
    local: None,
    parameters: &[DEPTH, BREADTH, ROUNDS, DECIDE, SEED, GROUPS],
    make: |from| Box::new(BetweenSites::new(Box::new(monte_carlo(from)), from)),
};

/// The order of `monte-carlo`.
pub(super) fn monte_carlo(from: &Settings) -> Lookahead {
    let decide = if from.choice("decide") == "mean" { Decide::Mean } else { Decide::Wins };
    let draw = Draw::Rounds { rounds: from.count("rounds"), decide, seed: from.count("seed").into() };
    Lookahead::new(reach(from), draw)
}

/// Which group goes first, by the setting `groups`.
pub(super) fn group_order(from: &Settings) -> GroupOrder {
    match from.choice("groups") {
        "smallest" => GroupOrder::SmallestFirst,
        "off" => GroupOrder::ByIndex,
        _ => GroupOrder::LargestFirst,
    }
}

fn reach(from: &Settings) -> Reach {
    Reach { depth: from.count("depth") as usize, breadth: from.count("breadth") as usize }
}

/// An order of coflows, and strict priority.
struct BetweenSites {
    order: Box<dyn Order>,
    sorted: Vec<Slot>,
    residual: Residual,
    groups: FlowGroups,
}

impl BetweenSites {
    fn new(order: Box<dyn Order>, from: &Settings) -> BetweenSites {
        let groups = FlowGroups::new(group_order(from));
        BetweenSites { order, sorted: Vec::new(), residual: Residual::default(), groups }
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
        plan.order.extend_from_slice(&self.sorted);
    }
}
