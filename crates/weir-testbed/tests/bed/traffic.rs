//! Traffic for tests and measurements: TCP flows and UDP echoes between places of a bed.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use socket2::{Domain, Socket, Type};
use weir_testbed::{Bed, DSCP_CONTROL_TOS, Place};

/// A call that waits longer than this is reported as an error instead of waiting on.
const PATIENCE: Duration = Duration::from_secs(20);

/// What one flow brought to its receiver.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Received {
    pub(crate) bytes: u64,
    /// From before the connection was opened to after the last read.
    pub(crate) elapsed: Duration,
}

impl Received {
    /// Payload bytes per second.
    pub(crate) fn rate(&self) -> f64 {
        self.bytes as f64 / self.elapsed.as_secs_f64()
    }
}

/// Flows from every one of `senders` to `receiver` for `span`, all cubic.
pub(crate) fn incast(
    bed: &Bed,
    senders: &[(usize, Class)],
    receiver: usize,
    span: Duration,
) -> Result<Vec<Received>> {
    let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
    let listener = bed.run_at(Place::Host(receiver), || listen(any))??;
    let target = SocketAddrV4::new(bed.address(receiver), listener.local_addr()?.port());
    // Pairs are made one by one, so that the n-th accepted connection is that of the n-th sender.
    let mut pairs = Vec::new();
    for (sender, class) in senders {
        let out = bed.run_at(Place::Host(*sender), || connect(target, *class))??;
        let (inward, _) = listener.accept()?;
        pairs.push((out, inward));
    }
    let start = Instant::now();
    thread::scope(|scope| {
        let flows: Vec<_> = pairs
            .into_iter()
            .map(|(out, inward)| {
                scope.spawn(move || send(out, start + span));
                scope.spawn(move || receive(inward, start, start + span))
            })
            .collect();
        flows
            .into_iter()
            .map(|flow| flow.join().map_err(|_| anyhow::anyhow!("a receiver panicked"))?)
            .collect()
    })
}

pub(crate) fn listen(address: SocketAddrV4) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_tcp_congestion(b"cubic")?;
    socket.bind(&SocketAddr::V4(address).into())?;
    socket.listen(128)?;
    Ok(socket.into())
}

pub(crate) fn connect(target: SocketAddrV4, class: Class) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_tcp_congestion(b"cubic")?;
    if let Some(tos) = class.tos() {
        socket.set_tos_v4(tos)?;
    }
    socket.connect_timeout(&SocketAddr::V4(target).into(), PATIENCE)?;
    Ok(socket.into())
}

/// Writes until `end`; what the receiver does not take then is cut off with the connection.
pub(crate) fn send(mut stream: TcpStream, end: Instant) {
    let block = vec![0x5a_u8; 128 * 1024];
    while Instant::now() < end {
        if stream.write_all(&block).is_err() {
            return;
        }
    }
}

pub(crate) fn receive(mut stream: TcpStream, start: Instant, end: Instant) -> Result<Received> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut block = vec![0_u8; 256 * 1024];
    let mut bytes = 0;
    while Instant::now() < end {
        let count = stream.read(&mut block).context("no byte arrived for a long time")?;
        if count == 0 {
            break;
        }
        bytes += count as u64;
    }
    Ok(Received { bytes, elapsed: start.elapsed() })
}

/// Which class the packets of a flow or echo travel in; of an echo also those back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Control,
    Data,
    /// Data with this DSCP.
    Dscp(u8),
}

impl Class {
    fn tos(self) -> Option<u32> {
        match self {
            Class::Control => Some(DSCP_CONTROL_TOS),
            Class::Data => None,
            Class::Dscp(dscp) => Some(u32::from(dscp) << 2),
        }
    }
}

/// Sends back every datagram, until dropped.
pub(crate) struct Echo {
    address: SocketAddrV4,
    class: Class,
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Echo {
    pub(crate) fn start(bed: &Bed, place: Place, class: Class) -> Result<Self> {
        let socket = bed.run_at(place, || datagram_socket(class))??;
        let ip = match place {
            Place::Host(host) => bed.address(host),
            Place::Control => bed.control_address(),
        };
        let address = SocketAddrV4::new(ip, socket.local_addr()?.port());
        socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut datagram = [0_u8; 64];
            while !stopped.load(Ordering::Relaxed) {
                if let Ok((count, from)) = socket.recv_from(&mut datagram) {
                    let _ = socket.send_to(&datagram[..count], from);
                }
            }
        });
        Ok(Self { address, class, stop, thread: Some(thread) })
    }

    /// Times of single round trips from `place`, one after the other for `span`, shortest first. A lost
    /// datagram is left out.
    pub(crate) fn round_trips(&self, bed: &Bed, place: Place, span: Duration) -> Result<Vec<Duration>> {
        let socket = bed.run_at(place, || datagram_socket(self.class))??;
        socket.set_read_timeout(Some(Duration::from_millis(200)))?;
        let end = Instant::now() + span;
        let mut trips = Vec::new();
        let mut number = 0_u64;
        while Instant::now() < end {
            number += 1;
            let start = Instant::now();
            socket.send_to(&number.to_le_bytes(), self.address)?;
            if await_answer(&socket, number)? {
                trips.push(start.elapsed());
            }
            thread::sleep(Duration::from_millis(2));
        }
        trips.sort();
        Ok(trips)
    }
}

/// False if the answer of that number does not come in time; late answers to earlier ones are skipped.
fn await_answer(socket: &UdpSocket, number: u64) -> io::Result<bool> {
    let mut datagram = [0_u8; 64];
    loop {
        match socket.recv(&mut datagram) {
            Ok(8) if datagram[..8] == number.to_le_bytes() => return Ok(true),
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn datagram_socket(class: Class) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    if let Some(tos) = class.tos() {
        socket.set_tos_v4(tos)?;
    }
    socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)).into())?;
    Ok(socket.into())
}
