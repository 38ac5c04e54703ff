//! Finding a holder of a block, and asking it for what is missing.

use crate::get::{BlockReader, Obstacle, Offer, give_back};
use crate::relayed::{self, RelayedFlow};
use crate::{GetError, error};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use weir_proto::data::{Identity, RESPONSE_BYTES, Request, Response, Status};
use weir_proto::relay::{FlowKey, RelayPath};
use weir_proto::v1;

/// How long connecting to a holder may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// How long a holder may take to answer a request; it answers before its first byte is due.
const ANSWER_LIMIT: Duration = Duration::from_secs(12);
/// How long a holder that was silent may take to show that it is there.
const ALIVE_LIMIT: Duration = Duration::from_secs(2);
/// Longest wait of one `Locate` call; repeated until the get's own limit.
const LOCATE_WAIT: Duration = Duration::from_secs(5);

/// A way by relays, and a connection to the last of them.
pub(crate) type Way = (RelayPath, TcpStream);

/// Why a holder does not send what was asked for.
enum Refused {
    /// It may answer otherwise later, or another one may.
    Again(Obstacle),
    /// It did not answer in time: there is no use in asking it again at once.
    Silent,
    /// It has other bytes than those that the get began with.
    OtherBytes,
    /// Its file changed since it was put.
    Changed,
}

impl<E: Into<Obstacle>> From<E> for Refused {
    fn from(error: E) -> Refused {
        Refused::Again(error.into())
    }
}

impl BlockReader {
    /// Finds a holder and asks it for what is missing.
    pub(crate) async fn open(&mut self) -> Result<(), Obstacle> {
        let mut holders = self.holders().await?;
        // Whoever sent the beginning may have found that its file changed, and then is not located any more.
        let broke = self.broke.take().filter(|holder| !holders.contains(holder));
        holders.extend(broke);
        let mut holds = holders.clone();
        for holder in holders {
            match self.ask(holder).await {
                Ok(()) => {
                    self.changed_at.clear();
                    return Ok(());
                }
                Err(Refused::Again(error @ Obstacle::Final(_))) => return Err(error),
                Err(Refused::Again(Obstacle::Again(obstacle))) => {
                    self.note_obstacle(holder.to_string(), obstacle);
                }
                Err(Refused::Silent) => {
                    self.avoid(holder);
                    self.note_obstacle(holder.to_string(), "it does not answer".to_owned());
                }
                Err(Refused::OtherBytes) => {
                    self.note_obstacle(holder.to_string(), "it has other bytes by now".to_owned());
                }
                Err(Refused::Changed) => _ = self.changed_at.insert(holder),
            }
        }
        holds.retain(|holder| !self.changed_at.contains(holder) && Some(*holder) != broke);
        Err(match (holds.is_empty(), self.changed_at.is_empty()) {
            (true, true) => Obstacle::Again("nobody has put it yet".to_owned()),
            (true, false) => {
                let (coflow, block) = (self.coflow, self.block.clone());
                Obstacle::Final(GetError::Gone { coflow, block })
            }
            (false, _) => Obstacle::Again("no holder sends it".to_owned()),
        })
    }

    /// Who holds the block, best first; those that did not answer lately come last.
    async fn holders(&mut self) -> Result<Vec<SocketAddr>, Obstacle> {
        let mut holders = self.known_holders().await?;
        let now = Instant::now();
        self.avoided.retain(|_, until| *until > now);
        holders.sort_by_key(|holder| self.avoided.contains_key(holder));
        Ok(holders)
    }

    async fn known_holders(&self) -> Result<Vec<SocketAddr>, Obstacle> {
        if !self.options.holders.is_empty() {
            return Ok(self.options.holders.clone());
        }
        let mut wait = self.end.saturating_duration_since(Instant::now()).min(LOCATE_WAIT);
        if self.broke.is_some() || !self.changed_at.is_empty() {
            // There is somebody else to ask, or to believe.
            wait = Duration::ZERO;
        }
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
        // A coordinator that is stopped, and not gone, would keep the call for ever.
        let call = timeout(wait + ANSWER_LIMIT, coordinator.locate(request)).await;
        let reply = call.map_err(|_| Obstacle::Again("the coordinator does not answer".to_owned()))?;
        let reply = reply.map_err(|status| {
            if error::is_transient(&status) {
                Obstacle::Again(format!("coordinator: {}", error::said(&status)))
            } else {
                Obstacle::Final(GetError::NotLocated(status.message().to_owned()))
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
        let mut holders = Vec::new();
        for holder in &reply.holders {
            // The first address of a name: agents listen on one.
            let mut found = tokio::net::lookup_host(&holder.data_address).await?;
            holders.extend(found.next());
        }
        Ok(holders)
    }

    /// Requests the block on a pooled or new connection. A pooled one may have died meanwhile: then a
    /// new one is tried at once.
    async fn ask(&mut self, holder: SocketAddr) -> Result<(), Refused> {
        let mut way = if self.direct { None } else { self.relay_way().await };
        let asked = self.ask_by(holder, &mut way).await;
        give_back(&self.pool, way);
        asked
    }

    async fn ask_by(&mut self, holder: SocketAddr, way: &mut Option<Way>) -> Result<(), Refused> {
        if let Some(stream) = self.pool.take_stream(holder) {
            match self.ask_on(holder, stream, way).await {
                Err(Refused::Again(_)) => {}
                answered => return answered,
            }
        }
        let stream = connect(holder).await?;
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

    /// Asks for the rest of what was begun; if the holder has other bytes, for all of them.
    async fn ask_on(
        &mut self,
        holder: SocketAddr,
        mut stream: TcpStream,
        way: &mut Option<Way>,
    ) -> Result<(), Refused> {
        weir_net::wake_at(&stream, 1)?;
        let mut request = self.request();
        let path = way.as_ref().map(|(path, _)| path.encode());
        let path = path.as_ref().map_or(&[][..], |path| &path[..]);
        let mut response = exchange(&mut stream, path, &request).await?;
        if response.status == Status::OtherBytes && request.offset > 0 {
            (request.offset, request.identity) = (0, Identity::UNKNOWN);
            response = exchange(&mut stream, path, &request).await?;
        }
        self.judge(response.status, !path.is_empty()).await?;
        if self.size.is_some_and(|before| before != response.size) && self.verified > 0 {
            return Err(Refused::Again(Obstacle::Final(self.changed())));
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
        let offer = Offer { size: response.size, offset: request.offset, identity: response.identity };
        self.accept(offer, (holder, stream));
        Ok(())
    }

    /// What is missing. Bytes whose identity nobody said cannot be gone on with: they are asked for from the start.
    fn request(&self) -> Request {
        let resumes = self.verified > 0 && self.identity.is_known();
        Request {
            coflow: self.coflow,
            offset: if resumes { self.verified } else { 0 },
            destination: self.client.config.host,
            group: self.options.group,
            identity: if resumes { self.identity } else { Identity::UNKNOWN },
            block: self.block.clone(),
        }
    }

    /// Whether frames follow, and if not, why. `offered`: a way by relays was offered.
    async fn judge(&mut self, status: Status, offered: bool) -> Result<(), Refused> {
        let again = |why: &str| Err(Refused::Again(Obstacle::Again(why.to_owned())));
        let last = |error| Err(Refused::Again(Obstacle::Final(error)));
        match status {
            Status::Accepted => Ok(()),
            Status::Relayed if offered => Ok(()),
            Status::Relayed => again("it answered by relays, unasked"),
            Status::NoSuchBlock => again("it does not hold the block"),
            Status::Busy => again("it serves as many connections as it may"),
            Status::Unreadable => again("it cannot read the block's file"),
            Status::Changed => Err(Refused::Changed),
            Status::OtherBytes => Err(Refused::OtherBytes),
            Status::CoflowEnded => last(GetError::CoflowEnded(self.coflow)),
            Status::CoflowRefused => {
                let (coflow, reason) = (self.coflow, self.client.refusal(self.coflow).await);
                last(GetError::CoflowRefused { coflow, reason })
            }
            Status::BadRequest if offered => {
                // An agent that knows no relays.
                self.direct = true;
                again("it knows no relays")
            }
            Status::BadRequest => last(GetError::Refused("bad request")),
        }
    }

    /// Whether a holder answers at all: a request for a block without a name is refused at once.
    pub(crate) async fn is_alive(&self, holder: SocketAddr) -> bool {
        let request = Request {
            coflow: self.coflow,
            offset: 0,
            destination: self.client.config.host,
            group: self.options.group,
            identity: Identity::UNKNOWN,
            block: String::new(),
        };
        let answered = async {
            let mut stream = connect(holder).await.ok()?;
            stream.write_all(&request.encode()).await.ok()?;
            stream.read(&mut [0; 1]).await.ok().filter(|&count| count > 0)
        };
        timeout(ALIVE_LIMIT, answered).await.is_ok_and(|answer| answer.is_some())
    }
}

async fn connect(holder: SocketAddr) -> Result<TcpStream, Obstacle> {
    let socket = if holder.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    weir_net::tune_receiver(&socket)?;
    let connected = timeout(CONNECT_LIMIT, socket.connect(holder)).await;
    Ok(connected.map_err(|_| Obstacle::Again("connecting took too long".to_owned()))??)
}

/// Sends a request, with the way by relays before it, and reads the answer.
async fn exchange(stream: &mut TcpStream, path: &[u8], request: &Request) -> Result<Response, Refused> {
    let mut answer = [0; RESPONSE_BYTES];
    let asked = async {
        stream.write_all(&[path, &request.encode()].concat()).await?;
        stream.read_exact(&mut answer).await
    };
    timeout(ANSWER_LIMIT, asked).await.map_err(|_| Refused::Silent)??;
    Ok(Response::decode(&answer).map_err(|error| Obstacle::Again(error.to_string()))?)
}
