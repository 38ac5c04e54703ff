//! `fifo`: coflows in order of arrival, shared as under `varys`.

use super::{Claims, CoflowByCoflow, PolicyInfo};
use crate::order::ByArrival;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "fifo",
    summary: "coflows in order of arrival, MADD and backfill as in varys",
    paper: "Chowdhury et al., Orchestra, SIGCOMM 2011, section 4 (FIFO between transfers); sharing of Varys",
    claims: Claims { work_conserving: true, starvation_free: false },
    between_sites: false,
    local: None,
    parameters: &[],
    make: |_| Box::new(CoflowByCoflow::new(Box::new(ByArrival))),
};
