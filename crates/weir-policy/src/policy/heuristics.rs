//! `scf`, `ncf`, `tcf`, and all orders by numbers that do not shrink: what SEBF is compared with.
//!
//! They differ in the order alone; the sharing is that of `varys`.

use super::{Claims, CoflowByCoflow, Policy, PolicyInfo, Settings};
use crate::order::left::{Narrowest, Shortest, Smallest};
use crate::order::whole::{ByWhole, Key};

const fn info(
    name: &'static str,
    summary: &'static str,
    make: fn(&Settings) -> Box<dyn Policy>,
) -> PolicyInfo {
    PolicyInfo {
        name,
        summary,
        paper: "Chowdhury, Zhong, Stoica, Efficient Coflow Scheduling with Varys, SIGCOMM 2014, section 5.3.2",
        claims: Claims { work_conserving: true, starvation_free: false },
        between_sites: false,
        local: None,
        parameters: &[],
        make,
    }
}

fn by_whole(key: Key) -> Box<dyn Policy> {
    Box::new(CoflowByCoflow::new(Box::new(ByWhole::new(key))))
}

pub(super) const SCF: PolicyInfo =
    info("scf", "shortest coflow first: least left of its largest flow", |_| {
        Box::new(CoflowByCoflow::new(Box::<Shortest>::default()))
    });
pub(super) const NCF: PolicyInfo = info("ncf", "narrowest coflow first: fewest flows left", |_| {
    Box::new(CoflowByCoflow::new(Box::<Narrowest>::default()))
});
pub(super) const TCF: PolicyInfo = info("tcf", "smallest coflow first: fewest bytes left", |_| {
    Box::new(CoflowByCoflow::new(Box::<Smallest>::default()))
});
pub(super) const SCF_STATIC: PolicyInfo =
    info("scf-static", "shortest coflow first: smallest largest flow", |_| by_whole(Key::Length));
pub(super) const NCF_STATIC: PolicyInfo =
    info("ncf-static", "narrowest coflow first: fewest flows", |_| by_whole(Key::Width));
pub(super) const TCF_STATIC: PolicyInfo =
    info("tcf-static", "smallest coflow first: fewest bytes", |_| by_whole(Key::Size));
pub(super) const SEBF_STATIC: PolicyInfo =
    info("sebf-static", "smallest effective bottleneck first, of the whole coflow", |_| {
        by_whole(Key::Bottleneck)
    });
