//! pFabric's queue: the least rank goes first, the greatest is dropped. It holds few packets, so all are looked at, as
//! the paper proposes (section 4.3).

use crate::packet::Packets;

/// What waits, in the order of arrival.
#[derive(Default)]
pub(super) struct Ranked {
    waiting: Vec<u32>,
    bytes: u64,
}

impl Ranked {
    #[inline]
    pub(super) fn push(&mut self, packets: &Packets, place: u32) {
        self.waiting.push(place);
        self.bytes += u64::from(packets.get(place).bytes);
    }

    /// Takes out the packet to send: of the flow that has the packet of least rank (the first come, among equals), the
    /// earliest segment, so that ranks which fall as a flow goes on do not reorder it.
    pub(super) fn pop(&mut self, packets: &Packets) -> Option<u32> {
        let first = *self.waiting.first()?;
        let mut best = packets.get(first);
        for &place in &self.waiting[1..] {
            let packet = packets.get(place);
            if packet.rank < best.rank {
                best = packet;
            }
        }
        let (flow, kind) = (best.flow, best.kind);
        let mut index = None;
        let mut segment = u32::MAX;
        for (i, &place) in self.waiting.iter().enumerate() {
            let packet = packets.get(place);
            if packet.flow == flow && packet.kind == kind && (index.is_none() || packet.segment < segment) {
                (index, segment) = (Some(i), packet.segment);
            }
        }
        index.map(|index| self.take(packets, index))
    }

    /// Takes out the packet of the greatest rank; of several the last come.
    pub(super) fn drop_worst(&mut self, packets: &Packets) -> u32 {
        let rank = |i: usize| packets.get(self.waiting[i]).rank;
        let mut worst = 0;
        for i in 1..self.waiting.len() {
            if rank(i) >= rank(worst) {
                worst = i;
            }
        }
        self.take(packets, worst)
    }

    fn take(&mut self, packets: &Packets, index: usize) -> u32 {
        let place = self.waiting.remove(index);
        self.bytes -= u64::from(packets.get(place).bytes);
        place
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
