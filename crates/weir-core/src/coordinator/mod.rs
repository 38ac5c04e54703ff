//! The coordinator: what is registered, where blocks are, what moves, and the plan for it.

mod admission;
mod ancestry;
mod callers;
mod changes;
mod differences;
mod directory;
mod draining;
mod dues;
mod ending;
mod expected;
mod foreign;
mod giving;
mod holders;
mod known;
mod leases;
mod network;
mod observing;
mod offers;
mod outbox;
mod pauses;
mod planning;
mod readiness;
mod refused;
mod senders;
mod sessions;
mod state;
mod status;
mod sweeping;
mod witnesses;

pub use admission::{DeadlineMargin, Decision};
pub use changes::{Change, Tuning};
pub use directory::{Answer, RegisterError, SealError};
pub use draining::Drained;
pub use ending::Unregistered;
pub use expected::ExpectError;
pub use foreign::Wire;
pub use known::{Joining, KnownHost, KnownRack};
pub use observing::{CCT_BOUNDS, Completed, Deadlines, EVENTS, Observed, Stages};
pub use offers::{OfferError, Offered};
pub use planning::Output;
pub use refused::{ForgetError, HelloError};
pub use state::{Coordinator, CoordinatorConfig, SessionId};

use weir_model::CoflowId;

/// Ids of coflows that belong to one process of a coordinator; as many again if it needs more.
pub const IDS_AT_ONCE: u64 = 1 << 18;

/// First coflow id of a process that starts `since_epoch_ms` after the Unix epoch by a clock that may be wrong, with four
/// bits drawn at `random`: neither a clock that steps back nor one that always starts at the same time makes two
/// processes give the same ids, but for one in sixteen that start in the same millisecond. Ids stay below 2^63.
pub fn first_coflow(since_epoch_ms: u64, random: u64) -> CoflowId {
    const MILLISECOND_BITS: u32 = 41;
    let slot = ((since_epoch_ms & ((1 << MILLISECOND_BITS) - 1)) << 4) | (random & 0xf);
    CoflowId(slot.saturating_mul(IDS_AT_ONCE).saturating_add(1))
}

#[cfg(test)]
mod tests;
