//! The part of an experiment between sites that is repeated with real bytes, made small enough for one machine.

use serde::Deserialize;
use weir_model::Rate;

/// The part of an experiment that is repeated with real bytes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Live {
    /// Name of the point whose workload is repeated.
    pub point: String,
    /// Policies that relays and their controller can follow; the first is what others are compared with.
    pub policies: Vec<String>,
    /// Rate of the fastest link, headers included; the others' are in proportion.
    pub(crate) fastest: String,
    /// Sizes of flows are multiplied by this, and times so that load stays the same.
    pub(crate) sizes: f64,
    /// So many coflows, those of most bytes; else all.
    pub(crate) largest: Option<usize>,
    /// Bytes from every site to every other before each run: what links are learned from.
    pub warm_up: f64,
    /// Every run once per seed; those of the experiment unless said.
    pub(crate) seeds: Option<Vec<u64>>,
}

impl Live {
    pub(crate) fn check(&self) -> Result<(), String> {
        let positive = |value: f64| value.is_finite() && value > 0.0;
        if !(positive(self.sizes) && self.warm_up.is_finite() && self.warm_up >= 0.0) {
            return Err("live: sizes is not above 0, or warm_up not at least 0".to_owned());
        }
        if self.policies.is_empty() || self.largest == Some(0) {
            return Err("live: it has no policy or no coflow".to_owned());
        }
        self.fastest().map(drop)
    }

    pub(crate) fn fastest(&self) -> Result<Rate, String> {
        self.fastest.parse().map_err(|error| format!("live: fastest: {error}"))
    }
}
