//! The interface of a policy, and the registry of all of them.

mod ablation;
mod baraat;
mod between_sites;
mod by_class;
mod coflow_by_coflow;
pub(crate) mod dclas;
mod fair;
mod fair_coflows;
mod fifo;
mod heuristics;
mod open_shop;
mod orchestra;
mod per_flow;
mod routed;
mod settings;
mod tiered;
mod varys;
mod varys_deadline;
mod virtual_cluster;

use crate::local::{LocalRule, MakeLocal};
use crate::order::attained::QueueSettings;
use crate::{CoflowTable, Plan};
use std::sync::OnceLock;
use weir_model::{Fabric, Time};

pub use coflow_by_coflow::CoflowByCoflow;
pub use routed::Routed;
pub use settings::{Chosen, Parameter, ParameterKind, Settings, UnknownPolicy};

/// Decides the rates of all live flows.
///
/// Order of calls, by simulator and coordinator alike: change the table, [`Policy::plan`],
/// [`CoflowTable::adopt`], then [`CoflowTable::advance`] until the next event. One instance serves one
/// table. A policy is a function of its arguments and of the plans it made before.
pub trait Policy: Send {
    /// Replaces `plan` (whatever it held) by the rates from `now` on. No flow that crosses no link needs a
    /// rate.
    fn plan(&mut self, now: Time, fabric: &Fabric, view: &CoflowTable, plan: &mut Plan);

    /// When it wants to plan again though nothing arrived or ended; asked after every plan.
    fn next_wakeup(&self, now: Time, view: &CoflowTable) -> Option<Time> {
        let _ = (now, view);
        None
    }

    /// In how many classes of strict priority its plans have coflows move, for switches to serve one after the other; `None`
    /// from policies whose rates are to be followed. [`Plan::classes`] has the class of each coflow then, and rates are what is to
    /// be expected of transports that share within a class.
    fn classes(&self) -> Option<u32> {
        None
    }
}

/// What a policy promises; the laws hold it to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claims {
    /// No flow could go faster unless another went slower: each crosses a link without spare capacity.
    pub work_conserving: bool,
    /// Every live flow moves at every moment.
    pub starvation_free: bool,
}

/// What the registry says of a policy.
#[derive(Clone, Copy, Debug)]
pub struct PolicyInfo {
    /// Name on the command line.
    pub name: &'static str,
    /// One line for people.
    pub summary: &'static str,
    /// Paper and section that the policy comes from.
    pub paper: &'static str,
    /// Properties that the laws check: work conservation, freedom from starvation.
    pub claims: Claims,
    /// Whether it is for links between sites, with relays that may pass flows on: a coordinator, whose hosts send to each
    /// other, cannot have its plans followed.
    pub between_sites: bool,
    /// What senders decide alone, where the coordinator does not decide. Its queues are the parameters `queues`, `exponent`, `first` and `sync`.
    pub local: Option<MakeLocal>,
    /// Parameters that a user can set.
    pub parameters: &'static [Parameter],
    /// Makes a fresh instance.
    pub make: fn(&Settings) -> Box<dyn Policy>,
}

impl PolicyInfo {
    /// A fresh instance with all defaults.
    pub fn create(&self) -> Box<dyn Policy> {
        (self.make)(&Settings::defaults(self.parameters))
    }
}

/// Policies that other crates added with [`add_policies`].
static ADDED: OnceLock<&'static [PolicyInfo]> = OnceLock::new();
/// All policies, by name: those of this crate and those that were added.
static ALL: OnceLock<Vec<PolicyInfo>> = OnceLock::new();

/// Registers policies of another crate, which this one cannot depend on. It is for the beginning of a program: once
/// the registry was asked for anything, or others were added, it stays as it is, and the answer is false.
pub fn add_policies(infos: &'static [PolicyInfo]) -> bool {
    ALL.get().is_none() && ADDED.set(infos).is_ok()
}

/// All policies, by name.
pub fn registry() -> &'static [PolicyInfo] {
    const OWN: &[PolicyInfo] = &[
        baraat::INFO,
        by_class::INFO,
        dclas::CONTINUOUS,
        dclas::WEIGHTED,
        dclas::STRICT,
        fair::INFO,
        fair_coflows::INFO,
        fifo::INFO,
        per_flow::FLOW_EDF,
        per_flow::LOCAL_SMALLEST,
        between_sites::LOOKAHEAD,
        between_sites::MONTE_CARLO,
        between_sites::MRTF,
        heuristics::NCF,
        heuristics::NCF_STATIC,
        open_shop::INFO,
        orchestra::ORCHESTRA,
        heuristics::SCF,
        heuristics::SCF_STATIC,
        routed::SEBF_ROUTED,
        heuristics::SEBF_STATIC,
        routed::SIPHON,
        per_flow::SMALLEST_FLOW,
        heuristics::TCF,
        heuristics::TCF_STATIC,
        varys::INFO,
        varys::CRITICAL_PATH,
        varys_deadline::INFO,
        ablation::MADD,
        ablation::PAPER_BACKFILL,
        virtual_cluster::INFO,
        orchestra::WSS,
    ];
    ALL.get_or_init(|| {
        let mut all = [OWN, ADDED.get().copied().unwrap_or_default()].concat();
        all.sort_by_key(|info| info.name);
        all
    })
}

/// A sender's rule under the policy of that name (without settings), as the registry has it; `None` where the coordinator decides, and
/// where there is no such policy.
pub fn local_rule(policy: &str, queues: QueueSettings) -> Option<Box<dyn LocalRule>> {
    let info = registry().iter().find(|info| info.name == policy)?;
    info.local.map(|make| make(queues))
}

fn known_names() -> String {
    registry().iter().map(|info| info.name).collect::<Vec<_>>().join(", ")
}

/// The policy of that name, which may have settings behind it: `NAME[:SETTING=VALUE[:...]]`.
///
/// # Errors
/// No policy has the name; or a setting is unknown, is set twice, has a value that it does not take, or cannot be with another.
pub fn find(name: &str) -> Result<Chosen, UnknownPolicy> {
    Chosen::read(name)
}

/// A fresh instance of the policy of that name.
///
/// # Errors
/// As [`find`]: the name or a setting is not one of a policy.
pub fn create(name: &str) -> Result<Box<dyn Policy>, UnknownPolicy> {
    Ok(find(name)?.create())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_name_is_answered_with_the_known_ones() {
        let error = find("varis").unwrap_err().to_string();
        assert!(
            error
                .starts_with("unknown policy `varis`; did you mean `varys`? known: baraat, by-class, clas, "),
            "{error}"
        );
        let error = find("no-such-one").unwrap_err().to_string();
        assert!(error.starts_with("unknown policy `no-such-one`; known: baraat, by-class, "), "{error}");
    }

    #[test]
    fn names_are_unique_and_sorted() {
        assert!(registry().windows(2).all(|pair| pair[0].name < pair[1].name));
    }
}
