//! Weir in one process, for a first look: a coordinator, two agents and a client, over real sockets on
//! loopback. Two coflows share the link into host 1; the small one goes first though it comes second.
//!
//! `cargo run --release -p weir-client --example embedded`

use anyhow::Context;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};
use weir_client::{Client, ClientConfig, CoflowOptions, GetOptions};
use weir_daemon::agent::AgentOptions;
use weir_daemon::coordinator::CoordinatorOptions;
use weir_model::{Fabric, Rate, Span};

const LARGE_BYTES: usize = 20_000_000;
const SMALL_BYTES: usize = 2_000_000;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let coordinator = start_coordinator(2)?;
    let sender = start_host(0, coordinator, dir.path())?;
    let receiver = start_host(1, coordinator, dir.path())?;
    let started = Instant::now();
    let large = tokio::spawn(move_coflow("large", LARGE_BYTES, sender.clone(), receiver.clone(), started));
    tokio::time::sleep(Duration::from_millis(100)).await;
    let small = tokio::spawn(move_coflow("small", SMALL_BYTES, sender, receiver, started));
    small.await??;
    large.await??;
    Ok(())
}

/// Serves two links of 10 MB/s, one into each host and one out of it.
fn start_coordinator(hosts: u32) -> anyhow::Result<SocketAddr> {
    let listener = weir_net::control_listener(([127, 0, 0, 1], 0).into())?;
    let address = listener.local_addr()?;
    let fabric = Fabric::big_switch(hosts, Rate::from_bytes_per_sec(10e6))?;
    let mut options = CoordinatorOptions::new(fabric, weir_policy::find("varys")?);
    // The small one would be left to TCP, and loopback has no links for TCP to share out.
    options.tuning.bypass = Span::ZERO;
    tokio::spawn(weir_daemon::coordinator::serve(options, listener, std::future::pending()));
    Ok(address)
}

/// Starts a host's agent and returns a client of it.
fn start_host(host: u32, coordinator: SocketAddr, dir: &Path) -> anyhow::Result<Client> {
    let listener = weir_net::data_listener(([127, 0, 0, 1], 0).into())?;
    let mut options = AgentOptions::new(host, dir.join(format!("host-{host}")));
    options.coordinator = Some(coordinator.into());
    let agent = Some(options.socket_path());
    tokio::spawn(weir_daemon::agent::serve(options, listener, std::future::pending()));
    Ok(Client::new(ClientConfig { coordinator: Some(coordinator.into()), agent, host }))
}

/// One coflow of one block, from register to unregister.
async fn move_coflow(
    name: &str,
    size: usize,
    sender: Client,
    receiver: Client,
    started: Instant,
) -> anyhow::Result<()> {
    let options = CoflowOptions { name: name.to_owned(), flows: 1, ..CoflowOptions::default() };
    let coflow = sender.register(options).await?;
    sender.put_bytes(coflow, "block", &vec![7; size]).await?;
    println!("{:.2} s: {name} ({size} bytes) asks for its block", started.elapsed().as_secs_f64());
    let bytes = receiver.get_bytes(coflow, "block", GetOptions::default()).await?;
    anyhow::ensure!(bytes.len() == size, "{} bytes came", bytes.len());
    let record = sender.unregister(coflow).await?.context("the coordinator knows it")?;
    println!("{:.2} s: {name} is complete after {:.3} s", started.elapsed().as_secs_f64(), record.cct_s);
    Ok(())
}
