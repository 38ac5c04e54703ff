//! Frames that come by way of relays: from the relay of the receiver's site that it subscribes at.

use crate::Client;
use crate::get::Obstacle;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Mutex;
use weir_proto::relay::{FlowKey, HEADER_BYTES, HELLO_BYTES, Header, Hello, Kind, RelayPath, Role};
use weir_proto::v1;

/// How long connecting to a relay of the own site may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(1);
/// A relay says of every flow that it goes on, once a second. One that is silent for this long, or has failed, is
/// done without.
const SILENCE_LIMIT: Duration = Duration::from_secs(5);
/// How long the agent is waited for to say which relays there are, and when it is asked again if it did not.
const DESCRIBE_LIMIT: Duration = Duration::from_secs(1);
const DESCRIBE_AGAIN: Duration = Duration::from_secs(10);

/// What is known of the relays of this host.
#[derive(Debug, Default)]
pub(crate) enum Relays {
    /// Nobody was asked yet.
    #[default]
    Unknown,
    /// The agent did not say; it is asked again from then on.
    Failed(Instant),
    /// The agent said: none, or the site and its relays.
    Known(Option<(u32, Vec<SocketAddr>)>),
}

impl Client {
    /// A way by relays for one flow. `None` where the host uses none.
    pub(crate) async fn relay_path(&self) -> Option<RelayPath> {
        let mut client = self.agent().ok()?;
        let mut relays = Mutex::lock(&self.relays).await;
        let due = match &*relays {
            Relays::Unknown => true,
            Relays::Failed(again) => *again <= Instant::now(),
            Relays::Known(_) => false,
        };
        if due {
            let described = tokio::time::timeout(DESCRIBE_LIMIT, client.describe(v1::DescribeRequest {}));
            *relays = match described.await {
                Ok(Ok(reply)) => Relays::Known(reply.into_inner().relays.and_then(usable)),
                Ok(Err(_)) | Err(_) => Relays::Failed(Instant::now() + DESCRIBE_AGAIN),
            };
        }
        let Relays::Known(Some((site, addresses))) = &*relays else { return None };
        let mapper: u32 = rand::random();
        let relay = *addresses.get((mapper as usize).checked_rem(addresses.len())?)?;
        Some(RelayPath { site: *site, mapper, relay })
    }
}

fn usable(relays: v1::RelaysOfHost) -> Option<(u32, Vec<SocketAddr>)> {
    let addresses: Vec<_> = relays.addresses.iter().filter_map(|address| address.parse().ok()).collect();
    (!addresses.is_empty()).then_some((relays.site, addresses))
}

/// A connection to a relay that the receiver can subscribe on.
pub(crate) async fn connect(relay: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = if relay.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    weir_net::tune_receiver(&socket)?;
    let mut stream = tokio::time::timeout(CONNECT_LIMIT, socket.connect(relay)).await??;
    let key = FlowKey { coflow: 0, reducer: 0, mapper: 0 };
    let header = Header { length: HELLO_BYTES as u32, ..Header::about(key, Kind::Hello, 0) };
    let hello = Hello { role: Role::Receiver, connections: 1, session: 0 };
    stream.write_all(&[&header.encode()[..], &hello.encode()].concat()).await?;
    Ok(stream)
}

/// The bytes of one flow, from its relay. A read may be cancelled and repeated.
#[derive(Debug)]
pub(crate) struct RelayedFlow {
    pub(crate) relay: SocketAddr,
    stream: TcpStream,
    head: [u8; HEADER_BYTES],
    head_filled: usize,
    /// Bytes of the current message that are still to come.
    left: usize,
    /// Bytes of the flow before the next message.
    offset: u64,
    /// What the kernel was told to wake the reader at.
    wakes_at: usize,
}

impl RelayedFlow {
    pub(crate) async fn subscribe(
        relay: SocketAddr,
        mut stream: TcpStream,
        key: FlowKey,
    ) -> std::io::Result<RelayedFlow> {
        stream.write_all(&Header::about(key, Kind::Subscribe, 0).encode()).await?;
        let head = [0; HEADER_BYTES];
        Ok(RelayedFlow { relay, stream, head, head_filled: 0, left: 0, offset: 0, wakes_at: 0 })
    }

    /// Some bytes, at least one.
    pub(crate) async fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Obstacle> {
        while self.left == 0 {
            self.read_header().await?;
        }
        let wanted = buffer.len().min(self.left);
        self.wake_at(wanted)?;
        let count = read_some(&mut self.stream, &mut buffer[..wanted]).await?;
        self.left -= count;
        Ok(count)
    }

    /// The connection, fit for another flow: all of this one was read.
    pub(crate) fn into_stream(self) -> Option<TcpStream> {
        (self.left == 0 && self.head_filled == 0).then_some(self.stream)
    }

    async fn read_header(&mut self) -> Result<(), Obstacle> {
        self.wake_at(HEADER_BYTES - self.head_filled)?;
        while self.head_filled < HEADER_BYTES {
            self.head_filled += read_some(&mut self.stream, &mut self.head[self.head_filled..]).await?;
        }
        self.head_filled = 0;
        let header = Header::decode(&self.head).map_err(|error| Obstacle::Again(error.to_string()))?;
        match header.kind {
            Kind::Data if header.number == self.offset => {
                self.left = header.length as usize;
                self.offset += u64::from(header.length);
                Ok(())
            }
            Kind::Alive => Ok(()),
            Kind::Reset => Err(Obstacle::Again("the relays gave the flow up".to_owned())),
            _ => Err(Obstacle::Again("a relay sent something else than the next bytes".to_owned())),
        }
    }

    fn wake_at(&mut self, bytes: usize) -> std::io::Result<()> {
        if self.wakes_at != bytes {
            weir_net::wake_at(&self.stream, bytes)?;
            self.wakes_at = bytes;
        }
        Ok(())
    }
}

/// Resolves once the holder, which has nothing to say while relays carry its frames, gave the flow up.
pub(crate) async fn given_up(holder: &TcpStream) -> Obstacle {
    loop {
        let read = match holder.readable().await {
            Ok(()) => holder.try_read(&mut [0; 1]),
            Err(error) => Err(error),
        };
        match read {
            Ok(0) => return Obstacle::Again("the holder closed the connection".to_owned()),
            Ok(_) => return Obstacle::Again("the holder sent what was to come by relays".to_owned()),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return error.into(),
        }
    }
}

async fn read_some(stream: &mut TcpStream, buffer: &mut [u8]) -> Result<usize, Obstacle> {
    match tokio::time::timeout(SILENCE_LIMIT, stream.read(buffer)).await {
        Ok(Ok(0)) => Err(Obstacle::Again("the relay closed the connection".to_owned())),
        Ok(read) => Ok(read?),
        Err(_) => Err(Obstacle::Again("the relay is silent".to_owned())),
    }
}
