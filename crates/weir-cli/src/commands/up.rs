//! `weir up`: a coordinator and a few agents on this machine, without root, for a first look.
//!
//! All of it runs in this one process: when it ends, nothing is left but what was written elsewhere. Links are Weir's own
//! pacing: loopback is faster, and traffic that is not Weir's is not held back.

use crate::Failure;
use crate::commands::daemons::listening;
use crate::commands::policies::find_for_hosts;
use anyhow::Context;
use clap::Args;
use std::future::pending;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tokio::task::JoinSet;
use weir_client::{Client, ClientConfig, CoflowOptions, CoflowRecord, GetOptions};
use weir_daemon::agent::AgentOptions;
use weir_daemon::coordinator::CoordinatorOptions;
use weir_model::{Bytes, Fabric, Rate, Span};
use weir_testbed::live::{RunFolder, payload_rate};

/// Most hosts: each is an agent with threads of its own.
const MAX_HOSTS: u32 = 64;
/// Seconds that the blocks of the demo take on a link of their own.
const DEMO_SECONDS: f64 = 0.5;
/// Bytes of a block of the demo, at most.
const MAX_DEMO_BYTES: u64 = 64 << 20;

#[derive(Args)]
pub(crate) struct UpArgs {
    /// Number of agents
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=MAX_HOSTS as i64))]
    hosts: u32,
    /// Rate of each host's link, headers included
    #[arg(long, value_name = "RATE", default_value = "1gbit")]
    link_rate: Rate,
    /// Policy of the coordinator; `weir policies` lists them
    #[arg(long, default_value = "varys")]
    policy: String,
    /// Where the coordinator listens
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Folder below which tasks may put files in place; may be repeated
    #[arg(long, value_name = "DIR")]
    allow: Vec<PathBuf>,
    /// Folder below which `weir cp` may take files; may be repeated
    #[arg(long, value_name = "DIR")]
    share: Vec<PathBuf>,
    /// End after the demo coflow
    #[arg(long)]
    once: bool,
}

pub(crate) fn up(args: UpArgs) -> Result<(), Failure> {
    let policy = find_for_hosts(&args.policy)?;
    let rate = payload_rate(args.link_rate);
    let fabric = Fabric::big_switch(args.hosts, rate)
        .map_err(|error| Failure::Input(format!("--link-rate {}: {error}", args.link_rate)))?;
    let folder = RunFolder::create()?;
    weir_net::raise_descriptor_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut daemons = JoinSet::new();
        let mut options = CoordinatorOptions::new(fabric, policy);
        // Loopback has no links that TCP could share out.
        options.bypass = Span::ZERO;
        let listener =
            weir_net::control_listener(args.listen).map_err(|error| listening(args.listen, error))?;
        let coordinator = listener.local_addr()?;
        daemons.spawn(weir_daemon::coordinator::serve(options, listener, pending()));
        let mut clients = Vec::new();
        for host in 0..args.hosts {
            clients.push(start_host(host, coordinator, folder.path(), &args, &mut daemons)?);
        }
        println!(
            "{} agents and a coordinator on {coordinator}; links of {}, policy {}",
            args.hosts, args.link_rate, args.policy
        );
        tokio::select! {
            demo = demo(&clients, rate) => say_demo(&demo?, rate, args.hosts),
            ended = daemons.join_next() => return Err(unexpected(ended)),
        }
        if args.once {
            return Ok(());
        }
        say_how(folder.path())?;
        // Signals end the process, and its folder with it.
        Err(unexpected(daemons.join_next().await))
    })
}

fn unexpected(ended: Option<Result<anyhow::Result<()>, tokio::task::JoinError>>) -> Failure {
    let why = match ended {
        Some(Ok(Err(error))) => error,
        Some(Err(error)) => error.into(),
        Some(Ok(Ok(()))) | None => anyhow::anyhow!("without a reason"),
    };
    Failure::Run(why.context("a daemon ended"))
}

fn spool_of(folder: &Path, host: u32) -> PathBuf {
    folder.join(format!("host-{host}"))
}

fn start_host(
    host: u32,
    coordinator: SocketAddr,
    folder: &Path,
    args: &UpArgs,
    daemons: &mut JoinSet<anyhow::Result<()>>,
) -> Result<Client, Failure> {
    let address = SocketAddr::new(coordinator.ip(), 0);
    let listener = weir_net::data_listener(address).map_err(|error| listening(address, error))?;
    let mut options = AgentOptions::new(host, spool_of(folder, host));
    options.coordinator = Some(coordinator.into());
    options.allow = args.allow.clone();
    options.share = args.share.clone();
    let agent = Some(options.socket_path());
    daemons.spawn(weir_daemon::agent::serve(options, listener, pending()));
    Ok(Client::new(ClientConfig { coordinator: Some(coordinator.into()), agent, host }))
}

/// A shuffle to one host: all others put a block each, and it gets them.
async fn demo(clients: &[Client], rate: Rate) -> anyhow::Result<CoflowRecord> {
    let Some((receiver, senders)) = clients.split_last() else { anyhow::bail!("no hosts") };
    let bytes = (rate.bytes_per_sec() * DEMO_SECONDS) as u64 / senders.len() as u64;
    let bytes = bytes.clamp(1, MAX_DEMO_BYTES);
    let options =
        CoflowOptions { name: "demo".to_owned(), flows: senders.len() as u64, ..Default::default() };
    let coflow = receiver.register(options).await?;
    let name = |sender: usize| format!("from-{sender}");
    for (number, sender) in senders.iter().enumerate() {
        let mut memory = sender.memory_block(bytes).await?;
        memory.fill(number as u8);
        sender.put_memory(coflow, &name(number), memory).await?;
    }
    let mut gets = JoinSet::new();
    for number in 0..senders.len() {
        let (receiver, name) = (receiver.clone(), name(number));
        gets.spawn(async move {
            let mut reader = receiver.get(coflow, &name, GetOptions::default());
            let mut received = 0;
            while let Some(part) = reader.next().await? {
                anyhow::ensure!(
                    part.iter().all(|&byte| byte == number as u8),
                    "other bytes came than were put"
                );
                received += part.len() as u64;
            }
            Ok(received)
        });
    }
    while let Some(received) = gets.join_next().await {
        let received = received??;
        anyhow::ensure!(received == bytes, "{received} of {bytes} bytes came");
    }
    receiver.unregister(coflow).await?.context("the coordinator does not know the coflow of the demo")
}

fn say_demo(record: &CoflowRecord, rate: Rate, hosts: u32) {
    let alone = record.bytes as f64 / rate.bytes_per_sec();
    println!(
        "demo: a coflow of {} blocks, {} in all, to host {}: complete after {:.3} s ({alone:.3} s is the least that the link takes)",
        record.flows,
        Bytes(record.bytes),
        hosts - 1,
        record.cct_s,
    );
}

/// The lines to copy. What is moved is this program, which surely is there.
fn say_how(folder: &Path) -> Result<(), Failure> {
    let program = std::env::args_os().next().unwrap_or_else(|| "weir".into());
    let program = program.to_string_lossy();
    let file = std::env::current_exe()?;
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let socket = |host| spool_of(folder, host).join("agent.sock").display().to_string();
    println!("\nTo move a block from host 0 to host 1, in another terminal:\n");
    println!("    export WEIR_AGENT={}", socket(0));
    println!("    export WEIR_COFLOW=$({program} register)");
    println!("    {program} put {}", file.display());
    println!("    {program} get --agent {} {name} copy-of-{name}", socket(1));
    println!("    {program} unregister");
    println!(
        "\n`{program} list`, `{program} why` and `{program} status` say what there is. Ctrl-C ends it all."
    );
    Ok(())
}
