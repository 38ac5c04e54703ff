//! `weir register`, `weir seal`, `weir unregister`: what a driver does.

use super::peers::{Peers, coflow_or_refuse, run, said};
use super::{id_as_text, print_json};
use crate::commands::status::RecordRow;
use clap::{Args, ValueEnum};
use serde::Serialize;
use weir_client::{CoflowOptions, Pattern};
use weir_console::Failure;

#[derive(Args)]
pub(crate) struct RegisterArgs {
    #[command(flatten)]
    peers: Peers,
    /// A name, for people
    #[arg(long, default_value = "")]
    name: String,
    /// Number of flows, if it is known: the coflow is planned once all were asked for
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    flows: u64,
    /// What its flows are
    #[arg(long, value_enum, default_value_t = PatternArg::Any)]
    pattern: PatternArg,
    /// Weight, for policies that know weights
    #[arg(long, default_value = "1", value_parser = weight)]
    weight: f64,
    /// Deadline, counted from its first get, for policies that admit coflows by deadline
    #[arg(long, value_name = "MS", default_value_t = 0, hide_default_value = true)]
    deadline_ms: u64,
    /// If its deadline cannot be met it stops, instead of moving as TCP has it
    #[arg(long, requires = "deadline_ms")]
    stop_if_refused: bool,
    /// Coflow of the same job that this one follows on; may be repeated
    #[arg(long, value_name = "COFLOW")]
    parent: Vec<u64>,
    /// How long the coflow is kept without a put, a get or a moving flow; the coordinator's (10 min) unless said. This command
    /// ends and does not renew the lease
    #[arg(long, value_name = "SECONDS", default_value_t = 0, hide_default_value = true)]
    lease: u64,
}

fn weight(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if value > 0.0 && value.is_finite() { Ok(value) } else { Err("not a finite number above 0".to_owned()) }
}

#[derive(Clone, Copy, ValueEnum)]
enum PatternArg {
    Any,
    Shuffle,
    Broadcast,
    Aggregation,
    AllToAll,
}

#[derive(Serialize)]
struct Registered {
    #[serde(serialize_with = "id_as_text")]
    coflow: u64,
}

pub(crate) fn register(args: RegisterArgs) -> Result<(), Failure> {
    let RegisterArgs { peers, name, flows, pattern, weight, deadline_ms, stop_if_refused, parent, lease } =
        args;
    let pattern = match pattern {
        PatternArg::Any => Pattern::Any,
        PatternArg::Shuffle => Pattern::Shuffle,
        PatternArg::Broadcast => Pattern::Broadcast,
        PatternArg::Aggregation => Pattern::Aggregation,
        PatternArg::AllToAll => Pattern::AllToAll,
    };
    let lease_ms = lease
        .checked_mul(1000)
        .ok_or_else(|| Failure::Input(format!("--lease {lease}: more seconds than a lease may have")))?;
    let options = CoflowOptions {
        name,
        flows,
        pattern: pattern.into(),
        weight,
        deadline_ms,
        stop_if_refused,
        parents: parent,
        lease_ms,
        ..CoflowOptions::default()
    };
    run(async {
        let coflow = peers.with_coordinator().await?.register(options).await.map_err(said)?;
        if peers.json {
            return print_json(&Registered { coflow });
        }
        println!("{coflow}");
        Ok(())
    })
}

/// A command about one coflow.
#[derive(Args)]
pub(crate) struct CoflowArgs {
    #[command(flatten)]
    pub(super) peers: Peers,
    /// Id of the coflow, as `weir register` printed it; WEIR_COFLOW unless said
    pub(super) coflow: Option<u64>,
}

pub(crate) fn seal(args: CoflowArgs) -> Result<(), Failure> {
    let coflow = coflow_or_refuse(args.coflow)?;
    run(async {
        args.peers.with_coordinator().await?.seal(coflow).await.map_err(said)?;
        if args.peers.json { print_json(&Registered { coflow }) } else { Ok(()) }
    })
}

#[derive(Serialize)]
struct Unregistered {
    #[serde(serialize_with = "id_as_text")]
    coflow: u64,
    record: Option<RecordRow>,
}

pub(crate) fn unregister(args: CoflowArgs) -> Result<(), Failure> {
    let coflow = coflow_or_refuse(args.coflow)?;
    run(async {
        let client = args.peers.with_coordinator().await?;
        let record = client.unregister(coflow).await.map_err(said)?.map(|record| RecordRow::of(&record));
        if args.peers.json {
            return print_json(&Unregistered { coflow, record });
        }
        match record {
            Some(record) => println!("coflow {}", record.text()),
            None => println!("coflow {coflow} had ended before, or is not known here"),
        }
        Ok(())
    })
}
