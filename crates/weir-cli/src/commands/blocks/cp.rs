//! `weir cp`: a file of another host, in one go.
//!
//! A coflow of one flow: its block is the file itself, at that host, which its agent puts because it shares the folder.

use super::get::{Got, receive, say_got};
use super::peers::{Peers, said};
use super::print_json;
use clap::Args;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use weir_client::{Address, Client, ClientConfig, CoflowOptions, GetOptions, Host};
use weir_console::Failure;
use weir_console::{Files, OutputFile};

/// This command renews the lease; what it leaves if it is killed ends so soon after.
const LEASE_MS: u64 = 10_000;
/// How long the coordinator may take to end the coflow of a copy that a signal ends.
const END_LIMIT: Duration = Duration::from_secs(1);
/// Name of the one block.
const BLOCK: &str = "file";

#[derive(Args)]
pub(crate) struct CpArgs {
    #[command(flatten)]
    peers: Peers,
    /// The host, by name or number, and the absolute path of the file there, below a folder that its agent shares (`weir agent --share`)
    #[arg(value_name = "HOST:PATH")]
    from: Source,
    /// File to write, or `-` for standard output; a file here of the same name unless said
    #[arg(value_name = "FILE")]
    to: Option<PathBuf>,
    /// Longest time until the last byte
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    time_limit: u64,
    /// Number of this host, where no agent runs on it
    #[arg(long)]
    host: Option<u32>,
}

/// A file at a host.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Source {
    host: Host,
    path: String,
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Source, String> {
        let (host, path) = text.split_once(':').ok_or("no host before the path, as in 3:/data/file")?;
        let host = host.parse().map_err(|reason| format!("{host:?} is no host: {reason}"))?;
        if !path.starts_with('/') {
            return Err(format!("{path:?} is no absolute path"));
        }
        Ok(Source { host, path: path.to_owned() })
    }
}

pub(crate) fn cp(args: CpArgs) -> Result<(), Failure> {
    let to = match &args.to {
        Some(path) => path.clone(),
        None => super::get::file_name(&args.from.path)?,
    };
    let output = Files::default().writes("FILE", &to)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let client = runtime.block_on(args.peers.with_host(args.host, true))?;
    let options = CoflowOptions {
        name: format!("cp {}", args.from.path.chars().take(200).collect::<String>()),
        flows: 1,
        lease_ms: LEASE_MS,
        ..CoflowOptions::default()
    };
    let coordinator = runtime.block_on(args.peers.coordinator_address())?;
    let coflow = runtime.block_on(client.register(options)).map_err(said)?;
    // Also where a signal ends the command: otherwise the coflow would live until its lease lapses.
    weir_testbed::live::at_end(move || end(coordinator, coflow));
    let copied = copy(&runtime, &client, coflow, &args, &output);
    // Before the outcome is looked at: the coflow ends also where the copy failed.
    let ended = runtime.block_on(client.unregister(coflow));
    let got = copied?;
    // The file is there, so that a coordinator that has gone away since is only logged.
    if let Err(error) = ended {
        tracing::warn!("coflow {coflow} ends with its lease: {error}");
    }
    if args.peers.json { print_json(&got) } else { say_got(&got, &weir_results::printable(&args.from.path)) }
}

/// Ends the coflow of a copy that a signal ends, if the coordinator answers soon.
fn end(coordinator: Address, coflow: u64) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    runtime.block_on(async {
        let client = Client::new(ClientConfig { coordinator: Some(coordinator), agent: None, host: 0 });
        let _ = tokio::time::timeout(END_LIMIT, client.unregister(coflow)).await;
    });
}

fn copy(
    runtime: &tokio::runtime::Runtime,
    client: &Client,
    coflow: u64,
    args: &CpArgs,
    output: &OutputFile,
) -> Result<Got, Failure> {
    let Source { host, path } = &args.from;
    let size = runtime.block_on(client.offer(coflow, BLOCK, host, path)).map_err(said)?;
    let options = GetOptions { time_limit: Duration::from_secs(args.time_limit), ..GetOptions::default() };
    let mut got = None;
    output.write(|file| {
        got = Some(runtime.block_on(receive(client, coflow, BLOCK, options, file))?);
        Ok(())
    })?;
    let got = got.filter(|got| got.bytes == size);
    got.ok_or_else(|| Failure::Run(anyhow::anyhow!("other bytes came than the {size} that were offered")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_a_host_and_an_absolute_path_which_may_have_colons() {
        let source = "3:/data/a:b".parse::<Source>();
        assert_eq!(source, Ok(Source { host: Host::Number(3), path: "/data/a:b".to_owned() }));
        let source = "web-1:/data".parse::<Source>();
        assert_eq!(source, Ok(Source { host: Host::Name("web-1".to_owned()), path: "/data".to_owned() }));
        for text in ["", ":", "/data/file", "3:", "3:data", "-1:/data", "a b:/data", "4294967296:/data"] {
            assert!(text.parse::<Source>().is_err(), "{text}");
        }
    }
}
