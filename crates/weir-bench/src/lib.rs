//! `weir bench`: measurements on this machine.
#![forbid(unsafe_code)]

// In every module these stand for those of std, which panic when a pipe is closed or a disk is full.
#[macro_use(eprintln, println)]
extern crate weir_console;

mod churn;
mod coordinator;
mod daemons;
mod deciding;
mod gets;
mod load;
mod loopback;
mod planning;
mod played;
mod puts;
mod receive;
mod relay;
mod restart;
mod rounds;
mod routing;
mod sites;
mod slow_reader;
mod spark;
mod tags;
mod worst_peer;

use clap::{Args, Subcommand};
use weir_console::Failure;

/// Options of `weir bench`.
#[derive(Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    command: BenchCommand,
}

impl BenchArgs {
    /// Whether it makes a bed of network namespaces in this very process, which has to have the rights for that before it has threads.
    pub fn needs_bed(&self) -> bool {
        matches!(self.command, BenchCommand::Sites(_))
    }
}

#[derive(Subcommand)]
enum BenchCommand {
    /// Unscheduled throughput over loopback beside that of iperf3
    Loopback(loopback::LoopbackArgs),
    /// The coordinator's process under the load of many agents, over its real control plane
    Coordinator(coordinator::CoordinatorArgs),
    /// How long one plan takes, by the kind of event it follows
    Planning(planning::PlanningArgs),
    /// How long decisions between sites take, and rounds of simulation a second
    Deciding(deciding::DecidingArgs),
    /// Routes between datacenters: water-filling beside direct links and the optimum
    Routing(routing::RoutingArgs),
    /// How well links between sites of the test bed follow a sequence of rates
    Sites(sites::SitesArgs),
    /// A relay over loopback: throughput beside a plain splice forwarder, and flows beside one that is stuck
    Relay(relay::RelayArgs),
    /// Processes are killed under load and started again: when everything is known again, journals, memory
    Restart(restart::RestartArgs),
    /// Hosts join, are drained, leave, are killed and come back while coflows move: whether every byte arrives
    Churn(churn::ChurnArgs),
    /// Puts a second and the time to a first byte, by what a put that was answered for outlives
    Puts(puts::PutsArgs),
    /// The processor time of a flow, by who takes it
    Gets(gets::GetsArgs),
    /// What a receiver that reads slowly, or stops, costs the others on its uplink
    SlowReader(slow_reader::SlowReaderArgs),
    /// A real Spark on a test bed, by Spark alone and by Weir
    #[command(subcommand)]
    Spark(spark::SparkCommand),
    /// What programs in the kernel cost, and what remains of them
    Tags(tags::TagsArgs),
    /// What one peer at its worst costs the calls and the flows of others
    WorstPeer(worst_peer::WorstPeerArgs),
    /// The receiving process of `weir bench loopback`
    #[command(hide = true)]
    Receive(receive::ReceiveArgs),
}

/// Measures, and prints what was measured.
///
/// # Errors
/// An option cannot be followed here, or something of the measurement failed.
pub fn bench(args: BenchArgs) -> Result<(), Failure> {
    match args.command {
        BenchCommand::Loopback(args) => loopback::loopback(&args),
        BenchCommand::Coordinator(args) => coordinator::coordinator(&args),
        BenchCommand::Planning(args) => planning::planning(&args),
        BenchCommand::Deciding(args) => deciding::deciding(&args),
        BenchCommand::Routing(args) => routing::routing(&args),
        BenchCommand::Sites(args) => sites::sites(&args),
        BenchCommand::Relay(args) => relay::relay(&args),
        BenchCommand::Restart(args) => restart::restart(&args),
        BenchCommand::Churn(args) => churn::churn(&args),
        BenchCommand::Puts(args) => puts::puts(&args),
        BenchCommand::Gets(args) => gets::gets(&args),
        BenchCommand::SlowReader(args) => slow_reader::slow_reader(&args),
        BenchCommand::Spark(command) => spark::spark(command),
        BenchCommand::Tags(args) => tags::tags(&args),
        BenchCommand::WorstPeer(args) => worst_peer::worst_peer(&args),
        BenchCommand::Receive(args) => receive::receive(&args),
    }
}
