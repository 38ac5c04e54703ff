//! Random skewed demands between sites.

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use weir_model::Bytes;

/// Bytes from the site that sends most to the one that receives most, before noise.
const LARGEST: f64 = 10e9;
/// Deviation of the logarithm of the noise.
const NOISE: f64 = 1.0;

/// The skew is none that can be drawn from.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("a skew of {0} is not between 0 and 4")]
pub struct SkewError(f64);

/// An endless row of demands, the same for the same seed.
///
/// Sites are ranked twice at random, as senders and as receivers. The site of rank r has the weight 1 / r^skew
/// (Zipf). A pair has 10 GB times the weight of its sender, times that of its receiver, times log-normal noise
/// (median 1, deviation of the logarithm 1). A skew of 0 leaves the noise alone.
pub struct SkewedDemands {
    random: ChaCha8Rng,
    weights: Vec<f64>,
}

impl SkewedDemands {
    /// Demands between so many sites.
    pub fn new(sites: usize, skew: f64, seed: u64) -> Result<SkewedDemands, SkewError> {
        if !(0.0..=4.0).contains(&skew) {
            return Err(SkewError(skew));
        }
        let weights = (1..=sites).map(|rank| (rank as f64).powf(-skew)).collect();
        Ok(SkewedDemands { random: ChaCha8Rng::seed_from_u64(seed), weights })
    }

    fn ranked(&mut self) -> Vec<f64> {
        let mut weights = self.weights.clone();
        weights.shuffle(&mut self.random);
        weights
    }

    /// A standard normal number, by the method of Box and Muller.
    fn normal(&mut self) -> f64 {
        // In (0, 1]: its logarithm is finite.
        let radius = (-2.0 * (1.0 - self.random.random::<f64>()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.random.random::<f64>()).cos()
    }

    /// The next demand, `[from][to]`; nothing from a site to itself.
    pub fn draw(&mut self) -> Vec<Vec<Bytes>> {
        let (senders, receivers) = (self.ranked(), self.ranked());
        let mut demand = vec![vec![Bytes(0); self.weights.len()]; self.weights.len()];
        for (from, sender) in senders.iter().enumerate() {
            for (to, receiver) in receivers.iter().enumerate() {
                let noise = (NOISE * self.normal()).exp();
                if to != from {
                    demand[from][to] = Bytes((LARGEST * sender * receiver * noise) as u64);
                }
            }
        }
        demand
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_demands_again_and_another_gives_others() {
        let draw = |seed| SkewedDemands::new(5, 1.0, seed).expect("a skew").draw();
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        let mut demands = SkewedDemands::new(5, 1.0, 1).expect("a skew");
        assert_ne!(demands.draw(), demands.draw());
    }

    #[test]
    fn the_busiest_sender_has_the_share_that_the_skew_gives_it() {
        // Ranks of 5 sites weigh 1, 1/2, 1/3, 1/4, 1/5: the first has 60/137 = 0.438 of it, were there no noise and
        // no diagonal. Without skew, 0.2. Noise raises the largest of five sums in both.
        let largest_share = |skew| {
            let mut demands = SkewedDemands::new(5, skew, 7).expect("a skew");
            let share = |demand: Vec<Vec<Bytes>>| {
                let sums: Vec<u64> = demand.iter().map(|row| row.iter().map(|bytes| bytes.0).sum()).collect();
                sums.iter().copied().max().unwrap_or(0) as f64 / sums.iter().sum::<u64>() as f64
            };
            (0..500).map(|_| share(demands.draw())).sum::<f64>() / 500.0
        };
        let (even, skewed) = (largest_share(0.0), largest_share(1.0));
        assert!((0.3..0.45).contains(&even) && (0.45..0.65).contains(&skewed), "{even} {skewed}");
    }

    #[test]
    fn nothing_goes_from_a_site_to_itself() {
        let demand = SkewedDemands::new(4, 1.0, 3).expect("a skew").draw();
        for (from, row) in demand.iter().enumerate() {
            for (to, bytes) in row.iter().enumerate() {
                assert_eq!(bytes.0 == 0, from == to, "{from} to {to}: {bytes}");
            }
        }
    }

    #[test]
    fn a_skew_that_is_no_number_is_refused() {
        for skew in [f64::NAN, -0.1, 4.1] {
            assert!(SkewedDemands::new(3, skew, 1).is_err(), "{skew}");
        }
    }
}
