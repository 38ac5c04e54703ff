//! `weir bench tags`: what programs in the kernel cost, and what remains of them.

#[cfg(feature = "ebpf")]
mod cost;
#[cfg(feature = "ebpf")]
mod rounds;

use clap::Args;
use weir_console::Failure;
use weir_model::Rate;

/// What programs in the kernel cost, and what remains of them.
///
/// cost: one TCP stream between two hosts of a test bed, without programs and with them, in turn. Counted is the processor time of
/// the whole machine, so that nothing else should run. No packet is marked: what marks do to a stream is no cost of the program.
///
/// rounds: `weir tag`, `weir mark` and `weir agent --tag` are started on hosts of a test bed and ended, each other one by SIGKILL.
/// After each round the programs and tables of the kernel, congestion controls, queueing disciplines and all settings of TCP and IP
/// must be what they were before.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct TagsArgs {
    /// Rounds of processes that are ended; 0: none
    #[arg(long, value_name = "N", default_value_t = 100)]
    rounds: u32,
    /// Measurements of each kind of the cost; 0: none
    #[arg(long, value_name = "N", default_value_t = 10)]
    runs: u32,
    /// How long a measurement takes
    #[arg(long, value_name = "S", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Rate of the hosts' links
    #[arg(long, value_name = "RATE", default_value = "10gbit")]
    link_rate: Rate,
}

#[cfg(feature = "ebpf")]
pub(crate) fn tags(args: &TagsArgs) -> Result<(), Failure> {
    if args.runs > 0 {
        cost::print(args)?;
    }
    if args.rounds > 0 {
        rounds::print(args)?;
    }
    Ok(())
}

#[cfg(not(feature = "ebpf"))]
pub(crate) fn tags(args: &TagsArgs) -> Result<(), Failure> {
    let TagsArgs { rounds: _, runs: _, seconds: _, link_rate: _ } = args;
    weir_console::check_built("weir bench tags")
}
