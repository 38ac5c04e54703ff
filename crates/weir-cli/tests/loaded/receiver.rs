//! A get, at a pace of its own, every byte of it compared.

use super::plan::Pace;
use crate::support::chance::fill;
use crate::support::verdict::Failure;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};
use weir_client::{Client, GetError, GetOptions};

/// How long one may take.
const LIMIT: Duration = Duration::from_secs(60);
/// How long a receiver that went away stays away.
const AWAY: Duration = Duration::from_millis(300);

pub(crate) struct Receiver {
    pub(crate) client: Client,
    pub(crate) coflow: u64,
    pub(crate) block: String,
    pub(crate) holder: Option<SocketAddr>,
    pub(crate) content: u64,
    pub(crate) size: u64,
    pub(crate) pace: Pace,
    /// Bytes that all receivers got.
    pub(crate) arrived: Arc<AtomicU64>,
}

/// What a get came to, if nothing is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Got {
    /// All bytes, and all right.
    Whole,
    /// It was told that the block's file changed.
    Changed,
}

impl Receiver {
    pub(crate) async fn run(self) -> Result<Got, Failure> {
        if let Pace::Leaves(after) = self.pace {
            self.read(Some(after)).await?;
            sleep(AWAY).await;
        }
        self.read(None).await
    }

    /// Reads all, or goes away after so many bytes.
    async fn read(&self, leaves: Option<u64>) -> Result<Got, Failure> {
        let holders = self.holder.into_iter().collect();
        let options = GetOptions { time_limit: LIMIT, holders, ..GetOptions::default() };
        let mut reader = self.client.get(self.coflow, &self.block, options);
        let (begun, mut at, mut expected) = (Instant::now(), 0, Vec::new());
        loop {
            if leaves.is_some_and(|after| at >= after) {
                return Ok(Got::Whole);
            }
            let next = reader.next().await;
            let bytes = match next {
                Ok(Some(bytes)) => bytes,
                Ok(None) if at == self.size => return Ok(Got::Whole),
                Ok(None) => return Err(self.wrong(&format!("{at} bytes instead of {}", self.size))),
                Err(GetError::Gone { .. } | GetError::Changed { .. }) => return Ok(Got::Changed),
                Err(error) => return Err(Failure::Lost(format!("{} after {at} bytes: {error}", self.block))),
            };
            expected.resize(bytes.len(), 0);
            fill(self.content, at, &mut expected);
            if expected != bytes {
                return Err(self.wrong(&format!("other bytes after {at}")));
            }
            let count = bytes.len() as u64;
            at += count;
            self.arrived.fetch_add(count, Ordering::Relaxed);
            match self.pace {
                Pace::Slow(rate) => {
                    sleep_until(begun + Duration::from_secs_f64(at as f64 / rate as f64)).await;
                }
                Pace::Stops(after, millis) if (at - count..at).contains(&after) => {
                    sleep(Duration::from_millis(millis)).await;
                }
                _ => {}
            }
        }
    }

    fn wrong(&self, how: &str) -> Failure {
        Failure::Wrong(format!("{}: {how}", self.block))
    }
}
