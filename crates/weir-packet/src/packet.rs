//! Packets in the network, and the table that they live in.

use crate::time::Picos;

/// Payload of a full segment.
pub const SEGMENT_BYTES: u32 = 1460;
/// Of TCP and IP, on every packet; an acknowledgement is nothing else.
pub const HEADER_BYTES: u32 = 40;
/// Segments of a flow of so many bytes; an empty flow is one byte.
pub(crate) fn segments_of(bytes: u64) -> u32 {
    u32::try_from(bytes.max(1).div_ceil(u64::from(SEGMENT_BYTES))).unwrap_or(u32::MAX)
}

/// Links that a packet passes at most: its host's, and those of five switches.
pub(crate) const MAX_HOPS: usize = 6;

/// The ports that a packet leaves by, from its host's to the last switch's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) ports: [u16; MAX_HOPS],
    pub(crate) hops: u8,
}

/// What a packet is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A segment with its payload.
    Data,
    /// The header of a segment alone: asks whether packets come through (pFabric, section 4.2).
    Probe,
    /// An acknowledgement of one segment or more.
    Ack,
}

/// What a packet says to the ports that it passes, where they give rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// It asks for nothing.
    None,
    /// Its flow asks for a rate, and gives the last one back.
    Asks,
    /// Its flow gives its rate back and needs no other.
    Leaves,
}

/// A packet: a cache line. Its flow's table entry has what all packets of a flow share.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Packet {
    /// When its sender handed it to its port; an acknowledgement brings back what its segment had.
    pub(crate) sent: Picos,
    /// What a ranked port orders by: the least goes first.
    pub(crate) rank: u64,
    pub(crate) flow: u32,
    /// The segment that it carries, or that it answers.
    pub(crate) segment: u32,
    /// Of an acknowledgement: all segments before this one are there.
    pub(crate) expected: u32,
    /// Bytes on the wire.
    pub(crate) bytes: u16,
    /// How many segments an acknowledgement is for.
    pub(crate) covers: u8,
    pub(crate) kind: Kind,
    /// An acknowledgement brings back what its segment said.
    pub(crate) word: Word,
    /// The strict priority in queues of classes: 0 first.
    pub(crate) class: u8,
    /// Met a queue above its threshold; of an acknowledgement: its segment did.
    pub(crate) marked: bool,
    /// Number of the links of its route that it has passed.
    pub(crate) hop: u8,
    pub(crate) route: Route,
}

/// What an acknowledgement says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    /// All segments before this one are there.
    pub(crate) expected: u32,
    /// The segment that it answers; none if it answers a probe.
    pub(crate) segment: Option<u32>,
    pub(crate) marked: bool,
    /// When that segment was sent.
    pub(crate) sent: Picos,
}

/// All packets that are in the network, by place; places are used again.
#[derive(Default)]
pub(crate) struct Packets {
    table: Vec<Packet>,
    free: Vec<u32>,
}

impl Packets {
    #[inline]
    pub(crate) fn add(&mut self, packet: Packet) -> u32 {
        if let Some(place) = self.free.pop() {
            self.table[place as usize] = packet;
            return place;
        }
        self.table.push(packet);
        (self.table.len() - 1) as u32
    }
    #[inline]
    pub(crate) fn remove(&mut self, place: u32) {
        self.free.push(place);
    }
    #[inline]
    pub(crate) fn get(&self, place: u32) -> &Packet {
        &self.table[place as usize]
    }
    #[inline]
    pub(crate) fn get_mut(&mut self, place: u32) -> &mut Packet {
        &mut self.table[place as usize]
    }
    /// Hops done by a packet, or anything if there is none.
    #[inline]
    pub(crate) fn peek_hop(&self, place: u32) -> u8 {
        self.table.get(place as usize).map_or(0, |packet| packet.hop)
    }
    /// How many there are.
    pub(crate) fn live(&self) -> usize {
        self.table.len() - self.free.len()
    }
    /// How many there ever were at a time.
    pub(crate) fn most(&self) -> usize {
        self.table.len()
    }
}
