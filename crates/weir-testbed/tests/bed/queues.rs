//! Eight queues at the switch's ports: which packets are in which, and that their priorities are strict.

use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use socket2::SockRef;
use weir_testbed::{Bed, BedError, BedLinks, Place, QUEUES, Queues, RackLinks, Rates};

use crate::rates::BURST_BYTES;
use crate::rights::with_rights;
use crate::say;
use crate::traffic::{Class, Received, incast};

const RATE_BPS: u64 = 100_000_000;
const DSCPS: [u8; QUEUES] = [40, 36, 32, 28, 24, 20, 16, 12];

fn links(hosts: usize) -> BedLinks {
    BedLinks { queues: Queues::ByDscp(DSCPS), ..BedLinks::equal(hosts, RATE_BPS) }
}

/// Packets that classes of HTB sent through a port so far: that of control, then those of queues.
fn sent(bed: &Bed, port: &str) -> Result<Vec<u64>> {
    let output =
        bed.run_in_switch(|| Command::new("tc").args(["-s", "class", "show", "dev", port]).output())??;
    let text = String::from_utf8(output.stdout)?;
    let of_class = |class: &str| {
        let after = text.split(&format!("class htb {class} ")).nth(1)?.split("Sent ").nth(1)?;
        after.split(' ').nth(2)?.parse().ok()
    };
    let queues = (0..QUEUES).map(|queue| format!("1:{:x}", Queues::htb_class(queue) & 0xffff));
    let classes = ["1:10".to_owned()].into_iter().chain(queues);
    classes.map(|class| of_class(&class).with_context(|| format!("no class {class} in {text}"))).collect()
}

/// Every DSCP there is: eight have a queue, those from 48 on are control, the rest is in the last queue.
#[test]
fn every_dscp_goes_to_its_queue_at_every_port_on_the_way() {
    with_rights("queues::every_dscp_goes_to_its_queue_at_every_port_on_the_way", || {
        let mut links = links(2);
        links.racks = vec![RackLinks { rates: Rates::both(RATE_BPS), site: None }];
        links.hosts[0].rack = Some(0);
        let bed = Bed::create(&links)?;
        let ports = bed.switch_ports();
        ensure!(ports == ["p0", "p1", "u0", "d0"], "{ports:?}");
        let target = (bed.address(1), 9);
        let (on_the_way, packets) = (["u0", "p1"], 3);
        for dscp in 0..64_u8 {
            let before: Vec<_> =
                on_the_way.map(|port| sent(&bed, port)).into_iter().collect::<Result<_>>()?;
            bed.run_at(Place::Host(0), || -> Result<()> {
                let socket = UdpSocket::bind(("0.0.0.0", 0))?;
                SockRef::from(&socket).set_tos_v4(u32::from(dscp) << 2 | 1)?;
                for _ in 0..packets {
                    socket.send_to(&[1; 100], target)?;
                }
                Ok(())
            })??;
            let queue = DSCPS.iter().position(|own| *own == dscp).unwrap_or(QUEUES - 1);
            let expected = if dscp >= 48 { 0 } else { queue + 1 };
            for (port, before) in on_the_way.iter().zip(before) {
                for (class, (before, after)) in
                    before.iter().zip(sent_within(&bed, port, &before, packets)?).enumerate()
                {
                    let more = if class == expected { packets } else { 0 };
                    // The answers, that the port is closed, are ICMP: control, and the other way.
                    ensure!(
                        after - before == more,
                        "DSCP {dscp} at {port}: class {class} sent {}",
                        after - before
                    );
                }
            }
        }
        Ok(())
    });
}

/// What classes sent when so many more packets have passed, or after a second.
fn sent_within(bed: &Bed, port: &str, before: &[u64], packets: u64) -> Result<Vec<u64>> {
    let mut tries = 0;
    loop {
        let now = sent(bed, port)?;
        tries += 1;
        if now.iter().sum::<u64>() >= before.iter().sum::<u64>() + packets || tries == 100 {
            return Ok(now);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Flows that go on together, from hosts 1 and up to host 0.
fn together(classes: &[Class]) -> Result<Vec<Received>> {
    let bed = Bed::create(&links(classes.len() + 1))?;
    let senders: Vec<_> = classes.iter().enumerate().map(|(at, class)| (at + 1, *class)).collect();
    let flows = incast(&bed, &senders, 0, Duration::from_secs(2))?;
    let bytes: u64 = flows.iter().map(|flow| flow.bytes).sum();
    let elapsed = flows.iter().map(|flow| flow.elapsed).max().context("no flow")?;
    let possible = RATE_BPS as f64 / 8.0 * elapsed.as_secs_f64();
    // What is by right: 8 kbit/s of each of 8 queues, and the bursts of them.
    ensure!(bytes as f64 <= possible + 2.0 * BURST_BYTES, "{bytes} bytes passed, {possible} possible");
    Ok(flows)
}

#[test]
fn a_flow_of_the_first_queue_takes_the_port_from_one_of_the_last() {
    with_rights("queues::a_flow_of_the_first_queue_takes_the_port_from_one_of_the_last", || {
        let flows = together(&[Class::Dscp(DSCPS[7]), Class::Dscp(DSCPS[0])])?;
        let [last, first] = flows[..] else { anyhow::bail!("two flows") };
        say(&format!("last {:.0} B/s, first {:.0} B/s", last.rate(), first.rate()));
        ensure!(first.rate() > 5.0 * last.rate(), "{first:?} {last:?}");
        Ok(())
    });
}

#[test]
fn each_queue_goes_before_the_next() {
    with_rights("queues::each_queue_goes_before_the_next", || {
        for queue in [1, 3, 6] {
            let flows = together(&[Class::Dscp(DSCPS[queue]), Class::Dscp(DSCPS[queue - 1])])?;
            let [after, before] = flows[..] else { anyhow::bail!("two flows") };
            say(&format!("queue {queue} {:.0} B/s, the one before {:.0} B/s", after.rate(), before.rate()));
            ensure!(before.rate() > 5.0 * after.rate(), "queue {queue}: {before:?} {after:?}");
        }
        Ok(())
    });
}

#[test]
fn control_goes_before_the_first_queue() {
    with_rights("queues::control_goes_before_the_first_queue", || {
        let flows = together(&[Class::Dscp(DSCPS[0]), Class::Control])?;
        let [data, control] = flows[..] else { anyhow::bail!("two flows") };
        say(&format!("data {:.0} B/s, control {:.0} B/s", data.rate(), control.rate()));
        ensure!(control.rate() > 5.0 * data.rate(), "{control:?} {data:?}");
        Ok(())
    });
}

#[test]
fn a_link_that_is_made_slower_keeps_its_queues() {
    with_rights("queues::a_link_that_is_made_slower_keeps_its_queues", || {
        let bed = Bed::create(&links(3))?;
        bed.set_link_rate(0, RATE_BPS / 5)?;
        let senders = [(1, Class::Dscp(DSCPS[7])), (2, Class::Control)];
        let flows = incast(&bed, &senders, 0, Duration::from_secs(2))?;
        let [last, control] = flows[..] else { anyhow::bail!("two flows") };
        let elapsed = control.elapsed.max(last.elapsed).as_secs_f64();
        let possible = RATE_BPS as f64 / 5.0 / 8.0 * elapsed;
        ensure!((last.bytes + control.bytes) as f64 <= possible + 2.0 * BURST_BYTES, "{last:?} {control:?}");
        ensure!(control.rate() > 5.0 * last.rate(), "{last:?} {control:?}");
        Ok(())
    });
}

/// Bytes of a piece as it comes to the switch, on average over a flow.
fn piece_bytes(segment_bytes: Option<u32>) -> Result<f64> {
    let bed = Bed::create(&BedLinks { segment_bytes, ..links(2) })?;
    incast(&bed, &[(1, Class::Dscp(DSCPS[3]))], 0, Duration::from_millis(500))?;
    let table = bed.run_in_switch(|| std::fs::read_to_string("/proc/thread-self/net/dev"))??;
    let port = table.lines().find_map(|line| line.trim_start().strip_prefix("p1:")).context("no port p1")?;
    let mut columns = port.split_ascii_whitespace().map(str::parse);
    let (bytes, pieces): (f64, f64) = (columns.next().context("bytes")??, columns.next().context("pieces")??);
    Ok(bytes / pieces)
}

#[test]
fn hosts_hand_down_no_larger_pieces_than_they_may() {
    with_rights("queues::hosts_hand_down_no_larger_pieces_than_they_may", || {
        let (small, any) = (piece_bytes(Some(3000))?, piece_bytes(None)?);
        say(&format!("pieces of {small:.0} bytes, {any:.0} without a limit"));
        // Two frames.
        ensure!(small <= 2.0 * 1514.0, "{small}");
        Ok(())
    });
}

#[test]
fn queues_that_cannot_be_told_apart_are_refused() {
    let mut links = links(2);
    links.queues = Queues::ByDscp([40, 36, 32, 28, 24, 20, 16, 40]);
    assert!(matches!(Bed::create(&links), Err(BedError::Config(_))));
}
