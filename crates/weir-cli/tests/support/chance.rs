//! Seeded choices, and bytes that can be told from any others.

/// A generator whose whole state is its seed (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Chance {
        Chance(mix(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// 0 to `bound` - 1.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The bytes of a block from `offset` on: every 8 of them depend on the block's seed and their place.
pub(crate) fn fill(seed: u64, offset: u64, bytes: &mut [u8]) {
    let mut at = offset;
    let mut rest = bytes;
    while !rest.is_empty() {
        let word = mix(seed ^ (at / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes();
        let from = (at % 8) as usize;
        let count = (8 - from).min(rest.len());
        let (head, tail) = rest.split_at_mut(count);
        head.copy_from_slice(&word[from..from + count]);
        at += count as u64;
        rest = tail;
    }
}
