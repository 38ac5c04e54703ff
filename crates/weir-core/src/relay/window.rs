//! What upstreams may send of one flow.
//!
//! A grant is a place in the flow: all bytes before it may be sent. The relay that delivers grants a window beyond what
//! the receiver took; every other relay grants a window beyond what its next hop granted it. So
//!
//! * the byte that the receiver waits for may always be sent, at every relay, whatever overtook it on the way: counts
//!   of bytes instead of places would let what overtook it use up the credit that it needs;
//! * a relay that is `n` relays before the last holds at most `n + 1` windows of a flow;
//! * a flow that its receiver does not take stops there, and holds up no other.

/// Bytes of a flow that a relay takes beyond what goes on from it.
pub const WINDOW_BYTES: u64 = 4 << 20;
/// A grant is worth a message once it adds this much.
const GRANT_BYTES: u64 = WINDOW_BYTES / 4;

/// The grant of one flow at one relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    granted: u64,
}

impl Default for Window {
    fn default() -> Window {
        Window { granted: WINDOW_BYTES }
    }
}

impl Window {
    /// All bytes before this may be sent.
    pub fn granted(&self) -> u64 {
        self.granted
    }

    /// All bytes before `taken` may go on; the new grant, if it is worth saying.
    pub fn raise(&mut self, taken: u64) -> Option<u64> {
        let grant = taken.saturating_add(WINDOW_BYTES);
        if grant < self.granted.saturating_add(GRANT_BYTES) {
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
        /// A grant is never taken back, is never more than a window ahead, and never falls more than a quarter behind.
        #[test]
        fn grants_follow_what_is_taken(taken in proptest::collection::vec(0u64..20 << 20, 1..100)) {
            let (mut window, mut most) = (Window::default(), 0);
            for taken in taken {
                let before = window.granted();
                let said = window.raise(taken);
                most = most.max(taken);
                prop_assert!(window.granted() >= before && said.unwrap_or(before) == window.granted());
                prop_assert!(window.granted() <= most + WINDOW_BYTES);
                prop_assert!(window.granted() + GRANT_BYTES > most + WINDOW_BYTES);
            }
        }
    }
}
