//! The least that forwarding takes: one thread that splices each of some streams from one connection to another.

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use weir_net::Poller;

/// Size of a stream's pipe, and of what is asked for at once.
const PIPE_BYTES: usize = 512 << 10;
/// Pieces of one stream before the others have their turn.
const PIECES_PER_TURN: usize = 8;

/// The thread. It ends once all its streams were closed.
pub(super) struct Forwarder(Option<std::thread::JoinHandle<std::io::Result<()>>>);

/// A stream on its way through the forwarder.
struct Stream {
    from: TcpStream,
    to: TcpStream,
    read: OwnedFd,
    write: OwnedFd,
    held: usize,
}

/// How far a step came.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Moved,
    Waits,
    Ended,
}

impl Forwarder {
    /// Begins to forward so many streams: for each, where to write and where to read.
    pub(super) fn start(streams: u32) -> anyhow::Result<(Forwarder, Vec<(TcpStream, TcpStream)>)> {
        let listener = weir_net::data_listener(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        listener.set_nonblocking(false)?;
        let poller = Poller::new()?;
        let (mut ends, mut inner) = (Vec::new(), Vec::new());
        for index in 0..u64::from(streams) {
            let ((source, from), (sink, to)) = (connection(&listener)?, connection(&listener)?);
            poller.add(&from, index)?;
            poller.add(&to, index)?;
            let (read, write) = rustix::pipe::pipe_with(PipeFlags::NONBLOCK)?;
            rustix::pipe::fcntl_setpipe_size(&write, PIPE_BYTES)?;
            inner.push(Some(Stream { from, to, read, write, held: 0 }));
            ends.push((source, sink));
        }
        Ok((Forwarder(Some(std::thread::spawn(move || forward(&poller, inner)))), ends))
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            let _ = thread.join();
        }
    }
}

/// Both ends of a new connection, the accepted one prepared as a relay's would be.
fn connection(listener: &TcpListener) -> anyhow::Result<(TcpStream, TcpStream)> {
    let far = TcpStream::connect(listener.local_addr()?)?;
    let (near, _) = listener.accept()?;
    near.set_nonblocking(true)?;
    weir_net::tune_served(&near)?;
    Ok((far, near))
}

fn forward(poller: &Poller, mut streams: Vec<Option<Stream>>) -> std::io::Result<()> {
    let mut events = Vec::new();
    let mut ready: Vec<usize> = (0..streams.len()).collect();
    while streams.iter().any(Option::is_some) {
        let mut more = Vec::new();
        for index in ready.drain(..) {
            let Some(stream) = &mut streams[index] else { continue };
            let step = (0..PIECES_PER_TURN).map(|_| stream.step()).find(|step| *step != Step::Moved);
            match step {
                None => more.push(index),
                Some(Step::Ended) => streams[index] = None,
                Some(_) => {}
            }
        }
        // Streams whose turn ended while they could move on wait for no event.
        let timeout = (!more.is_empty()).then_some(weir_model::Span::ZERO);
        if streams.iter().any(Option::is_some) {
            poller.wait(timeout, &mut events)?;
        }
        ready.extend(more);
        ready.extend(events.drain(..).map(|event| event.token as usize));
        ready.sort_unstable();
        ready.dedup();
    }
    Ok(())
}

impl Stream {
    fn step(&mut self) -> Step {
        while self.held > 0 {
            match splice(&self.read, &self.to, self.held) {
                Ok(0) => return Step::Ended,
                Ok(count) => self.held -= count,
                Err(Errno::AGAIN) => return Step::Waits,
                Err(_) => return Step::Ended,
            }
        }
        match splice(&self.from, &self.write, PIPE_BYTES) {
            Ok(0) => Step::Ended,
            Ok(count) => {
                self.held = count;
                Step::Moved
            }
            Err(Errno::AGAIN) => Step::Waits,
            Err(_) => Step::Ended,
        }
    }
}

fn splice(from: impl AsFd, to: impl AsFd, count: usize) -> rustix::io::Result<usize> {
    rustix::pipe::splice(from, None, to, None, count, SpliceFlags::MOVE | SpliceFlags::NONBLOCK)
}
