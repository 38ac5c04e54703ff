//! `weir list` and `weir why`: which blocks there are, and what a coflow waits for.

use super::coflows::CoflowArgs;
use super::peers::{Peers, coflow_of, coflow_or_refuse, run, said};
use super::{id_as_text, print_json};
use crate::commands::status::{CoflowStatusRow, RecordRow, plain_table};
use clap::Args;
use serde::Serialize;
use weir_client::BlockHolders;
use weir_console::Failure;
use weir_model::Bytes;
use weir_results::printable;

#[derive(Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    peers: Peers,
    /// Id of the coflow whose blocks are listed; WEIR_COFLOW unless said; without one, live coflows are listed
    coflow: Option<u64>,
    /// List the live coflows, though WEIR_COFLOW is set
    #[arg(long, conflicts_with = "coflow")]
    coflows: bool,
}

#[derive(Serialize)]
struct Blocks {
    #[serde(serialize_with = "id_as_text")]
    coflow: u64,
    ended: bool,
    blocks: Vec<BlockRow>,
}

#[derive(Serialize)]
struct BlockRow {
    block: String,
    bytes: u64,
    holders: Vec<HolderRow>,
    hidden_holders: u64,
}

#[derive(Serialize)]
struct HolderRow {
    host: u32,
    name: String,
    data_address: String,
}

impl BlockRow {
    fn of(block: BlockHolders) -> BlockRow {
        let BlockHolders { block, holders, hidden_holders } = block;
        BlockRow {
            block,
            bytes: holders.first().map_or(0, |holder| holder.size),
            holders: holders
                .into_iter()
                .map(|holder| HolderRow {
                    host: holder.host,
                    // Older coordinators say no names.
                    name: if holder.host_name.is_empty() {
                        holder.host.to_string()
                    } else {
                        holder.host_name
                    },
                    data_address: holder.data_address,
                })
                .collect(),
            hidden_holders,
        }
    }

    fn hosts(&self) -> String {
        let mut hosts: Vec<String> = self.holders.iter().map(|holder| printable(&holder.name)).collect();
        if self.hidden_holders > 0 {
            hosts.push(format!("and {} more", self.hidden_holders));
        }
        hosts.join(", ")
    }
}

#[derive(Serialize)]
struct Coflows {
    coflows: Vec<CoflowStatusRow>,
    hidden_coflows: u64,
}

pub(crate) fn list(args: ListArgs) -> Result<(), Failure> {
    run(async {
        let client = args.peers.with_coordinator().await?;
        let coflow = if args.coflows { None } else { coflow_of(args.coflow)? };
        let Some(coflow) = coflow else {
            let reply = client.status().await.map_err(said)?;
            let coflows: Vec<CoflowStatusRow> = reply.coflows.iter().map(CoflowStatusRow::of).collect();
            if args.peers.json {
                return print_json(&Coflows { coflows, hidden_coflows: reply.hidden_coflows });
            }
            print!("{}", CoflowStatusRow::table(&coflows, reply.hidden_coflows));
            return Ok(());
        };
        let blocks = client.blocks(coflow).await.map_err(said)?;
        let ended = blocks.is_none();
        let blocks: Vec<BlockRow> = blocks.into_iter().flatten().map(BlockRow::of).collect();
        if args.peers.json {
            return print_json(&Blocks { coflow, ended, blocks });
        }
        if ended {
            println!("coflow {coflow} has ended, or never was: it has no blocks");
        } else if !blocks.is_empty() {
            let rows =
                blocks.iter().map(|row| [printable(&row.block), Bytes(row.bytes).to_string(), row.hosts()]);
            println!("{}", plain_table(["block", "size", "hosts"], &[1], rows));
        }
        Ok(())
    })
}

/// What is known of one coflow.
#[derive(Serialize)]
struct Why {
    #[serde(serialize_with = "id_as_text")]
    coflow: u64,
    /// `live`, `complete`, `ended`, or `unknown`: no agent and no driver has told this coordinator of it yet.
    state: &'static str,
    live: Option<CoflowStatusRow>,
    record: Option<RecordRow>,
}

pub(crate) fn why(args: CoflowArgs) -> Result<(), Failure> {
    let coflow = coflow_or_refuse(args.coflow)?;
    run(async {
        let client = args.peers.with_coordinator().await?;
        let reply = client.status_of(coflow).await.map_err(said)?;
        let of_it = |other: u64| other == coflow;
        let live = reply.coflows.iter().find(|row| of_it(row.coflow)).map(CoflowStatusRow::of);
        let record = reply.completed.iter().find(|record| of_it(record.coflow)).map(RecordRow::of);
        let state = match (&live, &record) {
            (Some(_), _) => "live",
            (None, _) if reply.ended => "ended",
            (None, Some(_)) => "complete",
            (None, None) => "unknown",
        };
        let why = Why { coflow, state, live, record };
        if args.peers.json {
            return print_json(&why);
        }
        println!("{}", why.text(&reply.policy));
        Ok(())
    })
}

impl Why {
    fn text(&self, policy: &str) -> String {
        let coflow = self.coflow;
        let record = self.record.as_ref().map(|record| format!("coflow {}", record.text()));
        match (self.state, &self.live) {
            ("live", Some(row)) => row.text(policy),
            ("complete", _) => record.unwrap_or_default() + "; it has not been unregistered",
            ("ended", _) => {
                let record = record.map(|record| format!("\n{record}")).unwrap_or_default();
                format!("coflow {coflow} has ended, or never was: it has no blocks{record}")
            }
            _ => format!(
                "coflow {coflow} is of an earlier process of this coordinator, and no agent has told of it yet"
            ),
        }
    }
}
