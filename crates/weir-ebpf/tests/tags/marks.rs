//! The marker on the ports of a switch with eight queues.

use std::collections::BTreeSet;
use std::env;
use std::net::UdpSocket;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use socket2::SockRef;
use weir_ebpf::{DEFAULT_DSCP, MarkError, Marker, Marking, Marks, TagError, loaded};
use weir_model::Bytes;
use weir_testbed::{Bed, BedLinks, Place, Queues};

use crate::capture::{Capture, Seen};
use crate::gone::{READY, held, wait_until_gone};
use crate::hosts::on_bed;

const LINK_BPS: u64 = 100_000_000;
/// So slow that what is sent at once waits.
const SLOW_BPS: u64 = 1_000_000;
const UDP: u8 = 17;
/// Of datagrams, and of their frames: with headers of UDP, IPv4 and Ethernet.
const DATAGRAM: usize = 1000;
const FRAME: u64 = 1000 + 8 + 20 + 14;
const NOT_CAPABLE: u8 = 0;
const CAPABLE: u8 = 2;
const MARKED: u8 = 3;
const RECEIVER: Place = Place::Host(0);

fn links() -> BedLinks {
    BedLinks { queues: Queues::ByDscp(DEFAULT_DSCP), ..BedLinks::equal(3, LINK_BPS) }
}

fn marking(threshold: u64) -> Marking {
    Marking::new(Bytes(threshold), std::array::from_fn(Queues::htb_class))
}

fn attach(bed: &Bed, marking: &Marking) -> Result<Marker, MarkError> {
    let port = bed.switch_port(0);
    bed.run_in_switch(|| Marker::attach(&port, marking))
        .map_err(|error| TagError::Os { step: "enter".into(), source: std::io::Error::other(error) })?
}

fn tc(bed: &Bed, line: &str) -> Result<()> {
    let output = bed.run_in_switch(|| Command::new("tc").args(line.split(' ')).output())??;
    ensure!(output.status.success(), "tc {line}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Sends datagrams from a host to the receiver.
fn send(bed: &Bed, host: usize, dscp: u8, ecn: u8, count: u64) -> Result<()> {
    let target = (bed.address(0), 9);
    bed.run_at(Place::Host(host), || {
        let socket = UdpSocket::bind(("0.0.0.0", 0))?;
        SockRef::from(&socket).set_tos_v4(u32::from(dscp) << 2 | u32::from(ecn))?;
        for _ in 0..count {
            socket.send_to(&[7; DATAGRAM], target)?;
        }
        Ok(())
    })?
}

/// Waits until the marker has seen so many frames of classes and of others.
fn seen(marker: &Marker, count: u64) -> Result<Marks> {
    for _ in 0..500 {
        let marks = marker.marks()?;
        let of_classes: u64 = marks.classes.iter().map(|class| class.seen).sum();
        if of_classes + marks.others + marks.not_found >= count {
            return Ok(marks);
        }
        sleep(Duration::from_millis(10));
    }
    anyhow::bail!("{count} frames expected: {:?}", marker.marks()?)
}

/// UDP of one class, in the order in which it arrived.
fn arrived(capture: Capture, dscp: u8) -> Result<Vec<Seen>> {
    Ok(capture.all()?.into_iter().filter(|seen| seen.protocol == UDP && seen.dscp == dscp).collect())
}

#[test]
fn every_dscp_is_marked_by_the_queue_that_it_enters() {
    on_bed("classes", &links(), |bed| {
        let marker = attach(bed, &marking(1))?;
        let mut before = marker.marks()?;
        for dscp in 0..64 {
            send(bed, 1, dscp, CAPABLE, 3)?;
            let all = (u64::from(dscp) + 1) * 3;
            let marks = seen(&marker, all)?;
            let class = DEFAULT_DSCP.iter().position(|own| *own == dscp).unwrap_or(7);
            let expected =
                if dscp < 48 { before.classes[class].seen + 3 } else { before.classes[class].seen };
            ensure!(marks.classes[class].seen == expected, "DSCP {dscp}: {before:?} {marks:?}");
            ensure!(marks.not_found == 0, "{marks:?}");
            before = marks;
        }
        // From 48 on.
        ensure!(before.others == 16 * 3, "{before:?}");
        Ok(())
    });
}

/// The queue grows packet by packet. Those that found less than ten frames waiting are not marked: the first ten at least, and
/// as many as the link has sent in between.
#[test]
fn marks_begin_where_the_threshold_is_reached() {
    on_bed("threshold", &links(), |bed| {
        bed.set_link_rate(0, SLOW_BPS)?;
        let marker = attach(bed, &marking(10 * FRAME))?;
        let capture = bed.run_at(RECEIVER, Capture::start)??;
        send(bed, 1, DEFAULT_DSCP[3], CAPABLE, 60)?;
        let marks = seen(&marker, 60)?;
        // 60 frames at 1 Mbit/s take half a second.
        sleep(Duration::from_secs(1));
        let packets = arrived(capture, DEFAULT_DSCP[3])?;
        let ecn: Vec<u8> = packets.iter().map(|packet| packet.ecn).collect();
        ensure!(ecn.len() == 60 && ecn[..10].iter().all(|ecn| *ecn == CAPABLE), "{ecn:?}");
        let marked = ecn.iter().filter(|ecn| **ecn == MARKED).count();
        // 12.5 kB of a burst may pass at once, and one frame every 8 ms.
        ensure!(marked > 5 && marks.classes[3].marked == marked as u64, "{marks:?} {ecn:?}");
        ensure!(packets.iter().all(|packet| packet.checksum_holds));
        Ok(())
    });
}

#[test]
fn a_queue_below_its_threshold_marks_nothing_be_it_full_of_drops() {
    on_bed("high threshold", &links(), |bed| {
        // Above the limit of 1 MB of a queue.
        let marker = attach(bed, &marking(1_100_000))?;
        bed.set_link_rate(0, SLOW_BPS)?;
        send(bed, 1, DEFAULT_DSCP[3], CAPABLE, 1500)?;
        let marks = seen(&marker, 1000)?;
        ensure!(marks.classes.iter().all(|class| class.marked == 0), "{marks:?}");
        Ok(())
    });
}

#[test]
fn packets_that_are_not_capable_of_ecn_are_left_to_the_limit_of_the_queue() {
    on_bed("not capable", &links(), |bed| {
        bed.set_link_rate(0, SLOW_BPS)?;
        let marker = attach(bed, &marking(1))?;
        let capture = bed.run_at(RECEIVER, Capture::start)??;
        send(bed, 1, DEFAULT_DSCP[3], NOT_CAPABLE, 40)?;
        let marks = seen(&marker, 40)?;
        sleep(Duration::from_secs(1));
        let packets = arrived(capture, DEFAULT_DSCP[3])?;
        ensure!(packets.len() == 40 && packets.iter().all(|packet| packet.ecn == NOT_CAPABLE), "{packets:?}");
        ensure!(marks.classes[3].seen == 40 && marks.classes[3].marked == 0, "{marks:?}");
        Ok(())
    });
}

/// A queue of class 5 that waits behind nothing but itself is full; one of class 3 at the same port is not.
#[test]
fn only_the_queue_that_is_full_marks() {
    on_bed("one queue", &links(), |bed| {
        bed.set_link_rate(0, SLOW_BPS)?;
        let marker = attach(bed, &marking(20 * FRAME))?;
        let capture = bed.run_at(RECEIVER, Capture::start)??;
        send(bed, 1, DEFAULT_DSCP[5], CAPABLE, 100)?;
        seen(&marker, 100)?;
        send(bed, 2, DEFAULT_DSCP[3], CAPABLE, 10)?;
        send(bed, 2, DEFAULT_DSCP[7], CAPABLE, 10)?;
        let marks = seen(&marker, 120)?;
        ensure!(marks.classes[5].marked > 20, "{marks:?}");
        for class in [3, 7] {
            ensure!(marks.classes[class].seen == 10 && marks.classes[class].marked == 0, "{marks:?}");
        }
        sleep(Duration::from_secs(2));
        let first = arrived(capture, DEFAULT_DSCP[3])?;
        ensure!(first.len() == 10 && first.iter().all(|packet| packet.ecn == CAPABLE), "{first:?}");
        Ok(())
    });
}

#[test]
fn what_the_control_host_sends_is_not_marked() {
    on_bed("control", &links(), |bed| {
        let control = Some(bed.control_address());
        let marker = attach(bed, &Marking { control, ..marking(1) })?;
        let target = (bed.address(0), 9);
        bed.run_at(Place::Control, || -> Result<()> {
            let socket = UdpSocket::bind(("0.0.0.0", 0))?;
            SockRef::from(&socket).set_tos_v4(u32::from(DEFAULT_DSCP[2]) << 2 | u32::from(CAPABLE))?;
            for _ in 0..50 {
                socket.send_to(&[7; DATAGRAM], target)?;
            }
            Ok(())
        })??;
        let marks = seen(&marker, 50)?;
        ensure!(marks.others == 50 && marks.classes.iter().all(|class| class.seen == 0), "{marks:?}");
        Ok(())
    });
}

#[test]
fn a_port_without_these_queues_is_refused() {
    on_bed("no queues", &links(), |bed| {
        let before = loaded();
        let refused = |place: Option<Place>, port: &str, marking: &Marking| -> Result<usize> {
            let result = match place {
                Some(place) => bed.run_at(place, || Marker::attach(port, marking))?,
                None => bed.run_in_switch(|| Marker::attach(port, marking))?,
            };
            match result {
                Err(MarkError::NoQueue { name, class, .. }) if name == port => Ok(class),
                other => anyhow::bail!("{port}: {other:?}"),
            }
        };
        let right = marking(1000);
        // A host's uplink has 1:20 alone, an interface that was never shaped nothing.
        ensure!(refused(Some(Place::Host(1)), "eth0", &right)? == 1);
        ensure!(refused(None, "pc", &right)? == 0);
        ensure!(refused(None, "sw0", &right)? == 0);
        // A class that has classes below it is no leaf; nor is one of another number.
        for leaf in [0x1_0001, 0x1_0028, 0x2_0020, 0] {
            let mut wrong = right.clone();
            wrong.leaves[4] = leaf;
            ensure!(refused(None, "p0", &wrong)? == 4);
        }
        ensure!(matches!(
            bed.run_in_switch(|| Marker::attach("p7", &right))?,
            Err(MarkError::Program(TagError::NoInterface { .. }))
        ));
        // What was loaded to look for queues is freed a moment later.
        wait_until_gone(&loaded().difference(&before).copied().collect())
    });
}

/// The table of classes, and what a leaf holds, may change at any time.
#[test]
fn queues_that_go_are_counted_and_packets_go_on() {
    on_bed("queues that go", &links(), |bed| {
        let marker = attach(bed, &marking(1))?;
        send(bed, 1, DEFAULT_DSCP[3], CAPABLE, 5)?;
        seen(&marker, 5)?;
        for line in ["qdisc replace dev p0 root handle 7: pfifo limit 100", "qdisc del dev p0 root"] {
            let before = marker.marks()?.not_found;
            tc(bed, line)?;
            let capture = bed.run_at(RECEIVER, Capture::start)??;
            send(bed, 1, DEFAULT_DSCP[3], CAPABLE, 5)?;
            let all = 5 + before + 5;
            let marks = seen(&marker, all)?;
            ensure!(marks.not_found == before + 5, "{line}: {marks:?}");
            let packets = arrived(capture, DEFAULT_DSCP[3])?;
            ensure!(packets.len() == 5 && packets.iter().all(|packet| packet.ecn == CAPABLE), "{packets:?}");
        }
        // And comes back, with one class of the eight, which other classes hide in the table.
        tc(bed, "qdisc add dev p0 root handle 1: htb default 23")?;
        for minor in (0x100..0x180).chain([0x23]) {
            tc(bed, &format!("class add dev p0 parent 1: classid 1:{minor:x} htb rate 100mbit"))?;
        }
        send(bed, 1, DEFAULT_DSCP[3], CAPABLE, 5)?;
        send(bed, 1, DEFAULT_DSCP[4], CAPABLE, 5)?;
        let marks = seen(&marker, 25)?;
        ensure!(marks.classes[3].seen == 10 && marks.not_found == 15, "{marks:?}");
        Ok(())
    });
}

/// While classes come and go under traffic, the kernel stays well, and every frame is counted.
#[test]
fn a_port_whose_queues_change_under_traffic_loses_no_count() {
    on_bed("changing", &links(), |bed| {
        let marker = attach(bed, &marking(1))?;
        let sent = std::thread::scope(|scope| -> Result<u64> {
            let traffic =
                scope.spawn(|| (0..100).try_for_each(|_| send(bed, 1, DEFAULT_DSCP[0], CAPABLE, 20)));
            while !traffic.is_finished() {
                tc(bed, "qdisc replace dev p0 root handle 7: pfifo limit 1000")?;
                tc(bed, "qdisc replace dev p0 root handle 1: htb default 20")?;
                tc(bed, "class add dev p0 parent 1: classid 1:20 htb rate 100mbit")?;
            }
            traffic.join().map_err(|_| anyhow::anyhow!("panicked"))??;
            Ok(2000)
        })?;
        let marks = seen(&marker, sent)?;
        ensure!(marks.classes[0].seen + marks.not_found == sent, "{marks:?}");
        Ok(())
    });
}

#[test]
fn another_threshold_holds_from_then_on() {
    on_bed("set", &links(), |bed| {
        bed.set_link_rate(0, SLOW_BPS)?;
        let marker = attach(bed, &marking(1_000_000))?;
        send(bed, 1, DEFAULT_DSCP[0], CAPABLE, 60)?;
        ensure!(seen(&marker, 60)?.classes[0].marked == 0);
        ensure!(marker.set(&marking(u64::MAX)).is_err());
        marker.set(&marking(FRAME))?;
        send(bed, 1, DEFAULT_DSCP[0], CAPABLE, 20)?;
        let marks = seen(&marker, 80)?;
        ensure!(marks.classes[0].marked > 10, "{marks:?}");
        Ok(())
    });
}

#[test]
fn a_second_marker_on_a_port_is_refused_and_nothing_is_left_of_the_first() {
    on_bed("two markers", &links(), |bed| {
        let before = loaded();
        let first = attach(bed, &marking(1000))?;
        let own: BTreeSet<_> = loaded().difference(&before).copied().collect();
        // The program and two tables: what looked for queues has gone, or goes.
        ensure!(own.len() >= 3, "{own:?}");
        let second = attach(bed, &marking(1000));
        ensure!(
            matches!(&second, Err(MarkError::Program(TagError::Taken { kind: "marker", .. }))),
            "{second:?}"
        );
        drop(first);
        wait_until_gone(&own)?;
        attach(bed, &marking(1000)).map(drop).context("the port is free again")
    });
}

/// Set in a process that holds a marker until it is killed.
const HOLDS: &str = "WEIR_TEST_HOLDS_A_MARKER";

#[test]
fn a_marker_whose_process_is_killed_leaves_nothing() {
    if env::var_os(HOLDS).is_some() {
        let marker = Marker::attach("p0", &marking(1)).map_err(|error| error.to_string());
        println!("{}", if marker.is_ok() { READY } else { "refused" });
        sleep(Duration::from_secs(60));
        return;
    }
    on_bed("marker killed", &links(), |bed| {
        for _ in 0..3 {
            let before = loaded();
            let name = "marks::a_marker_whose_process_is_killed_leaves_nothing";
            let command = || held(Command::new(env::current_exe()?), name, HOLDS);
            let mut child = bed.run_in_switch(command)??;
            let own: BTreeSet<_> = loaded().difference(&before).copied().collect();
            ensure!(own.len() >= 3, "{own:?}");
            child.kill()?;
            child.wait()?;
            wait_until_gone(&own)?;
        }
        attach(bed, &marking(1000)).map(drop).context("the port is free again")
    });
}
