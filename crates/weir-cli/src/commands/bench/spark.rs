//! `weir bench spark`: shuffles of a real Spark on a test bed, by Spark alone and by Weir.

use crate::Failure;
use crate::output::{fixed, ratio, table, text};
use anyhow::{Context, anyhow};
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use weir_model::Rate;
use weir_testbed::{Bed, BedLinks, Place};
use weir_trace::synthetic::Draw;

/// Starts a standalone cluster of Spark on hosts in network namespaces, with shaped links: a worker and an agent on each, the
/// master, the coordinator and the driver on a host of their own. An application writes shuffles, reads each once, and then reads
/// all of them at the same time, round after round; what comes is compared with what was written.
///
/// vanilla: Spark's own fetch. tcp: Weir carries the bytes and schedules nothing. Others: Weir, under the policy of that name.
///
/// gathers, MB: of the agents as they are in the end; one that was started again counts from there.
///
/// average: of the times at which shuffles were read, over all rounds but the first. makespan: of the last ones; worst: the
/// longest of them.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct SparkArgs {
    /// Folder with jars/ of a Spark (`scripts/install-spark.sh` makes one)
    #[arg(long, value_name = "FOLDER")]
    spark_home: PathBuf,
    /// The plugin: weir-spark-0.1.0.jar
    #[arg(long, value_name = "JAR", default_value = "jvm/weir-spark/target/weir-spark-0.1.0.jar")]
    plugin: PathBuf,
    /// The application: weir-spark-bench-0.1.0.jar
    #[arg(
        long,
        value_name = "JAR",
        default_value = "jvm/weir-spark-bench/target/weir-spark-bench-0.1.0.jar"
    )]
    jobs: PathBuf,
    /// What moves the bytes, one after the other
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_values_t = ["vanilla", "tcp", "varys", "dclas"].map(str::to_owned))]
    mode: Vec<String>,
    /// Number of hosts, each with a worker of one executor
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(2..=32))]
    hosts: u32,
    /// Rate of each host's link, each direction, headers included
    #[arg(long, value_name = "RATE", default_value = "100mbit")]
    link_rate: Rate,
    /// Sizes of the shuffles in megabytes
    #[arg(long, value_name = "MB", value_delimiter = ',', default_values_t = [24, 48, 96, 192])]
    megabytes: Vec<u32>,
    /// Map tasks, and reducers, of each shuffle
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=2_000))]
    tasks: u32,
    /// Tasks that an executor runs at once
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    slots: u32,
    /// Rounds, the first of which warms up
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(2..=1_000))]
    rounds: u32,
    /// Every few seconds, kill the coordinator or an agent and start it again, or stop one for a while. What is read must be right all
    /// the same
    #[arg(long)]
    faults: bool,
    /// Seed of what is killed and stopped, and when
    #[arg(long, default_value_t = 1, requires = "faults")]
    seed: u64,
    /// More settings of Spark, as NAME=VALUE
    #[arg(long, value_name = "NAME=VALUE")]
    conf: Vec<String>,
    /// Keep logs and files in this folder, which must not be there yet
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
}

/// No run takes longer.
const RUN_LIMIT: Duration = Duration::from_secs(900);
/// No fault comes sooner: Spark takes some seconds to begin.
const WARM_UP: Duration = Duration::from_secs(10);
const START_LIMIT: Duration = Duration::from_secs(60);
const MASTER_PORT: u16 = 7077;
const COORDINATOR_PORT: u16 = 7070;
const METRICS_PORT: u16 = 9100;
const VANILLA: &str = "vanilla";
const TCP: &str = "tcp";

/// What Spark's launcher adds for Java 17 and later.
const OPENED: &[&str] = &[
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
];

/// What an application measured, and what of it Weir carried.
struct Measured {
    /// By round, then by shuffle, in seconds.
    rounds: BTreeMap<u32, Vec<f64>>,
    gathers: f64,
    sent_bytes: f64,
    faults: u32,
}

impl Measured {
    fn warm(&self) -> impl Iterator<Item = &Vec<f64>> {
        self.rounds.iter().filter(|&(&round, _)| round > 0).map(|(_, times)| times)
    }

    fn averages(&self) -> Vec<f64> {
        self.warm().map(|times| mean(times)).collect()
    }

    fn makespans(&self) -> Vec<f64> {
        self.warm().map(|times| times.iter().copied().fold(0.0, f64::max)).collect()
    }
}

fn mean(times: &[f64]) -> f64 {
    times.iter().sum::<f64>() / times.len().max(1) as f64
}

/// Of a mean: twice its standard error.
fn spread(times: &[f64]) -> f64 {
    let (mean, count) = (mean(times), times.len() as f64);
    let squares = times.iter().map(|time| (time - mean).powi(2)).sum::<f64>();
    2.0 * (squares / (count - 1.0).max(1.0) / count).sqrt()
}

/// A daemon that is dead or stopped.
struct Struck {
    number: usize,
    stops: bool,
    /// When it is started again, or goes on.
    heals: Instant,
}

/// A cluster of one mode. Dropping the bed kills everything in it.
struct Cluster<'a> {
    args: &'a SparkArgs,
    bed: Bed,
    dir: PathBuf,
    mode: String,
    scala: String,
    /// Weir's daemons: of the agents each, then the coordinator.
    daemons: Vec<Child>,
    others: Vec<Child>,
}

impl Cluster<'_> {
    fn scheduled(&self) -> bool {
        self.mode != VANILLA
    }

    fn log(&self, name: &str) -> anyhow::Result<Stdio> {
        let path = self.dir.join(format!("{name}.log"));
        let file = File::options().create(true).append(true).open(&path);
        Ok(file.with_context(|| format!("open {}", path.display()))?.into())
    }

    fn start(&self, place: Place, name: &str, mut command: Command) -> anyhow::Result<Child> {
        command.stdin(Stdio::null()).stdout(self.log(name)?).stderr(self.log(&format!("{name}.err"))?);
        self.bed.spawn(command).with_context(|| format!("start {name} at {place}"))
    }

    fn weir(&self, place: Place) -> anyhow::Result<Command> {
        Ok(self.bed.command(place, std::env::current_exe()?)?)
    }

    /// Java with Spark's classes.
    fn java(&self, place: Place, megabytes: u32, class: &str) -> anyhow::Result<Command> {
        let home = &self.args.spark_home;
        let mut command = self.bed.command(place, "java")?;
        command.arg(format!("-Xmx{megabytes}m"));
        command.args(OPENED.iter().map(|package| format!("--add-opens=java.base/{package}=ALL-UNNAMED")));
        let mut classes = home.join("jars/*").into_os_string();
        if place == Place::Control && self.scheduled() {
            classes.push(":");
            classes.push(&self.args.plugin);
        }
        command.arg("-cp").arg(classes).arg(class);
        command.env("SPARK_HOME", home).env("SPARK_SCALA_VERSION", &self.scala);
        command.env("SPARK_LOCAL_IP", self.address(place)).current_dir(&self.dir);
        Ok(command)
    }

    fn address(&self, place: Place) -> String {
        match place {
            Place::Host(host) => self.bed.address(host).to_string(),
            Place::Control => self.bed.control_address().to_string(),
        }
    }

    fn spool(&self, host: usize) -> PathBuf {
        self.dir.join(format!("spool-{host}"))
    }

    fn coordinator(&self) -> String {
        format!("{}:{COORDINATOR_PORT}", self.address(Place::Control))
    }

    fn start_weir(&mut self) -> anyhow::Result<()> {
        for number in 0..=self.bed.hosts() {
            let daemon = self.start_daemon(number)?;
            self.daemons.push(daemon);
        }
        self.wait_for(&self.coordinator())?;
        (0..self.bed.hosts())
            .try_for_each(|host| self.wait_for(&format!("{}:{METRICS_PORT}", self.bed.address(host))))
    }

    /// The agent of a host, or, beyond these, the coordinator.
    fn start_daemon(&self, number: usize) -> anyhow::Result<Child> {
        if number < self.bed.hosts() { self.start_agent(number) } else { self.start_coordinator() }
    }

    fn start_coordinator(&self) -> anyhow::Result<Child> {
        let mut command = self.weir(Place::Control)?;
        command.args(["coordinator", "--listen", &self.coordinator()]);
        match self.mode.as_str() {
            // Every coflow is small enough to be left alone.
            TCP => command.args(["--bypass", "3600"]),
            policy => command.args(["--policy", policy, "--bypass", "0"]),
        };
        self.start(Place::Control, "coordinator", command)
    }

    fn start_agent(&self, host: usize) -> anyhow::Result<Child> {
        let (place, address) = (Place::Host(host), self.bed.address(host));
        let mut command = self.weir(place)?;
        command.args(["agent", "--host", &format!("host-{host}"), "--listen", &format!("{address}:7071")]);
        command.args(["--coordinator", &self.coordinator(), "--interface", "none"]);
        command.args(["--link-rate", &format!("{}bit", self.args.link_rate.bits_per_sec())]);
        command.args(["--metrics", &format!("{address}:{METRICS_PORT}")]);
        command.arg("--spool").arg(self.spool(host)).arg("--allow").arg(self.local(host));
        self.start(place, &format!("agent-{host}"), command)
    }

    /// Kills a daemon, or stops it.
    fn strike(&mut self, draw: &mut Draw) -> anyhow::Result<Struck> {
        // The coordinator as often as all agents together.
        let agents = self.bed.hosts() as u64;
        let number = (draw.below(2 * agents)).min(agents) as usize;
        let (stops, pid) = (draw.below(2) == 0, Pid::from_child(&self.daemons[number]));
        kill_process(pid, if stops { Signal::STOP } else { Signal::KILL })?;
        let heals = Instant::now() + Duration::from_millis(1_000 + draw.below(7_000));
        Ok(Struck { number, stops, heals })
    }

    /// Has it go on, or starts it again.
    fn heal(&mut self, struck: &Struck) -> anyhow::Result<()> {
        if struck.stops {
            return Ok(kill_process(Pid::from_child(&self.daemons[struck.number]), Signal::CONT)?);
        }
        self.daemons[struck.number].wait()?;
        self.daemons[struck.number] = self.start_daemon(struck.number)?;
        Ok(())
    }

    fn local(&self, host: usize) -> PathBuf {
        self.dir.join(format!("local-{host}"))
    }

    fn start_spark(&mut self) -> anyhow::Result<()> {
        let control = self.address(Place::Control);
        let mut command = self.java(Place::Control, 256, "org.apache.spark.deploy.master.Master")?;
        command.args(["--host", &control, "--port", &MASTER_PORT.to_string(), "--webui-port", "8080"]);
        self.others.push(self.start(Place::Control, "master", command)?);
        for host in 0..self.bed.hosts() {
            let place = Place::Host(host);
            let mut command = self.java(place, 192, "org.apache.spark.deploy.worker.Worker")?;
            command.args(["--host", &self.address(place), "--port", "7078", "--webui-port", "8081"]);
            command.args(["--cores", &self.args.slots.to_string(), "--memory", "1g"]);
            command.arg("--work-dir").arg(self.dir.join(format!("work-{host}")));
            command.arg(format!("spark://{control}:{MASTER_PORT}"));
            command
                .env("SPARK_LOCAL_DIRS", self.local(host))
                .env("WEIR_AGENT", self.spool(host).join("agent.sock"));
            self.others.push(self.start(place, &format!("worker-{host}"), command)?);
        }
        self.wait_for(&format!("{control}:{MASTER_PORT}"))
    }

    fn wait_for(&self, address: &str) -> anyhow::Result<()> {
        let address: SocketAddr = address.parse()?;
        let end = Instant::now() + START_LIMIT;
        loop {
            let connected = self.bed.run_at(Place::Control, || TcpStream::connect(address).map(drop))?;
            match connected {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() > end => {
                    return Err(anyhow!(
                        "{address} does not come up: {error}; logs are in {}",
                        self.dir.display()
                    ));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    /// Runs the application; a line of it is a shuffle that was read.
    fn run(&mut self) -> anyhow::Result<Measured> {
        let control = self.address(Place::Control);
        let (hosts, slots) = (self.bed.hosts(), self.args.slots);
        let mut command = self.java(Place::Control, 768, "org.apache.spark.deploy.SparkSubmit")?;
        command.args(["--master", &format!("spark://{control}:{MASTER_PORT}")]);
        let mut conf = |name: &str, value: &str| {
            command.args(["--conf", &format!("{name}={value}")]);
        };
        conf("spark.driver.host", &control);
        conf("spark.local.dir", &self.dir.join("driver").display().to_string());
        conf("spark.executor.memory", "512m");
        conf("spark.executor.cores", &slots.to_string());
        conf("spark.scheduler.mode", "FAIR");
        conf("spark.scheduler.minRegisteredResourcesRatio", "1.0");
        conf("spark.scheduler.maxRegisteredResourcesWaitingTime", "60s");
        conf("spark.cores.max", &(hosts as u32 * slots).to_string());
        conf("spark.locality.wait", "0s");
        conf("spark.ui.enabled", "false");
        if self.scheduled() {
            let plugin = self.args.plugin.display().to_string();
            conf("spark.plugins", "io.weir.spark.WeirPlugin");
            conf("spark.weir.coordinator", &format!("{control}:{COORDINATOR_PORT}"));
            conf("spark.executor.extraClassPath", &plugin);
        }
        self.args.conf.iter().for_each(|setting| {
            command.args(["--conf", setting]);
        });
        command.args(["--class", "io.weir.bench.Shuffles"]).arg(&self.args.jobs);
        let numbers = [self.args.rounds, self.args.tasks, self.args.tasks];
        command.args(numbers.iter().chain(&self.args.megabytes).map(u32::to_string));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(self.log("driver.err")?);
        let mut child = self.bed.spawn(command).context("start the application")?;
        let (out, end) =
            (child.stdout.take().context("the application's output")?, Instant::now() + RUN_LIMIT);
        let lines =
            std::thread::spawn(move || BufReader::new(out).lines().map_while(Result::ok).collect::<Vec<_>>());
        let (mut draw, mut struck, mut faults) = (Draw::new(self.args.seed), None::<Struck>, 0);
        let mut next_fault = Instant::now() + WARM_UP;
        let ended = loop {
            if self.args.faults && self.scheduled() && struck.is_none() && Instant::now() > next_fault {
                struck = Some(self.strike(&mut draw)?);
                faults += 1;
            }
            if let Some(due) = struck.take_if(|struck| Instant::now() > struck.heals) {
                self.heal(&due)?;
                next_fault = Instant::now() + Duration::from_millis(draw.below(4_000));
            }
            match child.try_wait()? {
                Some(status) => break status,
                None if Instant::now() > end => {
                    child.kill()?;
                    return Err(anyhow!("the application took longer than {} s", RUN_LIMIT.as_secs()));
                }
                None => std::thread::sleep(Duration::from_millis(50)),
            }
        };
        let lines = lines.join().map_err(|_| anyhow!("the application's output could not be read"))?;
        anyhow::ensure!(
            ended.success(),
            "the application failed ({ended}); its log is {}",
            self.dir.join("driver.err.log").display()
        );
        let mut rounds: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for line in &lines {
            let words: Vec<&str> = line.split(' ').collect();
            if let ["round", round, "shuffle", _, "megabytes", _, "seconds", seconds] = words[..] {
                rounds.entry(round.parse()?).or_default().push(seconds.parse()?);
            }
        }
        let expected = self.args.megabytes.len();
        let whole =
            rounds.len() == self.args.rounds as usize && rounds.values().all(|times| times.len() == expected);
        anyhow::ensure!(
            whole,
            "the application said {} lines, and not one for each shuffle and round",
            lines.len()
        );
        if let Some(struck) = struck {
            self.heal(&struck)?;
            (0..self.bed.hosts())
                .try_for_each(|host| self.wait_for(&format!("{}:{METRICS_PORT}", self.bed.address(host))))?;
        }
        let (gathers, sent_bytes) = if self.scheduled() { self.carried()? } else { (0.0, 0.0) };
        anyhow::ensure!(
            gathers > 0.0 || !self.scheduled(),
            "Weir carried nothing; logs are in {}",
            self.dir.display()
        );
        Ok(Measured { rounds, gathers, sent_bytes, faults })
    }

    /// Gathers that agents served, and bytes.
    fn carried(&self) -> anyhow::Result<(f64, f64)> {
        let mut sums = (0.0, 0.0);
        for host in 0..self.bed.hosts() {
            let address = SocketAddr::from((self.bed.address(host), METRICS_PORT));
            let text = self.bed.run_at(Place::Control, || metrics(address))??;
            sums.0 += value(&text, "weir_agent_gathers_total{result=\"taken\"}");
            sums.1 += value(&text, "weir_agent_sent_bytes_total");
        }
        Ok(sums)
    }
}

fn metrics(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn value(text: &str, metric: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(metric));
    line.and_then(|value| value.trim().parse().ok()).unwrap_or(0.0)
}

/// The version of Scala that a Spark is built with, as its jars say.
fn scala_of(home: &Path) -> Result<String, Failure> {
    let wrong = |reason: String| Failure::Input(format!("--spark-home {}: {reason}", home.display()));
    let jars = std::fs::read_dir(home.join("jars")).map_err(|error| wrong(format!("jars/: {error}")))?;
    let names = jars.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let scala = names
        .into_iter()
        .find_map(|name| Some(name.strip_prefix("spark-core_")?.split_once('-')?.0.to_owned()));
    scala.ok_or_else(|| wrong("there is no jars/spark-core_*.jar".to_owned()))
}

fn measure(args: &SparkArgs, mode: &str, scala: &str, dir: &Path) -> anyhow::Result<Measured> {
    let dir = dir.join(mode.replace([':', '/'], "-"));
    std::fs::create_dir_all(&dir)?;
    let links = BedLinks::equal(args.hosts as usize, args.link_rate.bits_per_sec() as u64);
    let bed = Bed::create(&links)?;
    let (mode, scala) = (mode.to_owned(), scala.to_owned());
    let mut cluster = Cluster { args, bed, dir, mode, scala, daemons: Vec::new(), others: Vec::new() };
    for host in 0..cluster.bed.hosts() {
        std::fs::create_dir_all(cluster.local(host))?;
    }
    if cluster.scheduled() {
        cluster.start_weir()?;
    }
    cluster.start_spark()?;
    cluster.run()
}

pub(crate) fn spark(args: &SparkArgs) -> Result<(), Failure> {
    for (option, path) in [("--plugin", &args.plugin), ("--jobs", &args.jobs)] {
        if !path.is_file() {
            let reason = format!("{option} {}: there is no such file; `make jvm` builds it", path.display());
            return Err(Failure::Input(reason));
        }
    }
    let absolute = |path: &Path| {
        path.canonicalize().map_err(|error| Failure::Input(format!("{}: {error}", path.display())))
    };
    let scala = scala_of(&args.spark_home)?;
    let args = &SparkArgs {
        spark_home: absolute(&args.spark_home)?,
        plugin: absolute(&args.plugin)?,
        jobs: absolute(&args.jobs)?,
        mode: args.mode.clone(),
        megabytes: args.megabytes.clone(),
        conf: args.conf.clone(),
        keep: args.keep.clone(),
        ..*args
    };
    let kept;
    let dir = match &args.keep {
        Some(path) => {
            std::fs::create_dir(path)
                .map_err(|error| Failure::Input(format!("--keep {}: {error}", path.display())))?;
            absolute(path)?
        }
        None => {
            kept = tempfile::tempdir()?;
            kept.path().canonicalize()?
        }
    };
    println!(
        "{} hosts at {}, shuffles of {:?} MB, {} map tasks and reducers each, read {} times at once after a warm-up",
        args.hosts,
        args.link_rate,
        args.megabytes,
        args.tasks,
        args.rounds - 1
    );
    let heads =
        ["mode", "average s", "+-", "faster", "makespan s", "worst", "gathers", "MB by Weir", "faults"];
    let mut rows = table(&heads, 1);
    let mut first: Option<f64> = None;
    for mode in &args.mode {
        let measured = measure(args, mode, &scala, &dir).map_err(Failure::Run)?;
        let (averages, makespans) = (measured.averages(), measured.makespans());
        let average = mean(&averages);
        let base = *first.get_or_insert(average);
        rows.add_row(vec![
            mode.clone(),
            fixed(average, 2, ""),
            fixed(spread(&averages), 2, ""),
            ratio(base, average),
            fixed(mean(&makespans), 2, ""),
            fixed(makespans.iter().copied().fold(0.0, f64::max), 2, ""),
            format!("{:.0}", measured.gathers),
            fixed(measured.sent_bytes / 1e6, 0, ""),
            measured.faults.to_string(),
        ]);
        println!("{mode}: average {average:.2} s");
    }
    println!("\n{}", text(&rows));
    Ok(())
}
