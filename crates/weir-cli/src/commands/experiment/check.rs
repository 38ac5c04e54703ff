//! `weir experiment run --check` and `weir experiment probe`: whether stored results are what the code gives.

use super::{ProbeArgs, chosen, failed, held, results_of};
use std::path::Path;
use weir_console::Failure;
use weir_experiment::{Experiment, Results, probe_difference};

/// Numbers of one experiment that are named one by one; of more, the number.
const MOST_NAMED: usize = 10;

/// The results in a file, if they are those of the experiment as it is now.
pub(super) fn stored(name: &str, file: &Path, experiment: &Experiment) -> Result<Results, Failure> {
    if !file.exists() {
        let reason = format!(
            "{name}: nothing to check, {} is not there; without --check the command makes it",
            file.display()
        );
        return Err(Failure::Input(reason));
    }
    let results = held(file)?;
    let other =
        |reason| Failure::Input(format!("{}: {reason}; without --check it is made anew", file.display()));
    results.check_settings(experiment).map_err(other)?;
    Ok(results)
}

/// What `--check` found so far.
#[derive(Default)]
pub(super) struct Checks {
    differ: Vec<String>,
}

impl Checks {
    /// Compares, and names the numbers that differ.
    pub(super) fn compare(&mut self, name: &str, file: &Path, computed: &Results, stored: &Results) {
        let differences = computed.differences(stored);
        if differences.is_empty() {
            println!("{name}: as in {}", file.display());
            return;
        }
        for difference in differences.iter().take(MOST_NAMED) {
            eprintln!("weir: {name}: {difference}");
        }
        if let Some(more) = differences.len().checked_sub(MOST_NAMED).filter(|more| *more > 0) {
            eprintln!("weir: {name}: and {more} more");
        }
        self.differ.push(format!("{name} ({} in {})", differences.len(), file.display()));
    }

    /// Fails if anything differed.
    pub(super) fn verdict(self) -> Result<(), Failure> {
        if self.differ.is_empty() {
            return Ok(());
        }
        Err(anyhow::anyhow!("results differ from those in the folder: {}", self.differ.join(", ")).into())
    }
}

pub(super) fn probe(args: &ProbeArgs) -> Result<(), Failure> {
    let mut old = Vec::new();
    for (name, folder, experiment) in chosen(&args.dir, &args.name)? {
        let files = results_of(&folder)?;
        if files.is_empty() {
            continue;
        }
        let now = weir_experiment::probe(&experiment, &folder).map_err(|error| failed(&name, error))?;
        for file in files {
            let results = held(&file)?;
            let Some(difference) = probe_difference(&results.probe, &now) else {
                if let Some(file) = experiment.outdated.as_ref().map(|_| file) {
                    let reason =
                        format!("{name}: {} is as new as the code: take `outdated` out", file.display());
                    return Err(Failure::Input(reason));
                }
                continue;
            };
            if experiment.outdated.is_some() {
                eprintln!("weir: {name}: older than the code ({difference}), as its page says");
                if args.release {
                    old.push(name.clone());
                }
                continue;
            }
            eprintln!(
                "weir: results of experiment {name} on {} are older than the code ({difference}): \
                 run `weir experiment run {name} --trace ...` again",
                results.workload
            );
            old.push(name.clone());
        }
    }
    if old.is_empty() {
        return Ok(());
    }
    old.dedup();
    Err(anyhow::anyhow!("results are older than the code: {}", old.join(", ")).into())
}
