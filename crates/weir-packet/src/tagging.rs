//! What a packet carries for switches: its class or its rank, decided by its sender.

use crate::time::Picos;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use weir_endhost::tagging::ClassLaw;
use weir_model::Bytes;

/// Ranks of flows without a deadline, or without a chance, begin here: after those of all deadlines.
const AFTER_DEADLINES: u64 = 1 << 63;

/// A class that others say while flows move, such as a coordinator of a coflow: one for all its flows.
#[derive(Clone, Debug)]
pub struct ToldClass(Arc<AtomicU8>);

/// Nothing was said yet.
const UNTOLD: u8 = u8::MAX;

impl Default for ToldClass {
    fn default() -> ToldClass {
        ToldClass(Arc::new(AtomicU8::new(UNTOLD)))
    }
}

impl ToldClass {
    /// All packets from now on have this class, counted from 0: one that the ports of the transport have.
    pub fn say(&self, class: u8) {
        self.0.store(class, Ordering::Relaxed);
    }

    /// What was said last.
    #[inline]
    pub fn get(&self) -> Option<u8> {
        Some(self.0.load(Ordering::Relaxed)).filter(|&class| class != UNTOLD)
    }
}

/// How a sender tags the packets of a flow.
#[derive(Clone, Debug)]
pub enum Tagging {
    /// With the class that a law gives to the flow.
    Class(ClassLaw),
    /// With the class that others say, and by a law until they have.
    Told(ToldClass, ClassLaw),
    /// By what is left of the flow (pFabric): the least first.
    ByRemaining,
    /// By deadline, the earliest first, and all others after those by what is left of them (pFabric-EDF). A flow that
    /// cannot meet its deadline any more is one of the others.
    ByDeadline {
        /// When the flow has to be done.
        deadline: Option<Picos>,
        /// How long a segment takes on the host's link.
        per_segment: Picos,
    },
}

/// Where a flow stands when a packet is tagged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    pub(crate) now: Picos,
    /// Where the packet's segment begins in the flow.
    pub(crate) offset: u64,
    /// Bytes of the flow that are not acknowledged.
    pub(crate) left: u64,
    /// Segments of the flow that are not acknowledged.
    pub(crate) segments_left: u32,
    pub(crate) given_up: bool,
}

impl From<ClassLaw> for Tagging {
    fn from(law: ClassLaw) -> Tagging {
        Tagging::Class(law)
    }
}

impl Tagging {
    /// The class and the rank of a packet.
    #[inline]
    pub(crate) fn tag(&self, standing: &Standing) -> (u8, u64) {
        match self {
            Tagging::Class(law) => (law.class(Bytes(standing.offset), standing.given_up), 0),
            Tagging::Told(told, law) => {
                let of_law = || law.class(Bytes(standing.offset), standing.given_up);
                (told.get().unwrap_or_else(of_law), 0)
            }
            Tagging::ByRemaining => (0, standing.left),
            Tagging::ByDeadline { deadline, per_segment } => {
                let needed = per_segment.times(f64::from(standing.segments_left));
                match deadline {
                    Some(deadline) if standing.now + needed <= *deadline => (0, deadline.0),
                    _ => (1, AFTER_DEADLINES + standing.left),
                }
            }
        }
    }

    /// The flow starves: its class ages. `sent` bytes of it have been sent.
    pub(crate) fn age(&mut self, sent: u64) {
        if let Tagging::Class(law) | Tagging::Told(_, law) = self {
            law.age(Bytes(sent));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_go_first_while_they_can_be_met() {
        let standing =
            Standing { now: Picos::ZERO, offset: 0, left: 5_000, segments_left: 4, given_up: false };
        let tagging = |deadline| Tagging::ByDeadline {
            deadline: Some(Picos::from_micros(deadline)),
            per_segment: Picos::from_micros(10),
        };
        // Four segments take 40 us.
        assert_eq!(tagging(40).tag(&standing), (0, Picos::from_micros(40).0));
        assert_eq!(tagging(39).tag(&standing), (1, AFTER_DEADLINES + 5_000));
    }
}
