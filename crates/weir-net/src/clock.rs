//! The one place of the live system that reads clocks.

use std::time::{Instant, SystemTime, UNIX_EPOCH};
use weir_model::{Span, Time};

/// Nanoseconds since the Unix epoch that never go back: the wall clock read once, and the monotonic
/// clock from there. Ages therefore survive a restart of the process.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
    at_origin: Time,
}

impl Clock {
    /// Reads the wall clock once.
    pub fn start() -> Clock {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { origin: Instant::now(), at_origin: Time::from_nanos(since_epoch.as_nanos() as u64) }
    }

    /// Now.
    pub fn now(&self) -> Time {
        self.at_origin + Span::from_nanos(self.origin.elapsed().as_nanos() as u64)
    }
}

/// Nanoseconds of the machine's monotonic clock, the same for all its processes.
pub fn monotonic_nanos() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
