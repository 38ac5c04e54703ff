//! `weir trace`: what is in a workload, and workloads from one form to another.

use super::workload;
use clap::{Args, Subcommand, ValueEnum};
use std::io::Write;
use std::path::PathBuf;
use weir_console::{Failure, progress};
use weir_console::{Files, OutputFile};
use weir_results::{table, text};
use weir_trace::statistics::{Share, Statistics, WIDTH_CLASSES, published};
use weir_trace::{LoadError, SYNTHETIC, Source, coflow_benchmark, weir_format};

#[derive(Subcommand)]
pub(crate) enum TraceCommand {
    /// Show the statistics of the Varys paper, the public trace and the synthetic one side by side
    Stats(StatsArgs),
    /// Write a synthetic workload to a file
    Generate(GenerateArgs),
    /// Write a workload in another format
    Convert(ConvertArgs),
}

#[derive(Args)]
pub(crate) struct StatsArgs {
    /// One more column: a trace file, or synthetic:NAME
    #[arg(long, value_name = "FILE|synthetic:NAME")]
    trace: Option<String>,
    /// Seed of synthetic workloads
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Args)]
pub(crate) struct GenerateArgs {
    /// Name of the synthetic workload: fb2010
    name: String,
    /// Seed; the same one gives the same file
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of hosts, where that of the workload is not wanted
    #[arg(long, value_name = "N")]
    hosts: Option<u32>,
    /// Number of coflows, where that of the workload is not wanted
    #[arg(long, value_name = "N")]
    coflows: Option<u64>,
    /// Time within which all coflows arrive
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
    /// File to write, in Weir's own format
    #[arg(long, value_name = "OUT")]
    out: PathBuf,
}

#[derive(Args)]
pub(crate) struct ConvertArgs {
    /// A trace file, or synthetic:NAME
    #[arg(value_name = "IN")]
    input: String,
    /// File to write
    #[arg(value_name = "OUT")]
    output: PathBuf,
    /// Format to write
    #[arg(long, value_enum, default_value_t = Format::Weir)]
    to: Format,
    /// Seed of a synthetic workload; 1 unless said
    #[arg(long)]
    seed: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Weir's own
    Weir,
    /// The coflow-benchmark format: bare coflows that are full shuffles
    CoflowBenchmark,
}

pub(crate) fn trace(command: TraceCommand) -> Result<(), Failure> {
    match command {
        TraceCommand::Stats(args) => stats(&args),
        TraceCommand::Generate(args) => generate(args),
        TraceCommand::Convert(args) => convert(&args),
    }
}

fn input(error: LoadError) -> Failure {
    Failure::Input(error.to_string())
}

fn generate(args: GenerateArgs) -> Result<(), Failure> {
    let out = Files::default().writes("--out", &args.out)?;
    let mut name = args.name;
    let sizes = [("hosts", args.hosts.map(u64::from)), ("coflows", args.coflows), ("seconds", args.seconds)];
    for (key, value) in sizes {
        if let Some(value) = value {
            name.push_str(&format!(",{key}={value}"));
        }
    }
    let source = weir_trace::open(&format!("{SYNTHETIC}{name}"), args.seed).map_err(input)?;
    let title = format!("{} seed {}", source.name(), args.seed);
    let written = write_weir(source, &title, &out)?;
    println!("{title}: {written} coflows in {}", args.out.display());
    Ok(())
}

fn convert(args: &ConvertArgs) -> Result<(), Failure> {
    let out = workload::inputs("IN", &args.input).writes("OUT", &args.output)?;
    let seed = workload::seed(args.seed, &args.input, None)?;
    let source = weir_trace::open(&args.input, seed).map_err(input)?;
    let written = match args.to {
        Format::Weir => {
            let name = source.name().to_owned();
            write_weir(source, &name, &out)?
        }
        Format::CoflowBenchmark => {
            // The format begins with the number of coflows: one reading counts, the next one writes.
            let coflows = source
                .map(|job| job.map(|job| job.stages.len()).map_err(input))
                .sum::<Result<usize, Failure>>()?;
            let source = weir_trace::open(&args.input, seed).map_err(input)?;
            write_benchmark(source, coflows, &out)?
        }
    };
    println!("{}: {written} coflows in {}", args.input, args.output.display());
    Ok(())
}

/// Holds one job at a time.
fn write_weir(source: Source, name: &str, out: &OutputFile) -> Result<usize, Failure> {
    let counter = progress::counter("writing", "coflows");
    let refused = |error: weir_format::WriteError| match error {
        weir_format::WriteError::Io(error) => Failure::from(error),
        error => Failure::Input(error.to_string()),
    };
    let mut written = 0;
    out.write(|output: &mut dyn Write| {
        let mut writer = weir_format::Writer::new(output, source.hosts(), Some(name)).map_err(refused)?;
        for job in source {
            let job = job.map_err(input)?;
            writer.write(&job).map_err(refused)?;
            written += job.stages.len();
            counter.inc(job.stages.len() as u64);
        }
        writer.finish().map_err(refused)?;
        Ok(())
    })?;
    counter.finish_and_clear();
    Ok(written)
}

/// Holds one job at a time.
fn write_benchmark(source: Source, coflows: usize, out: &OutputFile) -> Result<usize, Failure> {
    let bar = progress::bar(coflows as u64, "writing", "coflows");
    let refused = |error: coflow_benchmark::WriteError| match error {
        coflow_benchmark::WriteError::Io(error) => Failure::from(error),
        error => Failure::Input(error.to_string()),
    };
    out.write(|output: &mut dyn Write| {
        let mut writer = coflow_benchmark::Writer::new(output, source.hosts(), coflows).map_err(refused)?;
        for job in source {
            let job = job.map_err(input)?;
            if !job.is_bare() {
                let reason = format!("job {} has stages, which this format cannot hold", job.id);
                return Err(Failure::Input(reason));
            }
            writer.write(&job.stages[0].coflow).map_err(refused)?;
            bar.inc(1);
        }
        writer.finish().map_err(refused)?;
        Ok(())
    })?;
    bar.finish_and_clear();
    Ok(coflows)
}

fn count(spec: &str, seed: u64) -> Result<Statistics, Failure> {
    let source = weir_trace::open(spec, seed).map_err(input)?;
    let counter = progress::counter(source.name().to_owned(), "coflows");
    let mut statistics = Statistics::new(source.hosts());
    for job in source {
        for stage in job.map_err(input)?.stages {
            statistics.add(&stage.coflow);
            counter.inc(1);
        }
    }
    counter.finish_and_clear();
    Ok(statistics)
}

/// The name of a column, and what is known of it; the paper has no statistics of ours.
type Column = (String, Option<Statistics>);

fn stats(args: &StatsArgs) -> Result<(), Failure> {
    let mut columns: Vec<Column> = vec![("paper".to_owned(), None)];
    let public = weir_trace::find_public_trace();
    if let Ok(path) = &public {
        columns.push(("public trace".to_owned(), Some(count(&path.to_string_lossy(), args.seed)?)));
    }
    columns.push(("synthetic".to_owned(), Some(count(&format!("{SYNTHETIC}fb2010"), args.seed)?)));
    if let Some(spec) = &args.trace {
        columns.push((spec.clone(), Some(count(spec, args.seed)?)));
    }
    println!("{}", stats_table(&columns));
    println!(
        "\nPaper: Varys (SIGCOMM 2014), section 4 and Table 4, a task-level trace that is not public. Public trace: one hour,\n\
         rack-level, equal parts per reducer; it is not the paper's: bins, tails, bottlenecks and skew all differ.\n\
         Synthetic: made to follow the paper, with fewer bytes than the public hour (docs/trace-format.md says why)."
    );
    if let Err(looked) = public {
        let looked: Vec<String> = looked.iter().map(|path| path.display().to_string()).collect();
        println!("No public trace: looked for {}. Set WEIR_TRACE_DIR to its folder.", looked.join(", "));
    }
    Ok(())
}

/// One row per statistic.
fn stats_table(columns: &[Column]) -> String {
    let header: Vec<&str> =
        std::iter::once("").chain(columns.iter().map(|(name, _)| name.as_str())).collect();
    let mut table = table(&header, 1);
    let mut row = |label: String, paper: String, cell: &dyn Fn(&Statistics) -> String| {
        let cells = columns.iter().map(|(_, found)| found.as_ref().map_or(paper.clone(), cell));
        table.add_row(std::iter::once(label).chain(cells).collect::<Vec<_>>());
    };
    let none = || "-".to_owned();
    row("hosts".into(), "150 racks".into(), &|found| found.hosts().to_string());
    row("coflows".into(), none(), &|found| found.coflows().to_string());
    row("flows".into(), none(), &|found| found.flows().to_string());
    row("flows of the widest coflow".into(), "millions".into(), &|found| found.widest().to_string());
    row("bytes".into(), none(), &|found| found.bytes().to_string());
    row("last arrival".into(), none(), &|found| format!("{:.0} s", found.last_arrival_s()));
    for (bin, name) in (1..).zip(weir_results::BINS) {
        let paper = published::BINS[usize::from(bin) - 1];
        row(format!("bin {name}: coflows / bytes"), share(paper), &|found| share(found.bin(bin)));
    }
    row("over 1 GB: coflows / bytes".into(), share(published::OVER_1_GB), &|found| share(found.over_1_gb()));
    row("over 10 GB: coflows / bytes".into(), share(published::OVER_10_GB), &|found| {
        share(found.over_10_gb())
    });
    let more_than = |share: f64| format!("> {}", percent(share));
    row("largest flow at most 1 MB".into(), more_than(published::LENGTH_UP_TO_1_MB), &|found| {
        percent(found.length_up_to_1_mb())
    });
    row("at most 50 flows".into(), more_than(published::NARROW), &|found| percent(found.narrow()));
    row("a sender is the bottleneck".into(), "almost a third".into(), &|found| percent(found.sender_bound()));
    row("fewer senders than receivers".into(), none(), &|found| percent(found.fewer_senders()));
    for (class, least) in WIDTH_CLASSES.iter().enumerate() {
        let label = match WIDTH_CLASSES.get(class + 1) {
            Some(next) => format!("skew, {least} to {} flows", next - 1),
            None => format!("skew, {least} flows and more"),
        };
        row(label, "rises with width".into(), &|found| {
            found.skew_by_width()[class].map_or_else(none, |skew| format!("{skew:.2}"))
        });
    }
    text(&table)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn share(share: Share) -> String {
    format!("{:.1} % / {:.2} %", 100.0 * share.coflows, 100.0 * share.bytes)
}
