//! Receiving: locate, connect, verify, resume.

use crate::relayed::{self, RelayedFlow};
use crate::{Client, GetError, error};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use weir_proto::data::{
    ACK, FRAME_HEADER_BYTES, FrameHeader, RESPONSE_BYTES, Request, Response, Status, frame_length,
};
use weir_proto::relay::{FlowKey, RelayPath};
use weir_proto::v1;

/// First and longest pause between attempts to reach a holder.
const RETRY: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(250));
/// How long connecting to a holder may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// Longest wait of one `Locate` call; repeated until the get's own limit.
const LOCATE_WAIT: Duration = Duration::from_secs(5);
/// Idle connections kept for one holder or relay.
const MAX_IDLE_PER_HOLDER: usize = 32;
/// Buffers kept for later gets.
const MAX_IDLE_BUFFERS: usize = 64;

/// How a block is to be got.
#[derive(Clone, Debug)]
pub struct GetOptions {
    /// Longest time until the last byte, waiting for the put included.
    pub time_limit: Duration,
    /// Data-plane addresses of agents known to hold the block. Empty: the coordinator is asked.
    pub holders: Vec<SocketAddr>,
    /// The receiving task within the coflow.
    pub group: u32,
}

impl Default for GetOptions {
    fn default() -> GetOptions {
        GetOptions { time_limit: Duration::from_secs(3600), holders: Vec::new(), group: 0 }
    }
}

/// What ended gets leave for later ones: connections by holder or relay, and buffers of a frame.
#[derive(Debug, Default)]
pub(crate) struct Pool(Mutex<Idle>);

#[derive(Debug, Default)]
struct Idle {
    streams: BTreeMap<SocketAddr, Vec<TcpStream>>,
    buffers: Vec<Vec<u8>>,
}

impl Pool {
    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_stream(&self, holder: SocketAddr) -> Option<TcpStream> {
        self.idle().streams.get_mut(&holder)?.pop()
    }

    fn give_stream(&self, holder: SocketAddr, stream: TcpStream) {
        let mut idle = self.idle();
        let streams = idle.streams.entry(holder).or_default();
        if streams.len() < MAX_IDLE_PER_HOLDER {
            streams.push(stream);
        }
    }

    fn take_buffer(&self) -> Vec<u8> {
        self.idle().buffers.pop().unwrap_or_default()
    }

    fn give_buffer(&self, buffer: Vec<u8>) {
        let mut idle = self.idle();
        if idle.buffers.len() < MAX_IDLE_BUFFERS {
            idle.buffers.push(buffer);
        }
    }
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
            end: Instant::now() + options.time_limit,
            options,
            verified: 0,
            size: None,
            stream: None,
            relayed: None,
            direct: false,
            buffer: self.pool.take_buffer(),
            filled: 0,
            pause: RETRY.0,
            last: "nothing was tried yet".to_owned(),
            finished: false,
            first_byte: None,
        }
    }

    /// Gets a whole block into memory.
    pub async fn get_bytes(
        &self,
        coflow: u64,
        block: &str,
        options: GetOptions,
    ) -> Result<Vec<u8>, GetError> {
        let mut reader = self.get(coflow, block, options);
        let mut bytes = Vec::new();
        while let Some(part) = reader.next().await? {
            bytes.extend_from_slice(part);
        }
        Ok(bytes)
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
    client: Client,
    pool: Arc<Pool>,
    coflow: u64,
    block: String,
    options: GetOptions,
    end: Instant,
    /// Bytes handed out; always at a frame's start or the end.
    verified: u64,
    size: Option<u64>,
    stream: Option<(SocketAddr, TcpStream)>,
    /// Where frames come from, if not from the holder's own connection.
    relayed: Option<RelayedFlow>,
    /// Relays failed: the rest comes straight from the holder.
    direct: bool,
    buffer: Vec<u8>,
    /// Bytes of the current frame, header first, that are in `buffer`; kept when a call is cancelled.
    filled: usize,
    pause: Duration,
    last: String,
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

/// A way by relays, and a connection to the last of them.
type Way = (RelayPath, TcpStream);

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
                    self.pause = RETRY.0;
                    return Ok(Some(self.frame(length)));
                }
                Ok(Ok(None)) => {}
                Ok(Err(Obstacle::Final(error))) => return Err(error),
                Ok(Err(Obstacle::Again(obstacle))) => {
                    self.stream = None;
                    self.direct |= self.relayed.take().is_some();
                    self.last = obstacle;
                    let pause = self.pause.min(self.end.saturating_duration_since(Instant::now()));
                    tokio::time::sleep(pause).await;
                    self.pause = (self.pause * 2).min(RETRY.1);
                }
                Err(_) => {
                    let (coflow, block) = (self.coflow, self.block.clone());
                    return Err(GetError::TimeLimit { coflow, block, last: self.last.clone() });
                }
            }
        }
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
        if self.size == Some(self.verified) {
            self.acknowledge().await?;
            return Ok(None);
        }
        if self.stream.is_none() {
            self.open().await?;
        }
        let (Some((_, stream)), Some(size)) = (&mut self.stream, self.size) else { return Ok(None) };
        let payload = frame_length(size, self.verified) as usize;
        let length = FRAME_HEADER_BYTES + payload;
        if self.buffer.len() < length {
            self.buffer.resize(length, 0);
        }
        while self.filled < length {
            if let Some(relayed) = &mut self.relayed {
                self.filled += tokio::select! {
                    biased;
                    read = relayed.read(&mut self.buffer[self.filled..length]) => read?,
                    obstacle = relayed::given_up(stream) => return Err(obstacle),
                };
                if self.filled > FRAME_HEADER_BYTES {
                    self.first_byte.get_or_insert_with(Instant::now);
                }
                continue;
            }
            // Never more than what is missing of this frame: it may be the last, and nothing follows it.
            if self.first_byte.is_some() {
                weir_net::wake_at(&*stream, length - self.filled)?;
            }
            match stream.read(&mut self.buffer[self.filled..length]).await? {
                0 => return Err(Obstacle::Again("the holder closed the connection".to_owned())),
                count => self.filled += count,
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
        if weir_net::checksum(bytes) != header.checksum {
            return Err(Obstacle::Again("a frame whose checksum does not match".to_owned()));
        }
        self.filled = 0;
        self.verified += payload as u64;
        Ok(Some(payload))
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

    /// Finds a holder and asks it for what is missing.
    async fn open(&mut self) -> Result<(), Obstacle> {
        let mut refused = None;
        for holder in self.holders().await? {
            match self.ask(holder).await {
                Ok(()) => return Ok(()),
                Err(error @ Obstacle::Final(_)) => return Err(error),
                Err(Obstacle::Again(obstacle)) => refused = Some(format!("{holder}: {obstacle}")),
            }
        }
        Err(Obstacle::Again(refused.unwrap_or_else(|| "nobody has put it yet".to_owned())))
    }

    async fn holders(&self) -> Result<Vec<SocketAddr>, Obstacle> {
        if !self.options.holders.is_empty() {
            return Ok(self.options.holders.clone());
        }
        let wait = self.end.saturating_duration_since(Instant::now()).min(LOCATE_WAIT);
        let request = v1::LocateRequest {
            coflow: self.coflow,
            block: self.block.clone(),
            wait_ms: wait.as_millis() as u64,
            host: self.client.config.host,
        };
        let mut coordinator = self
            .client
            .coordinator()
            .map_err(|_| Obstacle::Final(GetError::Refused("no coordinator to ask and no holder given")))?;
        let reply = coordinator.locate(request).await.map_err(|status| {
            if error::is_transient(&status) {
                Obstacle::Again(format!("coordinator: {}", status.message()))
            } else {
                Obstacle::Final(GetError::Refused("the coordinator refused to locate the block"))
            }
        })?;
        let reply = reply.into_inner();
        if reply.ended {
            return Err(Obstacle::Final(GetError::CoflowEnded(self.coflow)));
        }
        if !reply.refused.is_empty() {
            let (coflow, reason) = (self.coflow, reply.refused);
            return Err(Obstacle::Final(GetError::CoflowRefused { coflow, reason }));
        }
        Ok(reply.holders.iter().filter_map(|holder| holder.data_address.parse().ok()).collect())
    }

    /// Requests the block on a pooled or new connection. A pooled one may have died meanwhile: then a
    /// new one is tried at once.
    async fn ask(&mut self, holder: SocketAddr) -> Result<(), Obstacle> {
        let mut way = if self.direct { None } else { self.relay_way().await };
        let asked = self.ask_by(holder, &mut way).await;
        if let Some((path, stream)) = way {
            self.pool.give_stream(path.relay, stream);
        }
        asked
    }

    async fn ask_by(&mut self, holder: SocketAddr, way: &mut Option<Way>) -> Result<(), Obstacle> {
        if let Some(stream) = self.pool.take_stream(holder)
            && self.ask_on(holder, stream, way).await.is_ok()
        {
            return Ok(());
        }
        let socket = if holder.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        weir_net::tune_receiver(&socket)?;
        let stream = tokio::time::timeout(CONNECT_LIMIT, socket.connect(holder))
            .await
            .map_err(|_| Obstacle::Again("connecting took too long".to_owned()))??;
        self.ask_on(holder, stream, way).await
    }

    /// A way by relays, if this host uses them and one of them can be reached.
    async fn relay_way(&mut self) -> Option<Way> {
        let path = self.client.relay_path().await?;
        let stream = match self.pool.take_stream(path.relay) {
            Some(stream) => stream,
            None => relayed::connect(path.relay).await.ok()?,
        };
        Some((path, stream))
    }

    async fn ask_on(
        &mut self,
        holder: SocketAddr,
        mut stream: TcpStream,
        way: &mut Option<Way>,
    ) -> Result<(), Obstacle> {
        weir_net::wake_at(&stream, 1)?;
        let request = Request {
            coflow: self.coflow,
            offset: self.verified,
            destination: self.client.config.host,
            group: self.options.group,
            block: self.block.clone(),
        };
        let path = way.as_ref().map(|(path, _)| path.encode());
        let path = path.as_ref().map_or(&[][..], |path| &path[..]);
        stream.write_all(&[path, &request.encode()].concat()).await?;
        let mut answer = [0; RESPONSE_BYTES];
        stream.read_exact(&mut answer).await?;
        let response = Response::decode(&answer).map_err(|error| Obstacle::Again(error.to_string()))?;
        self.judge(response.status, !path.is_empty()).await?;
        if let Some(before) = self.size.filter(|&before| before != response.size) {
            return Err(Obstacle::Final(GetError::Changed { before, after: response.size }));
        }
        if response.status == Status::Relayed
            && let Some((path, stream)) = way.take()
        {
            let key = FlowKey::of(&request, &path);
            match RelayedFlow::subscribe(path.relay, stream, key).await {
                Ok(relayed) => self.relayed = Some(relayed),
                Err(error) => {
                    self.direct = true;
                    return Err(error.into());
                }
            }
        }
        self.size = Some(response.size);
        self.filled = 0;
        self.stream = Some((holder, stream));
        Ok(())
    }

    /// Whether frames follow, and if not, why. `offered`: a way by relays was offered.
    async fn judge(&mut self, status: Status, offered: bool) -> Result<(), Obstacle> {
        let again = |why: &str| Err(Obstacle::Again(why.to_owned()));
        match status {
            Status::Accepted => Ok(()),
            Status::Relayed if offered => Ok(()),
            Status::Relayed => again("it answered by relays, unasked"),
            Status::NoSuchBlock => again("it does not hold the block"),
            Status::Busy => again("it serves as many connections as it may"),
            Status::Unreadable => again("it cannot read the block's file"),
            Status::CoflowEnded => Err(Obstacle::Final(GetError::CoflowEnded(self.coflow))),
            Status::CoflowRefused => {
                let (coflow, reason) = (self.coflow, self.client.refusal(self.coflow).await);
                Err(Obstacle::Final(GetError::CoflowRefused { coflow, reason }))
            }
            Status::BadRequest if offered => {
                // An agent of before there were relays.
                self.direct = true;
                again("it knows no relays")
            }
            Status::BadRequest => Err(Obstacle::Final(GetError::Refused("bad request"))),
        }
    }
}
