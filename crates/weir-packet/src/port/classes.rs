//! Strict priorities: what waits in a class goes before all of the classes after it.

use super::{CLASSES, Marking};
use crate::packet::{NONE, Packet, Packets};

/// A list of packets, first come first served.
#[derive(Clone, Copy)]
struct Fifo {
    head: u32,
    tail: u32,
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
        let empty = Fifo { head: NONE, tail: NONE, bytes: 0 };
        Classes { fifos: [empty; CLASSES], occupied: 0, bytes: 0, first, others, reserved }
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
        if packet.class == 0 { bytes.saturating_sub(kept) } else { bytes }
    }

    /// Puts a packet at the end of its class. Whether it was marked.
    #[inline]
    pub(super) fn push(&mut self, packets: &mut Packets, place: u32) -> bool {
        let packet = packets.get_mut(place);
        let class = usize::from(packet.class).min(CLASSES - 1);
        let fifo = &mut self.fifos[class];
        let marked = match if class == 0 { self.first } else { self.others } {
            Marking::Off => false,
            Marking::PerQueue(threshold) => u64::from(fifo.bytes) >= threshold.0,
            Marking::PerPort(threshold) => self.bytes >= threshold.0,
        };
        packet.marked |= marked;
        packet.next = NONE;
        let bytes = u32::from(packet.bytes);
        fifo.bytes += bytes;
        self.bytes += u64::from(bytes);
        if fifo.tail == NONE {
            fifo.head = place;
            self.occupied |= 1 << class;
        } else {
            packets.get_mut(fifo.tail).next = place;
        }
        fifo.tail = place;
        marked
    }

    /// Takes the first packet of the first class out.
    #[inline]
    pub(super) fn pop(&mut self, packets: &Packets) -> Option<u32> {
        if self.occupied == 0 {
            return None;
        }
        let class = self.occupied.trailing_zeros() as usize;
        let fifo = &mut self.fifos[class];
        let place = fifo.head;
        let packet = packets.get(place);
        fifo.head = packet.next;
        fifo.bytes -= u32::from(packet.bytes);
        self.bytes -= u64::from(packet.bytes);
        if fifo.head == NONE {
            fifo.tail = NONE;
            self.occupied &= !(1 << class);
        }
        Some(place)
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
