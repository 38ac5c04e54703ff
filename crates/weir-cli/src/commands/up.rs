//! `weir up`: a coordinator and a few agents on this machine, without root, for a first look.
//!
//! All of it runs in this one process: when it ends, nothing is left but what was written elsewhere. Links are Weir's own
//! pacing: loopback is faster, and traffic that is not Weir's is not held back.

use crate::commands::process::listening;
use anyhow::Context;
use clap::Args;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use weir_client::{Client, ClientConfig, CoflowOptions, CoflowRecord, GetOptions};
use weir_console::Failure;
use weir_console::find_for_hosts;
use weir_daemon::agent::AgentOptions;
use weir_daemon::coordinator::CoordinatorOptions;
use weir_model::{Bytes, Fabric, Rate, Span};
use weir_policy::Chosen;
use weir_testbed::live::{RunFolder, ending_signal};

/// Most hosts: each is an agent with threads of its own.
const MAX_HOSTS: u32 = 64;
/// Seconds that the blocks of the demo take on a link of their own.
const DEMO_SECONDS: f64 = 0.5;
/// How long the daemons may take to end.
const END_LIMIT: Duration = Duration::from_secs(3);
/// Bytes of a block of the demo, at most.
const MAX_DEMO_BYTES: u64 = 64 << 20;

#[derive(Args)]
pub(crate) struct UpArgs {
    /// Number of agents
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=MAX_HOSTS as i64))]
    hosts: u32,
    /// Rate of each host's link, headers included
    #[arg(long, value_name = "RATE", default_value = "1gbit", value_parser = link_rate)]
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

/// Below the least, the demo would be no longer than a chunk of the pacing.
fn link_rate(text: &str) -> Result<Rate, String> {
    let rate: Rate = text.parse().map_err(|error| format!("{error}"))?;
    let (least, most) = (Rate::from_bits_per_sec(1e6), Rate::from_bits_per_sec(1e12));
    if rate < least || rate > most { Err(format!("not between {least} and {most}")) } else { Ok(rate) }
}

/// Folders that cannot be served are found out before anything starts.
fn check_folders(option: &str, folders: &[PathBuf]) -> Result<(), Failure> {
    for folder in folders {
        let refuse = |reason: String| Failure::Input(format!("{option} {}: {reason}", folder.display()));
        let found = std::fs::metadata(folder).map_err(|error| refuse(error.to_string()))?;
        if !found.is_dir() {
            return Err(refuse("is no folder".to_owned()));
        }
    }
    Ok(())
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let plain = |part: char| part.is_ascii_alphanumeric() || "/._-+:=,@%".contains(part);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

pub(crate) fn up(args: UpArgs) -> Result<(), Failure> {
    check_folders("--allow", &args.allow)?;
    check_folders("--share", &args.share)?;
    let policy = find_for_hosts(&args.policy)?;
    let rate = args.link_rate.payload();
    let fabric = Fabric::big_switch(args.hosts, rate)
        .map_err(|error| Failure::Input(format!("--link-rate {}: {error}", args.link_rate)))?;
    let folder = RunFolder::create()?;
    weir_net::raise_descriptor_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let signal = ending_signal()?;
        let mut cluster = Cluster::default();
        let ended = tokio::select! {
            failed = run(&args, fabric, policy, rate, folder.path(), &mut cluster) => failed.map(|()| None),
            code = signal => Ok(Some(code)),
        };
        cluster.end().await;
        ended
    });
    runtime.shutdown_timeout(END_LIMIT);
    // Before `exit`, which runs no destructors: the folder would stay.
    drop(folder);
    match ended? {
        // As a shell reports a signal.
        Some(code) => std::process::exit(code),
        None => Ok(()),
    }
}

/// Starts everything, moves the demo's coflow, and goes on until a daemon ends.
async fn run(
    args: &UpArgs,
    fabric: Fabric,
    policy: Chosen,
    rate: Rate,
    folder: &Path,
    cluster: &mut Cluster,
) -> Result<(), Failure> {
    let mut options = CoordinatorOptions::new(fabric, policy);
    // Loopback has no links that TCP could share out.
    options.tuning.bypass = Span::ZERO;
    let listener = weir_net::control_listener(args.listen).map_err(|error| listening(args.listen, error))?;
    let coordinator = listener.local_addr()?;
    cluster.daemons.spawn(weir_daemon::coordinator::serve(
        options,
        listener,
        cluster.is_over(Stage::Coordinator),
    ));
    let mut clients = Vec::new();
    for host in 0..args.hosts {
        clients.push(start_host(host, coordinator, folder, args, cluster)?);
    }
    println!(
        "{} agents and a coordinator on {coordinator}; links of {}, policy {}",
        args.hosts, args.link_rate, args.policy
    );
    tokio::select! {
        demo = demo(&clients, rate) => say_demo(&demo?, rate, args.hosts),
        ended = cluster.daemons.join_next() => return Err(unexpected(ended)),
    }
    if args.once {
        return Ok(());
    }
    say_how(folder)?;
    Err(unexpected(cluster.daemons.join_next().await))
}

/// Who is to end by now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    #[default]
    Nobody,
    Agents,
    Coordinator,
}

/// The daemons: agents end before their coordinator, which they would miss.
#[derive(Default)]
struct Cluster {
    daemons: JoinSet<anyhow::Result<()>>,
    stage: watch::Sender<Stage>,
}

impl Cluster {
    /// Resolves when daemons of this stage are to end.
    fn is_over(&self, last: Stage) -> impl Future<Output = ()> + Send + 'static {
        let mut stage = self.stage.subscribe();
        async move { _ = stage.wait_for(|stage| *stage >= last).await }
    }

    /// Has all daemons end, and waits for it: what they have in the folder goes after them.
    async fn end(mut self) {
        let all = async {
            self.stage.send_replace(Stage::Agents);
            // The last one is the coordinator, which was not asked to end yet.
            while self.daemons.len() > 1 && self.daemons.join_next().await.is_some() {}
            self.stage.send_replace(Stage::Coordinator);
            while self.daemons.join_next().await.is_some() {}
        };
        let _ = tokio::time::timeout(END_LIMIT, all).await;
    }
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
    cluster: &mut Cluster,
) -> Result<Client, Failure> {
    let address = SocketAddr::new(coordinator.ip(), 0);
    let listener = weir_net::data_listener(address).map_err(|error| listening(address, error))?;
    let mut options = AgentOptions::new(host, spool_of(folder, host));
    options.coordinator = Some(coordinator.into());
    options.allow = args.allow.clone();
    options.share = args.share.clone();
    let agent = Some(options.socket_path());
    cluster.daemons.spawn(weir_daemon::agent::serve(options, listener, cluster.is_over(Stage::Agents)));
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
        // Another byte for each sender, so that a block in place of another is noticed.
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
    let program = quoted(&program.to_string_lossy());
    let file = std::env::current_exe()?;
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let socket = |host| quoted(&spool_of(folder, host).join("agent.sock").display().to_string());
    println!("\nTo move a block from host 0 to host 1, in another terminal:\n");
    println!("    export WEIR_AGENT={}", socket(0));
    println!("    export WEIR_COFLOW=$({program} register)");
    println!("    {program} put {}", quoted(&file.display().to_string()));
    println!(
        "    {program} get --agent {} {} {}",
        socket(1),
        quoted(&name),
        quoted(&format!("copy-of-{name}"))
    );
    println!("    {program} unregister");
    println!(
        "\n`{program} list`, `{program} why` and `{program} status` say what there is. Ctrl-C ends it all."
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_spaces_and_quotes_is_one_word_of_a_shell() {
        for word in ["/tmp/a-1.2", "/tmp/a b", "it's", "$(x)", "", "a\"b", "ä"] {
            let script = format!("printf %s {}", quoted(word));
            let output = std::process::Command::new("sh").arg("-c").arg(script).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
        }
    }
}
