//! Flows that ask ports on their way for a rate, and go at the least that they are given (D3, section 4).
//!
//! A flow has one request under way at a time. It rides on the next segment, or on a header alone if the flow pauses or
//! its next segment is more than a round trip away; each port adds what it gives, and the acknowledgement brings that
//! back. The last segment gives all back as it passes; so does a header, if a loss made more of it than one.
//!
//! **Departures.** There is no connection set-up for a first request to ride on, so a flow waits one round trip for its
//! first rate. All packets of a flow take one way, as D3 needs. What ports gave is kept in the flow's entry and not in its
//! packets: a request that is lost after it has passed a port leaves nothing behind there, where real ports would count the flow
//! twice until they are corrected.

use super::Simulation;
use crate::control::Ask;
use crate::packet::{HEADER_BYTES, SEGMENT_BYTES};
use crate::packet::{Kind, Packet, Word};
use crate::sender::Sender;
use crate::time::Picos;
use weir_model::Bytes;

/// Bytes on the wire that the sender has not sent.
fn unsent_wire(sender: &Sender) -> Bytes {
    let segments = u64::from(sender.unsent());
    if segments == 0 {
        return Bytes(0);
    }
    // The last segment, which may be short, counts as one of them, also where it is on its way and
    // an earlier one is lost.
    let last = u64::from(sender.payload(sender.segments - 1) + HEADER_BYTES);
    Bytes((segments - 1) * u64::from(SEGMENT_BYTES + HEADER_BYTES) + last)
}

/// When a flow may send its next segment; not while it pauses.
fn next_start(sender: &Sender, now: Picos) -> Option<Picos> {
    if sender.control.is_paused() {
        return None;
    }
    let gap = sender.control.allowance().gap;
    Some(sender.last_start.map_or(now, |start| start + gap))
}

impl Simulation<'_> {
    /// A packet of a flow that asks comes to a port.
    #[cold]
    pub(super) fn ask_port(&mut self, at: u32, place: u32) {
        let packet = self.packets.get(place);
        // An acknowledgement brings the word back to the sender, by ports of the other direction,
        // which the flow does not ask.
        if packet.kind == Kind::Ack || packet.word == Word::None {
            return;
        }
        let Some(requests) = &mut self.flows.get_mut(packet.flow).requests else { return };
        let (port, allocator) = (&self.ports[at as usize], &mut self.allocators[at as usize]);
        let given = &mut requests.given[usize::from(packet.hop)];
        if packet.word == Word::Leaves {
            allocator.take_back(given);
        } else {
            // First, so that the rate given is one of the capacity as it is now.
            allocator.adapt(self.now, port.counts(self.now).bytes, port.queued(self.now).0);
            allocator.give(given, requests.asks);
        }
    }

    /// What the packet that a flow sends now says to ports.
    #[cold]
    pub(super) fn word(&mut self, place: u32) -> Word {
        let flow = self.flows.get_mut(place);
        let Some(requests) = &mut flow.requests else { return Word::None };
        if requests.stopped || flow.sender.unsent() == 0 {
            return if requests.is_counted() { Word::Leaves } else { Word::None };
        }
        if std::mem::replace(&mut requests.waits, true) { Word::None } else { Word::Asks }
    }

    /// Sends what a flow's rate lets go, and asks.
    #[cold]
    pub(super) fn send_at_given_rate(&mut self, place: u32) {
        while self.send_one(place) {}
        self.arm_timer(place);
        self.flows.forget_if_over(place);
    }

    /// Whether there may be more to send now.
    fn send_one(&mut self, place: u32) -> bool {
        let now = self.now;
        let usual_round_trip = self.network.round_trip;
        let flow = self.flows.get_mut(place);
        let Some(requests) = &mut flow.requests else { return false };
        let unsent = unsent_wire(&flow.sender);
        if requests.stopped || flow.sender.is_done() {
            self.give_all_back(place);
            return false;
        }
        if unsent == Bytes(0) {
            return false;
        }
        if !requests.waits {
            // Before the segment goes, as that may carry the request.
            match flow.sender.control.ask(unsent, now) {
                Ask::Rate(rate) => requests.asks = rate,
                Ask::Leave => {
                    // The next call gives back what ports hold for the flow.
                    requests.stopped = true;
                    return true;
                }
            }
        }
        let start = next_start(&flow.sender, now);
        if start.is_some_and(|start| start <= now) {
            let Some(segment) = flow.sender.take(now) else { return false };
            flow.sender.last_start = Some(now);
            self.send_segment(place, segment, Kind::Data);
            return true;
        }
        let soon = now + flow.sender.round_trip().unwrap_or(usual_round_trip);
        // No segment goes within a round trip that could carry the request: a header alone does.
        if !requests.waits && start.is_none_or(|start| start > soon) {
            let segment = flow.sender.unacked;
            self.send_segment(place, segment, Kind::Probe);
        }
        if let Some(start) = start {
            self.wait_to_send(place, start);
        }
        false
    }

    /// An acknowledgement has come back, and its sender has taken it in.
    #[cold]
    pub(super) fn on_answer(&mut self, packet: &Packet) {
        let place = packet.flow;
        let now = self.now;
        let flow = self.flows.get_mut(place);
        let Some(requests) = &mut flow.requests else { return };
        if packet.word != Word::None {
            requests.waits = false;
        }
        // `given` is kept per flow and has the newest answer of every port by now, so that the packet need not carry rates.
        if packet.word == Word::Asks
            && let Some(rate) = requests.least_given()
        {
            flow.sender.control.on_given(rate);
        }
        // A flow that pauses with nothing under way waits for its request alone.
        if !flow.sender.is_done() && flow.sender.in_flight() == 0 {
            flow.sender.timer = now + flow.sender.timeout();
        }
        self.send_at_given_rate(place);
    }

    /// A flow's timer has run out: what was under way is lost.
    pub(super) fn forget_request(&mut self, place: u32) {
        if let Some(requests) = &mut self.flows.get_mut(place).requests {
            requests.waits = false;
        }
    }

    /// Tells ports that a flow is over, if they do not know.
    fn give_all_back(&mut self, place: u32) {
        let flow = self.flows.get_mut(place);
        let Some(requests) = &mut flow.requests else { return };
        if !requests.is_counted() {
            flow.sender.timer = Picos::MAX;
            return;
        }
        if !std::mem::replace(&mut requests.waits, true) {
            let segment = flow.sender.unacked;
            self.send_segment(place, segment, Kind::Probe);
        }
    }
}
