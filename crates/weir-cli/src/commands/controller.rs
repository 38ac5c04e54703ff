//! `weir controller`: orders and paths for relays between sites.

use super::daemons::{begins, ends, listening, obey_hangups, run, stop_signal};
use super::policies::find_between_sites;
use crate::Failure;
use crate::logging::LogArgs;
use clap::{Args, Subcommand, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use weir_controller::decider::{self, DeciderSettings};
use weir_controller::maker::MakerSettings;
use weir_controller::server::{self, ServerSettings};
use weir_controller::store::{EmbeddedStore, RedisStore, Store};
use weir_model::Span;
use weir_policy::order::branches::Reach;
use weir_policy::order::tally::Decide;
use weir_policy::route::Rule;

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

#[derive(Args)]
pub(crate) struct DeciderArgs {
    /// Seed of this decision maker's draws; each has its own
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Rounds per decision, of all decision makers together
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) rounds: u32,
    /// Coflows whose order is looked at. As breadth, the same for all decision makers
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=5))]
    pub(crate) depth: u8,
    /// Coflows that they are taken from, first by remaining time
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub(crate) breadth: u8,
    /// What decides: the order that was best most often, or the one that was best on average
    #[arg(long, value_name = "HOW", default_value = "wins")]
    pub(crate) decide: DecideBy,
    /// How far traffic is divided over detours by water-filling. As groups, the same for all decision makers
    #[arg(long, value_name = "HOW", default_value = "converged")]
    pub(crate) routes: Routes,
    /// Another policy for links between sites, such as sebf-routed: its plans decide, without rounds, on order and detours
    #[arg(long, value_name = "NAME", conflicts_with_all = ["rounds", "depth", "breadth", "decide", "routes"])]
    pub(crate) policy: Option<String>,
    /// How the flow groups of a coflow go: one after the other, or in turn
    #[arg(long, value_name = "HOW", default_value = "largest-first")]
    pub(crate) groups: Groups,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Routes {
    /// No detours
    Direct,
    /// One detour, for the slowest link
    OneIteration,
    /// Until the slowest link's traffic cannot be moved (Siphon)
    Published,
    /// Until no link's can
    Converged,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Groups {
    /// The largest first (LFGF)
    LargestFirst,
    /// All share
    Together,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum DecideBy {
    Wins,
    Mean,
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

impl DeciderArgs {
    pub(crate) fn maker(&self) -> MakerSettings {
        MakerSettings {
            reach: Reach { depth: self.depth.into(), breadth: self.breadth.into() },
            rounds: self.rounds,
            decide: match self.decide {
                DecideBy::Wins => Decide::Wins,
                DecideBy::Mean => Decide::Mean,
            },
            early: true,
            routes: match self.routes {
                Routes::Direct => Rule::Direct,
                Routes::OneIteration => Rule::OneIteration,
                Routes::Published => Rule::Published,
                Routes::Converged => Rule::Converged,
            },
            largest_group_first: matches!(self.groups, Groups::LargestFirst),
        }
    }

    fn settings(&self) -> Result<DeciderSettings, Failure> {
        self.policy.as_deref().map(find_between_sites).transpose()?;
        let (name, seed, maker) = (unique("decider"), self.seed, self.maker());
        Ok(DeciderSettings { name, seed, maker, policy: self.policy.clone(), metrics: None })
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
            let settings = DeciderSettings { metrics: args.watched.metrics, ..args.decider.settings()? };
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
            let deciding = decider::decide(args.decider.settings()?, store.clone(), std::future::pending());
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
