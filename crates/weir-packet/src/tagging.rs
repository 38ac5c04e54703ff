//! What a packet carries for switches: its class or its rank, decided by its sender.

use crate::time::Picos;
use std::sync::Arc;
use weir_model::Bytes;

/// Ranks of flows without a deadline, or without a chance, begin here: after those of all deadlines.
const AFTER_DEADLINES: u64 = 1 << 63;

/// How a sender tags the packets of a flow.
#[derive(Clone, Debug)]
pub enum Tagging {
    /// One class for all.
    Fixed(u8),
    /// By bytes sent (PIAS, section 4.1; Karuna's type 3): class `first` up to the first threshold, and so on.
    BySent {
        /// The class of a flow's first bytes.
        first: u8,
        /// Bytes after which a flow is demoted, ascending.
        thresholds: Arc<[Bytes]>,
        /// Bytes that had been sent when the flow was last put first again.
        from: u64,
    },
    /// By the size of the flow (Karuna's type 2): one class, which rises when the flow starves.
    BySize {
        /// The class now.
        class: u8,
        /// The best it may come to.
        best: u8,
    },
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
    /// As the first says until the flow gives its deadline up, then as the second does (Karuna's type 1).
    UntilGivenUp(Box<(Tagging, Tagging)>),
}

/// Where a flow stands when a packet is tagged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    pub(crate) now: Picos,
    /// Where the packet's segment begins in the flow.
    pub(crate) offset: u64,
    /// Bytes of the flow that are not acknowledged.
    pub(crate) left: u64,
    /// Segments of it.
    pub(crate) segments_left: u32,
    pub(crate) given_up: bool,
}

impl Tagging {
    /// By size: the class of the first threshold that the size is not above, counted from `best`.
    pub(crate) fn by_size(size: Bytes, thresholds: &[Bytes], best: u8) -> Tagging {
        Tagging::BySize {
            class: best + thresholds.iter().take_while(|&&most| size > most).count() as u8,
            best,
        }
    }

    /// By bytes sent, from class `first` on.
    pub(crate) fn by_sent(thresholds: &Arc<[Bytes]>, first: u8) -> Tagging {
        Tagging::BySent { first, thresholds: Arc::clone(thresholds), from: 0 }
    }

    /// The class and the rank of a packet.
    #[inline]
    pub(crate) fn tag(&self, standing: &Standing) -> (u8, u64) {
        match self {
            Tagging::Fixed(class) => (*class, 0),
            Tagging::BySent { first, thresholds, from } => {
                let sent = standing.offset.saturating_sub(*from);
                (first + thresholds.iter().take_while(|threshold| sent >= threshold.0).count() as u8, 0)
            }
            Tagging::BySize { class, .. } => (*class, 0),
            Tagging::ByRemaining => (0, standing.left),
            Tagging::ByDeadline { deadline, per_segment } => {
                let needed = per_segment.times(f64::from(standing.segments_left));
                match deadline {
                    Some(deadline) if standing.now + needed <= *deadline => (0, deadline.0),
                    _ => (1, AFTER_DEADLINES + standing.left),
                }
            }
            Tagging::UntilGivenUp(both) => {
                if standing.given_up {
                    both.1.tag(standing)
                } else {
                    both.0.tag(standing)
                }
            }
        }
    }

    /// The flow starves: type 3 is put first again, type 2 rises by one class. `sent` bytes of it have been sent.
    pub(crate) fn age(&mut self, sent: u64) {
        match self {
            Tagging::BySent { from, .. } => *from = sent,
            Tagging::BySize { class, best } => *class = class.saturating_sub(1).max(*best),
            Tagging::UntilGivenUp(both) => both.1.age(sent),
            Tagging::Fixed(_) | Tagging::ByRemaining | Tagging::ByDeadline { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(offset: u64) -> Standing {
        Standing { now: Picos::ZERO, offset, left: 5_000, segments_left: 4, given_up: false }
    }

    #[test]
    fn flows_of_unknown_size_fall_as_they_send_and_begin_anew_when_they_starve() {
        let mut tagging = Tagging::by_sent(&Arc::from([Bytes(1000), Bytes(4000)]), 1);
        let class = |tagging: &Tagging, offset| tagging.tag(&at(offset)).0;
        assert_eq!([0, 999, 1000, 4000].map(|offset| class(&tagging, offset)), [1, 1, 2, 3]);
        tagging.age(4000);
        assert_eq!([4000, 4999, 5000].map(|offset| class(&tagging, offset)), [1, 1, 2]);
    }

    #[test]
    fn flows_of_known_size_keep_their_class_and_rise_when_they_starve() {
        let thresholds = [Bytes(1000), Bytes(4000)];
        let mut tagging = Tagging::by_size(Bytes(4001), &thresholds, 1);
        assert_eq!(tagging.tag(&at(0)).0, 3);
        let classes = [1, 2, 3].map(|_| {
            tagging.age(0);
            tagging.tag(&at(0)).0
        });
        assert_eq!(classes, [2, 1, 1]);
        assert_eq!(Tagging::by_size(Bytes(1000), &thresholds, 1).tag(&at(0)).0, 1);
    }

    #[test]
    fn deadlines_go_first_while_they_can_be_met() {
        let tagging = |deadline| Tagging::ByDeadline {
            deadline: Some(Picos::from_micros(deadline)),
            per_segment: Picos::from_micros(10),
        };
        // Four segments take 40 us.
        assert_eq!(tagging(40).tag(&at(0)), (0, Picos::from_micros(40).0));
        assert_eq!(tagging(39).tag(&at(0)), (1, AFTER_DEADLINES + 5_000));
    }
}
