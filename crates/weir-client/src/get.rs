//! Getting blocks: what callers see of it, and the loop that does what the receiver says.
//!
//! Which holder is asked for what, and when, [`weir_core::receiver`] decides. [`crate::links`] has the connections,
//! [`crate::calls`] the questions to the coordinator and the host's agent.

use crate::calls::{self, Answer, Call};
use crate::links::Links;
use crate::{Client, GetError};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::time::Sleep;
use weir_core::ids::HostNumber;
use weir_core::receiver::{Located, Output, Receiver, ReceiverConfig, ReceiverError};
use weir_model::{CoflowId, Span, Time};

/// A time limit that cannot be added to the present is this long.
const LONGEST_LIMIT: Duration = Duration::from_secs(86_400 * 365 * 10);
/// How often a block that changed is got anew by calls that have handed nothing out.
const ANEW: usize = 3;

/// How a block is to be got.
#[derive(Clone, Debug)]
pub struct GetOptions {
    /// Longest time until the last byte, waiting for the put included.
    pub time_limit: Duration,
    /// Data-plane addresses of agents known to hold the block. Empty: the coordinator is asked.
    pub holders: Vec<SocketAddr>,
    /// The receiving task within the coflow. A coflow that announced its number of flows counts a block once for each
    /// host and group that got it: tasks of one host that get the same block need groups of their own.
    pub group: u32,
    /// Besides the checksum of every frame, compare a hash over the whole block with that of its put. It is there
    /// for blocks put from memory, and for files put by [`Client::put_file_hashed`]; other blocks are taken as they are.
    pub verify_whole: bool,
}

impl Default for GetOptions {
    fn default() -> GetOptions {
        GetOptions {
            time_limit: Duration::from_secs(3600),
            holders: Vec::new(),
            group: 0,
            verify_whole: false,
        }
    }
}

/// The end of a time limit that begins now.
pub(crate) fn limit_from_now(limit: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(limit).unwrap_or_else(|| now + LONGEST_LIMIT)
}

/// Now, for receivers. All have one time, so that one may be told of a holder what another one found.
fn now() -> Time {
    Time::from_nanos(weir_net::monotonic_nanos())
}

impl Client {
    /// Begins to get a block. Bytes come from [`BlockReader::next`], each verified before it is handed
    /// out, while the rest still arrives.
    pub fn get(&self, coflow: u64, block: &str, options: GetOptions) -> BlockReader {
        self.get_elsewhere(coflow, block, options, BTreeMap::new())
    }

    /// As [`Client::get`]. `avoided`: who is asked after all others, and until when.
    fn get_elsewhere(
        &self,
        coflow: u64,
        block: &str,
        options: GetOptions,
        avoided: BTreeMap<SocketAddr, Time>,
    ) -> BlockReader {
        let begun = (now(), Instant::now());
        let limit = options.time_limit.min(LONGEST_LIMIT).as_nanos() as u64;
        let config = ReceiverConfig {
            coflow: CoflowId(coflow),
            block: block.to_owned(),
            host: HostNumber(self.config.host),
            group: options.group,
            holders: options.holders,
            verify_whole: options.verify_whole,
            end: begun.0 + Span::from_nanos(limit),
            avoided,
        };
        BlockReader {
            client: self.clone(),
            coflow,
            block: block.to_owned(),
            receiver: Receiver::new(config, self.pool.take_buffer()),
            links: Links::default(),
            call: None,
            alarm: None,
            begun,
        }
    }

    /// Gets a whole block into memory. If the block changes on the way, it is got anew.
    ///
    /// # Errors
    /// The block did not come within the time limit, its coflow ended or was refused, the coordinator or the holder refuses,
    /// or a third attempt, too, found bytes that changed or have another hash than the block was put with.
    pub async fn get_bytes(
        &self,
        coflow: u64,
        block: &str,
        options: GetOptions,
    ) -> Result<Vec<u8>, GetError> {
        let end = limit_from_now(options.time_limit);
        let mut avoided = BTreeMap::new();
        for attempt in 1.. {
            let time_limit = end.saturating_duration_since(Instant::now());
            let options = GetOptions { time_limit, ..options.clone() };
            let mut reader = self.get_elsewhere(coflow, block, options, avoided);
            // What an earlier attempt got may be of the block as it was before.
            let mut bytes = Vec::new();
            let failed = loop {
                match reader.next().await {
                    Ok(Some(part)) => bytes.extend_from_slice(part),
                    Ok(None) => return Ok(bytes),
                    Err(error) => break error,
                }
            };
            let may_be_right = matches!(failed, GetError::WrongHash { .. } | GetError::Changed { .. });
            if attempt == ANEW || !may_be_right {
                return Err(failed);
            }
            // Holders that gave wrong bytes are asked after all others.
            avoided = reader.receiver.take_avoided();
        }
        unreachable!("the loop ends by itself")
    }

    /// Gets a whole block into a file, from its start.
    ///
    /// # Errors
    /// As [`BlockReader::next`]; besides, `file` cannot be written. A block that changes on the way is an error here, and `file` keeps what came.
    pub async fn get_to_file(
        &self,
        coflow: u64,
        block: &str,
        options: GetOptions,
        file: &mut tokio::fs::File,
    ) -> Result<u64, GetError> {
        let mut reader = self.get(coflow, block, options);
        let mut total = 0;
        while let Some(part) = reader.next().await? {
            file.write_all(part).await?;
            total += part.len() as u64;
        }
        // A tokio file writes in the background: only this tells whether the last part could be written.
        file.flush().await?;
        Ok(total)
    }
}

/// A block on its way.
pub struct BlockReader {
    client: Client,
    coflow: u64,
    block: String,
    receiver: Receiver,
    links: Links,
    /// What the coordinator or the host's agent was asked last, until it answers.
    call: Option<Call>,
    /// Goes off when the receiver has something to do though nothing happened.
    alarm: Option<Pin<Box<Sleep>>>,
    /// When it was made, on the receiver's clock and on the runtime's.
    begun: (Time, Instant),
}

impl Drop for BlockReader {
    fn drop(&mut self) {
        self.client.pool.give_buffer(self.receiver.take_buffer());
    }
}

impl BlockReader {
    /// The next verified bytes, in order; `None` once all were handed out and acknowledged. A caller that stops waiting,
    /// and waits again later, loses nothing.
    ///
    /// # Errors
    /// The next bytes did not come within the time limit, the coflow ended or was refused, the coordinator or the holder refuses,
    /// or the block's holders do not have the bytes any more with which the get began. After the time limit a later call goes on; after any
    /// other error it gives that error again.
    pub async fn next(&mut self) -> Result<Option<&[u8]>, GetError> {
        self.receiver.handle_wanted(now());
        loop {
            match self.receiver.poll_output() {
                Some(Output::Verified { length }) => return Ok(Some(self.receiver.frame(length))),
                Some(Output::End(Ok(()))) => return Ok(None),
                Some(Output::End(Err(error))) => return Err(self.failure(error)),
                Some(output) => self.obey(output),
                // Whatever is under way is kept in `self`: a caller that waits no longer loses nothing.
                None => poll_fn(|context| self.poll_event(context)).await,
            }
        }
    }

    /// The payload of the frame that was verified last, of that length.
    pub(crate) fn frame(&self, length: usize) -> &[u8] {
        self.receiver.frame(length)
    }

    /// Size of the block in bytes, once its holder has answered.
    pub fn size(&self) -> Option<u64> {
        self.receiver.size()
    }

    /// When the first payload byte arrived.
    pub fn first_byte(&self) -> Option<Instant> {
        self.receiver.first_byte().map(|at| self.instant(at))
    }

    fn instant(&self, at: Time) -> Instant {
        self.begun.1 + Duration::from_nanos(at.since(self.begun.0).nanos())
    }

    fn failure(&self, error: ReceiverError) -> GetError {
        let (coflow, block) = (self.coflow, self.block.clone());
        match error {
            ReceiverError::TimeLimit(last) => GetError::TimeLimit { coflow, block, last },
            ReceiverError::CoflowEnded => GetError::CoflowEnded(coflow),
            ReceiverError::CoflowRefused(reason) => GetError::CoflowRefused { coflow, reason },
            ReceiverError::Refused(reason) => GetError::Refused(reason),
            ReceiverError::NotLocated(reason) => GetError::NotLocated(reason),
            ReceiverError::Changed { read } => GetError::Changed { coflow, block, read },
            ReceiverError::Gone => GetError::Gone { coflow, block },
            ReceiverError::WrongHash => GetError::WrongHash { coflow, block },
        }
    }

    fn obey(&mut self, output: Output) {
        let (client, pool, receiver) = (&self.client, &self.client.pool, &mut self.receiver);
        match output {
            Output::Locate { wait } if client.coordinator.is_some() => {
                let (client, coflow, block) = (client.clone(), self.coflow, self.block.clone());
                self.call = Some(Call::new(calls::locate(client, coflow, block, wait)));
            }
            Output::Locate { .. } => receiver.handle_located(now(), Located::NoCoordinator),
            Output::Describe if client.agent.is_some() => {
                self.call = Some(Call::new(calls::describe(client.clone())));
            }
            Output::Describe => receiver.handle_described(now(), None, 0),
            Output::Explain => {
                self.call = Some(Call::new(calls::explain(client.clone(), self.coflow)));
            }
            Output::Connect { link, address, pooled } => {
                let idle = if pooled { pool.take_stream(address) } else { None };
                // A connection that is being made reports itself later; an idle one is there already.
                let is_idle = idle.is_some();
                self.links.open(link, address, idle);
                if is_idle {
                    receiver.handle_connected(now(), link, true);
                }
            }
            Output::Write { link, bytes } => self.links.write(link, bytes, now(), receiver),
            Output::GiveBack { link } => {
                self.links.close(link).into_iter().for_each(|(at, stream)| pool.give_stream(at, stream));
            }
            Output::Close { link } => drop(self.links.close(link)),
            // `next` returns them.
            Output::Verified { .. } | Output::End(_) => {}
        }
    }

    /// Tells the receiver of one thing that happened.
    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Some(call) = &mut self.call
            && let Poll::Ready(answer) = call.poll(context)
        {
            self.call = None;
            match answer {
                Answer::Located(located) => self.receiver.handle_located(now(), located),
                Answer::Described(relays, mapper) => {
                    self.receiver.handle_described(now(), relays.as_ref(), mapper);
                }
                Answer::Explained(reason) => self.receiver.handle_explained(now(), reason),
            }
            return Poll::Ready(());
        }
        if self.links.poll(context, now, &mut self.receiver).is_ready() {
            return Poll::Ready(());
        }
        self.poll_alarm(context)
    }

    fn poll_alarm(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(due) = self.receiver.next_timeout() else { return Poll::Pending };
        let at = tokio::time::Instant::from_std(self.instant(due));
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
        if alarm.deadline() != at {
            alarm.as_mut().reset(at);
        }
        std::task::ready!(alarm.as_mut().poll(context));
        // The runtime's clock is another one: told a time before `due`, the receiver would ask for the same alarm again.
        self.receiver.handle_timeout(now().max(due));
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_may_be_moved_and_shared_between_threads() {
        fn check<T: Send + Sync + Unpin>() {}
        check::<BlockReader>();
    }
}
