//! What a server says of the whole controller.

use super::core::ServerCore;
use std::collections::BTreeSet;
use weir_proto::v1;

impl ServerCore {
    /// What was known when relays were told rules last.
    pub fn status(&self) -> v1::ControllerStatus {
        let (state, decision) = self.known_last();
        let order = decision.map_or(&[][..], |decision| &decision.proposal.order);
        let placed: BTreeSet<u64> = order.iter().copied().collect();
        let others = state.coflows.keys().copied().filter(|id| !placed.contains(id));
        // A coflow of the decision may have ended since.
        let coflows = order.iter().copied().chain(others).filter_map(|id| {
            let left = state.coflows.get(&id)?.left.values().sum();
            Some(v1::CoflowPlace { coflow: id, placed: placed.contains(&id), bytes_left: left })
        });
        let relay = |(name, record): (&String, &crate::records::RelayRecord)| v1::RelayEntry {
            relay: name.clone(),
            site: record.site,
            data_address: record.data_address.clone(),
        };
        let link = |(&(source_site, destination_site), samples): (&(u32, u32), &Vec<f64>)| v1::LinkState {
            source_site,
            destination_site,
            bytes_per_s: samples.clone(),
        };
        v1::ControllerStatus {
            relays: state.relays.iter().map(relay).collect(),
            coflows: coflows.collect(),
            links: state.samples.iter().map(link).collect(),
            decision: decision.map_or(0, |decision| decision.number),
            rounds: decision.map_or(0, |decision| decision.proposal.rounds),
            maker: decision.map_or_else(String::new, |decision| decision.proposal.maker.clone()),
        }
    }
}
