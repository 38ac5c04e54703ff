//! The command line. Each command is a module; none decides anything about scheduling. It is a library so that a program with
//! policies of its own has all of it (`examples/policy`).
#![forbid(unsafe_code)]

// In every module these stand for those of std, which panic when a pipe is closed or a disk is full.
#[macro_use(eprintln, print, println)]
extern crate weir_console;

mod commands;
#[cfg(test)]
mod tests;

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use weir_console::{Failure, terminal};
use weir_results::VERSION;
use weir_settings::{arguments, logging};

/// Schedules the network for data-parallel jobs: simulated, live, and side by side.
#[derive(Parser)]
#[command(name = "weir", version = VERSION, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a workload through the simulator under one or more policies
    Sim(commands::sim::SimArgs),
    /// Move flows through a network packet by packet, under one or more transports
    Packet(commands::packet::PacketArgs),
    /// Move a workload's real bytes over shaped links, and simulate it beside
    Live(commands::live::LiveArgs),
    /// Show, make and convert workloads
    #[command(subcommand)]
    Trace(commands::trace::TraceCommand),
    /// List the policies
    Policies,
    /// Tag what this host's TCP connections send with priorities for switches, by bytes sent
    Tag(commands::tag::TagArgs),
    /// Mark packets (ECN) at a port of this machine, where a queue is long
    Mark(commands::tag::MarkArgs),
    /// Run a command whose TCP connections are tagged by a size and a deadline
    Run(commands::tag::RunArgs),
    /// Find thresholds between the priority levels of a switch, by theory
    Thresholds(commands::thresholds::ThresholdsArgs),
    /// Rebuild figures and tables of papers
    #[command(subcommand)]
    Experiment(commands::experiment::ExperimentCommand),
    /// Check and show settings of daemons
    #[command(subcommand)]
    Config(commands::config::ConfigCommand),
    /// Run the controller between sites: orders and paths for relays
    Controller(commands::controller::ControllerArgs),
    /// Run the coordinator: plans for all agents
    Coordinator(commands::coordinator::CoordinatorArgs),
    /// Run a host's agent: holds blocks and serves them at the planned rates
    Agent(commands::daemons::AgentArgs),
    /// Run a relay: takes flows of its site to other sites
    Relay(commands::relay::RelayArgs),
    /// Run a coordinator and a few agents in this process, for a first look
    Up(commands::up::UpArgs),
    /// Declare a coflow and print its id
    Register(commands::blocks::RegisterArgs),
    /// Put files as blocks of a coflow
    Put(commands::blocks::PutArgs),
    /// Get a block of a coflow into a file
    Get(commands::blocks::GetArgs),
    /// Copy a file of another host, in one go
    Cp(commands::blocks::CpArgs),
    /// Say that no more flows will join a coflow
    Seal(commands::blocks::CoflowArgs),
    /// End a coflow: its blocks go, and what became of it is printed
    Unregister(commands::blocks::CoflowArgs),
    /// List the blocks of a coflow, or the live coflows
    List(commands::blocks::ListArgs),
    /// Say what a coflow waits for
    Why(commands::blocks::CoflowArgs),
    /// Show what is moving, and what each coflow waits for
    Status(commands::status::StatusArgs),
    /// List the hosts: those that are there, and those that were
    Hosts(commands::hosts::HostsArgs),
    /// Have a host take no more blocks, before it is stopped
    Drain(commands::hosts::DrainArgs),
    /// Have a host listed no longer that was taken away for good
    Forget(commands::hosts::ForgetArgs),
    /// Measure on this machine
    Bench(weir_bench::BenchArgs),
    /// Put and get blocks as a driver says on standard input (used by `weir live`)
    #[command(hide = true)]
    Task(commands::daemons::TaskArgs),
}

impl Command {
    /// Which lines of the log to show, where it says.
    fn log_lines(&self) -> Option<&str> {
        let log = match self {
            Command::Coordinator(args) => &args.log,
            Command::Agent(args) => &args.log,
            Command::Relay(args) => &args.log,
            Command::Controller(args) => args.log(),
            _ => return None,
        };
        log.lines.as_deref()
    }
}

/// Does what the arguments of the process say. Policies of other crates have to be
/// [added](weir_policy::add_policies) before.
pub fn main() -> ExitCode {
    let (Cli { command }, warnings) = arguments::parse::<Cli>();
    if let Err(failure) = logging::start(command.log_lines()) {
        return failed(failure);
    }
    warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    // These end on signals by themselves.
    let is_daemon = matches!(
        command,
        Command::Controller(_)
            | Command::Coordinator(_)
            | Command::Agent(_)
            | Command::Relay(_)
            | Command::Tag(_)
            | Command::Mark(_)
            | Command::Run(_)
            | Command::Up(_)
            | Command::Task(_)
    );
    let has_processes = matches!(
        command,
        Command::Live(_)
            | Command::Bench(_)
            | Command::Experiment(commands::experiment::ExperimentCommand::Live(_))
    );
    // The reader of a daemon's output may stop, and processes that were started have to be ended.
    if is_daemon || has_processes {
        terminal::go_on_unread();
    }
    let needs_bed = matches!(
        command,
        Command::Live(_) | Command::Experiment(commands::experiment::ExperimentCommand::Live(_))
    ) || matches!(&command, Command::Packet(args) if args.is_live())
        || matches!(&command, Command::Bench(args) if args.needs_bed());
    if needs_bed {
        // Before any thread exists: a normal user gets the rights for namespaces here or not at all, and
        // the command then says so, or what it does instead.
        let _ = weir_testbed::enter_user_namespace();
    }
    if !is_daemon && let Err(error) = weir_testbed::live::end_on_signals() {
        eprintln!("weir: signals would leave processes and unfinished files behind: {error}");
    }
    let result = match command {
        Command::Live(args) => commands::live::live(&args),
        Command::Sim(args) => commands::sim::sim(args),
        Command::Packet(args) => commands::packet::packet(&args),
        Command::Trace(command) => commands::trace::trace(command),
        Command::Policies => commands::policies::policies(),
        Command::Tag(args) => commands::tag::tag(&args),
        Command::Mark(args) => commands::tag::mark(&args),
        Command::Run(args) => commands::tag::run_command(&args),
        Command::Thresholds(args) => commands::thresholds::thresholds(args),
        Command::Experiment(command) => commands::experiment::experiment(command),
        Command::Config(command) => commands::config::config(command),
        Command::Controller(args) => commands::controller::controller(args),
        Command::Coordinator(args) => commands::coordinator::coordinator(args),
        Command::Agent(args) => commands::daemons::agent(args),
        Command::Relay(args) => commands::relay::relay(args),
        Command::Up(args) => commands::up::up(args),
        Command::Register(args) => commands::blocks::register(args),
        Command::Put(args) => commands::blocks::put(args),
        Command::Get(args) => commands::blocks::get(args),
        Command::Cp(args) => commands::blocks::cp(args),
        Command::Seal(args) => commands::blocks::seal(args),
        Command::Unregister(args) => commands::blocks::unregister(args),
        Command::List(args) => commands::blocks::list(args),
        Command::Why(args) => commands::blocks::why(args),
        Command::Status(args) => commands::status::status(&args),
        Command::Hosts(args) => commands::hosts::hosts(args),
        Command::Drain(args) => commands::hosts::drain(args),
        Command::Forget(args) => commands::hosts::forget(args),
        Command::Bench(command) => weir_bench::bench(command),
        Command::Task(args) => commands::daemons::task(args),
    };
    result.map_or_else(failed, |()| ExitCode::SUCCESS)
}

/// Says what went wrong, in one line.
fn failed(failure: Failure) -> ExitCode {
    let (message, code) = match failure {
        Failure::Run(error) => (format!("{error:#}"), 1),
        Failure::Input(message) => (message, 2),
        Failure::Unanswered(error) => (format!("{error:#}"), 3),
        Failure::Refused(error) => (format!("{error:#}"), 4),
        Failure::Ended(code) => return ExitCode::from(code),
    };
    logging::complain(&message);
    ExitCode::from(code)
}
