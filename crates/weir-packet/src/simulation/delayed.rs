//! Acknowledgements that wait for others (RFC 5681, section 4.2), where a transport has its receivers do that.

use super::{ACK_BYTES, ACK_CLASS, Simulation};
use crate::event::What;
use crate::packet::{Kind, Packet, Word};
use crate::receiver::{Acknowledging, Held};

impl Simulation<'_> {
    /// With delayed acknowledgements: answers now, or later with others.
    pub(super) fn reply(&mut self, place: u32, packet: &Packet, in_order: bool, expected: u32) {
        let held = Held { segment: packet.segment, expected, marked: packet.marked, sent: packet.sent };
        // The last acknowledgement is never held back: no segment follows that would release it before the time limit.
        let last = expected >= self.flows.get(packet.flow).sender.segments;
        let reply = self.flows.get_mut(packet.flow).receiver.reply(held, in_order && !last);
        if let Some(before) = reply.held {
            self.acknowledge_held(packet.flow, &before);
        }
        if reply.now {
            self.acknowledge(place, expected, 1);
        } else {
            // The receiver keeps what its acknowledgement has to say; a new packet is made of it
            // when that goes.
            self.packets.remove(place);
            self.flows.get_mut(packet.flow).in_network -= 1;
        }
        if let (true, Acknowledging::Delayed(span)) = (reply.wait, self.setup.acknowledging) {
            let until = self.now + span;
            let receiver = &mut self.flows.get_mut(packet.flow).receiver;
            receiver.hold_until = until;
            // One event at a time for each receiver: when it comes too early it is put in again for `hold_until`.
            if !receiver.hold_set {
                receiver.hold_set = true;
                self.push(until, What::DelayedAck, packet.flow);
            }
        }
    }

    pub(super) fn on_delayed_ack(&mut self, place: u32) {
        let receiver = &mut self.flows.get_mut(place).receiver;
        if receiver.hold_until > self.now {
            let at = receiver.hold_until;
            self.push(at, What::DelayedAck, place);
            return;
        }
        receiver.hold_set = false;
        if let Some(held) = receiver.release() {
            self.acknowledge_held(place, &held);
        }
        self.flows.forget_if_over(place);
    }

    fn acknowledge_held(&mut self, place: u32, held: &Held) {
        self.flows.get_mut(place).in_network += 1;
        let packet = self.packets.add(Packet {
            sent: held.sent,
            rank: 0,
            flow: place,
            segment: held.segment,
            expected: 0,
            bytes: ACK_BYTES,
            covers: 1,
            // `acknowledge` makes an acknowledgement of it, and sets what is left out here.
            kind: Kind::Data,
            word: Word::None,
            class: ACK_CLASS,
            marked: held.marked,
            hop: 0,
            route: Default::default(),
        });
        self.acknowledge(packet, held.expected, 1);
    }
}
