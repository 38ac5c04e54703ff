//! What a sender decides alone: how it divides its own uplink between two messages of the coordinator.
//!
//! A [`Policy`] decides for all from one place. Some need not: the paper has every sender apply a rule to what
//! it knows itself and what it last heard, so that nothing waits for a coordinator. [`LocalRule`] is that rule,
//! [`SenderSide`] names the policies that have one.

mod dclas;

use crate::Policy;
use crate::order::attained::QueueSettings;
use weir_model::{Bytes, Rate, Time};

/// A flow that leaves a sender.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LocalFlow {
    /// The most that it can use, as far as is known: what other links of its path have for it. Infinite where
    /// nothing is known.
    pub usable: Rate,
}

/// A coflow with flows at one sender, as that sender knows it. Sizes are not among what it knows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocalCoflow {
    /// Its queue as last heard; 0 if nothing was heard of it yet.
    pub queue: u32,
    /// What this sender alone has sent of it.
    pub sent: Bytes,
    /// Its flows at this sender.
    pub flows: Vec<LocalFlow>,
}

/// How one sender divides its uplink among its flows.
///
/// A function of its arguments alone. Rates are at most what flows can use, and together at most the uplink's;
/// they use all of it, unless all flows have all that they can use.
pub trait LocalRule: std::fmt::Debug + Send {
    /// Replaces `rates` by one for every flow, in their order. Coflows come in the order of their arrival.
    fn share(&self, now: Time, uplink: Rate, coflows: &[LocalCoflow], rates: &mut Vec<Rate>);
}

/// What senders and coordinator do under a policy that is decided at the senders.
#[derive(Clone, Copy, Debug)]
pub struct SenderSide {
    /// The queues unless others are asked for.
    pub settings: QueueSettings,
    /// Makes a sender's rule.
    pub rule: fn(QueueSettings) -> Box<dyn LocalRule>,
    /// Makes the policy by which the coordinator tells queues, and the simulator everything.
    pub policy: fn(QueueSettings) -> Box<dyn Policy>,
}

/// What senders decide under the policy of that name; `None` where the coordinator decides it all.
pub fn sender_side(policy: &str) -> Option<SenderSide> {
    use crate::policy::dclas as policies;
    let settings = policies::SETTINGS;
    match policy {
        "dclas" => Some(SenderSide {
            settings,
            rule: |settings| Box::new(dclas::Weighted::new(settings)),
            policy: policies::weighted,
        }),
        "dclas-strict" => Some(SenderSide {
            settings,
            rule: |settings| Box::new(dclas::Strict::new(settings)),
            policy: policies::strict,
        }),
        _ => None,
    }
}
