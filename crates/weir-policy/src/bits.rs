//! A fixed-size set of small numbers, one bit each.

/// A set of numbers below a bound given at creation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BitSet {
    words: Vec<u64>,
}

impl BitSet {
    /// An empty set of numbers below `bound`.
    pub fn new(bound: usize) -> BitSet {
        BitSet { words: vec![0; bound.div_ceil(64)] }
    }

    /// Adds `number`, which must be below the bound.
    #[inline]
    pub fn insert(&mut self, number: usize) {
        self.words[number / 64] |= 1 << (number % 64);
    }

    /// Takes `number` out, which must be below the bound.
    #[inline]
    pub fn remove(&mut self, number: usize) {
        self.words[number / 64] &= !(1 << (number % 64));
    }

    /// Whether `number` is in the set.
    #[inline]
    pub fn contains(&self, number: usize) -> bool {
        self.words[number / 64] >> (number % 64) & 1 == 1
    }

    /// How many members are below `number`.
    #[inline]
    pub fn rank(&self, number: usize) -> usize {
        let (word, bit) = (number / 64, number % 64);
        let below: u32 = self.words[..word].iter().map(|word| word.count_ones()).sum();
        (below + (self.words[word] & ((1 << bit) - 1)).count_ones()) as usize
    }

    /// Whether the two sets share a member.
    #[inline]
    pub fn intersects(&self, other: &BitSet) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    /// Whether there is no member.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// Makes the members all numbers below `bound`.
    pub fn fill(&mut self, bound: usize) {
        for (index, word) in self.words.iter_mut().enumerate() {
            let below = bound.saturating_sub(index * 64);
            *word = if below >= 64 { u64::MAX } else { (1 << below) - 1 };
        }
    }

    /// Adds the members of another set; the bound is the larger of both then.
    pub fn unite(&mut self, other: &BitSet) {
        self.words.resize(self.words.len().max(other.words.len()), 0);
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word |= other);
    }

    /// Empties the set; its bound stays.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// The words, lowest numbers first.
    #[inline]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// The words, to change them directly.
    #[inline]
    pub fn words_mut(&mut self) -> &mut [u64] {
        &mut self.words
    }

    /// Members in rising order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        members_of(&self.words)
    }

    /// Members of both sets in rising order.
    pub fn common<'a>(&'a self, other: &'a BitSet) -> impl Iterator<Item = usize> + 'a {
        let words = self.words.iter().zip(&other.words).enumerate();
        words.flat_map(|(index, (a, b))| members(a & b).map(move |bit| index * 64 + bit))
    }
}

/// The numbers that stand in the words of a set, in rising order.
#[inline]
pub fn members_of(words: &[u64]) -> impl Iterator<Item = usize> + '_ {
    words.iter().enumerate().flat_map(|(index, &word)| members(word).map(move |bit| index * 64 + bit))
}

/// The positions of the set bits of a word in rising order.
#[inline]
pub fn members(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (word != 0).then(|| {
            let bit = word.trailing_zeros() as usize;
            word &= word - 1;
            bit
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_come_out_in_rising_order_and_rank_counts_those_below() {
        let mut set = BitSet::new(200);
        for number in [130, 3, 64, 199] {
            set.insert(number);
        }
        set.remove(64);
        assert_eq!(set.iter().collect::<Vec<_>>(), [3, 130, 199]);
        assert_eq!([set.rank(3), set.rank(4), set.rank(199)], [0, 1, 2]);
        assert!(set.contains(130) && !set.contains(64) && !set.is_empty());
        let mut other = BitSet::new(200);
        [3, 64, 199].into_iter().for_each(|number| other.insert(number));
        assert_eq!(set.common(&other).collect::<Vec<_>>(), [3, 199]);
    }
}
