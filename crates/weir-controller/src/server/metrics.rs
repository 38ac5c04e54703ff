//! The metrics of a controller's server.

use super::Counts;
use super::service::Event;
use tokio::sync::{mpsc, oneshot};
use weir_metrics::{Look, Looked, Metric, PROCESS, Sheet};
use weir_proto::v1;

const RELAYS: Metric = Metric::gauge("weir_controller_relays", "Relays that the whole controller knows");
const COFLOWS: Metric = Metric::gauge(
    "weir_controller_coflows",
    "Coflows with bytes between sites: in the order that was decided (placed), or behind it (waiting)",
)
.by(&["state"]);
const LINKS: Metric =
    Metric::gauge("weir_controller_links", "Links between sites of which a rate was measured");
const DECISION: Metric = Metric::counter(
    "weir_controller_decision",
    "Number of the last decision in force; others than decisions are numbered too",
);
const ROUNDS: Metric = Metric::gauge(
    "weir_controller_decision_rounds",
    "Rounds of simulation that the decision in force rests on",
);
const EVENTS: Metric = Metric::counter(
    "weir_controller_events",
    "Flows that met no rule at a relay (misses), decisions that came late (late), requests that the store did not answer \
     (failed), flows beyond the bound (uncounted)",
)
.by(&["event"]);

/// The metrics of a controller's server.
pub const METRICS: &[Metric] = &[RELAYS, COFLOWS, LINKS, DECISION, ROUNDS, EVENTS];
/// With those that all processes have.
pub(super) const ALL: &[&[Metric]] = &[METRICS, PROCESS];

/// Looks at the server that takes these events.
pub(super) fn look(events: &mpsc::Sender<Event>) -> Looked {
    let events = events.clone();
    Box::pin(async move {
        let (reply, answer) = oneshot::channel();
        events.send(Event::Observe(reply)).await.ok()?;
        let (status, counts) = answer.await.ok()?;
        Some(Look { sheet: sheet(&status, counts), unready: None })
    })
}

fn sheet(status: &v1::ControllerStatus, counts: Counts) -> Sheet {
    let mut sheet = Sheet::default();
    sheet.set(&RELAYS, status.relays.len() as f64);
    let placed = status.coflows.iter().filter(|coflow| coflow.placed).count();
    sheet.set_of(&COFLOWS, &["placed"], placed as f64);
    sheet.set_of(&COFLOWS, &["waiting"], (status.coflows.len() - placed) as f64);
    sheet.set(&LINKS, status.links.len() as f64);
    sheet.set(&DECISION, status.decision as f64);
    sheet.set(&ROUNDS, f64::from(status.rounds));
    let Counts { misses, late, failed, uncounted } = counts;
    for (event, count) in [("misses", misses), ("late", late), ("failed", failed), ("uncounted", uncounted)] {
        sheet.set_of(&EVENTS, &[event], count as f64);
    }
    sheet
}
