//! pFabric's queue: the least rank goes first, the greatest is dropped. It holds few packets, so that the paper looks at
//! all of them (section 4.3); here they are kept in order of rank, and all are looked at once for the earliest segment.
//! A packet that comes drops one at most, so that a full port may hold a segment more than its buffer where the one dropped is small.

use crate::packet::{Kind, Packet};

/// A packet that waits. What is compared is here, so that looking at all reads one piece of memory.
#[derive(Clone, Copy, Debug)]
struct Waits {
    rank: u64,
    /// The segment, and below it how many packets came before since nothing waited last.
    order: u64,
    place: u32,
    flow: u32,
    bytes: u16,
    kind: Kind,
}

/// What waits: the greatest rank first, of equal ranks the last come.
#[derive(Default)]
pub(super) struct Ranked {
    waiting: Vec<Waits>,
    bytes: u64,
    /// Packets that came since nothing waited last; 2^32 are more than a minute's.
    came: u32,
}

impl Ranked {
    #[inline]
    pub(super) fn push(&mut self, packet: &Packet, place: u32) {
        let Packet { rank, flow, segment, bytes, kind, .. } = *packet;
        if self.waiting.is_empty() {
            self.came = 0;
        }
        let order = u64::from(segment) << 32 | u64::from(self.came);
        self.came = self.came.wrapping_add(1);
        self.bytes += u64::from(bytes);
        // In front of its equals: of equal ranks the last come is dropped first, and the first come is sent first.
        let before = self.waiting.partition_point(|other| other.rank > rank);
        self.waiting.insert(before, Waits { rank, order, place, flow, bytes, kind });
    }

    /// Takes out the packet to send: of the flow that has the packet of least rank (the first come, among equals), the
    /// earliest segment, so that ranks which fall as a flow goes on do not reorder it. Its place, and its bytes.
    pub(super) fn pop(&mut self) -> Option<(u32, u16)> {
        let &Waits { flow, kind, .. } = self.waiting.last()?;
        // All that waits is looked at: ports of pFabric hold few packets, two windows unless set
        // otherwise.
        let (mut index, mut earliest) = (0, u64::MAX);
        for (i, packet) in self.waiting.iter().enumerate() {
            if packet.flow == flow && packet.kind == kind && packet.order < earliest {
                (index, earliest) = (i, packet.order);
            }
        }
        Some(self.take(index))
    }

    /// Takes out the packet of the greatest rank; of several the last come. Its place, and its bytes.
    pub(super) fn drop_worst(&mut self) -> Option<(u32, u16)> {
        (!self.waiting.is_empty()).then(|| self.take(0))
    }

    fn take(&mut self, index: usize) -> (u32, u16) {
        let packet = self.waiting.remove(index);
        self.bytes -= u64::from(packet.bytes);
        (packet.place, packet.bytes)
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
    #[inline]
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}
