//! Looking at a run: packets on links, bytes at receivers, queues and windows from time to time.

use crate::control::WindowEnded;
use crate::flow::Flow;
use crate::packet::{Kind, Packet};
use crate::port::PortCounts;
use crate::time::Picos;
use weir_model::Bytes;

/// A packet as an observer sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketSeen {
    /// The port that sends or drops it.
    pub port: u32,
    /// Its flow, by its number: that of its record.
    pub flow: u64,
    /// The host that it comes from.
    pub source: u32,
    /// The host that it goes to.
    pub destination: u32,
    /// The segment that it carries, or that it answers.
    pub segment: u32,
    /// Of an acknowledgement: all segments before this one are there.
    pub expected: u32,
    /// Bytes on the wire.
    pub bytes: u16,
    /// It is an acknowledgement.
    pub is_ack: bool,
    /// Strict priority, 0 first.
    pub class: u8,
    /// It met a queue above its threshold, or its segment did.
    pub marked: bool,
}

impl PacketSeen {
    pub(crate) fn of(packet: &Packet, flow: &Flow, port: u32) -> PacketSeen {
        let is_ack = packet.kind == Kind::Ack;
        let (from, to) = (flow.source(), flow.destination());
        let (source, destination) = if is_ack { (to, from) } else { (from, to) };
        PacketSeen {
            port,
            flow: flow.number,
            source,
            destination,
            segment: packet.segment,
            expected: packet.expected,
            bytes: packet.bytes,
            is_ack,
            class: packet.class,
            marked: packet.marked,
        }
    }
}

/// A flow as an observer sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowSeen {
    /// Its number, that of its record.
    pub flow: u64,
    /// Its window, in segments.
    pub window: f64,
    /// Segments sent again so far.
    pub retransmitted: u32,
    /// Retransmission timeouts so far.
    pub timeouts: u32,
}

impl FlowSeen {
    pub(crate) fn of(flow: &Flow) -> FlowSeen {
        let sender = &flow.sender;
        let window = sender.control.allowance().window;
        FlowSeen {
            flow: flow.number,
            window,
            retransmitted: sender.retransmitted,
            timeouts: sender.all_timeouts,
        }
    }
}

/// Sees what happens in a run, and changes nothing.
pub trait Observer {
    /// How often queues and windows are sampled; never if none.
    fn sample_every(&self) -> Option<Picos> {
        None
    }
    /// A port begins to send a packet.
    fn sent(&mut self, _packet: &PacketSeen, _now: Picos) {}
    /// A port drops a packet.
    fn dropped(&mut self, _packet: &PacketSeen, _now: Picos) {}
    /// Bytes of a flow have arrived for the first time.
    fn delivered(&mut self, _flow: u64, _bytes: u32, _now: Picos) {}
    /// A sender's control has ended a window, of those controls that tell.
    fn window_ended(&mut self, _flow: u64, _window: &WindowEnded, _now: Picos) {}
    /// What waits at a port, and what it did since the beginning.
    fn sampled_port(&mut self, _port: u32, _queued: Bytes, _counts: &PortCounts, _now: Picos) {}
    /// A flow that is not complete.
    fn sampled_flow(&mut self, _flow: &FlowSeen, _now: Picos) {}
    /// All of a flow is acknowledged.
    fn ended(&mut self, _flow: &FlowSeen, _now: Picos) {}
    /// The sample is complete.
    fn sampled(&mut self, _now: Picos) {}
}

/// Two that see the same.
impl<A: Observer, B: Observer> Observer for (A, B) {
    fn sample_every(&self) -> Option<Picos> {
        match (self.0.sample_every(), self.1.sample_every()) {
            // The observer with the longer interval gets more samples than it asked for.
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }
    fn sent(&mut self, packet: &PacketSeen, now: Picos) {
        self.0.sent(packet, now);
        self.1.sent(packet, now);
    }
    fn dropped(&mut self, packet: &PacketSeen, now: Picos) {
        self.0.dropped(packet, now);
        self.1.dropped(packet, now);
    }
    fn delivered(&mut self, flow: u64, bytes: u32, now: Picos) {
        self.0.delivered(flow, bytes, now);
        self.1.delivered(flow, bytes, now);
    }
    fn window_ended(&mut self, flow: u64, window: &WindowEnded, now: Picos) {
        self.0.window_ended(flow, window, now);
        self.1.window_ended(flow, window, now);
    }
    fn sampled_port(&mut self, port: u32, queued: Bytes, counts: &PortCounts, now: Picos) {
        self.0.sampled_port(port, queued, counts, now);
        self.1.sampled_port(port, queued, counts, now);
    }
    fn sampled_flow(&mut self, flow: &FlowSeen, now: Picos) {
        self.0.sampled_flow(flow, now);
        self.1.sampled_flow(flow, now);
    }
    fn ended(&mut self, flow: &FlowSeen, now: Picos) {
        self.0.ended(flow, now);
        self.1.ended(flow, now);
    }
    fn sampled(&mut self, now: Picos) {
        self.0.sampled(now);
        self.1.sampled(now);
    }
}

/// One that may not be there.
impl<A: Observer> Observer for Option<A> {
    fn sample_every(&self) -> Option<Picos> {
        self.as_ref().and_then(Observer::sample_every)
    }
    fn sent(&mut self, packet: &PacketSeen, now: Picos) {
        if let Some(observer) = self {
            observer.sent(packet, now);
        }
    }
    fn dropped(&mut self, packet: &PacketSeen, now: Picos) {
        if let Some(observer) = self {
            observer.dropped(packet, now);
        }
    }
    fn delivered(&mut self, flow: u64, bytes: u32, now: Picos) {
        if let Some(observer) = self {
            observer.delivered(flow, bytes, now);
        }
    }
    fn window_ended(&mut self, flow: u64, window: &WindowEnded, now: Picos) {
        if let Some(observer) = self {
            observer.window_ended(flow, window, now);
        }
    }
    fn sampled_port(&mut self, port: u32, queued: Bytes, counts: &PortCounts, now: Picos) {
        if let Some(observer) = self {
            observer.sampled_port(port, queued, counts, now);
        }
    }
    fn sampled_flow(&mut self, flow: &FlowSeen, now: Picos) {
        if let Some(observer) = self {
            observer.sampled_flow(flow, now);
        }
    }
    fn ended(&mut self, flow: &FlowSeen, now: Picos) {
        if let Some(observer) = self {
            observer.ended(flow, now);
        }
    }
    fn sampled(&mut self, now: Picos) {
        if let Some(observer) = self {
            observer.sampled(now);
        }
    }
}
