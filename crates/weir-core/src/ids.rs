//! Ids as they travel through the state machines: each kind is a type, from where a message is read to where one is built.
//! Messages themselves have plain numbers.
//!
//! A coflow has one id everywhere, [`CoflowId`]: that of messages is also the one in the coordinator's table of live coflows.
//! A flow has several: its agent gives it a [`FlowNumber`], which is the one in messages, and the coordinator, which hears of
//! flows of many agents, gives it a `FlowId` of its own in that table.
//! A host has two: its [`HostNumber`], which is the one in messages, and its place in the coordinator's fabric, a `HostId`.
//! Both meet in the coordinator's `network.rs` alone.
//! A block has no number: its [`BlockKey`] is its coflow's id and its name.

use weir_model::CoflowId;

/// The number that stands for a host in messages. A closed network has those from 0 to the number of its hosts less 1, an open
/// one any below [`MAX_HOST_NUMBER`](weir_proto::limits::MAX_HOST_NUMBER), of which the upper half are made from names
/// ([`FIRST_MADE`](weir_proto::host::FIRST_MADE)). What a peer says may be any until the coordinator has a place for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostNumber(pub u32);

impl std::fmt::Display for HostNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A flow as its agent counts it, and as messages name it. Those of two agents may be the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowNumber(pub u64);

impl std::fmt::Display for FlowNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A block: what messages name by coflow and name. Keys are in the order of their coflows, then of their names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockKey {
    /// Coflow that the block belongs to.
    pub coflow: CoflowId,
    /// Its name, unique within the coflow: 1 to [`MAX_BLOCK_NAME_BYTES`](weir_proto::limits::MAX_BLOCK_NAME_BYTES) bytes of one
    /// that was put. What a peer asks for may have any.
    pub name: String,
}

impl BlockKey {
    /// Before the keys of all blocks of a coflow.
    pub fn first_of(coflow: CoflowId) -> BlockKey {
        BlockKey { coflow, name: String::new() }
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
