//! Runs the world under many seeds, and says which fail.

mod scale_command;

use clap::{Parser, Subcommand};
use scale_command::ScaleArguments;
use std::process::ExitCode;
use std::time::Instant;
use weir_world::{Failing, MAX_BLOCK_BYTES, Settings, run_seeds, shrink};

/// The live system's machines in virtual time, under faults that seeds draw
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// The seed of the first run; those that follow have the next ones
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How many runs, each with a seed of its own
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Number of hosts, each with an agent
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    hosts: Option<u32>,
    /// Relays at each of two sites; without it, none in two seeds of eleven
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=100))]
    relays: Option<u32>,
    /// Servers of the controller; 0: what relays are told is drawn
    #[arg(long)]
    controllers: Option<u32>,
    /// Number of coflows that are drawn
    #[arg(long)]
    coflows: Option<u32>,
    /// A policy; without one, each seed takes the next of several
    #[arg(long)]
    policy: Option<String>,
    /// Flows of a coflow, at most
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    flows: Option<u32>,
    /// Bytes of a block, at most
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=MAX_BLOCK_BYTES))]
    block_bytes: Option<u64>,
    /// Machines are lost too, with what was not synced; without it, in one seed of three
    #[arg(long)]
    loses_machines: Option<bool>,
    /// Half of the faults are kills of the coordinator; without it, in one seed of seven
    #[arg(long)]
    kills_coordinators: Option<bool>,
    /// Puts are durable; without it, in half of the seeds that lose machines
    #[arg(long)]
    durable: Option<bool>,
    /// Faults that do not happen, by their numbers
    #[arg(long, value_delimiter = ',')]
    skip_faults: Vec<u64>,
    /// Draw no faults: nothing fails and nothing is slow
    #[arg(long)]
    no_faults: bool,
    /// Print every event with its virtual time
    #[arg(long)]
    trace: bool,
    /// Plant each of the known defects in turn, or one by its name, and say how many seeds it takes to find it
    #[cfg(feature = "planted")]
    #[arg(long, value_name = "NAME")]
    planted: Option<Option<String>>,
}

#[derive(Subcommand)]
enum Command {
    Scale(ScaleArguments),
}

impl Arguments {
    fn settings(&self, seed: u64) -> Settings {
        let usual = Settings::of_seed(seed);
        Settings {
            hosts: self.hosts.unwrap_or(usual.hosts),
            relays: self.relays.unwrap_or(usual.relays),
            controllers: self.controllers.unwrap_or(usual.controllers),
            coflows: self.coflows.unwrap_or(usual.coflows),
            policy: self.policy.clone().unwrap_or(usual.policy),
            flows: self.flows.unwrap_or(usual.flows),
            block_bytes: self.block_bytes.unwrap_or(usual.block_bytes),
            loses_machines: self.loses_machines.unwrap_or(usual.loses_machines),
            kills_coordinators: self.kills_coordinators.unwrap_or(usual.kills_coordinators),
            durable: self.durable.unwrap_or(usual.durable),
            skip_faults: self.skip_faults.iter().copied().collect(),
            faults: usual.faults.filter(|_| !self.no_faults),
            trace: self.trace,
            ..usual
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(Command::Scale(arguments)) = &arguments.command {
        return scale_command::scale(arguments);
    }
    if let Some(Err(error)) = arguments.policy.as_deref().map(weir_policy::find) {
        eprintln!("weir-world: {error}");
        return ExitCode::from(2);
    }
    let seeds = arguments.seed..arguments.seed.saturating_add(arguments.seeds);
    #[cfg(feature = "planted")]
    if let Some(name) = &arguments.planted {
        return find_planted(name.as_deref(), seeds);
    }
    let began = Instant::now();
    let outcome = run_seeds(
        seeds,
        |seed| arguments.settings(seed),
        |seed, violation| println!("seed {seed}: {violation}"),
    );
    let done = &outcome.done;
    println!(
        "{} seeds in {:.1} s: {} events, {} messages, {} gets by {} transfers, {:.0} MB by relays, {} faults ({} machines lost), {:.0} s of \
         virtual time, \
         digest {:016x}; {} failed",
        arguments.seeds,
        began.elapsed().as_secs_f64(),
        done.events,
        done.messages,
        done.gets,
        done.transfers,
        done.relayed as f64 / 1e6,
        done.faults,
        done.machines_lost,
        done.took.as_secs(),
        done.digest,
        outcome.failed.len()
    );
    let Some((seed, violation)) = outcome.failed.into_iter().next() else { return ExitCode::SUCCESS };
    if !arguments.trace {
        let failing = Failing { seed, settings: arguments.settings(seed), violation };
        println!("at commit {}, looking for a smaller run that fails so", env!("WEIR_COMMIT"));
        let smaller = shrink(failing);
        let events = smaller.violation.report.events;
        println!("weir-world {} --trace\n{events} events: {}", smaller.arguments(), smaller.violation);
    }
    ExitCode::FAILURE
}

#[cfg(feature = "planted")]
fn find_planted(name: Option<&str>, seeds: std::ops::Range<u64>) -> ExitCode {
    let is_wanted =
        |defect: &weir_core::planted::Defect| name.is_none_or(|name| format!("{defect:?}") == name);
    let all: Vec<_> = weir_core::planted::ALL.into_iter().filter(is_wanted).collect();
    if all.is_empty() {
        eprintln!("weir-world: there is no such defect; known are {:?}", weir_core::planted::ALL);
        return ExitCode::from(2);
    }
    let mut needed: Vec<u64> = Vec::new();
    for &defect in &all {
        match weir_world::find(defect, seeds.clone()) {
            Some((tried, violation)) => {
                let what: String = violation.to_string().chars().take(100).collect();
                println!("{defect:?}: found by {tried} seeds: {what}");
                needed.push(tried);
            }
            None => println!("{defect:?}: NOT FOUND by {} seeds", seeds.end - seeds.start),
        }
    }
    needed.sort_unstable();
    let (median, worst) = (needed.get(needed.len() / 2), needed.last());
    println!(
        "{} of {} found; seeds needed: median {}, worst {}",
        needed.len(),
        all.len(),
        median.unwrap_or(&0),
        worst.unwrap_or(&0)
    );
    if needed.len() == all.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
