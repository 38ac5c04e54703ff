//! Policies that serve coflows one after the other: an order, MADD, backfill.

use super::Policy;
use crate::order::Order;
use crate::share::{Backfill, Madd, Residual};
use crate::{CoflowTable, Plan, Slot};
use weir_model::{Fabric, Time};

/// An [`Order`] with the sharing of Varys: MADD on what earlier coflows left, then backfill over all
/// coflows in the same order.
pub struct CoflowByCoflow {
    order: Box<dyn Order>,
    sorted: Vec<Slot>,
    last_sorted: Vec<Slot>,
    planned: bool,
    residual: Residual,
    madd: Madd,
    backfill: Backfill,
}

impl CoflowByCoflow {
    /// A policy by order.
    pub fn new(order: Box<dyn Order>) -> CoflowByCoflow {
        CoflowByCoflow::with_residual(order, Residual::default())
    }

    /// A policy by order that starts every plan from its own view of what is left, as
    /// [`Residual::with_dust_share`].
    pub fn with_residual(order: Box<dyn Order>, residual: Residual) -> CoflowByCoflow {
        CoflowByCoflow {
            order,
            sorted: Vec::new(),
            last_sorted: Vec::new(),
            planned: false,
            residual,
            madd: Madd::default(),
            backfill: Backfill::default(),
        }
    }
}

impl CoflowByCoflow {
    /// Says that the plan in force is not the last one made here.
    pub fn forget(&mut self) {
        self.planned = false;
    }

    /// Whether the drains of the last plan stay what they are.
    fn goes_on(&mut self, view: &CoflowTable) -> bool {
        self.planned
            && !view.changes().disturbed
            && self.sorted == self.last_sorted
            && self.madd.goes_on(view)
    }
}

impl Policy for CoflowByCoflow {
    fn plan(&mut self, _now: Time, fabric: &Fabric, view: &CoflowTable, plan: &mut Plan) {
        plan.clear();
        if !self.residual.knows(fabric) {
            self.order.set_fabric(fabric);
            self.residual.reset(fabric);
            self.planned = false;
        }
        std::mem::swap(&mut self.sorted, &mut self.last_sorted);
        self.order.sort(view, &mut self.sorted);
        // The order first: where it changed, drains are others, and nothing of the last walk holds.
        if self.goes_on(view) && self.backfill.go_on(view, &self.sorted, &self.residual, &[], plan) {
            plan.continues = true;
            return;
        }
        self.residual.reset(fabric);
        self.madd.allocate(view, &self.sorted, &mut self.residual, plan);
        self.backfill.allocate(view, &self.sorted, &mut self.residual, plan);
        self.planned = true;
    }
}
