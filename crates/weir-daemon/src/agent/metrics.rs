//! The agent's metrics.

use super::{Command, Commands};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};
use weir_core::agent::Observed;
use weir_metrics::{Look, Looked, Metric, PROCESS, Sheet};
use weir_proto::data::Status;

const SESSION: Metric = Metric::gauge("weir_agent_session", "1 with a session with a coordinator, else 0");
const COORDINATOR: Metric =
    Metric::gauge("weir_agent_has_coordinator", "1 where the agent was told of a coordinator");
const LEASE: Metric = Metric::gauge(
    "weir_agent_lease",
    "1 while the coordinator's word holds, 0 where flows share as TCP has them share",
);
const LEASES_LOST: Metric =
    Metric::counter("weir_agent_leases_lost", "Times that the coordinator's word ended before another came");
const OPEN: Metric = Metric::counter(
    "weir_agent_without_lease_seconds",
    "Time without the coordinator's word since the first such time: flows shared as TCP has them share",
);
const DRAINING: Metric = Metric::gauge("weir_agent_draining", "1 where no more blocks are taken");
const BLOCKS: Metric = Metric::gauge("weir_agent_blocks", "Blocks that are held");
const COFLOWS: Metric = Metric::gauge("weir_agent_coflows", "Coflows that are known");
const FLOWS: Metric = Metric::gauge(
    "weir_agent_flows",
    "Flows that are served: at the rate that they were given (rated), waiting (paused), as TCP has them go (unscheduled)",
)
.by(&["state"]);
const GRANTED: Metric = Metric::counter(
    "weir_agent_granted_bytes",
    "Payload that flows were allowed by the rates they were given",
);
const AT_RATES: Metric = Metric::counter(
    "weir_agent_sent_at_rates_bytes",
    "Payload that flows with a rate handed to their sockets",
);
const SENT: Metric =
    Metric::counter("weir_agent_sent_bytes", "Payload that all flows handed to their sockets");
const ENDED: Metric = Metric::counter(
    "weir_agent_flows_ended",
    "Flows that ended: their receivers have all (done), or broke off (broken; they may come again)",
)
.by(&["result"]);
const STALE: Metric =
    Metric::counter("weir_agent_stale_messages", "Messages dropped because newer ones had come before them");
const PUTS: Metric =
    Metric::counter("weir_agent_puts", "Puts that were noted (taken) or not (refused)").by(&["result"]);
const STORES: Metric = Metric::gauge("weir_agent_stores", "Executors whose shuffle files are served");
const GATHERS: Metric = Metric::counter(
    "weir_agent_gathers",
    "Requests for ranges of an executor's store: begun (taken), without a store or a file here (missing), without the store's \
     token (forbidden), with more open files than there may be (busy), with files that cannot be read (unreadable), or refused \
     for the coflow or otherwise (refused)",
)
.by(&["result"]);
const CONNECTIONS: Metric = Metric::gauge("weir_agent_data_connections", "Connections of receivers");
const BEHIND: Metric = Metric::gauge(
    "weir_agent_journal_behind",
    "1 where the journal's disk does not keep up, and puts are refused",
);
const FREE: Metric = Metric::gauge(
    "weir_agent_spool_free_bytes",
    "Room on the disk of the spool; absent where that does not answer",
);
const SIZE: Metric = Metric::gauge(
    "weir_agent_spool_size_bytes",
    "Size of the disk of the spool; absent where that does not answer",
);

/// Metrics that the agent has beside those of all processes.
pub const METRICS: &[Metric] = &[
    SESSION,
    COORDINATOR,
    LEASE,
    LEASES_LOST,
    OPEN,
    DRAINING,
    BLOCKS,
    COFLOWS,
    FLOWS,
    GRANTED,
    AT_RATES,
    SENT,
    ENDED,
    STALE,
    PUTS,
    STORES,
    GATHERS,
    CONNECTIONS,
    BEHIND,
    FREE,
    SIZE,
];
/// With those that all processes have.
pub(super) const ALL: &[&[Metric]] = &[METRICS, PROCESS];

/// With less room puts are refused.
const LEAST_ROOM: f64 = 1_048_576.0;
/// How long the disk of the spool may take to say how much room it has.
const DISK_LIMIT: Duration = Duration::from_millis(500);

/// What became of gathers.
const GATHER_RESULTS: [&str; 6] = ["taken", "missing", "forbidden", "busy", "unreadable", "refused"];

/// How many gathers ended in each of [`GATHER_RESULTS`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gathers([u64; GATHER_RESULTS.len()]);

impl Gathers {
    pub(super) fn note(&mut self, result: Result<(), Status>) {
        let at = match result {
            Ok(()) => 0,
            Err(Status::NoSuchBlock) => 1,
            Err(Status::Forbidden) => 2,
            Err(Status::Busy) => 3,
            Err(Status::Unreadable) => 4,
            Err(_) => 5,
        };
        self.0[at] += 1;
    }
}

/// What the data-plane thread says of itself.
pub(crate) struct Said {
    pub(super) observed: Observed,
    pub(super) connections: usize,
    pub(super) is_behind: bool,
    /// Puts taken, and puts refused, since the start.
    pub(super) puts: [u64; 2],
    pub(super) gathers: Gathers,
    pub(super) stores: usize,
}

/// Looks at the agent whose thread takes these commands.
pub(super) fn look(commands: &Commands, disk: &Disk, has_coordinator: bool) -> Looked {
    let (commands, disk) = (commands.clone(), disk.clone());
    Box::pin(async move {
        let (reply, answer) = oneshot::channel();
        if !commands.send(Command::Observe(reply)).await {
            return None;
        }
        let said = answer.await.ok()?;
        let room = disk.room().await;
        let unready = if said.observed.draining {
            Some("it takes no more blocks: it is drained".to_owned())
        } else if said.is_behind {
            Some("it takes no blocks: the disk of its journal does not keep up".to_owned())
        } else if room.is_some_and(|[free, _]| free < LEAST_ROOM) {
            Some("it takes no blocks from memory: the disk of its spool is full".to_owned())
        } else {
            None
        };
        let mut sheet = sheet(&said, room);
        sheet.set(&COORDINATOR, f64::from(u8::from(has_coordinator)));
        Some(Look { sheet, unready })
    })
}

/// The disk of a spool.
#[derive(Clone)]
pub(super) struct Disk {
    path: PathBuf,
    /// Held while it is asked: one that does not answer is not asked again, for each question takes a thread until it does.
    asking: Arc<Semaphore>,
}

impl Disk {
    pub(super) fn new(path: PathBuf) -> Disk {
        Disk { path, asking: Arc::new(Semaphore::new(1)) }
    }

    /// Free bytes and all bytes, if it answers in time.
    async fn room(&self) -> Option<[f64; 2]> {
        let asking = Arc::clone(&self.asking).try_acquire_owned().ok()?;
        let path = self.path.clone();
        let asked = tokio::task::spawn_blocking(move || {
            let _asking = asking;
            rustix::fs::statvfs(&path)
        });
        let stat = tokio::time::timeout(DISK_LIMIT, asked).await.ok()?.ok()?.ok()?;
        Some([stat.f_bavail as f64 * stat.f_frsize as f64, stat.f_blocks as f64 * stat.f_frsize as f64])
    }
}

fn sheet(said: &Said, room: Option<[f64; 2]>) -> Sheet {
    let mut sheet = Sheet::default();
    let (observed, number) = (&said.observed, |count: u64| count as f64);
    sheet.set(&SESSION, f64::from(u8::from(observed.session)));
    sheet.set(&LEASE, f64::from(u8::from(observed.lease)));
    sheet.set(&LEASES_LOST, number(observed.leases_lost));
    sheet.set(&OPEN, observed.without_lease.as_secs());
    sheet.set(&DRAINING, f64::from(u8::from(observed.draining)));
    sheet.set(&BLOCKS, number(observed.blocks));
    sheet.set(&COFLOWS, number(observed.coflows));
    let states =
        [("rated", observed.rated), ("paused", observed.paused), ("unscheduled", observed.unscheduled)];
    for (state, count) in states {
        sheet.set_of(&FLOWS, &[state], number(count));
    }
    sheet.set(&GRANTED, observed.granted_bytes);
    sheet.set(&AT_RATES, number(observed.sent_at_rates_bytes));
    sheet.set(&SENT, number(observed.sent_bytes));
    sheet.set_of(&ENDED, &["done"], number(observed.done));
    sheet.set_of(&ENDED, &["broken"], number(observed.broken));
    sheet.set(&STALE, number(observed.stale));
    sheet.set(&STORES, said.stores as f64);
    for (result, count) in GATHER_RESULTS.iter().zip(said.gathers.0) {
        sheet.set_of(&GATHERS, &[result], number(count));
    }
    sheet.set_of(&PUTS, &["taken"], number(said.puts[0]));
    sheet.set_of(&PUTS, &["refused"], number(said.puts[1]));
    sheet.set(&CONNECTIONS, said.connections as f64);
    sheet.set(&BEHIND, f64::from(u8::from(said.is_behind)));
    if let Some([free, size]) = room {
        sheet.set(&FREE, free);
        sheet.set(&SIZE, size);
    }
    sheet
}
