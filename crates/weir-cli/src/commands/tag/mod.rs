//! `weir tag`: priorities of switches for all TCP connections of a host, whatever program has them.

#[cfg(feature = "ebpf")]
mod running;
#[cfg(feature = "ebpf")]
mod settings;

use crate::Failure;
use clap::Args;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_daemon::agent::Tags;

/// What a build without the feature says.
#[cfg(not(feature = "ebpf"))]
const LACKING: &str = "this build tags no packets: the program for the kernel is made with clang. Build with \
                       `cargo build --release --features weir-cli/ebpf` where clang, libelf and zlib are";

/// Sets the DSCP of what TCP connections send through an interface, by the bytes that each has sent so far.
///
/// Switches with a priority for each DSCP then serve small flows before large ones, though nobody says how large a flow
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
}

/// What tags the flows that an agent serves, and no others.
#[cfg(feature = "ebpf")]
pub(crate) fn of_agent(interface: &str, tags: Option<&Path>) -> Result<Arc<dyn Tags>, Failure> {
    running::of_agent(interface, tags)
}

#[cfg(not(feature = "ebpf"))]
pub(crate) fn of_agent(interface: &str, _: Option<&Path>) -> Result<Arc<dyn Tags>, Failure> {
    Err(Failure::Input(format!("--tag {interface}: {LACKING}")))
}

#[cfg(feature = "ebpf")]
pub(crate) fn tag(args: &TagArgs) -> Result<(), Failure> {
    running::tag(args)
}

#[cfg(not(feature = "ebpf"))]
pub(crate) fn tag(args: &TagArgs) -> Result<(), Failure> {
    let TagArgs { interface, tags: _, every: _ } = args;
    Err(Failure::Input(format!("--interface {interface}: {LACKING}")))
}
