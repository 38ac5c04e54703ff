//! What it costs to keep thresholds that were made for other traffic.
//!
//! Loads and sizes of flows differ from place to place and change; thresholds are set once. Each is judged on each
//! traffic by the forecast of the model, relative to the thresholds made for that traffic.

use super::optimise::optimise;
use super::theory::{Thresholds, Traffic};
use std::num::NonZeroUsize;

/// Thresholds of each traffic, and each judged on all.
#[derive(Clone, Debug, PartialEq)]
pub struct Robustness {
    /// What was found for each traffic.
    pub thresholds: Vec<Thresholds>,
    /// `ratios[t][m]`: mean completion time of traffic `t` under the thresholds made for `m`, over that under its own.
    pub ratios: Vec<Vec<f64>>,
}

/// Optimises for each traffic, and judges all on all. Each has this many levels.
pub fn robustness(traffics: &[Traffic], levels: NonZeroUsize, seed: u64) -> Robustness {
    let thresholds = traffics.iter().map(|traffic| optimise(traffic, levels, seed).thresholds).collect();
    Robustness::of(traffics, thresholds)
}

impl Robustness {
    /// Judges thresholds that were made for these traffics, one each.
    pub fn of(traffics: &[Traffic], thresholds: Vec<Thresholds>) -> Robustness {
        let row = |(traffic, own): (&Traffic, &Thresholds)| {
            let best = traffic.mean(own).0;
            thresholds.iter().map(|made| traffic.mean(made).0 / best).collect()
        };
        let ratios = traffics.iter().zip(&thresholds).map(row).collect();
        Robustness { thresholds, ratios }
    }
}
