//! Connections of strangers to a gRPC server: so many and no more, and none that says nothing.
//!
//! Where there is no room for a new connection, one goes that has not said a word yet: those who speak are not kept out by
//! those who do not. The oldest one of the address that has most of them goes, so that an address with many takes no place
//! of others. One whose first word only waits to be read is no silent one.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::Sleep;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;
use weir_proto::limits::MAX_CONTROL_CONNECTIONS;

/// A connection that says nothing for so long after it began is closed. Keepalives look after it from then on.
const FIRST_WORD_LIMIT: Duration = Duration::from_secs(10);
/// How long to wait after a connection could not be accepted, for want of descriptors most likely.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);
/// How long a connection that made room may take to be closed.
const CLOSING_LIMIT: Duration = Duration::from_secs(1);
/// Connections of one address that have not said anything yet; the oldest one makes room for a further one.
const MAX_SILENT_PER_ADDRESS: usize = 64;

/// What connections come from.
pub trait Listener: Send + Sync + 'static {
    /// An accepted connection, of the type that the listener has.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    /// Accepts one. Where it comes from, if that is known.
    fn next(&self) -> impl Future<Output = io::Result<(Self::Stream, Option<IpAddr>)>> + Send;
    /// The user at the other end, if the kernel says.
    fn user(_: &Self::Stream) -> Option<u32> {
        None
    }
}

impl Listener for tokio::net::TcpListener {
    type Stream = tokio::net::TcpStream;
    async fn next(&self) -> io::Result<(Self::Stream, Option<IpAddr>)> {
        let (stream, peer) = self.accept().await?;
        stream.set_nodelay(true)?;
        Ok((stream, Some(peer.ip())))
    }
}

impl Listener for tokio::net::UnixListener {
    type Stream = tokio::net::UnixStream;
    async fn next(&self) -> io::Result<(Self::Stream, Option<IpAddr>)> {
        Ok((self.accept().await?.0, None))
    }
    fn user(stream: &Self::Stream) -> Option<u32> {
        stream.peer_cred().ok().map(|peer| peer.uid())
    }
}

/// Connections that have not said anything yet, oldest first.
#[derive(Default)]
struct Silent(Mutex<SilentOnes>);

#[derive(Default)]
struct SilentOnes {
    next: u64,
    /// Where each comes from, and what closes it by being dropped.
    waiting: BTreeMap<u64, (Option<IpAddr>, oneshot::Sender<()>)>,
    counts: BTreeMap<Option<IpAddr>, usize>,
}

impl SilentOnes {
    fn remove(&mut self, id: u64) {
        let Some((peer, _)) = self.waiting.remove(&id) else { return };
        if let Some(count) = self.counts.get_mut(&peer) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&peer);
            }
        }
    }

    /// Closes the oldest one of an address.
    fn close_oldest_of(&mut self, peer: Option<IpAddr>) {
        // Ids grow, and the map is in their order: the first one found is the oldest.
        let oldest = self.waiting.iter().find(|(_, (other, _))| *other == peer).map(|(&id, _)| id);
        oldest.into_iter().for_each(|id| self.remove(id));
    }
}

impl Silent {
    fn ones(&self) -> MutexGuard<'_, SilentOnes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection has begun.
    fn add(self: &Arc<Silent>, peer: Option<IpAddr>) -> Unheard {
        let (closer, closed) = oneshot::channel();
        let mut ones = self.ones();
        if ones.counts.get(&peer).is_some_and(|&count| count >= MAX_SILENT_PER_ADDRESS) {
            ones.close_oldest_of(peer);
        }
        let id = ones.next;
        ones.next += 1;
        ones.waiting.insert(id, (peer, closer));
        *ones.counts.entry(peer).or_default() += 1;
        let limit = Box::pin(tokio::time::sleep(FIRST_WORD_LIMIT));
        Unheard { id, silent: Arc::clone(self), closed, limit }
    }

    /// Closes one, of the address that has most of them.
    fn make_room(&self) {
        let mut ones = self.ones();
        if let Some((&peer, _)) = ones.counts.iter().max_by_key(|&(_, &count)| count) {
            ones.close_oldest_of(peer);
        }
    }
}

/// What a connection has until its first word.
struct Unheard {
    id: u64,
    silent: Arc<Silent>,
    closed: oneshot::Receiver<()>,
    limit: Pin<Box<Sleep>>,
}

impl Unheard {
    /// Whether it waited long enough, or has to make room.
    fn is_over(&mut self, context: &mut Context<'_>) -> bool {
        self.limit.as_mut().poll(context).is_ready() || Pin::new(&mut self.closed).poll(context).is_ready()
    }
}

impl Drop for Unheard {
    fn drop(&mut self) {
        self.silent.ones().remove(self.id);
    }
}

/// The peer at the other end of a connection; an extension of each of its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Id of the user whose process it is, where the kernel says: of Unix sockets.
    pub user: Option<u32>,
}

/// A connection that has to say something soon.
pub struct Guarded<S> {
    stream: S,
    peer: Peer,
    /// Until it said something.
    unheard: Option<Unheard>,
    _place: OwnedSemaphorePermit,
}

/// The connections of a listener, [`MAX_CONTROL_CONNECTIONS`] at a time, or fewer where descriptors are few. One beyond that
/// takes the place of a silent one, or is closed at once.
///
/// # Errors
/// No item is an error: a connection that cannot be accepted is logged, and the listener is asked for the next one.
pub fn incoming<L: Listener>(listener: L) -> ReceiverStream<io::Result<Guarded<L::Stream>>> {
    incoming_within(listener, crate::connections_within_limit(MAX_CONTROL_CONNECTIONS))
}

fn incoming_within<L: Listener>(
    listener: L,
    places: usize,
) -> ReceiverStream<io::Result<Guarded<L::Stream>>> {
    let (sender, receiver) = mpsc::channel(1);
    let (places, silent) = (Arc::new(Semaphore::new(places)), Arc::<Silent>::default());
    tokio::spawn(async move {
        let (mut refused, mut failed): (u64, u64) = (0, 0);
        while !sender.is_closed() {
            let accepted = tokio::select! {
                accepted = listener.next() => accepted,
                () = sender.closed() => return,
            };
            match accepted {
                Ok((stream, peer)) => match place(&places, &silent).await {
                    Some(place) => {
                        let unheard = Some(silent.add(peer));
                        let peer = Peer { user: L::user(&stream) };
                        // Where the server has ended the connection is dropped, and so closed.
                        let _ = sender.send(Ok(Guarded { stream, peer, unheard, _place: place })).await;
                    }
                    None => {
                        refused += 1;
                        // A peer that is refused comes again at once: not each attempt is news.
                        if refused.is_power_of_two() {
                            tracing::warn!(refused, "a control connection beyond the bound was closed");
                        }
                    }
                },
                Err(error) => {
                    failed += 1;
                    if failed.is_power_of_two() {
                        tracing::warn!(%error, failed, "cannot accept a control connection");
                    }
                    // A silent connection that is closed gives its descriptor back.
                    silent.make_room();
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                }
            }
        }
    });
    ReceiverStream::new(receiver)
}

/// A place for a connection, that of a silent one if there is no other.
async fn place(places: &Arc<Semaphore>, silent: &Silent) -> Option<OwnedSemaphorePermit> {
    if let Ok(place) = Arc::clone(places).try_acquire_owned() {
        return Some(place);
    }
    silent.make_room();
    // The place comes back when the task of the silent connection has seen that it is closed.
    tokio::time::timeout(CLOSING_LIMIT, Arc::clone(places).acquire_owned()).await.ok()?.ok()
}

impl<S> Connected for Guarded<S> {
    type ConnectInfo = Peer;
    fn connect_info(&self) -> Peer {
        self.peer
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.unheard = None;
        }
        // A first word that waits to be read counts, though the time for it is over.
        if read.is_pending()
            && let Some(unheard) = &mut self.unheard
            && unheard.is_over(context)
        {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio_stream::StreamExt;

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_says_nothing_is_closed_and_one_that_spoke_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut incoming = incoming(listener);
        let _silent = TcpStream::connect(address).await.unwrap();
        let mut silent = incoming.next().await.unwrap().unwrap();
        let error = silent.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let mut client = TcpStream::connect(address).await.unwrap();
        let mut spoken = incoming.next().await.unwrap().unwrap();
        client.write_all(b"a").await.unwrap();
        assert_eq!(spoken.read_u8().await.unwrap(), b'a');
        let quiet = tokio::time::timeout(FIRST_WORD_LIMIT * 3, spoken.read_u8()).await;
        assert!(quiet.is_err(), "it waits on");
    }

    /// Reads all that comes, as a server does.
    fn serve(mut incoming: ReceiverStream<io::Result<Guarded<TcpStream>>>) -> mpsc::Receiver<u8> {
        let (said, words) = mpsc::channel(16);
        tokio::spawn(async move {
            while let Some(Ok(mut connection)) = incoming.next().await {
                let said = said.clone();
                tokio::spawn(async move {
                    while let Ok(word) = connection.read_u8().await {
                        let _ = said.send(word).await;
                    }
                });
            }
        });
        words
    }

    #[tokio::test]
    async fn those_who_speak_get_the_places_of_those_who_do_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut words = serve(incoming_within(listener, 4));
        let mut speaking = Vec::new();
        let mut silent = Vec::new();
        for word in 0..4 {
            for _ in 0..10 {
                silent.push(TcpStream::connect(address).await.unwrap());
            }
            let mut client = TcpStream::connect(address).await.unwrap();
            client.write_all(&[word]).await.unwrap();
            // Long before any silent one has waited for ten seconds.
            let heard = tokio::time::timeout(FIRST_WORD_LIMIT / 2, words.recv()).await;
            assert_eq!(heard.unwrap(), Some(word), "silent ones gave way");
            speaking.push(client);
        }
        // Four that spoke have all places; none of them goes.
        for (word, client) in (10..).zip(&mut speaking) {
            client.write_all(&[word]).await.unwrap();
            assert_eq!(words.recv().await, Some(word));
        }
    }

    #[tokio::test]
    async fn one_address_has_so_many_silent_connections_and_no_more() {
        let silent = Arc::<Silent>::default();
        let (one, other) = (Some(IpAddr::from([10, 0, 0, 1])), Some(IpAddr::from([10, 0, 0, 2])));
        let mut first = silent.add(other);
        let mut many: Vec<Unheard> = (0..MAX_SILENT_PER_ADDRESS).map(|_| silent.add(one)).collect();
        let is_closed =
            |unheard: &mut Unheard| unheard.closed.try_recv() == Err(oneshot::error::TryRecvError::Closed);
        assert!(!many.iter_mut().any(is_closed));
        let _further = silent.add(one);
        silent.make_room();
        let closed: Vec<bool> = many.iter_mut().take(3).map(is_closed).collect();
        assert_eq!(closed, [true, true, false], "the two oldest ones of the address with most");
        assert!(!is_closed(&mut first));
        many.clear();
        assert_eq!(silent.ones().counts.len(), 2, "what is over is not counted");
    }
}
