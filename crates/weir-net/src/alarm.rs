//! A timer for the async runtime with the kernel's resolution.

use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::OwnedFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use weir_model::Span;

/// A timer on a descriptor. The runtime's own timers end on whole milliseconds, up to one too late, which is
/// as long as all else that a new plan needs.
#[derive(Debug)]
pub struct Alarm(AsyncFd<OwnedFd>);

impl Alarm {
    /// Opens the timer; within a runtime only.
    ///
    /// # Errors
    /// The kernel gives no timer, as where the process has no descriptors left, or the runtime cannot watch it.
    pub fn new() -> io::Result<Alarm> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // SAFETY: an owned descriptor names the same open file until it is dropped, and it is dropped with this.
        #[expect(unsafe_code, reason = "the runtime has no safe way to watch a descriptor")]
        let watched = unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE)? };
        Ok(Alarm(watched))
    }

    /// Waits that long. May be dropped and called anew at any time.
    ///
    /// # Errors
    /// The kernel refuses to set the timer or to read it.
    pub async fn wait(&self, span: Span) -> io::Result<()> {
        if span == Span::ZERO {
            return Ok(());
        }
        let it_value = Timespec {
            tv_sec: (span.nanos() / 1_000_000_000).min(1 << 30) as i64,
            tv_nsec: (span.nanos() % 1_000_000_000) as _,
        };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::empty(), &Itimerspec { it_interval, it_value })?;
        loop {
            let mut ready = self.0.readable().await?;
            let mut expirations = [0; 8];
            match rustix::io::read(self.0.get_ref(), &mut expirations) {
                Ok(_) => return Ok(()),
                // Readiness was left over from a wait that was dropped.
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[tokio::test]
    async fn a_wait_that_was_dropped_does_not_end_the_next_one() {
        let alarm = Alarm::new().unwrap();
        let dropped = tokio::time::timeout(Duration::from_millis(20), alarm.wait(Span::from_millis(5_000)));
        assert!(dropped.await.is_err());
        // This one expires while no task waits for it.
        tokio::select! {
            biased;
            _ = alarm.wait(Span::from_millis(1)) => panic!("nothing has expired yet"),
            () = std::future::ready(()) => {}
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        let start = Instant::now();
        alarm.wait(Span::from_millis(30)).await.unwrap();
        assert!(start.elapsed() >= Duration::from_millis(30));
    }
}
