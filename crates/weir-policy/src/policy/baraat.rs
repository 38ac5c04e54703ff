//! `baraat`: first come, first served, with limited multiplexing.

use super::tiered::{TierList, TierOrder, Tiered};
use super::{Claims, Parameter, ParameterKind, PolicyInfo};
use crate::CoflowTable;
use crate::share::Weigh;
use weir_model::{Span, Time};

const HEAVY: Parameter = Parameter {
    name: "heavy",
    kind: ParameterKind::Size,
    default: "1GB",
    about: "bytes sent at which a coflow is heavy; the paper takes the 80th percentile of task sizes, and 15 % of \
            the coflows that the Varys paper tells of are above 1 GB",
};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "baraat",
    summary: "coflows in order of arrival; behind a heavy one the next moves beside it; needs no sizes",
    paper: "Dogar, Karagiannis, Ballani, Rowstron, Decentralized Task-Aware Scheduling for Data Center Networks, SIGCOMM 2014, section 4",
    claims: Claims { work_conserving: true, starvation_free: false },
    parameters: &[HEAVY],
    make: |from| {
        Box::new(Tiered::new(LimitedMultiplexing { heavy_bytes: from.bytes("heavy") }, Weigh::Equally))
    },
};

/// A tier is a run of heavy coflows by arrival and the first that is not.
struct LimitedMultiplexing {
    heavy_bytes: f64,
}

impl TierOrder for LimitedMultiplexing {
    fn arrange(&mut self, _now: Time, view: &CoflowTable, tiers: &mut TierList) {
        for &slot in view.slots() {
            tiers.push(slot);
            if view.attained(slot) + 0.5 < self.heavy_bytes {
                tiers.end_tier();
            }
        }
    }

    fn next_change(&self, now: Time, view: &CoflowTable) -> Option<Time> {
        let light = view.slots().iter().filter(|&&slot| view.attained(slot) + 0.5 < self.heavy_bytes);
        let moving = light.filter(|&&slot| view.shared_rate(slot) > 0.0);
        let heavy_after =
            moving.map(|&slot| (self.heavy_bytes - view.attained(slot)) / view.shared_rate(slot));
        heavy_after.min_by(f64::total_cmp).map(|secs| now + Span::until_done(secs))
    }
}
