//! Credits granted to one upstream for one flow.
//!
//! An upstream sends no more of a flow than it was granted, and is granted more as bytes leave this relay. So every
//! message that comes can be taken in, whoever is stuck: a stuck flow costs at most its window.

/// Bytes of a flow that an upstream may have sent and this relay not sent on.
pub const WINDOW_BYTES: u64 = 4 << 20;
/// A grant is worth a message once it adds this much.
const GRANT_BYTES: u64 = WINDOW_BYTES / 4;

/// One upstream's account with one flow. All numbers count from the flow's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    received: u64,
    gone: u64,
    granted: u64,
}

impl Default for Window {
    fn default() -> Window {
        Window { received: 0, gone: 0, granted: WINDOW_BYTES }
    }
}

impl Window {
    /// Bytes the upstream may send in all.
    pub fn granted(&self) -> u64 {
        self.granted
    }

    /// Bytes it sent.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Bytes came. False if they are more than was granted.
    pub fn receive(&mut self, bytes: u32) -> bool {
        self.received += u64::from(bytes);
        self.received <= self.granted
    }

    /// Bytes left this relay; the new grant, if it is worth saying.
    pub fn leave(&mut self, bytes: u32) -> Option<u64> {
        self.gone += u64::from(bytes);
        let grant = self.gone + WINDOW_BYTES;
        if grant < self.granted + GRANT_BYTES {
            return None;
        }
        self.granted = grant;
        Some(grant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever the order of arrivals and departures, an upstream that keeps to its grants is never more than a
        /// window ahead, and one that waits for grants gets them once a quarter of the window has left.
        #[test]
        fn an_upstream_that_keeps_to_its_grants_is_never_refused_nor_stuck(
            steps in proptest::collection::vec((any::<bool>(), 1u32..200_000), 1..400),
        ) {
            let (mut window, mut held, mut granted) = (Window::default(), 0u64, WINDOW_BYTES);
            for (arrives, bytes) in steps {
                if arrives && window.received() + u64::from(bytes) <= granted {
                    prop_assert!(window.receive(bytes));
                    held += u64::from(bytes);
                } else if held >= u64::from(bytes) {
                    held -= u64::from(bytes);
                    granted = window.leave(bytes).unwrap_or(granted);
                }
                prop_assert!(held <= WINDOW_BYTES);
                prop_assert!(held > 0 || granted - window.received() > WINDOW_BYTES * 3 / 4);
            }
        }
    }

    #[test]
    fn more_than_was_granted_is_refused() {
        let mut window = Window::default();
        assert!(window.receive(WINDOW_BYTES as u32));
        assert!(!window.receive(1));
    }
}
