//! What a sender decides alone: how it divides its own uplink between two messages of the coordinator.
//!
//! A [`crate::Policy`] decides for all from one place. Some need not: the paper has every sender apply a rule to what
//! it knows itself and what it last heard, so that nothing waits for a coordinator. [`LocalRule`] is that rule,
//! the registry says which policy has one.

mod dclas;

pub(crate) use dclas::{Strict, Weighted};

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

/// Makes the rule of a policy, of the queues that it is set to.
pub type MakeLocal = fn(QueueSettings) -> Box<dyn LocalRule>;
