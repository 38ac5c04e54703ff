//! Connections of strangers to a gRPC server: so many and no more, and none that says nothing.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Sleep;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;
use weir_proto::limits::MAX_CONTROL_CONNECTIONS;

/// A connection that says nothing for so long after it began is closed. Keepalives look after it from then on.
const FIRST_WORD_LIMIT: Duration = Duration::from_secs(10);
/// How long to wait after a connection could not be accepted, for want of descriptors most likely.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// What connections come from.
pub trait Listener: Send + Sync + 'static {
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    /// Accepts one.
    fn next(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Listener for tokio::net::TcpListener {
    type Stream = tokio::net::TcpStream;
    async fn next(&self) -> io::Result<Self::Stream> {
        let (stream, _) = self.accept().await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

impl Listener for tokio::net::UnixListener {
    type Stream = tokio::net::UnixStream;
    async fn next(&self) -> io::Result<Self::Stream> {
        Ok(self.accept().await?.0)
    }
}

/// A connection that has to say something soon.
pub struct Guarded<S> {
    stream: S,
    /// Until it said something.
    limit: Option<Pin<Box<Sleep>>>,
    _place: OwnedSemaphorePermit,
}

/// The connections of a listener, [`MAX_CONTROL_CONNECTIONS`] at a time, or fewer where descriptors are few. One beyond that is closed at once.
pub fn incoming<L: Listener>(listener: L) -> ReceiverStream<io::Result<Guarded<L::Stream>>> {
    let (sender, receiver) = mpsc::channel(1);
    let places = Arc::new(Semaphore::new(crate::connections_within_limit(MAX_CONTROL_CONNECTIONS)));
    tokio::spawn(async move {
        while !sender.is_closed() {
            let accepted = tokio::select! {
                accepted = listener.next() => accepted,
                () = sender.closed() => return,
            };
            match (accepted, Arc::clone(&places).try_acquire_owned()) {
                (Ok(stream), Ok(place)) => {
                    let limit = Some(Box::pin(tokio::time::sleep(FIRST_WORD_LIMIT)));
                    let _ = sender.send(Ok(Guarded { stream, limit, _place: place })).await;
                }
                (Ok(_), Err(_)) => tracing::warn!("a control connection beyond the bound was closed"),
                (Err(error), _) => {
                    tracing::warn!(%error, "cannot accept a control connection");
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                }
            }
        }
    });
    ReceiverStream::new(receiver)
}

impl<S> Connected for Guarded<S> {
    type ConnectInfo = ();
    fn connect_info(&self) {}
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
            self.limit = None;
        }
        if read.is_pending()
            && let Some(limit) = &mut self.limit
            && limit.as_mut().poll(context).is_ready()
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
}
