//! Flows of plain TCP between hosts of a bed, each on a connection of its own.
//!
//! Connections are made before the run begins, so that a flow's time is that of its bytes alone: what becomes of it is the work of
//! the congestion control and of the queues.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::param::clock_ticks_per_second;
use socket2::{Domain, Socket, Type};

use crate::bed::Bed;
use crate::error::BedError;
use crate::place::Place;

/// What is written and read at a time.
const CHUNK_BYTES: usize = 64 << 10;
/// A sender's and a receiver's threads keep what they move on the heap.
const STACK_BYTES: usize = 128 << 10;
/// So long before a flow begins its threads are started.
const AHEAD: Duration = Duration::from_millis(5);
/// From the last connection to the beginning of the run.
const SETTLING: Duration = Duration::from_millis(100);
/// How long making one connection may take, at either end.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Descriptors of this process that are not flows'.
const OTHER_DESCRIPTORS: u64 = 256;

/// A flow to move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BedFlow {
    /// The host that has its bytes.
    pub source: usize,
    /// The host that they go to.
    pub destination: usize,
    /// Payload in bytes; without it as much as goes until the run ends.
    pub bytes: Option<u64>,
    /// When its first byte may be sent, from the beginning of the run.
    pub at: Duration,
}

/// What became of a flow. Times count from the beginning of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moved {
    /// When its first byte was given to the kernel, which on a machine that is busy may be later than it was to be. None if the run
    /// was over before.
    pub began: Option<Duration>,
    /// When its receiver had the last byte.
    pub ended: Option<Duration>,
    /// Payload that its receiver got.
    pub received: u64,
    /// Segments that its sender sent again.
    pub retransmitted: u32,
}

/// What a run was.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Moves {
    /// What became of each flow, in the order of the list.
    pub flows: Vec<Moved>,
    /// How long flows moved; connections were made before.
    pub lasted: Duration,
    /// Seconds that all processors of the machine were busy meanwhile.
    pub busy_s: f64,
}

/// How flows are moved.
pub struct MoveOptions<'a> {
    /// The congestion control of both ends, by the kernel's name for it.
    pub congestion: &'a str,
    /// When the run ends even if flows are left, from its beginning.
    pub lasts: Duration,
    /// Called with a flow's place in the list and its sender's and receiver's sockets once all are connected.
    pub connected: &'a (dyn Fn(usize, &TcpStream, &TcpStream) -> io::Result<()> + Sync),
    /// The same, right before a flow's first byte.
    pub begins: &'a (dyn Fn(usize, &TcpStream) -> io::Result<()> + Sync),
}

/// How many flows this process may have sockets for; raises its limit of descriptors as far as it may.
#[must_use]
pub fn most_flows() -> u64 {
    weir_net::raise_descriptor_limit().saturating_sub(OTHER_DESCRIPTORS) / 2
}

/// Moves flows. Returns once all ended, or the run's time is over.
///
/// # Errors
/// [`BedError::NoSuchHost`]; [`BedError::Config`] for more flows than the process may have connections; [`BedError::Os`] if a
/// connection cannot be made or breaks.
pub fn move_flows(bed: &Bed, flows: &[BedFlow], options: &MoveOptions<'_>) -> Result<Moves, BedError> {
    let most = most_flows();
    if flows.len() as u64 > most {
        let reason = format!("{} flows, and this process may have the sockets of {most}", flows.len());
        return Err(BedError::Config(reason));
    }
    let pairs = connect(bed, flows, options.congestion)?;
    for (index, (near, far)) in pairs.iter().enumerate() {
        (options.connected)(index, near, far).map_err(of_flow("prepare", flows, index))?;
    }
    let mut order: Vec<usize> = (0..flows.len()).collect();
    order.sort_by_key(|&index| flows[index].at);
    let busy = || busy_seconds().map_err(BedError::os("read /proc/stat"));
    let (started_at, busy_before) = (Instant::now(), busy()?);
    let run = Run { begin: started_at + SETTLING, over: AtomicBool::new(false), options };
    let mut moved = vec![Moved::default(); flows.len()];
    thread::scope(|scope| -> Result<(), BedError> {
        let (say, said) = mpsc::channel();
        let mut left = flows.len();
        let mut started = order.into_iter().peekable();
        let result = loop {
            let next = started.peek().map(|&index| run.begin + flows[index].at.saturating_sub(AHEAD));
            let end = run.begin + options.lasts;
            if next.is_some_and(|next| next < end && next <= Instant::now())
                && let Some(index) = started.next()
            {
                let (flow, pair) = (flows[index], &pairs[index]);
                let (sender, receiver) = (say.clone(), say.clone());
                let run = &run;
                let threads = [
                    spawn(scope, move || drop(sender.send((index, run.send(index, flow, &pair.0))))),
                    spawn(scope, move || drop(receiver.send((index, run.receive(flow, &pair.1))))),
                ];
                if let Some(error) = threads.into_iter().find_map(Result::err) {
                    break Err(of_flow("start the threads of", flows, index)(error));
                }
                continue;
            }
            let wake = next.unwrap_or(end).min(end);
            match said.recv_timeout(wake.saturating_duration_since(Instant::now())) {
                Ok((index, Ok(Said::Began(at)))) => moved[index].began = Some(at),
                Ok((index, Ok(Said::Received { bytes, ended }))) => {
                    (moved[index].received, moved[index].ended) = (bytes, ended);
                    left -= usize::from(ended.is_some());
                }
                Ok((index, Err(error))) => break Err(of_flow("move", flows, index)(error)),
                // It is time for the next flow, or for the end: `say` is kept here, so that the
                // channel stays open.
                Err(_) => {}
            }
            if left == 0 || Instant::now() >= end {
                break Ok(());
            }
        };
        // Before sockets are shut down: their threads look at it to tell the end of the run from a
        // failure.
        run.over.store(true, Ordering::Relaxed);
        for (near, far) in &pairs {
            // An error means that the connection has ended already.
            let _ = (near.shutdown(Shutdown::Both), far.shutdown(Shutdown::Both));
        }
        // Threads hold all senders that are left, so that the loop below ends with the last of
        // them.
        drop(say);
        // What those say that were ended.
        for (index, word) in said {
            match word {
                Ok(Said::Began(at)) => moved[index].began = Some(at),
                Ok(Said::Received { bytes, .. }) => moved[index].received = bytes,
                Err(_) => {}
            }
        }
        result
    })?;
    let (lasted, busy_s) = (started_at.elapsed(), busy()? - busy_before);
    for (moved, (near, _)) in moved.iter_mut().zip(&pairs) {
        moved.retransmitted = weir_net::tcp_path(near).map_or(0, |path| path.retransmitted);
    }
    Ok(Moves { flows: moved, lasted, busy_s })
}

fn of_flow(what: &str, flows: &[BedFlow], index: usize) -> impl FnOnce(io::Error) -> BedError {
    let BedFlow { source, destination, .. } = flows[index];
    BedError::os(format!("{what} flow {index}, from host {source} to host {destination}"))
}

fn spawn<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    work: impl FnOnce() + Send + 'scope,
) -> io::Result<()> {
    thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work).map(drop)
}

/// What a flow's thread says when it ends.
enum Said {
    Began(Duration),
    Received { bytes: u64, ended: Option<Duration> },
}

struct Run<'a> {
    begin: Instant,
    /// Connections that end now were ended by the run.
    over: AtomicBool,
    options: &'a MoveOptions<'a>,
}

impl Run<'_> {
    fn send(&self, index: usize, flow: BedFlow, mut near: &TcpStream) -> io::Result<Said> {
        let chunk = vec![7; CHUNK_BYTES];
        thread::sleep((self.begin + flow.at).saturating_duration_since(Instant::now()));
        (self.options.begins)(index, near)?;
        let began = self.begin.elapsed();
        let mut left = flow.bytes.unwrap_or(u64::MAX);
        while left > 0 {
            let next = CHUNK_BYTES.min(usize::try_from(left).unwrap_or(CHUNK_BYTES));
            match near.write(&chunk[..next]) {
                Ok(count) => left -= count as u64,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) if self.over.load(Ordering::Relaxed) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(Said::Began(began))
    }

    fn receive(&self, flow: BedFlow, mut far: &TcpStream) -> io::Result<Said> {
        let (mut room, mut bytes) = (vec![0; CHUNK_BYTES], 0);
        loop {
            match far.read(&mut room) {
                Ok(0) if self.over.load(Ordering::Relaxed) => {
                    return Ok(Said::Received { bytes, ended: None });
                }
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => bytes += count as u64,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) if self.over.load(Ordering::Relaxed) => {
                    return Ok(Said::Received { bytes, ended: None });
                }
                Err(error) => return Err(error),
            }
            if flow.bytes == Some(bytes) {
                return Ok(Said::Received { bytes, ended: Some(self.begin.elapsed()) });
            }
        }
    }
}

/// The sender's and the receiver's socket of each flow.
fn connect(bed: &Bed, flows: &[BedFlow], congestion: &str) -> Result<Vec<(TcpStream, TcpStream)>, BedError> {
    let mut listeners: BTreeMap<usize, (TcpListener, SocketAddr)> = BTreeMap::new();
    let mut by_source: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (index, flow) in flows.iter().enumerate() {
        by_source.entry(flow.source).or_default().push(index);
        if let Entry::Vacant(place) = listeners.entry(flow.destination) {
            let host = Place::Host(flow.destination);
            let listening = bed.run_at(host, || listen(congestion))?;
            let failed = BedError::os(format!("listen with `{congestion}` at {host}"));
            let (listener, port) = listening.map_err(failed)?;
            place.insert((listener, (bed.address(flow.destination), port).into()));
        }
    }
    let mut pairs: Vec<Option<(TcpStream, TcpStream)>> = flows.iter().map(|_| None).collect();
    for (source, indices) in by_source {
        let connected = bed.run_at(Place::Host(source), || {
            indices
                .iter()
                .map(|&index| {
                    let (listener, target) = &listeners[&flows[index].destination];
                    // One after the other: the next that is accepted is the one that has just been made.
                    let near = dial(*target, congestion);
                    let pair = near.and_then(|near| Ok((near, accept(listener)?)));
                    pair.map_err(|error| (index, error))
                })
                .collect::<Result<Vec<_>, _>>()
        })?;
        let connected = connected.map_err(|(index, error)| of_flow("connect", flows, index)(error))?;
        for (index, pair) in indices.into_iter().zip(connected) {
            pairs[index] = Some(pair);
        }
    }
    Ok(pairs.into_iter().flatten().collect())
}

fn socket(congestion: &str) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    // Before it connects or listens: a control such as DCTCP has the connection's first segments
    // say that it takes ECN, and accepted sockets get that of the one that listens.
    socket.set_tcp_congestion(congestion.as_bytes())?;
    Ok(socket)
}

fn listen(congestion: &str) -> io::Result<(TcpListener, u16)> {
    let socket = socket(congestion)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)).into())?;
    socket.listen(16)?;
    // Of a listening socket this bounds `accept`.
    socket.set_read_timeout(Some(CONNECT_LIMIT))?;
    let listener = TcpListener::from(socket);
    let port = listener.local_addr()?.port();
    Ok((listener, port))
}

fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
    let (far, _) = listener.accept()?;
    // It has the listener's limit. Reading lasts as long as the run.
    far.set_read_timeout(None)?;
    Ok(far)
}

fn dial(target: SocketAddr, congestion: &str) -> io::Result<TcpStream> {
    let socket = socket(congestion)?;
    socket.connect_timeout(&target.into(), CONNECT_LIMIT)?;
    socket.set_tcp_nodelay(true)?;
    Ok(socket.into())
}

/// Seconds that all processors of the machine were busy so far, those of the kernel for packets among them.
///
/// # Errors
/// `/proc/stat` cannot be read, or is not as it should be.
pub fn busy_seconds() -> io::Result<f64> {
    let text = std::fs::read_to_string("/proc/stat")?;
    let ticks = || -> Option<u64> {
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let all: Vec<u64> = line.split_whitespace().map(|field| field.parse().ok()).collect::<Option<_>>()?;
        // user, nice, system, idle, iowait, irq, softirq.
        Some([0, 1, 2, 5, 6].iter().filter_map(|&at| all.get(at)).sum())
    };
    let ticks = ticks().ok_or_else(|| io::Error::other("/proc/stat has no line of all processors"))?;
    Ok(ticks as f64 / clock_ticks_per_second() as f64)
}
