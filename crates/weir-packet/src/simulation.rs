//! The simulator: takes the next event, moves packets, lets senders and receivers act.
//!
//! A packet causes one event per link, its arrival at the end, and one more where others wait behind it, when its port
//! is free again and has to choose among them. Everything is a function of the topology, the transport and the flows: two runs are equal to the
//! picosecond.
//!
//! Its speed is that of memory: thousands of packets and flows are live, more than fit the first caches. So events are
//! small, ports know of what waits without looking at packets, and packets are read ahead of their events.

mod asking;
mod delayed;
mod links;

use crate::event::{Event, What, Wheel};
use crate::flow::Flows;
use crate::observer::{FlowSeen, Observer};
use crate::packet::{Answer, HEADER_BYTES};
use crate::packet::{Kind, Packet, Packets, Word};
use crate::port::{Allocator, Memory, Port, PortCounts};
use crate::receiver::Acknowledging;
use crate::record::{FlowRecord, RunCounts, Unfinished};
use crate::sender::Sender;
use crate::spans::{ideal, reach, spacing};
use crate::time::Picos;
use crate::topology::Topology;
use crate::transport::{Network, Setup, Transport};
use std::ops::Range;
use weir_trace::FlowArrival;

/// Acknowledgements go before all that is not in the first class.
const ACK_CLASS: u8 = 0;
const ACK_BYTES: u16 = HEADER_BYTES as u16;

/// A network, what moves in it, and what is to come.
pub struct Simulation<'a> {
    topology: &'a Topology,
    transport: Box<dyn Transport>,
    network: Network,
    setup: Setup,
    arrivals: Box<dyn Iterator<Item = (u64, FlowArrival)> + 'a>,
    next_arrival: Option<(u64, FlowArrival)>,
    observer: Option<&'a mut dyn Observer>,
    events: Wheel,
    packets: Packets,
    ports: Vec<Port>,
    /// What ports share; each host's port, and each port of a switch without shared memory, has its own.
    memories: Vec<Memory>,
    /// One for each port, or none.
    allocators: Vec<Allocator>,
    flows: Flows,
    now: Picos,
    counts: RunCounts,
    awaited: Option<Awaited>,
    /// The event that comes next, of a run that ended before it.
    later: Option<Event>,
}

/// Flows with which a run ends.
struct Awaited {
    numbers: Range<u64>,
    /// How many of them are to come or under way.
    left: u64,
}

impl<'a> Simulation<'a> {
    /// A network in which flows will arrive, in order of arrival. They are numbered from 0 in this order.
    pub fn new(
        topology: &'a Topology,
        transport: Box<dyn Transport>,
        network: Network,
        arrivals: impl Iterator<Item = FlowArrival> + 'a,
    ) -> Simulation<'a> {
        Simulation::numbered(topology, transport, network, (0..).zip(arrivals))
    }

    /// The same for flows that have numbers: each its own, in any order.
    pub fn numbered(
        topology: &'a Topology,
        mut transport: Box<dyn Transport>,
        network: Network,
        arrivals: impl Iterator<Item = (u64, FlowArrival)> + 'a,
    ) -> Simulation<'a> {
        // Before all else: PIAS and Karuna find the thresholds here that `sending` hands to flows.
        transport.prepare(&network);
        let setup = transport.setup(&network);
        let (ports, memories) =
            crate::port::build(topology.ports(), &setup, usize::from(transport.last_class()) + 1);
        let most_in_line = ports.iter().filter_map(Port::line).max();
        let allocators = crate::port::allocators(topology.ports(), &setup);
        let mut simulation = Simulation {
            topology,
            transport,
            network,
            setup,
            arrivals: Box::new(arrivals),
            next_arrival: None,
            observer: None,
            events: Wheel::new(
                reach(topology, most_in_line.unwrap_or_default()),
                spacing(topology, most_in_line.is_some()),
            ),
            packets: Packets::default(),
            ports,
            memories,
            allocators,
            flows: Flows::default(),
            now: Picos::ZERO,
            counts: RunCounts::default(),
            awaited: None,
            later: None,
        };
        simulation.await_arrival();
        simulation
    }

    /// Shows an observer all that happens.
    pub fn observe(&mut self, observer: &'a mut dyn Observer) {
        if let Some(every) = observer.sample_every() {
            self.push(self.now + every, What::Sample, 0);
        }
        self.observer = Some(observer);
    }

    /// Lets the run end when the last byte of each flow with these numbers has arrived, whatever else is under way then:
    /// flows that are measured are to meet others until they are done.
    pub fn end_with(&mut self, numbers: Range<u64>) {
        let left = numbers.end.saturating_sub(numbers.start);
        self.awaited = Some(Awaited { numbers, left });
    }

    /// Runs until nothing is left to happen or `until`, whichever comes first, and gives every flow to `sink` when its
    /// last byte has arrived.
    pub fn run(&mut self, until: Picos, sink: &mut dyn FnMut(FlowRecord)) -> RunCounts {
        while self.awaited.as_ref().is_none_or(|awaited| awaited.left > 0) {
            let Some(event) = self.later.take().or_else(|| self.events.pop()) else {
                if !self.events.open_next() {
                    break;
                }
                self.look_ahead();
                continue;
            };
            if event.at > until {
                (self.now, self.later) = (until, Some(event));
                break;
            }
            self.now = event.at;
            self.counts.events += 1;
            match event.what {
                What::Arrival => self.on_arrival(event.whom, sink),
                What::PortFree => self.on_port_free(event.whom),
                What::Timer => self.on_timer(event.whom),
                What::Pace => self.on_pace(event.whom),
                What::DelayedAck => self.on_delayed_ack(event.whom),
                What::FlowArrival => self.on_flow(),
                What::Sample => self.on_sample(),
                What::Sent => self.on_sent(event.whom),
            }
        }
        self.counts()
    }

    /// Reads the packets that the events of the open slot are about: the processor fetches them from memory all at once,
    /// and not each when its turn comes.
    fn look_ahead(&self) {
        // Only the `whom` of an arrival is a packet; for all other events place 0 is read.
        let place = |event: Event| if event.what == What::Arrival { event.whom } else { 0 };
        let hops = self.events.opened().map(|event| self.packets.peek_hop(place(event)));
        // Without it the compiler would drop the reads, whose sum is used nowhere.
        std::hint::black_box(hops.fold(0, u8::wrapping_add));
    }

    /// What the run did so far.
    pub fn counts(&self) -> RunCounts {
        let mut counts = self.counts;
        for port in &self.ports {
            counts.add(&port.counts(self.now));
        }
        counts.most_packets = self.packets.most() as u64;
        counts.most_flows = self.flows.most() as u64;
        counts.end = self.now;
        counts
    }

    /// Flows that have begun and whose last byte has not arrived, those that were stopped too.
    pub fn unfinished(&self) -> impl Iterator<Item = Unfinished> {
        self.flows.unfinished().map(|open| Unfinished {
            number: open.number,
            flow: open.arrival,
            ideal: ideal(&open.arrival, self.topology, &self.network),
            received: weir_model::Bytes(open.received),
        })
    }

    /// What became of packets at a port.
    pub fn port_counts(&self, port: u32) -> PortCounts {
        self.ports[port as usize].counts(self.now)
    }

    /// The same of all ports, by number.
    pub fn ports(&self) -> impl Iterator<Item = PortCounts> {
        self.ports.iter().map(|port| port.counts(self.now))
    }

    /// Flows ask ports for rates.
    #[inline]
    fn gives_rates(&self) -> bool {
        !self.allocators.is_empty()
    }

    #[inline]
    fn push(&mut self, at: Picos, what: What, whom: u32) {
        self.events.push(Event { at, late: false, what, whom });
    }

    fn await_arrival(&mut self) {
        self.next_arrival = self.arrivals.next();
        if let Some((_, flow)) = &self.next_arrival {
            // A flow that should have begun before now begins now: the wheel takes no event of the
            // past.
            let at = Picos::from(flow.arrival).max(self.now);
            self.push(at, What::FlowArrival, 0);
        }
    }

    fn on_flow(&mut self) {
        let Some((number, flow)) = self.next_arrival.take() else { return };
        self.await_arrival();
        let sending = self.transport.sending(&flow, &self.network);
        let place = self.flows.add(flow, Sender::new(sending, flow.size.0), number);
        self.counts.begun += 1;
        if self.gives_rates() {
            self.flows.get_mut(place).requests = Some(Box::default());
        }
        self.show_window(place);
        self.follow_plan(place);
        self.send(place);
    }

    /// Tells the observer of a window that a sender's control has ended.
    #[inline]
    fn show_window(&mut self, place: u32) {
        if let Some(observer) = &mut self.observer {
            let flow = self.flows.get_mut(place);
            if let Some(window) = flow.sender.control.take_window() {
                observer.window_ended(flow.number, &window, self.now);
            }
        }
    }

    /// Sees to it that an event comes when a flow's plan changes.
    fn follow_plan(&mut self, place: u32) {
        let sender = &mut self.flows.get_mut(place).sender;
        if let Some(at) = sender.control.next_change(self.now)
            // One event for each change: until that has come, the control names the same moment
            // again.
            && at > sender.change_event
            && !sender.is_done()
        {
            sender.change_event = at;
            sender.pace_events += 1;
            self.push(at, What::Pace, place);
        }
    }

    /// A packet has come to the end of a link.
    #[inline]
    fn on_arrival(&mut self, place: u32, sink: &mut dyn FnMut(FlowRecord)) {
        let packet = self.packets.get_mut(place);
        packet.hop += 1;
        if packet.hop < packet.route.hops {
            let port = packet.route.ports[usize::from(packet.hop)];
            if packet.word != Word::None {
                self.ask_port(u32::from(port), place);
            }
            self.enqueue(u32::from(port), place);
            return;
        }
        match packet.kind {
            Kind::Data => self.on_data(place, sink),
            Kind::Ack => self.on_ack(place),
            Kind::Probe => {
                let expected = self.flows.get(packet.flow).receiver.expected();
                // It covers no segment: the sender learns only that packets come through.
                self.acknowledge(place, expected, 0);
            }
        }
    }

    /// Sends what a flow may.
    #[inline]
    fn send(&mut self, place: u32) {
        if self.gives_rates() {
            self.send_at_given_rate(place);
        } else {
            self.send_by_window(place);
        }
    }

    /// Sends what a flow's window and pace let go.
    #[inline]
    fn send_by_window(&mut self, place: u32) {
        loop {
            let flow = self.flows.get_mut(place);
            let gap = flow.sender.control.allowance().gap;
            if gap > Picos::ZERO
                && let Some(due) = flow.sender.last_start.map(|start| start + gap)
                && due > self.now
            {
                self.wait_to_send(place, due);
                break;
            }
            let Some(segment) = flow.sender.take(self.now) else { break };
            flow.sender.last_start = Some(self.now);
            self.send_segment(place, segment, Kind::Data);
        }
        self.arm_timer(place);
    }

    /// Sees to it that an event comes when a flow may send again.
    fn wait_to_send(&mut self, place: u32, due: Picos) {
        let sender = &mut self.flows.get_mut(place).sender;
        // An event that comes earlier is enough: it finds the flow not due and sees to a later one.
        if due < sender.pace_event && !sender.is_done() {
            sender.pace_event = due;
            sender.pace_events += 1;
            self.push(due, What::Pace, place);
        }
    }

    fn on_pace(&mut self, place: u32) {
        let sender = &mut self.flows.get_mut(place).sender;
        sender.pace_events -= 1;
        if sender.pace_event == self.now {
            sender.pace_event = Picos::MAX;
        }
        self.follow_plan(place);
        self.send(place);
        self.flows.forget_if_over(place);
    }

    fn send_segment(&mut self, place: u32, segment: u32, kind: Kind) {
        let (word, spread) = if self.gives_rates() {
            // Spread 0: all packets of the flow pass the ports that gave it a rate.
            (self.word(place), 0)
        } else {
            (Word::None, self.flows.get(place).packets)
        };
        let flow = self.flows.get_mut(place);
        let standing = flow.sender.standing(segment, self.now);
        let (class, rank) = flow.sender.tagging.tag(&standing);
        let payload = if kind == Kind::Data { flow.sender.payload(segment) } else { 0 };
        let route = self.topology.route(flow.source(), flow.destination(), flow.way, spread);
        flow.packets = flow.packets.wrapping_add(1);
        flow.in_network += 1;
        // RFC 6298, rule 5.1: sending starts a timer that does not run, and leaves one that runs as it is.
        if flow.sender.timer == Picos::MAX {
            flow.sender.timer = self.now + flow.sender.timeout();
        }
        let packet = self.packets.add(Packet {
            sent: self.now,
            rank,
            flow: place,
            segment,
            expected: 0,
            bytes: (payload + HEADER_BYTES) as u16,
            covers: 0,
            kind,
            word,
            class,
            marked: false,
            hop: 0,
            route,
        });
        if word != Word::None {
            self.ask_port(u32::from(route.ports[0]), packet);
        }
        self.enqueue(u32::from(route.ports[0]), packet);
    }

    /// Sees to it that an event comes not later than a flow's timer.
    #[inline]
    fn arm_timer(&mut self, place: u32) {
        let sender = &mut self.flows.get_mut(place).sender;
        // Timers move later with most acknowledgements. That needs no event: the earlier one finds the timer not due, and arms it again.
        if sender.timer < sender.timer_event {
            sender.timer_event = sender.timer;
            sender.timer_events += 1;
            let at = sender.timer;
            self.push(at, What::Timer, place);
        }
    }

    fn on_timer(&mut self, place: u32) {
        let sender = &mut self.flows.get_mut(place).sender;
        sender.timer_events -= 1;
        // Queued before the timer moved to an earlier time; the event for that time has taken the place of this one.
        if sender.timer_event != self.now {
            self.flows.forget_if_over(place);
            return;
        }
        sender.timer_event = Picos::MAX;
        // Acknowledgements have set the timer anew since this event was queued.
        if sender.timer > self.now {
            if sender.timer == Picos::MAX {
                self.flows.forget_if_over(place);
            } else {
                self.arm_timer(place);
            }
            return;
        }
        sender.on_timeout(self.now);
        let in_row = sender.timeouts_in_row;
        if self.setup.ages_after.is_some_and(|after| in_row.is_multiple_of(after)) {
            let sent = sender.sent_bytes();
            sender.tagging.age(sent);
        }
        // RFC 6298, rules 5.5 and 5.6: the timer starts again with the timeout that `on_timeout` has doubled.
        sender.timer = self.now + sender.timeout();
        if self.setup.probes_after.is_some_and(|after| in_row >= after) {
            let segment = sender.unacked;
            self.send_segment(place, segment, Kind::Probe);
            self.arm_timer(place);
        } else {
            if self.gives_rates() {
                self.forget_request(place);
            }
            self.send(place);
        }
    }

    /// A segment is at its receiver.
    #[inline]
    fn on_data(&mut self, place: u32, sink: &mut dyn FnMut(FlowRecord)) {
        let packet = *self.packets.get(place);
        let flow = self.flows.get_mut(packet.flow);
        let payload = u32::from(packet.bytes) - HEADER_BYTES;
        let in_order = packet.segment == flow.receiver.expected();
        if flow.receiver.on_segment(packet.segment, payload) {
            if let Some(observer) = &mut self.observer {
                observer.delivered(flow.number, payload, self.now);
            }
            // An empty flow is sent as one byte (`segments_of`).
            if flow.receiver.bytes == flow.arrival.size.0.max(1) {
                let record = flow.record(self.now, self.topology, &self.network);
                self.counts.finished += 1;
                if let Some(awaited) = &mut self.awaited {
                    awaited.left -= u64::from(awaited.numbers.contains(&record.number));
                }
                sink(record);
            }
        }
        let flow = self.flows.get_mut(packet.flow);
        let expected = flow.receiver.expected();
        if self.setup.acknowledging == Acknowledging::Each {
            self.acknowledge(place, expected, 1);
        } else {
            self.reply(place, &packet, in_order, expected);
        }
    }

    /// Makes a packet that has come to its end the acknowledgement of itself.
    #[inline]
    fn acknowledge(&mut self, place: u32, expected: u32, covers: u8) {
        let packet = self.packets.get_mut(place);
        let flow = self.flows.get_mut(packet.flow);
        packet.kind = Kind::Ack;
        packet.expected = expected;
        packet.covers = covers;
        packet.rank = 0;
        packet.class = ACK_CLASS;
        packet.bytes = ACK_BYTES;
        packet.hop = 0;
        packet.route = self.topology.route(flow.destination(), flow.source(), flow.way, flow.acks);
        flow.acks = flow.acks.wrapping_add(1);
        let port = u32::from(packet.route.ports[0]);
        // The mark on an acknowledgement is the receiver's word; queues on the way back do not add to it.
        self.enqueue(port, place);
    }

    /// An acknowledgement is back.
    #[inline]
    fn on_ack(&mut self, place: u32) {
        let packet = *self.packets.get(place);
        self.packets.remove(place);
        let flow = self.flows.get_mut(packet.flow);
        flow.in_network -= 1;
        let answer = Answer {
            expected: packet.expected,
            segment: (packet.covers > 0).then_some(packet.segment),
            marked: packet.marked,
            sent: packet.sent,
        };
        let was_done = flow.sender.is_done();
        // The answer to a probe: packets come through, so that the next timeout sends data and no probe.
        if packet.covers == 0 {
            flow.sender.timeouts_in_row = 0;
        }
        let lost = flow.sender.on_answer(&answer, self.now);
        self.show_window(packet.flow);
        let flow = self.flows.get(packet.flow);
        if let Some(observer) = &mut self.observer
            && flow.sender.is_done()
            && !was_done
        {
            observer.ended(&FlowSeen::of(flow), self.now);
        }
        // Before the window is asked: fast retransmit sends at once what is lost (RFC 5681, section
        // 3.2).
        if let Some(segment) = lost {
            self.send_segment(packet.flow, segment, Kind::Data);
        }
        if self.gives_rates() {
            self.on_answer(&packet);
        } else if was_done || self.flows.get(packet.flow).sender.is_done() {
            self.flows.forget_if_over(packet.flow);
        } else {
            self.send_by_window(packet.flow);
        }
    }

    fn on_sample(&mut self) {
        let Some(observer) = &mut self.observer else { return };
        let Some(every) = observer.sample_every() else { return };
        for (number, port) in self.ports.iter().enumerate() {
            observer.sampled_port(number as u32, port.queued(self.now), &port.counts(self.now), self.now);
        }
        for flow in self.flows.live() {
            observer.sampled_flow(&FlowSeen::of(flow), self.now);
        }
        observer.sampled(self.now);
        // Samples alone keep no run going.
        if self.packets.live() > 0 || self.next_arrival.is_some() || self.flows.any() {
            self.push(self.now + every, What::Sample, 0);
        }
    }
}
