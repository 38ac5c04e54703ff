//! Ids as they travel through the state machines: each kind is a type, from where a message is read to where one is built.
//! Messages themselves have plain numbers.
//!
//! A coflow has one id everywhere, [`CoflowId`]: that of messages is also the one in the coordinator's table of live coflows.

use weir_model::CoflowId;

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
