//! The relay's metrics.

use super::{Command, Commands};
use tokio::sync::oneshot;
use weir_core::relay::RelayCounters;
use weir_metrics::{Look, Looked, Metric, PROCESS, Sheet};

const SESSION: Metric = Metric::gauge("weir_relay_session", "1 with a session with a controller, else 0");
const RULES: Metric = Metric::gauge("weir_relay_rules", "Rules that say where flows go");
const HELD: Metric = Metric::gauge("weir_relay_held_bytes", "Payload that waits here");
const CONNECTIONS: Metric =
    Metric::gauge("weir_relay_connections", "Connections of hosts, receivers and other relays");
const EVENTS: Metric = Metric::counter(
    "weir_relay_events",
    "Flows given up (reset), and of them those that went in circles (looped), had bytes out of place (misplaced) or gave way where \
     no more may wait (crowded-out); flows beyond a bound (refused); rules that came late (stale-rules) or cannot be (bad-rules)",
)
.by(&["event"]);

/// Metrics that the relay has beside those of all processes.
pub const METRICS: &[Metric] = &[SESSION, RULES, HELD, CONNECTIONS, EVENTS];
/// With those that all processes have.
pub(super) const ALL: &[&[Metric]] = &[METRICS, PROCESS];

/// What the thread says of itself.
pub(super) struct Said {
    pub(super) session: bool,
    pub(super) rules: usize,
    pub(super) held: u64,
    pub(super) connections: usize,
    pub(super) counters: RelayCounters,
}

/// Looks at the relay whose thread takes these commands.
pub(super) fn look(commands: &Commands) -> Looked {
    let commands = commands.clone();
    Box::pin(async move {
        let (reply, answer) = oneshot::channel();
        if !commands.send(Command::Observe(reply)).await {
            return None;
        }
        Some(Look { sheet: sheet(&answer.await.ok()?), unready: None })
    })
}

fn sheet(said: &Said) -> Sheet {
    let mut sheet = Sheet::default();
    sheet.set(&SESSION, f64::from(u8::from(said.session)));
    sheet.set(&RULES, said.rules as f64);
    sheet.set(&HELD, said.held as f64);
    sheet.set(&CONNECTIONS, said.connections as f64);
    let RelayCounters { reset, looped, misplaced, crowded_out, refused, stale_rules, bad_rules } =
        said.counters;
    let events = [
        ("reset", reset),
        ("looped", looped),
        ("misplaced", misplaced),
        ("crowded-out", crowded_out),
        ("refused", refused),
        ("stale-rules", stale_rules),
        ("bad-rules", bad_rules),
    ];
    for (event, count) in events {
        sheet.set_of(&EVENTS, &[event], count as f64);
    }
    sheet
}
