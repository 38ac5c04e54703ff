//! `weir agent`, and the task that `weir live` drives.

use super::process::{begins, ends, listening, obey_hangups, run, stop_signal};
use super::values::millis;
use crate::Failure;
use clap::{Args, ValueEnum};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use weir_daemon::agent::{AgentOptions, Durability, InterfaceChoice, SiteRelays};
use weir_model::{Rate, Span};
use weir_net::Address;
use weir_proto::host::{FIRST_MADE, Host};
use weir_proto::limits::MAX_LABELS;
use weir_settings::logging::LogArgs;
use weir_testbed::live::UnfinishedFile;

/// Bytes of a Unix socket's path (`sun_path`), without the zero at its end.
const MAX_SOCKET_PATH: usize = 107;

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
    /// Directory below which files may be taken by every client that reaches the coordinator (`weir cp`); may be repeated. Nothing is
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
    /// What the host is like, each KEY=VALUE; racks and sites of the coordinator's --topology take hosts in by them
    #[arg(long, value_name = "KEY=VALUE[,KEY=VALUE...]", value_delimiter = ',', value_parser = label)]
    label: Vec<String>,
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
    /// Address to serve metrics on over HTTP: /metrics (OpenMetrics), /healthz and /readyz (docs/metrics.md)
    #[arg(long, value_name = "IP:PORT")]
    metrics: Option<SocketAddr>,
    /// Interface at which packets of what this agent serves get the DSCP of their class, by the size of each flow, for switches with
    /// priorities (docs/tags.md). Takes root and a build with the feature `ebpf`
    #[arg(long, value_name = "NAME")]
    tag: Option<String>,
    /// File of tags
    #[arg(long, value_name = "FILE", requires = "tag")]
    tags: Option<PathBuf>,
    /// Flows of coflows with deadlines end just before these where the coordinator says classes and no rates (by-class): they get the
    /// congestion control weir_karuna, which other sockets of this machine may have as long (docs/congestion.md). Takes Linux 6.10
    #[arg(long, requires = "tag")]
    controls: bool,
    /// Round trip of a full segment through empty queues, by which weir_karuna goes
    #[arg(long, value_name = "TIME", default_value = "200us", requires = "controls")]
    base_rtt: Span,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DurableArg {
    Process,
    Machine,
}

pub(crate) fn label(text: &str) -> Result<String, String> {
    weir_model::label::check(text).map(|()| text.to_owned())
}

/// Id of a group, from its number or its name.
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

/// The machine's own name, for an agent that was not given another.
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
    if args.label.len() > MAX_LABELS {
        return Err(Failure::Input(format!(
            "--label: a host has at most {MAX_LABELS} labels, not {}",
            args.label.len()
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
    options.labels = args.label;
    options.link_rates = [args.link_rate, args.downlink_rate.or(args.link_rate)];
    options.durability = match args.durable {
        DurableArg::Process => Durability::Process,
        DurableArg::Machine => Durability::Machine,
    };
    options.group = args.group;
    options.metrics = args.metrics;
    if let Some(interface) = &args.tag {
        let controls = args.controls.then_some((args.base_rtt, args.link_rate));
        options.tags = Some(super::tag::of_agent(interface, args.tags.as_deref(), controls)?);
    }
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
        obey_hangups("agent")?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Agent {
        #[command(flatten)]
        args: AgentArgs,
    }

    /// Defaults stand at the options, for help and page, and in the daemons, for test beds and examples.
    #[test]
    fn the_defaults_of_options_are_those_that_daemons_have_by_themselves() {
        let words = ["weir", "--host", "1", "--spool", "/spool", "--interface", "none"];
        let said = agent_options(Agent::parse_from(words).args).ok().unwrap();
        let own = AgentOptions::new(1, PathBuf::from("/spool"));
        assert_eq!(format!("{said:?}"), format!("{own:?}"));
    }
}
