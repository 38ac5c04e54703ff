//! What follows the headers that have bodies, and what a receiver tells the agent that serves it.

use super::array;
use crate::data::{DecodeError, MAGIC};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Bytes of a [`Hello`].
pub const HELLO_BYTES: usize = 16;
/// Bytes of an [`Open`].
pub const OPEN_BYTES: usize = 28;
/// First bytes of a [`RelayPath`].
pub const PATH_MAGIC: [u8; 4] = *b"WRLY";
/// Bytes of a [`RelayPath`].
pub const PATH_BYTES: usize = 36;
/// Version of a [`RelayPath`].
const PATH_VERSION: u8 = 1;
/// Bytes of an address: as IPv6, then the port.
const ADDRESS_BYTES: usize = 18;

/// What kind of peer connects to a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A relay that sends on: one of several parallel connections.
    Relay,
    /// The agent of a source host: this connection is one flow's.
    Host,
    /// A receiver, which subscribes to its flows.
    Receiver,
}

/// First on a connection to a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// What kind of peer connects.
    pub role: Role,
    /// Of a relay: how many connections it makes, all with this session; they live and end together.
    pub connections: u8,
    /// Drawn at random by a relay each time it connects to its neighbour.
    pub session: u64,
}

impl Hello {
    /// The bytes that [`Hello::decode`] reads.
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = self.role as u8;
        bytes[5] = self.connections;
        bytes[8..].copy_from_slice(&self.session.to_le_bytes());
        bytes
    }

    /// Reads what [`Hello::encode`] wrote.
    ///
    /// # Errors
    /// The bytes do not begin with the relays' magic number, the role is unknown, or the number of connections is 0.
    pub fn decode(bytes: &[u8; HELLO_BYTES]) -> Result<Hello, DecodeError> {
        if bytes[..4] != MAGIC {
            return Err(DecodeError::Magic);
        }
        let role = match bytes[4] {
            0 => Role::Relay,
            1 => Role::Host,
            2 => Role::Receiver,
            _ => return Err(DecodeError::Field("role")),
        };
        if bytes[5] == 0 {
            return Err(DecodeError::Field("number of connections"));
        }
        Ok(Hello { role, connections: bytes[5], session: u64::from_le_bytes(array(bytes, 8)) })
    }
}

/// What a relay must know of a flow, beside its key and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// Site where the flow enters.
    pub source_site: u32,
    /// Site of its receiver.
    pub destination_site: u32,
    /// The relay that its receiver listens at.
    pub destination: SocketAddr,
}

impl Open {
    /// The bytes that [`Open::decode`] reads.
    pub fn encode(&self) -> [u8; OPEN_BYTES] {
        let mut bytes = [0; OPEN_BYTES];
        bytes[..4].copy_from_slice(&self.source_site.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.destination_site.to_le_bytes());
        bytes[8..8 + ADDRESS_BYTES].copy_from_slice(&encode_address(self.destination));
        bytes
    }

    /// Reads what [`Open::encode`] wrote.
    ///
    /// # Errors
    /// The destination has port 0 or an unspecified address.
    pub fn decode(bytes: &[u8; OPEN_BYTES]) -> Result<Open, DecodeError> {
        Ok(Open {
            source_site: u32::from_le_bytes(array(bytes, 0)),
            destination_site: u32::from_le_bytes(array(bytes, 4)),
            destination: decode_address(array(bytes, 8))?,
        })
    }
}

/// Sent by a receiver to the agent that holds a block, right before its request: the block may come by way of
/// relays. An agent that does so answers `Relayed`, and its frames come from `relay` under the key (coflow and group
/// of the request, `mapper`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayPath {
    /// Number of the receiver's site.
    pub site: u32,
    /// Drawn at random, so that no earlier attempt's bytes are taken for this one's.
    pub mapper: u32,
    /// Where the receiver subscribes.
    pub relay: SocketAddr,
}

impl RelayPath {
    /// The bytes that [`RelayPath::decode`] reads.
    pub fn encode(&self) -> [u8; PATH_BYTES] {
        // Three bytes behind the version and two at the end stay zero: room that no reader looks
        // at.
        let mut bytes = [0; PATH_BYTES];
        bytes[..4].copy_from_slice(&PATH_MAGIC);
        bytes[4] = PATH_VERSION;
        bytes[8..12].copy_from_slice(&self.site.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.mapper.to_le_bytes());
        bytes[16..16 + ADDRESS_BYTES].copy_from_slice(&encode_address(self.relay));
        bytes
    }

    /// Decodes a path from the front of `bytes`: `None` if none begins there, `Some(None)` if more bytes are
    /// needed to tell.
    ///
    /// # Errors
    /// The version is unknown, or the relay has port 0 or an unspecified address.
    pub fn decode(bytes: &[u8]) -> Result<Option<Option<RelayPath>>, DecodeError> {
        let known = bytes.len().min(PATH_MAGIC.len());
        // With no byte there yet, it may still become a path.
        if known > 0 && bytes[..known] != PATH_MAGIC[..known] {
            return Ok(None);
        }
        if let Some(&version) = bytes.get(4)
            && version != PATH_VERSION
        {
            return Err(DecodeError::Version(version));
        }
        let Some(bytes) = bytes.first_chunk::<PATH_BYTES>() else { return Ok(Some(None)) };
        Ok(Some(Some(RelayPath {
            site: u32::from_le_bytes(array(bytes, 8)),
            mapper: u32::from_le_bytes(array(bytes, 12)),
            relay: decode_address(array(bytes, 16))?,
        })))
    }
}

fn encode_address(address: SocketAddr) -> [u8; ADDRESS_BYTES] {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut bytes = [0; ADDRESS_BYTES];
    bytes[..16].copy_from_slice(&ip.octets());
    bytes[16..].copy_from_slice(&address.port().to_le_bytes());
    bytes
}

/// IPv4 addresses come as IPv6 ones that stand for them.
fn decode_address(bytes: [u8; ADDRESS_BYTES]) -> Result<SocketAddr, DecodeError> {
    let ip = Ipv6Addr::from(array::<16>(&bytes, 0)).to_canonical();
    let port = u16::from_le_bytes(array(&bytes, 16));
    // Linux takes a connection to the unspecified address as one to the own machine: the relay
    // would dial itself.
    if port == 0 || ip.is_unspecified() {
        return Err(DecodeError::Field("address of a relay"));
    }
    Ok(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bodies_survive_the_wire(
            ip: [u8; 4], port in 1u16.., session: u64, connections in 1u8.., sites: [u32; 2], mapper: u32, role in 0..3,
        ) {
            prop_assume!(ip != [0; 4]);
            let role = [Role::Relay, Role::Host, Role::Receiver][role as usize];
            let hello = Hello { role, connections, session };
            prop_assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
            let destination = SocketAddr::from((ip, port));
            let open = Open { source_site: sites[0], destination_site: sites[1], destination };
            prop_assert_eq!(Open::decode(&open.encode()), Ok(open));
            let path = RelayPath { site: sites[0], mapper, relay: destination };
            let bytes = path.encode();
            for cut in 0..bytes.len() {
                prop_assert_eq!(RelayPath::decode(&bytes[..cut]), Ok(Some(None)));
            }
            prop_assert_eq!(RelayPath::decode(&bytes), Ok(Some(Some(path))));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 64..80), real: bool) {
            let mut bytes = bytes;
            if real {
                bytes[..4].copy_from_slice(&PATH_MAGIC);
            }
            let _ = RelayPath::decode(&bytes);
            let _ = Hello::decode(&array(&bytes, 0));
            let _ = Open::decode(&array(&bytes, 0));
        }
    }

    #[test]
    fn a_request_is_told_from_a_path() {
        assert_eq!(RelayPath::decode(&MAGIC), Ok(None));
        assert_eq!(RelayPath::decode(b"W"), Ok(Some(None)));
        assert_eq!(RelayPath::decode(b"WRLY\x02"), Err(DecodeError::Version(2)));
    }

    #[test]
    fn nobody_is_sent_to_an_address_that_is_none() {
        let path = RelayPath { site: 1, mapper: 2, relay: SocketAddr::from(([10, 0, 0, 1], 1)) };
        let mut bytes = path.encode();
        bytes[32..34].copy_from_slice(&[0; 2]);
        assert!(RelayPath::decode(&bytes).is_err());
    }
}
