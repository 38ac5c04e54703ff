//! How a link is limited to its rate, as lines for `tc`. Pure: nothing here touches the system.
//!
//! Both directions of a link get the same tree, at the end that sends:
//!
//! ```text
//!   1:1   HTB, rate = ceil = link rate          the only limit of the link
//!    +- 1:10  prio 0, bfifo    control: DSCP CS6 and CS7, to and from the control host, and all that
//!    |                         is neither TCP nor UDP (ARP, ICMP)
//!    +- 1:20  prio 1, bfifo    data: the rest
//! ```
//!
//! Strict priority under HTB. A leaf sends by right up to its own `rate`, which is charged to its parent too,
//! and beyond that borrows from its parent, where `prio` decides. The data leaf gets next to no rate of its
//! own ([`DATA_RATE_BPS`]): all is borrowed. The control leaf gets a share of the link
//! ([`CONTROL_SHARE`]): data comes in segments of up to 64 kB, and a control packet that had to borrow would
//! wait for the whole one under way, 5 ms at 100 Mbit/s, where real ports send a frame of 1.5 kB and then
//! look again. Both have a ceiling no link reaches ([`LEAF_CEIL_BPS`]: a leaf held back by its own ceiling
//! would let the lower one go first).
//! Traffic that no rule matches must land in the control class; in the data class, or worse outside all
//! classes, a lost ARP reply could stop the link that is being loaded.
//!
//! Not TBF: it loses up to half the rate at 1 Gbit/s, and a burst made smaller at run time can stop it for
//! good. [`change_rate`] therefore never touches a burst, of HTB either.

use crate::places::Place;
use crate::topology::address;

/// Slowest link: one full frame already lasts 12 ms on it.
pub const MIN_LINK_RATE_BPS: u64 = 1_000_000;

/// Fastest link: half of the ceiling of its classes, so that the leaves never reach their ceiling.
pub const MAX_LINK_RATE_BPS: u64 = 10_000_000_000;

/// How long a byte waits at most in the queue of a saturated link, in milliseconds (see
/// [`queue_limit_bytes`] for slow links).
pub const QUEUE_DELAY_MS: u64 = 10;

/// Value of the IPv4 type-of-service octet (socket option `IP_TOS`) that puts a packet in the control
/// class: DSCP CS6, 48, in the upper six bits.
pub const DSCP_CONTROL_TOS: u32 = 48 << 2;

/// Buffer that a port takes, at most, of its switch's shared memory. With a quarter of it an all-to-all of 16
/// hosts lost one segment in twenty.
const MIN_QUEUE_BYTES: u64 = 1_000_000;

/// Bytes of one turn of a class, and least burst: a segment as the kernel hands it down in one piece.
const SEGMENT_BYTES: u64 = 65_536;
const MIN_BURST_BYTES: u64 = 12_000;

/// Tokens that the link may save up, in microseconds at full rate: what a late timer must not lose.
const BURST_US: u64 = 1000;

/// Rates of the leaves by right, and ceiling of both; see the head of this file.
const CONTROL_SHARE: u64 = 10;
const CONTROL_BURST_BYTES: u64 = 15_000;
const DATA_RATE_BPS: u64 = 8_000;
const LEAF_CEIL_BPS: u64 = 20_000_000_000;
const LEAF_CEIL_BURST_BYTES: u64 = 64_000;

/// The two leaves: class number (hexadecimal for `tc`), priority.
const CONTROL_CLASS: &str = "1:10";
const DATA_CLASS: &str = "1:20";

/// Bytes that the data queue of a link holds: [`QUEUE_DELAY_MS`] at full rate, yet never less than 1 MB
/// (so 80 ms at 100 Mbit/s, and much longer than a round trip should take on slower links).
#[must_use]
pub fn queue_limit_bytes(link_rate_bps: u64) -> u64 {
    (link_rate_bps / 8 * QUEUE_DELAY_MS / 1000).max(MIN_QUEUE_BYTES)
}

/// Bytes that a link may send at once after a pause.
pub(crate) fn burst_bytes(link_rate_bps: u64) -> u64 {
    (link_rate_bps / 8 * BURST_US / 1_000_000).max(MIN_BURST_BYTES)
}

/// Bytes that wait for a host's own uplink before any are dropped. A host does not drop what it sends
/// itself: TCP keeps this queue short (TCP small queues), and where a segment is dropped with nothing else
/// in flight it sends nothing more for 200 ms.
pub(crate) const HOST_QUEUE_BYTES: u64 = 4 << 20;

/// Lines that shape what leaves through `device`, for a link of `link_rate_bps`; at most `limit` bytes of a
/// class wait.
pub(crate) fn shape(device: &str, link_rate_bps: u64, limit: u64) -> Vec<String> {
    let burst = burst_bytes(link_rate_bps);
    let control = address(Place::Control);
    let leaf = |class: &str, priority: u8, rate: String| {
        format!(
            "class add dev {device} parent 1:1 classid {class} htb prio {priority} \
             rate {rate} ceil {LEAF_CEIL_BPS}bit cburst {LEAF_CEIL_BURST_BYTES}b quantum {SEGMENT_BYTES}"
        )
    };
    let queue = |class: &str, handle: &str| {
        format!("qdisc add dev {device} parent {class} handle {handle} bfifo limit {limit}")
    };
    let to_class = |order: u8, condition: &str, class: &str| {
        format!(
            "filter add dev {device} parent 1: protocol ip prio {order} u32 match ip {condition} flowid {class}"
        )
    };
    vec![
        format!("qdisc add dev {device} root handle 1: htb default 10"),
        link_class("add", device, link_rate_bps, burst),
        leaf(CONTROL_CLASS, 0, format!("{}bit burst {CONTROL_BURST_BYTES}b", link_rate_bps / CONTROL_SHARE)),
        leaf(DATA_CLASS, 1, format!("{DATA_RATE_BPS}bit")),
        queue(CONTROL_CLASS, "10:"),
        queue(DATA_CLASS, "20:"),
        // The upper two bits of the octet are set in CS6 and CS7 only (DSCP 48 and above).
        to_class(1, "dsfield 0xc0 0xc0", CONTROL_CLASS),
        to_class(1, &format!("src {control}/32"), CONTROL_CLASS),
        to_class(1, &format!("dst {control}/32"), CONTROL_CLASS),
        to_class(2, "protocol 6 0xff", DATA_CLASS),
        to_class(2, "protocol 17 0xff", DATA_CLASS),
    ]
}

/// The line that gives `device`, already shaped, another rate. `burst` is what it was shaped with.
pub(crate) fn change_rate(device: &str, link_rate_bps: u64, burst: u64) -> String {
    link_class("change", device, link_rate_bps, burst)
}

/// Burst is named even in a change, where `tc` would otherwise put its own default.
fn link_class(verb: &str, device: &str, rate: u64, burst: u64) -> String {
    format!(
        "class {verb} dev {device} parent 1: classid 1:1 htb \
         rate {rate}bit ceil {rate}bit burst {burst}b cburst {burst}b quantum {SEGMENT_BYTES}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_queue_drains_in_the_named_time() {
        // 1 Gbit/s = 125 MB/s; 10 ms of it is 1.25 MB. Slow links have a switch port's least buffer.
        assert_eq!(queue_limit_bytes(1_000_000_000), 1_250_000);
        assert_eq!(queue_limit_bytes(100_000_000), 1_000_000);
        assert_eq!(queue_limit_bytes(MIN_LINK_RATE_BPS), 1_000_000);
    }

    #[test]
    fn rate_change_keeps_the_burst() {
        // 100 Mbit/s for 1 ms is 12.5 kB.
        let burst = burst_bytes(100_000_000);
        let line = change_rate("eth0", 20_000_000, burst);
        assert!(line.contains("rate 20000000bit ceil 20000000bit burst 12500b cburst 12500b"), "{line}");
    }

    #[test]
    fn control_class_is_the_default_and_goes_first() {
        let lines = shape("p0", 1_000_000_000, 625_000).join("\n");
        assert!(lines.contains("htb default 10"));
        assert!(lines.contains("classid 1:10 htb prio 0") && lines.contains("classid 1:20 htb prio 1"));
    }
}
