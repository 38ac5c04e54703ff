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
//!
//! Ports of the switch may have eight queues for data instead of one ([`Queues::ByDscp`]), which are leaves 1:20 to 1:27 of
//! prio 0 to 7, each like the data leaf above. HTB has no ninth priority for control. So the control leaf
//! has the whole link by right there: HTB serves what is by right before all that is borrowed.
//!
//! Traffic that no rule matches must land in the control class; in the data class, or worse outside all
//! classes, a lost ARP reply could stop the link that is being loaded.
//!
//! Not TBF: it loses up to half the rate at 1 Gbit/s, and a burst made smaller at run time can stop it for
//! good. [`change_rate`] therefore never touches a burst, of HTB either.

use crate::place::{Place, address};
use crate::queues::{QUEUES, Queues};

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

/// The leaves: class numbers (hexadecimal for `tc`). Queues have those from that of data on.
const CONTROL_CLASS: &str = "1:10";
const DATA_CLASS: &str = "1:20";

/// IP protocols whose packets are data: TCP and UDP.
const DATA_PROTOCOLS: [u8; 2] = [6, 17];

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
pub(crate) fn shape(device: &str, link_rate_bps: u64, limit: u64, queues: Queues) -> Vec<String> {
    let burst = burst_bytes(link_rate_bps);
    let queue = |class: &str| {
        let minor = class.trim_start_matches("1:");
        format!("qdisc add dev {device} parent {class} handle {minor}: bfifo limit {limit}")
    };
    let mut lines = vec![
        // `tc` reads this number as hexadecimal, like those of classes: it is class 1:10, that of
        // control.
        format!("qdisc add dev {device} root handle 1: htb default 10"),
        link_class("add", device, link_rate_bps, burst),
        control_class("add", device, link_rate_bps, queues),
        queue(CONTROL_CLASS),
    ];
    let data: Vec<(u8, String)> = match queues {
        // The control class has the priority before it.
        Queues::One => vec![(1, DATA_CLASS.to_owned())],
        Queues::ByDscp(_) => (0..QUEUES).map(|at| (at as u8, queue_class(at))).collect(),
    };
    for (priority, class) in &data {
        lines.push(leaf("add", device, class, *priority, &format!("{DATA_RATE_BPS}bit")));
        lines.push(queue(class));
    }
    lines.extend(filters(device, queues));
    lines
}

/// The lines that choose the class of a packet.
fn filters(device: &str, queues: Queues) -> Vec<String> {
    let control = address(Place::Control);
    let to_class = |order: u8, condition: &str, class: &str| {
        format!(
            "filter add dev {device} parent 1: protocol ip prio {order} u32 match ip {condition} flowid {class}"
        )
    };
    let mut lines = vec![
        // The upper two bits of the octet are set in CS6 and CS7 only (DSCP 48 and above).
        // Rules of order 1 are asked first, so that no rule for data takes a control packet.
        to_class(1, "dsfield 0xc0 0xc0", CONTROL_CLASS),
        to_class(1, &format!("src {control}/32"), CONTROL_CLASS),
        to_class(1, &format!("dst {control}/32"), CONTROL_CLASS),
    ];
    let mut others = DATA_CLASS.to_owned();
    if let Queues::ByDscp(dscps) = queues {
        for (at, dscp) in dscps.into_iter().enumerate() {
            lines.extend(DATA_PROTOCOLS.map(|protocol| {
                // The DSCP is in the upper six bits of the octet; the mask leaves out the ECN bits.
                let condition =
                    format!("protocol {protocol} 0xff match ip dsfield {:#04x} 0xfc", u32::from(dscp) << 2);
                to_class(2, &condition, &queue_class(at))
            }));
        }
        others = queue_class(QUEUES - 1);
    }
    // Last, for TCP and UDP without a rule above. What is neither matches no rule and falls into the default, the control class.
    lines.extend(DATA_PROTOCOLS.map(|protocol| to_class(3, &format!("protocol {protocol} 0xff"), &others)));
    lines
}

/// The class of a queue, as `tc` writes it.
fn queue_class(queue: usize) -> String {
    let class = Queues::htb_class(queue);
    format!("{:x}:{:x}", class >> 16, class & 0xffff)
}

/// The lines that give `device`, already shaped, another rate. `burst` is what it was shaped with.
pub(crate) fn change_rate(device: &str, link_rate_bps: u64, burst: u64, queues: Queues) -> Vec<String> {
    let mut lines = vec![link_class("change", device, link_rate_bps, burst)];
    if queues != Queues::One {
        // The control leaf has the whole link by right, and nothing but this number bounds that.
        lines.push(control_class("change", device, link_rate_bps, queues));
    }
    lines
}

fn control_class(verb: &str, device: &str, link_rate_bps: u64, queues: Queues) -> String {
    let rate = match queues {
        Queues::One => link_rate_bps / CONTROL_SHARE,
        Queues::ByDscp(_) => link_rate_bps,
    };
    leaf(verb, device, CONTROL_CLASS, 0, &format!("{rate}bit burst {CONTROL_BURST_BYTES}b"))
}

fn leaf(verb: &str, device: &str, class: &str, priority: u8, rate: &str) -> String {
    format!(
        "class {verb} dev {device} parent 1:1 classid {class} htb prio {priority} \
         rate {rate} ceil {LEAF_CEIL_BPS}bit cburst {LEAF_CEIL_BURST_BYTES}b quantum {SEGMENT_BYTES}"
    )
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
        let lines = change_rate("eth0", 20_000_000, burst, Queues::One);
        let [line] = &lines[..] else { panic!("{lines:?}") };
        assert!(line.contains("rate 20000000bit ceil 20000000bit burst 12500b cburst 12500b"), "{line}");
    }

    #[test]
    fn control_class_is_the_default_and_goes_first() {
        let lines = shape("p0", 1_000_000_000, 625_000, Queues::One).join("\n");
        assert!(lines.contains("htb default 10"));
        assert!(lines.contains("classid 1:10 htb prio 0") && lines.contains("classid 1:20 htb prio 1"));
    }

    #[test]
    fn each_dscp_has_a_queue_of_its_priority_and_other_data_the_last() {
        let queues = Queues::ByDscp([40, 36, 32, 28, 24, 20, 16, 12]);
        let lines = shape("p0", 1_000_000_000, 625_000, queues).join("\n");
        // DSCP 40 is 0xa0 in the octet, 12 is 0x30.
        for (octet, queue) in [("0xa0", 0), ("0x30", 7)] {
            assert!(lines.contains(&format!("classid 1:2{queue} htb prio {queue} rate 8000bit")), "{lines}");
            for protocol in [6, 17] {
                let rule =
                    format!("protocol {protocol} 0xff match ip dsfield {octet} 0xfc flowid 1:2{queue}");
                assert!(lines.contains(&rule), "{lines}");
            }
        }
        assert!(lines.contains("prio 3 u32 match ip protocol 6 0xff flowid 1:27"), "{lines}");
        assert!(lines.contains("classid 1:10 htb prio 0 rate 1000000000bit"), "{lines}");
    }

    #[test]
    fn control_that_has_the_link_by_right_gets_no_more_than_a_changed_link() {
        let queues = Queues::ByDscp([40, 36, 32, 28, 24, 20, 16, 12]);
        let lines = change_rate("p0", 20_000_000, 12_500, queues);
        assert!(lines[1].contains("class change dev p0 parent 1:1 classid 1:10 htb prio 0 rate 20000000bit"));
    }
}
