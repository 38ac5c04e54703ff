//! A get's connections: made, read into the receiver's memory, written and left for others.

use crate::calls::Underway;
use crate::pool::Left;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};
use weir_core::receiver::{Link, Receiver};
use weir_model::Time;

/// In the order in which they are looked at: what a relay sent counts before what the holder says of it.
const LINKS: [Link; 3] = [Link::Relay, Link::Holder, Link::Probe];

/// Connections of one get, one of each kind at most.
#[derive(Default)]
pub(crate) struct Links([Option<Connection>; LINKS.len()]);

struct Connection {
    address: SocketAddr,
    state: State,
}

enum State {
    Connecting(Underway<io::Result<TcpStream>>),
    Open {
        stream: TcpStream,
        /// What was to be written and is not.
        unsent: Vec<u8>,
        /// What the kernel was told to wake the reader at.
        wakes_at: usize,
    },
}

impl Links {
    fn slot(&mut self, link: Link) -> &mut Option<Connection> {
        let [relay, holder, probe] = &mut self.0;
        match link {
            Link::Relay => relay,
            Link::Holder => holder,
            Link::Probe => probe,
        }
    }

    /// Takes an idle connection, or begins to make one.
    pub(crate) fn open(&mut self, link: Link, address: SocketAddr, idle: Option<Left>) {
        let state = match idle {
            Some(Left { stream, wakes_at }) => State::Open { stream, unsent: Vec::new(), wakes_at },
            None => State::Connecting(Underway::new(connect(address))),
        };
        *self.slot(link) = Some(Connection { address, state });
    }

    /// Writes what can be written at once, and the rest later.
    pub(crate) fn write(&mut self, link: Link, bytes: Vec<u8>, now: Time, receiver: &mut Receiver) {
        let Some(Connection { state: State::Open { stream, unsent, .. }, .. }) = self.slot(link) else {
            return;
        };
        unsent.extend(bytes);
        while !unsent.is_empty() {
            match stream.try_write(unsent) {
                Ok(count) => drop(unsent.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    *self.slot(link) = None;
                    return receiver.handle_closed(now, link, Some(error.to_string()));
                }
            }
        }
        receiver.handle_written(now, link);
    }

    /// Ends a connection, or the attempt to make one; gives it if it is fit for others.
    pub(crate) fn close(&mut self, link: Link) -> Option<(SocketAddr, Left)> {
        match self.slot(link).take()? {
            // After part of a request, the holder would take the next get's request for the rest of it.
            Connection { address, state: State::Open { stream, unsent, wakes_at } } if unsent.is_empty() => {
                Some((address, Left { stream, wakes_at }))
            }
            _ => None,
        }
    }

    /// Tells the receiver of one thing that happened on a connection.
    pub(crate) fn poll(
        &mut self,
        context: &mut Context<'_>,
        now: impl Fn() -> Time,
        receiver: &mut Receiver,
    ) -> Poll<()> {
        for (link, slot) in LINKS.into_iter().zip(&mut self.0) {
            let Some(connection) = slot else { continue };
            match connection.poll(context, link, receiver) {
                Poll::Pending => {}
                Poll::Ready(Ok(Happened::Connected)) => {
                    receiver.handle_connected(now(), link, false);
                    return Poll::Ready(());
                }
                Poll::Ready(Ok(Happened::Written)) => {
                    receiver.handle_written(now(), link);
                    return Poll::Ready(());
                }
                Poll::Ready(Ok(Happened::Read(count @ 1..))) => {
                    receiver.handle_read(now(), link, count);
                    return Poll::Ready(());
                }
                Poll::Ready(ended) => {
                    *slot = None;
                    receiver.handle_closed(now(), link, ended.err().map(|error| error.to_string()));
                    return Poll::Ready(());
                }
            }
        }
        Poll::Pending
    }
}

enum Happened {
    Connected,
    /// All bytes that were to be written are.
    Written,
    /// So many bytes; 0 at the end.
    Read(usize),
}

impl Connection {
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        link: Link,
        receiver: &mut Receiver,
    ) -> Poll<io::Result<Happened>> {
        let (stream, unsent, wakes_at) = match &mut self.state {
            State::Connecting(attempt) => {
                let stream = ready!(attempt.poll(context))?;
                // What the kernel does unless it is told otherwise.
                self.state = State::Open { stream, unsent: Vec::new(), wakes_at: 1 };
                return Poll::Ready(Ok(Happened::Connected));
            }
            State::Open { stream, unsent, wakes_at } => (stream, unsent, wakes_at),
        };
        if !unsent.is_empty() {
            while !unsent.is_empty() {
                let count = ready!(Pin::new(&mut *stream).poll_write(context, unsent))?;
                unsent.drain(..count);
            }
            return Poll::Ready(Ok(Happened::Written));
        }
        let is_filling = receiver.is_filling(link);
        let room = receiver.room(link);
        // A read into no room gives 0, which is taken for the end of the connection.
        if room.is_empty() {
            return Poll::Pending;
        }
        let wanted = if is_filling { room.len() } else { 1 };
        if *wakes_at != wanted {
            weir_net::wake_at(&*stream, wanted)?;
            *wakes_at = wanted;
        }
        let mut room = ReadBuf::new(room);
        ready!(Pin::new(stream).poll_read(context, &mut room))?;
        Poll::Ready(Ok(Happened::Read(room.filled().len())))
    }
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    weir_net::tune_receiver(&socket)?;
    socket.connect(address).await
}
