//! Random draws from a seed, with nothing but exactly defined arithmetic.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A stream of draws.
pub struct Draw(ChaCha8Rng);

impl Draw {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Draw {
        Draw(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Uniform in [0, 1).
    pub(super) fn unit(&mut self) -> f64 {
        // The upper 53 bits: as many as an f64 holds exactly.
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform among 0..n; the bias of at most n / 2^64 is too small to matter here.
    pub fn below(&mut self, n: u64) -> u64 {
        // The upper half of the product is a number below n; it takes no division and no second draw.
        ((u128::from(self.0.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// Uniform in [low, high).
    pub(crate) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// About uniform in the logarithm between `low` and `high`.
    pub(super) fn octaves(&mut self, low: f64, high: f64) -> f64 {
        let unit = self.unit();
        at_octave(low, high, unit)
    }

    /// A whole number, about uniform in the logarithm, `low` and `high` included.
    pub(super) fn whole_octaves(&mut self, low: u64, high: u64) -> u64 {
        (self.octaves(low as f64, high as f64 + 1.0) as u64).clamp(low, high)
    }

    /// Brings values into a random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, values: &mut [T]) {
        for last in (1..values.len()).rev() {
            values.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

/// The value at a `share` (0 to 1) of the way from `low` to `high` counted in octaves, linear inside one:
/// what `low * (high / low)^share` is, without a power. `low` above 0, `high` not below it.
pub(super) fn at_octave(low: f64, high: f64, share: f64) -> f64 {
    let ratio = (high / low).max(1.0);
    let (mut octaves, mut scale) = (0.0, 1.0);
    while scale * 2.0 <= ratio {
        scale *= 2.0;
        octaves += 1.0;
    }
    let mut left = share * (octaves + (ratio / scale - 1.0));
    let mut value = low;
    while left >= 1.0 {
        value *= 2.0;
        left -= 1.0;
    }
    (value * (1.0 + left)).min(high)
}

/// `count` values between `low` and `high` with a mean of `mean` (as near as the bounds allow), rising:
/// one from each of `count` equal parts of the logarithm, bent so that the mean fits.
pub(super) fn with_mean(draw: &mut Draw, count: usize, low: f64, high: f64, mean: f64) -> Vec<f64> {
    let shares: Vec<f64> = (0..count).map(|part| (part as f64 + draw.unit()) / count as f64).collect();
    // u / (u + c (1 - u)) rises from 0 to 1 for every c above 0; a larger c gives smaller values.
    let values = |bend: f64| -> Vec<f64> {
        shares.iter().map(|u| at_octave(low, high, u / (u + bend * (1.0 - u)))).collect()
    };
    let (mut least, mut most) = (1.0 / 1024.0, 1024.0);
    // 20 octaves, halved 60 times: closer than an f64 can tell.
    for _ in 0..60 {
        // The geometric mean: a bend is a factor.
        let bend = f64::sqrt(least * most);
        let sum: f64 = values(bend).iter().sum();
        if sum > mean * count as f64 { least = bend } else { most = bend }
    }
    values(f64::sqrt(least * most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octaves_double_step_by_step() {
        // 1 to 16 are 4 octaves; half way is 4; 1/8 is half of the first octave, 1.5.
        assert_eq!([0.0, 0.125, 0.5, 1.0].map(|share| at_octave(1.0, 16.0, share)), [1.0, 1.5, 4.0, 16.0]);
        assert_eq!(at_octave(3.0, 3.0, 0.7), 3.0);
    }

    #[test]
    fn values_keep_to_their_bounds_and_mean() {
        let values = with_mean(&mut Draw::new(5), 40, 1.0, 1000.0, 300.0);
        assert!(values.iter().all(|value| (1.0..=1000.0).contains(value)));
        assert!((values.iter().sum::<f64>() / 40.0 - 300.0).abs() < 0.01);
    }
}
