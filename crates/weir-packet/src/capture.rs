//! Packets of a run in a file that packet analysers read (pcap, nanoseconds, raw IPv4).
//!
//! Host `h` is 10.0.0.0 plus `h`; a flow is a TCP connection to port [`DESTINATION_PORT`] whose source port follows from
//! its number. The class is the DSCP, a mark is CE in the IP header, and ECE in an acknowledgement. Payload is left out:
//! the file has headers, and the true lengths.

use crate::observer::{Observer, PacketSeen};
use crate::packet::{HEADER_BYTES, SEGMENT_BYTES};
use crate::time::Picos;
use etherparse::{IpDscp, IpEcn, IpNumber, Ipv4Header, TcpHeader};
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::{DataLink, TsResolution};
use std::io::Write;
use std::time::Duration;

/// Where all flows go.
pub const DESTINATION_PORT: u16 = 5001;
const FIRST_SOURCE_PORT: u64 = 10_000;
const SOURCE_PORTS: u64 = 50_000;
const WINDOW: u16 = u16::MAX;

/// Writes what ports send to a file.
pub struct Capture<W: Write> {
    writer: PcapWriter<W>,
    /// The ports to listen at; all if none.
    ports: Option<Vec<u32>>,
    /// The first packet that could not be written ends the file; why.
    failed: Option<pcap_file::PcapError>,
}

impl<W: Write> Capture<W> {
    /// Begins a file. `ports` are those to listen at; a packet is written once for each that sends it.
    ///
    /// # Errors
    /// The head of the file cannot be written.
    pub fn new(output: W, ports: Option<Vec<u32>>) -> Result<Capture<W>, pcap_file::PcapError> {
        let header = PcapHeader {
            datalink: DataLink::RAW,
            ts_resolution: TsResolution::NanoSecond,
            ..PcapHeader::default()
        };
        Ok(Capture { writer: PcapWriter::with_header(output, header)?, ports, failed: None })
    }

    /// Ends the file.
    ///
    /// # Errors
    /// A packet, or the end of the file, could not be written.
    pub fn finish(self) -> Result<(), pcap_file::PcapError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.writer.into_writer().flush().map_err(pcap_file::PcapError::IoError)
    }

    fn write(&mut self, packet: &PacketSeen, now: Picos) -> Result<(), pcap_file::PcapError> {
        let headers = headers(packet);
        let at = Duration::from_nanos(now.0 / 1000);
        self.writer.write_packet(&PcapPacket::new(at, u32::from(packet.bytes), &headers)).map(|_| ())
    }
}

fn address(host: u32) -> [u8; 4] {
    (0x0a00_0000_u32.wrapping_add(host)).to_be_bytes()
}

/// The headers that a packet would have.
fn headers(packet: &PacketSeen) -> Vec<u8> {
    let payload = packet.bytes - HEADER_BYTES as u16;
    // Ports come again after 50,000 flows; TCP's sequence numbers wrap at 2^32, and byte 1 follows the SYN.
    let own = (FIRST_SOURCE_PORT + packet.flow % SOURCE_PORTS) as u16;
    let byte = |segment: u32| segment.wrapping_mul(SEGMENT_BYTES).wrapping_add(1);
    let (from, to) = if packet.is_ack { (DESTINATION_PORT, own) } else { (own, DESTINATION_PORT) };
    let mut tcp = TcpHeader::new(from, to, if packet.is_ack { 1 } else { byte(packet.segment) }, WINDOW);
    tcp.ack = true;
    tcp.acknowledgment_number = if packet.is_ack { byte(packet.expected) } else { 1 };
    tcp.ece = packet.is_ack && packet.marked;
    let length = tcp.header_len_u16() + payload;
    // A length that does not fit cannot be: packets have 1500 bytes at most.
    let ip = Ipv4Header::new(length, 64, IpNumber::TCP, address(packet.source), address(packet.destination));
    let mut bytes = Vec::with_capacity(HEADER_BYTES as usize);
    if let Ok(mut ip) = ip {
        ip.dscp = IpDscp::try_new(packet.class).unwrap_or_default();
        ip.ecn = match (packet.is_ack, packet.marked) {
            // Pure acknowledgements are not capable of marks (RFC 3168, section 6.1.4); the
            // receiver's word on marks is in ECE.
            (true, _) => IpEcn::ZERO,
            (false, true) => IpEcn::THREE,
            (false, false) => IpEcn::TWO,
        };
        ip.header_checksum = ip.calc_header_checksum();
        bytes.extend(ip.to_bytes());
    }
    bytes.extend(tcp.to_bytes());
    bytes
}

impl<W: Write> Observer for Capture<W> {
    fn sent(&mut self, packet: &PacketSeen, now: Picos) {
        if self.failed.is_none() && self.ports.as_ref().is_none_or(|ports| ports.contains(&packet.port)) {
            self.failed = self.write(packet, now).err();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::SlicedPacket;
    use pcap_file::pcap::PcapReader;

    #[test]
    fn packets_are_read_back_as_they_were_seen() {
        let data = PacketSeen {
            port: 3,
            flow: 7,
            source: 1,
            destination: 258,
            segment: 2,
            expected: 0,
            bytes: 1500,
            is_ack: false,
            class: 5,
            marked: true,
        };
        let ack = PacketSeen {
            source: 258,
            destination: 1,
            expected: 3,
            bytes: 40,
            is_ack: true,
            class: 0,
            ..data
        };
        let mut file = Vec::new();
        let mut capture = Capture::new(&mut file, Some(vec![3])).unwrap();
        capture.sent(&data, Picos::from_micros(12));
        capture.sent(&PacketSeen { port: 4, ..data }, Picos::from_micros(12));
        capture.sent(&ack, Picos::from_micros(40));
        capture.finish().unwrap();
        let mut reader = PcapReader::new(&file[..]).unwrap();
        let first = reader.next_packet().unwrap().unwrap().into_owned();
        assert_eq!((first.timestamp, first.orig_len), (Duration::from_micros(12), 1500));
        let second = reader.next_packet().unwrap().unwrap().into_owned();
        assert!(reader.next_packet().is_none());
        let ip = Ipv4Header::from_slice(&first.data).unwrap().0;
        assert_eq!((ip.source, ip.destination), ([10, 0, 0, 1], [10, 0, 1, 2]));
        assert_eq!((ip.dscp.value(), ip.ecn.value()), (5, 3));
        let tcp = TcpHeader::from_slice(&first.data[20..]).unwrap().0;
        assert_eq!((tcp.source_port, tcp.destination_port, tcp.sequence_number), (10_007, 5001, 2921));
        assert_eq!(first.data[20..].len(), 20);
        let sliced = SlicedPacket::from_ip(&second.data).unwrap();
        assert!(sliced.transport.is_some());
        let tcp = TcpHeader::from_slice(&second.data[20..]).unwrap().0;
        assert_eq!((tcp.acknowledgment_number, tcp.ece), (4381, true));
    }
}
