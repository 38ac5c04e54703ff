//! `open-shop`: the order of the 2-approximation for concurrent open shop, shared as under `varys`.

use super::{Claims, CoflowByCoflow, PolicyInfo};
use crate::order::OpenShop;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "open-shop",
    summary: "order of the 2-approximation for concurrent open shop, MADD and backfill as in varys",
    paper: "Mastrolilli et al., Minimizing the sum of weighted completion times in a concurrent open shop, ORL 2010",
    claims: Claims { work_conserving: true, starvation_free: false },
    between_sites: false,
    local: None,
    parameters: &[],
    make: |_| Box::new(CoflowByCoflow::new(Box::<OpenShop>::default())),
};
