//! DCTCP on connections of real hosts through a switch that marks.

use std::collections::BTreeSet;
use std::env;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use socket2::{Domain, SockRef, Socket, Type};
use weir_ebpf::{ControlError, DEFAULT_DSCP, Dctcp, Marker, Marking, TagError, loaded};
use weir_model::Bytes;
use weir_testbed::{Bed, BedLinks, Place, Queues};

use crate::capture::Capture;
use crate::gone::{READY, held, wait_until_gone};
use crate::hosts::{Hosts, accept, on_bed, on_two_hosts};

pub(crate) const LINK_BPS: u64 = 100_000_000;
pub(crate) const THRESHOLD: u64 = 60_000;
/// Far above what a flow may have under way here: 60 kB of marks, and 1 MB of a queue, are 40 and 700 segments.
const MOST_SEGMENTS: u64 = 2000;
const RECEIVER: Place = Place::Host(0);
const PATIENCE: Duration = Duration::from_secs(20);
/// Packets of connections that say no DSCP are in the last class.
const LAST: usize = 7;

pub(crate) fn links(senders: usize) -> BedLinks {
    BedLinks {
        queues: Queues::ByDscp(DEFAULT_DSCP),
        segment_bytes: Some(3000),
        ..BedLinks::equal(senders + 1, LINK_BPS)
    }
}

/// A marker on the port to the receiver.
pub(crate) fn marker(bed: &Bed, threshold: u64) -> Result<Marker> {
    let marking = Marking::new(Bytes(threshold), std::array::from_fn(Queues::htb_class));
    let port = bed.switch_port(0);
    Ok(bed.run_in_switch(|| Marker::attach(&port, &marking))??)
}

pub(crate) fn listen(bed: &Bed, at: Place, address: IpAddr, control: &str) -> Result<TcpListener> {
    bed.run_at(at, || -> Result<_> {
        let domain = if address.is_ipv6() { Domain::IPV6 } else { Domain::IPV4 };
        let socket = Socket::new(domain, Type::STREAM, None)?;
        socket.set_tcp_congestion(control.as_bytes())?;
        socket.bind(&SocketAddr::from((address, 0)).into())?;
        socket.listen(64)?;
        Ok(socket.into())
    })?
}

pub(crate) fn connect(bed: &Bed, from: Place, to: SocketAddr, control: &str) -> Result<TcpStream> {
    let stream = bed.run_at(from, || -> Result<TcpStream> {
        let domain = if to.is_ipv6() { Domain::IPV6 } else { Domain::IPV4 };
        let socket = Socket::new(domain, Type::STREAM, None)?;
        socket.set_tcp_congestion(control.as_bytes())?;
        socket.connect_timeout(&to.into(), PATIENCE)?;
        Ok(socket.into())
    })??;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// From each sender, host 1 and up, to host 0; both ends have the control.
fn pairs(bed: &Bed, senders: usize) -> Result<Vec<(TcpStream, TcpStream)>> {
    let listener = listen(bed, RECEIVER, Ipv4Addr::UNSPECIFIED.into(), Dctcp::NAME)?;
    let target = SocketAddr::from((bed.address(0), listener.local_addr()?.port()));
    let pair = |host| Ok((connect(bed, Place::Host(host), target, Dctcp::NAME)?, accept(&listener)?));
    (1..=senders).map(pair).collect()
}

fn pair(bed: &Bed) -> Result<(TcpStream, TcpStream)> {
    pairs(bed, 1)?.pop().context("a pair")
}

/// Sends so many bytes, all different from their neighbours, and looks whether they arrive as they were.
pub(crate) fn transfer(pair: &mut (TcpStream, TcpStream), count: usize) -> Result<()> {
    let content: Vec<u8> = (0..count).map(|at| (at % 251) as u8).collect();
    let (sending, receiving) = pair;
    receiving.set_read_timeout(Some(PATIENCE))?;
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || -> Result<Vec<u8>> {
            let mut room = vec![0; count];
            receiving.read_exact(&mut room)?;
            Ok(room)
        });
        sending.write_all(&content).context("send")?;
        let arrived = reader.join().map_err(|_| anyhow!("the reader panicked"))?.context("receive")?;
        ensure!(arrived == content, "what arrived is not what was sent");
        Ok(())
    })
}

/// Bytes that arrived of each flow while all went on for a time.
fn together(flows: &[(TcpStream, TcpStream)], time: Duration, at_end: impl FnOnce()) -> Vec<u64> {
    let arrived: Vec<AtomicU64> = flows.iter().map(|_| AtomicU64::new(0)).collect();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for ((mut sending, mut receiving), arrived) in
            flows.iter().map(|(sending, receiving)| (sending, receiving)).zip(&arrived)
        {
            let over = &over;
            scope.spawn(move || {
                let chunk = vec![7; 64 << 10];
                while !over.load(Ordering::Relaxed) && sending.write_all(&chunk).is_ok() {}
            });
            scope.spawn(move || {
                let mut room = vec![0; 64 << 10];
                while !over.load(Ordering::Relaxed) {
                    match receiving.read(&mut room) {
                        Ok(count) if count > 0 => arrived.fetch_add(count as u64, Ordering::Relaxed),
                        _ => break,
                    };
                }
            });
        }
        let now = || arrived.iter().map(|bytes| bytes.load(Ordering::Relaxed)).collect::<Vec<_>>();
        sleep(Duration::from_secs(1));
        let before = now();
        sleep(time);
        let after = now();
        at_end();
        over.store(true, Ordering::Relaxed);
        // Who waits to send or to receive is woken.
        for (sending, receiving) in flows {
            let _ =
                (sending.shutdown(std::net::Shutdown::Both), receiving.shutdown(std::net::Shutdown::Both));
        }
        before.iter().zip(after).map(|(before, after)| after - before).collect()
    })
}

/// A number that the kernel has of the one connection of a host, as `ss` shows it; 0 if it is left out.
fn of_socket(bed: &Bed, host: usize, name: &str) -> Result<u64> {
    let output = bed.run_at(Place::Host(host), || Command::new("ss").args(["-tinH"]).output())??;
    let text = String::from_utf8(output.stdout)?;
    let mut words = text.split_ascii_whitespace();
    let word = words.find_map(|word| word.strip_prefix(name)?.strip_prefix(':'));
    // Retransmissions are under way, and all of them.
    word.map_or(Ok(0), |word| Ok(word.rsplit('/').next().unwrap_or(word).parse()?))
}

fn tc(bed: &Bed, line: &str) -> Result<()> {
    let output = bed.run_in_switch(|| Command::new("tc").args(line.split(' ')).output())??;
    ensure!(output.status.success(), "tc {line}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|share| *share as f64).sum();
    let squares: f64 = shares.iter().map(|share| (*share as f64).powi(2)).sum();
    sum * sum / (shares.len() as f64 * squares)
}

/// Shares are printed; what is asserted leaves a busy machine room.
#[test]
fn neither_of_two_flows_starves_the_other() {
    on_bed("two flows", &links(2), |bed| {
        let (_control, _marker) = (Dctcp::register()?, marker(bed, THRESHOLD)?);
        for _ in 0..2 {
            let flows = pairs(bed, 2)?;
            let mut windows = Vec::new();
            let read = || windows.extend((1..=2).map(|host| of_socket(bed, host, "cwnd")));
            let shares = together(&flows, Duration::from_secs(3), read);
            let [one, other] = shares[..] else { return Err(anyhow!("two flows")) };
            println!("{one} and {other} bytes, windows {windows:?}");
            ensure!(one.min(other) * 2 > one.max(other), "{shares:?}");
            // The threshold that the kernel once took from its stack made windows of millions.
            for window in windows {
                ensure!((1..MOST_SEGMENTS).contains(&window?), "a window out of bounds");
            }
        }
        Ok(())
    });
}

#[test]
fn sixteen_flows_to_one_host_have_their_shares() {
    on_bed("incast", &links(16), |bed| {
        let (_control, _marker) = (Dctcp::register()?, marker(bed, THRESHOLD)?);
        let shares = together(&pairs(bed, 16)?, Duration::from_secs(3), || {});
        println!("Jain {:.4} of {shares:?}", jain(&shares));
        ensure!(jain(&shares) > 0.8, "{shares:?}");
        Ok(())
    });
}

/// Without the echo of section 3.2 a sender hears of twice as many.
#[test]
fn senders_hear_of_what_was_marked() {
    on_bed("echo", &links(2), |bed| {
        let (_control, marker) = (Dctcp::register()?, marker(bed, THRESHOLD)?);
        let flows = pairs(bed, 2)?;
        let mut heard = Vec::new();
        let mut marked = Err(anyhow!("not read"));
        together(&flows, Duration::from_secs(2), || {
            heard.extend((1..=2).map(|host| of_socket(bed, host, "delivered_ce")));
            marked = marker.marks().map(|marks| marks.classes[LAST].marked).map_err(Into::into);
        });
        let (heard, marked) = (heard.into_iter().sum::<Result<u64>>()?, marked?);
        println!("{marked} marked, {heard} heard of");
        ensure!(
            marked > 100 && heard * 2 > marked && heard * 2 < marked * 3,
            "{marked} marked, {heard} heard"
        );
        Ok(())
    });
}

#[test]
fn everything_arrives_where_all_is_marked() {
    on_bed("all marked", &links(1), |bed| {
        let (_control, marker) = (Dctcp::register()?, marker(bed, 1)?);
        transfer(&mut pair(bed)?, 3_000_000)?;
        let marks = marker.marks()?.classes[LAST];
        ensure!(marks.marked > 0, "{marks:?}");
        Ok(())
    });
}

#[test]
fn everything_arrives_where_much_is_lost() {
    on_bed("losses", &links(1), |bed| {
        let _control = Dctcp::register()?;
        // Six frames wait before a port that is slower than what comes.
        bed.set_link_rate(0, LINK_BPS / 5)?;
        tc(bed, "qdisc replace dev p0 parent 1:27 handle 27: bfifo limit 10000")?;
        let mut pair = pair(bed)?;
        transfer(&mut pair, 3_000_000)?;
        let again = of_socket(bed, 1, "retrans")?;
        println!("{again} segments sent again");
        // 2073 segments were to be sent; Reno sends about 160 of them again. Without packet conservation it was up to 2400.
        ensure!((1..700).contains(&again), "{again} segments were sent again");
        // And when it is over, the window grows again.
        tc(bed, "qdisc replace dev p0 parent 1:27 handle 28: bfifo limit 1000000")?;
        transfer(&mut pair, 5_000_000)?;
        let window = of_socket(bed, 1, "cwnd")?;
        ensure!((3..MOST_SEGMENTS).contains(&window), "{window}");
        Ok(())
    });
}

/// Timeouts one after the other, with marks before and after.
#[test]
fn a_flow_goes_on_after_its_link_was_down() {
    on_bed("link down", &links(1), |bed| {
        let (_control, _marker) = (Dctcp::register()?, marker(bed, THRESHOLD)?);
        let mut pair = pair(bed)?;
        transfer(&mut pair, 2_000_000)?;
        let link = |to: &str| -> Result<()> {
            let line = format!("link set dev eth0 {to}");
            let mut command = bed.command(RECEIVER, "ip")?;
            ensure!(command.args(line.split(' ')).status()?.success(), "ip {line}");
            Ok(())
        };
        std::thread::scope(|scope| {
            let flow = scope.spawn(|| transfer(&mut pair, 4_000_000));
            sleep(Duration::from_millis(100));
            link("down")?;
            sleep(Duration::from_millis(900));
            link("up")?;
            // What the bed has told the host of others went with the link.
            let hardware = crate::hosts::hardware_address(bed, Place::Host(1))?;
            let line =
                format!("neighbour replace {} lladdr {hardware} dev eth0 nud permanent", bed.address(1));
            ensure!(bed.command(RECEIVER, "ip")?.args(line.split(' ')).status()?.success(), "ip {line}");
            flow.join().map_err(|_| anyhow!("panicked"))?
        })
    });
}

#[test]
fn a_flow_begins_anew_after_a_pause_where_the_system_says_so() {
    on_bed("pause", &links(1), |bed| {
        let (_control, _marker) = (Dctcp::register()?, marker(bed, THRESHOLD)?);
        for (setting, begins_anew) in [("1", true), ("0", false)] {
            let path = "/proc/sys/net/ipv4/tcp_slow_start_after_idle";
            bed.run_at(Place::Host(1), || std::fs::write(path, setting))??;
            let mut pair = pair(bed)?;
            transfer(&mut pair, 5_000_000)?;
            let before = of_socket(bed, 1, "cwnd")?;
            // Timeouts begin at 200 ms.
            sleep(Duration::from_secs(1));
            transfer(&mut pair, 1)?;
            let after = of_socket(bed, 1, "cwnd")?;
            println!("{setting}: {before}, then {after}");
            ensure!(before > 12, "{before}");
            ensure!((after <= 11) == begins_anew, "{setting}: {before}, then {after}");
        }
        Ok(())
    });
}

#[test]
fn an_end_without_ecn_gets_reno_and_packets_that_are_not_capable() {
    on_bed("no ECN", &links(1), |bed| {
        let _control = Dctcp::register()?;
        bed.run_at(RECEIVER, || std::fs::write("/proc/sys/net/ipv4/tcp_ecn", "0"))??;
        let listener = listen(bed, RECEIVER, Ipv4Addr::UNSPECIFIED.into(), "cubic")?;
        let target = SocketAddr::from((bed.address(0), listener.local_addr()?.port()));
        let capture = bed.run_at(RECEIVER, Capture::start)??;
        let mut pair = (connect(bed, Place::Host(1), target, Dctcp::NAME)?, accept(&listener)?);
        transfer(&mut pair, 500_000)?;
        let control = SockRef::from(&pair.0).tcp_congestion()?;
        ensure!(control.starts_with(b"reno"), "{}", String::from_utf8_lossy(&control));
        let packets = capture.flow(pair.0.local_addr()?.port(), 500_000)?;
        let data: Vec<_> = packets.iter().filter(|packet| packet.payload > 0).collect();
        ensure!(!data.is_empty() && data.iter().all(|packet| packet.ecn == 0), "{data:?}");
        Ok(())
    });
}

#[test]
fn it_is_there_over_ipv6() {
    on_two_hosts("IPv6", |hosts| {
        let _control = Dctcp::register()?;
        let bed = hosts.bed();
        // Hosts of that test send from 0 to 1.
        let listener = listen(bed, Place::Host(1), Hosts::v6(), Dctcp::NAME)?;
        let target = SocketAddr::from((Hosts::v6(), listener.local_addr()?.port()));
        let mut pair = (connect(bed, Place::Host(0), target, Dctcp::NAME)?, accept(&listener)?);
        transfer(&mut pair, 3_000_000)?;
        ensure!(SockRef::from(&pair.0).tcp_congestion()?.starts_with(Dctcp::NAME.as_bytes()));
        Ok(())
    });
}

/// Whether sockets can have it, as the kernel lists.
fn is_available(bed: &Bed) -> Result<bool> {
    let path = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let list = bed.run_at(RECEIVER, || std::fs::read_to_string(path))??;
    Ok(list.split_ascii_whitespace().any(|name| name == Dctcp::NAME))
}

#[test]
fn it_is_there_as_long_as_it_is_held_and_sockets_keep_it() {
    on_bed("held", &links(1), |bed| {
        ensure!(!is_available(bed)?);
        let before = loaded();
        let control = Dctcp::register()?;
        let own: BTreeSet<_> = loaded().difference(&before).copied().collect();
        ensure!(is_available(bed)? && own.len() > 1, "{own:?}");
        let second = Dctcp::register();
        ensure!(matches!(second, Err(ControlError::Taken { .. })), "{second:?}");
        let mut pair = pair(bed)?;
        drop(control);
        ensure!(!is_available(bed)?);
        ensure!(
            connect(bed, Place::Host(1), pair.1.local_addr()?, Dctcp::NAME).is_err(),
            "it can still be chosen"
        );
        transfer(&mut pair, 2_000_000)?;
        drop(pair);
        wait_until_gone(&own)
    });
}

#[test]
fn without_privileges_it_says_so() {
    on_bed("no privileges", &links(1), |bed| {
        let without = bed.run_at(RECEIVER, || -> Result<_> {
            let all = capabilities(None)?;
            set_capabilities(None, CapabilitySets { effective: CapabilitySet::empty(), ..all })?;
            let result = Dctcp::register();
            set_capabilities(None, all)?;
            Ok(result)
        })??;
        ensure!(matches!(without, Err(ControlError::Program(TagError::NoRights))), "{without:?}");
        Ok(())
    });
}

/// Set in a process that holds the control until it is killed.
const HOLDS: &str = "WEIR_TEST_HOLDS_A_CONTROL";

#[test]
fn a_control_whose_process_is_killed_leaves_nothing() {
    if env::var_os(HOLDS).is_some() {
        let control = Dctcp::register();
        println!("{}", if control.is_ok() { READY } else { "refused" });
        sleep(Duration::from_secs(60));
        return;
    }
    on_bed("control killed", &links(1), |bed| {
        for _ in 0..3 {
            let before = loaded();
            let name = "control::a_control_whose_process_is_killed_leaves_nothing";
            let mut child = held(Command::new(env::current_exe()?), name, HOLDS)?;
            let own: BTreeSet<_> = loaded().difference(&before).copied().collect();
            ensure!(is_available(bed)? && own.len() > 1, "{own:?}");
            child.kill()?;
            child.wait()?;
            wait_until_gone(&own)?;
            ensure!(!is_available(bed)?);
        }
        Dctcp::register().map(drop).context("the name is free again")
    });
}
