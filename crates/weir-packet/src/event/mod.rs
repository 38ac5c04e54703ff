//! What happens next: events in order of time; of one time those that are late after the others, and else in the order in
//! which they were put in.

mod wheel;

pub(crate) use wheel::Wheel;

use crate::time::Picos;

/// What may happen. The number says to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum What {
    /// A packet has come to the end of the link that it was on.
    Arrival,
    /// A port has sent its packet, and others wait.
    PortFree,
    /// A flow's retransmission timer may be due.
    Timer,
    /// A flow that paces its packets may send the next.
    Pace,
    /// A receiver has held back an acknowledgement for long enough.
    DelayedAck,
    /// The next flow begins.
    FlowArrival,
    /// It is time to take a sample of what is watched.
    Sample,
    /// A packet that is watched begins to be sent.
    Sent,
}

impl What {
    /// The one whose number this is.
    #[inline]
    fn numbered(number: u8) -> What {
        match number {
            0 => What::Arrival,
            1 => What::PortFree,
            2 => What::Timer,
            3 => What::Pace,
            4 => What::DelayedAck,
            5 => What::FlowArrival,
            6 => What::Sample,
            _ => What::Sent,
        }
    }
}

/// Something that happens, when, and to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) at: Picos,
    /// Comes after others of its time, though it was put in before them.
    pub(crate) late: bool,
    pub(crate) what: What,
    /// A packet, port or flow by its place.
    pub(crate) whom: u32,
}
