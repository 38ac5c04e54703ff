//! `varys`: smallest effective bottleneck first; `varys-critical-path`: the job with least to do first.

use super::fair_coflows::FairCoflows;
use super::{Claims, CoflowByCoflow, Parameter, ParameterKind, Policy, PolicyInfo};
use crate::order::{AncestorsFirst, CriticalPath, Order, Sebf};
use crate::{CoflowTable, Plan};
use weir_model::{Fabric, Span, Time};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "varys",
    summary: "smallest effective bottleneck first, MADD on residual capacity, work-conserving backfill",
    paper: "Chowdhury, Zhong, Stoica, Efficient Coflow Scheduling with Varys, SIGCOMM 2014, section 5.3",
    claims: Claims { work_conserving: true, starvation_free: false },
    between_sites: false,
    local: None,
    parameters: &[ANCESTRY, DELTA, INTERVAL],
    make: |from| {
        let order: Box<dyn Order> = match from.switch("ancestry") {
            true => Box::new(AncestorsFirst::new(Box::<Sebf>::default())),
            false => Box::<Sebf>::default(),
        };
        let sebf = CoflowByCoflow::new(order);
        match (from.span("T"), from.span("delta")) {
            (_, Span::ZERO) => Box::new(sebf),
            (interval, delta) => Box::new(Guarded { sebf, fair: FairCoflows::default(), interval, delta }),
        }
    },
};

pub(super) const CRITICAL_PATH: PolicyInfo = PolicyInfo {
    name: "varys-critical-path",
    summary: "jobs by the longest path of what they still transfer, in a job the longest path first; else as varys",
    paper: "Chowdhury, Zhong, Stoica, Efficient Coflow Scheduling with Varys, SIGCOMM 2014, section 8 (named, not given)",
    claims: Claims { work_conserving: true, starvation_free: false },
    between_sites: false,
    local: None,
    parameters: &[],
    make: |_| {
        let order = AncestorsFirst::new(Box::<CriticalPath>::default());
        Box::new(CoflowByCoflow::new(Box::new(order)))
    },
};

const ANCESTRY: Parameter = Parameter {
    name: "ancestry",
    kind: ParameterKind::Switch,
    default: "on",
    about: "on: a coflow goes behind those that it descends from while they are live; off: by its bottleneck alone",
};
const DELTA: Parameter = Parameter {
    name: "delta",
    kind: ParameterKind::Time,
    default: "0",
    about: "how long in every T + delta all coflows share, so that none starves; the paper says 200 ms; 0: never",
};
const INTERVAL: Parameter = Parameter {
    name: "T",
    kind: ParameterKind::Time,
    default: "2s",
    about: "how long coflows are served in order before they share for delta; 2 s in the paper",
};

/// Freedom from starvation (section 5.3.4): for T in order, then for delta every coflow gets its equal part.
/// Intervals count from time 0.
struct Guarded {
    sebf: CoflowByCoflow,
    fair: FairCoflows,
    interval: Span,
    delta: Span,
}

impl Guarded {
    /// When the interval began in which `now` falls, and the one after it begins.
    fn interval(&self, now: Time) -> (Time, Time) {
        let both = self.interval + self.delta;
        // From the time alone, not from a last switch: the policy needs no state, and a coordinator that begins anew is in step.
        let begin = now.nanos() / both.nanos() * both.nanos();
        (Time::from_nanos(begin), Time::from_nanos(begin) + both)
    }
}

impl Policy for Guarded {
    fn plan(&mut self, now: Time, fabric: &Fabric, view: &CoflowTable, plan: &mut Plan) {
        if now.since(self.interval(now).0) < self.interval {
            self.sebf.plan(now, fabric, view, plan);
        } else {
            // The plan in force is the other policy's from now on, and SEBF must not continue it.
            self.sebf.forget();
            self.fair.plan(now, fabric, view, plan);
        }
    }

    fn next_wakeup(&self, now: Time, view: &CoflowTable) -> Option<Time> {
        let (begin, next) = self.interval(now);
        let shares = begin + self.interval;
        // Without flows there is nothing to alternate; the simulator would wake up for ever.
        (view.live_flows() > 0).then_some(if now < shares { shares } else { next })
    }
}
