//! Readiness with nanosecond timeouts, and waking from another thread.

use rustix::event::epoll;
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
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
}

/// An epoll instance, edge-triggered, with a [`Waker`].
pub struct Poller {
    epoll: OwnedFd,
    wake: Arc<OwnedFd>,
}

/// Wakes a [`Poller`] from any thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Makes the current or next [`Poller::wait`] return.
    pub fn wake(&self) {
        // A full counter means a wake-up is pending already.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

impl Poller {
    /// Opens the instance.
    pub fn new() -> io::Result<Poller> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        epoll::add(&epoll, &*wake, epoll::EventData::new_u64(WAKE_TOKEN), epoll::EventFlags::IN)?;
        Ok(Poller { epoll, wake })
    }

    /// A handle that wakes this poller.
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.wake))
    }

    /// Watches a descriptor, edge-triggered for reading and writing. Closing it ends the watch.
    pub fn add(&self, fd: impl AsFd, token: u64) -> io::Result<()> {
        let flags =
            epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(token), flags)?)
    }

    /// Waits for events at most `timeout` (`None`: without limit) and appends them to `out`. The waker's
    /// own event is not reported.
    pub fn wait(&self, timeout: Option<Span>, out: &mut Vec<Event>) -> io::Result<()> {
        let timeout = timeout.map(|span| Timespec {
            tv_sec: (span.nanos() / 1_000_000_000).min(1 << 30) as i64,
            tv_nsec: (span.nanos() % 1_000_000_000) as _,
        });
        let mut buffer = [MaybeUninit::uninit(); EVENTS_PER_WAIT];
        let events = match epoll::wait(&self.epoll, &mut buffer, timeout.as_ref()) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        };
        for event in events {
            let (token, flags) = (event.data.u64(), event.flags);
            if token == WAKE_TOKEN {
                let mut count = [0; 8];
                let _ = rustix::io::read(&*self.wake, &mut count);
                continue;
            }
            let ended = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
            out.push(Event {
                token,
                readable: flags.intersects(epoll::EventFlags::IN | ended),
                writable: flags.intersects(epoll::EventFlags::OUT),
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
}
