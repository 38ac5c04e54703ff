//! Strict priorities: what waits in a class goes before all of the classes after it.

use super::Marking;
use crate::packet::{Kind, Packet};
use std::collections::VecDeque;
use weir_endhost::tagging::CLASSES;

/// A packet that waits. What the port needs of it is here: a packet that has waited for long is in no cache.
#[derive(Clone, Copy, Debug)]
struct Waits {
    place: u32,
    bytes: u16,
}

/// Packets of a class, first come first served.
#[derive(Default)]
struct Fifo {
    waiting: VecDeque<Waits>,
    bytes: u32,
}

/// The queues of a port.
pub(super) struct Classes {
    fifos: [Fifo; CLASSES],
    /// Which have packets: bit 0 is class 0.
    occupied: u8,
    bytes: u64,
    first: Marking,
    others: Marking,
    /// Bytes that are kept for the first class.
    reserved: u64,
}

impl Classes {
    pub(super) fn new(first: Marking, others: Marking, reserved: u64) -> Classes {
        Classes { fifos: Default::default(), occupied: 0, bytes: 0, first, others, reserved }
    }

    /// Bytes that wait, and those kept for the first class that it does not use.
    #[inline]
    pub(super) fn held(&self) -> u64 {
        self.bytes + self.reserved.saturating_sub(u64::from(self.fifos[0].bytes))
    }

    /// By how much [`Classes::held`] grows with a packet.
    #[inline]
    pub(super) fn holds_more_with(&self, packet: &Packet) -> u64 {
        let bytes = u64::from(packet.bytes);
        let kept = self.reserved.saturating_sub(u64::from(self.fifos[0].bytes));
        // A packet of the first class fills the unused reserve first, which is held already.
        if packet.class == 0 { bytes.saturating_sub(kept) } else { bytes }
    }

    /// Puts a packet at the end of its class. Whether it was marked.
    #[inline]
    pub(super) fn push(&mut self, packet: &mut Packet, place: u32) -> bool {
        let class = usize::from(packet.class).min(CLASSES - 1);
        let fifo = &mut self.fifos[class];
        // Data alone is capable of marks (RFC 3168, section 6.1.4); what an acknowledgement bears is the receiver's echo.
        // The packet itself does not count: the threshold is compared with the queue that it finds.
        let marked = packet.kind == Kind::Data
            && match if class == 0 { self.first } else { self.others } {
                Marking::Off => false,
                Marking::PerQueue(threshold) => u64::from(fifo.bytes) >= threshold.0,
                Marking::PerPort(threshold) => self.bytes >= threshold.0,
            };
        packet.marked |= marked;
        let bytes = u32::from(packet.bytes);
        fifo.bytes += bytes;
        self.bytes += u64::from(bytes);
        self.occupied |= 1 << class;
        fifo.waiting.push_back(Waits { place, bytes: packet.bytes });
        marked
    }

    /// Takes the first packet of the first class out: its place, and its bytes.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<(u32, u16)> {
        let fifo = self.fifos.get_mut(self.occupied.trailing_zeros() as usize)?;
        let Waits { place, bytes } = fifo.waiting.pop_front()?;
        fifo.bytes -= u32::from(bytes);
        self.bytes -= u64::from(bytes);
        if fifo.waiting.is_empty() {
            // The next begins at the front again, which is in the caches.
            fifo.waiting.clear();
            // The lowest bit is this class.
            self.occupied &= self.occupied - 1;
        }
        Some((place, bytes))
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.occupied == 0
    }
    #[inline]
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}
