//! Defects that the machines can be told to have, for a harness that is held to find them: one that finds nothing of what was
//! planted is not believed when it finds nothing else. Without the feature `planted` there are none.

/// A defect that a harness can plant in a machine, to see whether it finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// A block that was put is not written down.
    PutNotWritten,
    /// A transfer that resumes is served from the block's beginning.
    OffsetForgotten,
    /// The coordinator does not hear that a flow is over.
    CloseNotTold,
    /// A message of the coordinator has the epoch of the one before.
    EpochNotRaised,
    /// A new coflow has no witnesses.
    NoWitnesses,
    /// Agents do not hear at once that a coflow has ended, nor later.
    EndNotTold,
    /// A receiver that waits for a block hears nothing when it is put.
    AnswerLost,
    /// An answer goes to another caller.
    WrongCaller,
    /// A block of a coflow that has ended counts as held.
    EndedListed,
    /// The file of a block that is gone stays.
    FileKept,
    /// A coflow has the lease that it was first believed to have.
    LeaseNotShortened,
    /// A flow that was paused when its lease ended stays so.
    PausedForGood,
    /// A driver that renews the lease of its coflow is not heard.
    LeaseNotRenewed,
    /// A coflow whose lease has ended stays.
    LeaseForever,
    /// A receiver that gets a block once more counts once more.
    CountedTwice,
    /// Of two coflows whose registrations have one key, both from earlier processes, the one that is told later ends.
    EitherEnded,
    /// An agent that comes does not say which blocks it holds.
    BlocksNotTold,
    /// A block whose bytes may have been lost with the machine is held.
    UncertainHeld,
    /// A receiver takes frames that do not have their checksums.
    FrameUnchecked,
    /// A holder does not hear that a receiver has all.
    AcknowledgementLost,
    /// A receiver that looks for holders forgets who broke off once the coordinator is away.
    BrokeForgotten,
    /// A holder does not hear that a frame did not have its checksum.
    DoubtIgnored,
    /// A relay does not tell the next one that a flow is over.
    EndKept,
    /// A relay takes no more of a flow than it does at first.
    CreditKept,
    /// A receiver that came to a relay before its flow is not told of it.
    SubscriberForgotten,
    /// A relay's controller does not hear that a flow is over.
    EndNotReported,
    /// A relay keeps rules that were withdrawn.
    WithdrawnKept,
}

/// Every [`Defect`], for harnesses that plant one after the other.
pub const ALL: [Defect; 27] = [
    Defect::PutNotWritten,
    Defect::OffsetForgotten,
    Defect::CloseNotTold,
    Defect::EpochNotRaised,
    Defect::NoWitnesses,
    Defect::EndNotTold,
    Defect::AnswerLost,
    Defect::WrongCaller,
    Defect::EndedListed,
    Defect::FileKept,
    Defect::LeaseNotShortened,
    Defect::PausedForGood,
    Defect::LeaseNotRenewed,
    Defect::LeaseForever,
    Defect::CountedTwice,
    Defect::BlocksNotTold,
    Defect::UncertainHeld,
    Defect::EitherEnded,
    Defect::FrameUnchecked,
    Defect::AcknowledgementLost,
    Defect::BrokeForgotten,
    Defect::DoubtIgnored,
    Defect::EndKept,
    Defect::CreditKept,
    Defect::SubscriberForgotten,
    Defect::EndNotReported,
    Defect::WithdrawnKept,
];

/// Defects that take more than 200 seeds to find.
pub const RARE: [Defect; 2] = [Defect::BrokeForgotten, Defect::EitherEnded];

#[cfg(feature = "planted")]
std::thread_local! {
    static PLANTED: std::cell::Cell<Option<Defect>> = const { std::cell::Cell::new(None) };
}

/// Plants a defect in all machines of this thread, or none.
#[cfg(feature = "planted")]
pub fn plant(defect: Option<Defect>) {
    PLANTED.set(defect);
}

/// Whether the machines of this thread have a defect.
#[inline]
pub(crate) fn is_planted(defect: Defect) -> bool {
    #[cfg(feature = "planted")]
    let planted = PLANTED.get() == Some(defect);
    #[cfg(not(feature = "planted"))]
    let planted = {
        let _ = defect;
        false
    };
    planted
}
