//! `by-class`: an order of coflows as classes of priority in the network, and no rates.

use super::{Claims, Parameter, ParameterKind, Policy, PolicyInfo};
use crate::order::classes::Classes;
use crate::order::left::{Narrowest, Shortest, Smallest};
use crate::order::{AncestorsFirst, ByArrival, OpenShop, Order, Sebf};
use crate::share::{JustInTime, Residual, Tiers, Weigh};
use crate::{CoflowTable, FlowRef, Grant, Plan, Slot};
use weir_model::{Fabric, Time};

const ORDERS: &[&str] = &["sebf", "open-shop", "scf", "ncf", "tcf", "fifo"];
const ORDER: Parameter = Parameter {
    name: "order",
    kind: ParameterKind::Choice {
        of: ORDERS,
        expected: "`sebf`, `open-shop`, `scf`, `ncf`, `tcf` or `fifo`",
    },
    default: "sebf",
    about: "which coflow goes first: as under varys (sebf), or under the policy of that name; Sincronia's is open-shop",
};
const CLASSES: Parameter = Parameter {
    name: "classes",
    kind: ParameterKind::Count,
    default: "8",
    about: "classes of priority that switches serve one after the other; most have 8",
};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "by-class",
    summary: "coflows in classes of priority by their order, which switches serve one after the other; no rates",
    paper: "Agarwal, Rajakrishnan, Narayan, Agarwal, Shmoys, Vahdat, Sincronia: Near-Optimal Network Design for Coflows, SIGCOMM 2018",
    // Of coflows without deadlines: one that has one gets no more than it needs, also where links are idle.
    claims: Claims { work_conserving: true, starvation_free: false },
    between_sites: false,
    local: None,
    parameters: &[ORDER, CLASSES],
    make: |from| Box::new(ByClass::new(order(from.choice("order")), from.count("classes"))),
};

fn order(name: &str) -> Box<dyn Order> {
    match name {
        "open-shop" => Box::<OpenShop>::default(),
        "scf" => Box::<Shortest>::default(),
        "ncf" => Box::<Narrowest>::default(),
        "tcf" => Box::<Smallest>::default(),
        "fifo" => Box::new(ByArrival),
        // As `varys` has it: ancestors first.
        _ => Box::new(AncestorsFirst::new(Box::<Sebf>::default())),
    }
}

/// Coflows that will meet their deadlines go in the first class, just as fast as they must. All others go class before class; within
/// one all flows share as equals, as transports have them share.
struct ByClass {
    order: Box<dyn Order>,
    classes: Classes,
    sorted: Vec<Slot>,
    just_in_time: JustInTime,
    residual: Residual,
    /// Shares of the classes, and of one coflow the rates by link.
    shares: Plan,
    levels: Vec<f64>,
}

impl ByClass {
    fn new(order: Box<dyn Order>, count: u32) -> ByClass {
        ByClass {
            order,
            classes: Classes::new(count),
            sorted: Vec::new(),
            just_in_time: JustInTime::default(),
            residual: Residual::default(),
            shares: Plan::default(),
            levels: Vec::new(),
        }
    }
}

impl ByClass {
    /// Says shares flow by flow: of plans in shares the table does not keep what coflows have left by link, which orders go by.
    fn grant(&mut self, fabric: &Fabric, view: &CoflowTable, plan: &mut Plan) {
        self.levels.resize(fabric.links().len(), 0.0);
        for share in &self.shares.shares {
            for &(link, level) in &share.levels {
                self.levels[link.index()] = level;
            }
            for (flow, state) in (0u32..).zip(view.coflow(share.coflow).flows()) {
                let Some(class) = state.class().filter(|_| state.live() && !share.levels.is_empty()) else {
                    continue;
                };
                let path = view.classes()[class.index()].path();
                let bytes_per_sec =
                    path.iter().map(|link| self.levels[link.index()]).fold(f64::INFINITY, f64::min);
                if bytes_per_sec > 0.0 {
                    let flow = FlowRef { coflow: share.coflow, flow };
                    plan.grants.push(Grant { flow, bytes_per_sec });
                }
            }
        }
    }
}

impl Policy for ByClass {
    fn plan(&mut self, now: Time, fabric: &Fabric, view: &CoflowTable, plan: &mut Plan) {
        plan.clear();
        if !self.residual.knows(fabric) {
            self.order.set_fabric(fabric);
        }
        self.residual.reset(fabric);
        self.just_in_time.allocate(now, view, &mut self.residual, plan);
        self.order.sort(view, &mut self.sorted);
        self.sorted.retain(|&slot| !self.just_in_time.meets(slot));
        self.classes.assign(view, self.just_in_time.met(), &self.sorted);
        plan.classes.extend(self.classes.placed());
        plan.just_in_time.extend(self.just_in_time.met());
        // Anew with each plan, so that it names all shares.
        let mut tiers = Tiers::new(Weigh::Equally);
        let mut by_class = plan.classes[self.just_in_time.met().len()..].to_vec();
        // A stable sort: within a class the order stays, so that a tier that did not change begins with the same coflow.
        by_class.sort_by_key(|&(_, class)| class);
        for tier in by_class.chunk_by(|(_, a), (_, b)| a == b) {
            let coflows: Vec<Slot> = tier.iter().map(|&(slot, _)| slot).collect();
            tiers.take(view, 0, &coflows, &mut self.residual);
        }
        self.shares.clear();
        tiers.finish(view, &mut self.shares);
        self.grant(fabric, view, plan);
    }

    fn classes(&self) -> Option<u32> {
        Some(self.classes.count())
    }
}
