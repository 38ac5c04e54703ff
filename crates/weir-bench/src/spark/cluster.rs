//! A standalone cluster of Spark on hosts in network namespaces, with Weir's daemons beside it.

use super::application::{Application, Running};
use super::http::{http_get, value};
use super::processor::{Processor, executors_of};
use anyhow::{Context, anyhow};
use clap::Args;
use rustix::process::Pid;
use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use weir_console::Failure;
use weir_model::Rate;
use weir_testbed::live::{Network, RelaySetup, RunFolder, relay_address};
use weir_testbed::{Bed, BedLinks, Place, SiteBed, SiteBedConfig};

/// Where Spark is, and what its cluster is like.
#[derive(Args)]
pub(super) struct ClusterArgs {
    /// Folder with jars/ of a Spark (`scripts/install-spark.sh` makes one)
    #[arg(long, value_name = "FOLDER")]
    spark_home: PathBuf,
    /// The plugin: weir-spark-0.1.0.jar
    #[arg(long, value_name = "JAR", default_value = "jvm/weir-spark/target/weir-spark-0.1.0.jar")]
    plugin: PathBuf,
    /// The applications: weir-spark-bench-0.1.0.jar
    #[arg(
        long,
        value_name = "JAR",
        default_value = "jvm/weir-spark-bench/target/weir-spark-bench-0.1.0.jar"
    )]
    jobs: PathBuf,
    /// More settings of Spark, as NAME=VALUE
    #[arg(long, value_name = "NAME=VALUE")]
    conf: Vec<String>,
    /// Keep logs and files in this folder, which must not be there yet
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
}

/// What the clusters of one measurement have in common.
pub(super) struct Setup {
    home: PathBuf,
    scala: String,
    plugin: PathBuf,
    jobs: PathBuf,
    conf: Vec<String>,
    dir: PathBuf,
    /// Removes the folder in the end, unless it is kept.
    _removed: Option<RunFolder>,
}

const START_LIMIT: Duration = Duration::from_secs(60);
const MASTER_PORT: u16 = 7077;
const MASTER_UI_PORT: u16 = 8080;
const COORDINATOR_PORT: u16 = 7070;
const METRICS_PORT: u16 = 9100;
/// Spark fetches by itself, without Weir.
pub(super) const VANILLA: &str = "vanilla";
/// Weir carries the bytes and schedules nothing.
pub(super) const TCP: &str = "tcp";

/// Many JVMs share few processors here: threads of collectors and the better compiler would take most of these.
const SPARING: &[&str] = &["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:CICompilerCount=1"];

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

impl Setup {
    pub(super) fn new(args: &ClusterArgs) -> Result<Setup, Failure> {
        for (option, path) in [("--plugin", &args.plugin), ("--jobs", &args.jobs)] {
            if !path.is_file() {
                let reason =
                    format!("{option} {}: there is no such file; `make jvm` builds it", path.display());
                return Err(Failure::Input(reason));
            }
        }
        let absolute = |path: &Path| {
            path.canonicalize().map_err(|error| Failure::Input(format!("{}: {error}", path.display())))
        };
        let scala = scala_of(&args.spark_home)?;
        let (dir, removed) = match &args.keep {
            Some(path) => {
                std::fs::create_dir(path)
                    .map_err(|error| Failure::Input(format!("--keep {}: {error}", path.display())))?;
                (absolute(path)?, None)
            }
            None => {
                let removed = RunFolder::create()?;
                (removed.path().canonicalize()?, Some(removed))
            }
        };
        // Copies: a build that goes on beside a run makes the jars anew.
        let copied = |jar: &Path, name: &str| {
            let copy = dir.join(name);
            std::fs::copy(jar, &copy).map(|_| copy)
        };
        Ok(Setup {
            home: absolute(&args.spark_home)?,
            scala,
            plugin: copied(&args.plugin, "plugin.jar")?,
            jobs: copied(&args.jobs, "jobs.jar")?,
            conf: args.conf.clone(),
            dir,
            _removed: removed,
        })
    }

    /// A folder of all clusters, which all hosts share.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// What an application says that needs no cluster, line by line.
    pub(super) fn ask(&self, class: &str, question: &str) -> anyhow::Result<Vec<String>> {
        let mut classes = self.home.join("jars/*").into_os_string();
        classes.push(":");
        classes.push(&self.jobs);
        let output = Command::new("java").arg("-cp").arg(classes).args([class, question]).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "java {class} {question}: {}: {said}", output.status);
        Ok(String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect())
    }
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

/// What one cluster is like.
pub(super) struct Shape {
    /// Each with a worker.
    pub(super) hosts: u32,
    /// Of each host's link, each direction, headers included.
    pub(super) link_rate: Rate,
    /// Where hosts are at several sites; their own links are not shaped then.
    pub(super) sites: Option<Sites>,
    /// Tasks that an executor runs at once.
    pub(super) slots: u32,
    /// Applications that may run at once, with an executor at each host.
    pub(super) applications: u32,
    /// Settings of the workers, as NAME=VALUE.
    pub(super) worker_conf: Vec<String>,
}

/// Sites with as many hosts each.
#[derive(Clone)]
pub(super) struct Sites {
    /// From each site to each other, in bits per second, headers included.
    pub(super) rates_bps: Vec<Vec<u64>>,
    /// Relays, in modes that have them.
    pub(super) relays: Option<RelaySetup>,
}

/// What agents served, as they are now: one that was started again counts from there.
#[derive(Clone, Copy, Default)]
pub(super) struct Carried {
    pub(super) gathers: f64,
    pub(super) bytes: f64,
}

/// What runs in a cluster and may fail.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Executor,
    Coordinator,
    Agent,
    /// A relay, or the relays' controller.
    Relay,
}

/// One of a kind; of executors, by the host, as it is now.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) kind: Kind,
    number: usize,
}

/// A cluster of one mode. Dropping the bed kills everything in it.
pub(super) struct Cluster<'a> {
    setup: &'a Setup,
    shape: &'a Shape,
    network: Network,
    dir: PathBuf,
    mode: String,
    /// Weir's agents, in the order of hosts.
    agents: Vec<Child>,
    coordinator: Option<Child>,
    /// Their controller first, where there is one.
    relays: Vec<Child>,
    workers: Vec<Child>,
    master: Option<Child>,
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        let weir = self.agents.drain(..).chain(self.coordinator.take()).chain(self.relays.drain(..));
        for mut child in weir.chain(self.workers.drain(..)).chain(self.master.take()) {
            // What a worker started ends with the network; a process that is not waited for stays listed by the kernel.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl<'a> Cluster<'a> {
    /// Starts all of it.
    ///
    /// `name` is that of its folder; the mode is [`VANILLA`], [`TCP`], or a policy.
    pub(super) fn start(
        setup: &'a Setup,
        shape: &'a Shape,
        name: &str,
        mode: &str,
    ) -> anyhow::Result<Cluster<'a>> {
        let dir = setup.dir.join(name.replace([':', '/'], "-"));
        std::fs::create_dir_all(&dir)?;
        let network = network(shape)?;
        let mut cluster = Cluster {
            setup,
            shape,
            network,
            dir,
            mode: mode.to_owned(),
            agents: Vec::new(),
            coordinator: None,
            relays: Vec::new(),
            workers: Vec::new(),
            master: None,
        };
        for host in 0..cluster.hosts() {
            std::fs::create_dir_all(cluster.local(host))?;
        }
        if cluster.is_weir() {
            cluster.start_weir()?;
        }
        cluster.start_spark()?;
        Ok(cluster)
    }

    /// Has another mode move the bytes of what is submitted from now on. The shape may differ in its relays alone.
    pub(super) fn change(&mut self, shape: &'a Shape, mode: &str) -> anyhow::Result<()> {
        let daemons = self.agents.drain(..).chain(self.coordinator.take()).chain(self.relays.drain(..));
        for mut daemon in daemons {
            daemon.kill()?;
            daemon.wait()?;
        }
        for host in 0..self.hosts() {
            match std::fs::remove_dir_all(self.spool(host)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
        (self.shape, self.mode) = (shape, mode.to_owned());
        if self.is_weir() { self.start_weir() } else { Ok(()) }
    }

    pub(super) fn is_weir(&self) -> bool {
        self.mode != VANILLA
    }

    fn hosts(&self) -> usize {
        self.shape.hosts as usize
    }

    pub(super) fn setup(&self) -> &'a Setup {
        self.setup
    }

    /// A folder of the cluster, which all hosts share.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Those that run, and their processes.
    pub(super) fn members(&self, kind: Kind) -> Vec<(Member, Pid)> {
        let of_daemons = |daemons: &[Child]| -> Vec<(usize, Pid)> {
            daemons.iter().map(Pid::from_child).enumerate().collect()
        };
        let running = match kind {
            Kind::Agent => of_daemons(&self.agents),
            Kind::Coordinator => of_daemons(self.coordinator.as_slice()),
            Kind::Relay => of_daemons(&self.relays),
            Kind::Executor => {
                let of_host = |(host, worker): (usize, &Child)| -> Vec<(usize, Pid)> {
                    executors_of(worker)
                        .iter()
                        .filter_map(|process| Some((host, Pid::from_raw(process.parse().ok()?)?)))
                        .collect()
                };
                self.workers.iter().enumerate().flat_map(of_host).collect()
            }
        };
        running.into_iter().map(|(number, pid)| (Member { kind, number }, pid)).collect()
    }

    /// Starts what was killed; executors are Spark's to start.
    pub(super) fn restart(&mut self, Member { kind, number }: Member) -> anyhow::Result<()> {
        let place = match kind {
            Kind::Executor => return Ok(()),
            Kind::Agent => &mut self.agents[number],
            Kind::Relay => &mut self.relays[number],
            Kind::Coordinator => self.coordinator.as_mut().context("no coordinator")?,
        };
        place.wait()?;
        let started = match kind {
            Kind::Agent => self.start_agent(number)?,
            Kind::Relay => self.start_relay(number)?.0,
            Kind::Coordinator | Kind::Executor => self.start_coordinator()?,
        };
        match kind {
            Kind::Agent => self.agents[number] = started,
            Kind::Relay => self.relays[number] = started,
            Kind::Coordinator | Kind::Executor => self.coordinator = Some(started),
        }
        Ok(())
    }

    fn log(&self, name: &str) -> anyhow::Result<Stdio> {
        let path = self.dir.join(format!("{name}.log"));
        let file = File::options().create(true).append(true).open(&path);
        Ok(file.with_context(|| format!("open {}", path.display()))?.into())
    }

    fn spawn(&self, place: Place, name: &str, mut command: Command) -> anyhow::Result<Child> {
        command.stdin(Stdio::null()).stdout(self.log(name)?).stderr(self.log(&format!("{name}.err"))?);
        self.network.spawn(command).with_context(|| format!("start {name} at {place}"))
    }

    fn weir(&self, place: Place) -> anyhow::Result<Command> {
        Ok(self.network.command(place, &std::env::current_exe()?)?)
    }

    /// Java with Spark's classes.
    fn java(&self, place: Place, megabytes: u32, conf: &[String], class: &str) -> anyhow::Result<Command> {
        let home = &self.setup.home;
        let mut command = self.network.command(place, Path::new("java"))?;
        command.arg(format!("-Xmx{megabytes}m")).args(SPARING);
        command.args(OPENED.iter().map(|package| format!("--add-opens=java.base/{package}=ALL-UNNAMED")));
        command.args(conf.iter().map(|setting| format!("-D{setting}")));
        let mut classes = home.join("jars/*").into_os_string();
        if place == Place::Control && self.is_weir() {
            classes.push(":");
            classes.push(&self.setup.plugin);
        }
        command.arg("-cp").arg(classes).arg(class);
        command.env("SPARK_HOME", home).env("SPARK_SCALA_VERSION", &self.setup.scala);
        command.env("SPARK_LOCAL_IP", self.address(place)).current_dir(&self.dir);
        Ok(command)
    }

    fn address(&self, place: Place) -> String {
        match place {
            Place::Host(host) => self.network.address(host).to_string(),
            Place::Control => self.network.control_address().to_string(),
        }
    }

    fn spool(&self, host: usize) -> PathBuf {
        self.dir.join(format!("spool-{host}"))
    }

    fn local(&self, host: usize) -> PathBuf {
        self.dir.join(format!("local-{host}"))
    }

    fn coordinator_address(&self) -> String {
        format!("{}:{COORDINATOR_PORT}", self.address(Place::Control))
    }

    fn setup_of_relays(&self) -> Option<&RelaySetup> {
        self.shape.sites.as_ref()?.relays.as_ref()
    }

    /// The controller's, where there is one, then the relays', and where they listen.
    fn relay_commands(&self) -> anyhow::Result<Vec<(Command, SocketAddr)>> {
        let Some(setup) = self.setup_of_relays() else { return Ok(Vec::new()) };
        let commands = setup.commands(&self.network, &std::env::current_exe()?)?;
        Ok(commands.controller.into_iter().chain(commands.relays).collect())
    }

    fn start_relay(&self, number: usize) -> anyhow::Result<(Child, SocketAddr)> {
        let (mut command, address) = self.relay_commands()?.swap_remove(number);
        let name = format!("relays-{number}");
        command.stdout(self.log(&name)?).stderr(self.log(&format!("{name}.err"))?);
        Ok((self.network.spawn(command).with_context(|| format!("start {name}"))?, address))
    }

    fn start_weir(&mut self) -> anyhow::Result<()> {
        for number in 0..self.relay_commands()?.len() {
            let (started, address) = self.start_relay(number)?;
            self.relays.push(started);
            self.wait_for(&address.to_string())?;
        }
        for host in 0..self.hosts() {
            let agent = self.start_agent(host)?;
            self.agents.push(agent);
        }
        self.coordinator = Some(self.start_coordinator()?);
        self.wait_for(&self.coordinator_address())?;
        self.wait_for_agents()
    }

    pub(super) fn wait_for_agents(&self) -> anyhow::Result<()> {
        (0..self.agents.len())
            .try_for_each(|host| self.wait_for(&format!("{}:{METRICS_PORT}", self.network.address(host))))
    }

    fn start_coordinator(&self) -> anyhow::Result<Child> {
        let mut command = self.weir(Place::Control)?;
        command.args(["coordinator", "--listen", &self.coordinator_address()]);
        match self.mode.as_str() {
            // With this bypass every coflow counts as small and is left to TCP; where there are relays, these have their own order.
            TCP => command.args(["--bypass", "3600"]),
            _ if self.setup_of_relays().is_some() => command.args(["--bypass", "3600"]),
            policy => command.args(["--policy", policy, "--bypass", "0"]),
        };
        self.spawn(Place::Control, "coordinator", command)
    }

    fn start_agent(&self, host: usize) -> anyhow::Result<Child> {
        let (place, address) = (Place::Host(host), self.network.address(host));
        let mut command = self.weir(place)?;
        command.args(["agent", "--host", &format!("host-{host}"), "--listen", &format!("{address}:7071")]);
        command.args(["--coordinator", &self.coordinator_address(), "--interface", "none"]);
        command.args(["--link-rate", &format!("{}bit", self.shape.link_rate.bits_per_sec())]);
        command.args(["--metrics", &format!("{address}:{METRICS_PORT}")]);
        command.arg("--spool").arg(self.spool(host)).arg("--allow").arg(self.local(host));
        if let (Network::Sites(bed), Some(_)) = (&self.network, self.setup_of_relays()) {
            let site = bed.site_of(host);
            command.args(["--site", &site.to_string(), "--relay", &relay_address(bed, site).to_string()]);
        }
        self.spawn(place, &format!("agent-{host}"), command)
    }

    fn start_spark(&mut self) -> anyhow::Result<()> {
        let control = self.address(Place::Control);
        let mut command = self.java(Place::Control, 256, &[], "org.apache.spark.deploy.master.Master")?;
        command.args([
            "--host",
            &control,
            "--port",
            &MASTER_PORT.to_string(),
            "--webui-port",
            &MASTER_UI_PORT.to_string(),
        ]);
        self.master = Some(self.spawn(Place::Control, "master", command)?);
        // A worker that a master does not take yet asks again after some seconds, and those of an application that comes
        // meanwhile have several executors each.
        self.wait_for_workers(0)?;
        for host in 0..self.hosts() {
            let place = Place::Host(host);
            let conf = &self.shape.worker_conf;
            let mut command = self.java(place, 192, conf, "org.apache.spark.deploy.worker.Worker")?;
            command.args(["--host", &self.address(place), "--port", "7078", "--webui-port", "8081"]);
            // Cores are slots that the master counts; the machine has fewer processors.
            let cores = self.shape.slots * self.shape.applications;
            command.args(["--cores", &cores.to_string()]);
            command.args(["--memory", &format!("{}g", self.shape.applications)]);
            command.arg("--work-dir").arg(self.dir.join(format!("work-{host}")));
            command.arg(format!("spark://{control}:{MASTER_PORT}"));
            command
                .env("SPARK_LOCAL_DIRS", self.local(host))
                .env("WEIR_AGENT", self.spool(host).join("agent.sock"));
            self.workers.push(self.spawn(place, &format!("worker-{host}"), command)?);
        }
        self.wait_for_workers(self.hosts())
    }

    /// Waits until the master gives out work, and has so many workers for it.
    fn wait_for_workers(&self, count: usize) -> anyhow::Result<()> {
        let address: SocketAddr = format!("{}:{MASTER_UI_PORT}", self.address(Place::Control)).parse()?;
        self.wait_until(address, || {
            let state: serde_json::Value = serde_json::from_str(&http_get(address, "/json/")?)?;
            if state["status"] == "ALIVE" && state["aliveworkers"] == count {
                return Ok(());
            }
            let reason = format!("status {}, workers {}", state["status"], state["aliveworkers"]);
            Err(std::io::Error::other(reason))
        })
    }

    pub(super) fn wait_for(&self, address: &str) -> anyhow::Result<()> {
        let address: SocketAddr = address.parse()?;
        self.wait_until(address, || TcpStream::connect(address).map(drop))
    }

    /// Waits until what listens at an address is as it should be.
    fn wait_until(
        &self,
        address: SocketAddr,
        is_so: impl Fn() -> std::io::Result<()> + Sync,
    ) -> anyhow::Result<()> {
        let end = Instant::now() + START_LIMIT;
        loop {
            match self.network.run_at_control(&is_so)? {
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

    /// Has an application begin, whose driver is beside the master.
    pub(super) fn submit(&self, application: &Application) -> anyhow::Result<Running> {
        let control = self.address(Place::Control);
        let (hosts, slots) = (self.shape.hosts, self.shape.slots);
        let mut command = self.java(Place::Control, 768, &[], "org.apache.spark.deploy.SparkSubmit")?;
        command.args(["--master", &format!("spark://{control}:{MASTER_PORT}")]);
        let mut conf = vec![
            format!("spark.driver.host={control}"),
            format!("spark.local.dir={}", self.dir.join("driver").display()),
            "spark.executor.memory=512m".to_owned(),
            format!("spark.executor.cores={slots}"),
            format!("spark.executor.extraJavaOptions={}", SPARING.join(" ")),
            "spark.scheduler.mode=FAIR".to_owned(),
            "spark.scheduler.minRegisteredResourcesRatio=1.0".to_owned(),
            "spark.scheduler.maxRegisteredResourcesWaitingTime=60s".to_owned(),
            format!("spark.cores.max={}", hosts * slots),
            "spark.locality.wait=0s".to_owned(),
            "spark.ui.enabled=false".to_owned(),
        ];
        if self.is_weir() {
            conf.push("spark.plugins=io.weir.spark.WeirPlugin".to_owned());
            conf.push(format!("spark.weir.coordinator={control}:{COORDINATOR_PORT}"));
            conf.push(format!("spark.executor.extraClassPath={}", self.setup.plugin.display()));
        }
        for setting in conf.iter().chain(&application.conf).chain(&self.setup.conf) {
            command.args(["--conf", setting]);
        }
        // A file that every host has: nothing of it goes over the links.
        let jobs = format!("local:{}", self.setup.jobs.display());
        command.args(["--class", application.class, &jobs]).args(&application.args);
        let log = format!("{}.err", application.name);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(self.log(&log)?);
        let child = self.network.spawn(command).context("start the application")?;
        let log = self.dir.join(format!("{log}.log"));
        Running::of(child, log)
    }

    /// Processor time so far; none where not every worker has one executor.
    pub(super) fn processor(&self) -> Option<Processor> {
        Processor::of(&self.workers, &self.agents)
    }

    /// What agents served so far.
    pub(super) fn carried(&self) -> anyhow::Result<Carried> {
        let mut sum = Carried::default();
        if !self.is_weir() {
            return Ok(sum);
        }
        for host in 0..self.hosts() {
            let address = SocketAddr::new(self.network.address(host), METRICS_PORT);
            let text = self.network.run_at_control(|| http_get(address, "/metrics"))??;
            sum.gathers += value(&text, "weir_agent_gathers_total{result=\"taken\"}");
            sum.bytes += value(&text, "weir_agent_sent_bytes_total");
        }
        Ok(sum)
    }
}

/// The hosts of a cluster.
fn network(shape: &Shape) -> anyhow::Result<Network> {
    let Some(sites) = &shape.sites else {
        let links = BedLinks::equal(shape.hosts as usize, shape.link_rate.bits_per_sec() as u64);
        return Ok(Network::Bed(Box::new(Bed::create(&links)?)));
    };
    let count = sites.rates_bps.len();
    let hosts_per_site = vec![shape.hosts as usize / count; count];
    let bed = SiteBed::create(&SiteBedConfig { hosts_per_site, rates_bps: sites.rates_bps.clone() })?;
    Ok(Network::Sites(Box::new(bed)))
}
