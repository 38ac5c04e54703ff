//! Sets of ids that come in long runs: which coflows have ended.
//!
//! A coordinator gives ids one after the other, and nearly all of those before the oldest live coflow have ended. As
//! ranges they take as much room as there are gaps, that is, live coflows; nothing that a coordinator gave has to be
//! forgotten.

use std::collections::BTreeMap;
use weir_model::CoflowId;
use weir_proto::v1::IdRange;

/// Ids as ranges that neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct IdSet {
    /// Last id of each range, by its first.
    ranges: BTreeMap<u64, u64>,
}

impl IdSet {
    /// Whether an id is in the set.
    pub(crate) fn contains(&self, id: CoflowId) -> bool {
        self.ranges.range(..=id.0).next_back().is_some_and(|(_, &last)| id.0 <= last)
    }

    /// Whether all ids of a range are in the set.
    pub(crate) fn contains_range(&self, range: &IdRange) -> bool {
        self.ranges.range(..=range.first).next_back().is_some_and(|(_, &last)| range.last <= last)
    }

    /// Adds an id; false if it was there.
    pub(crate) fn insert(&mut self, id: CoflowId) -> bool {
        let new = !self.contains(id);
        if new {
            self.insert_range(id, id);
        }
        new
    }

    /// Adds all ids from `first` to `last`; none if `last` is below `first`.
    pub(crate) fn insert_range(&mut self, CoflowId(first): CoflowId, CoflowId(last): CoflowId) {
        if last < first {
            return;
        }
        let (mut first, mut last) = (first, last);
        // Ranges that overlap or touch the new one begin at the latest right behind it, and end at the earliest right
        // before it.
        while let Some((&begin, &end)) = self.ranges.range(..=last.saturating_add(1)).next_back() {
            if end < first.saturating_sub(1) {
                break;
            }
            self.ranges.remove(&begin);
            (first, last) = (first.min(begin), last.max(end));
        }
        self.ranges.insert(first, last);
    }

    pub(crate) fn range_count(&self) -> usize {
        self.ranges.len()
    }

    /// All ranges, lowest first.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = IdRange> {
        self.ranges.iter().map(|(&first, &last)| IdRange { first, last })
    }

    /// Forgets the lowest ranges until no more than `most` are left.
    pub(crate) fn shrink_to(&mut self, most: usize) {
        while self.ranges.len() > most {
            self.ranges.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn set(ranges: &[(u64, u64)]) -> IdSet {
        let mut set = IdSet::default();
        ranges.iter().for_each(|&(first, last)| set.insert_range(CoflowId(first), CoflowId(last)));
        set
    }

    #[test]
    fn ids_that_follow_each_other_become_one_range() {
        let mut ids = IdSet::default();
        assert!(
            ids.insert(CoflowId(7))
                && ids.insert(CoflowId(9))
                && ids.insert(CoflowId(8))
                && !ids.insert(CoflowId(8))
        );
        assert_eq!(ids.ranges().collect::<Vec<_>>(), [IdRange { first: 7, last: 9 }]);
        assert!(ids.contains(CoflowId(8)) && !ids.contains(CoflowId(6)) && !ids.contains(CoflowId(10)));
    }

    #[test]
    fn the_largest_and_the_smallest_id_are_ids_like_others() {
        let mut ids = IdSet::default();
        assert!(
            ids.insert(CoflowId(u64::MAX)) && ids.insert(CoflowId(0)) && ids.insert(CoflowId(u64::MAX - 1))
        );
        assert_eq!(ids.range_count(), 2);
        ids.insert_range(CoflowId(0), CoflowId(u64::MAX));
        assert_eq!(ids.ranges().collect::<Vec<_>>(), [IdRange { first: 0, last: u64::MAX }]);
    }

    #[test]
    fn a_set_that_must_shrink_forgets_its_lowest_ranges_and_takes_in_nothing() {
        let mut ids = set(&[(1, 2), (5, 6), (9, 9)]);
        ids.shrink_to(2);
        assert_eq!(ids, set(&[(5, 6), (9, 9)]));
    }

    proptest! {
        #[test]
        fn it_is_the_set_that_a_plain_one_is(ranges in proptest::collection::vec((0u64..60, 0u64..6), 0..40)) {
            let (mut ids, mut plain) = (IdSet::default(), BTreeSet::new());
            for (first, length) in ranges {
                ids.insert_range(CoflowId(first), CoflowId(first + length));
                plain.extend(first..=first + length);
            }
            for id in 0..70 {
                prop_assert_eq!(ids.contains(CoflowId(id)), plain.contains(&id));
            }
            let apart = ids.ranges().zip(ids.ranges().skip(1)).all(|(one, next)| one.last + 1 < next.first);
            prop_assert!(apart, "ranges touch: {:?}", ids);
        }
    }
}
