//! The one place of the live system that reads clocks.

use rustix::time::{ClockId, clock_gettime};
use std::time::{SystemTime, UNIX_EPOCH};
use weir_model::{Span, Time};

/// Nanoseconds since the Unix epoch that never go back: the wall clock read once, and from there the time since the machine
/// booted, with that in which it was suspended. Ages therefore survive a restart of the process, steps of the wall clock
/// change nothing, and to a process a suspended machine is like having been stopped: it sees a gap.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Since the boot, at the start.
    origin_ns: u64,
    at_origin: Time,
}

impl Clock {
    /// Reads the wall clock once.
    pub fn start() -> Clock {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock {
            origin_ns: nanos_of(ClockId::Boottime),
            at_origin: Time::from_nanos(since_epoch.as_nanos() as u64),
        }
    }

    /// The time now; it never goes back.
    pub fn now(&self) -> Time {
        self.at_origin + Span::from_nanos(nanos_of(ClockId::Boottime).saturating_sub(self.origin_ns))
    }
}

/// Nanoseconds of the machine's monotonic clock, the same for all its processes.
pub fn monotonic_nanos() -> u64 {
    nanos_of(ClockId::Monotonic)
}

/// The name of the machine's start: another one after each. Empty where the kernel does not tell.
pub fn boot() -> String {
    let told = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    told.trim().to_owned()
}

fn nanos_of(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
