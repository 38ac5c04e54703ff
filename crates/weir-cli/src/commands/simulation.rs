//! What `weir sim` runs, whatever it was made of.

use std::path::PathBuf;
use weir_console::Failure;
use weir_model::{CapacityChange, CoflowSpec, Fabric, Rate};
use weir_policy::Chosen;
use weir_results::Cut;
use weir_sim::Options;

/// Everything a simulation needs, checked.
pub(crate) struct Simulation {
    pub(crate) name: String,
    /// Of what was drawn; none where nothing was.
    pub(crate) seed: Option<u64>,
    /// What was cut out of the workload; none where it is as it was.
    pub(crate) cut: Option<Cut>,
    pub(crate) fabric: Fabric,
    pub(crate) link_rate: Rate,
    /// The file that the network is of; none where all links are alike.
    pub(crate) topology: Option<PathBuf>,
    pub(crate) coflows: Vec<CoflowSpec>,
    pub(crate) changes: Vec<CapacityChange>,
    pub(crate) policies: Vec<Chosen>,
    pub(crate) options: Options,
}

/// The policies of these names, or the first that is none.
pub(crate) fn find_policies(names: &[String]) -> Result<Vec<Chosen>, Failure> {
    names.iter().map(|name| weir_console::find(name)).collect()
}
