//! Packets at ports: sent at once, later or never.
//!
//! Where a port has one line its packets' departures are known when they come, and nothing has to happen there. Elsewhere
//! a port that has sent a packet looks for the next.

use super::Simulation;
use crate::event::{Event, What};
use crate::flow::Flow;
use crate::observer::PacketSeen;

impl Simulation<'_> {
    /// A packet is to leave by a port: at once, later or never.
    #[inline]
    pub(super) fn enqueue(&mut self, at: u32, place: u32) {
        let port = &mut self.ports[at as usize];
        if port.line().is_some() {
            self.line_up(at, place);
            return;
        }
        if port.free_at(self.now) {
            let bytes = self.packets.get(place).bytes;
            self.transmit(at, place, bytes);
            return;
        }
        let memory = &mut self.memories[port.memory as usize];
        let dropped = port.wait(&mut self.packets, memory, place);
        // Nothing waits if the packet itself was dropped; then no event is needed.
        if !port.wakes && !port.is_empty() {
            port.wakes = true;
            let at_time = port.busy_until;
            self.push(at_time, What::PortFree, at);
        }
        if let Some(dropped) = dropped {
            self.lose(at, dropped);
        }
    }

    /// The same at a port that has one line.
    #[inline]
    fn line_up(&mut self, at: u32, place: u32) {
        // Lines exist only where one class is used.
        let packet = self.packets.get_mut(place);
        debug_assert!(packet.class == 0, "a class later than the last");
        let Some(leaves) = self.ports[at as usize].line_up(packet, self.now) else {
            self.lose(at, place);
            return;
        };
        self.events.push(Event { at: leaves.arrival, late: leaves.late, what: What::Arrival, whom: place });
        if self.observer.is_some() {
            if leaves.start > self.now {
                self.push(leaves.start, What::Sent, place);
            } else {
                self.show(at, place, false);
            }
        }
    }

    /// A packet that waited in a line, and that an observer is to see, begins to be sent.
    #[cold]
    pub(super) fn on_sent(&mut self, place: u32) {
        // Only runs with an observer have these events: the count is to be the same as without.
        self.counts.events -= 1;
        let route = &self.packets.get(place).route;
        let port = route.ports[usize::from(self.packets.get(place).hop)];
        self.show(u32::from(port), place, false);
    }

    #[inline]
    fn transmit(&mut self, at: u32, place: u32, bytes: u16) {
        let arrival = self.ports[at as usize].send(bytes, self.now);
        self.push(arrival, What::Arrival, place);
        if self.observer.is_some() {
            self.show(at, place, false);
        }
    }

    #[inline]
    pub(super) fn on_port_free(&mut self, at: u32) {
        let port = &mut self.ports[at as usize];
        let memory = &mut self.memories[port.memory as usize];
        port.wakes = false;
        let Some((place, bytes)) = port.next(memory) else { return };
        self.transmit(at, place, bytes);
        let port = &mut self.ports[at as usize];
        if !port.is_empty() {
            port.wakes = true;
            let at_time = port.busy_until;
            self.push(at_time, What::PortFree, at);
        }
    }

    fn lose(&mut self, at: u32, place: u32) {
        if self.observer.is_some() {
            self.show(at, place, true);
        }
        let flow = self.packets.get(place).flow;
        self.packets.remove(place);
        self.flows.get_mut(flow).in_network -= 1;
        self.flows.forget_if_over(flow);
    }

    /// Shows a packet that a port sends or drops.
    #[cold]
    fn show(&mut self, port: u32, place: u32, dropped: bool) {
        let packet = self.packets.get(place);
        let flow: &Flow = self.flows.get(packet.flow);
        let seen = PacketSeen::of(packet, flow, port);
        if let Some(observer) = &mut self.observer {
            if dropped { observer.dropped(&seen, self.now) } else { observer.sent(&seen, self.now) }
        }
    }
}
