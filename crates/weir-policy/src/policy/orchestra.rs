//! `orchestra`: coflows in order of arrival, flows of each by their size. `wss`: flows of all coflows by their size.

use super::tiered::{TierList, TierOrder, Tiered};
use super::{Claims, PolicyInfo};
use crate::CoflowTable;
use crate::share::Weigh;
use weir_model::Time;

pub(super) const ORCHESTRA: PolicyInfo = PolicyInfo {
    name: "orchestra",
    summary: "coflows in order of arrival, flows within one weighted by size",
    paper: "Chowdhury et al., Managing Data Transfers in Computer Clusters with Orchestra, SIGCOMM 2011, sections 4-5",
    claims: Claims { work_conserving: true, starvation_free: false },
    between_sites: false,
    local: None,
    parameters: &[],
    make: |_| Box::new(Tiered::new(InTurn, Weigh::BySize)),
};

pub(super) const WSS: PolicyInfo = PolicyInfo {
    name: "wss",
    summary: "weighted shuffle scheduling over all coflows at once, flows weighted by size",
    paper: "Chowdhury et al., Managing Data Transfers in Computer Clusters with Orchestra, SIGCOMM 2011, section 5.3",
    claims: Claims { work_conserving: true, starvation_free: true },
    between_sites: false,
    local: None,
    parameters: &[],
    make: |_| Box::new(Tiered::new(Together, Weigh::BySize)),
};

/// Every coflow a tier, by arrival.
struct InTurn;

impl TierOrder for InTurn {
    fn arrange(&mut self, _now: Time, view: &CoflowTable, tiers: &mut TierList) {
        for &slot in view.slots() {
            tiers.push(slot);
            tiers.end_tier();
        }
    }
}

/// All coflows in one tier.
struct Together;

impl TierOrder for Together {
    fn arrange(&mut self, _now: Time, view: &CoflowTable, tiers: &mut TierList) {
        view.slots().iter().for_each(|&slot| tiers.push(slot));
    }
}
