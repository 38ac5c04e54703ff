//! A run of the system beside the fluid simulation of the same workload.

use super::{Control, ScaleSettings};
use weir_model::{CoflowSpec, Fabric};
use weir_sim::{Options, Outcome};

/// A run beside its simulation.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Average completion time of the system, in seconds.
    pub system_s: f64,
    /// Average completion time of the simulator, in seconds.
    pub fluid_s: f64,
    /// Median, over coflows, of the system's completion time over the simulator's.
    pub median: f64,
    /// The 95th percentile of the same ratio.
    pub p95: f64,
    /// Coflows that took less than they take alone on links of the full rate: there are none, or something is wrong.
    pub too_fast: Vec<u64>,
}

/// Simulates coflows on links of the full rate.
///
/// # Errors
/// Why it cannot be simulated, in words.
pub fn fluid(settings: &ScaleSettings, coflows: &[CoflowSpec]) -> Result<Outcome, String> {
    let policy = weir_policy::find(&settings.policy).map_err(|error| error.to_string())?;
    let fabric = Fabric::big_switch(settings.hosts, settings.link).map_err(|error| error.to_string())?;
    let simulated =
        weir_sim::simulate(&fabric, coflows.to_vec(), policy.create().as_mut(), &Options::default());
    simulated.map_err(|error| error.to_string())
}

/// Compares a run with a simulation of the same coflows, which are in the order of (arrival, id).
pub fn compare(control: &Control, fluid: &Outcome) -> Comparison {
    let pairs = || control.ccts.iter().zip(&fluid.coflows);
    let system: Vec<f64> = control.ccts.iter().map(|cct| cct.as_secs()).collect();
    let mut ratios: Vec<f64> = pairs().map(|(cct, record)| cct.as_secs() / record.cct.as_secs()).collect();
    ratios.sort_by(f64::total_cmp);
    let too_fast = pairs().filter(|(cct, record)| **cct < record.isolation);
    Comparison {
        system_s: weir_sim::mean(&system),
        fluid_s: fluid.average_cct_secs(),
        median: weir_sim::percentile(&ratios, 0.5),
        p95: weir_sim::percentile(&ratios, 0.95),
        too_fast: too_fast.map(|(_, record)| record.id.0).collect(),
    }
}

impl Comparison {
    /// Average completion time of the system over the simulator's.
    pub fn ratio(&self) -> f64 {
        self.system_s / self.fluid_s
    }
}
