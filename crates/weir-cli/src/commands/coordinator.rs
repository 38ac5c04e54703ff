//! `weir coordinator`: what it is set to, at its start and while it runs.

use super::process::{READ_LIMIT, begins, ends, listening, run, stop_signal};
use super::values::{millis, minute_of_millis, plan_share, seconds, sync_millis};
use crate::{Cli, Command, Failure};
use clap::{Args, CommandFactory, Parser};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Semaphore, mpsc, oneshot};
use weir_console::find_for_hosts;
use weir_daemon::coordinator::{
    Change, ChangeCall, Control, CoordinatorOptions, DeadlineMargin, Joining, KnownHost, KnownRack, Tuning,
    Wire,
};
use weir_model::{Fabric, Rate, Span};
use weir_proto::limits::{MAX_COFLOW_LEASE_MS, MIN_COFLOW_LEASE_MS};
use weir_proto::v1;
use weir_settings::logging::{LogArgs, PROCESS};
use weir_settings::{Again, Changed, Running, arguments, logging};
use weir_trace::{Rack, Topology, TopologyHost};

#[derive(Args, Clone)]
pub(crate) struct CoordinatorArgs {
    /// File of settings (TOML): what its section [coordinator] says holds where the command line and the environment say nothing
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address to serve on
    #[arg(long, value_name = "IP:PORT", default_value = "0.0.0.0:7070")]
    listen: SocketAddr,
    /// Only so many hosts, 1 to 100000, whose agents are numbered from 0. Without it hosts join as their agents come, 10000
    /// at most
    #[arg(long, value_name = "N", requires = "link_rate", value_parser = clap::value_parser!(u32).range(1..=MAX_HOSTS))]
    hosts: Option<u32>,
    /// Rate of each host's link, each direction, headers included; without --hosts, of hosts whose agents do not say it
    #[arg(long, value_name = "RATE")]
    link_rate: Option<Rate>,
    /// File of hosts, their links, racks and sites (docs/hosts.md)
    #[arg(long, value_name = "FILE", conflicts_with = "hosts")]
    topology: Option<PathBuf>,
    /// Let hosts of --topology join, and no others
    #[arg(long, requires = "topology")]
    known_hosts_only: bool,
    /// Share of the links' payload rate to plan with; the rest absorbs acknowledgements and jitter
    #[arg(long, value_name = "SHARE", default_value = "0.985", value_parser = plan_share)]
    plan_share: f64,
    /// Policy (see `weir policies`). Policies that know the setting delta, as varys, share for 200 ms in every 2.2 s
    /// unless it is set, so that no coflow starves; `varys:delta=0` is the bare order
    #[arg(long, value_name = "NAME", default_value = "varys", value_parser = policy_name)]
    policy: String,
    /// Take the policy as it is named, without a guard against starvation, as its simulation does (used by `weir live`)
    #[arg(long, hide = true)]
    bare_policy: bool,
    /// How long agents keep to a plan without hearing more; 50 to 60000
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(50..=60_000))]
    lease_ms: u64,
    /// How long a coflow is kept without a sign of life (a renewal by its driver, a put, a get, a flow that moves)
    /// before it ends as if it had been unregistered, unless its driver asked for more or less; 3 to 604800, 0: for ever
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = coflow_lease)]
    coflow_lease: u64,
    #[command(flatten)]
    control: ControlArgs,
    #[command(flatten)]
    margin: MarginArgs,
    /// Coflows whose bottleneck on the empty network takes less than this are left to TCP; 0: none is
    #[arg(long, value_name = "SECONDS", default_value = "0.25", value_parser = seconds)]
    bypass: Span,
    /// Address to serve metrics on over HTTP: /metrics (OpenMetrics), /healthz and /readyz (docs/metrics.md)
    #[arg(long, value_name = "IP:PORT")]
    metrics: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

/// What deadlines are shortened by when a policy decides which of them can be met. What moves really is a little
/// behind what was planned; the simulator, where it is not, shortens nothing.
#[derive(Args, Clone)]
pub(crate) struct MarginArgs {
    /// Deadlines are shortened by this share of them when coflows are let in,
    #[arg(long, value_name = "SHARE", default_value = "0.05", value_parser = share)]
    pub(crate) deadline_margin: f64,
    /// and by this much besides; 60 s at most
    #[arg(long, value_name = "MS", default_value = "20", value_parser = minute_of_millis)]
    pub(crate) deadline_margin_ms: Span,
}

/// The name of a policy for hosts, with its settings.
pub(crate) fn policy_name(text: &str) -> Result<String, String> {
    match find_for_hosts(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(Failure::Input(message)) => Err(message),
        Err(_) => Err("no policy".to_owned()),
    }
}

fn share(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.0..1.0).contains(&value) { Ok(value) } else { Err("not at least 0 and below 1".to_owned()) }
}

/// How coordinator and agents talk, and what a coflow waits for.
#[derive(Args, Clone)]
pub(crate) struct ControlArgs {
    /// A first event is planned for at once, those that follow within this time together; 1 s at most. The
    /// Varys paper has 100
    #[arg(long, visible_alias = "batch-ms", value_name = "MS", default_value = "1", value_parser = millis)]
    pub(crate) batch_window: Span,
    /// A coflow whose number of flows was announced is planned once all were asked for, or so long after the
    /// first was; 60 s at most
    #[arg(long, value_name = "MS", default_value = "3", value_parser = minute_of_millis)]
    pub(crate) ready_wait: Span,
    /// Under a policy that senders decide (dclas, dclas-strict): how often they report bytes and hear queues;
    /// 1 to 1000. A `sync` among the policy's settings goes before it
    #[arg(long, value_name = "MS", default_value = "10", value_parser = sync_millis)]
    pub(crate) sync_interval: Span,
}

/// Seconds of a coflow's lease.
fn coflow_lease(text: &str) -> Result<u64, String> {
    let (least, most) = (MIN_COFLOW_LEASE_MS.div_ceil(1000), MAX_COFLOW_LEASE_MS / 1000);
    let seconds: u64 = text.parse().map_err(|_| "not a whole number".to_owned())?;
    if seconds > 0 && !(least..=most).contains(&seconds) {
        return Err(format!(
            "neither 0 nor between {least} and {most}; drivers could not keep less by renewals"
        ));
    }
    Ok(seconds)
}

/// Calls to change settings that may wait.
const MAX_CHANGE_CALLS: usize = 16;
/// Settings that say what an open network is like.
const OF_NETWORK: [&str; 3] = ["link-rate", "topology", "known-hosts-only"];
/// Most hosts of one coordinator.
const MAX_HOSTS: i64 = 100_000;
/// What keeps coflows from starving in a running system, for policies that have it (Varys, section 5.3.4).
const GUARD: &str = "delta=200ms";

/// The policy of that name, with the guard against starvation unless that is set.
fn guarded(name: &str, bare: bool) -> Result<weir_policy::Chosen, Failure> {
    let policy = find_for_hosts(name)?;
    let known = policy.info.parameters.iter().any(|parameter| parameter.name == "delta");
    if known && !bare && !name.contains(":delta=") {
        find_for_hosts(&format!("{name}:{GUARD}"))
    } else {
        Ok(policy)
    }
}

/// Reads the topology, if there is one.
fn topology_of(args: &CoordinatorArgs) -> Result<Topology, Failure> {
    let read =
        |path: &PathBuf| Topology::load(path).map_err(|error| Failure::Input(format!("--topology {error}")));
    args.topology.as_ref().map_or_else(|| Ok(Topology::default()), read)
}

/// What is known of the network before its hosts come.
fn joining(args: &CoordinatorArgs, topology: &Topology) -> Joining {
    let site = |site: Option<usize>| site.map(|site| topology.sites[site].name.clone());
    let known = |host: &TopologyHost| {
        let rack = host.rack.map(|rack| topology.racks[rack].name.clone());
        KnownHost { rates: host.rates, rack, site: site(host.site) }
    };
    let known_rack =
        |rack: &Rack| KnownRack { rates: rack.rates, site: site(rack.site), label: rack.label.clone() };
    let name = |site: usize| topology.sites[site].name.clone();
    let rows = topology.between.iter().enumerate();
    let between = rows.flat_map(|(from, row)| {
        let rate = move |(to, rate): (usize, &Option<Rate>)| Some(((name(from), name(to)), (*rate)?));
        row.iter().enumerate().filter_map(rate)
    });
    Joining {
        link_rate: args.link_rate.or(topology.link_rate),
        share: Rate::PAYLOAD_SHARE * args.plan_share,
        racks: topology.racks.iter().map(|rack| (rack.name.clone(), known_rack(rack))).collect(),
        sites: topology.sites.iter().map(|site| (site.name.clone(), site.label.clone())).collect(),
        between: between.collect(),
        hosts: topology.hosts.iter().map(|host| (host.name.clone(), known(host))).collect(),
        is_closed: args.known_hosts_only,
    }
}

fn coordinator_options(args: &CoordinatorArgs, topology: &Topology) -> Result<CoordinatorOptions, Failure> {
    let policy = guarded(&args.policy, args.bare_policy)?;
    let share = Rate::PAYLOAD_SHARE * args.plan_share;
    let mut options = match (args.hosts, args.link_rate) {
        (Some(hosts), Some(rate)) => {
            let fabric = Fabric::big_switch(hosts, rate.scaled(share))
                .map_err(|error| Failure::Input(format!("--hosts {hosts}: {error}")))?;
            CoordinatorOptions::new(fabric, policy)
        }
        _ => {
            let joining = Some(joining(args, topology));
            CoordinatorOptions { joining, ..CoordinatorOptions::new(Fabric::without_hosts(), policy) }
        }
    };
    options.metrics = args.metrics;
    options.lease = Span::from_millis(args.lease_ms);
    options.coflow_lease = match args.coflow_lease {
        0 => Span::MAX,
        seconds => Span::from_millis(seconds * 1000),
    };
    let MarginArgs { deadline_margin: share, deadline_margin_ms: time } = args.margin.clone();
    options.tuning = Tuning {
        bypass: args.bypass,
        ready_wait: args.control.ready_wait,
        deadline_margin: DeadlineMargin { share, time },
        sync_interval: args.control.sync_interval,
        batch: args.control.batch_window,
    };
    options.wire = Wire { bytes_per_byte: 1.0 / Rate::PAYLOAD_SHARE, headroom: 1.0 / args.plan_share };
    Ok(options)
}

/// Settings that may change while it runs.
fn may_change(args: &CoordinatorArgs) -> Vec<&'static str> {
    let always = ["policy", "bypass", "ready-wait", "batch-window", "sync-interval", "deadline-margin"];
    let of_open = OF_NETWORK.into_iter().filter(|_| args.hosts.is_none());
    always.into_iter().chain(["deadline-margin-ms", "log"]).chain(of_open).collect()
}

/// The settings in force, and what they led to.
#[derive(Clone)]
struct InForce {
    running: Running,
    topology: Topology,
    joining: Option<Joining>,
}

/// What is to be in force.
struct Next {
    again: Again,
    topology: Topology,
    change: Change,
    show: Box<dyn FnOnce() + Send>,
}

impl InForce {
    /// Reads all again, or takes what a call says: then of files those alone that it names.
    fn next(&self, call: Option<&[(String, String)]>) -> Result<Next, String> {
        let mut again = match call {
            Some(call) => self.running.with(call)?,
            None => self.running.again()?,
        };
        let parsed = Cli::try_parse_from(&again.words).map_err(|error| arguments::one_line(&error))?;
        let Command::Coordinator(args) = parsed.command else { return Err("no coordinator".to_owned()) };
        let said = |failure| match failure {
            Failure::Input(reason) => reason,
            _ => "it cannot be read".to_owned(),
        };
        // A call that does not name the topology changes nothing of it, although the file may be
        // another one by now. A hangup reads all.
        let names_topology = call.is_none_or(|call| call.iter().any(|(name, _)| name == "topology"));
        let topology = match names_topology {
            true => topology_of(&args).map_err(said)?,
            false => self.topology.clone(),
        };
        let options = coordinator_options(&args, &topology).map_err(said)?;
        let show = Box::new(logging::showing(again.value("log"))?);
        let is_told = again.changed.iter().any(|one| OF_NETWORK.contains(&one.name.as_str()));
        if options.joining != self.joining && !is_told {
            let path = again.value("topology").to_owned();
            let [hosts, racks, sites] = [topology.hosts.len(), topology.racks.len(), topology.sites.len()];
            let now = format!("{path}, read again: {hosts} hosts, {racks} racks, {sites} sites");
            again.changed.push(Changed { name: "topology".to_owned(), before: path, now });
        }
        let change = Change { policy: options.policy, tuning: options.tuning, joining: options.joining };
        Ok(Next { again, topology, change, show })
    }
}

/// Changes that signals and calls ask for, one after the other.
struct Changing {
    in_force: Arc<Mutex<InForce>>,
    /// Held while files are read.
    reading: Arc<Semaphore>,
    changes: mpsc::Sender<(Change, oneshot::Sender<()>)>,
}

impl Changing {
    /// Reads all again, or takes over what a call says.
    ///
    /// # Errors
    /// In one line: nothing was changed.
    async fn change(&self, call: Option<Vec<(String, String)>>) -> Result<Vec<Changed>, String> {
        // One reading at a time, whose thread keeps the permit until it is done: reads of a disk
        // that does not answer must not pile up.
        let reading = Arc::clone(&self.reading).try_acquire_owned();
        let reading = reading
            .map_err(|_| "files of an earlier change are still being read: their disk does not answer")?;
        let in_force = Arc::clone(&self.in_force);
        // Files may be on a disk that does not answer.
        let read = tokio::task::spawn_blocking(move || {
            let _reading = reading;
            let in_force = in_force.lock().unwrap_or_else(PoisonError::into_inner).clone();
            in_force.next(call.as_deref())
        });
        let read = tokio::time::timeout(READ_LIMIT, read).await;
        let read = read.map_err(|_| format!("the files were not read within {} s", READ_LIMIT.as_secs()))?;
        let Next { again, topology, change, show } = read.map_err(|error| error.to_string())??;
        again.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        let joining = change.joining.clone();
        let (done, taken) = oneshot::channel();
        let gone = "the coordinator is shutting down";
        self.changes.send((change, done)).await.map_err(|_| gone)?;
        taken.await.map_err(|_| gone)?;
        // Once the coordinator has taken the change: of one that fails nothing is in force, the log
        // included.
        show();
        let changed = again.changed.clone();
        for one in &changed {
            begins(&format!("coordinator: {one}"));
        }
        let mut in_force = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        in_force.running.adopt(again);
        (in_force.topology, in_force.joining) = (topology, joining);
        Ok(changed)
    }

    async fn obey(self, mut hangups: Signal, mut calls: mpsc::Receiver<ChangeCall>) {
        loop {
            tokio::select! {
                signalled = hangups.recv() => {
                    if signalled.is_none() {
                        return;
                    }
                    match self.change(None).await {
                        Ok(changed) if changed.is_empty() => begins("coordinator: settings were read again, and are as they were"),
                        Ok(_) => {}
                        Err(reason) => {
                            let reason = logging::shortened(&reason);
                            tracing::error!(target: PROCESS, "coordinator: {reason}; nothing was changed");
                        }
                    }
                }
                call = calls.recv() => {
                    let Some(ChangeCall { settings, reply }) = call else { return };
                    // A call that was given up while it waited here changes nothing any more.
                    if !reply.is_closed() {
                        let changed = self.change(Some(settings)).await;
                        let changed = changed.map_err(|reason| logging::shortened(&reason));
                        let of = |one: Changed| v1::Changed { name: one.name, before: one.before, now: one.now };
                        let _ = reply.send(changed.map(|changed| changed.into_iter().map(of).collect()));
                    }
                }
            }
        }
    }
}

pub(crate) fn coordinator(args: CoordinatorArgs) -> Result<(), Failure> {
    let topology = topology_of(&args)?;
    let mut options = coordinator_options(&args, &topology)?;
    let policy = options.policy.name.clone();
    let running = Running::start(Cli::command(), std::env::args_os().collect(), may_change(&args));
    let in_force =
        InForce { running: running.map_err(Failure::Input)?, topology, joining: options.joining.clone() };
    run(async move {
        // Before the line that says that it serves: a hangup that follows on that line must not end the process.
        let hangups = signal(SignalKind::hangup())?;
        let listener =
            weir_net::control_listener(args.listen).map_err(|error| listening(args.listen, error))?;
        let address = listener.local_addr()?;
        let stop = stop_signal();
        let (changes, to_come) = mpsc::channel(1);
        let (calls, called) = mpsc::channel(MAX_CHANGE_CALLS);
        options.control = Some(Control { changes: to_come, calls });
        let hosts = args.hosts.map_or("hosts as they join".to_owned(), |hosts| format!("{hosts} hosts"));
        begins(&format!("coordinator: {policy} for {hosts} on {address}"));
        let (in_force, reading) = (Arc::new(Mutex::new(in_force)), Arc::new(Semaphore::new(1)));
        let obeying = tokio::spawn(Changing { in_force, reading, changes }.obey(hangups, called));
        weir_daemon::coordinator::serve(options, listener, stop).await?;
        obeying.abort();
        ends("coordinator");
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Parser)]
    struct Coordinator {
        #[command(flatten)]
        args: CoordinatorArgs,
    }

    /// Defaults stand at the options, for help and page, and in the daemon, for test beds and examples.
    #[test]
    fn the_defaults_of_options_are_those_that_the_daemon_has_by_itself() {
        let words = ["weir", "--hosts", "2", "--link-rate", "1gbit", "--bare-policy"];
        let said =
            coordinator_options(&Coordinator::parse_from(words).args, &Topology::default()).ok().unwrap();
        let own = CoordinatorOptions::new(said.fabric.clone(), said.policy.clone());
        let of = |options: &CoordinatorOptions| (options.lease, options.coflow_lease, options.tuning.clone());
        assert_eq!(of(&said), of(&own));
        assert_eq!(said.policy.name, "varys");
    }
}
