//! How fast a link is, told from traffic that would have gone faster if it could.
//!
//! A link that is not filled shows how much there was to send, not what it can carry. So only time counts in which
//! every connection had more to write than its socket took, and only bytes that the other side acknowledged.

use weir_model::{Span, Time};

/// Share of an interval that must have been busy for the interval to tell anything.
const BUSY_SHARE: f64 = 0.98;

/// Measures the way to one neighbour.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkMeter {
    began: Time,
    written: u64,
    unacknowledged: u64,
    busy: Span,
    /// Whether the interval before was busy: only then was the connections' speed that of the link from the start.
    busy_before: bool,
    busy_since: Option<Time>,
}

impl LinkMeter {
    /// Bytes went into a socket.
    pub fn note_written(&mut self, bytes: u64) {
        self.written = self.written.saturating_add(bytes);
    }

    /// From now on all connections are waited for, or some one is not.
    pub fn note_busy(&mut self, now: Time, busy: bool) {
        match (self.busy_since, busy) {
            (None, true) => self.busy_since = Some(now),
            (Some(since), false) => {
                self.busy = self.busy + now.since(since);
                self.busy_since = None;
            }
            _ => {}
        }
    }

    /// Ends an interval and begins the next. `unacknowledged`: bytes written to the sockets that the other side has
    /// not. Bytes per second, if the link was busy.
    pub fn take(&mut self, now: Time, unacknowledged: u64) -> Option<f64> {
        let is_busy = self.busy_since.is_some();
        self.note_busy(now, false);
        let interval = now.since(self.began).as_secs();
        // What was written and is not acknowledged yet moves from this interval to a later one.
        let carried = self.written.saturating_add(self.unacknowledged).saturating_sub(unacknowledged);
        let busy = interval > 0.0 && self.busy.as_secs() >= BUSY_SHARE * interval;
        let tells = busy && self.busy_before;
        *self = LinkMeter { began: now, unacknowledged, busy_before: busy, ..LinkMeter::default() };
        // What was busy at the end of this interval is so at the beginning of the next.
        self.note_busy(now, is_busy);
        (tells && carried > 0).then(|| carried as f64 / interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_measured_only_while_it_is_waited_for() {
        let mut meter = LinkMeter::default();
        assert_eq!(meter.take(Time::from_millis(1000), 0), None);
        // Busy for the first time: connections may have come up to speed only by and by.
        meter.note_busy(Time::from_millis(1000), true);
        meter.note_written(1_000_000);
        assert_eq!(meter.take(Time::from_millis(1250), 0), None);
        // Busy for all of the next 250 ms: 3 MB written, 0.5 MB of them still on the way. (3 - 0.5) / 0.25 s.
        meter.note_written(3_000_000);
        assert_eq!(meter.take(Time::from_millis(1500), 500_000), Some(10e6));
        // The half arrives, with 2 MB that were written: 2.5 MB in 250 ms, though the sockets took less.
        meter.note_written(2_000_000);
        assert_eq!(meter.take(Time::from_millis(1750), 0), Some(10e6));
        // Idle for a tenth: what came through says nothing about the link.
        meter.note_busy(Time::from_millis(1975), false);
        meter.note_written(2_000_000);
        assert_eq!(meter.take(Time::from_millis(2000), 0), None);
    }
}
