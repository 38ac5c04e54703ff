//! `weir relay`: the relay of a site.

use super::process::{begins, ends, listening, obey_hangups, run, stop_signal};
use clap::Args;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use weir_console::Failure;
use weir_daemon::relay::{RelayOptions, StaticRules};
use weir_model::Rate;
use weir_settings::logging::LogArgs;

/// Takes flows of the hosts of its site to other sites, and those of other sites to their receivers.
///
/// Hosts use it if their agents are told so (`weir agent --site --relay`). Which way flows go, and which goes first, a
/// controller says, or a file. Without either, every flow goes straight to the relay of its receiver.
///
/// A file of rules (TOML):
///
///   [[relay]]                 # each relay that rules lead to
///   name = "oslo-1"
///   site = 2
///   address = "10.0.0.5:7072"
///
///   [[rule]]                  # of the flows of coflow 7 to reducer 131074: group 2 at host 2
///   coflow = 7                # mapper, reducer and coflow may be left out, in this order
///   reducer = 131074          # 65536 times the host, and the group that the receiver named
///   rank = 1                  # less goes first; 0 unless said
///   weight = 1.0              # share within a rank
///   entering = true           # next hops are for flows of hosts of this site; those of other relays go
///                             # straight on. false unless said
///   to = [{ relay = "oslo-1", weight = 3 }, { deliver = true }]
///
/// `deliver` is straight to the relay that the receiver listens at. Of the rules that a flow matches the one with the
/// most parts holds.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct RelayArgs {
    /// File of settings (TOML): what its section [relay] says holds where the command line and the environment say nothing
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) log: LogArgs,
    /// Its name, unique among all relays
    #[arg(long, value_name = "NAME", value_parser = name)]
    name: String,
    /// Its site
    #[arg(long, value_name = "N")]
    site: u32,
    /// Address for hosts, receivers and other relays
    #[arg(long, value_name = "IP:PORT", default_value = "0.0.0.0:7072")]
    listen: SocketAddr,
    /// Address at which they reach it, if not the one listened on
    #[arg(long, value_name = "IP:PORT")]
    advertise: Option<SocketAddr>,
    /// The controller of the relays; of several servers the first that can be reached
    #[arg(long, value_name = "IP:PORT,..", value_delimiter = ',')]
    controller: Vec<SocketAddr>,
    /// File of relays and rules that hold until a controller says others
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Parallel connections to each other relay, 1 to 64
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    connections: u8,
    /// The most that one of these connections carries, to a site or to all others
    #[arg(long, value_name = "[SITE=]RATE,..", value_delimiter = ',', value_parser = connection_rate)]
    connection_rate: Vec<(Option<u32>, Rate)>,
    /// Address to serve metrics on over HTTP: /metrics (OpenMetrics), /healthz and /readyz (docs/metrics.md)
    #[arg(long, value_name = "IP:PORT")]
    metrics: Option<SocketAddr>,
}

fn connection_rate(text: &str) -> Result<(Option<u32>, Rate), String> {
    let (site, rate) = match text.split_once('=') {
        Some((site, rate)) => {
            let site = site.parse().map_err(|_| format!("`{site}` is not the number of a site"))?;
            (Some(site), rate)
        }
        None => (None, text),
    };
    let rate: Rate = rate.parse().map_err(|error| format!("{error}"))?;
    if rate.bytes_per_sec() >= 1.0 {
        Ok((site, rate))
    } else {
        Err("a connection needs some rate".to_owned())
    }
}

fn name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.len() > 255 {
        return Err("a name has 1 to 255 bytes".to_owned());
    }
    Ok(text.to_owned())
}

pub(crate) fn relay(args: RelayArgs) -> Result<(), Failure> {
    let mut options = RelayOptions::new(&args.name, args.site);
    options.advertise = args.advertise;
    options.controllers = args.controller;
    options.rules = args.rules.as_deref().map(read_rules).transpose()?;
    options.connections = args.connections;
    options.metrics = args.metrics;
    for (site, rate) in args.connection_rate {
        match site {
            Some(site) => drop(options.connection_rates.sites.insert(site, rate)),
            None => options.connection_rates.others = Some(rate),
        }
    }
    if options.advertise.is_none() && args.listen.ip().is_unspecified() {
        return Err(Failure::Input(format!(
            "--listen {} is no address others can reach; say which with --advertise",
            args.listen
        )));
    }
    if let Some(address) =
        args.advertise.filter(|address| address.ip().is_unspecified() || address.port() == 0)
    {
        return Err(Failure::Input(format!(
            "--advertise {address} is no address that others can reach; give the relay's own, with the port"
        )));
    }
    run(async move {
        let listener = weir_net::data_listener(args.listen).map_err(|error| listening(args.listen, error))?;
        let stop = stop_signal();
        obey_hangups("relay")?;
        begins(&format!("relay: {} of site {} on {}", args.name, args.site, listener.local_addr()?));
        weir_daemon::relay::serve(options, listener, stop).await?;
        ends(&format!("relay {}", args.name));
        Ok(())
    })
}

fn read_rules(path: &Path) -> Result<StaticRules, Failure> {
    let refuse =
        |error: &dyn std::fmt::Display| Failure::Input(format!("--rules {}: {error}", path.display()));
    let text = weir_trace::read_text(path).map_err(|error| refuse(&error))?;
    StaticRules::parse(&text).map_err(|error| refuse(&error))
}
