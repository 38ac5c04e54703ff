//! Links whose capacities change.

use crate::support::fabrics;
use proptest::prelude::*;
use weir_model::{CapacityChange, Fabric, LinkId, Time};

/// Fabrics, and what happens to up to 12 of their links within some seconds.
pub(crate) fn changing_fabrics() -> impl Strategy<Value = (Fabric, Vec<CapacityChange>)> {
    let change = (0u64..12_000_000_000, any::<prop::sample::Index>(), 5u32..30);
    (fabrics(), prop::collection::vec(change, 0..12)).prop_map(|(fabric, changes)| {
        let change = |(nanos, link, tenths): (u64, prop::sample::Index, u32)| {
            let link = LinkId(link.index(fabric.links().len()) as u32);
            let capacity = fabric.capacity(link).scaled(f64::from(tenths) / 10.0);
            CapacityChange { at: Time::from_nanos(nanos), link, capacity }
        };
        let mut changes: Vec<CapacityChange> = changes.into_iter().map(change).collect();
        changes.sort_by_key(|change| change.at);
        (fabric, changes)
    })
}
