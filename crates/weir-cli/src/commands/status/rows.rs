//! What a coordinator knows, as text and as JSON.

use crate::commands::blocks::id_as_text;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use weir_client::{AdmissionState, CoflowRecord, CoflowStatus, StatusReply};
use weir_model::{Bytes, Rate};
use weir_results::printable;

#[derive(Serialize)]
pub(super) struct Status {
    policy: String,
    agents: Vec<AgentRow>,
    hidden_agents: u64,
    coflows: Vec<CoflowStatusRow>,
    hidden_coflows: u64,
    completed: Vec<RecordRow>,
    counters: std::collections::BTreeMap<String, u64>,
}

#[derive(Serialize)]
struct AgentRow {
    host: u32,
    name: String,
    data_address: String,
    blocks: u64,
    flows: u64,
    foreign_sent_bytes_per_s: f64,
    foreign_received_bytes_per_s: f64,
    /// Payload that its links are planned with.
    up_bytes_per_s: f64,
    down_bytes_per_s: f64,
}

#[derive(Serialize)]
pub(crate) struct CoflowStatusRow {
    #[serde(serialize_with = "id_as_text")]
    coflow: u64,
    name: String,
    live_flows: u64,
    done_flows: u64,
    bytes_left: u64,
    bytes_total: u64,
    rate_bytes_per_s: f64,
    age_s: f64,
    sealed: bool,
    bypassed: bool,
    /// `undecided`, `admitted`, `refused` or `no deadline`.
    admission: &'static str,
    refusal: String,
    waits_for: String,
}

/// A coflow that is complete or has ended.
#[derive(Serialize)]
pub(crate) struct RecordRow {
    #[serde(serialize_with = "id_as_text")]
    coflow: u64,
    name: String,
    flows: u64,
    bytes: u64,
    cct_s: f64,
    /// None: it had none.
    deadline_s: Option<f64>,
    admission: &'static str,
    /// None: it had no deadline.
    deadline_met: Option<bool>,
}

fn word(admission: AdmissionState) -> &'static str {
    match admission {
        AdmissionState::Undecided => "undecided",
        AdmissionState::Admitted => "admitted",
        AdmissionState::Refused => "refused",
        AdmissionState::NoDeadline => "no deadline",
    }
}

impl Status {
    pub(super) fn of(reply: &StatusReply) -> Status {
        Status {
            policy: reply.policy.clone(),
            agents: reply
                .agents
                .iter()
                .map(|agent| AgentRow {
                    host: agent.host,
                    name: agent.name.clone(),
                    data_address: agent.data_address.clone(),
                    blocks: agent.blocks,
                    flows: agent.flows,
                    foreign_sent_bytes_per_s: agent.foreign_sent_per_s,
                    foreign_received_bytes_per_s: agent.foreign_received_per_s,
                    up_bytes_per_s: agent.up_bytes_per_s,
                    down_bytes_per_s: agent.down_bytes_per_s,
                })
                .collect(),
            coflows: reply.coflows.iter().map(CoflowStatusRow::of).collect(),
            hidden_agents: reply.hidden_agents,
            hidden_coflows: reply.hidden_coflows,
            completed: reply.completed.iter().map(RecordRow::of).collect(),
            counters: reply.counters.iter().map(|counter| (counter.name.clone(), counter.value)).collect(),
        }
    }

    pub(super) fn text(&self) -> String {
        let flows: u64 = self.coflows.iter().map(|coflow| coflow.live_flows).sum();
        let mut text = format!(
            "policy {}, {} agents, {} live coflows, {flows} live flows\n",
            self.policy,
            self.agents.len() as u64 + self.hidden_agents,
            self.coflows.len() as u64 + self.hidden_coflows
        );
        text.push_str(&CoflowStatusRow::table(&self.coflows, self.hidden_coflows));
        for agent in &self.agents {
            let [sent, received] = [agent.foreign_sent_bytes_per_s, agent.foreign_received_bytes_per_s];
            if sent > 0.0 || received > 0.0 {
                let [sent, received] = [sent, received].map(Rate::from_bytes_per_sec);
                text.push_str(&format!(
                    "host {}: foreign traffic {sent} up, {received} down\n",
                    printable(&agent.name)
                ));
            }
        }
        for record in &self.completed {
            text.push_str(&format!("completed {}\n", record.text()));
        }
        text
    }
}

impl CoflowStatusRow {
    pub(crate) fn of(row: &CoflowStatus) -> CoflowStatusRow {
        CoflowStatusRow {
            coflow: row.coflow,
            name: row.name.clone(),
            live_flows: row.live_flows,
            done_flows: row.done_flows,
            bytes_left: row.bytes_left,
            bytes_total: row.bytes_total,
            rate_bytes_per_s: row.rate_bytes_per_s,
            age_s: row.age_s,
            sealed: row.sealed,
            bypassed: row.bypassed,
            admission: word(row.admission()),
            refusal: row.refusal.clone(),
            waits_for: row.waits_for.clone(),
        }
    }

    fn rate(&self) -> String {
        if self.admission == word(AdmissionState::Refused) {
            "refused".to_owned()
        } else if self.bypassed {
            "bypassed".to_owned()
        } else {
            Rate::from_bytes_per_sec(self.rate_bytes_per_s).to_string()
        }
    }

    /// A line for each, and how many more there are.
    pub(crate) fn table(rows: &[CoflowStatusRow], hidden: u64) -> String {
        let mut text = String::new();
        if hidden > 0 {
            text.push_str(&format!("{hidden} more live coflows are not listed\n"));
        }
        if rows.is_empty() {
            return text;
        }
        let header = ["coflow", "name", "flows left", "done", "bytes left", "rate", "age s", "waits for"];
        let cells = rows.iter().map(|row| {
            [
                row.coflow.to_string(),
                printable(&row.name),
                row.live_flows.to_string(),
                row.done_flows.to_string(),
                Bytes(row.bytes_left).to_string(),
                row.rate(),
                format!("{:.1}", row.age_s),
                row.waits_for.clone(),
            ]
        });
        text.push_str(&format!("{}\n", plain_table(header, &[0, 2, 3, 4, 5, 6], cells)));
        text
    }

    /// Several lines about one.
    pub(crate) fn text(&self, policy: &str) -> String {
        let name = if self.name.is_empty() { String::new() } else { format!(" ({})", printable(&self.name)) };
        let flows = format!("{} flows left, {} done", self.live_flows, self.done_flows);
        let bytes = format!("{} left of {}", Bytes(self.bytes_left), Bytes(self.bytes_total));
        let sealed = if self.sealed { ", sealed" } else { "" };
        let deadline = match self.admission {
            "no deadline" => String::new(),
            "refused" => format!("\ndeadline: refused ({})", self.refusal),
            admission => format!("\ndeadline: {admission}"),
        };
        format!(
            "coflow {}{name} is live under {policy}: {flows}, {bytes}, rate {}, {:.1} s old{sealed}\nwaits for: {}{deadline}",
            self.coflow,
            self.rate(),
            self.age_s,
            self.waits_for
        )
    }
}

impl RecordRow {
    pub(crate) fn of(record: &CoflowRecord) -> RecordRow {
        let has_deadline = record.deadline_ms > 0;
        RecordRow {
            coflow: record.coflow,
            name: record.name.clone(),
            flows: record.flows,
            bytes: record.bytes,
            cct_s: record.cct_s,
            deadline_s: has_deadline.then_some(record.deadline_ms as f64 / 1e3),
            admission: word(record.admission()),
            deadline_met: has_deadline.then_some(record.met),
        }
    }

    pub(crate) fn text(&self) -> String {
        let RecordRow { coflow, name, flows, bytes, cct_s, .. } = self;
        let bytes = Bytes(*bytes);
        format!("{coflow} {}: {flows} flows, {bytes} in {cct_s:.3} s{}", printable(name), self.deadline())
    }

    /// What became of its deadline; nothing without one.
    fn deadline(&self) -> String {
        let Some(seconds) = self.deadline_s else { return String::new() };
        if self.admission == word(AdmissionState::Refused) {
            return format!(", refused for its deadline of {seconds:.3} s");
        }
        let became = if self.deadline_met == Some(true) { "met" } else { "missed" };
        format!(", deadline of {seconds:.3} s {became}")
    }
}

/// A table without lines, some of whose columns are numbers.
pub(crate) fn plain_table<const N: usize>(
    header: [&str; N],
    numbers: &[usize],
    rows: impl Iterator<Item = [String; N]>,
) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(header);
    for &column in numbers {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.add_rows(rows);
    table
}
