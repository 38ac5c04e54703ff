//! `weir tag`: priorities of switches for all TCP connections of a host, whatever program has them.

#[cfg(feature = "ebpf")]
mod mark;
#[cfg(feature = "ebpf")]
mod run;
#[cfg(feature = "ebpf")]
mod running;
#[cfg(feature = "ebpf")]
mod settings;

use clap::Args;
use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_console::Failure;
#[cfg(not(feature = "ebpf"))]
use weir_console::LACKING;
use weir_daemon::agent::Tags;
use weir_model::{Bytes, Rate, Span};

/// How long nothing is printed where nothing is to be.
#[cfg(feature = "ebpf")]
const SELDOM: std::time::Duration = std::time::Duration::from_secs(u32::MAX as u64);

/// Sets the DSCP of what TCP connections send through an interface, by the bytes that each has sent so far.
///
/// Switches with a priority for each DSCP then serve small flows before large ones, though no application says how large a flow
/// is (PIAS). It goes on until it is ended (SIGINT, SIGTERM), and leaves nothing behind; then it prints what it tagged.
/// It needs Linux 6.6 and root. Connections of other network namespaces are left alone. docs/tags.md has the classes.
///
/// A file of tags (TOML), read again on SIGHUP; what is left out is as here:
///
///   thresholds = ["1327kB", "1940kB", ..]    # bytes sent after which a flow falls by a class, 7 at most; PIAS's
///                                            # published ones for web search at load 0.8
///   dscp = [40, 36, 32, 28, 24, 20, 16, 12]  # of each class, the first first
///   idle = "none"                            # a connection that sent nothing for longer begins anew: "500ms"
///   ageing = 3                               # so does one after so many timeouts in a row; 0: never
///   marks = true                             # marks of sockets (SO_MARK) say sizes and deadlines, as `weir run` sets them
///   deadlines = false                        # class 0 is for flows with a deadline alone; 6 thresholds at most then
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct TagArgs {
    /// The interface, of this network namespace
    #[arg(long, value_name = "NAME")]
    interface: String,
    /// File of tags
    #[arg(long, value_name = "FILE")]
    tags: Option<PathBuf>,
    /// Print what was tagged so far every so many seconds, too
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..))]
    every: Option<u32>,
    /// Until it is ended, sockets of this machine may have the congestion controls weir_dctcp and weir_karuna (TCP_CONGESTION;
    /// docs/congestion.md). Takes Linux 6.10
    #[arg(long)]
    controls: bool,
    /// Round trip of a full segment through empty queues, by which weir_karuna goes
    #[arg(long, value_name = "TIME", default_value = "200us", requires = "controls")]
    base_rtt: Span,
    /// Rate of the interface's link, by which weir_karuna knows that a deadline is out of reach; else it tries to the end
    #[arg(long, value_name = "RATE", requires = "controls")]
    link_rate: Option<Rate>,
}

/// Marks packets (ECN) that leave a port of this machine, where many bytes wait in the queue that they enter.
///
/// The port has an HTB with a leaf for each class, by DSCP; docs/congestion.md says how to make one. It
/// goes on until it is ended (SIGINT, SIGTERM), and leaves nothing behind; then it prints what it marked. It needs Linux 6.6 and root.
#[derive(Args)]
pub(crate) struct MarkArgs {
    /// The interface, of this network namespace
    #[arg(long, value_name = "NAME")]
    interface: String,
    /// Bytes that wait in a queue from which on packets that enter it are marked
    #[arg(long, value_name = "BYTES", default_value = "30kB")]
    threshold: Bytes,
    /// The leaf of HTB of each class, class 0 first
    #[arg(
        long,
        value_name = "LEAF,..",
        value_delimiter = ',',
        default_value = "1:20,1:21,1:22,1:23,1:24,1:25,1:26,1:27"
    )]
    leaves: Vec<String>,
    /// What this address sends or gets is never marked
    #[arg(long, value_name = "IP")]
    spare: Option<Ipv4Addr>,
    /// Print what was marked so far every so many seconds, too
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..))]
    every: Option<u32>,
}

/// Runs a command, whose TCP connections `weir tag` then tags by what is said here.
///
/// Each connection that the command or its children open or accept is one flow that begins with its first packet: of `--size`, its
/// packets have one class, that of its size; with a `--deadline` as well, the first class of all until then. Without either it is of
/// unknown size. The command gets a control group (version 2), which gives its sockets a mark (SO_MARK), and no library is loaded
/// before it. It needs root and Linux 6.6; on the interface `weir tag` has to run. The exit is that of the command.
#[derive(Args)]
pub(crate) struct RunArgs {
    /// What each connection sends in all, such as 1MB
    #[arg(long, value_name = "BYTES")]
    size: Option<Bytes>,
    /// When that is to have arrived, after the connection's first packet, such as 50ms
    #[arg(long, value_name = "TIME", requires = "size")]
    deadline: Option<Span>,
    /// Congestion control that they have, at both ends, such as weir_dctcp; unless said it is weir_karuna where a deadline is said and
    /// `weir tag --controls` runs on this machine, else the system's
    #[arg(long, value_name = "NAME")]
    control: Option<String>,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// What Karuna's control goes by: the round trip of a full segment through empty queues, and the rate of the host's link if it is known.
pub(crate) type Paths = (Span, Option<Rate>);

/// What tags the flows that an agent serves, and no others; with controls it has flows with deadlines end just before these.
#[cfg(feature = "ebpf")]
pub(crate) fn of_agent(
    interface: &str,
    tags: Option<&Path>,
    controls: Option<Paths>,
) -> Result<Arc<dyn Tags>, Failure> {
    running::of_agent(interface, tags, controls)
}

#[cfg(not(feature = "ebpf"))]
pub(crate) fn of_agent(
    interface: &str,
    _: Option<&Path>,
    _: Option<Paths>,
) -> Result<Arc<dyn Tags>, Failure> {
    Err(Failure::Input(format!("--tag {interface}: {LACKING}")))
}

#[cfg(feature = "ebpf")]
pub(crate) fn tag(args: &TagArgs) -> Result<(), Failure> {
    running::tag(args)
}

#[cfg(not(feature = "ebpf"))]
pub(crate) fn tag(args: &TagArgs) -> Result<(), Failure> {
    let TagArgs { interface, tags: _, every: _, controls: _, base_rtt: _, link_rate: _ } = args;
    Err(Failure::Input(format!("--interface {interface}: {LACKING}")))
}

#[cfg(feature = "ebpf")]
pub(crate) fn mark(args: &MarkArgs) -> Result<(), Failure> {
    mark::mark(args)
}

#[cfg(not(feature = "ebpf"))]
pub(crate) fn mark(args: &MarkArgs) -> Result<(), Failure> {
    let MarkArgs { interface, threshold: _, leaves: _, spare: _, every: _ } = args;
    Err(Failure::Input(format!("--interface {interface}: {LACKING}")))
}

#[cfg(feature = "ebpf")]
pub(crate) fn run_command(args: &RunArgs) -> Result<(), Failure> {
    run::run_command(args)
}

#[cfg(not(feature = "ebpf"))]
pub(crate) fn run_command(args: &RunArgs) -> Result<(), Failure> {
    let RunArgs { size: _, deadline: _, control: _, command } = args;
    Err(Failure::Input(format!("{}: {LACKING}", command.join(" ".as_ref()).display())))
}
