//! Which segments of a flow are there.

use std::collections::VecDeque;

const BITS: u32 = u64::BITS;

/// A set of segment numbers that fills from below: all before the first missing one, and some after it.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    /// The first that is missing.
    missing: u32,
    /// Bits from the word of `missing` on; empty while nothing after it is there.
    words: VecDeque<u64>,
}

impl Segments {
    /// The first that is missing.
    #[inline]
    pub(crate) fn missing(&self) -> u32 {
        self.missing
    }

    /// Whether a segment is there.
    #[inline]
    pub(crate) fn contains(&self, segment: u32) -> bool {
        if segment < self.missing {
            return true;
        }
        let word = (segment / BITS - self.missing / BITS) as usize;
        self.words.get(word).is_some_and(|word| word >> (segment % BITS) & 1 == 1)
    }

    /// Puts a segment in. Whether it is new.
    #[inline]
    pub(crate) fn insert(&mut self, segment: u32) -> bool {
        // The usual case, a segment in order: it takes no memory.
        if segment == self.missing && self.words.is_empty() {
            self.missing += 1;
            return true;
        }
        if self.contains(segment) {
            return false;
        }
        let word = (segment / BITS - self.missing / BITS) as usize;
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (segment % BITS);
        self.advance();
        true
    }

    /// Puts all segments before `end` in. How many of them are new.
    pub(crate) fn insert_before(&mut self, end: u32) -> u32 {
        if end <= self.missing {
            return 0;
        }
        if self.words.is_empty() {
            let new = end - self.missing;
            self.missing = end;
            return new;
        }
        (self.missing..end).map(|segment| u32::from(self.insert(segment))).sum()
    }

    /// Moves on over what is there.
    fn advance(&mut self) {
        while let Some(&word) = self.words.front() {
            let first = self.missing % BITS;
            // A word of ones alone has no bit that ends the run: it ends with the word.
            let run = (!(word >> first)).trailing_zeros().min(BITS - first);
            self.missing += run;
            if first + run < BITS {
                break;
            }
            self.words.pop_front();
        }
        // What is left of the only word may all be before the first that is missing.
        if self.words.len() == 1 && self.words[0] >> (self.missing % BITS) == 0 {
            self.words.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn the_set_is_as_an_obvious_one(steps in proptest::collection::vec((0..400_u32, any::<bool>()), 1..600)) {
            let (mut segments, mut plain) = (Segments::default(), BTreeSet::new());
            for (segment, before) in steps {
                if before && segment < 40 {
                    let new = (0..segment).filter(|&i| plain.insert(i)).count() as u32;
                    prop_assert_eq!(segments.insert_before(segment), new);
                } else {
                    prop_assert_eq!(segments.insert(segment), plain.insert(segment));
                }
                prop_assert_eq!(segments.missing(), (0..).find(|i| !plain.contains(i)).unwrap_or(0));
                prop_assert!((0..400).all(|i| segments.contains(i) == plain.contains(&i)));
            }
        }
    }
}
