//! `weir bench spark shuffles`: prepared shuffles, read at the same time.

use super::application::Application;
use super::cluster::{Carried, Cluster, ClusterArgs, Setup, Shape, TCP, VANILLA};
use super::faults::{Faults, Victims};
use super::processor::Processor;
use super::sites::{self, MULTI_PATH, NAIVE};
use super::{check_modes, mean, spread};
use clap::Args;
use std::collections::BTreeMap;
use std::time::Duration;
use weir_console::Failure;
use weir_console::{find_between_sites, find_for_hosts};
use weir_model::Rate;
use weir_results::{fixed, ratio, table, text};

/// Starts a standalone cluster of Spark on hosts in network namespaces, with shaped links: a worker and an agent on each, the
/// master, the coordinator and the driver on a host of their own. An application writes shuffles, reads each once, and then reads
/// all of them at the same time, round after round; what comes is compared with what was written.
///
/// vanilla: Spark's own fetch. tcp: Weir carries the bytes and schedules nothing. Others: Weir, under the policy of that name.
///
/// gathers, MB: of the agents as they are in the end; one that was started again counts from there.
///
/// average: of the times at which shuffles were read, over all rounds but the first. makespan: of the last ones; worst: the
/// longest of them. N MB: of each shuffle. late: rounds whose makespan is more than 5 s above that of the first mode.
///
/// CPU: processor seconds for each GB that was read from other hosts after the warm-up: of executors, of agents, and of the whole
/// machine, with what else runs on it and what its kernel does for no process.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct ShufflesArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// What moves the bytes, one after the other
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_values_t = ["vanilla", "tcp", "varys", "dclas"].map(str::to_owned))]
    mode: Vec<String>,
    /// Number of hosts, each with a worker of one executor
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(2..=32))]
    hosts: u32,
    /// Rate of each host's link, each direction, headers included
    #[arg(long, value_name = "RATE", default_value = "100mbit")]
    link_rate: Rate,
    /// Tasks that an executor runs at once
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    slots: u32,
    /// Sizes of the shuffles in megabytes
    #[arg(long, value_name = "MB", value_delimiter = ',', default_values_t = [24, 48, 96, 192])]
    megabytes: Vec<u32>,
    /// Map tasks, and reducers, of each shuffle
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=2_000))]
    tasks: u32,
    /// Rounds, the first of which warms up
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(2..=1_000))]
    rounds: u32,
    /// From the warm-up on, every few seconds kill one of these and start it again, or stop it for a while. What is read must be
    /// right all the same
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    faults: Vec<Victims>,
    /// Seed of what is killed and stopped, and when
    #[arg(long, default_value_t = 1, requires = "faults")]
    seed: u64,
    /// Have the hosts at the sites of `weir bench spark sites`, as many at each: the rate of the fastest link between them, headers
    /// included. Modes are those of that command, and tcp is not one of them
    #[arg(long, value_name = "RATE", conflicts_with = "link_rate")]
    fastest: Option<Rate>,
}

/// Of a round, beyond the first mode's.
const LATE_SECONDS: f64 = 5.0;

/// What an application measured, and what of it Weir carried.
struct Measured {
    /// By round, then by shuffle, in seconds.
    rounds: BTreeMap<u32, Vec<f64>>,
    carried: Carried,
    /// What processes used after the warm-up.
    processor: Option<Processor>,
    faults: u32,
}

impl Measured {
    fn warm(&self) -> impl Iterator<Item = &Vec<f64>> {
        self.rounds.iter().filter(|&(&round, _)| round > 0).map(|(_, times)| times)
    }

    fn averages(&self) -> Vec<f64> {
        self.warm().map(|times| mean(times)).collect()
    }

    /// Of one shuffle, in the order in which they were said.
    fn mean_of(&self, shuffle: usize) -> f64 {
        mean(&self.warm().map(|times| times[shuffle]).collect::<Vec<_>>())
    }

    fn makespans(&self) -> Vec<f64> {
        self.warm().map(|times| times.iter().copied().fold(0.0, f64::max)).collect()
    }
}

/// Runs the application; a line of it is a shuffle that was read.
fn measure(args: &ShufflesArgs, setup: &Setup, shape: &Shape, mode: &str) -> anyhow::Result<Measured> {
    let mut cluster = Cluster::start(setup, shape, mode, mode)?;
    let numbers = [args.rounds, args.tasks, args.tasks];
    let mut running = cluster.submit(&Application {
        name: "driver",
        class: "io.weir.bench.Shuffles",
        args: numbers.iter().chain(&args.megabytes).map(u32::to_string).collect(),
        conf: Vec::new(),
    })?;
    let mut faults = Faults::new(&args.faults, args.seed);
    // After the warm-up, and after all: executors are there for a moment longer.
    let marks = [args.megabytes.len(), args.megabytes.len() * args.rounds as usize];
    let mut at_marks = Vec::new();
    while !running.is_over()? {
        if running.heard() > 0 {
            faults.go_on(&mut cluster)?;
        }
        if marks.get(at_marks.len()).is_some_and(|&mark| running.heard() >= mark) {
            at_marks.extend(cluster.processor());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let lines = running.said()?;
    let mut rounds: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for line in &lines {
        let words: Vec<&str> = line.split(' ').collect();
        if let ["round", round, "shuffle", _, "megabytes", _, "seconds", seconds] = words[..] {
            rounds.entry(round.parse()?).or_default().push(seconds.parse()?);
        }
    }
    let expected = args.megabytes.len();
    let whole = rounds.len() == args.rounds as usize && rounds.values().all(|times| times.len() == expected);
    anyhow::ensure!(
        whole,
        "the application said {} lines, and not one for each shuffle and round",
        lines.len()
    );
    faults.end(&mut cluster)?;
    let carried = cluster.carried()?;
    anyhow::ensure!(
        carried.gathers > 0.0 || !cluster.is_weir(),
        "Weir carried nothing; logs are in {}",
        cluster.dir().display()
    );
    let processor = match at_marks[..] {
        [warm, over] => Some(over - warm),
        _ => None,
    };
    Ok(Measured { rounds, carried, processor, faults: faults.count })
}

/// What the cluster of each mode is like.
fn shapes(args: &ShufflesArgs) -> Result<Vec<Shape>, Failure> {
    let Some(fastest) = args.fastest else {
        check_modes(&args.mode, &[VANILLA, TCP], find_for_hosts)?;
        let shape = |_: &String| Shape {
            hosts: args.hosts,
            link_rate: args.link_rate,
            slots: args.slots,
            applications: 1,
            worker_conf: Vec::new(),
            sites: None,
        };
        return Ok(args.mode.iter().map(shape).collect());
    };
    check_modes(&args.mode, &[VANILLA, NAIVE, MULTI_PATH], find_between_sites)?;
    let rates_bps = sites::rates(fastest).map_err(Failure::Run)?;
    let count = rates_bps.len() as u32;
    if !args.hosts.is_multiple_of(count) {
        let reason = format!("--hosts {}: with --fastest, say a multiple of {count}, the sites", args.hosts);
        return Err(Failure::Input(reason));
    }
    args.mode.iter().map(|mode| sites::shape(rates_bps.clone(), mode, args.hosts, args.slots)).collect()
}

pub(super) fn shuffles(args: &ShufflesArgs) -> Result<(), Failure> {
    let shapes = shapes(args)?;
    let setup = Setup::new(&args.cluster)?;
    let at = args.fastest.map_or_else(
        || format!("at {}", args.link_rate),
        |fastest| format!("at sites, the fastest link {fastest}"),
    );
    println!(
        "{} hosts {at}, shuffles of {:?} MB, {} map tasks and reducers each, read {} times at once after a warm-up",
        args.hosts,
        args.megabytes,
        args.tasks,
        args.rounds - 1
    );
    let sizes: Vec<String> = args.megabytes.iter().map(|megabytes| format!("{megabytes} MB, s")).collect();
    let mut heads = vec!["mode", "average s", "+-", "faster"];
    heads.extend(sizes.iter().map(String::as_str));
    heads.extend([
        "makespan s",
        "worst",
        "late",
        "CPU s/GB",
        "agents'",
        "machine's",
        "gathers",
        "MB by Weir",
        "faults",
    ]);
    let megabytes = args.megabytes.iter().sum::<u32>() * (args.rounds - 1);
    let remote = f64::from(megabytes) / 1e3 * f64::from(args.hosts - 1) / f64::from(args.hosts);
    let mut rows = table(&heads, 1);
    let mut first: Option<(f64, f64)> = None;
    for (mode, shape) in args.mode.iter().zip(&shapes) {
        let measured = measure(args, &setup, shape, mode).map_err(Failure::Run)?;
        let (averages, makespans) = (measured.averages(), measured.makespans());
        let average = mean(&averages);
        let (base, makespan) = *first.get_or_insert((average, mean(&makespans)));
        let late = makespans.iter().filter(|&&own| own > makespan + LATE_SECONDS).count();
        let of_processor = |value: fn(Processor) -> f64| match measured.processor {
            // An agent that was started again counts from 0, so that with faults there is no such number.
            Some(processor) if args.faults.is_empty() => fixed(value(processor) / remote, 2, ""),
            _ => String::new(),
        };
        let mut row =
            vec![mode.clone(), fixed(average, 2, ""), fixed(spread(&averages), 2, ""), ratio(base, average)];
        row.extend((0..sizes.len()).map(|shuffle| fixed(measured.mean_of(shuffle), 2, "")));
        row.extend([
            fixed(mean(&makespans), 2, ""),
            fixed(makespans.iter().copied().fold(0.0, f64::max), 2, ""),
            late.to_string(),
            of_processor(|processor| processor.executors),
            of_processor(|processor| processor.agents),
            of_processor(|processor| processor.machine),
            format!("{:.0}", measured.carried.gathers),
            fixed(measured.carried.bytes / 1e6, 0, ""),
            measured.faults.to_string(),
        ]);
        rows.add_row(row);
        println!("{mode}: average {average:.2} s");
    }
    println!("\n{}", text(&rows));
    Ok(())
}
