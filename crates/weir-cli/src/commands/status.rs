//! `weir status`: what is moving, and what each coflow waits for.

mod sites;

use crate::Failure;
use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use std::io::IsTerminal;
use std::time::Duration;
use weir_client::{Address, AdmissionState, Client, ClientConfig, CoflowRecord, StatusReply};
use weir_model::{Bytes, Rate};

#[derive(Args)]
pub(crate) struct StatusArgs {
    /// The coordinator
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:7070")]
    coordinator: Address,
    /// The controller of relays between sites (`weir controller`) instead
    #[arg(long, value_name = "IP:PORT", conflicts_with = "coordinator")]
    controller: Option<Address>,
    /// Show again every second until interrupted
    #[arg(long)]
    watch: bool,
}

/// How often it is shown again.
const EVERY: Duration = Duration::from_secs(1);
/// How long a connection may take until the client, which is more patient, is left to it.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);

/// Who is asked.
enum Peer {
    Coordinator(Address, Box<Client>),
    Controller(Address),
}

impl Peer {
    fn new(args: &StatusArgs) -> Peer {
        if let Some(controller) = &args.controller {
            return Peer::Controller(controller.clone());
        }
        let address = args.coordinator.clone();
        let config = ClientConfig { coordinator: Some(address.clone()), agent: None, host: 0 };
        Peer::Coordinator(address, Box::new(Client::new(config)))
    }

    /// What it knows, as text.
    async fn ask(&self) -> Result<String, Failure> {
        match self {
            Peer::Coordinator(address, client) => {
                reach("coordinator", address).await?;
                let reply = client.status().await.map_err(|error| other("coordinator", address, &error))?;
                Ok(render(&reply))
            }
            Peer::Controller(address) => {
                reach("controller", address).await?;
                Ok(sites::render(&sites::ask(address).await?))
            }
        }
    }
}

/// Finds out at once, and in the words of the operating system, that nobody can be reached: a client tries for longer,
/// because what it asks may be starting.
async fn reach(who: &str, address: &Address) -> Result<(), Failure> {
    let connecting = tokio::net::TcpStream::connect(address.as_str());
    match tokio::time::timeout(CONNECT_LIMIT, connecting).await {
        Ok(Err(error)) => Err(silent(who, address, &error)),
        Ok(Ok(_)) | Err(_) => Ok(()),
    }
}

pub(crate) fn status(args: &StatusArgs) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let peer = Peer::new(args);
        let mut text = peer.ask().await?;
        if !args.watch {
            print!("{text}");
            return Ok(());
        }
        loop {
            if std::io::stdout().is_terminal() {
                // Clear the screen, cursor home.
                print!("\x1b[2J\x1b[H");
            }
            println!("{text}");
            tokio::time::sleep(EVERY).await;
            // Who answered once may be starting again.
            text = match peer.ask().await {
                Ok(text) => text,
                Err(Failure::Run(error)) => format!("{error:#}; trying again"),
                Err(failure) => return Err(failure),
            };
        }
    })
}

/// Why what listens at an address did not answer the question.
fn other(who: &str, address: &Address, error: &weir_client::Error) -> Failure {
    use weir_client::Error::{Refused, Unreachable};
    match error {
        // It speaks the protocol and does not know the question.
        Refused(reason) if reason.is_empty() => Failure::Run(anyhow::anyhow!(
            "what listens at {address} is another daemon of Weir and no {who}: give --{who} the address that it says in its log"
        )),
        Unreachable(reason) => Failure::Run(anyhow::anyhow!(
            "what listens at {address} does not speak as a {who} does ({reason}): give --{who} the address that it says in its log"
        )),
        error => silent(who, address, error),
    }
}

fn silent(who: &str, address: &Address, error: &dyn std::error::Error) -> Failure {
    Failure::Run(anyhow::anyhow!("no {who} answers at {address}: {error}"))
}

/// What became of a record's deadline; nothing without one.
fn deadline(record: &CoflowRecord) -> String {
    let seconds = record.deadline_ms as f64 / 1e3;
    match (record.deadline_ms, record.admission(), record.met) {
        (0, ..) => String::new(),
        (_, AdmissionState::Refused, _) => format!(", refused for its deadline of {seconds:.3} s"),
        (_, _, true) => format!(", deadline of {seconds:.3} s met"),
        (_, _, false) => format!(", deadline of {seconds:.3} s missed"),
    }
}

fn render(reply: &StatusReply) -> String {
    let flows: u64 = reply.coflows.iter().map(|coflow| coflow.live_flows).sum();
    let mut text = format!(
        "policy {}, {} agents, {} live coflows, {flows} live flows\n",
        reply.policy,
        reply.agents.len(),
        reply.coflows.len() as u64 + reply.hidden_coflows
    );
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(["coflow", "name", "flows left", "done", "bytes left", "rate", "age s", "waits for"]);
    for column in [0, 2, 3, 4, 5, 6] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for coflow in &reply.coflows {
        table.add_row([
            coflow.coflow.to_string(),
            crate::output::printable(&coflow.name),
            coflow.live_flows.to_string(),
            coflow.done_flows.to_string(),
            Bytes(coflow.bytes_left).to_string(),
            if coflow.admission() == AdmissionState::Refused {
                "refused".to_owned()
            } else if coflow.bypassed {
                "bypassed".to_owned()
            } else {
                Rate::from_bytes_per_sec(coflow.rate_bytes_per_s).to_string()
            },
            format!("{:.1}", coflow.age_s),
            coflow.waits_for.clone(),
        ]);
    }
    if reply.hidden_coflows > 0 {
        text.push_str(&format!("{} more live coflows are not listed\n", reply.hidden_coflows));
    }
    if !reply.coflows.is_empty() {
        text.push_str(&format!("{table}\n"));
    }
    for agent in &reply.agents {
        let [sent, received] = [agent.foreign_sent_per_s, agent.foreign_received_per_s];
        if sent > 0.0 || received > 0.0 {
            let [sent, received] = [sent, received].map(Rate::from_bytes_per_sec);
            text.push_str(&format!("host {}: foreign traffic {sent} up, {received} down\n", agent.host));
        }
    }
    for record in &reply.completed {
        text.push_str(&format!(
            "completed {} {}: {} flows, {} in {:.3} s{}\n",
            record.coflow,
            crate::output::printable(&record.name),
            record.flows,
            Bytes(record.bytes),
            record.cct_s,
            deadline(record)
        ));
    }
    text
}
