//! A flow that an agent serves, and what its plan says.

use crate::ids::{FlowNumber, HostNumber};
use weir_model::{Bytes, CoflowId, Rate, Time};
use weir_policy::rules::catch_up;
use weir_proto::v1;

/// One transfer from a block here to a receiver.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) coflow: CoflowId,
    pub(super) block: String,
    pub(super) destination: HostNumber,
    pub(super) group: u32,
    pub(super) size: u64,
    pub(super) sent: u64,
    pub(super) reported: u64,
    pub(super) grant: f64,
    /// Rate that the coflow's drain gave it when it last changed, in bytes per second,
    pub(super) base: f64,
    /// and when it ends if it keeps to that.
    pub(super) due: Time,
    /// Whether the plan in force counts this flow.
    pub(super) planned: bool,
    /// When it stops waiting for its first plan.
    pub(super) wait_until: Time,
    /// Whether it takes turns while it has no rate.
    pub(super) takes_turns: bool,
}

impl Flow {
    /// A flow as a coordinator is told of it.
    pub(super) fn opened(&self, id: FlowNumber, size: u64) -> v1::FlowOpened {
        v1::FlowOpened {
            flow: id.0,
            coflow: self.coflow.0,
            block: self.block.clone(),
            destination: self.destination.0,
            size,
            offset: self.sent,
            group: self.group,
        }
    }

    /// Rate that the plan gives it, in bytes per second.
    pub(super) fn rate(&self) -> f64 {
        self.base + self.grant
    }

    /// The rate at which it still ends when its coflow should, if it fell behind the one it has.
    pub(super) fn catch_up(&self, now: Time) -> Option<Rate> {
        if self.base <= 0.0 {
            return None;
        }
        catch_up(Bytes(self.left()), self.due.since(now), Rate::from_bytes_per_sec(self.rate()))
    }

    /// Bytes not yet handed to its socket.
    pub(super) fn left(&self) -> u64 {
        self.size.saturating_sub(self.sent)
    }
}
