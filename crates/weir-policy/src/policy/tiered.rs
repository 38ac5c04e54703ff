//! Policies that serve tiers of coflows one after the other, each sharing what is left as equals.

use super::Policy;
use crate::share::{Residual, Tiers, Weigh};
use crate::{CoflowTable, Plan, Slot};
use weir_model::{Fabric, Time};

/// Which coflows are served before which.
pub(super) trait TierOrder: Send {
    /// Replaces `tiers` by all live coflows, each in one tier; the first tier is served first.
    fn arrange(&mut self, now: Time, view: &CoflowTable, tiers: &mut TierList);

    /// When tiers will be others though nothing arrives or ends.
    fn next_change(&self, now: Time, view: &CoflowTable) -> Option<Time> {
        let _ = (now, view);
        None
    }

    /// The queue of a coflow that was arranged last, if tiers are made of queues that senders are to know.
    fn queue(&self, slot: Slot) -> Option<u32> {
        let _ = slot;
        None
    }
}

/// Coflows in tiers, the first tier first.
#[derive(Debug, Default)]
pub(super) struct TierList {
    coflows: Vec<Slot>,
    ends: Vec<usize>,
}

impl TierList {
    /// Takes all tiers out.
    pub(super) fn clear(&mut self) {
        self.coflows.clear();
        self.ends.clear();
    }

    /// Adds a coflow to the last tier.
    pub(super) fn push(&mut self, coflow: Slot) {
        self.coflows.push(coflow);
    }

    /// Ends the last tier, unless it is empty.
    pub(super) fn end_tier(&mut self) {
        if self.ends.last().copied().unwrap_or(0) < self.coflows.len() {
            self.ends.push(self.coflows.len());
        }
    }

    /// The tiers in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[Slot]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, &end)| &self.coflows[begin..end])
    }
}

/// A tier order, and max-min fairness within tiers.
pub(super) struct Tiered<O> {
    order: O,
    list: TierList,
    residual: Residual,
    tiers: Tiers,
}

impl<O: TierOrder> Tiered<O> {
    /// Flows of a tier weigh like this.
    pub(super) fn new(order: O, weigh: Weigh) -> Tiered<O> {
        Tiered { order, list: TierList::default(), residual: Residual::default(), tiers: Tiers::new(weigh) }
    }
}

impl<O: TierOrder> Policy for Tiered<O> {
    fn plan(&mut self, now: Time, fabric: &Fabric, view: &CoflowTable, plan: &mut Plan) {
        plan.clear();
        self.list.clear();
        self.order.arrange(now, view, &mut self.list);
        self.list.end_tier();
        self.residual.reset(fabric);
        for tier in self.list.iter() {
            self.tiers.take(view, 0, tier, &mut self.residual);
        }
        self.tiers.finish(view, plan);
        let queues = view.slots().iter().filter_map(|&slot| Some((slot, self.order.queue(slot)?)));
        plan.queues.extend(queues);
    }

    fn next_wakeup(&self, now: Time, view: &CoflowTable) -> Option<Time> {
        self.order.next_change(now, view)
    }
}
