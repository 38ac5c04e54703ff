//! `baraat`: first come, first served, with limited multiplexing.

use super::tiered::{TierList, TierOrder, Tiered};
use super::{Claims, Parameter, ParameterKind, PolicyInfo};
use crate::share::Weigh;
use crate::{CoflowTable, Slot};
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
    between_sites: false,
    local: None,
    parameters: &[HEAVY],
    make: |from| {
        Box::new(Tiered::new(LimitedMultiplexing { heavy_bytes: from.bytes("heavy") }, Weigh::Equally))
    },
};

/// By arrival, each coflow is served behind the light ones before it with which it shares a link, and beside the
/// heavy ones: on a link that is, until one light coflow has come, first come, first served with the heavy ones
/// multiplexed.
struct LimitedMultiplexing {
    heavy_bytes: f64,
}

impl LimitedMultiplexing {
    fn is_heavy(&self, view: &CoflowTable, slot: Slot) -> bool {
        // Half a byte for rounding: the plan made just when the coflow should be heavy must find it so.
        view.attained(slot) + 0.5 >= self.heavy_bytes
    }
}

impl TierOrder for LimitedMultiplexing {
    fn arrange(&mut self, _now: Time, view: &CoflowTable, tiers: &mut TierList) {
        // Tier, coflow, and the tier of what comes behind it.
        let mut served: Vec<(u32, Slot, u32)> = Vec::with_capacity(view.slots().len());
        for (slot, coflow) in view.coflows() {
            let shares = |other: &Slot| view.coflow(*other).link_set().intersects(coflow.link_set());
            // Only coflows that share a link count: on other links nothing of them stands in the way.
            let before = served.iter().filter(|(_, other, _)| shares(other)).map(|&(_, _, behind)| behind);
            let tier = before.max().unwrap_or(0);
            // Behind a light coflow the next one waits a tier; behind a heavy one it shares the
            // tier. That is the limited multiplexing of Baraat, section 4.
            served.push((tier, slot, tier + u32::from(!self.is_heavy(view, slot))));
        }
        served.sort_by_key(|&(tier, _, _)| tier);
        for tier in served.chunk_by(|a, b| a.0 == b.0) {
            tier.iter().for_each(|&(_, slot, _)| tiers.push(slot));
            tiers.end_tier();
        }
    }

    fn next_change(&self, now: Time, view: &CoflowTable) -> Option<Time> {
        let light = view.slots().iter().filter(|&&slot| !self.is_heavy(view, slot));
        // A coflow that stands still becomes heavy at no time: the quotient below would be
        // infinite.
        let moving = light.filter(|&&slot| view.shared_rate(slot) > 0.0);
        let secs = moving.map(|&slot| (self.heavy_bytes - view.attained(slot)) / view.shared_rate(slot));
        secs.min_by(f64::total_cmp).map(|secs| now + Span::until_done(secs))
    }
}
