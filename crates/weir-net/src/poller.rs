//! Readiness with nanosecond timeouts, and waking from another thread.

use rustix::event::epoll;
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use weir_model::Span;

/// Most events taken from the kernel at once.
const EVENTS_PER_WAIT: usize = 256;
/// Token of the poller's own waker.
const WAKE_TOKEN: u64 = u64::MAX;

/// What happened to a registered descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// As given at registration.
    pub token: u64,
    /// It can be read, or has ended.
    pub readable: bool,
    /// It can be written.
    pub writable: bool,
    /// It has ended, or its peer writes no more: only reading to the end tells what was said before. Where this is not set, a read
    /// that took less than it could has taken all, and what comes later is another event.
    pub ended: bool,
}

/// The poller's thread does not wait: it looks at everything before it does.
const AWAKE: u8 = 0;
/// It waits, or is about to.
const WAITING: u8 = 1;
/// It is to look once more before it waits, or was told to stop waiting.
const WOKEN: u8 = 2;

/// An epoll instance, edge-triggered, with a [`Waker`]. One thread waits at it.
pub struct Poller {
    epoll: OwnedFd,
    wake: Arc<Wake>,
}

#[derive(Debug)]
struct Wake {
    event: OwnedFd,
    state: AtomicU8,
}

/// Wakes a [`Poller`] from any thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Wake>);

impl Waker {
    /// Makes the current or next [`Poller::wait`] return. What was written before it is seen by the thread that it returns to. The
    /// kernel is asked only where that thread waits and no other call has woken it.
    pub fn wake(&self) {
        if self.0.state.swap(WOKEN, Ordering::AcqRel) == WAITING {
            // A full counter means a wake-up is pending already.
            let _ = rustix::io::write(&self.0.event, &1u64.to_ne_bytes());
        }
    }
}

impl Poller {
    /// Opens an epoll instance, and the descriptor that wakes it.
    ///
    /// # Errors
    /// The kernel gives no descriptor, as where the process has none left.
    pub fn new() -> io::Result<Poller> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &event, epoll::EventData::new_u64(WAKE_TOKEN), epoll::EventFlags::IN)?;
        Ok(Poller { epoll, wake: Arc::new(Wake { event, state: AtomicU8::new(AWAKE) }) })
    }

    /// A handle that wakes this poller.
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.wake))
    }

    /// Watches a descriptor, edge-triggered for reading and writing. Closing it ends the watch.
    ///
    /// # Errors
    /// The descriptor is watched already, is of a kind that cannot be, or the user watches too many.
    pub fn add(&self, fd: impl AsFd, token: u64) -> io::Result<()> {
        let flags =
            epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(token), flags)?)
    }

    /// Waits for events at most `timeout` (`None`: without limit) and appends them to `out`. The waker's
    /// own event is not reported.
    ///
    /// # Errors
    /// The kernel refuses to wait. A signal ends the wait early, and is no error.
    pub fn wait(&self, timeout: Option<Span>, out: &mut Vec<Event>) -> io::Result<()> {
        let timeout = timeout.map(|span| Timespec {
            tv_sec: (span.nanos() / 1_000_000_000).min(1 << 30) as i64,
            tv_nsec: (span.nanos() % 1_000_000_000) as _,
        });
        let state = &self.wake.state;
        let waits = state.compare_exchange(AWAKE, WAITING, Ordering::AcqRel, Ordering::Acquire).is_ok();
        // A thread that was woken since its last wait first sees to what it was woken for.
        let timeout = if waits { timeout } else { Some(Timespec { tv_sec: 0, tv_nsec: 0 }) };
        let mut buffer = [MaybeUninit::uninit(); EVENTS_PER_WAIT];
        let waited = epoll::wait(&self.epoll, &mut buffer, timeout.as_ref());
        // A thread that wakes from here on has the next call return.
        state.swap(AWAKE, Ordering::AcqRel);
        let events = match waited {
            Ok((events, _)) => events,
            Err(Errno::INTR) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        };
        for event in events {
            let (token, flags) = (event.data.u64(), event.flags);
            if token == WAKE_TOKEN {
                // Watched level-triggered: a counter that is not read would end every later wait.
                let mut count = [0; 8];
                let _ = rustix::io::read(&self.wake.event, &mut count);
                continue;
            }
            let ended = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
            out.push(Event {
                token,
                // The kernel reports errors without `IN`, and only a read tells which one it is.
                readable: flags.intersects(epoll::EventFlags::IN | ended),
                writable: flags.intersects(epoll::EventFlags::OUT),
                ended: flags.intersects(ended),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waker_ends_a_wait_that_has_no_limit() {
        let poller = Poller::new().unwrap();
        let waker = poller.waker();
        let thread = std::thread::spawn(move || waker.wake());
        let mut events = Vec::new();
        poller.wait(None, &mut events).unwrap();
        assert!(events.is_empty());
        thread.join().unwrap();
    }

    #[test]
    fn a_waker_that_wakes_before_the_wait_ends_it_once() {
        let poller = Poller::new().unwrap();
        let mut events = Vec::new();
        poller.waker().wake();
        poller.waker().wake();
        poller.wait(None, &mut events).unwrap();
        let begun = std::time::Instant::now();
        poller.wait(Some(Span::from_millis(20)), &mut events).unwrap();
        assert!(begun.elapsed() >= std::time::Duration::from_millis(20), "it was woken for nothing");
    }

    #[test]
    fn an_event_says_that_a_peer_ended_though_there_are_bytes_to_read() {
        use std::io::Write;
        use std::net::{Shutdown, TcpListener, TcpStream};
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        far.set_nonblocking(true).unwrap();
        let poller = Poller::new().unwrap();
        poller.add(&far, 7).unwrap();
        let next = || {
            let mut events = Vec::new();
            while !events.iter().any(|event: &Event| event.readable) {
                poller.wait(Some(Span::from_millis(10_000)), &mut events).unwrap();
            }
            events.into_iter().find(|event| event.readable).unwrap()
        };
        near.write_all(b"a").unwrap();
        assert!(!next().ended);
        // Nothing was read, and the end is another event.
        near.shutdown(Shutdown::Write).unwrap();
        assert!(next().ended);
    }

    /// Each thread waits for the answer to what it said before it says more, so that one wake-up that is lost holds up all.
    #[test]
    fn no_wake_up_is_lost_between_threads() {
        use std::sync::mpsc;
        use std::time::Duration;
        const THREADS: u64 = 8;
        const ROUNDS: u64 = 5_000;
        let poller = Poller::new().unwrap();
        let (queue, inbox) = mpsc::channel::<mpsc::Sender<()>>();
        let threads = (0..THREADS).map(|_| {
            let (waker, queue) = (poller.waker(), queue.clone());
            std::thread::spawn(move || {
                for _ in 0..ROUNDS {
                    let (answer, answered) = mpsc::channel();
                    queue.send(answer).unwrap();
                    waker.wake();
                    answered.recv_timeout(Duration::from_secs(20)).expect("a wake-up was lost");
                }
            })
        });
        let threads: Vec<_> = threads.collect();
        let (mut left, mut events) = (THREADS * ROUNDS, Vec::new());
        while left > 0 {
            poller.wait(Some(Span::from_millis(30_000)), &mut events).unwrap();
            while let Ok(answer) = inbox.try_recv() {
                left -= 1;
                let _ = answer.send(());
            }
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}
