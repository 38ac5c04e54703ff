//! `weir controller`: orders and paths for relays between sites.

use super::process::{begins, ends, listening, obey_hangups, run, stop_signal};
use clap::{Args, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use weir_console::{DeciderArgs, Failure};
use weir_controller::decider::{self, DeciderSettings};
use weir_controller::server::{self, ServerSettings};
use weir_controller::store::{EmbeddedStore, RedisStore, Store};
use weir_model::Span;
use weir_settings::logging::LogArgs;

/// Server and decision maker in one process, which keeps everything to itself. As several processes:
/// `weir controller serve` and `weir controller decide`, each as often as wanted, around a Redis.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ControllerArgs {
    /// File of settings (TOML): what its section [controller] says holds where the command line and the environment say nothing
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    log: LogArgs,
    #[command(subcommand)]
    part: Option<Part>,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    decider: DeciderArgs,
}

#[derive(Subcommand)]
enum Part {
    /// A server process: relays attach to it; without a decision maker they keep the rules they have
    Serve(ServeArgs),
    /// A decision maker process: rounds of simulation, beside those of others with other seeds
    Decide(DecideArgs),
}

#[derive(Args)]
struct ServeArgs {
    /// File of settings (TOML): what its section [controller] says holds where the command line and the environment say nothing
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Args)]
struct DecideArgs {
    /// File of settings (TOML): what its section [controller] says holds where the command line and the environment say nothing
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    decider: DeciderArgs,
    #[command(flatten)]
    watched: MetricsArgs,
}

#[derive(Args)]
struct StoreArgs {
    /// The Redis (version 7, not a cluster) that all processes of this controller meet in
    #[arg(long, value_name = "redis://HOST:PORT")]
    store: String,
    /// What the controller's keys there begin with
    #[arg(long, value_name = "PREFIX", default_value = "weir:")]
    store_prefix: String,
}

#[derive(Args)]
struct ServerArgs {
    /// Address to serve relays on
    #[arg(long, value_name = "IP:PORT", default_value = "0.0.0.0:7073")]
    listen: SocketAddr,
    /// How long relays count on a server that says nothing
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    lease_ms: u64,
    #[command(flatten)]
    watched: MetricsArgs,
}

#[derive(Args)]
struct MetricsArgs {
    /// Address to serve metrics on over HTTP: /metrics (OpenMetrics), /healthz and /readyz (docs/metrics.md)
    #[arg(long, value_name = "IP:PORT")]
    metrics: Option<SocketAddr>,
}

impl ControllerArgs {
    /// Which lines of the log to show.
    pub(crate) fn log(&self) -> &LogArgs {
        match &self.part {
            Some(Part::Serve(args)) => &args.log,
            Some(Part::Decide(args)) => &args.log,
            None => &self.log,
        }
    }
}

/// A name that no other process has, whether it runs now or ran before.
fn unique(what: &str) -> String {
    let started = weir_net::Clock::start().now().nanos();
    format!("{what}-{}-{started}", std::process::id())
}

fn redis(args: &StoreArgs) -> Result<Arc<dyn Store>, Failure> {
    let store = RedisStore::new(&args.store, &args.store_prefix);
    Ok(Arc::new(store.map_err(|error| Failure::Input(format!("--store {}: {error}", args.store)))?))
}

async fn serve(args: ServerArgs, store: Arc<dyn Store>) -> Result<(), Failure> {
    let listener = weir_net::control_listener(args.listen).map_err(|error| listening(args.listen, error))?;
    let mut settings = ServerSettings::new(unique("server"));
    settings.lease = Span::from_millis(args.lease_ms);
    settings.metrics = args.watched.metrics;
    let stop = stop_signal();
    obey_hangups("controller")?;
    begins(&format!("controller: relays at {}", listener.local_addr()?));
    server::serve(settings, store, listener, stop).await?;
    ends("controller");
    Ok(())
}

pub(crate) fn controller(args: ControllerArgs) -> Result<(), Failure> {
    match args.part {
        Some(Part::Serve(args)) => {
            let store = redis(&args.store)?;
            run(serve(args.server, store))
        }
        Some(Part::Decide(args)) => {
            let store = redis(&args.store)?;
            let settings = DeciderSettings {
                metrics: args.watched.metrics,
                ..args.decider.settings(unique("decider"))?
            };
            run(async move {
                let stop = stop_signal();
                obey_hangups("decision maker")?;
                begins(&format!("decision maker: {}", settings.name));
                decider::decide(settings, store, stop).await?;
                ends("decision maker");
                Ok(())
            })
        }
        None => {
            let store: Arc<dyn Store> = Arc::new(EmbeddedStore::new());
            let deciding = decider::decide(
                args.decider.settings(unique("decider"))?,
                store.clone(),
                // It has no signal of its own: it ends with the runtime, once the server has
                // stopped.
                std::future::pending(),
            );
            // Rounds of simulation must not hold up relays.
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
            runtime.block_on(async move {
                tokio::spawn(deciding);
                serve(args.server, store).await
            })
        }
    }
}
