//! `weir bench`: measurements whose results are ratios within one run.

mod loopback;
mod receive;

use crate::Failure;
use clap::Subcommand;

#[derive(Subcommand)]
pub(crate) enum BenchCommand {
    /// Unscheduled throughput over loopback beside that of iperf3
    Loopback(loopback::LoopbackArgs),
    /// The receiving process of `weir bench loopback`
    #[command(hide = true)]
    Receive(receive::ReceiveArgs),
}

pub(crate) fn bench(command: BenchCommand) -> Result<(), Failure> {
    match command {
        BenchCommand::Loopback(args) => loopback::loopback(&args),
        BenchCommand::Receive(args) => receive::receive(&args),
    }
}
