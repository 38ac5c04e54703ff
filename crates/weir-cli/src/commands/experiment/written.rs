//! The files of an experiment's results, beside its `experiment.toml`.

use std::path::Path;
use weir_console::Failure;
use weir_console::{Files, OutputFile};
use weir_experiment::{Experiment, Results};

/// Numbers, table and plot of one workload, of which it is known that they can be written.
pub(super) struct ResultFiles {
    name: String,
    numbers: OutputFile,
    table: OutputFile,
    plot: OutputFile,
}

impl ResultFiles {
    /// `stem`: their path without an ending.
    pub(super) fn check(files: &mut Files, name: &str, stem: &Path) -> Result<ResultFiles, Failure> {
        let mut file =
            |ending: &str| files.writes(&format!("results of {name}:"), &stem.with_extension(ending));
        Ok(ResultFiles {
            name: name.to_owned(),
            numbers: file("json")?,
            table: file("md")?,
            plot: file("svg")?,
        })
    }

    pub(super) fn write(&self, experiment: &Experiment, results: &Results) -> Result<(), Failure> {
        write_numbers(&self.numbers, results)?;
        self.write_pages(experiment, results)
    }

    /// Writes the table and the plot.
    pub(super) fn write_pages(&self, experiment: &Experiment, results: &Results) -> Result<(), Failure> {
        let table = weir_experiment::table(experiment, results, &self.name);
        write_text(&self.table, &table)?;
        write_text(&self.plot, &weir_experiment::plot(experiment, results))
    }
}

/// Writes the numbers of results.
pub(super) fn write_numbers(file: &OutputFile, results: &impl serde::Serialize) -> Result<(), Failure> {
    write_text(file, &(serde_json::to_string_pretty(results)? + "\n"))
}

pub(super) fn write_text(file: &OutputFile, text: &str) -> Result<(), Failure> {
    file.write(|output| Ok(output.write_all(text.as_bytes())?))
}
