//! Ids as they travel through the state machines: each kind is a type, from where a message is read to where one is built.
//! Messages themselves have plain numbers.
//!
//! A coflow has one id everywhere, [`CoflowId`]: that of messages is also the one in the coordinator's table of live coflows.
//! A flow has several: its agent gives it a [`FlowNumber`], which is the one in messages, and the coordinator, which hears of
//! flows of many agents, gives it a `FlowId` of its own in that table.

use weir_model::CoflowId;

/// A flow as its agent counts it, and as messages name it. Those of two agents may be the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowNumber(pub u64);

impl std::fmt::Display for FlowNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A coflow's id as journals have it: a plain number.
pub(crate) mod coflow_in_journal {
    use super::CoflowId;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(id: &CoflowId, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(id.0)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<CoflowId, D::Error> {
        u64::deserialize(from).map(CoflowId)
    }
}
