//! A host's task: puts and gets blocks as the driver says. Every byte it gets has passed its frame's
//! checksum; that the frames are those of this block, in order, is seen by comparing both ends of each with
//! what was put. (Comparing the rest again would take processor time from the hosts under test.)

use super::protocol::{FromTask, GetBlock, Got, PutBlock, ToTask};
use std::fs::File;
use std::io::{self, BufRead, Write};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::mpsc;
use weir_client::{Client, ClientConfig, GetError, GetOptions};

/// A get that takes longer has failed.
const GET_LIMIT: Duration = Duration::from_secs(900);
/// Bytes compared at each end of a frame. The data has no pattern: other bytes differ somewhere in so many.
const SAMPLE_BYTES: usize = 64;
/// Puts under way at once.
const PUTS_AT_ONCE: usize = 32;

/// Serves the driver on standard input and output until the input ends.
///
/// # Errors
/// The data cannot be opened, a line of the driver is no message, or a put fails. The driver is told of a get that
/// fails, and the task goes on.
pub fn run_task(
    host: u32,
    coordinator: Option<SocketAddr>,
    agent: PathBuf,
    data: &Path,
) -> anyhow::Result<()> {
    let (lines, mut inbox) = mpsc::unbounded_channel();
    // A read of standard input blocks, and would hold up all gets, which share one thread.
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            if lines.send(line).is_err() {
                return;
            }
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async move {
        let client =
            Client::new(ClientConfig { coordinator: coordinator.map(Into::into), agent: Some(agent), host });
        let expected = Rc::new(File::open(data)?);
        while let Some(line) = inbox.recv().await {
            match serde_json::from_str(&line)? {
                ToTask::Put(blocks) => put_all(&client, data, blocks).await?,
                ToTask::Get(blocks) => {
                    for block in blocks {
                        let (client, expected) = (client.clone(), Rc::clone(&expected));
                        tokio::task::spawn_local(async move {
                            let flow = block.flow;
                            say(&match get(&client, &expected, block).await {
                                Ok(got) => FromTask::Got(got),
                                Err(error) => match error.downcast_ref() {
                                    Some(GetError::CoflowRefused { reason, .. }) => {
                                        FromTask::Refused { flow, reason: reason.clone() }
                                    }
                                    _ => FromTask::Failed { flow, reason: format!("{error:#}") },
                                },
                            });
                        });
                    }
                }
            }
        }
        Ok(())
    })
}

async fn put_all(client: &Client, data: &Path, blocks: Vec<PutBlock>) -> anyhow::Result<()> {
    let mut puts = tokio::task::JoinSet::new();
    for block in blocks {
        if puts.len() >= PUTS_AT_ONCE
            && let Some(done) = puts.join_next().await
        {
            done??;
        }
        let (client, data) = (client.clone(), data.to_owned());
        puts.spawn_local(async move {
            client.put_file(block.coflow, &block.block, &data, block.offset, block.size).await
        });
    }
    while let Some(done) = puts.join_next().await {
        done??;
    }
    say(&FromTask::PutDone);
    Ok(())
}

async fn get(client: &Client, expected: &File, block: GetBlock) -> anyhow::Result<Got> {
    let called_ns = weir_net::monotonic_nanos();
    let options = GetOptions {
        time_limit: GET_LIMIT,
        holders: vec![block.holder],
        group: block.group,
        ..GetOptions::default()
    };
    let mut reader = client.get(block.coflow, &block.block, options);
    let (mut at, mut first_byte_ns) = (0, 0);
    while let Some(bytes) = reader.next().await? {
        let sample = bytes.len().min(SAMPLE_BYTES);
        for from in [0, bytes.len() - sample] {
            let mut put = [0; SAMPLE_BYTES];
            expected.read_exact_at(&mut put[..sample], block.offset + at + from as u64)?;
            anyhow::ensure!(
                bytes[from..from + sample] == put[..sample],
                "wrong bytes at {} of block {}",
                at + from as u64,
                block.block
            );
        }
        at += bytes.len() as u64;
    }
    anyhow::ensure!(at == block.size, "block {} has {at} bytes instead of {}", block.block, block.size);
    let done_ns = weir_net::monotonic_nanos();
    if let Some(first) = reader.first_byte() {
        // The reader says it as an `Instant`; the driver reckons in the monotonic clock that all
        // processes of the machine share.
        first_byte_ns = done_ns.saturating_sub(first.elapsed().as_nanos() as u64);
    }
    Ok(Got { flow: block.flow, called_ns, first_byte_ns, done_ns })
}

/// One line to the driver. If it is gone, so is the reason to go on.
fn say(message: &FromTask) {
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    let mut output = io::stdout().lock();
    if output.write_all(&line).and_then(|()| output.flush()).is_err() {
        std::process::exit(1);
    }
}
