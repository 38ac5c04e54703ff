//! A number for a receiver of a block, the same wherever and whenever it is computed.

use crate::ids::HostNumber;
use twox_hash::XxHash3_64;

/// Stands for (block, receiving host, flow group) within a coflow: who got a block twice counts once. Never 0.
pub(crate) fn receiver_mark(block: &str, destination: HostNumber, group: u32) -> u64 {
    let place = (u64::from(destination.0) << 32) | u64::from(group);
    XxHash3_64::oneshot_with_seed(place, block.as_bytes()).max(1)
}
