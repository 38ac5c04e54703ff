//! The coordinator's metrics.

use super::planning_time::PlanSeconds;
use super::service::Event;
use tokio::sync::{mpsc, oneshot};
use weir_core::coordinator::{CCT_BOUNDS, Observed};
use weir_metrics::{Distribution, Look, Looked, Metric, PROCESS, Sheet};

const POLICY: Metric =
    Metric::gauge("weir_coordinator_policy", "1 for the policy in force, with its settings").by(&["policy"]);
const AGENTS: Metric = Metric::gauge(
    "weir_coordinator_agents",
    "Agents with a session (up), that introduce themselves still (arriving), that are not there any more (away); of those up, draining ones",
)
.by(&["state"]);
const COFLOWS: Metric = Metric::gauge(
    "weir_coordinator_coflows",
    "Live coflows: no receiver asked for a block yet (idle), left to TCP (bypassed), waiting for announced flows (gathering), planned \
     for (scheduled), refused, and complete ones that were not unregistered",
)
.by(&["stage"]);
const FLOWS: Metric = Metric::gauge("weir_coordinator_flows", "Live flows");
const LOCATES: Metric =
    Metric::gauge("weir_coordinator_waiting_locates", "Calls that wait for a block to be put");
const UPLINKS: Metric = Metric::gauge(
    "weir_coordinator_uplink_bytes_per_second",
    "Payload that the uplinks of all hosts with an agent are planned with, together",
);
const PLAN_AGE: Metric = Metric::gauge(
    "weir_coordinator_plan_age_seconds",
    "Time since the last plan, or sync where senders decide; it grows while nothing happens",
);
const PLAN_SECONDS: Metric = Metric::histogram(
    "weir_coordinator_plan_seconds",
    "Processor time of plans: the policy, and what agents are told of it",
);
const CCT: Metric = Metric::histogram(
    "weir_coflow_cct_seconds",
    "Completion times of coflows, from the first get to the last byte acknowledged, by the policy that was in force at the end \
     and the bin (Varys, Table 4). A coflow counts when it ends (unregistered, or by its lease) and all its flows are done; not \
     if an earlier process of the coordinator registered it",
)
.by(&["policy", "bin"]);
const BYTES: Metric = Metric::counter("weir_coflow_bytes", "Bytes of these coflows").by(&["policy", "bin"]);
const COMPLETED_FLOWS: Metric =
    Metric::counter("weir_coflow_flows", "Flows of these coflows").by(&["policy", "bin"]);
const DEADLINES: Metric = Metric::counter(
    "weir_coflow_deadlines",
    "Of these coflows those with a deadline: let in and in time (met), let in and late (missed), or refused",
)
.by(&["result"]);
const EVENTS: Metric = Metric::counter("weir_coordinator_events", "What happened, by name").by(&["event"]);

/// Metrics that the coordinator has beside those of all processes.
pub const METRICS: &[Metric] = &[
    POLICY,
    AGENTS,
    COFLOWS,
    FLOWS,
    LOCATES,
    UPLINKS,
    PLAN_AGE,
    PLAN_SECONDS,
    CCT,
    BYTES,
    COMPLETED_FLOWS,
    DEADLINES,
    EVENTS,
];
/// With those that all processes have.
pub(super) const ALL: &[&[Metric]] = &[METRICS, PROCESS];

/// Looks at the coordinator that takes these events.
pub(super) fn look(events: &mpsc::Sender<Event>) -> Looked {
    let events = events.clone();
    Box::pin(async move {
        let (reply, answer) = oneshot::channel();
        events.send(Event::Observe(reply)).await.ok()?;
        let (observed, plans) = answer.await.ok()?;
        Some(Look { sheet: sheet(&observed, plans), unready: None })
    })
}

fn sheet(observed: &Observed, plans: PlanSeconds) -> Sheet {
    let mut sheet = Sheet::default();
    let number = |count: u64| count as f64;
    sheet.set_of(&POLICY, &[&observed.policy], 1.0);
    let Observed { agents, arriving, draining, away, stages, .. } = observed;
    for (state, count) in [("up", agents), ("arriving", arriving), ("draining", draining), ("away", away)] {
        sheet.set_of(&AGENTS, &[state], number(*count));
    }
    let of_stages = [
        ("idle", stages.idle),
        ("bypassed", stages.bypassed),
        ("gathering", stages.gathering),
        ("scheduled", stages.scheduled),
        ("refused", stages.refused),
        ("complete", stages.complete),
    ];
    for (stage, count) in of_stages {
        sheet.set_of(&COFLOWS, &[stage], number(count));
    }
    sheet.set(&FLOWS, number(observed.flows));
    sheet.set(&LOCATES, number(observed.locates));
    sheet.set(&UPLINKS, observed.uplinks);
    if let Some(age) = observed.plan_age {
        sheet.set(&PLAN_AGE, age.as_secs());
    }
    sheet.distribute(&PLAN_SECONDS, &[], plans.0);
    for ((policy, bin), completed) in &observed.completed {
        let labels = [*policy, *bin];
        sheet.distribute(&CCT, &labels, Distribution::of(&CCT_BOUNDS, &completed.counts, completed.sum_s));
        sheet.set_of(&BYTES, &labels, number(completed.bytes));
        sheet.set_of(&COMPLETED_FLOWS, &labels, number(completed.flows));
    }
    let deadlines = observed.deadlines;
    for (result, count) in
        [("met", deadlines.met), ("missed", deadlines.missed), ("refused", deadlines.refused)]
    {
        sheet.set_of(&DEADLINES, &[result], number(count));
    }
    // Events that did not happen are listed with 0, so that a first one is seen as an increase.
    for (event, _) in weir_core::coordinator::EVENTS {
        let count = observed.events.get(event).copied().unwrap_or(0);
        sheet.set_of(&EVENTS, &[event], number(count));
    }
    sheet
}
