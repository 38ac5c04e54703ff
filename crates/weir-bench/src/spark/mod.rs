//! `weir bench spark`: a real Spark on a test bed, by Spark alone and by Weir.

mod application;
mod cluster;
mod faults;
mod http;
mod jobs;
mod processor;
mod shuffles;
mod sites;
mod suite;

use clap::Subcommand;
use weir_console::Failure;
use weir_policy::Chosen;

#[derive(Subcommand)]
pub(crate) enum SparkCommand {
    /// Shuffles whose map outputs are there, read at the same time by one application
    Shuffles(shuffles::ShufflesArgs),
    /// Applications end to end, several at the same time
    Jobs(jobs::JobsArgs),
    /// Applications one at a time on hosts of several sites, with relays between these
    Sites(sites::SitesArgs),
    /// The ways in which Spark shuffles, one application each: whether results are the same by Weir
    Suite(suite::SuiteArgs),
}

pub(super) fn spark(command: SparkCommand) -> Result<(), Failure> {
    match command {
        SparkCommand::Shuffles(args) => shuffles::shuffles(&args),
        SparkCommand::Jobs(args) => jobs::jobs(&args),
        SparkCommand::Sites(args) => sites::sites(&args),
        SparkCommand::Suite(args) => suite::suite(&args),
    }
}

/// Whether modes are some of those that no policy stands behind, or policies.
fn check_modes(
    modes: &[String],
    others: &[&str],
    find: fn(&str) -> Result<Chosen, Failure>,
) -> Result<(), Failure> {
    let unknown = modes.iter().find(|mode| !others.contains(&mode.as_str()) && find(mode).is_err());
    let Some(mode) = unknown else { return Ok(()) };
    Err(Failure::Input(format!(
        "{mode} moves nothing here: say {}, or a policy for such links (`weir policies`)",
        others.join(", ")
    )))
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Of a mean: twice its standard error.
fn spread(values: &[f64]) -> f64 {
    let (mean, count) = (mean(values), values.len() as f64);
    let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    2.0 * (squares / (count - 1.0).max(1.0) / count).sqrt()
}
