//! `varys-deadline`: coflows are let in only if their deadline can be met, and then it is.

use super::settings::{Parameter, ParameterKind};
use super::{Claims, Policy, PolicyInfo};
use crate::admit::Admission;
use crate::order::{Order, Sebf};
use crate::share::{Backfill, Madd, Residual};
use crate::{CoflowTable, Plan, Slot};
use weir_model::{Fabric, Time};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "varys-deadline",
    summary: "coflows with a deadline are let in only if they will meet it; without deadlines as varys",
    paper: "Chowdhury, Zhong, Stoica, Efficient Coflow Scheduling with Varys, SIGCOMM 2014, section 5.4",
    claims: Claims { work_conserving: true, starvation_free: false },
    between_sites: false,
    local: None,
    parameters: &[Parameter {
        name: "admission",
        kind: ParameterKind::Choice { of: &["time", "rates"], expected: "`time` or `rates`" },
        default: "time",
        about: "a coflow is let in if all can be booked over time, or, as printed (Pseudocode 2), if the least rates of those \
                let in leave enough for its own now",
    }],
    make: |from| {
        let by_rates = from.choice("admission") == "rates";
        let admission = if by_rates { Admission::by_rates() } else { Admission::default() };
        Box::new(VarysDeadline { admission, ..VarysDeadline::default() })
    },
};

/// Bookings first, then what is left as under `varys`: coflows let in before those without a deadline.
#[derive(Default)]
struct VarysDeadline {
    sebf: Sebf,
    by_sebf: Vec<Slot>,
    sorted: Vec<Slot>,
    last_sorted: Vec<Slot>,
    admission: Admission,
    residual: Residual,
    madd: Madd,
    backfill: Backfill,
    planned: bool,
    next_change: Option<Time>,
}

impl VarysDeadline {
    /// Coflows let in, then those without a deadline, each by SEBF. Those refused are not among them.
    fn sort(&mut self, view: &CoflowTable) {
        std::mem::swap(&mut self.sorted, &mut self.last_sorted);
        self.sebf.sort(view, &mut self.by_sebf);
        self.sorted.clear();
        let admission = &self.admission;
        let (admitted, rest) = (
            |slot: &Slot| admission.is_admitted(*slot),
            |slot: &Slot| !admission.is_admitted(*slot) && !admission.is_refused(*slot),
        );
        // What bookings leave goes to these first: the sooner they end, the sooner their links are free for others.
        self.sorted.extend(self.by_sebf.iter().copied().filter(admitted));
        self.sorted.extend(self.by_sebf.iter().copied().filter(rest));
    }

    /// Whether the drains of the last plan stay what they are.
    fn goes_on(&mut self, now: Time, view: &CoflowTable) -> bool {
        self.planned
            && !view.changes().disturbed
            && self.next_change.is_none_or(|change| now < change)
            && self.sorted == self.last_sorted
            && self.madd.goes_on(view)
    }
}

impl Policy for VarysDeadline {
    fn plan(&mut self, now: Time, fabric: &Fabric, view: &CoflowTable, plan: &mut Plan) {
        plan.clear();
        if !self.residual.knows(fabric) {
            self.sebf.set_fabric(fabric);
            self.residual.reset(fabric);
            self.planned = false;
        }
        // Ends of flows bring no coflow in; between arrivals there is no coflow to judge.
        if !self.planned || view.changes().disturbed {
            self.admission.judge(now, fabric, view);
            plan.refused.extend_from_slice(self.admission.refusals());
        }
        self.sort(view);
        if self.goes_on(now, view) && self.backfill.go_on(view, &self.sorted, &self.residual, &[], plan) {
            plan.continues = true;
            return;
        }
        self.residual.reset(fabric);
        let least = self.admission.least_drains(now, fabric, view);
        self.madd.allocate_above(view, &self.sorted, least, &mut self.residual, plan);
        self.backfill.allocate(view, &self.sorted, &mut self.residual, plan);
        self.next_change = self.admission.next_change(now);
        self.planned = true;
    }

    fn next_wakeup(&self, _now: Time, _view: &CoflowTable) -> Option<Time> {
        self.next_change
    }
}
