//! Output ports: a link, and the packets that wait for it.

mod allocator;
mod classes;
mod line;
mod ranked;

pub(crate) use allocator::{Allocator, Given};

use crate::packet::{HEADER_BYTES, SEGMENT_BYTES};
use crate::packet::{Packet, Packets, Route};
use crate::setup::{Buffer, Discipline, Marking, Setup};
use crate::time::{PerByte, Picos};

use classes::Classes;
use line::Line;
use ranked::Ranked;
use std::collections::BTreeMap;
use weir_model::{Bytes, Rate};

/// What a port is like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PortSpec {
    /// How fast it sends.
    pub rate: Rate,
    /// From the last bit sent until the packet may leave the next port, or is at its host.
    pub delay: Picos,
    /// The switch that it belongs to, by number; none for a port of a host.
    pub switch: Option<u32>,
}

/// Bytes that the ports of one memory hold: what waits, and what is reserved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) used: u64,
    pub(crate) buffer: Buffer,
}

impl Memory {
    /// Whether a port that holds so many bytes may hold so many more.
    #[inline]
    fn admits(&self, held: u64, more: u64) -> bool {
        match self.buffer {
            Buffer::PerPort(most) => held + more <= most.0,
            Buffer::Shared { all, share } => {
                let free = all.0.saturating_sub(self.used);
                // Both conditions: with a share above 1 a port's own limit may be more than what is free.
                more <= free && (held + more) as f64 <= share * free as f64
            }
        }
    }
}

/// What waits, in the order of the port's discipline.
#[expect(clippy::large_enum_variant, reason = "ports are few, and all of a run are alike")]
enum Waiting {
    /// Classes of which one is used, where the port's buffer is its own.
    Line(Line),
    Classes(Classes),
    Ranked(Ranked),
}

/// What became of packets at a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounts {
    /// Packets sent, acknowledgements and probes included.
    pub sent: u64,
    /// Bytes of these packets on the wire, headers included.
    pub bytes: u64,
    /// Packets dropped where the buffer had no room.
    pub dropped: u64,
    /// Packets marked because of the queue (ECN).
    pub marked: u64,
}

/// When a packet leaves.
pub(crate) struct Leaves {
    /// Begins to be sent.
    pub(crate) start: Picos,
    /// Is at the end of its link.
    pub(crate) arrival: Picos,
    /// Comes after what others send from the same start on.
    pub(crate) late: bool,
}

pub(crate) struct Port {
    per_byte: PerByte,
    delay: Picos,
    /// Until when it sends what it sends.
    pub(crate) busy_until: Picos,
    /// How long before a packet that need not wait here its cause was on the way: a segment to a switch, an
    /// acknowledgement to a host.
    cause: Picos,
    /// When the last of its line begins to be sent.
    last_start: Picos,
    /// An event is to come when it may send the next.
    pub(crate) wakes: bool,
    waiting: Waiting,
    pub(crate) memory: u32,
    /// Those that wait in a line are among those sent.
    counts: PortCounts,
}

impl Port {
    fn new(spec: &PortSpec, setup: &Setup, classes: usize, memory: u32) -> Port {
        // Ports that share a memory have to know of each other's packets when they leave.
        let waiting = match (setup.discipline, setup.buffer) {
            (Discipline::Classes { first, reserved: Bytes(0), .. }, Buffer::PerPort(most))
                if classes == 1 =>
            {
                Waiting::Line(Line::new(first, most))
            }
            (Discipline::Classes { first, others, reserved }, _) => {
                Waiting::Classes(Classes::new(first, others, reserved.0))
            }
            (Discipline::Ranked, _) => Waiting::Ranked(Ranked::default()),
        };
        let per_byte = PerByte::at(spec.rate);
        let payload = if spec.switch.is_some() { SEGMENT_BYTES } else { 0 };
        Port {
            per_byte,
            delay: spec.delay,
            busy_until: Picos::ZERO,
            cause: per_byte.of(payload + HEADER_BYTES) + spec.delay,
            last_start: Picos::ZERO,
            wakes: false,
            waiting,
            memory,
            counts: PortCounts::default(),
        }
    }

    /// Sends a packet from now on; when it is at the end of its link.
    #[inline]
    pub(crate) fn send(&mut self, bytes: u16, now: Picos) -> Picos {
        self.busy_until = now + self.per_byte.of(u32::from(bytes));
        self.counts.sent += 1;
        self.counts.bytes += u64::from(bytes);
        self.busy_until + self.delay
    }

    /// How much may wait in the port's line, if packets wait in one: for it there is [`Port::line_up`] alone.
    #[inline]
    pub(crate) fn line(&self) -> Option<Bytes> {
        match &self.waiting {
            Waiting::Line(line) => Some(line.most),
            Waiting::Classes(_) | Waiting::Ranked(_) => None,
        }
    }

    /// Puts a packet in the port's line. When it leaves; never if there is no room for it.
    #[inline]
    pub(crate) fn line_up(&mut self, packet: &mut Packet, now: Picos) -> Option<Leaves> {
        let start = self.busy_until.max(now);
        if start > now {
            let Waiting::Line(line) = &mut self.waiting else { return None };
            let Some(marked) = line.push(packet, start, now, self.per_byte) else {
                self.counts.dropped += 1;
                return None;
            };
            self.counts.marked += u64::from(marked);
        }
        // Were its start an event, that would be put in when the packet is the next; so would the start of another be
        // with that one's cause. The older goes first.
        let late = start > now && self.last_start.max(now) + self.cause > start;
        self.last_start = start;
        Some(Leaves { start, arrival: self.send(packet.bytes, start), late })
    }

    /// Whether a packet can be sent at once.
    #[inline]
    pub(crate) fn free_at(&self, now: Picos) -> bool {
        // At the moment when the port becomes free, packets that wait there go before one that arrives now.
        self.busy_until <= now && !self.wakes
    }

    /// Lets a packet wait. The packet that the port drops for it, if any, is taken out; it may be this one.
    #[inline]
    pub(crate) fn wait(&mut self, packets: &mut Packets, memory: &mut Memory, place: u32) -> Option<u32> {
        let packet = packets.get_mut(place);
        match &mut self.waiting {
            Waiting::Line(_) => Some(place),
            Waiting::Classes(classes) => {
                let more = classes.holds_more_with(packet);
                if more > 0 && !memory.admits(classes.held(), more) {
                    self.counts.dropped += 1;
                    return Some(place);
                }
                memory.used += more;
                self.counts.marked += u64::from(classes.push(packet, place));
                None
            }
            Waiting::Ranked(ranked) => {
                let bytes = u64::from(packet.bytes);
                // The packet is put in before the worst is taken out, as it may be the worst itself.
                let admitted = memory.admits(ranked.bytes(), bytes);
                memory.used += bytes;
                ranked.push(packet, place);
                if admitted {
                    return None;
                }
                let (worst, bytes) = ranked.drop_worst()?;
                self.counts.dropped += 1;
                memory.used -= u64::from(bytes);
                Some(worst)
            }
        }
    }

    /// Takes out what is to be sent next: its place, and its bytes.
    #[inline]
    pub(crate) fn next(&mut self, memory: &mut Memory) -> Option<(u32, u16)> {
        let held = self.held();
        let next = match &mut self.waiting {
            Waiting::Line(_) => None,
            Waiting::Classes(classes) => classes.pop(),
            Waiting::Ranked(ranked) => ranked.pop(),
        }?;
        // Not the packet's bytes: what a packet of the first class frees of the reserve stays held for that class.
        memory.used -= held - self.held();
        Some(next)
    }

    /// Whether nothing waits that [`Port::next`] would take out.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        match &self.waiting {
            Waiting::Line(_) => true,
            Waiting::Classes(classes) => classes.is_empty(),
            Waiting::Ranked(ranked) => ranked.is_empty(),
        }
    }

    /// Bytes of its memory that are not for others.
    fn held(&self) -> u64 {
        match &self.waiting {
            Waiting::Line(_) => 0,
            Waiting::Classes(classes) => classes.held(),
            Waiting::Ranked(ranked) => ranked.bytes(),
        }
    }

    #[inline]
    pub(crate) fn queued(&self, now: Picos) -> Bytes {
        match &self.waiting {
            Waiting::Line(line) => Bytes(line.waits(now, self.per_byte).1),
            Waiting::Classes(classes) => Bytes(classes.bytes()),
            Waiting::Ranked(ranked) => Bytes(ranked.bytes()),
        }
    }
}

impl Port {
    /// What became of packets until now.
    pub(crate) fn counts(&self, now: Picos) -> PortCounts {
        let Waiting::Line(line) = &self.waiting else { return self.counts };
        let (packets, bytes) = line.waits(now, self.per_byte);
        PortCounts { sent: self.counts.sent - packets, bytes: self.counts.bytes - bytes, ..self.counts }
    }
}

/// All ports of a network, and the memories that they share: a switch's if its ports share one, else each its own.
/// Ports of hosts share nothing.
pub(crate) fn build(specs: &[PortSpec], setup: &Setup, classes: usize) -> (Vec<Port>, Vec<Memory>) {
    let shares = matches!(setup.buffer, Buffer::Shared { .. });
    let mut memories = Vec::new();
    let mut of_switch = BTreeMap::new();
    let mut add = |buffer| {
        memories.push(Memory { used: 0, buffer });
        (memories.len() - 1) as u32
    };
    let ports: Vec<Port> = specs
        .iter()
        .map(|spec| {
            let memory = match (spec.switch, setup.buffer) {
                (Some(switch), buffer) if shares => *of_switch.entry(switch).or_insert_with(|| add(buffer)),
                (_, Buffer::Shared { all, .. }) => add(Buffer::PerPort(all)),
                (_, buffer) => add(buffer),
            };
            Port::new(spec, setup, classes, memory)
        })
        .collect();
    for port in &ports {
        // Bytes reserved for the first class count as used from the beginning.
        memories[port.memory as usize].used += port.held();
    }
    (ports, memories)
}

/// What gives rates at each port, if the transport asks for it.
pub(crate) fn allocators(specs: &[PortSpec], setup: &Setup) -> Vec<Allocator> {
    let Some(giving) = setup.gives else { return Vec::new() };
    specs.iter().map(|spec| Allocator::new(giving, spec.rate)).collect()
}

impl Route {
    /// By these ports, in this order.
    pub(crate) fn through(ports: &[u32]) -> Route {
        let mut route = Route { hops: ports.len() as u8, ..Route::default() };
        for (to, &port) in route.ports.iter_mut().zip(ports) {
            *to = port as u16;
        }
        route
    }
}
