//! Options that say where results go besides the terminal, shared by `weir sim` and `weir live`.

use crate::Failure;
use crate::output::{CsvFiles, Files, OutputFile, Results};
use clap::Args;
use std::path::PathBuf;

#[derive(Args)]
pub(crate) struct OutputArgs {
    /// Write all results, coflow by coflow
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,
    /// Write a table with a row for each coflow; beside it OUT.made_by.json says what made it, and OUT.jobs.csv has the
    /// jobs if there are any
    #[arg(long, value_name = "OUT.csv")]
    csv: Option<PathBuf>,
    /// Write each flow too: into the file of --json, and beside that of --csv as OUT.flows.csv
    #[arg(long)]
    pub(crate) flows: bool,
    /// Write a page of charts
    #[arg(long, value_name = "OUT.html")]
    report: Option<PathBuf>,
}

/// Files that can be written, checked before the work.
pub(crate) struct Outputs {
    json: Option<OutputFile>,
    csv: Option<CsvFiles>,
    report: Option<OutputFile>,
    /// Whether each flow is asked for.
    pub(crate) flows: bool,
}

impl OutputArgs {
    /// `files`: with those that the command reads.
    pub(crate) fn check(&self, mut files: Files) -> Result<Outputs, Failure> {
        if self.flows && self.json.is_none() && self.csv.is_none() {
            let reason = "--flows writes into the files of --json and --csv: name one of them";
            return Err(Failure::Input(reason.to_owned()));
        }
        Ok(Outputs {
            json: files.may_write("--json", self.json.as_ref())?,
            report: files.may_write("--report", self.report.as_ref())?,
            csv: self.csv.as_deref().map(|path| CsvFiles::check(&mut files, path, self.flows)).transpose()?,
            flows: self.flows,
        })
    }
}

impl Outputs {
    /// Whether a page of charts is asked for.
    pub(crate) fn has_report(&self) -> bool {
        self.report.is_some()
    }

    /// Writes what was asked for; `page` makes the page.
    pub(crate) fn write(&self, results: &Results, page: impl FnOnce() -> String) -> Result<(), Failure> {
        if let Some(file) = &self.json {
            file.write(|output| Ok(serde_json::to_writer(output, results)?))?;
        }
        if let Some(files) = &self.csv {
            files.write(results)?;
        }
        if let Some(file) = &self.report {
            let page = page();
            file.write(|output| Ok(output.write_all(page.as_bytes())?))?;
        }
        Ok(())
    }
}
