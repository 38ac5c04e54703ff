//! Options that say where results go besides the terminal, shared by `weir sim` and `weir live`.

use clap::Args;
use std::path::{Path, PathBuf};
use weir_console::{Failure, Files, OutputFile};
use weir_results::Results;

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

/// The file of coflows that `--csv` names, and those beside it.
struct CsvFiles {
    coflows: OutputFile,
    beside: Option<Beside>,
}

/// None of these where `--csv` names a pipe or a device: nothing is beside one.
struct Beside {
    jobs: OutputFile,
    flows: Option<OutputFile>,
    made_by: OutputFile,
}

impl CsvFiles {
    /// Checks all files that may be written; `flows`: whether flows are asked for.
    fn check(files: &mut Files, path: &Path, flows: bool) -> Result<CsvFiles, Failure> {
        const OPTION: &str = "--csv";
        let coflows = files.writes(OPTION, path)?;
        if coflows.is_stream() {
            if flows {
                let reason = "is no plain file: --flows needs a place beside it for the table of flows";
                return Err(Failure::Input(format!("{OPTION} {}: {reason}", path.display())));
            }
            return Ok(CsvFiles { coflows, beside: None });
        }
        let mut other = |ending: &str| files.writes(OPTION, &path.with_extension(ending));
        let beside = Beside {
            jobs: other("jobs.csv")?,
            flows: flows.then(|| other("flows.csv")).transpose()?,
            made_by: other("made_by.json")?,
        };
        Ok(CsvFiles { coflows, beside: Some(beside) })
    }

    /// Writes them. There is a table of jobs where any run has jobs.
    fn write(&self, results: &Results) -> Result<(), Failure> {
        self.coflows.write(|output| Ok(results.write_coflows(output)?))?;
        let Some(beside) = &self.beside else { return Ok(()) };
        if results.has_jobs() {
            beside.jobs.write(|output| Ok(results.write_jobs(output)?))?;
        }
        if let Some(flows) = &beside.flows {
            flows.write(|output| Ok(results.write_flows(output)?))?;
        }
        beside.made_by.write(|output| Ok(results.write_made_by(output)?))
    }
}
