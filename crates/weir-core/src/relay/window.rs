//! What upstreams may send of one flow.
//!
//! A grant is a place in the flow: all bytes before it may be sent. The relay that delivers grants a window beyond what
//! the receiver took; every other relay grants a window beyond what its next hop granted it. So
//!
//! * the byte that the receiver waits for may always be sent, at every relay, whatever overtook it on the way: counts
//!   of bytes instead of places would let what overtook it use up the credit that it needs;
//! * a relay that is `n` relays before the last holds at most `n + 1` windows of a flow;
//! * a flow that its receiver does not take stops there, and holds up no other.
//!
//! A window is 4 MiB, so that a single flow fills a long link. Many flows share 64 MiB where they are passed on, and twice
//! as much where they are delivered, down to two messages for each: together they fill the link as well, and what a relay
//! holds stays bounded. At the last relay shares must not be small: a flow that goes first has the link to itself only
//! if its window lasts as long as bytes take to get through, and there bytes hardly ever wait.

use weir_proto::relay::MAX_DATA_BYTES;

/// Bytes of a flow that a relay takes beyond what goes on from it, at most.
pub const WINDOW_BYTES: u64 = 4 << 20;
/// What all flows share that a relay passes on.
const ALL_PASSED_BYTES: u64 = 64 << 20;
/// What all flows share that it delivers.
const ALL_DELIVERED_BYTES: u64 = 128 << 20;
/// Each has this much in any case.
const LEAST_WINDOW_BYTES: u64 = 2 * MAX_DATA_BYTES as u64;

/// The window of each of so many flows at a relay that delivers them, or passes them on.
pub fn window_bytes(flows: usize, delivered: bool) -> u64 {
    let all = if delivered { ALL_DELIVERED_BYTES } else { ALL_PASSED_BYTES };
    all.checked_div(flows as u64).unwrap_or(all).clamp(LEAST_WINDOW_BYTES, WINDOW_BYTES)
}

/// The grant of one flow at one relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    granted: u64,
}

impl Window {
    /// A window from the start of a flow.
    pub fn new(window: u64) -> Window {
        Window { granted: window }
    }

    /// All bytes before this may be sent.
    pub fn granted(&self) -> u64 {
        self.granted
    }

    /// All bytes before `taken` may go on, of a flow of so many bytes; the new grant, if it is worth saying: a quarter of the
    /// window more, or the rest of the flow. No more is granted than the flow has, and a message, as long as one may be, for an upstream that
    /// wants room for that before it reads: where rules lead a flow in a circle, each relay there raises its grant because the
    /// next one did.
    pub fn raise(&mut self, taken: u64, window: u64, bytes: u64) -> Option<u64> {
        let most = bytes.saturating_add(MAX_DATA_BYTES as u64);
        let grant = taken.saturating_add(window).min(most);
        let is_rest = grant == most && self.granted < most;
        if !is_rest && (grant <= self.granted || grant < self.granted.saturating_add(window / 4)) {
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
        fn grants_follow_what_is_taken(taken in proptest::collection::vec(0u64..20 << 20, 1..100), flows in 0usize..50) {
            let size = window_bytes(flows, false);
            let (mut window, mut most) = (Window::new(size), 0);
            for taken in taken {
                let before = window.granted();
                let said = window.raise(taken, size, u64::MAX);
                most = most.max(taken);
                prop_assert!(window.granted() >= before && said.unwrap_or(before) == window.granted());
                prop_assert!(window.granted() <= most + size);
                prop_assert!(window.granted() + size / 4 > most + size - 1);
            }
        }
    }

    /// A window of 40 bytes: 10 more are worth saying, and the last 3 are said.
    #[test]
    fn what_a_flow_does_not_have_is_not_granted() {
        const MESSAGE: u64 = MAX_DATA_BYTES as u64;
        let mut window = Window::new(MESSAGE);
        let said = [5, 10, 15, 20, 23, 60, 90].map(|taken| window.raise(taken, 40 + MESSAGE, 63));
        let said = said.map(|said| said.map(|granted| granted - MESSAGE));
        let quarter = (40 + MESSAGE) / 4;
        assert_eq!(said[..4], [None; 4], "less than {quarter} more");
        assert_eq!(said[4..], [Some(63), None, None]);
        assert_eq!(Window::new(40 + MESSAGE).raise(30, 40 + MESSAGE, 30), None);
    }

    /// 64 MiB / 32 flows and 128 MiB / 64; and for many the least.
    #[test]
    fn flows_share_what_a_relay_holds() {
        let passed = [0, 1, 16, 32, 1000].map(|flows| window_bytes(flows, false));
        assert_eq!(passed, [4 << 20, 4 << 20, 4 << 20, 2 << 20, 2 * 262_152]);
        let delivered = [32, 64, 1000].map(|flows| window_bytes(flows, true));
        assert_eq!(delivered, [4 << 20, 2 << 20, 2 * 262_152]);
    }
}
