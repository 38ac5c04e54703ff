//! `weir hosts`, `weir drain` and `weir forget`: which hosts there are, having one take no more blocks before it is stopped, and
//! having it listed no longer.

use super::blocks::{Peers, print_json, run, said};
use super::daemons::label;
use super::status::plain_table;
use anyhow::anyhow;
use clap::Args;
use serde::Serialize;
use std::time::{Duration, Instant};
use weir_client::{Client, Error, Host, StatusReply};
use weir_console::Failure;
use weir_model::Rate;
use weir_results::printable;

/// How often it is looked whether a host is empty.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Longest wait: a year.
const MOST_SECONDS: u64 = 365 * 24 * 3600;

#[derive(Args)]
pub(crate) struct HostsArgs {
    #[command(flatten)]
    peers: Peers,
    /// Only hosts that have this label; with several, all of them
    #[arg(long, value_name = "KEY=VALUE[,KEY=VALUE...]", value_delimiter = ',', value_parser = label)]
    label: Vec<String>,
}

#[derive(Args)]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    peers: Peers,
    /// The host, by name or number
    #[arg(value_name = "HOST")]
    host: Host,
    /// Have it take blocks again
    #[arg(long, conflicts_with = "wait")]
    undo: bool,
    /// Wait until the host holds no block and serves no flow, at most so long: then it can be stopped and nothing is lost
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(0..=MOST_SECONDS))]
    wait: Option<u64>,
}

#[derive(Args)]
pub(crate) struct ForgetArgs {
    #[command(flatten)]
    peers: Peers,
    /// The host, by name or number
    #[arg(value_name = "HOST")]
    host: Host,
}

#[derive(Serialize)]
struct Forgotten {
    host: String,
}

#[derive(Serialize)]
struct Hosts {
    hosts: Vec<HostRow>,
    hidden_hosts: u64,
}

#[derive(Serialize)]
struct HostRow {
    name: String,
    host: u32,
    /// `up`, `draining`, `drained` or `away`.
    state: &'static str,
    /// None: it is there.
    away_s: Option<f64>,
    data_address: String,
    up_bytes_per_s: f64,
    down_bytes_per_s: f64,
    blocks: u64,
    flows: u64,
    /// Empty: it is in none.
    rack: String,
    site: String,
    labels: Vec<String>,
}

impl HostRow {
    fn all(reply: &StatusReply) -> Vec<HostRow> {
        let present = reply.agents.iter().map(|agent| HostRow {
            // Older coordinators say no names.
            name: if agent.name.is_empty() { agent.host.to_string() } else { agent.name.clone() },
            host: agent.host,
            state: match (agent.draining, agent.blocks + agent.flows) {
                (false, _) => "up",
                (true, 0) => "drained",
                (true, _) => "draining",
            },
            away_s: None,
            data_address: agent.data_address.clone(),
            up_bytes_per_s: agent.up_bytes_per_s,
            down_bytes_per_s: agent.down_bytes_per_s,
            blocks: agent.blocks,
            flows: agent.flows,
            rack: agent.rack.clone(),
            site: agent.site.clone(),
            labels: agent.labels.clone(),
        });
        let away = reply.away.iter().map(|away| HostRow {
            name: away.name.clone(),
            host: away.host,
            state: "away",
            away_s: Some(away.for_s),
            data_address: String::new(),
            up_bytes_per_s: 0.0,
            down_bytes_per_s: 0.0,
            blocks: 0,
            flows: 0,
            rack: String::new(),
            site: String::new(),
            labels: Vec::new(),
        });
        let mut rows: Vec<HostRow> = present.chain(away).collect();
        rows.sort_by(|a, b| (&a.name, a.host).cmp(&(&b.name, b.host)));
        rows
    }

    fn cells(&self) -> [String; 8] {
        let rate = |bytes_per_s: f64| match bytes_per_s {
            0.0 => String::new(),
            _ => Rate::from_bytes_per_sec(bytes_per_s).to_string(),
        };
        let names = [self.site.as_str(), self.rack.as_str()].into_iter().filter(|name| !name.is_empty());
        let place = names.collect::<Vec<_>>().join(", ");
        let state = match self.away_s {
            Some(secs) => format!("away for {secs:.0} s"),
            None => self.state.to_owned(),
        };
        [
            printable(&self.name),
            state,
            printable(&self.data_address),
            printable(&place),
            rate(self.up_bytes_per_s),
            rate(self.down_bytes_per_s),
            self.blocks.to_string(),
            self.flows.to_string(),
        ]
    }
}

pub(crate) fn hosts(args: HostsArgs) -> Result<(), Failure> {
    run(async {
        let client = args.peers.with_coordinator().await?;
        let status = client.status().await.map_err(said)?;
        let (mut hosts, hidden_hosts) = (HostRow::all(&status), status.hidden_agents);
        let has_all = |host: &HostRow| args.label.iter().all(|label| host.labels.contains(label));
        hosts.retain(has_all);
        if args.peers.json {
            return print_json(&Hosts { hosts, hidden_hosts });
        }
        if hosts.is_empty() {
            println!(
                "{}",
                if args.label.is_empty() { "no host has come yet" } else { "no host has such labels" }
            );
            return Ok(());
        }
        let heads = ["host", "state", "data address", "site, rack", "up", "down", "blocks", "flows"];
        println!("{}", plain_table(heads, &[4, 5, 6, 7], hosts.iter().map(HostRow::cells)));
        if hidden_hosts > 0 {
            println!("{hidden_hosts} more hosts have no room in the coordinator's answer");
        }
        Ok(())
    })
}

#[derive(Serialize)]
struct Drained {
    host: String,
    draining: bool,
    blocks: u64,
    flows: u64,
}

pub(crate) fn drain(args: DrainArgs) -> Result<(), Failure> {
    run(async {
        let client = args.peers.with_coordinator().await?;
        let reply = client.drain(&args.host, args.undo).await.map_err(said)?;
        let (mut blocks, mut flows) = (reply.blocks, reply.flows);
        if let Some(secs) = args.wait {
            (blocks, flows) = wait_until_empty(&client, &reply.name, Duration::from_secs(secs)).await?;
        }
        if args.peers.json {
            return print_json(&Drained { host: reply.name, draining: !args.undo, blocks, flows });
        }
        let host = printable(&reply.name);
        match (args.undo, blocks, flows) {
            (true, ..) => println!("host {host} takes blocks again"),
            (false, 0, 0) => {
                println!("host {host} takes no more blocks, holds none and serves no flow: it can be stopped")
            }
            (false, ..) => println!(
                "host {host} takes no more blocks; blocks that it holds: {blocks}, flows that it serves: {flows}, until their coflows end"
            ),
        }
        Ok(())
    })
}

pub(crate) fn forget(args: ForgetArgs) -> Result<(), Failure> {
    run(async {
        let client = args.peers.with_coordinator().await?;
        let host = client.forget(&args.host).await.map_err(said)?;
        if args.peers.json {
            return print_json(&Forgotten { host });
        }
        println!("host {} is listed no longer; should its agent come back, it joins anew", printable(&host));
        Ok(())
    })
}

/// Waits until a host that is drained is empty. While its agent or the coordinator is away it cannot be known whether it is.
async fn wait_until_empty(client: &Client, name: &str, limit: Duration) -> Result<(u64, u64), Failure> {
    let end = Instant::now() + limit;
    let name_shown = printable(name);
    loop {
        let last = match client.status().await {
            Ok(status) => match status.agents.iter().find(|agent| agent.name == name) {
                Some(agent) if !agent.draining => {
                    let undone =
                        anyhow!("host {name_shown} takes blocks again: another call took the drain back");
                    return Err(Failure::Refused(undone));
                }
                Some(agent) if agent.blocks == 0 && agent.flows == 0 => return Ok((0, 0)),
                Some(agent) => {
                    format!(
                        "it holds {} blocks still, serves {} flows, and goes on being drained",
                        agent.blocks, agent.flows
                    )
                }
                None if status.hidden_agents > 0 => "it is not among the hosts that are listed".to_owned(),
                None => "its agent is away, with whatever it held".to_owned(),
            },
            // A coordinator that is being restarted is asked again until the time is over.
            Err(error @ (Error::Unreachable(_) | Error::TimeLimit)) => error.to_string(),
            Err(error) => return Err(said(error)),
        };
        if Instant::now() >= end {
            return Err(Failure::Unanswered(anyhow!(
                "host {name_shown}, after {} s: {last}",
                limit.as_secs()
            )));
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}
