//! Random skewed demands between sites.

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use weir_model::Bytes;

/// Bytes from the site that sends most to the one that receives most, before noise.
const LARGEST: f64 = 10e9;

/// A parameter is none that can be drawn with.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{what} of {value} is not between 0 and 4")]
pub struct SkewError {
    what: &'static str,
    /// As it was given.
    value: f64,
}

/// How unequal the demands of pairs are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Skew {
    /// Exponent of the weights of sites, 0 to 4. At 0 all sites weigh the same.
    pub zipf: f64,
    /// Deviation of the logarithm of the noise of a pair, 0 to 4. At 0 there is none.
    pub noise: f64,
}

/// An endless row of demands, the same for the same seed.
///
/// Sites are ranked twice at random, as senders and as receivers. The site of rank r has the weight 1 / r^zipf. A
/// pair has 10 GB times the weight of its sender, times that of its receiver, times log-normal noise of median 1.
pub struct SkewedDemands {
    random: ChaCha8Rng,
    noise: f64,
    weights: Vec<f64>,
    even_receivers: bool,
}

impl SkewedDemands {
    /// The same with receivers that all weigh as the first: as in a sort whose ranges are even.
    pub fn with_even_receivers(self) -> SkewedDemands {
        SkewedDemands { even_receivers: true, ..self }
    }

    /// Demands between so many sites.
    ///
    /// # Errors
    /// The skew or the noise is not a number from 0 to 4.
    pub fn new(sites: usize, skew: Skew, seed: u64) -> Result<SkewedDemands, SkewError> {
        for (what, value) in [("a skew", skew.zipf), ("a noise", skew.noise)] {
            if !(0.0..=4.0).contains(&value) {
                return Err(SkewError { what, value });
            }
        }
        let weights = (1..=sites).map(|rank| (rank as f64).powf(-skew.zipf)).collect();
        Ok(SkewedDemands {
            random: ChaCha8Rng::seed_from_u64(seed),
            noise: skew.noise,
            weights,
            even_receivers: false,
        })
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
        // The method gives two numbers; the sine is left out, so that nothing has to be kept
        // between calls.
        radius * (std::f64::consts::TAU * self.random.random::<f64>()).cos()
    }

    /// The next demand, `[from][to]`; nothing from a site to itself.
    pub fn draw(&mut self) -> Vec<Vec<Bytes>> {
        let (senders, mut receivers) = (self.ranked(), self.ranked());
        if self.even_receivers {
            receivers.fill(1.0);
        }
        let mut demand = vec![vec![Bytes(0); self.weights.len()]; self.weights.len()];
        for (from, sender) in senders.iter().enumerate() {
            for (to, receiver) in receivers.iter().enumerate() {
                let noise = (self.noise * self.normal()).exp();
                if to != from {
                    // `as` saturates: at the largest noise a draw may be beyond what 64 bits hold.
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

    const SKEW: Skew = Skew { zipf: 1.0, noise: 1.0 };

    #[test]
    fn a_seed_gives_the_same_demands_again_and_another_gives_others() {
        let draw = |seed| SkewedDemands::new(5, SKEW, seed).expect("a skew").draw();
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        let mut demands = SkewedDemands::new(5, SKEW, 1).expect("a skew");
        assert_ne!(demands.draw(), demands.draw());
    }

    #[test]
    fn the_busiest_sender_has_the_share_that_the_skew_gives_it() {
        // Ranks of 5 sites weigh 1, 1/2, 1/3, 1/4, 1/5: the first has 60/137 = 0.438 of it, were there no noise and
        // no diagonal. Without skew, 0.2. Noise raises the largest of five sums in both.
        let largest_share = |zipf| {
            let mut demands = SkewedDemands::new(5, Skew { zipf, noise: 1.0 }, 7).expect("a skew");
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
        let demand = SkewedDemands::new(4, SKEW, 3).expect("a skew").draw();
        for (from, row) in demand.iter().enumerate() {
            for (to, bytes) in row.iter().enumerate() {
                assert_eq!(bytes.0 == 0, from == to, "{from} to {to}: {bytes}");
            }
        }
    }

    #[test]
    fn without_noise_pairs_have_the_weights_of_their_sites() {
        // Ranks 1 and 2 weigh 1 and 1/2. The pair from the first sender to the first receiver has 10 GB if these are
        // different sites; its reverse, from the second to the second, has 10 GB / 4. Else both have 10 GB / 2.
        let mut demands = SkewedDemands::new(2, Skew { zipf: 1.0, noise: 0.0 }, 1).expect("a skew");
        for _ in 0..20 {
            let demand = demands.draw();
            let mut pair = [demand[0][1].0, demand[1][0].0];
            pair.sort_unstable();
            let expected = [[2_500_000_000, 10_000_000_000], [5_000_000_000, 5_000_000_000]];
            assert!(expected.contains(&pair), "{pair:?}");
        }
    }

    #[test]
    fn parameters_that_are_no_numbers_are_refused() {
        for bad in [f64::NAN, -0.1, 4.1] {
            assert!(SkewedDemands::new(3, Skew { zipf: bad, noise: 1.0 }, 1).is_err(), "{bad}");
            assert!(SkewedDemands::new(3, Skew { zipf: 1.0, noise: bad }, 1).is_err(), "{bad}");
        }
    }
}
