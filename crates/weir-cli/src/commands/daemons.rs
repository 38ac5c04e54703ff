//! `weir coordinator`, `weir agent`, and the task that `weir live` drives.

use super::policies::find_for_hosts;
use crate::Failure;
use crate::logging::PROCESS;
use clap::{Args, ValueEnum};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use weir_daemon::agent::{AgentOptions, Durability, InterfaceChoice, SiteRelays};
use weir_daemon::coordinator::{CoordinatorOptions, DeadlineMargin, Joining, KnownHost, Wire};
use weir_model::{Fabric, Rate, Span};
use weir_net::Address;
use weir_proto::host::{FIRST_MADE, Host};
use weir_proto::limits::{MAX_COFLOW_LEASE_MS, MIN_COFLOW_LEASE_MS};
use weir_testbed::live::UnfinishedFile;
use weir_trace::{Topology, TopologyHost};

/// Bytes of a Unix socket's path (`sun_path`), without the zero at its end.
const MAX_SOCKET_PATH: usize = 107;

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
    /// File of hosts, their links and racks (docs/hosts.md). It is read again on SIGHUP, and coflows go on
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

fn plan_share(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if value > 0.0 && value <= 1.0 { Ok(value) } else { Err("not above 0 and at most 1".to_owned()) }
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
    /// 1 to 1000
    #[arg(long, value_name = "MS", default_value = "10", value_parser = sync_millis)]
    pub(crate) sync_interval: Span,
}

/// A time in milliseconds, a second at most.
fn millis(text: &str) -> Result<Span, String> {
    span(text, 1e-3, 1e3)
}

/// A time in milliseconds, from one to a thousand.
fn sync_millis(text: &str) -> Result<Span, String> {
    let span = millis(text)?;
    if span < Span::from_millis(1) { Err("below 1".to_owned()) } else { Ok(span) }
}

/// A time in milliseconds, a minute at most.
fn minute_of_millis(text: &str) -> Result<Span, String> {
    span(text, 1e-3, 60e3)
}

/// A time in seconds, an hour at most.
pub(crate) fn seconds(text: &str) -> Result<Span, String> {
    span(text, 1.0, 3600.0)
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

fn span(text: &str, unit_secs: f64, most: f64) -> Result<Span, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if !(0.0..=most).contains(&value) {
        return Err(format!("not between 0 and {most}"));
    }
    Ok(Span::from_secs_ceil(value * unit_secs))
}

#[derive(Args)]
pub(crate) struct AgentArgs {
    /// File of settings (TOML): what its section [agent] says holds where the command line and the environment say nothing
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// This host's name, or its number. A coordinator with --hosts takes numbers alone. Without it, the machine's own name
    #[arg(long, value_name = "NAME|N")]
    host: Option<Host>,
    /// Address of the data plane
    #[arg(long, value_name = "IP:PORT", default_value = "0.0.0.0:7071")]
    listen: SocketAddr,
    /// Address or name at which receivers reach the data plane, if not the address listened on
    #[arg(long, value_name = "HOST:PORT")]
    advertise: Option<Address>,
    /// The coordinator; without one, flows share the network as TCP does
    #[arg(long, value_name = "HOST:PORT")]
    coordinator: Option<Address>,
    /// Directory for the journal, blocks handed over in memory, and the socket agent.sock
    #[arg(long, value_name = "DIR")]
    spool: PathBuf,
    /// Directory below which tasks may name files to serve; may be repeated
    #[arg(long, value_name = "DIR")]
    allow: Vec<PathBuf>,
    /// Directory below which files may be taken by whoever reaches the coordinator (`weir cp`); may be repeated. Nothing is
    /// authenticated yet
    #[arg(long, value_name = "DIR")]
    share: Vec<PathBuf>,
    /// How long a new flow waits for its first plan before it takes TCP's share
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = clap::value_parser!(u64).range(0..=60_000))]
    first_plan_wait_ms: u64,
    /// How often progress is reported
    #[arg(long, value_name = "MS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    report_interval_ms: u64,
    /// A first event is told to the coordinator at once, those that follow within this time together
    #[arg(long, value_name = "MS", default_value = "1", value_parser = millis)]
    batch_window: Span,
    /// Interface of the host's link: traffic there that is not Weir's is measured and planned around. auto:
    /// the one that leads to the coordinator; none: nothing is measured
    #[arg(long, value_name = "NAME|auto|none", default_value = "auto")]
    interface: String,
    /// The host's rack, as the coordinator's --topology calls it, where that does not say the host's
    #[arg(long, value_name = "NAME")]
    rack: Option<String>,
    /// Rate of the host's link, headers included, each direction. Without it, what the driver of --interface says if that is
    /// a physical one, else as the coordinator says
    #[arg(long, value_name = "RATE")]
    link_rate: Option<Rate>,
    /// Rate of the host's link towards it, where that is another one
    #[arg(long, value_name = "RATE", requires = "link_rate")]
    downlink_rate: Option<Rate>,
    /// The host's site, with --relay
    #[arg(long, value_name = "N", requires = "relay")]
    site: Option<u32>,
    /// Relays of the host's site that serve it: flows to and from other sites go by one of them
    #[arg(long, value_name = "IP:PORT[,IP:PORT...]", value_delimiter = ',', requires = "site")]
    relay: Vec<SocketAddr>,
    /// What a block that was put outlives. process: the agent; should the machine be lost, so are puts of the last second, and
    /// blocks whose bytes its kernel had not written yet. machine: that too; a put waits for its disk
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = DurableArg::Process)]
    durable: DurableArg,
    /// Group whose members may be tasks of this host, by name or number; the spool and its socket become the
    /// group's. Without it, tasks run as the agent's user
    #[arg(long, value_name = "GROUP", value_parser = group)]
    group: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DurableArg {
    Process,
    Machine,
}

/// A group's number.
fn group(text: &str) -> Result<u32, String> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    match nix::unistd::Group::from_name(text) {
        Ok(Some(group)) => Ok(group.gid.as_raw()),
        Ok(None) => Err("there is no such group".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[derive(Args)]
pub(crate) struct TaskArgs {
    #[arg(long)]
    host: u32,
    #[arg(long)]
    coordinator: Option<SocketAddr>,
    #[arg(long)]
    agent: PathBuf,
    #[arg(long)]
    data: PathBuf,
}

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

/// What is known of the network before its hosts come.
fn joining(args: &CoordinatorArgs) -> Result<Joining, Failure> {
    let topology = match &args.topology {
        Some(path) => Topology::load(path).map_err(|error| Failure::Input(format!("--topology {error}")))?,
        None => Topology::default(),
    };
    let rack_of = |host: &TopologyHost| host.rack.map(|rack| topology.racks[rack].name.clone());
    let known = |host: &TopologyHost| KnownHost { rates: host.rates, rack: rack_of(host) };
    Ok(Joining {
        link_rate: args.link_rate.or(topology.link_rate),
        share: Rate::PAYLOAD_SHARE * args.plan_share,
        racks: topology.racks.iter().map(|rack| (rack.name.clone(), rack.rates)).collect(),
        hosts: topology.hosts.iter().map(|host| (host.name.clone(), known(host))).collect(),
        is_closed: args.known_hosts_only,
    })
}

/// Reads the topology again whenever SIGHUP comes. What is wrong then changes nothing.
async fn read_again(args: CoordinatorArgs, networks: mpsc::Sender<Joining>) -> std::io::Result<()> {
    let Some(path) = &args.topology else { return Ok(()) };
    let mut signals = signal(SignalKind::hangup())?;
    while signals.recv().await.is_some() {
        match joining(&args) {
            Ok(joining) => {
                let (hosts, racks) = (joining.hosts.len(), joining.racks.len());
                begins(&format!("coordinator: {} is in force: {hosts} hosts, {racks} racks", path.display()));
                if networks.send(joining).await.is_err() {
                    break;
                }
            }
            Err(Failure::Input(reason)) => {
                tracing::error!(target: PROCESS, "coordinator: {reason}; the topology stays what it was");
            }
            Err(_) => {}
        }
    }
    Ok(())
}

fn coordinator_options(args: &CoordinatorArgs) -> Result<CoordinatorOptions, Failure> {
    let policy = guarded(&args.policy, args.bare_policy)?;
    let share = Rate::PAYLOAD_SHARE * args.plan_share;
    let mut options = match (args.hosts, args.link_rate) {
        (Some(hosts), Some(rate)) => {
            let fabric = Fabric::big_switch(hosts, rate.scaled(share))
                .map_err(|error| Failure::Input(format!("--hosts {hosts}: {error}")))?;
            CoordinatorOptions::new(fabric, policy)
        }
        _ => {
            let joining = Some(joining(args)?);
            CoordinatorOptions { joining, ..CoordinatorOptions::new(Fabric::without_hosts(), policy) }
        }
    };
    options.lease = Span::from_millis(args.lease_ms);
    options.coflow_lease = match args.coflow_lease {
        0 => Span::MAX,
        seconds => Span::from_millis(seconds * 1000),
    };
    options.batch = args.control.batch_window;
    options.ready_wait = args.control.ready_wait;
    options.bypass = args.bypass;
    options.sync_interval = args.control.sync_interval;
    let MarginArgs { deadline_margin: share, deadline_margin_ms: time } = args.margin.clone();
    options.deadline_margin = DeadlineMargin { share, time };
    options.wire = Wire { bytes_per_byte: 1.0 / Rate::PAYLOAD_SHARE, headroom: 1.0 / args.plan_share };
    Ok(options)
}

pub(crate) fn coordinator(args: CoordinatorArgs) -> Result<(), Failure> {
    let mut options = coordinator_options(&args)?;
    let policy = options.policy.name.clone();
    run(async move {
        let listener =
            weir_net::control_listener(args.listen).map_err(|error| listening(args.listen, error))?;
        let address = listener.local_addr()?;
        let stop = stop_signal();
        let (networks, inbox) = mpsc::channel(1);
        options.networks = Some(inbox);
        let hosts = args.hosts.map_or("hosts as they join".to_owned(), |hosts| format!("{hosts} hosts"));
        begins(&format!("coordinator: {policy} for {hosts} on {address}"));
        let reading = tokio::spawn(read_again(args, networks));
        weir_daemon::coordinator::serve(options, listener, stop).await?;
        reading.abort();
        ends("coordinator");
        Ok(())
    })
}

/// The machine's own name, where nobody says another.
fn machine_name() -> Result<Host, Failure> {
    let name = nix::unistd::gethostname().map_err(std::io::Error::from)?.to_string_lossy().into_owned();
    name.parse().map_err(|reason| {
        Failure::Input(format!("--host: the machine's own name {name:?} cannot be taken: {reason}"))
    })
}

fn agent_options(args: AgentArgs) -> Result<AgentOptions, Failure> {
    let host = args.host.map_or_else(machine_name, Ok)?;
    if let Host::Number(number) = host
        && number >= FIRST_MADE
    {
        return Err(Failure::Input(format!(
            "--host {number}: numbers from {FIRST_MADE} on are made from names"
        )));
    }
    let mut options = AgentOptions::new(host, args.spool);
    options.advertise = args.advertise;
    options.coordinator = args.coordinator;
    options.allow = args.allow;
    options.share = args.share;
    options.first_plan_wait = Span::from_millis(args.first_plan_wait_ms);
    options.report_interval = Span::from_millis(args.report_interval_ms);
    options.batch = args.batch_window;
    options.rack = args.rack.unwrap_or_default();
    options.link_rates = [args.link_rate, args.downlink_rate.or(args.link_rate)];
    options.durability = match args.durable {
        DurableArg::Process => Durability::Process,
        DurableArg::Machine => Durability::Machine,
    };
    options.group = args.group;
    options.relays = args.site.map(|site| SiteRelays { site, addresses: args.relay });
    options.interface = match args.interface.as_str() {
        "auto" => InterfaceChoice::Routed,
        "none" => InterfaceChoice::None,
        name => InterfaceChoice::Named(name.to_owned()),
    };
    Ok(options)
}

pub(crate) fn agent(args: AgentArgs) -> Result<(), Failure> {
    let listen = args.listen;
    let options = agent_options(args)?;
    if let InterfaceChoice::Named(name) = &options.interface {
        weir_net::Interface::named(name)
            .map_err(|error| Failure::Input(format!("--interface {name}: {error}")))?;
    }
    if let Some(address) = options.advertise.as_ref().filter(|address| address.is_unspecified()) {
        return Err(Failure::Input(format!(
            "--advertise {address} is no address that receivers can reach; give the host's own, with the port"
        )));
    }
    if let Some(address) = options.coordinator.as_ref().filter(|address| address.is_unspecified()) {
        return Err(Failure::Input(format!("--coordinator {address} is no address that can be reached")));
    }
    if options.advertise.is_none() && listen.ip().is_unspecified() {
        return Err(Failure::Input(format!(
            "--listen {listen} is no address receivers can reach; say which with --advertise"
        )));
    }
    check_spool(&options.spool)?;
    run(async move {
        let listener = weir_net::data_listener(listen).map_err(|error| listening(listen, error))?;
        let (host, address) = (options.host.clone(), listener.local_addr()?);
        let stop = stop_signal();
        begins(&format!("agent: host {host} on {address}, spool {}", options.spool.display()));
        weir_daemon::agent::serve(options, listener, stop).await?;
        ends(&format!("agent of host {host}"));
        Ok(())
    })
}

/// Makes the spool, and finds out now and by name what would stop the agent later.
fn check_spool(spool: &Path) -> Result<(), Failure> {
    let refuse = |reason: String| Failure::Input(format!("--spool {}: {reason}", spool.display()));
    let length = std::path::absolute(spool).unwrap_or_else(|_| spool.to_owned()).as_os_str().len();
    let longest = MAX_SOCKET_PATH - "/agent.sock".len();
    if length > longest {
        return Err(refuse(format!(
            "its path has {length} bytes, and that of the socket in it would be too long for the operating system; name one \
             of at most {longest} bytes"
        )));
    }
    std::fs::create_dir_all(spool).map_err(|error| refuse(error.to_string()))?;
    match UnfinishedFile::create_in(spool) {
        // An agent starts on a full disk too, and refuses puts until there is room.
        Err(error) if !matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {
            Err(refuse(format!("nothing can be written there: {}", std::io::Error::from(error.kind()))))
        }
        _ => Ok(()),
    }
}

pub(crate) fn task(args: TaskArgs) -> Result<(), Failure> {
    Ok(weir_testbed::live::run_task(args.host, args.coordinator, args.agent, &args.data)?)
}

/// Says in the log that a daemon listens. With port 0 only this says where.
pub(crate) fn begins(what: &str) {
    tracing::info!(target: PROCESS, "{what}");
}

/// Says in the log that a daemon ends as it was told to.
pub(crate) fn ends(who: &str) {
    tracing::info!(target: PROCESS, "{who}: ends, as it was told to");
}

pub(crate) fn listening(address: SocketAddr, error: std::io::Error) -> Failure {
    Failure::Run(anyhow::Error::new(error).context(format!("cannot listen on {address}")))
}

/// One thread suffices: data moves on a thread of its own, and plans are made one at a time.
pub(crate) fn run(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    weir_net::raise_descriptor_limit();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(work);
    // A file that hangs keeps its thread: nobody waits for it.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    result
}

/// Resolves on SIGINT or SIGTERM, from this call on: one that comes before it is waited for counts too.
pub(crate) fn stop_signal() -> impl Future<Output = ()> + Send + 'static {
    let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    async move {
        let (Ok(mut interrupt), Ok(mut terminate)) = signals else { return std::future::pending().await };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Coordinator {
        #[command(flatten)]
        args: CoordinatorArgs,
    }

    #[derive(Parser)]
    struct Agent {
        #[command(flatten)]
        args: AgentArgs,
    }

    /// Defaults stand at the options, for help and page, and in the daemons, for test beds and examples.
    #[test]
    fn the_defaults_of_options_are_those_that_daemons_have_by_themselves() {
        let words = ["weir", "--hosts", "2", "--link-rate", "1gbit", "--bare-policy"];
        let said = coordinator_options(&Coordinator::parse_from(words).args).ok().unwrap();
        let own = CoordinatorOptions::new(said.fabric.clone(), said.policy.clone());
        let of = |options: &CoordinatorOptions| {
            let times = [options.lease, options.batch, options.bypass, options.ready_wait];
            let others = [options.sync_interval, options.coflow_lease, options.deadline_margin.time];
            (times, others, options.deadline_margin.share)
        };
        assert_eq!(of(&said), of(&own));
        assert_eq!(said.policy.name, "varys");
        let words = ["weir", "--host", "1", "--spool", "/spool", "--interface", "none"];
        let said = agent_options(Agent::parse_from(words).args).ok().unwrap();
        let own = AgentOptions::new(1, PathBuf::from("/spool"));
        assert_eq!(format!("{said:?}"), format!("{own:?}"));
    }
}
