//! What a tagger leaves alone: sockets that it was not told of, other protocols, other namespaces, sockets that are none
//! any more.

use std::io::Read;
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, ensure};
use socket2::{Domain, Protocol, Socket, Type};
use weir_ebpf::{Config, DEFAULT_DSCP, TagError, Unhinted};
use weir_model::{Bytes, Hint};
use weir_testbed::Place;

use crate::capture::Seen;
use crate::hosts::{Hosts, RECEIVER, SENDER, accept, hardware_address, on_two_hosts, thresholds};

const UDP: u8 = 17;
const ICMP: u8 = 1;

fn all_sockets() -> Config {
    Config { unhinted: Unhinted::Unknown, ..Config::new(thresholds(&[1000])) }
}

fn untagged<'a>(packets: impl IntoIterator<Item = &'a Seen>) -> bool {
    packets.into_iter().all(|packet| packet.dscp == 0)
}

#[test]
fn sockets_without_a_hint_are_left_alone_unless_said() {
    on_two_hosts("no hint", |hosts| {
        let tagger = hosts.tagger(&Config::new(thresholds(&[1000])))?;
        let (mut told, mut other) = (hosts.connect(hosts.v4())?, hosts.connect(hosts.v4())?);
        tagger.hint(&told.sending, Hint::Known(Bytes(5000)))?;
        let capture = hosts.capture()?;
        told.send(5000)?;
        other.send(5000)?;
        let packets = capture.all()?;
        let (told, other) = (told.port()?, other.port()?);
        let of = |port| packets.iter().filter(move |packet| packet.source_port == port);
        ensure!(of(told).count() > 0 && of(told).all(|packet| packet.dscp == DEFAULT_DSCP[2]));
        ensure!(of(other).count() > 0 && untagged(of(other)));
        Ok(())
    });
}

#[test]
fn what_is_no_tcp_is_left_alone() {
    on_two_hosts("UDP and ICMP", |hosts| {
        let _tagger = hosts.tagger(&all_sockets())?;
        let capture = hosts.capture()?;
        hosts.at(SENDER, || -> Result<()> {
            let socket = UdpSocket::bind(("0.0.0.0", 0))?;
            socket.send_to(&[1; 3000], (hosts.v4(), 9))?;
            Ok(())
        })??;
        hosts.at(SENDER, || ping(hosts.v4()))??;
        let packets = capture.all()?;
        for protocol in [UDP, ICMP] {
            let of: Vec<&Seen> = packets.iter().filter(|packet| packet.protocol == protocol).collect();
            // The kernel's own answers have 48.
            let tagged = of.iter().any(|packet| DEFAULT_DSCP.contains(&packet.dscp));
            ensure!(!of.is_empty() && !tagged, "{packets:?}");
        }
        Ok(())
    });
}

/// An echo request, by a raw socket.
fn ping(to: IpAddr) -> Result<()> {
    let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4))?;
    // Type 8, code 0, checksum, and four bytes of zero: the sum of all words is 0xffff.
    socket.send_to(&[8, 0, 0xf7, 0xff, 0, 0, 0, 0], &std::net::SocketAddr::new(to, 0).into())?;
    Ok(())
}

/// The receiver's own packets, and flows of a third place that pass no interface with a tagger.
#[test]
fn other_namespaces_are_not_affected() {
    on_two_hosts("other namespaces", |hosts| {
        let _tagger = hosts.tagger(&all_sockets())?;
        let listener = hosts.at(RECEIVER, || TcpListener::bind(("0.0.0.0", 0)))??;
        let target = (hosts.v4(), listener.local_addr()?.port());
        let capture = hosts.capture()?;
        let stream = hosts.at(Place::Control, || TcpStream::connect(target))??;
        let mut accepted = accept(&listener)?;
        std::io::Write::write_all(&mut &stream, &[7; 5000])?;
        accepted.read_exact(&mut [0; 5000])?;
        let packets = capture.all()?;
        let of_tcp: Vec<&Seen> = packets.iter().filter(|packet| packet.source_port != 0).collect();
        ensure!(of_tcp.len() > 2 && untagged(of_tcp), "{packets:?}");
        Ok(())
    });
}

/// A namespace below the sender's, bridged to its interface: its packets pass the tagger.
#[test]
fn sockets_of_a_container_that_are_bridged_through_the_interface_are_not_affected() {
    on_two_hosts("bridged", |hosts| {
        let inner = hosts.bed().command(SENDER, "unshare")?.args(["--net", "sleep", "60"]).spawn()?;
        let result = bridged(hosts, inner.id());
        let mut inner = inner;
        inner.kill()?;
        inner.wait()?;
        result
    });
}

fn bridged(hosts: &Hosts, inner: u32) -> Result<()> {
    // It has its namespace a moment after it started.
    sleep(Duration::from_millis(200));
    hosts.run(SENDER, "ip", "link add outer type veth peer name inner")?;
    hosts.run(SENDER, "ip", &format!("link set inner netns {inner}"))?;
    for line in ["add between type bridge", "set outer master between", "set eth0 master between"] {
        hosts.run(SENDER, "ip", &format!("link {line}"))?;
    }
    // The bed's switch knows the sender's address alone, so what is inside takes it.
    let address = hardware_address(hosts.bed(), SENDER)?;
    let receiver = hardware_address(hosts.bed(), RECEIVER)?;
    hosts.run(SENDER, "ip", "link set eth0 address 02:00:00:00:77:01")?;
    for device in ["outer", "between"] {
        hosts.run(SENDER, "ip", &format!("link set {device} up"))?;
    }
    let inside = |line: &str| hosts.run(SENDER, "nsenter", &format!("--net=/proc/{inner}/ns/net ip {line}"));
    inside(&format!("link set inner address {address} up"))?;
    inside("address add 10.231.77.7/24 dev inner")?;
    inside(&format!("neighbour add 10.231.77.8 lladdr {receiver} dev inner nud permanent"))?;
    hosts.run(RECEIVER, "ip", "address add 10.231.77.8/24 dev eth0")?;
    let neighbour = format!("neighbour add 10.231.77.7 lladdr {address} dev eth0 nud permanent");
    hosts.run(RECEIVER, "ip", &neighbour)?;
    let tagger = hosts.tagger(&all_sockets())?;
    let capture = hosts.capture()?;
    let listener = hosts.at(RECEIVER, || TcpListener::bind(("10.231.77.8", 0)))??;
    let port = listener.local_addr()?.port();
    let script = format!("head -c 5000 /dev/zero > /dev/tcp/10.231.77.8/{port}");
    let mut sender = hosts.bed().command(SENDER, "nsenter")?;
    sender.arg(format!("--net=/proc/{inner}/ns/net")).args(["bash", "-c", &script]);
    let mut sender = sender.spawn()?;
    let mut accepted = accept(&listener)?;
    let mut all = Vec::new();
    accepted.read_to_end(&mut all)?;
    ensure!(sender.wait()?.success() && all.len() == 5000);
    let packets = capture.all()?;
    let of_tcp: Vec<&Seen> = packets.iter().filter(|packet| packet.payload > 0).collect();
    ensure!(!of_tcp.is_empty() && untagged(of_tcp), "{packets:?}");
    ensure!(tagger.counters()?.classes.iter().all(|class| class.packets == 0));
    Ok(())
}

/// The answer to a packet for a closed port comes from no flow's socket; a SYN's answer from a request.
#[test]
fn packets_of_no_full_socket_are_left_alone() {
    on_two_hosts("no full socket", |hosts| {
        let _tagger = hosts.tagger(&all_sockets())?;
        let capture = hosts.capture()?;
        let sender: IpAddr = hosts.bed().address(0).into();
        let refused = hosts.at(RECEIVER, || TcpStream::connect((sender, 9)))?;
        ensure!(refused.is_err());
        let listener = hosts.at(SENDER, || TcpListener::bind((sender, 0)))??;
        let port = listener.local_addr()?.port();
        let stream = hosts.at(RECEIVER, || TcpStream::connect((sender, port)))??;
        let accepted = accept(&listener)?;
        // Closed first at the sender, whose end then waits for its time to be over; a late byte is answered by a reset.
        drop(accepted);
        sleep(Duration::from_millis(100));
        std::io::Write::write_all(&mut &stream, &[7])?;
        sleep(Duration::from_millis(100));
        let packets = capture.all()?;
        let answers: Vec<&Seen> =
            packets.iter().filter(|packet| [9, port].contains(&packet.source_port)).collect();
        let resets: Vec<&&Seen> = answers.iter().filter(|packet| packet.resets).collect();
        ensure!(resets.len() == 2 && resets.iter().all(|packet| packet.dscp == 0), "{answers:?}");
        let of_request = answers.iter().find(|packet| packet.source_port == port);
        ensure!(of_request.is_some_and(|packet| packet.dscp == 0), "{answers:?}");
        Ok(())
    });
}

#[test]
fn a_hint_for_what_is_no_socket_is_an_error() {
    on_two_hosts("no socket", |hosts| {
        let tagger = hosts.tagger(&all_sockets())?;
        let file = std::fs::File::open("/proc/self/stat")?;
        ensure!(matches!(tagger.hint(&file, Hint::Unknown), Err(TagError::Os { .. })));
        Ok(())
    });
}
