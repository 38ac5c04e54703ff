//! `varys`: smallest effective bottleneck first.

use super::{Claims, CoflowByCoflow, PolicyInfo};
use crate::order::Sebf;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "varys",
    summary: "smallest effective bottleneck first, MADD on residual capacity, work-conserving backfill",
    paper: "Chowdhury, Zhong, Stoica, Efficient Coflow Scheduling with Varys, SIGCOMM 2014, section 5.3",
    claims: Claims { work_conserving: true, starvation_free: false },
    create: || Box::new(CoflowByCoflow::new(Box::<Sebf>::default())),
};
