//! What people see: live coflows and why each waits, completed ones, counters.

use super::readiness::Stage;
use super::state::{AgentEntry, CoflowEntry, Coordinator};
use crate::ids::HostNumber;
use crate::portions::Portion;
use std::collections::{BTreeMap, BTreeSet};
use weir_model::{CoflowId, LinkId, Span, Time};
use weir_policy::Slot;
use weir_proto::{Message, limits, v1};

/// Completed coflows in one status reply.
const COMPLETED_SHOWN: usize = 20;
/// Bytes of agents and live coflows in one status reply: the rest of a message is for hosts that are away, counters and completed ones.
const MAX_SHOWN_BYTES: usize = 3 * limits::MAX_PORTION_BYTES;
/// Of these, bytes of agents at most, and of their labels.
const MAX_AGENTS_SHOWN_BYTES: usize = 2 * limits::MAX_PORTION_BYTES;
const MAX_LABELS_SHOWN_BYTES: usize = limits::MAX_PORTION_BYTES;
/// A link with less than this share of its capacity left counts as fully used.
const FULL: f64 = 0.99;

/// The plan in force, as it is shown.
struct RatesShown {
    /// Bytes per second of every coflow of the table.
    by_slot: Vec<f64>,
    /// Of every link the sum, and the first coflow that moves there.
    used: Vec<(f64, Option<Slot>)>,
}

impl Coordinator {
    /// A picture of the present.
    pub fn status(&mut self, now: Time) -> v1::StatusReply {
        self.advance(now);
        let rates = self.rates_shown();
        self.status_of_all(now, &rates)
    }

    /// Pictures of one moment: of everything (0), or of one coflow, its record and no host.
    pub fn statuses(&mut self, now: Time, asked: &BTreeSet<CoflowId>) -> BTreeMap<CoflowId, v1::StatusReply> {
        self.advance(now);
        let rates = self.rates_shown();
        let of = |&coflow: &CoflowId| {
            let all = coflow == CoflowId(0);
            (
                coflow,
                if all { self.status_of_all(now, &rates) } else { self.status_of_one(now, coflow, &rates) },
            )
        };
        asked.iter().map(of).collect()
    }

    fn status_of_one(&self, now: Time, id: CoflowId, rates: &RatesShown) -> v1::StatusReply {
        let live = self.coflows.get(&id).filter(|coflow| !coflow.complete);
        let record = self.completed.iter().find(|record| record.coflow == id.0);
        v1::StatusReply {
            policy: self.policy_name.clone(),
            epoch: self.epoch,
            coflows: live.map(|coflow| self.coflow_status(now, id, coflow, rates)).into_iter().collect(),
            completed: record.filter(|_| live.is_none()).cloned().into_iter().collect(),
            ended: self.has_ended(id) || self.was_never_given(id),
            ..v1::StatusReply::default()
        }
    }

    fn status_of_all(&self, now: Time, rates: &RatesShown) -> v1::StatusReply {
        let (agents, hidden_agents) = self.agents_shown();
        // Coflows have what agents leave.
        let taken = agents.iter().map(Message::encoded_len).sum();
        let mut room = Portion::within(limits::MAX_COFLOWS_SHOWN, MAX_SHOWN_BYTES.saturating_sub(taken));
        let (mut coflows, mut hidden): (Vec<v1::CoflowStatus>, u64) = (Vec::new(), 0);
        for (&id, coflow) in self.coflows.iter().filter(|(_, coflow)| !coflow.complete) {
            // Once one does not fit, none after it is shown, also if it is smaller: what is shown
            // are the first ones.
            if hidden > 0 {
                hidden = hidden.saturating_add(1);
                continue;
            }
            let row = self.coflow_status(now, id, coflow, rates);
            if room.take(&row) {
                coflows.push(row);
            } else {
                hidden = 1;
            }
        }
        v1::StatusReply {
            // Only its process has a clock to measure with.
            planning: None,
            ended: false,
            policy: self.policy_name.clone(),
            epoch: self.epoch,
            agents,
            hidden_agents,
            away: self.hosts_away(now),
            coflows,
            hidden_coflows: hidden,
            completed: self.completed.iter().take(COMPLETED_SHOWN).cloned().collect(),
            counters: self
                .counters
                .iter()
                .map(|(&name, &value)| v1::Counter { name: name.to_owned(), value })
                .collect(),
        }
    }

    /// The agents, as far as there is room for them, and how many there is none for. Labels go first.
    fn agents_shown(&self) -> (Vec<v1::AgentStatus>, u64) {
        let mut room = Portion::within(usize::MAX, MAX_AGENTS_SHOWN_BYTES);
        let mut room_for_labels = MAX_LABELS_SHOWN_BYTES;
        let (mut shown, mut hidden) = (Vec::new(), 0_u64);
        for agent in self.hosts.values().filter_map(|session| self.agents.get(session)) {
            let mut row = self.agent_status(agent);
            let labels = row.labels.iter().map(String::len).sum();
            match room_for_labels.checked_sub(labels) {
                Some(left) => room_for_labels = left,
                None => row.labels.clear(),
            }
            if room.take(&row) {
                shown.push(row);
            } else {
                hidden = hidden.saturating_add(1);
            }
        }
        (shown, hidden)
    }

    fn agent_status(&self, agent: &AgentEntry) -> v1::AgentStatus {
        let [rack, site] = self.network.place_names(agent.host);
        let (foreign_sent_per_s, foreign_received_per_s) = self.foreign(agent.host);
        v1::AgentStatus {
            host: agent.host.0,
            data_address: agent.data_address.clone(),
            blocks: agent.blocks,
            flows: agent.flows.len() as u64,
            foreign_sent_per_s,
            foreign_received_per_s,
            name: self.network.name(agent.host),
            up_bytes_per_s: self.network.planned(self.network.uplink(agent.host)),
            down_bytes_per_s: self.network.planned(self.network.downlink(agent.host)),
            draining: agent.draining,
            rack,
            site,
            labels: self.network.labels(agent.host).to_vec(),
        }
    }

    fn hosts_away(&self, now: Time) -> Vec<v1::HostAway> {
        let away = self.network.away().filter(|(host, _)| !self.hosts.contains_key(host));
        let of = |(host, since): (HostNumber, Time)| v1::HostAway {
            host: host.0,
            name: self.network.name(host),
            for_s: now.since(since).as_secs(),
        };
        away.map(of).take(limits::MAX_HOSTS_AWAY_SHOWN).collect()
    }

    /// The rate of every coflow of the table, and of every link the sum and the first coflow that moves there.
    ///
    /// A report may say that far more is left of a flow than was believed. Until the plan that follows, the plan in force,
    /// which moves shares of what is left, then has rates that no link could carry: they are shown as what links do.
    fn rates_shown(&self) -> RatesShown {
        let capacity = |link: LinkId| self.network.left().capacity(link).bytes_per_sec();
        let mut flows: Vec<(Slot, &[LinkId], f64)> = Vec::new();
        let mut used: Vec<(f64, Option<Slot>)> = vec![(0.0, None); self.network.left().links().len()];
        self.plan.for_each_rate(&self.table, |at, rate| {
            let limit = self.places.key(at.coflow, at.flow).map_or(f64::INFINITY, |key| self.limit_of(key));
            let class = self.table.flow(at).class();
            let path = class.map_or(&[][..], |class| self.table.classes()[class.index()].path());
            let least = path.iter().map(|&link| capacity(link)).fold(limit, f64::min);
            let rate = (rate.bytes_per_sec() + self.gift(at)).min(least);
            for link in path {
                let (sum, first) = &mut used[link.index()];
                *sum += rate;
                if rate > 0.0 {
                    first.get_or_insert(at.coflow);
                }
            }
            flows.push((at.coflow, path, rate));
        });
        let mut by_slot = vec![0.0; self.table.slot_bound()];
        for (slot, path, rate) in flows {
            let fits = path.iter().map(|&link| capacity(link) / used[link.index()].0).fold(1.0, f64::min);
            by_slot[slot.0 as usize] += rate * fits;
        }
        RatesShown { by_slot, used }
    }

    fn coflow_status(
        &self,
        now: Time,
        id: CoflowId,
        coflow: &CoflowEntry,
        RatesShown { by_slot, used }: &RatesShown,
    ) -> v1::CoflowStatus {
        let slot = self.table.find_coflow(id);
        let outside = coflow.outside.iter().filter_map(|key| self.flows.get(key));
        let left = slot.map_or(0.0, |slot| self.bytes_left(slot))
            + outside.map(|flow| flow.left() as f64).sum::<f64>();
        let rate = slot.map_or(0.0, |slot| by_slot[slot.0 as usize]);
        // Where senders decide, what is left is not known and counts as nothing.
        let (left, moved) = match &self.senders {
            Some(_) => (0.0, coflow.attained_bytes()),
            None => (left, coflow.done_bytes()),
        };
        v1::CoflowStatus {
            coflow: id.0,
            name: coflow.options.name.clone(),
            live_flows: coflow.live_flows(),
            done_flows: coflow.done_flows(),
            bytes_left: left as u64,
            bytes_total: (left as u64).saturating_add(moved),
            rate_bytes_per_s: rate,
            waits_for: self.waits_for(coflow, slot, rate, used),
            age_s: now.since(coflow.registered).as_secs(),
            sealed: coflow.sealed,
            bypassed: coflow.stage == Stage::Bypassed && coflow.opened > 0,
            admission: coflow.admission().into(),
            refusal: coflow.refusal(),
        }
    }

    fn bytes_left(&self, slot: Slot) -> f64 {
        let coflow = self.table.coflow(slot);
        (0u32..)
            .zip(coflow.flows())
            .filter(|(_, flow)| flow.live())
            .map(|(flow, _)| self.table.remaining(weir_policy::FlowRef { coflow: slot, flow }))
            .sum()
    }

    fn waits_for(
        &self,
        coflow: &CoflowEntry,
        slot: Option<Slot>,
        rate: f64,
        used: &[(f64, Option<Slot>)],
    ) -> String {
        match (slot, coflow.stage) {
            (None, Stage::Gathering(_)) => return "the rest of the flows it announced".to_owned(),
            (None, Stage::Refused) if coflow.is_admitted() => {
                return "its own bytes: its deadline cannot be kept any more and it is left to TCP"
                    .to_owned();
            }
            (None, Stage::Refused) if coflow.options.stop_if_refused => {
                return format!("its driver: it was refused ({})", coflow.refusal());
            }
            (None, Stage::Refused) => {
                return format!("its own bytes: it was refused ({}) and is left to TCP", coflow.refusal());
            }
            (None, Stage::Bypassed) if !coflow.outside.is_empty() => {
                return "its own bytes: it is small and left to TCP".to_owned();
            }
            _ => {}
        }
        let Some(slot) = slot else { return "flows to be opened by its receivers".to_owned() };
        let class = coflow.class.map(|(class, _)| class).zip(self.policy.classes());
        let class = class.map(|(class, of)| format!("; its class is {} of {of}", class.saturating_add(1)));
        let class = class.unwrap_or_default();
        if rate > 0.0 {
            return format!("its own bytes: it is moving{class}");
        }
        let full = self.table.coflow(slot).links().iter().find_map(|&link| {
            let (sum, by) = used[link.index()];
            let capacity = self.network.left().capacity(link).bytes_per_sec();
            by.filter(|_| sum >= FULL * capacity).map(|by| (link, by))
        });
        match full {
            Some((link, by)) => {
                let link = self.network.link_name(link);
                format!("{link}, in use by coflow {}{class}", self.table.coflow(by).id())
            }
            None => "the next plan".to_owned(),
        }
    }

    pub(super) fn record(&self, now: Time, id: CoflowId) -> v1::CoflowRecord {
        let coflow = &self.coflows[&id];
        let end = coflow.last_done.unwrap_or(now);
        let taken = end.since(coflow.arrived.unwrap_or(coflow.registered));
        v1::CoflowRecord {
            coflow: id.0,
            name: coflow.options.name.clone(),
            flows: coflow.done_flows(),
            bytes: coflow.done_bytes(),
            cct_s: taken.as_secs(),
            deadline_ms: coflow.options.deadline_ms,
            admission: coflow.admission().into(),
            met: coflow.complete && taken <= Span::from_millis(coflow.options.deadline_ms),
        }
    }
}
