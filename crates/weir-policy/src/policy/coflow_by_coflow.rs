//! Policies that serve coflows one after the other: an order, MADD, backfill.

use super::Policy;
use crate::order::Order;
use crate::share::{Backfill, Residual, madd};
use crate::{CoflowTable, Plan, Slot};
use weir_model::{Fabric, Time};

/// An [`Order`] with the sharing of Varys: MADD on what earlier coflows left, then backfill over all
/// coflows in the same order.
pub struct CoflowByCoflow {
    order: Box<dyn Order>,
    sorted: Vec<Slot>,
    residual: Residual,
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
        CoflowByCoflow { order, sorted: Vec::new(), residual, backfill: Backfill::default() }
    }
}

impl Policy for CoflowByCoflow {
    fn plan(&mut self, _now: Time, fabric: &Fabric, view: &CoflowTable, plan: &mut Plan) {
        plan.clear();
        self.order.sort(fabric, view, &mut self.sorted);
        self.residual.reset(fabric);
        madd::allocate(view, &self.sorted, &mut self.residual, plan);
        self.backfill.allocate(view, &self.sorted, &mut self.residual, plan);
    }
}
