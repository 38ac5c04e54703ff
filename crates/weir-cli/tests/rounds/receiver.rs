//! A receiver: a child process that gets blocks through the client library, compares every byte with
//! what was put, and says on standard output what happened.

use crate::support::chance::fill;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;
use weir_client::{Client, ClientConfig, GetError, GetOptions};

/// Environment variable that holds the receiver's [`Orders`].
pub(crate) const ORDERS: &str = "WEIR_CHAOS_ORDERS";
/// Name of the test that is the receiver's entry.
pub(crate) const ENTRY: &str = "receiver_process";

/// What a receiver is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Orders {
    pub(crate) host: u32,
    pub(crate) coordinator: Option<SocketAddr>,
    pub(crate) gets: Vec<Get>,
    pub(crate) limit_ms: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Get {
    /// Index of the get in the round's plan.
    pub(crate) index: usize,
    pub(crate) coflow: u64,
    pub(crate) block: String,
    /// Told the holder, it does not ask the coordinator.
    pub(crate) holder: Option<SocketAddr>,
    /// Seed of the content.
    pub(crate) content: u64,
    pub(crate) size: u64,
    pub(crate) start_ms: u64,
}

/// What a receiver says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Said {
    /// This many more bytes arrived.
    Arrived(u64),
    /// A get returned every byte, and all were right.
    Got(usize),
    /// A get ended because its coflow did.
    Ended(usize),
    /// A get returned wrong bytes, or too few or many.
    Wrong(usize, String),
    /// A get gave up.
    Lost(usize, String),
}

/// Serves the orders, then waits for standard input to close.
pub(crate) fn run(orders: &str) {
    let orders: Orders = serde_json::from_str(orders).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let config =
            ClientConfig { coordinator: orders.coordinator.map(Into::into), agent: None, host: orders.host };
        let client = Client::new(config);
        let mut gets = tokio::task::JoinSet::new();
        for get in orders.gets {
            let client = client.clone();
            gets.spawn(async move {
                tokio::time::sleep(Duration::from_millis(get.start_ms)).await;
                say(&one(&client, &get, Duration::from_millis(orders.limit_ms)).await);
            });
        }
        while let Some(done) = gets.join_next().await {
            done.unwrap();
        }
    });
    let _ = io::stdin().read(&mut [0]);
    std::process::exit(0);
}

async fn one(client: &Client, get: &Get, time_limit: Duration) -> Said {
    let holders = get.holder.into_iter().collect();
    let options = GetOptions { time_limit, holders, ..GetOptions::default() };
    let mut reader = client.get(get.coflow, &get.block, options);
    let (mut at, mut expected) = (0, Vec::new());
    loop {
        match reader.next().await {
            Ok(Some(bytes)) => {
                expected.resize(bytes.len(), 0);
                fill(get.content, at, &mut expected);
                if expected != bytes {
                    return Said::Wrong(get.index, format!("other bytes between {at} and the next frame"));
                }
                at += bytes.len() as u64;
                say(&Said::Arrived(bytes.len() as u64));
            }
            Ok(None) if at == get.size => return Said::Got(get.index),
            Ok(None) => return Said::Wrong(get.index, format!("{at} bytes instead of {}", get.size)),
            Err(GetError::CoflowEnded(_)) => return Said::Ended(get.index),
            Err(error) => return Said::Lost(get.index, error.to_string()),
        }
    }
}

fn say(said: &Said) {
    let mut line = serde_json::to_vec(said).unwrap();
    line.push(b'\n');
    let mut output = io::stdout().lock();
    if output.write_all(&line).and_then(|()| output.flush()).is_err() {
        std::process::exit(1);
    }
}
