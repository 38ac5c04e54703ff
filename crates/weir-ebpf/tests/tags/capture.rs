//! Packets as an interface sees them, taken off it by a packet socket.

use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use socket2::{Domain, Protocol, Socket, Type};

const ALL_PROTOCOLS: u16 = 3;
/// Larger than any packet.
const ROOM: usize = 1 << 20;
/// Packets that are under way when a capture ends are there after this time.
const LINGER: Duration = Duration::from_millis(100);
const TCP: u8 = 6;

/// A packet of IP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) protocol: u8,
    pub(crate) dscp: u8,
    pub(crate) ecn: u8,
    /// Of IPv4; IPv6 has none.
    pub(crate) checksum_holds: bool,
    /// 0 if it is not TCP, like all that follows.
    pub(crate) source_port: u16,
    pub(crate) sequence: u32,
    pub(crate) payload: u32,
    pub(crate) resets: bool,
}

pub(crate) struct Capture {
    ends: Arc<AtomicBool>,
    reader: JoinHandle<Result<Vec<Seen>>>,
}

impl Capture {
    pub(crate) fn start() -> Result<Capture> {
        let protocol = Protocol::from(i32::from(ALL_PROTOCOLS.to_be()));
        let mut socket = Socket::new(Domain::PACKET, Type::RAW, Some(protocol))?;
        // More than the limit of users, so that nothing is missed on a busy machine.
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 256 << 20)?;
        socket.set_read_timeout(Some(LINGER))?;
        let ends = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&ends);
        let reader = std::thread::spawn(move || {
            let (mut frame, mut seen) = (vec![0; ROOM], Vec::new());
            loop {
                match socket.read(&mut frame) {
                    Ok(length) => seen.extend(parse(&frame[..length])),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        if told.load(Ordering::Relaxed) {
                            return Ok(seen);
                        }
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        });
        Ok(Capture { ends, reader })
    }

    /// All packets until now, from any port.
    pub(crate) fn all(self) -> Result<Vec<Seen>> {
        self.ends.store(true, Ordering::Relaxed);
        self.reader.join().map_err(|_| anyhow!("the capture panicked"))?
    }

    /// Those of TCP from this port, which are `bytes` of payload; nothing is missing.
    pub(crate) fn flow(self, port: u16, bytes: u64) -> Result<Vec<Seen>> {
        let all = self.all()?;
        let packets: Vec<Seen> = all.into_iter().filter(|packet| packet.source_port == port).collect();
        // In the order of the flow: what was lost on the way comes later.
        let mut parts: Vec<(u64, u64)> = offsets(&packets)
            .into_iter()
            .zip(packets.iter().map(|packet| u64::from(packet.payload)))
            .collect();
        parts.sort_unstable();
        let mut next = 0;
        for (offset, payload) in parts {
            ensure!(offset <= next, "bytes {next} to {offset} were not captured");
            next = next.max(offset + payload);
        }
        ensure!(next >= bytes, "{next} of {bytes} bytes were captured");
        Ok(packets)
    }
}

/// Where each packet begins in its flow, for flows below 2 GiB. The first packet has the first byte, or is the SYN before it.
pub(crate) fn offsets(packets: &[Seen]) -> Vec<u64> {
    let first = packets.iter().find(|packet| packet.payload > 0).map_or(0, |packet| packet.sequence);
    packets.iter().map(|packet| (packet.sequence.wrapping_sub(first) as i32).max(0) as u64).collect()
}

fn parse(frame: &[u8]) -> Option<Seen> {
    let kind = u16::from_be_bytes(frame.get(12..14)?.try_into().ok()?);
    let ip = frame.get(14..)?;
    let none = Seen {
        protocol: 0,
        dscp: 0,
        ecn: 0,
        checksum_holds: true,
        source_port: 0,
        sequence: 0,
        payload: 0,
        resets: false,
    };
    match kind {
        0x0800 => {
            let header = ip.get(..usize::from(ip.first()? & 15) * 4)?;
            let words = header.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
            let sum: u32 = words.sum();
            let checksum_holds = (sum & 0xffff) + (sum >> 16) == 0xffff;
            let base = Seen {
                protocol: header[9],
                dscp: header[1] >> 2,
                ecn: header[1] & 3,
                checksum_holds,
                ..none
            };
            with_tcp(base, &ip[header.len()..])
        }
        0x86dd => {
            let class = ip.first()? << 4 | ip.get(1)? >> 4;
            let base = Seen { protocol: *ip.get(6)?, dscp: class >> 2, ecn: class & 3, ..none };
            with_tcp(base, ip.get(40..)?)
        }
        _ => None,
    }
}

fn with_tcp(base: Seen, tcp: &[u8]) -> Option<Seen> {
    if base.protocol != TCP {
        return Some(base);
    }
    let header = usize::from(tcp.get(12)? >> 4) * 4;
    Some(Seen {
        source_port: u16::from_be_bytes(tcp.get(..2)?.try_into().ok()?),
        sequence: u32::from_be_bytes(tcp.get(4..8)?.try_into().ok()?),
        payload: tcp.len().saturating_sub(header) as u32,
        resets: tcp.get(13)? & 4 != 0,
        ..base
    })
}
