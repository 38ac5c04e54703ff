//! Waits.

use weir_model::{Span, Time};

/// A wait that begins anew when its cause shows that it is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timer {
    since: Time,
    span: Span,
}

impl Timer {
    pub(super) fn new(since: Time, span: Span) -> Timer {
        Timer { since, span }
    }

    pub(super) fn restart(&mut self, now: Time) {
        self.since = now;
    }

    pub(super) fn due(&self) -> Time {
        self.since + self.span
    }
}
