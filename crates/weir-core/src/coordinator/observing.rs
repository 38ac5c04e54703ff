//! What watchers see: sums, and how long coflows took. Its size depends on the code alone, not on hosts or coflows.

use super::readiness::Stage;
use super::state::{CoflowEntry, Coordinator};
use std::collections::BTreeMap;
use weir_model::{Bytes, CoflowId, Span, Time};
use weir_proto::v1;

/// Upper bounds of completion times that are counted apart, in seconds.
pub const CCT_BOUNDS: [f64; 12] =
    [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1_000.0, 3_000.0];
/// Names of the bins of Varys' Table 4, from bin 1 on.
const BINS: [&str; 4] = ["short-narrow", "long-narrow", "short-wide", "long-wide"];

/// Coflows of one policy and bin that ended after all their flows were done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Completed {
    /// By completion time: up to each of [`CCT_BOUNDS`], and above.
    pub counts: [u64; CCT_BOUNDS.len() + 1],
    /// Sum of their completion times, in seconds.
    pub sum_s: f64,
    /// Sum of the bytes of their flows.
    pub bytes: u64,
    /// Number of flows of all of them.
    pub flows: u64,
}

/// What became of coflows with deadlines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deadlines {
    /// Complete by their deadline, and not refused.
    pub met: u64,
    /// Complete after their deadline, though they were not refused.
    pub missed: u64,
    /// Complete after they were refused, whether in time or not.
    pub refused: u64,
}

/// Where live coflows stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages {
    /// Registered, and no receiver asked for a block yet.
    pub idle: u64,
    /// Left to TCP, for little is known of them.
    pub bypassed: u64,
    /// Waiting for flows that were announced.
    pub gathering: u64,
    /// Scheduled: the policy plans the rates of their flows.
    pub scheduled: u64,
    /// Refused, and left to TCP or stopped.
    pub refused: u64,
    /// Complete, and not unregistered.
    pub complete: u64,
}

/// A coordinator at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// The policy in force, with its settings.
    pub policy: String,
    /// Agents with a session that are planned for,
    pub agents: u64,
    /// those that introduce themselves still,
    pub arriving: u64,
    /// and those that take no more blocks.
    pub draining: u64,
    /// Hosts that had a session, and have none.
    pub away: u64,
    /// Live coflows, counted by where they stand.
    pub stages: Stages,
    /// Flows that agents have told of and not closed.
    pub flows: u64,
    /// Calls that wait for blocks.
    pub locates: u64,
    /// Since the last plan was made; `None` before the first.
    pub plan_age: Option<Span>,
    /// Payload that all uplinks are planned with, in bytes per second.
    pub uplinks: f64,
    /// By name of the policy that they ended under, and bin.
    pub completed: BTreeMap<(&'static str, &'static str), Completed>,
    /// What became of the deadlines of coflows that ended.
    pub deadlines: Deadlines,
    /// How often what happened, by name (`EVENTS`).
    pub events: BTreeMap<&'static str, u64>,
}

/// What is counted, by name, and what it means.
pub const EVENTS: &[(&str, &str)] = &[
    (
        "admitted_coflows_given_up",
        "coflows that were let in, and that the policy sees no way to end in time any more",
    ),
    ("agent_events", "things that agents told of"),
    ("agent_messages", "messages of agents"),
    ("agents_refused_for_their_host", "sessions refused because the host has another agent"),
    (
        "agents_replaced_by_those_of_before",
        "sessions ended for an agent that was the host's before a restart",
    ),
    ("blocks_not_listed", "blocks beyond a bound, which no receiver can get"),
    ("blocks_of_ended_coflows", "blocks of coflows that had ended"),
    ("capacity_changes", "links with another capacity than before, for foreign traffic"),
    ("changes", "changes of the policy or its times"),
    ("coflows_admitted", "coflows with a deadline that were let in"),
    ("coflows_expired", "coflows whose lease ran out: no put, no get, no byte and no renewal"),
    ("coflows_over_bound", "coflows beyond the bound of live ones"),
    ("coflows_ready_by_limit", "coflows planned for without all their announced flows"),
    ("coflows_refused", "coflows with a deadline that were refused"),
    ("coordinator_messages", "messages to agents"),
    ("corrections", "reports that said far more or less was left than was believed"),
    ("ends_not_remembered", "ends of coflows beyond the bound of those remembered"),
    ("expectations", "times that a driver said what is to come"),
    ("flow_limits", "flows that cannot use the rate they were given"),
    ("flows_bypassed", "flows of small coflows, left to TCP"),
    ("flows_not_scheduled", "flows beyond a bound or outside the network, left to TCP"),
    ("flows_of_ended_coflows", "flows of coflows that had ended"),
    ("hellos_of_other_terms", "agents that asked for their terms before a change, and ask again"),
    ("hellos_unfinished", "sessions closed because the rest of a Hello did not come"),
    ("ids_named_before_they_were_given", "ids of coflows that an agent named and no driver had been given"),
    ("link_rates_changed", "links with another rate than before"),
    ("locates_not_waited_for", "calls for blocks beyond the bound of those that wait"),
    ("messages_from_ended_sessions", "messages that came after the end of their session"),
    ("messages_out_of_place", "messages that make no sense where they came"),
    ("networks_refitted", "times that the network took another shape"),
    ("notes_refused", "notes of coflows that cannot be"),
    ("pauses", "times that the process did not run, or had no agent"),
    ("plans", "plans"),
    ("syncs", "syncs, where senders decide"),
    ("unregistered_unsettled", "coflows that ended before all agents had told what receivers have"),
];

/// Coflows that ended after all their flows were done, as long as the process lives.
#[derive(Debug, Default)]
pub(super) struct Ends {
    completed: BTreeMap<(&'static str, &'static str), Completed>,
    deadlines: Deadlines,
}

impl CoflowEntry {
    /// The bin of a complete coflow.
    fn bin(&self) -> &'static str {
        let bin = weir_model::bin(Bytes(self.longest), self.done_flows());
        BINS[usize::from(bin).saturating_sub(1)]
    }
}

impl Coordinator {
    /// A coflow ends. Those count that this process registered, for of others it is not known when all was done; and of which every
    /// flow that was asked for, or announced, is done: one may seem complete before, and go on, and one that is given up is none.
    pub(super) fn note_end(&mut self, now: Time, id: CoflowId) {
        let Some(coflow) = self.coflows.get(&id) else { return };
        let all = coflow.opened.max(coflow.options.flows).max(1);
        if !self.is_own(id) || coflow.live_flows() > 0 || coflow.done_flows() < all {
            return;
        }
        let record = self.record(now, id);
        let in_time = record.cct_s <= Span::from_millis(record.deadline_ms).as_secs();
        let ends = &mut self.ends;
        let of = ends.completed.entry((self.policy_info.name, coflow.bin())).or_default();
        // A time equal to a bound belongs to the bound's bucket, as Prometheus has it (`le`).
        let at = CCT_BOUNDS.partition_point(|&bound| bound < record.cct_s);
        of.counts[at] = of.counts[at].saturating_add(1);
        of.sum_s += record.cct_s;
        of.bytes = of.bytes.saturating_add(record.bytes);
        of.flows = of.flows.saturating_add(record.flows);
        let sum = match (record.deadline_ms, record.admission(), in_time) {
            (0, ..) => return,
            (_, v1::Admission::Refused, _) => &mut ends.deadlines.refused,
            (_, _, true) => &mut ends.deadlines.met,
            (_, _, false) => &mut ends.deadlines.missed,
        };
        *sum = sum.saturating_add(1);
    }

    /// State and counters at this moment, as metrics show them.
    pub fn observe(&self, now: Time) -> Observed {
        let count = |number: usize| number as u64;
        let arriving = self.agents.values().filter(|agent| agent.arrival.is_some()).count();
        let mut stages = Stages::default();
        for coflow in self.coflows.values() {
            let of = match coflow.stage {
                _ if coflow.complete => &mut stages.complete,
                Stage::Bypassed if coflow.opened == 0 => &mut stages.idle,
                Stage::Bypassed => &mut stages.bypassed,
                Stage::Gathering(_) => &mut stages.gathering,
                Stage::Scheduled => &mut stages.scheduled,
                Stage::Refused => &mut stages.refused,
            };
            *of = of.saturating_add(1);
        }
        let uplinks = self.hosts.keys().map(|&host| self.network.planned(self.network.uplink(host)));
        Observed {
            policy: self.policy_name.clone(),
            agents: count(self.agents.len().saturating_sub(arriving)),
            arriving: count(arriving),
            draining: count(self.agents.values().filter(|agent| agent.draining).count()),
            away: count(self.network.away().filter(|(host, _)| !self.hosts.contains_key(host)).count()),
            stages,
            flows: count(self.flows.len()),
            locates: count(self.waiting.len()),
            plan_age: self.last_plan.map(|last| now.since(last)),
            uplinks: uplinks.sum(),
            completed: self.ends.completed.clone(),
            deadlines: self.ends.deadlines,
            events: self.counters.clone(),
        }
    }
}
