//! A coflow as an agent knows it.

use crate::ids::FlowNumber;
use std::collections::BTreeSet;
use weir_model::Time;
use weir_proto::v1;

/// What was heard of a coflow, and what its flows here did.
#[derive(Debug, Default)]
pub(super) struct CoflowEntry {
    pub(super) note: v1::CoflowNote,
    pub(super) noted: Time,
    pub(super) first_opened: Option<Time>,
    pub(super) flows: BTreeSet<FlowNumber>,
    pub(super) first_byte: FirstByte,
    pub(super) treatment: Treatment,
    /// The class of priority in which its flows are sent, if the coordinator said one.
    pub(super) class: Option<u8>,
    /// When it is due, by the agent's clock, if the coordinator said that it is to end just before that and no sooner.
    pub(super) due: Option<Time>,
    /// What its flows here had to move when they were opened, all together.
    pub(super) opened_bytes: u64,
    /// What was sent of it from here, of flows that ended too.
    pub(super) sent_bytes: u64,
    /// Which receivers have which blocks, by [`receiver_mark`].
    pub(super) done: BTreeSet<u64>,
    /// It is about to end: when that is settled at the latest.
    pub(super) settles: Option<Time>,
}

impl CoflowEntry {
    /// Whether it was refused, and its driver wants it to stop then.
    pub(super) fn is_stopped(&self) -> bool {
        let stops = self.note.options.as_ref().is_some_and(|options| options.stop_if_refused);
        stops && !self.note.refused.is_empty()
    }
}

/// What the coordinator said of a coflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Treatment {
    /// The coordinator said nothing that still holds.
    #[default]
    Unknown,
    /// It is left to TCP.
    Bypassed,
    Scheduled,
}

/// Where a coflow stands between its last get and its first byte here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum FirstByte {
    /// No plan counts all its announced flows yet.
    #[default]
    NotWhole,
    /// A plan that counts all announced flows lets it move.
    Due,
    /// It was sent, or that plan had it wait for others.
    Past,
}
