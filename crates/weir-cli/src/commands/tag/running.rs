//! The tagger while it runs: until a signal, with settings that may change.

use super::settings::read;
use super::{Paths, SELDOM, TagArgs};
use crate::commands::process::{READ_LIMIT, run, stop_signal};
use rustix::net::sockopt::set_tcp_congestion;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use weir_console::Failure;
use weir_console::terminal::{complain, say};
use weir_daemon::agent::Tags;
use weir_ebpf::{
    ClassCounters, Config, ControlError, Counters, Dctcp, Karuna, McpConfig, TagError, Tagger, Unhinted,
};
use weir_model::{Bytes, Hint, Span};
use weir_results::{table, text};

/// Whether the user's input was wrong, or something else.
pub(super) fn failure(error: TagError) -> Failure {
    match error {
        TagError::Config(_) | TagError::NoInterface { .. } | TagError::NoControl { .. } => {
            Failure::Input(error.to_string())
        }
        _ => Failure::Run(error.into()),
    }
}

pub(super) fn tag(args: &TagArgs) -> Result<(), Failure> {
    let mut config = read(args.tags.as_deref(), Unhinted::Unknown)?;
    run(async {
        let mut stop = pin!(stop_signal());
        let mut hangups = signal(SignalKind::hangup())?;
        let tagger = Tagger::attach(&args.interface, &config).map_err(failure)?;
        let paths = args.controls.then_some((args.base_rtt, args.link_rate));
        let _controls = paths.map(|paths| register(paths, &tagger)).transpose()?;
        say(format_args!("weir tag: tags what TCP connections send through {}\n", args.interface));
        let period = args.every.map_or(SELDOM, |seconds| Duration::from_secs(seconds.into()));
        // The first tick after a period: `interval` ticks at once, when nothing is counted yet.
        let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + period, period);
        loop {
            tokio::select! {
                () = &mut stop => break,
                _ = ticks.tick() => print(&tagger.counters()?, &config),
                _ = hangups.recv() => change(&tagger, args, &mut config).await,
            }
        }
        print(&tagger.counters()?, &config);
        Ok(())
    })
}

/// The controls of docs/congestion.md, which go when they are dropped.
fn register((base_rtt, link): Paths, tagger: &Tagger) -> Result<(Dctcp, Karuna), Failure> {
    let refused = |error: ControlError| match error {
        ControlError::Program(error) => failure(error),
        error => Failure::Input(format!("--controls: {error}")),
    };
    let config = McpConfig::new(base_rtt, link);
    let karuna = Karuna::register(tagger, &config).map_err(refused)?;
    Ok((Dctcp::register().map_err(refused)?, karuna))
}

/// A tagger by what an agent knows of its flows.
#[derive(Debug)]
struct OfAgent {
    tagger: Tagger,
    /// The controls go when they are dropped.
    controls: Option<(Dctcp, Karuna)>,
}

impl Tags for OfAgent {
    fn known(&self, socket: BorrowedFd<'_>, size: Bytes) -> io::Result<()> {
        self.tagger.hint(&socket, Hint::Known(size)).map_err(io::Error::other)
    }

    fn class(&self, socket: BorrowedFd<'_>, class: u8) -> io::Result<()> {
        self.tagger.place(&socket, class).map_err(io::Error::other)
    }

    fn deadline(&self, socket: BorrowedFd<'_>, size: Bytes, within: Span) -> io::Result<()> {
        if self.controls.is_some() {
            // Before the hint: the control goes by it from the next acknowledgement on.
            set_tcp_congestion(socket, Karuna::NAME)?;
        }
        self.tagger.hint(&socket, Hint::Deadline { size, within }).map_err(io::Error::other)
    }
}

pub(super) fn of_agent(
    interface: &str,
    tags: Option<&Path>,
    controls: Option<Paths>,
) -> Result<Arc<dyn Tags>, Failure> {
    let config = read(tags, Unhinted::Untouched)?;
    let tagger = Tagger::attach(interface, &config).map_err(failure)?;
    let controls = controls.map(|paths| register(paths, &tagger)).transpose()?;
    Ok(Arc::new(OfAgent { tagger, controls }))
}

/// Takes the file as it is now, or says what is wrong with it and leaves all as it was.
async fn change(tagger: &Tagger, args: &TagArgs, config: &mut Config) {
    let path = args.tags.clone();
    let reading = tokio::task::spawn_blocking(move || read(path.as_deref(), Unhinted::Unknown));
    // It may be a pipe by now, or on a disk that does not answer: the tagger is not to wait for it, and can be ended.
    let Ok(Ok(read)) = tokio::time::timeout(READ_LIMIT, reading).await else {
        let limit = READ_LIMIT.as_secs();
        return complain(format_args!(
            "weir tag: --tags was not read within {limit} s; nothing was changed\n"
        ));
    };
    let said = read.and_then(|new| {
        tagger.set(&new)?;
        *config = new;
        Ok(())
    });
    match said {
        Ok(()) => complain(format_args!("weir tag: the settings were read again\n")),
        Err(Failure::Input(reason)) => {
            complain(format_args!("weir tag: {reason}; nothing was changed\n"));
        }
        Err(_) => {
            complain(format_args!("weir tag: the kernel did not take the settings; nothing was changed\n"))
        }
    }
}

/// A row for each class that may have packets.
fn print(counters: &Counters, config: &Config) {
    let mut rows = table(&["class", "DSCP", "packets", "payload"], 0);
    let levels = config.thresholds.levels() + usize::from(config.best);
    for (class, (counted, dscp)) in counters.classes.iter().zip(config.dscp).enumerate() {
        if class < levels || counted.packets > 0 {
            rows.add_row([
                class.to_string(),
                dscp.to_string(),
                counted.packets.to_string(),
                counted.bytes.to_string(),
            ]);
        }
    }
    let ClassCounters { packets, bytes } = counters.not_written;
    if packets > 0 {
        rows.add_row(["none".to_owned(), "-".to_owned(), packets.to_string(), bytes.to_string()]);
    }
    say(format_args!("{}\n", text(&rows)));
}
