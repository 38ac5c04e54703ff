//! What `weir sim` runs, whatever it was made of.

use std::path::PathBuf;
use weir_console::Failure;
use weir_model::Rate;
use weir_policy::Chosen;
use weir_results::{Cut, Spec};

/// What is simulated under which policies, checked, and what is said of it.
pub(crate) struct Simulation {
    pub(crate) name: String,
    /// Of what was drawn; none where nothing was.
    pub(crate) seed: Option<u64>,
    /// What was cut out of the workload; none where it is as it was.
    pub(crate) cut: Option<Cut>,
    pub(crate) link_rate: Rate,
    /// The file that the network is of; none where all links are alike.
    pub(crate) topology: Option<PathBuf>,
    pub(crate) policies: Vec<Chosen>,
    pub(crate) spec: Spec,
}

/// The policies of these names, or the first that is none.
pub(crate) fn find_policies(names: &[String]) -> Result<Vec<Chosen>, Failure> {
    names.iter().map(|name| weir_console::find(name)).collect()
}
