//! Gets one block again and again on several streams, and says how much arrived.

use anyhow::Context;
use clap::Args;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use weir_client::{Client, ClientConfig, GetOptions};
use weir_console::Failure;

#[derive(Args)]
pub(crate) struct ReceiveArgs {
    /// The agent's data plane
    #[arg(long)]
    pub(crate) holder: SocketAddr,
    #[arg(long)]
    pub(crate) coflow: u64,
    /// Blocks are called `PREFIX0`, `PREFIX1` and so on; each stream gets one after the other
    #[arg(long)]
    pub(crate) prefix: String,
    /// Number of blocks
    #[arg(long)]
    pub(crate) blocks: u64,
    /// The block to begin with
    #[arg(long)]
    pub(crate) start: u64,
    /// Number of gets that wait at once
    #[arg(long)]
    pub(crate) streams: u64,
    #[arg(long)]
    pub(crate) seconds: f64,
}

/// What a receiver measured. Every byte was verified.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Received {
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
    /// Of all threads of this process.
    pub(crate) cpu_s: f64,
}

pub(crate) fn receive(args: &ReceiveArgs) -> Result<(), Failure> {
    let before = cpu_seconds("self")?;
    let start = Instant::now();
    let end = start + Duration::from_secs_f64(args.seconds);
    // As a task of an application would be: one thread.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let bytes = runtime.block_on(async {
        let config = ClientConfig { coordinator: None, agent: None, host: 0 };
        let client = Client::new(config);
        let mut streams = tokio::task::JoinSet::new();
        for stream in 0..args.streams {
            let (client, prefix) = (client.clone(), args.prefix.clone());
            let (holder, coflow, blocks, step) = (args.holder, args.coflow, args.blocks, args.streams);
            let first = args.start;
            streams.spawn(async move {
                let (mut bytes, mut index) = (0, first + stream);
                while Instant::now() < end {
                    let block = format!("{prefix}{}", index % blocks);
                    let options = GetOptions { holders: vec![holder], ..GetOptions::default() };
                    let mut reader = client.get(coflow, &block, options);
                    while let Some(part) = reader.next().await? {
                        bytes += part.len() as u64;
                        // Within a block too: a large one would take the measurement far past its
                        // end.
                        if Instant::now() >= end {
                            return Ok(bytes);
                        }
                    }
                    index += step;
                }
                Ok::<u64, anyhow::Error>(bytes)
            });
        }
        let mut bytes = 0;
        while let Some(stream) = streams.join_next().await {
            bytes += stream??;
        }
        Ok::<u64, anyhow::Error>(bytes)
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let received = Received { bytes, seconds, cpu_s: cpu_seconds("self")? - before };
    println!("{}", serde_json::to_string(&received)?);
    Ok(())
}

/// Processor time that a process has taken so far, by its number or `self`.
pub(crate) fn cpu_seconds(process: &str) -> anyhow::Result<f64> {
    weir_metrics::cpu_seconds(process).with_context(|| format!("/proc/{process}/stat cannot be read"))
}
