//! `weir status`: what is moving, and what each coflow waits for.

mod rows;
mod sites;

pub(crate) use rows::{CoflowStatusRow, RecordRow, plain_table};

use super::blocks::{Peers, reach, silent};
use clap::Args;
use rows::Status;
use std::io::IsTerminal;
use std::time::Duration;
use weir_client::{Address, Client, ClientConfig};
use weir_console::Failure;

#[derive(Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    peers: Peers,
    /// The controller of relays between sites (`weir controller`) instead
    #[arg(long, value_name = "IP:PORT", conflicts_with_all = ["coordinator", "agent"])]
    controller: Option<Address>,
    /// Show again every second until interrupted; with --json, a document each second
    #[arg(long)]
    watch: bool,
}

/// How often it is shown again.
const EVERY: Duration = Duration::from_secs(1);
enum Peer {
    Coordinator(Address, Box<Client>),
    Controller(Address),
}

impl Peer {
    async fn new(args: &StatusArgs) -> Result<Peer, Failure> {
        if let Some(controller) = &args.controller {
            return Ok(Peer::Controller(controller.clone()));
        }
        let address = args.peers.coordinator_address().await?;
        let config = ClientConfig { coordinator: Some(address.clone()), agent: None, host: 0 };
        Ok(Peer::Coordinator(address, Box::new(Client::new(config))))
    }

    /// What it knows, as text or JSON.
    async fn ask(&self, json: bool) -> Result<String, Failure> {
        match self {
            Peer::Coordinator(address, client) => {
                reach("coordinator", address).await?;
                let reply = client.status().await.map_err(|error| other("coordinator", address, &error))?;
                let status = Status::of(&reply);
                Ok(if json { serde_json::to_string(&status)? + "\n" } else { status.text() })
            }
            Peer::Controller(address) => {
                reach("controller", address).await?;
                let status = sites::ask(address).await?;
                Ok(if json { sites::json(&status)? + "\n" } else { sites::render(&status) })
            }
        }
    }
}

pub(crate) fn status(args: &StatusArgs) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (peer, json) = (Peer::new(args).await?, args.peers.json);
        let mut text = peer.ask(json).await?;
        if !args.watch {
            print!("{text}");
            return Ok(());
        }
        loop {
            if std::io::stdout().is_terminal() && !json {
                // Clear the screen, cursor home.
                print!("\x1b[2J\x1b[H");
            }
            if json {
                print!("{text}")
            } else {
                println!("{text}")
            }
            tokio::time::sleep(EVERY).await;
            // A process that answered once may be starting again.
            text = match peer.ask(json).await {
                Ok(text) => text,
                Err(failure @ (Failure::Input(_) | Failure::Ended(_))) => return Err(failure),
                Err(Failure::Unanswered(error) | Failure::Refused(error) | Failure::Run(error)) => {
                    let text = format!("{error:#}; trying again");
                    if json { serde_json::json!({ "error": text }).to_string() + "\n" } else { text }
                }
            };
        }
    })
}

/// Why what listens at an address did not answer the question.
fn other(who: &str, address: &Address, error: &weir_client::Error) -> Failure {
    use weir_client::Error::{Refused, Unreachable};
    match error {
        // It speaks Weir's protocol and does not know this call.
        Refused(reason) if reason.is_empty() => Failure::Refused(anyhow::anyhow!(
            "what listens at {address} is another daemon of Weir and no {who}: give --{who} the address that it says in its log"
        )),
        Unreachable(reason) => Failure::Unanswered(anyhow::anyhow!(
            "what listens at {address} does not speak as a {who} does ({reason}): give --{who} the address that it says in its log"
        )),
        error => silent(who, address, error),
    }
}
