//! Sources that write as fast as they can, and sinks that read and discard.

use anyhow::Context;
use rustix::fs::MemfdFlags;
use rustix::net::SendFlags;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use weir_daemon::relay::RelayOptions;
use weir_proto::relay::{
    FlowKey, HELLO_BYTES, HOP_LIMIT, Header, Hello, Kind, OPEN_BYTES, Open, PIECE_BYTES, Role,
};

/// What sources send again and again: small enough for the processor's caches.
const SOURCE_BYTES: u64 = 8 << 20;
/// Bytes that a flow announces: more than any measurement moves.
const FLOW_BYTES: u64 = 1 << 50;
/// What a sink reads at once.
const SINK_BYTES: usize = 256 << 10;

/// A relay on a thread of this process.
pub(super) struct RelayThread {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<anyhow::Result<()>>>,
}

impl RelayThread {
    pub(super) fn start(name: &str, site: u32) -> anyhow::Result<RelayThread> {
        let listener = weir_net::data_listener(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let address = listener.local_addr()?;
        let options = RelayOptions::new(name, site);
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(weir_daemon::relay::serve(options, listener, async move {
                let _ = stopped.await;
            }))
        });
        Ok(RelayThread { address, stop: Some(stop), thread: Some(thread) })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for RelayThread {
    fn drop(&mut self) {
        // The relay serves until this sender is gone.
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Flows of one measurement; they end with it.
#[derive(Default)]
pub(super) struct Flows {
    received: Arc<AtomicU64>,
    streams: Vec<TcpStream>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

fn key(number: u32) -> FlowKey {
    FlowKey { coflow: 1, reducer: number, mapper: 0 }
}

fn hello(role: Role) -> Vec<u8> {
    let lead = Header { length: HELLO_BYTES as u32, ..Header::about(key(0), Kind::Hello, 0) };
    [&lead.encode()[..], &Hello { role, connections: 1, session: 0 }.encode()].concat()
}

impl Flows {
    /// A flow from relay `near` to relay `far`, and a sink there.
    pub(super) fn add_relayed(
        &mut self,
        number: u32,
        near: SocketAddr,
        far: SocketAddr,
    ) -> anyhow::Result<()> {
        let sink = self.subscribe(number, far)?;
        self.drain(sink)?;
        self.upload(number, near, far)
    }

    /// A flow whose receiver takes nothing.
    pub(super) fn add_stuck(&mut self, number: u32, near: SocketAddr, far: SocketAddr) -> anyhow::Result<()> {
        let sink = self.subscribe(number, far)?;
        self.streams.push(sink);
        self.upload(number, near, far)
    }

    /// A stream through a forwarder.
    pub(super) fn add_plain(&mut self, source: TcpStream, sink: TcpStream) -> anyhow::Result<()> {
        self.drain(sink)?;
        self.pour(source, None)
    }

    fn subscribe(&mut self, number: u32, relay: SocketAddr) -> anyhow::Result<TcpStream> {
        let mut sink = TcpStream::connect(relay).context("a receiver cannot reach its relay")?;
        let subscribe = Header::about(key(number), Kind::Subscribe, 0).encode();
        sink.write_all(&[&hello(Role::Receiver)[..], &subscribe].concat())?;
        Ok(sink)
    }

    fn upload(&mut self, number: u32, near: SocketAddr, far: SocketAddr) -> anyhow::Result<()> {
        let mut source = TcpStream::connect(near).context("a source cannot reach its relay")?;
        let open = Open { source_site: 0, destination_site: 1, destination: far };
        let lead = Header { length: OPEN_BYTES as u32, ..Header::about(key(number), Kind::Open, FLOW_BYTES) };
        source.write_all(&[&hello(Role::Host)[..], &lead.encode(), &open.encode()].concat())?;
        self.pour(source, Some(key(number)))
    }

    /// Writes on a thread until the other side closes, as messages of a flow if one is given.
    fn pour(&mut self, source: TcpStream, flow: Option<FlowKey>) -> anyhow::Result<()> {
        self.streams.push(source.try_clone()?);
        let bytes = rustix::fs::memfd_create("weir-bench", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&bytes, SOURCE_BYTES)?;
        self.threads.push(std::thread::spawn(move || while_open(|at| send_piece(&source, &bytes, flow, at))));
        Ok(())
    }

    /// Reads on a thread until the other side closes.
    fn drain(&mut self, mut sink: TcpStream) -> anyhow::Result<()> {
        self.streams.push(sink.try_clone()?);
        let received = Arc::clone(&self.received);
        self.threads.push(std::thread::spawn(move || {
            let mut buffer = vec![0; SINK_BYTES];
            while_open(|_| {
                let count = sink.read(&mut buffer)?;
                received.fetch_add(count as u64, Ordering::Relaxed);
                if count == 0 { Err(std::io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
            });
        }));
        Ok(())
    }

    /// Bytes per second that all sinks got; ends the flows.
    pub(super) fn measure(self, warm_up: Duration, length: Duration) -> anyhow::Result<f64> {
        std::thread::sleep(warm_up);
        let (before, start) = (self.received.load(Ordering::Relaxed), Instant::now());
        std::thread::sleep(length);
        let (after, seconds) = (self.received.load(Ordering::Relaxed), start.elapsed().as_secs_f64());
        anyhow::ensure!(after > before, "nothing arrived");
        Ok((after - before) as f64 / seconds)
    }
}

impl Drop for Flows {
    fn drop(&mut self) {
        for stream in &self.streams {
            let _ = stream.shutdown(Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Repeats a step, counted from 0, until it fails: the connection was closed.
fn while_open(mut step: impl FnMut(u64) -> std::io::Result<()>) {
    let mut at = 0;
    while step(at).is_ok() {
        at += 1;
    }
}

/// Sends the next bytes without copying them, led by a header if they are a flow's.
fn send_piece(to: &TcpStream, bytes: &OwnedFd, flow: Option<FlowKey>, at: u64) -> std::io::Result<()> {
    if let Some(key) = flow {
        let header = Header::data(key, HOP_LIMIT, at * PIECE_BYTES, PIECE_BYTES as u32).encode();
        let mut left = &header[..];
        while !left.is_empty() {
            // More follows by `sendfile`, so that a header takes no segment of its own.
            let sent = rustix::net::send(to, left, SendFlags::MORE | SendFlags::NOSIGNAL)?;
            left = &left[sent..];
        }
    }
    let mut from = at * PIECE_BYTES % SOURCE_BYTES;
    let end = from + PIECE_BYTES;
    while from < end {
        let left = (end - from) as usize;
        rustix::fs::sendfile(to, bytes, Some(&mut from), left)?;
    }
    Ok(())
}
