//! A get as a stream: bytes to read while the rest still arrives.

use crate::{BlockReader, Client, GetError, GetOptions};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncBufRead, AsyncRead, ReadBuf};

/// What one step of a [`BlockReader`] gives back: the reader, and how many bytes it verified.
type Step = Pin<Box<dyn Future<Output = (Box<BlockReader>, Result<Option<usize>, GetError>)> + Send>>;

impl Client {
    /// Gets a block as a stream of bytes, for whatever takes an [`AsyncRead`] or [`AsyncBufRead`].
    ///
    /// Every byte has passed its frame's checksum when it is handed out, and a broken transfer goes on at the
    /// first byte that was not. No more than one frame (256 KiB) is held here. A reader that is slow, or stops,
    /// slows or stops its sender: the rest stays where it is, in the sender's file. The time limit of the get
    /// counts on meanwhile.
    ///
    /// An error of the stream carries the [`GetError`].
    pub fn get_stream(&self, coflow: u64, block: &str, options: GetOptions) -> BlockStream {
        BlockStream::from(self.get(coflow, block, options))
    }
}

/// A block as a stream; see [`Client::get_stream`].
pub struct BlockStream {
    state: State,
}

enum State {
    /// `left` verified bytes of the reader's frame end at `end` and are not handed out yet.
    Holds { reader: Box<BlockReader>, end: usize, left: usize },
    /// The next frame is on its way.
    Waits(Step),
    /// All was handed out, or the get failed.
    Over,
}

impl From<BlockReader> for BlockStream {
    /// The rest of what a reader has to give.
    fn from(reader: BlockReader) -> BlockStream {
        BlockStream { state: State::Holds { reader: Box::new(reader), end: 0, left: 0 } }
    }
}

impl BlockStream {
    /// Makes sure that there are bytes to hand out, unless all were.
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            // The paths that put nothing back, the end and an error, leave the stream over.
            match std::mem::replace(&mut self.state, State::Over) {
                State::Over => return Poll::Ready(Ok(())),
                State::Holds { mut reader, left: 0, .. } => {
                    self.state = State::Waits(Box::pin(async move {
                        let verified = reader.next().await.map(|part| part.map(<[u8]>::len));
                        (reader, verified)
                    }));
                }
                holds @ State::Holds { .. } => {
                    self.state = holds;
                    return Poll::Ready(Ok(()));
                }
                State::Waits(mut step) => match step.as_mut().poll(context) {
                    Poll::Pending => {
                        self.state = State::Waits(step);
                        return Poll::Pending;
                    }
                    Poll::Ready((reader, Ok(Some(length)))) => {
                        self.state = State::Holds { reader, end: length, left: length };
                    }
                    Poll::Ready((_, Ok(None))) => {}
                    Poll::Ready((_, Err(error))) => return Poll::Ready(Err(io::Error::other(error))),
                },
            }
        }
    }

    /// Bytes that can be handed out at once.
    fn held(&self) -> &[u8] {
        match &self.state {
            State::Holds { reader, end, left } => &reader.frame(*end)[end - left..],
            State::Waits(_) | State::Over => &[],
        }
    }

    fn hand_out(&mut self, count: usize) {
        if let State::Holds { left, .. } = &mut self.state {
            *left = left.saturating_sub(count);
        }
    }
}

impl AsyncRead for BlockStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_fill(context))?;
        let held = self.held();
        let count = held.len().min(buffer.remaining());
        buffer.put_slice(&held[..count]);
        self.hand_out(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncBufRead for BlockStream {
    fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let stream = self.get_mut();
        ready!(stream.poll_fill(context))?;
        Poll::Ready(Ok(stream.held()))
    }

    fn consume(mut self: Pin<&mut Self>, count: usize) {
        self.hand_out(count);
    }
}
