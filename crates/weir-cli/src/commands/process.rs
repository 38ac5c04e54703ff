//! What all daemons do as processes: they say when they begin and end, end on signals, and read their settings again.

use crate::{Cli, Failure};
use clap::CommandFactory;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use weir_settings::logging::PROCESS;
use weir_settings::{Running, logging};

/// Files of settings, and the topology, are read within this time, or count as unreadable.
pub(crate) const READ_LIMIT: Duration = Duration::from_secs(5);

/// Says in the log that a daemon listens. With port 0 only this says where.
pub(crate) fn begins(what: &str) {
    tracing::info!(target: PROCESS, "{what}");
}

/// Says in the log that a daemon ends as it was told to.
pub(crate) fn ends(who: &str) {
    tracing::info!(target: PROCESS, "{who}: ends, as it was told to");
}

pub(crate) fn listening(address: SocketAddr, error: std::io::Error) -> Failure {
    Failure::Run(anyhow::Error::new(error).context(format!("cannot listen on {address}")))
}

/// One thread suffices: data moves on a thread of its own, and plans are made one at a time.
pub(crate) fn run(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    weir_net::raise_descriptor_limit();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(work);
    // A thread that hangs on a file is given up after a second: the process ends without it.
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

/// On SIGHUP reads the settings of this process again. Of them only which lines of the log are shown may change.
pub(crate) fn obey_hangups(who: &'static str) -> Result<(), Failure> {
    let running = Running::start(Cli::command(), std::env::args_os().collect(), vec!["log"]);
    let mut running = running.map_err(Failure::Input)?;
    let mut hangups = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            let reading = running.clone();
            let read = move || {
                let again = reading.again()?;
                Ok((logging::showing(again.value("log"))?, again))
            };
            // Files may be on a disk that does not answer: they are as before then.
            let read = tokio::time::timeout(READ_LIMIT, tokio::task::spawn_blocking(read)).await;
            let late = || Ok(Err(format!("the files were not read within {} s", READ_LIMIT.as_secs())));
            match read.unwrap_or_else(|_| late()) {
                Ok(Ok((show, again))) => {
                    show();
                    again.changed.iter().for_each(|one| begins(&format!("{who}: {one}")));
                    if again.changed.is_empty() {
                        begins(&format!("{who}: settings were read again, and are as they were"));
                    }
                    running.adopt(again);
                }
                Ok(Err::<_, String>(reason)) => {
                    let reason = logging::shortened(&reason);
                    tracing::error!(target: PROCESS, "{who}: {reason}; nothing was changed");
                }
                Err(_) => {}
            }
        }
    });
    Ok(())
}

/// Resolves on SIGINT or SIGTERM, from this call on: one that comes before it is waited for counts too.
pub(crate) fn stop_signal() -> impl Future<Output = ()> + Send + 'static {
    let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    async move {
        let (Ok(mut interrupt), Ok(mut terminate)) = signals else { return std::future::pending().await };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
}
