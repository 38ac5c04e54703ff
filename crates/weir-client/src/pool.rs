//! What ended gets leave for later ones: connections and buffers.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// Idle connections kept for one holder or relay,
const MAX_IDLE_PER_HOLDER: usize = 32;
/// and for all together.
const MAX_IDLE: usize = 512;
/// One that was idle for so long is closed: agents close theirs after 60 s.
const IDLE_LIMIT: Duration = Duration::from_secs(50);
/// How often it is looked for those.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// Buffers kept for later gets.
const MAX_IDLE_BUFFERS: usize = 64;

/// Connections by holder or relay, and buffers of a frame.
#[derive(Debug, Default)]
pub(crate) struct Pool(Mutex<Idle>);

/// A connection that an ended get left.
#[derive(Debug)]
pub(crate) struct Left {
    pub(crate) stream: TcpStream,
    /// How many bytes wake its reader, as the kernel was told last.
    pub(crate) wakes_at: usize,
}

impl Left {
    /// Whether its peer has neither closed it nor said something unasked.
    fn is_quiet(&self) -> bool {
        let read = self.stream.try_read(&mut [0]);
        read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}

#[derive(Debug, Default)]
struct Idle {
    /// Since when each is idle, the one that was left last at the end.
    streams: BTreeMap<SocketAddr, Vec<(Instant, Left)>>,
    count: usize,
    looked: Option<Instant>,
    buffers: Vec<Vec<u8>>,
}

impl Idle {
    /// Closes connections that were idle for long, now and then.
    fn look(&mut self, now: Instant) {
        if self.looked.is_some_and(|looked| now.duration_since(looked) < LOOK_INTERVAL) {
            return;
        }
        self.looked = Some(now);
        self.streams.retain(|_, streams| {
            streams.retain(|(since, _)| now.duration_since(*since) < IDLE_LIMIT);
            !streams.is_empty()
        });
        self.count = self.streams.values().map(Vec::len).sum();
    }
}

impl Pool {
    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn take_stream(&self, holder: SocketAddr) -> Option<Left> {
        let mut idle = self.idle();
        idle.look(Instant::now());
        loop {
            let (_, left) = idle.streams.get_mut(&holder)?.pop()?;
            idle.count -= 1;
            if left.is_quiet() {
                return Some(left);
            }
        }
    }

    pub(crate) fn give_stream(&self, holder: SocketAddr, stream: Left) {
        let (mut idle, now) = (self.idle(), Instant::now());
        idle.look(now);
        if idle.count >= MAX_IDLE {
            return;
        }
        let streams = idle.streams.entry(holder).or_default();
        if streams.len() < MAX_IDLE_PER_HOLDER {
            streams.push((now, stream));
            idle.count += 1;
        }
    }

    pub(crate) fn take_buffer(&self) -> Vec<u8> {
        self.idle().buffers.pop().unwrap_or_default()
    }

    pub(crate) fn give_buffer(&self, buffer: Vec<u8>) {
        let mut idle = self.idle();
        if idle.buffers.len() < MAX_IDLE_BUFFERS {
            idle.buffers.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    async fn connection(listener: &TcpListener) -> (Left, std::net::TcpStream) {
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (Left { stream, wakes_at: 1 }, listener.accept().unwrap().0)
    }

    #[tokio::test]
    async fn connections_that_their_peer_closed_or_spoke_on_are_not_taken_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let holder = listener.local_addr().unwrap();
        let pool = Pool::default();
        let (quiet, _quiet) = connection(&listener).await;
        let (closed, peer) = connection(&listener).await;
        let (spoken, mut speaker) = connection(&listener).await;
        let address = quiet.stream.local_addr().unwrap();
        drop(peer);
        std::io::Write::write_all(&mut speaker, b"x").unwrap();
        for left in [&closed, &spoken] {
            left.stream.readable().await.unwrap();
        }
        for left in [quiet, closed, spoken] {
            pool.give_stream(holder, left);
        }
        // The last one that was left comes first, and those that are no use are gone for good.
        assert_eq!(pool.take_stream(holder).unwrap().stream.local_addr().unwrap(), address);
        assert!(pool.take_stream(holder).is_none());
        assert_eq!(pool.idle().count, 0);
    }

    #[tokio::test]
    async fn connections_are_bounded_by_holder_in_all_and_in_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let pool = Pool::default();
        let mut peers = Vec::new();
        for number in 0..MAX_IDLE + MAX_IDLE_PER_HOLDER {
            let (left, peer) = connection(&listener).await;
            peers.push(peer);
            let holder = SocketAddr::from(([10, 0, 0, 1], (number % 17) as u16 + 1));
            pool.give_stream(holder, left);
        }
        let idle = pool.idle();
        assert_eq!(idle.streams.values().map(Vec::len).sum::<usize>(), MAX_IDLE);
        assert!(idle.streams.values().all(|streams| streams.len() <= MAX_IDLE_PER_HOLDER));
        drop(idle);
        pool.idle().look(Instant::now() + IDLE_LIMIT);
        assert!(pool.idle().streams.is_empty() && pool.idle().count == 0);
    }
}
