//! What the controller of relays knows, as text.

use super::other;
use serde_json::json;
use std::collections::BTreeMap;
use weir_client::{Address, ControllerStatus, LinkState};
use weir_console::Failure;
use weir_model::{Bytes, Rate};
use weir_results::{percentile, table, text};

pub(super) async fn ask(controller: &Address) -> Result<ControllerStatus, Failure> {
    weir_client::controller_status(controller.clone())
        .await
        .map_err(|error| other("controller", controller, &error))
}

pub(super) fn render(status: &ControllerStatus) -> String {
    let mut sites: BTreeMap<u32, u32> = BTreeMap::new();
    status.relays.iter().for_each(|relay| *sites.entry(relay.site).or_default() += 1);
    let decision = match status.decision {
        0 => "no decision yet".to_owned(),
        number => format!("decision {number}, {} rounds, by {}", status.rounds, status.maker),
    };
    let mut page = format!("{} relays at {} sites; {decision}\n", status.relays.len(), sites.len());
    for coflow in &status.coflows {
        let place = if coflow.placed { "" } else { ", without a place yet" };
        let left = Bytes(coflow.bytes_left as u64);
        page.push_str(&format!("coflow {}: {left} left{place}\n", coflow.coflow));
    }
    if !status.links.is_empty() {
        let mut rows = table(&["from", "to", "samples", "mean", "p10", "p50", "p90"], 2);
        for link in &status.links {
            rows.add_row(row(link));
        }
        page.push_str(&format!("{}\n", text(&rows)));
    }
    page
}

/// The same as JSON.
pub(super) fn json(status: &ControllerStatus) -> Result<String, Failure> {
    let relays = status
        .relays
        .iter()
        .map(|relay| json!({ "relay": relay.relay, "site": relay.site, "data_address": relay.data_address }));
    let coflows = status.coflows.iter().map(|coflow| {
        // Ids are text, as everywhere.
        json!({ "coflow": coflow.coflow.to_string(), "bytes_left": coflow.bytes_left, "placed": coflow.placed })
    });
    let links = status.links.iter().map(|link| {
        json!({ "source_site": link.source_site, "destination_site": link.destination_site, "bytes_per_s": link.bytes_per_s })
    });
    let document = json!({
        "decision": status.decision,
        "rounds": status.rounds,
        "maker": status.maker,
        "relays": relays.collect::<Vec<_>>(),
        "coflows": coflows.collect::<Vec<_>>(),
        "links": links.collect::<Vec<_>>(),
    });
    Ok(document.to_string())
}

fn row(link: &LinkState) -> [String; 7] {
    let mut sorted = link.bytes_per_s.clone();
    sorted.sort_by(f64::total_cmp);
    let mean = sorted.iter().sum::<f64>() / sorted.len().max(1) as f64;
    let rate = |value: f64| Rate::from_bytes_per_sec(value).to_string();
    let at = |share: f64| rate(percentile(&sorted, share));
    [
        link.source_site.to_string(),
        link.destination_site.to_string(),
        sorted.len().to_string(),
        rate(mean),
        at(0.1),
        at(0.5),
        at(0.9),
    ]
}
