//! Receiving: verify what arrives, resume what broke, begin anew where only other bytes are left.
//!
//! # Problem
//! A holder may die in the middle of a block, and whoever has the block next may have put other bytes under its name:
//! another host, or a task that ran again. What was handed out must never be continued with them.
//!
//! # Approach
//! A resumed request says which bytes it began with, and only an agent that has the same goes on ([`Identity`]). Where
//! nobody has, the block is asked for from its start, and every frame that was handed out already is compared by its
//! checksum: the same bytes may have been put under another identity. If a frame differs, the get ends as changed.
//!
//! # Silence
//! A flow that is paused by a plan is silent for as long as the plan says. A receiver that hears nothing for a while
//! asks the holder something that is answered at once, on another connection; only a holder that does not answer
//! is left for another one.

use crate::ask::Way;
use crate::pool::Pool;
use crate::relayed::{self, RelayedFlow};
use crate::{Client, GetError};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use twox_hash::XxHash3_128;
use weir_proto::data::{
    ACK, FRAME_BYTES, FRAME_HEADER_BYTES, FrameHeader, Identity, encode_nak, frame_length,
};

/// First and longest pause between attempts to reach a holder.
const RETRY: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(250));
/// How long a holder may be silent before it is asked whether it is there, at first and at most: plans may pause a
/// flow for as long as they like.
const SILENCE: (Duration, Duration) = (Duration::from_secs(4), Duration::from_secs(60));
/// A time limit that cannot be added to the present is this long.
const LONGEST_LIMIT: Duration = Duration::from_secs(86_400 * 365 * 10);
/// How often a block that changed is got anew by calls that have handed nothing out.
const ANEW: usize = 3;
/// Holders of which a get remembers what went wrong.
const MAX_TRIED: usize = 8;

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

impl Client {
    /// Begins to get a block. Bytes come from [`BlockReader::next`], each verified before it is handed
    /// out, while the rest still arrives.
    pub fn get(&self, coflow: u64, block: &str, options: GetOptions) -> BlockReader {
        BlockReader {
            pool: Arc::clone(&self.pool),
            client: self.clone(),
            coflow,
            block: block.to_owned(),
            end: limit_from_now(options.time_limit),
            hash: options.verify_whole.then(XxHash3_128::new),
            options,
            verified: 0,
            checksums: Vec::new(),
            at: 0,
            size: None,
            identity: Identity::UNKNOWN,
            offered: Identity::UNKNOWN,
            stream: None,
            relayed: None,
            direct: false,
            buffer: self.pool.take_buffer(),
            filled: 0,
            pause: RETRY.0,
            silence: SILENCE.0,
            tried: BTreeMap::new(),
            avoided: BTreeMap::new(),
            broke: None,
            fell_silent: false,
            changed_at: BTreeSet::new(),
            finished: false,
            first_byte: None,
        }
    }

    /// Gets a whole block into memory. If the block changes on the way, it is got anew.
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
            let mut reader = self.get(coflow, block, GetOptions { time_limit, ..options.clone() });
            reader.avoided = std::mem::take(&mut avoided);
            let mut bytes = Vec::new();
            let failed = loop {
                match reader.next().await {
                    Ok(Some(part)) => bytes.extend_from_slice(part),
                    Ok(None) => return Ok(bytes),
                    Err(error) => break error,
                }
            };
            // Of a block as a whole nobody knows where it is wrong: another holder may have it right.
            let elsewhere = matches!(failed, GetError::WrongHash { .. });
            if attempt == ANEW || !(elsewhere || matches!(failed, GetError::Changed { .. })) {
                return Err(failed);
            }
            if let Some((holder, _)) = reader.stream.as_ref().filter(|_| elsewhere) {
                let holder = *holder;
                reader.avoid(holder);
            }
            avoided = std::mem::take(&mut reader.avoided);
        }
        unreachable!("the loop ends by itself")
    }

    /// Gets a whole block into a file, from its start.
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
        file.flush().await?;
        Ok(total)
    }
}

/// A block on its way.
pub struct BlockReader {
    pub(crate) client: Client,
    pub(crate) pool: Arc<Pool>,
    pub(crate) coflow: u64,
    pub(crate) block: String,
    pub(crate) options: GetOptions,
    pub(crate) end: Instant,
    /// Bytes handed out; always at a frame's start or the end.
    pub(crate) verified: u64,
    /// Checksums of the frames handed out.
    checksums: Vec<u32>,
    /// Hash of the bytes handed out, if the whole is to be verified.
    hash: Option<XxHash3_128>,
    /// Where the next frame of the holder begins: before `verified` where the block was begun anew.
    pub(crate) at: u64,
    pub(crate) size: Option<u64>,
    /// Of the bytes handed out.
    pub(crate) identity: Identity,
    /// Of the bytes that the holder sends: the same, unless the block was begun anew.
    pub(crate) offered: Identity,
    pub(crate) stream: Option<(SocketAddr, TcpStream)>,
    /// Where frames come from, if not from the holder's own connection.
    pub(crate) relayed: Option<RelayedFlow>,
    /// Relays failed: the rest comes straight from the holder.
    pub(crate) direct: bool,
    buffer: Vec<u8>,
    /// Bytes of the current frame, header first, that are in `buffer`; kept when a call is cancelled.
    pub(crate) filled: usize,
    pause: Duration,
    silence: Duration,
    /// By whom was asked, what went wrong last.
    pub(crate) tried: BTreeMap<String, String>,
    /// Holders that did not answer, and until when others are asked first.
    pub(crate) avoided: BTreeMap<SocketAddr, Instant>,
    /// The holder that sent something and went on no more.
    pub(crate) broke: Option<SocketAddr>,
    /// Whether the holder answers nothing any more: there is no use in asking it what became of the block.
    fell_silent: bool,
    /// Holders that said that the block's file changed.
    pub(crate) changed_at: BTreeSet<SocketAddr>,
    finished: bool,
    first_byte: Option<Instant>,
}

impl Drop for BlockReader {
    fn drop(&mut self) {
        self.pool.give_buffer(std::mem::take(&mut self.buffer));
    }
}

/// An obstacle: whether trying again may help.
pub(crate) enum Obstacle {
    Again(String),
    Final(GetError),
}

impl From<std::io::Error> for Obstacle {
    fn from(error: std::io::Error) -> Obstacle {
        Obstacle::Again(error.to_string())
    }
}

impl BlockReader {
    /// The next verified bytes, in order; `None` once all were handed out and acknowledged.
    pub async fn next(&mut self) -> Result<Option<&[u8]>, GetError> {
        loop {
            if self.finished {
                return Ok(None);
            }
            let end = tokio::time::Instant::from_std(self.end);
            match tokio::time::timeout_at(end, self.step()).await {
                Ok(Ok(Some(length))) => {
                    (self.pause, self.silence) = (RETRY.0, SILENCE.0);
                    return Ok(Some(self.frame(length)));
                }
                Ok(Ok(None)) => {}
                Ok(Err(Obstacle::Final(error))) => return Err(error),
                Ok(Err(Obstacle::Again(obstacle))) => {
                    let holder = self.stream.take().map(|(holder, _)| holder);
                    self.direct |= self.relayed.take().is_some();
                    self.broke = holder.filter(|_| !std::mem::take(&mut self.fell_silent));
                    self.note_obstacle(holder.map(|at| at.to_string()).unwrap_or_default(), obstacle);
                    let pause = self.pause.min(self.end.saturating_duration_since(Instant::now()));
                    tokio::time::sleep(pause).await;
                    self.pause = (self.pause * 2).min(RETRY.1);
                }
                Err(_) => {
                    let (coflow, block) = (self.coflow, self.block.clone());
                    return Err(GetError::TimeLimit { coflow, block, last: self.obstacles() });
                }
            }
        }
    }

    /// Remembers what went wrong, for the error that may come of it. `with`: the address of who was asked, if the
    /// obstacle does not say so itself.
    pub(crate) fn note_obstacle(&mut self, with: String, obstacle: String) {
        if self.tried.len() >= MAX_TRIED && !self.tried.contains_key(&with) {
            self.tried.pop_first();
        }
        self.tried.insert(with, obstacle);
    }

    fn obstacles(&self) -> String {
        let mut said: Vec<String> = self
            .tried
            .iter()
            .map(
                |(with, obstacle)| {
                    if with.is_empty() { obstacle.clone() } else { format!("{with}: {obstacle}") }
                },
            )
            .collect();
        if let (Some((holder, _)), Some(size)) = (&self.stream, self.size) {
            said.push(format!(
                "{holder} accepted the request and sent {} of {size} bytes so far",
                self.verified
            ));
        }
        if said.is_empty() {
            said.push("nobody answered yet".to_owned());
        }
        said.join("; ")
    }

    /// The payload of the frame that was verified last, of that length.
    pub(crate) fn frame(&self, length: usize) -> &[u8] {
        &self.buffer[FRAME_HEADER_BYTES..][..length]
    }

    /// Size of the block in bytes, once its holder has answered.
    pub fn size(&self) -> Option<u64> {
        self.size
    }

    /// When the first payload byte arrived.
    pub fn first_byte(&self) -> Option<Instant> {
        self.first_byte
    }

    /// One frame, or one step towards it.
    async fn step(&mut self) -> Result<Option<usize>, Obstacle> {
        if self.size == Some(self.verified) && self.at == self.verified {
            self.acknowledge().await?;
            return Ok(None);
        }
        if self.stream.is_none() {
            self.open().await?;
            return Ok(None);
        }
        let Some(size) = self.size else { return Ok(None) };
        let payload = frame_length(size, self.at) as usize;
        let length = FRAME_HEADER_BYTES + payload;
        if self.buffer.len() < length {
            self.buffer.resize(length, 0);
        }
        while self.filled < length {
            match tokio::time::timeout(self.silence, self.read_to(length)).await {
                Ok(read) => self.filled += read?,
                Err(_) => self.look_after().await?,
            }
            if self.filled > FRAME_HEADER_BYTES {
                self.first_byte.get_or_insert_with(Instant::now);
            }
        }
        let Some((head, bytes)) = self.buffer[..length].split_first_chunk() else { return Ok(None) };
        let header = FrameHeader::decode(head).map_err(|error| Obstacle::Again(error.to_string()))?;
        if header.length as usize != payload {
            return Err(Obstacle::Again("a frame of the wrong length".to_owned()));
        }
        if weir_proto::data::checksum(bytes) != header.checksum {
            return Err(self.doubt().await);
        }
        self.filled = 0;
        self.take_frame(header.checksum, payload)
    }

    /// Some bytes of the frame that ends at `length` of the buffer.
    async fn read_to(&mut self, length: usize) -> Result<usize, Obstacle> {
        let Some((_, stream)) = &mut self.stream else { return Ok(0) };
        if let Some(relayed) = &mut self.relayed {
            return tokio::select! {
                biased;
                read = relayed.read(&mut self.buffer[self.filled..length]) => read,
                obstacle = relayed::given_up(stream) => Err(obstacle),
            };
        }
        // Never more than what is missing of this frame: it may be the last, and nothing follows it.
        if self.first_byte.is_some() {
            weir_net::wake_at(&*stream, length - self.filled)?;
        }
        match stream.read(&mut self.buffer[self.filled..length]).await? {
            0 => Err(Obstacle::Again("the holder closed the connection".to_owned())),
            count => Ok(count),
        }
    }

    /// A frame does not have its checksum. The holder is told, so that it looks at its copy, and others are asked first: it
    /// would send the same again.
    async fn doubt(&mut self) -> Obstacle {
        if let Some((holder, stream)) = &mut self.stream {
            let holder = *holder;
            let _ = stream.write_all(&encode_nak(self.at / FRAME_BYTES)).await;
            self.avoid(holder);
        }
        Obstacle::Again("a frame whose checksum does not match".to_owned())
    }

    /// The holder was silent: goes on waiting if it answers something else, and longer than before.
    async fn look_after(&mut self) -> Result<(), Obstacle> {
        let Some((holder, _)) = &self.stream else { return Ok(()) };
        let holder = *holder;
        self.silence = (self.silence * 2).min(SILENCE.1);
        if self.is_alive(holder).await {
            return Ok(());
        }
        self.avoid(holder);
        self.fell_silent = true;
        Err(Obstacle::Again("it does not answer any more".to_owned()))
    }

    /// Takes a frame that arrived whole: hands it on, or compares it with what was handed out before.
    fn take_frame(&mut self, checksum: u32, payload: usize) -> Result<Option<usize>, Obstacle> {
        let index = (self.at / FRAME_BYTES) as usize;
        let again = self.at < self.verified;
        self.at += payload as u64;
        if again {
            if self.checksums.get(index) != Some(&checksum) {
                return Err(Obstacle::Final(self.changed()));
            }
            if self.at == self.verified {
                self.identity = self.offered;
            }
            return Ok(None);
        }
        self.checksums.push(checksum);
        self.verified += payload as u64;
        if let Some(hash) = &mut self.hash {
            hash.write(&self.buffer[FRAME_HEADER_BYTES..][..payload]);
            let whole = self.size == Some(self.verified) && self.identity.is_content();
            if whole && Identity::of_content(hash.finish_128()) != self.identity {
                let (coflow, block) = (self.coflow, self.block.clone());
                return Err(Obstacle::Final(GetError::WrongHash { coflow, block }));
            }
        }
        Ok(Some(payload))
    }

    /// The block has other bytes than those that were handed out.
    pub(crate) fn changed(&self) -> GetError {
        GetError::Changed { coflow: self.coflow, block: self.block.clone(), read: self.verified }
    }

    async fn acknowledge(&mut self) -> Result<(), Obstacle> {
        if let Some((holder, mut stream)) = self.stream.take() {
            // A holder that died after its last byte needs no acknowledgement.
            if stream.write_all(&[ACK]).await.is_ok() {
                self.pool.give_stream(holder, stream);
            }
        }
        if let Some(relayed) = self.relayed.take() {
            let relay = relayed.relay;
            relayed.into_stream().into_iter().for_each(|stream| self.pool.give_stream(relay, stream));
        }
        self.finished = true;
        Ok(())
    }

    /// Takes over what a holder that accepted will send.
    pub(crate) fn accept(&mut self, offer: Offer, stream: (SocketAddr, TcpStream)) {
        self.size = Some(offer.size);
        (self.at, self.offered) = (offer.offset, offer.identity);
        if self.verified == 0 {
            self.identity = offer.identity;
        }
        self.filled = 0;
        self.tried.remove(&stream.0.to_string());
        self.stream = Some(stream);
    }

    /// Asks others first for a while.
    pub(crate) fn avoid(&mut self, holder: SocketAddr) {
        const AVOID: Duration = Duration::from_secs(10);
        self.avoided.insert(holder, Instant::now() + AVOID);
    }
}

/// What a holder that accepted a request will send.
pub(crate) struct Offer {
    pub(crate) size: u64,
    pub(crate) offset: u64,
    pub(crate) identity: Identity,
}

/// A way by relays that was offered with a request and not taken goes back to the pool.
pub(crate) fn give_back(pool: &Pool, way: Option<Way>) {
    if let Some((path, stream)) = way {
        pool.give_stream(path.relay, stream);
    }
}
