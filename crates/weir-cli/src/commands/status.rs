//! `weir status`: what is moving, and what each coflow waits for.

mod sites;

use crate::Failure;
use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
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

pub(crate) fn status(args: &StatusArgs) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let config = ClientConfig { coordinator: Some(args.coordinator.clone()), agent: None, host: 0 };
        let client = Client::new(config);
        loop {
            let text = match &args.controller {
                Some(controller) => sites::render(&sites::ask(controller).await?),
                None => render(
                    &client
                        .status()
                        .await
                        .map_err(|error| silent("coordinator", &args.coordinator, &error))?,
                ),
            };
            if args.watch {
                // Clear the screen, cursor home.
                print!("\x1b[2J\x1b[H");
            }
            print!("{text}");
            if !args.watch {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    })
}

fn silent(who: &str, address: &Address, error: &weir_client::Error) -> Failure {
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
