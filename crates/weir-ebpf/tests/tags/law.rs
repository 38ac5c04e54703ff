//! The classes that the program gives are those of the law of end hosts, packet by packet.

use std::net::IpAddr;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use weir_ebpf::{Config, DEFAULT_DSCP, Unhinted};
use weir_endhost::tagging::ClassLaw;
use weir_model::{Bytes, Hint, Span};

use crate::capture::{Capture, Seen, offsets};
use crate::hosts::{Hosts, RECEIVER, SENDER, on_two_hosts, thresholds};

/// Bits of a packet that may be marked.
const CAN_BE_MARKED: u8 = 2;

/// By bytes sent from class 1 on, for sockets without a hint, too.
fn pias(bytes: &[u64]) -> Config {
    Config { unhinted: Unhinted::Unknown, ..Config::new(thresholds(bytes)) }
}

fn by_sent(config: &Config) -> ClassLaw {
    ClassLaw::by_sent(&Arc::from(config.thresholds.demotion()), config.best)
}

/// Each packet has the class that the law gives its first byte, a checksum that holds, and its ECN bits: what is sent again
/// may not be marked (RFC 3168, section 6.1.5).
fn check(hosts: &Hosts, packets: &[Seen], law: &ClassLaw) -> Result<()> {
    let mut unmarkable = 0;
    for (packet, offset) in packets.iter().zip(offsets(packets)) {
        let class = law.class(Bytes(offset), false);
        ensure!(
            packet.dscp == DEFAULT_DSCP[usize::from(class)],
            "after {offset} bytes, class {class}: {packet:?}"
        );
        ensure!(packet.checksum_holds, "{packet:?}");
        ensure!(packet.ecn == CAN_BE_MARKED || packet.ecn == 0, "{packet:?}");
        unmarkable += u64::from(packet.payload > 0 && packet.ecn == 0);
    }
    let sent_again = hosts.sent_again()?;
    ensure!(unmarkable <= sent_again, "{unmarkable} packets of data without ECN, {sent_again} sent again");
    Ok(())
}

/// Classes from the first byte to the last of a flow of 3 MB that has a threshold in the middle of a segment, and 300 kB in
/// the other direction, whose acknowledgements begin no class.
fn unknown_size(hosts: &Hosts, to: IpAddr) -> Result<Vec<Seen>> {
    const BYTES: usize = 3_000_000;
    let config = pias(&[1000, 50_000, 400_001, 400_002, 1_000_000, 2_999_999]);
    let tagger = hosts.tagger(&config)?;
    let capture = hosts.capture()?;
    let mut pair = hosts.connect(to)?;
    // A packet begins at the byte before the first threshold, and one at it.
    pair.send(999)?;
    pair.answer(300_000)?;
    pair.send(1)?;
    pair.send(BYTES - 1000)?;
    let packets = capture.flow(pair.port()?, BYTES as u64)?;
    check(hosts, &packets, &by_sent(&config))?;
    // What the program counted is what arrived, but for what was lost on the way and sent again.
    let counted: u64 = tagger.counters()?.classes.iter().map(|class| class.bytes).sum();
    let arrived: u64 = packets.iter().map(|packet| u64::from(packet.payload)).sum();
    ensure!(counted >= arrived && arrived >= BYTES as u64, "{counted} counted, {arrived} arrived");
    ensure!(tagger.counters()?.not_written.packets == 0);
    Ok(packets)
}

#[test]
fn flows_of_unknown_size_fall_where_the_law_says() {
    on_two_hosts("unknown size", |hosts| {
        let packets = unknown_size(hosts, hosts.v4())?;
        ensure!(
            packets.iter().any(|packet| packet.payload > 1448),
            "packets are as large as the kernel makes them"
        );
        Ok(())
    });
}

#[test]
fn flows_over_ipv6_fall_where_the_law_says() {
    on_two_hosts("IPv6", |hosts| unknown_size(hosts, Hosts::v6()).map(drop));
}

#[test]
fn without_offload_the_class_changes_with_the_segment_that_crosses_the_threshold() {
    on_two_hosts("no offload", |hosts| {
        hosts.run(SENDER, "ip", "link set dev eth0 gso_max_segs 1")?;
        let packets = unknown_size(hosts, hosts.v4())?;
        ensure!(packets.iter().all(|packet| packet.payload <= 1460), "one segment each");
        Ok(())
    });
}

#[test]
fn flows_of_known_size_keep_the_class_of_their_size() {
    on_two_hosts("known size", |hosts| {
        let config = Config::new(thresholds(&[1000, 50_000]));
        let tagger = hosts.tagger(&config)?;
        for size in [1, 1000, 1001, 50_000, 50_001] {
            let mut pair = hosts.connect(hosts.v4())?;
            tagger.hint(&pair.sending, Hint::Known(Bytes(size)))?;
            let capture = hosts.capture()?;
            pair.send(size as usize)?;
            let packets = capture.flow(pair.port()?, size)?;
            let law = ClassLaw::by_size(Bytes(size), config.thresholds.splitting(), config.best);
            check(hosts, &packets, &law)?;
        }
        Ok(())
    });
}

#[test]
fn marks_say_what_a_socket_sends_next_where_they_are_read() {
    on_two_hosts("marks", |hosts| {
        let config = Config { marks: true, ..Config::new(thresholds(&[1000, 50_000])) };
        let by_size = |size| ClassLaw::by_size(Bytes(size), config.thresholds.splitting(), config.best);
        let within = Span::from_nanos(60_000_000_000);
        let tagger = hosts.tagger(&config)?;
        let mut pair = hosts.connect(hosts.v4())?;
        // Each is a flow of its own, also one like that before it: one of unknown size begins anew.
        for (hint, size, law) in [
            (Hint::Known(Bytes(60_000)), 60_000, by_size(60_000)),
            (Hint::Known(Bytes(60_000)), 60_000, by_size(60_000)),
            (Hint::Deadline { size: Bytes(60_000), within }, 60_000, ClassLaw::Fixed(0)),
            (Hint::Known(Bytes(800)), 800, by_size(800)),
            (Hint::Unknown, 70_000, by_sent(&config)),
            (Hint::Unknown, 70_000, by_sent(&config)),
        ] {
            weir_net::hint(&pair.sending, hint)?;
            let capture = hosts.capture()?;
            pair.send(size as usize)?;
            check(hosts, &capture.flow(pair.port()?, size)?, &law)?;
        }
        // A mark that others use is none, and where none are read ours are like it.
        for (marks, mark) in [(true, 0x4000), (false, Hint::Known(Bytes(800)).mark_after(0))] {
            tagger.set(&Config { marks, ..config.clone() })?;
            let mut pair = hosts.connect(hosts.v4())?;
            socket2::SockRef::from(&pair.sending).set_mark(mark)?;
            let capture = hosts.capture()?;
            pair.send(800)?;
            let packets = capture.flow(pair.port()?, 800)?;
            ensure!(packets.iter().all(|packet| packet.dscp == 0), "{packets:?}");
        }
        Ok(())
    });
}

#[test]
fn a_tagger_of_several_interfaces_has_one_table_of_hints() {
    on_two_hosts("several interfaces", |hosts| {
        const SIZE: u64 = 60_000;
        let mut tagger = hosts.tagger(&Config::new(thresholds(&[1000, 50_000])))?;
        hosts.at(RECEIVER, || tagger.attach_also("eth0"))??;
        ensure!(hosts.at(RECEIVER, || tagger.attach_also("eth0"))?.is_err(), "it is there already");
        let mut pair = hosts.connect(hosts.v4())?;
        tagger.hint(&pair.receiving, Hint::Known(Bytes(SIZE)))?;
        let capture = hosts.at(SENDER, Capture::start)??;
        pair.answer(SIZE as usize)?;
        let packets = capture.flow(pair.receiving.local_addr()?.port(), SIZE)?;
        ensure!(packets.iter().all(|packet| packet.dscp == DEFAULT_DSCP[3]), "{packets:?}");
        Ok(())
    });
}

#[test]
fn flows_with_a_deadline_go_first_until_it_is_over() {
    on_two_hosts("deadline", |hosts| {
        const SIZE: u64 = 60_000;
        let config = Config::new(thresholds(&[1000, 50_000]));
        let tagger = hosts.tagger(&config)?;
        let by_size = ClassLaw::by_size(Bytes(SIZE), config.thresholds.splitting(), config.best);
        // The first has time enough on any machine, the second none when it begins.
        for (within, pause, law) in
            [(Span::from_nanos(60_000_000_000), 0, ClassLaw::Fixed(0)), (Span::from_nanos(1), 1, by_size)]
        {
            let mut pair = hosts.connect(hosts.v4())?;
            tagger.hint(&pair.sending, Hint::Deadline { size: Bytes(SIZE), within })?;
            sleep(Duration::from_millis(pause));
            let capture = hosts.capture()?;
            pair.send(SIZE as usize)?;
            check(hosts, &capture.flow(pair.port()?, SIZE)?, &law)?;
        }
        Ok(())
    });
}

#[test]
fn a_flow_that_is_placed_has_that_class_whatever_it_sends_until_it_is_placed_anew() {
    on_two_hosts("placed", |hosts| {
        let config = Config::new(thresholds(&[1000, 50_000]));
        let tagger = hosts.tagger(&config)?;
        let mut pair = hosts.connect(hosts.v4())?;
        // The last class if there are not so many.
        for (placed, class) in [(5, 5), (0, 0), (7, 7), (200, 7)] {
            tagger.place(&pair.sending, placed)?;
            for bytes in [900, 60_000] {
                let capture = hosts.capture()?;
                pair.send(bytes)?;
                check(hosts, &capture.flow(pair.port()?, bytes as u64)?, &ClassLaw::Fixed(class))?;
            }
        }
        tagger.hint(&pair.sending, Hint::Unknown)?;
        let capture = hosts.capture()?;
        pair.send(60_000)?;
        check(hosts, &capture.flow(pair.port()?, 60_000)?, &by_sent(&config))
    });
}

#[test]
fn a_connection_that_carries_one_flow_after_the_other_begins_anew_with_each_hint() {
    on_two_hosts("hints", |hosts| {
        let config = Config::new(thresholds(&[1000, 50_000]));
        let tagger = hosts.tagger(&config)?;
        let mut pair = hosts.connect(hosts.v4())?;
        for bytes in [60_000, 900, 60_000] {
            tagger.hint(&pair.sending, Hint::Unknown)?;
            let capture = hosts.capture()?;
            pair.send(bytes)?;
            check(hosts, &capture.flow(pair.port()?, bytes as u64)?, &by_sent(&config))?;
        }
        Ok(())
    });
}

#[test]
fn a_flow_of_unknown_size_begins_anew_after_a_pause() {
    on_two_hosts("pause", |hosts| {
        let config = Config { idle: Some(Span::from_nanos(300_000_000)), ..pias(&[1000, 50_000]) };
        let _tagger = hosts.tagger(&config)?;
        let mut pair = hosts.connect(hosts.v4())?;
        for _ in 0..2 {
            let capture = hosts.capture()?;
            pair.send(60_000)?;
            check(hosts, &capture.flow(pair.port()?, 60_000)?, &by_sent(&config))?;
            sleep(Duration::from_millis(400));
        }
        Ok(())
    });
}

#[test]
fn thresholds_change_while_a_flow_goes_on() {
    on_two_hosts("change", |hosts| {
        let tagger = hosts.tagger(&pias(&[1000]))?;
        let mut pair = hosts.connect(hosts.v4())?;
        pair.send(10_000)?;
        // 10 kB are below this threshold.
        let later = pias(&[20_000]);
        tagger.set(&later)?;
        let capture = hosts.capture()?;
        pair.send(20_000)?;
        let packets = capture.flow(pair.port()?, 20_000)?;
        let law = by_sent(&later);
        for (packet, offset) in packets.iter().zip(offsets(&packets)) {
            let class = law.class(Bytes(offset + 10_000), false);
            ensure!(packet.dscp == DEFAULT_DSCP[usize::from(class)], "after {offset} bytes: {packet:?}");
        }
        // A change that makes no sense changes nothing.
        let refused = Config { best: 8, ..later };
        ensure!(tagger.set(&refused).is_err());
        Ok(())
    });
}

/// Three timeouts in a row of 10 ms and more, for the receiver's link is down; then the flow goes on from the first class.
#[test]
fn starving_flows_age_as_the_law_says() {
    on_two_hosts("ageing", |hosts| {
        const BEFORE: u64 = 60_000;
        let config = Config { ages_after: Some(3), ..pias(&[1000, 50_000]) };
        let _tagger = hosts.tagger(&config)?;
        let mut pair = hosts.connect(hosts.v4())?;
        pair.send(BEFORE as usize)?;
        let capture = hosts.at(SENDER, Capture::start)??;
        hosts.run(RECEIVER, "ip", "link set dev eth0 down")?;
        std::io::Write::write_all(&mut pair.sending, &[7; 1000])?;
        let until = Instant::now() + Duration::from_secs(1);
        sleep(until.saturating_duration_since(Instant::now()));
        let port = pair.port()?;
        let tries: Vec<u8> = capture
            .all()?
            .into_iter()
            .filter(|seen| seen.source_port == port)
            .map(|seen| seen.dscp)
            .collect();
        // The first one, a probe for a lost tail, the first and the second timeout; from the third on it begins anew.
        let aged = tries.iter().position(|dscp| *dscp == DEFAULT_DSCP[1]);
        println!("{tries:?}");
        ensure!(matches!(aged, Some(3..=4)), "{tries:?}");
        ensure!(tries[..3].iter().all(|dscp| *dscp == DEFAULT_DSCP[3]), "{tries:?}");
        ensure!(tries[aged.unwrap_or(0)..].iter().all(|dscp| *dscp == DEFAULT_DSCP[1]), "{tries:?}");
        Ok(())
    });
}
