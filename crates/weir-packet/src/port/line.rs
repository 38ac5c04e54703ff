//! One queue, first come first served: when a packet leaves is known when it comes, so that nothing has to happen in
//! between.
//!
//! What waits at a moment is what has not begun to be sent by then. A packet that begins at this very moment still
//! waits for those that come at it: in a network of one speed the event of its beginning would come after theirs, as it
//! would have been put in later.

use super::Marking;
use crate::packet::{Kind, Packet};
use crate::time::{PerByte, Picos};
use std::collections::VecDeque;
use weir_model::Bytes;

pub(super) struct Line {
    /// Their bytes, in order.
    waiting: VecDeque<u16>,
    bytes: u64,
    /// When the first of them begins to be sent.
    next_start: Picos,
    marking: Marking,
    pub(super) most: Bytes,
}

impl Line {
    /// Of at most so many bytes.
    pub(super) fn new(marking: Marking, most: Bytes) -> Line {
        Line { waiting: VecDeque::new(), bytes: 0, next_start: Picos::ZERO, marking, most }
    }

    /// Lets those go that have begun to be sent.
    #[inline]
    fn advance(&mut self, now: Picos, per_byte: PerByte) {
        while self.next_start < now
            && let Some(bytes) = self.waiting.pop_front()
        {
            self.bytes -= u64::from(bytes);
            self.next_start += per_byte.of(u32::from(bytes));
        }
    }

    /// Puts a packet at the end, which begins to be sent at `start`, later than now. Whether it was marked; none if there
    /// is no room for it.
    #[inline]
    pub(super) fn push(
        &mut self,
        packet: &mut Packet,
        start: Picos,
        now: Picos,
        per_byte: PerByte,
    ) -> Option<bool> {
        self.advance(now, per_byte);
        let bytes = u64::from(packet.bytes);
        if self.bytes + bytes > self.most.0 {
            return None;
        }
        // As in queues of classes: data alone is capable of marks.
        let marked = packet.kind == Kind::Data
            && match self.marking {
                Marking::Off => false,
                Marking::PerQueue(threshold) | Marking::PerPort(threshold) => self.bytes >= threshold.0,
            };
        packet.marked |= marked;
        if self.waiting.is_empty() {
            self.next_start = start;
        }
        self.waiting.push_back(packet.bytes);
        self.bytes += bytes;
        Some(marked)
    }

    /// Packets and bytes that wait.
    pub(super) fn waits(&self, now: Picos, per_byte: PerByte) -> (u64, u64) {
        let (mut packets, mut bytes, mut start) = (self.waiting.len() as u64, self.bytes, self.next_start);
        // What `advance` would take out by now, without taking it out: a port is asked by observers that may change nothing.
        for &first in &self.waiting {
            if start >= now {
                break;
            }
            packets -= 1;
            bytes -= u64::from(first);
            start += per_byte.of(u32::from(first));
        }
        (packets, bytes)
    }
}

#[cfg(test)]
mod tests {
    use crate::packet::{Kind, Packet, Packets, Word};
    use crate::port::{Port, PortSpec, build};
    use crate::receiver::Acknowledging;
    use crate::setup::Setup;
    use crate::setup::{Buffer, Discipline, Marking};
    use crate::time::Picos;
    use proptest::prelude::*;
    use weir_model::{Bytes, Rate};

    /// What becomes of a packet: when it is at the end of the link, and whether it is marked; or it is dropped.
    type Fate = Option<(Picos, bool)>;

    fn packet(bytes: u16, kind: Kind) -> Packet {
        Packet {
            sent: Picos::ZERO,
            rank: 0,
            flow: 0,
            segment: 0,
            expected: 0,
            bytes,
            covers: 0,
            kind,
            word: Word::None,
            class: 0,
            marked: false,
            hop: 0,
            route: Default::default(),
        }
    }

    /// A port, and what it shares.
    fn port(classes: usize, marking: Marking, buffer: u64) -> (Port, crate::port::Memory) {
        let setup = Setup {
            discipline: Discipline::Classes { first: marking, others: Marking::Off, reserved: Bytes(0) },
            buffer: Buffer::PerPort(Bytes(buffer)),
            acknowledging: Acknowledging::Each,
            ages_after: None,
            probes_after: None,
            gives: None,
        };
        let spec =
            PortSpec { rate: Rate::from_bits_per_sec(1e9), delay: Picos::from_micros(3), switch: Some(0) };
        let (mut ports, memories) = build(&[spec], &setup, classes);
        (ports.remove(0), memories[0])
    }

    /// By the queues of classes, and an event for each packet that is sent.
    fn by_events(arrivals: &[(Picos, Packet)], marking: Marking, buffer: u64) -> (Vec<Fate>, Vec<u64>) {
        let (mut port, mut memory) = port(2, marking, buffer);
        assert!(port.line().is_none());
        let mut packets = Packets::default();
        let mut fates = vec![None; arrivals.len()];
        let mut queues = Vec::new();
        for &(now, packet) in arrivals {
            // What comes at the moment in which another begins to be sent comes before.
            while port.wakes && port.busy_until < now {
                let at = port.busy_until;
                let (place, bytes) = port.next(&mut memory).expect("one that waits");
                fates[place as usize] = Some((port.send(bytes, at), packets.get(place).marked));
                port.wakes = !port.is_empty();
            }
            let place = packets.add(packet);
            queues.push(port.queued(now).0);
            if port.free_at(now) {
                fates[place as usize] = Some((port.send(packet.bytes, now), false));
            } else {
                port.wait(&mut packets, &mut memory, place);
                port.wakes = !port.is_empty();
            }
        }
        while let Some((place, bytes)) = port.next(&mut memory) {
            let at = port.busy_until;
            fates[place as usize] = Some((port.send(bytes, at), packets.get(place).marked));
        }
        (fates, queues)
    }

    fn by_line(arrivals: &[(Picos, Packet)], marking: Marking, buffer: u64) -> (Vec<Fate>, Vec<u64>) {
        let (mut port, _) = port(1, marking, buffer);
        assert_eq!(port.line(), Some(Bytes(buffer)));
        let mut one = |&(now, mut packet): &(Picos, Packet)| {
            let queued = port.queued(now).0;
            (port.line_up(&mut packet, now).map(|leaves| (leaves.arrival, packet.marked)), queued)
        };
        arrivals.iter().map(&mut one).unzip()
    }

    proptest! {
        #[test]
        fn a_line_is_a_queue_of_one_class(
            arrivals in proptest::collection::vec(
                // Gaps as they come, and such that a packet comes just when another is sent.
                (prop_oneof![Just(0), Just(12_000), 0..30_000_u64, 0..200_000_u64], any::<bool>(), 40..=1500_u16),
                1..80
            ),
            buffer in 0..30_000_u64,
            threshold in proptest::option::of(0..20_000_u64),
        ) {
            let mut now = 0;
            let arrivals: Vec<(Picos, Packet)> = arrivals
                .into_iter()
                .map(|(gap, data, bytes)| {
                    now += gap;
                    let full = if bytes % 2 == 0 { 1500 } else { bytes };
                    let (kind, bytes) = if data { (Kind::Data, full) } else { (Kind::Ack, 40) };
                    (Picos::from_nanos(now), packet(bytes, kind))
                })
                .collect();
            let marking = threshold.map_or(Marking::Off, |bytes| Marking::PerQueue(Bytes(bytes)));
            prop_assert_eq!(
                by_line(&arrivals, marking, buffer),
                by_events(&arrivals, marking, buffer)
            );
        }
    }
}
