//! `weir bench spark jobs`: applications end to end, at the same time.

use super::application::{Application, Running};
use super::cluster::{Cluster, ClusterArgs, Setup, Shape, TCP, VANILLA};
use super::{check_modes, mean, spread};
use anyhow::{Context, anyhow};
use clap::Args;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::AddAssign;
use std::time::{Duration, Instant};
use weir_console::Failure;
use weir_console::find_for_hosts;
use weir_model::Rate;
use weir_results::{fixed, table, text};
use weir_testbed::busy_seconds;

const CLASS: &str = "io.weir.bench.Jobs";

/// Runs applications of one job each at the same time, each with an executor on each host, whose input is in files that all hosts
/// have. A round is all of them once, by each mode in turn, on a cluster of its own. Whatever moves the bytes, the results have to be the same.
///
/// vanilla: Spark's own fetch. tcp: Weir carries the bytes and schedules nothing. Others: Weir, under the policy of that name.
///
/// All begin at the same moment, when each has run its job once on a small input, so that classes are there and compiled: the
/// processors here are fewer than those of a cluster. A job's time is counted from then to its result. Ratios are of one round,
/// vanilla's time to the mode's, and averaged over rounds; +- is twice the standard error.
///
/// CPU: processor seconds of the whole machine in a round, until the last application has ended; busy: its processors' share of
/// that time. Where it is near 100 %, jobs wait for processors and not for the network.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct JobsArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// What moves the bytes
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_values_t = [VANILLA, "tcp", "varys", "dclas"].map(str::to_owned))]
    mode: Vec<String>,
    /// The jobs, as NAME or NAME:MEGABYTES of input
    #[arg(long, value_name = "NAME:MB", value_delimiter = ',', default_values_t = ["sort:30", "join:40", "sort:100"].map(str::to_owned))]
    job: Vec<String>,
    /// Partitions of their shuffles
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=2_000))]
    partitions: u32,
    /// Number of hosts, each with a worker
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(2..=32))]
    hosts: u32,
    /// Rate of each host's link, each direction, headers included
    #[arg(long, value_name = "RATE", default_value = "20mbit")]
    link_rate: Rate,
    /// Tasks that an executor runs at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    slots: u32,
    /// Rounds that are counted, each with all modes in turn
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
}

/// Of the input that warms up.
const WARM_MEGABYTES: u32 = 2;
/// Where the megabytes of a job are not said.
const MEGABYTES: u32 = 40;

/// A job: its name, and megabytes of input.
#[derive(Clone)]
pub(super) struct Job {
    pub(super) name: String,
    pub(super) megabytes: u32,
}

impl fmt::Display for Job {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.name, self.megabytes)
    }
}

impl Job {
    pub(super) fn parse(said: &str) -> Result<Job, Failure> {
        let (name, megabytes) = said.split_once(':').unwrap_or((said, ""));
        let megabytes = if megabytes.is_empty() { Ok(MEGABYTES) } else { megabytes.parse() };
        match megabytes {
            Ok(megabytes @ 1..=10_000) if !name.is_empty() => Ok(Job { name: name.to_owned(), megabytes }),
            _ => Err(Failure::Input(format!(
                "--job {said}: say NAME, or NAME:MEGABYTES with 1 to 10000 megabytes"
            ))),
        }
    }
}

fn folder(setup: &Setup, megabytes: u32) -> String {
    setup.dir().join(format!("input-{megabytes}")).display().to_string()
}

/// The application that runs a job; it warms up on another input.
pub(super) fn application<'a>(setup: &Setup, job: &Job, partitions: u32, name: &'a str) -> Application<'a> {
    Application {
        name,
        class: CLASS,
        args: vec![job.name.clone(), folder(setup, job.megabytes), partitions.to_string()],
        conf: vec![format!("spark.bench.warm={}", folder(setup, WARM_MEGABYTES))],
    }
}

/// What an application said of its job: times in seconds.
pub(super) struct Said {
    pub(super) seconds: f64,
    /// Digest of the job's result, the same in every mode.
    pub(super) digest: String,
    /// Of stages that read no shuffle, all together.
    pub(super) map: f64,
    /// Of those that do.
    pub(super) stages: f64,
    /// How long a task waited for blocks: the one in the middle, and the one that waited longest.
    pub(super) median_read: f64,
    pub(super) slowest_read: f64,
}

pub(super) fn said(running: Running) -> anyhow::Result<Said> {
    for line in &running.said()? {
        let words: Vec<&str> = line.split(' ').collect();
        let [
            "job",
            _,
            "seconds",
            seconds,
            "digest",
            digest,
            "map",
            map,
            "stages",
            stages,
            "reads",
            median,
            slowest,
        ] = words[..]
        else {
            continue;
        };
        return Ok(Said {
            seconds: seconds.parse()?,
            digest: digest.to_owned(),
            map: map.parse()?,
            stages: stages.parse()?,
            median_read: median.parse()?,
            slowest_read: slowest.parse()?,
        });
    }
    Err(anyhow!("the application did not say what it found"))
}

/// What a round of all jobs took, or several together.
#[derive(Default)]
struct Work {
    /// Megabytes of shuffles that Weir carried; Spark carried the rest.
    megabytes: f64,
    /// Processor time of the machine, from the jobs' beginning to the end of all.
    busy_seconds: f64,
    /// From the jobs' beginning to the end of all.
    seconds: f64,
}

impl AddAssign for Work {
    fn add_assign(&mut self, more: Work) {
        self.megabytes += more.megabytes;
        self.busy_seconds += more.busy_seconds;
        self.seconds += more.seconds;
    }
}

/// All jobs at the same time: what each said, and what it took.
fn round(
    setup: &Setup,
    shape: &Shape,
    jobs: &[Job],
    args: &JobsArgs,
    name: &str,
    mode: &str,
) -> anyhow::Result<(Vec<Said>, Work)> {
    let cluster = Cluster::start(setup, shape, name, mode)?;
    let (mut running, go) = (Vec::new(), cluster.dir().join("go"));
    for (number, job) in jobs.iter().enumerate() {
        let name = format!("{number}-{}", job.name);
        let mut application = application(setup, job, args.partitions, &name);
        application.conf.push(format!("spark.bench.go={}", go.display()));
        running.push(cluster.submit(&application)?);
    }
    // Each application says that it is ready.
    while running.iter().any(|one| one.heard() == 0) {
        for (job, one) in jobs.iter().zip(&mut running) {
            anyhow::ensure!(
                !one.is_over()?,
                "{} ended before it began; logs are in {}",
                job.name,
                cluster.dir().display()
            );
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let (began, busy_before) = (Instant::now(), busy_seconds()?);
    std::fs::write(&go, "")?;
    let said =
        jobs.iter().zip(running).map(|(job, one)| said(one).with_context(|| format!("{job} by {mode}")));
    let said: Vec<Said> = said.collect::<anyhow::Result<_>>()?;
    let (seconds, busy_seconds) = (began.elapsed().as_secs_f64(), busy_seconds()? - busy_before);
    let carried = cluster.carried()?;
    anyhow::ensure!(
        carried.gathers > 0.0 || !cluster.is_weir(),
        "Weir carried nothing; logs are in {}",
        cluster.dir().display()
    );
    Ok((said, Work { megabytes: carried.bytes / 1e6, busy_seconds, seconds }))
}

/// Writes the input of all jobs.
pub(super) fn prepare(setup: &Setup, shape: &Shape, jobs: &[Job], partitions: u32) -> anyhow::Result<()> {
    let mut sizes: BTreeSet<u32> = jobs.iter().map(|job| job.megabytes).collect();
    sizes.insert(WARM_MEGABYTES);
    // Over fast links and by Spark alone: writing the input is not measured.
    let fast = Shape {
        link_rate: "10gbit".parse().context("a rate")?,
        worker_conf: Vec::new(),
        sites: None,
        ..*shape
    };
    let cluster = Cluster::start(setup, &fast, "input", VANILLA)?;
    for megabytes in sizes {
        let warms = megabytes == WARM_MEGABYTES;
        let of_size = jobs.iter().filter(|job| warms || job.megabytes == megabytes);
        let mut words = vec!["prepare".to_owned(), folder(setup, megabytes)];
        words.extend([megabytes.to_string(), partitions.to_string()]);
        words.extend(of_size.map(|job| job.name.clone()));
        cluster
            .submit(&Application { name: "prepare", class: CLASS, args: words, conf: Vec::new() })?
            .said()?;
    }
    Ok(())
}

pub(super) fn jobs(args: &JobsArgs) -> Result<(), Failure> {
    let jobs: Vec<Job> = args.job.iter().map(|said| Job::parse(said)).collect::<Result<_, _>>()?;
    check_modes(&args.mode, &[VANILLA, TCP], find_for_hosts)?;
    let setup = Setup::new(&args.cluster)?;
    let shape = Shape {
        hosts: args.hosts,
        link_rate: args.link_rate,
        slots: args.slots,
        applications: jobs.len() as u32,
        worker_conf: Vec::new(),
        sites: None,
    };
    println!(
        "{} hosts at {}, {} applications at once, {} partitions, {} rounds",
        args.hosts,
        args.link_rate,
        jobs.len(),
        args.partitions,
        args.rounds
    );
    prepare(&setup, &shape, &jobs, args.partitions).map_err(Failure::Run)?;
    // By mode, then by round, then by job.
    let mut times: BTreeMap<&str, Vec<Vec<f64>>> = BTreeMap::new();
    let mut works: BTreeMap<&str, Work> = BTreeMap::new();
    let mut digests: Option<Vec<String>> = None;
    for number in 0..args.rounds {
        for mode in &args.mode {
            let name = format!("{mode}-{number}");
            let (said, work) = round(&setup, &shape, &jobs, args, &name, mode).map_err(Failure::Run)?;
            let (seconds, found): (Vec<f64>, Vec<String>) =
                said.into_iter().map(|said| (said.seconds, said.digest)).unzip();
            let first = digests.get_or_insert_with(|| found.clone());
            if *first != found {
                return Err(Failure::Run(anyhow!("{mode}: other results: {found:?} and not {first:?}")));
            }
            println!(
                "round {number}, {mode}: average {:.1} s, {:.0} MB by Weir",
                mean(&seconds),
                work.megabytes
            );
            *works.entry(mode).or_default() += work;
            times.entry(mode).or_default().push(seconds);
        }
    }
    let names: Vec<String> = jobs.iter().map(|job| format!("{job}, s")).collect();
    let mut heads = vec!["mode", "average, s", "+-", "faster", "+-", "last, s"];
    heads.extend(names.iter().map(String::as_str));
    heads.extend(["MB by Weir", "slowest to first mode", "CPU, s", "busy, %"]);
    let processors = std::thread::available_parallelism()?.get() as f64;
    let mut rows = table(&heads, 1);
    let first = &times[args.mode[0].as_str()];
    for mode in &args.mode {
        let own = &times[mode.as_str()];
        let averages: Vec<f64> = own.iter().map(|round| mean(round)).collect();
        let lasts: Vec<f64> = own.iter().map(|round| round.iter().copied().fold(0.0, f64::max)).collect();
        let ratios: Vec<f64> = first.iter().zip(own).map(|(first, own)| mean(first) / mean(own)).collect();
        let of = |rounds: &[Vec<f64>], job: usize| {
            mean(&rounds.iter().map(|round| round[job]).collect::<Vec<_>>())
        };
        let slowest = (0..jobs.len()).map(|job| of(own, job) / of(first, job)).fold(0.0, f64::max);
        let mut row = vec![
            mode.clone(),
            fixed(mean(&averages), 2, ""),
            fixed(spread(&averages), 2, ""),
            fixed(mean(&ratios), 2, ""),
            fixed(spread(&ratios), 2, ""),
            fixed(mean(&lasts), 2, ""),
        ];
        row.extend((0..jobs.len()).map(|job| fixed(of(own, job), 2, "")));
        let (work, rounds) = (&works[mode.as_str()], own.len() as f64);
        row.extend([
            fixed(work.megabytes / rounds, 0, ""),
            fixed(slowest, 2, ""),
            fixed(work.busy_seconds / rounds, 1, ""),
            fixed(100.0 * work.busy_seconds / (work.seconds * processors), 0, ""),
        ]);
        rows.add_row(row);
    }
    println!("\n{}", text(&rows));
    Ok(())
}
