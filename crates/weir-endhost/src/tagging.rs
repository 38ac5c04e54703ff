//! The class in which a packet travels, decided by its sender: by the type of its flow, and by bytes sent.

use std::sync::Arc;
use weir_model::Bytes;

/// Classes that switches have: strict priorities, 0 the highest.
pub const CLASSES: usize = 8;
/// DSCP of each class unless said: class k has 40 - 4 k. None is 0, which packets have that are not tagged, nor 48 or above,
/// which networks keep for themselves.
pub const DEFAULT_DSCP: [u8; CLASSES] = [40, 36, 32, 28, 24, 20, 16, 12];

/// How the class of a flow's packets is found.
#[derive(Clone, Debug)]
pub enum ClassLaw {
    /// One class for all.
    Fixed(u8),
    /// By bytes sent (PIAS, section 4.1; Karuna's type 3): class `first` up to the first threshold, and so on.
    BySent {
        /// The class of a flow's first bytes.
        first: u8,
        /// Bytes after which a flow is demoted, ascending.
        thresholds: Arc<[Bytes]>,
        /// Bytes that had been sent when the flow was last put first again.
        from: Bytes,
    },
    /// By the size of the flow (Karuna's type 2): one class, which rises when the flow starves.
    BySize {
        /// The class of its packets now; 0 is served first.
        class: u8,
        /// The best it may come to.
        best: u8,
    },
    /// As the first says until the flow gives its deadline up, then as the second does (Karuna's type 1).
    UntilGivenUp(Box<(ClassLaw, ClassLaw)>),
}

impl ClassLaw {
    /// By size: the class of the first threshold that the size is not above, counted from `best`.
    pub fn by_size(size: Bytes, thresholds: &[Bytes], best: u8) -> ClassLaw {
        ClassLaw::BySize {
            class: best + thresholds.iter().take_while(|&&most| size > most).count() as u8,
            best,
        }
    }

    /// By bytes sent, from class `first` on.
    pub fn by_sent(thresholds: &Arc<[Bytes]>, first: u8) -> ClassLaw {
        ClassLaw::BySent { first, thresholds: Arc::clone(thresholds), from: Bytes(0) }
    }

    /// The class of a packet whose payload begins after `offset` bytes of the flow.
    #[inline]
    pub fn class(&self, offset: Bytes, given_up: bool) -> u8 {
        match self {
            ClassLaw::Fixed(class) => *class,
            ClassLaw::BySent { first, thresholds, from } => {
                let sent = Bytes(offset.0.saturating_sub(from.0));
                first + thresholds.iter().take_while(|&&threshold| sent >= threshold).count() as u8
            }
            ClassLaw::BySize { class, .. } => *class,
            ClassLaw::UntilGivenUp(both) if given_up => both.1.class(offset, given_up),
            ClassLaw::UntilGivenUp(both) => both.0.class(offset, given_up),
        }
    }

    /// The flow starves: type 3 is put first again, type 2 rises by one class. `sent` of it have been sent.
    pub fn age(&mut self, sent: Bytes) {
        match self {
            ClassLaw::BySent { from, .. } => *from = sent,
            ClassLaw::BySize { class, best } => *class = class.saturating_sub(1).max(*best),
            // A flow that has not given up is in its deadline's class, which does not age.
            ClassLaw::UntilGivenUp(both) => both.1.age(sent),
            ClassLaw::Fixed(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(law: &ClassLaw, offset: u64) -> u8 {
        law.class(Bytes(offset), false)
    }

    #[test]
    fn flows_of_unknown_size_fall_as_they_send_and_begin_anew_when_they_starve() {
        let mut law = ClassLaw::by_sent(&Arc::from([Bytes(1000), Bytes(4000)]), 1);
        assert_eq!([0, 999, 1000, 4000].map(|offset| class(&law, offset)), [1, 1, 2, 3]);
        law.age(Bytes(4000));
        assert_eq!([4000, 4999, 5000].map(|offset| class(&law, offset)), [1, 1, 2]);
    }

    #[test]
    fn flows_of_known_size_keep_their_class_and_rise_when_they_starve() {
        let thresholds = [Bytes(1000), Bytes(4000)];
        let mut law = ClassLaw::by_size(Bytes(4001), &thresholds, 1);
        assert_eq!(class(&law, 0), 3);
        let classes = [1, 2, 3].map(|_| {
            law.age(Bytes(0));
            class(&law, 0)
        });
        assert_eq!(classes, [2, 1, 1]);
        assert_eq!(class(&ClassLaw::by_size(Bytes(1000), &thresholds, 1), 0), 1);
    }

    #[test]
    fn flows_with_a_deadline_go_by_size_once_they_gave_it_up() {
        let law = ClassLaw::UntilGivenUp(Box::new((
            ClassLaw::Fixed(0),
            ClassLaw::by_size(Bytes(5), &[Bytes(4)], 1),
        )));
        assert_eq!([false, true].map(|given_up| law.class(Bytes(0), given_up)), [0, 2]);
    }
}
