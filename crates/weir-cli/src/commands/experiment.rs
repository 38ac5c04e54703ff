//! `weir experiment`: rebuilds what `experiments/` holds.

mod check;
mod live;
mod written;

use super::workload;
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};
use weir_console::Files;
use weir_console::{Failure, progress};
use weir_experiment::{Experiment, PACKETS, RUNS, Results, RunError, Runs, Source};
use weir_results::{Provenance, table, text};
use weir_trace::SYNTHETIC;
use written::ResultFiles;

#[derive(Subcommand)]
pub(crate) enum ExperimentCommand {
    /// Names, titles, and what results there are
    List(ListArgs),
    /// Run one (or all) and write numbers, table and plot into its folder
    Run(RunArgs),
    /// Tell whether stored results are older than the code, in a moment: simulates very little work with every policy
    Probe(ProbeArgs),
    /// Move the bytes of its live part between sites of a test bed, through relays, beside the simulation
    Live(LiveArgs),
}

#[derive(Args)]
pub(crate) struct ListArgs {
    /// The folder of experiments
    #[arg(long, value_name = "DIR", default_value = "experiments")]
    dir: PathBuf,
}

#[derive(Args)]
pub(crate) struct RunArgs {
    /// Its name, or `all`
    name: String,
    /// The folder of experiments
    #[arg(long, value_name = "DIR", default_value = "experiments")]
    dir: PathBuf,
    /// The workload: a trace file, `public` for the Facebook trace where it is found, or synthetic:NAME
    #[arg(long, value_name = "FILE|public|synthetic:NAME", default_value = "synthetic:fb2010")]
    trace: String,
    /// Write nothing; exit with 1 if the numbers are not those in the folder
    #[arg(long)]
    check: bool,
    /// Run nothing; make table and plot anew from the numbers in the folder
    #[arg(long, conflicts_with = "check")]
    redraw: bool,
}

#[derive(Args)]
pub(crate) struct ProbeArgs {
    /// Its name, or `all`
    #[arg(default_value = "all")]
    name: String,
    /// The folder of experiments
    #[arg(long, value_name = "DIR", default_value = "experiments")]
    dir: PathBuf,
    /// Fail for results whose page says that they are older than the code, too
    #[arg(long)]
    release: bool,
}

#[derive(Args)]
pub(crate) struct LiveArgs {
    /// The name of its folder, as `weir experiment list` has it
    name: String,
    /// The folder of experiments
    #[arg(long, value_name = "DIR", default_value = "experiments")]
    dir: PathBuf,
    /// The workload, as of `run`
    #[arg(long, value_name = "FILE|public|synthetic:NAME", default_value = "synthetic:fb2010")]
    trace: String,
    /// Write numbers and table into its folder
    #[arg(long)]
    write: bool,
}

pub(crate) fn experiment(command: ExperimentCommand) -> Result<(), Failure> {
    match command {
        ExperimentCommand::List(args) => list(&args),
        ExperimentCommand::Run(args) => run(&args),
        ExperimentCommand::Probe(args) => check::probe(&args),
        ExperimentCommand::Live(args) => live::live(&args),
    }
}

/// Folders with an experiment, by name.
fn folders(dir: &Path) -> Result<Vec<(String, PathBuf)>, Failure> {
    let unreadable = |error: std::io::Error| Failure::Input(format!("--dir {}: {error}", dir.display()));
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        if entry.path().join("experiment.toml").is_file() {
            folders.push((entry.file_name().to_string_lossy().into_owned(), entry.path()));
        }
    }
    // A directory lists its entries in no order.
    folders.sort();
    Ok(folders)
}

fn load(folder: &Path) -> Result<Experiment, Failure> {
    Experiment::load(folder).map_err(|error| Failure::Input(error.to_string()))
}

fn list(args: &ListArgs) -> Result<(), Failure> {
    let mut rows = table(&["experiment", "results on", "what it shows", "source"], 4);
    for (name, folder) in folders(&args.dir)? {
        let experiment = load(&folder)?;
        // A file that cannot be read is only listed as such: the command that reads it says what is wrong.
        let workload = |file: PathBuf| match held(&file) {
            Ok(results) => results.workload,
            Err(_) => format!("{} (unreadable)", file.file_name().unwrap_or_default().to_string_lossy()),
        };
        let workloads: Vec<String> = results_of(&folder)?.into_iter().map(workload).collect();
        let stale = if experiment.outdated.is_some() { "older than the code: " } else { "" };
        let results =
            if workloads.is_empty() { "-".to_owned() } else { format!("{stale}{}", workloads.join(", ")) };
        rows.add_row([name, results, experiment.title, experiment.source]);
    }
    println!("{}", text(&rows));
    Ok(())
}

/// The experiment of that name, or all of them: name, folder and what it says.
fn chosen(dir: &Path, name: &str) -> Result<Vec<(String, PathBuf, Experiment)>, Failure> {
    let all = folders(dir)?;
    let known: Vec<String> = all.iter().map(|(name, _)| name.clone()).collect();
    let chosen: Vec<_> = all.into_iter().filter(|(other, _)| name == "all" || other == name).collect();
    if chosen.is_empty() {
        let reason = format!("no experiment `{name}` in {}; there are: {}", dir.display(), known.join(", "));
        return Err(Failure::Input(reason));
    }
    let loaded = chosen.into_iter().map(|(name, folder)| {
        let experiment = load(&folder)?;
        Ok((name, folder, experiment))
    });
    loaded.collect()
}

/// What the file or the workload has wrong is the user's input; a run that fails is not.
fn failed(name: &str, error: RunError) -> Failure {
    match error {
        RunError::Seeds { .. } | RunError::Work { .. } => Failure::Input(format!("{name}: {error}")),
        RunError::Run { .. } => anyhow::anyhow!("{name}: {error}").into(),
    }
}

/// This program has what the experiment runs.
fn check_policies(name: &str, experiment: &Experiment) -> Result<(), Failure> {
    experiment.check_policies().map_err(|error| Failure::Input(format!("{name}: {error}")))
}

/// The workload that `--trace` names.
fn load_trace(trace: &str) -> Result<Source, Failure> {
    if let Some(generator) = trace.strip_prefix(SYNTHETIC) {
        return Source::synthetic(generator).map_err(|error| Failure::Input(format!("--trace {error}")));
    }
    let trace = match trace {
        "public" => weir_trace::find_public_trace().map_err(|places| {
            let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
            Failure::Input(format!(
                "--trace public: it is none of {}; WEIR_TRACE_DIR says where",
                places.join(", ")
            ))
        })?,
        other => PathBuf::from(other),
    };
    workload::load(&trace.to_string_lossy(), 1).map(Source::file)
}

fn run(args: &RunArgs) -> Result<(), Failure> {
    let experiments = chosen(&args.dir, &args.name)?;
    if args.redraw {
        return experiments
            .iter()
            .try_for_each(|(name, folder, experiment)| redraw(name, folder, experiment));
    }
    experiments.iter().try_for_each(|(name, _, experiment)| check_policies(name, experiment))?;
    // Packets need no trace.
    let needs_trace = experiments.iter().any(|(_, _, experiment)| !experiment.is_of_packets());
    let workload = needs_trace.then(|| load_trace(&args.trace)).transpose()?;
    let on = |experiment: &Experiment| workload.as_ref().filter(|_| !experiment.is_of_packets());
    let stem = |folder: &Path, experiment: &Experiment| {
        folder.join(weir_experiment::stem(on(experiment).map_or(PACKETS, Source::name)))
    };
    let mut files = workload::inputs("--trace", &args.trace);
    let written = experiments.iter().map(|(name, folder, experiment)| {
        files.reads("experiment.toml", &folder.join("experiment.toml"));
        let write = !args.check;
        write.then(|| ResultFiles::check(&mut files, name, &stem(folder, experiment))).transpose()
    });
    let written = written.collect::<Result<Vec<_>, Failure>>()?;
    let mut checks = check::Checks::default();
    for ((name, folder, experiment), written) in experiments.into_iter().zip(written) {
        let on = on(&experiment);
        let stem = stem(&folder, &experiment);
        let file = stem.with_extension("json");
        // Before anything is computed: there may be nothing to compare with.
        let stored = match &written {
            None if args.name == "all" && !file.exists() => {
                eprintln!("weir: {name}: nothing to check, {} is not there", file.display());
                continue;
            }
            None => Some(check::stored(&name, &file, &experiment)?),
            Some(_) => None,
        };
        let runs = match on {
            None if !args.check => kept_runs(&name, &experiment, &folder, &stem)?,
            _ => Runs::unkept(),
        };
        let bar = progress::bar(experiment.runs() as u64, &name, "runs");
        let results = match on {
            Some(workload) => weir_experiment::run(&experiment, workload, &|| bar.inc(1)),
            None => weir_experiment::run_packets(&experiment, &folder, &runs, &|| bar.inc(1)),
        };
        bar.finish_and_clear();
        let mut results = results.map_err(|error| failed(&name, error))?;
        if let Some(stored) = stored {
            checks.compare(&name, &file, &results, &stored);
            continue;
        }
        results.probe = weir_experiment::probe(&experiment, &folder).map_err(|error| failed(&name, error))?;
        let mut words = vec!["experiment", "run", &name];
        words.extend(on.iter().flat_map(|_| ["--trace", &args.trace]));
        results.made_by = Some(Provenance::of_experiment(&words));
        // Results that were made just now are not outdated.
        let experiment = Experiment { outdated: None, ..experiment };
        let page = weir_experiment::table(&experiment, &results, &name);
        println!("{page}");
        if let Some(written) = &written {
            written.write(&experiment, &results)?;
        }
        runs.remove().map_err(|error| anyhow::anyhow!("{}: {error}", stem.with_extension(RUNS).display()))?;
    }
    checks.verdict()
}

/// Runs on packets that an earlier command has done and was not there to gather.
fn kept_runs(name: &str, experiment: &Experiment, folder: &Path, stem: &Path) -> Result<Runs, Failure> {
    let file = stem.with_extension(RUNS);
    let probe = weir_experiment::probe(experiment, folder).map_err(|error| failed(name, error))?;
    let runs = Runs::open(&file, &probe).map_err(|error| anyhow::anyhow!("{}: {error}", file.display()))?;
    if !runs.is_empty() {
        eprintln!("weir: {name}: {} runs are done, in {}", runs.len(), file.display());
    }
    Ok(runs)
}

/// Makes table and plot of all results in a folder anew, those of real bytes excepted.
fn redraw(name: &str, folder: &Path, experiment: &Experiment) -> Result<(), Failure> {
    for file in results_of(folder)? {
        let results = held(&file)?;
        let other = |reason| {
            Failure::Input(format!(
                "{}: {reason}; `weir experiment run {name}` makes it anew",
                file.display()
            ))
        };
        results.check_settings(experiment).map_err(other)?;
        let stem = file.with_extension("");
        ResultFiles::check(&mut Files::default(), name, &stem)?.write_pages(experiment, &results)?;
        println!("{}", file.with_extension("md").display());
    }
    Ok(())
}

/// The files of numbers in a folder, by name, those of real bytes excepted.
fn results_of(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let unreadable = |error: std::io::Error| Failure::Input(format!("{}: {error}", folder.display()));
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.path();
        let live = file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("live-"));
        if !live && file.extension().is_some_and(|extension| extension == "json") {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

/// The results in a file.
fn held(file: &Path) -> Result<Results, Failure> {
    let failed = |error: &dyn std::error::Error| Failure::Input(format!("{}: {error}", file.display()));
    let text = weir_trace::read_text(file).map_err(|error| failed(&error))?;
    serde_json::from_str(&text).map_err(|error| failed(&error))
}
