//! Flows that are live: both ends of each, until nothing in the network names them any more.

use crate::receiver::Receiver;
use crate::record::FlowRecord;
use crate::requests::Requests;
use crate::sender::Sender;
use crate::time::Picos;
use crate::topology::Topology;
use crate::transport::Network;
use weir_trace::FlowArrival;

pub(crate) struct Flow {
    pub(crate) number: u64,
    pub(crate) arrival: FlowArrival,
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
    /// Its packets that exist, acknowledgements too.
    pub(crate) in_network: u32,
    /// Drawn by number: which of several ways.
    pub(crate) way: u32,
    /// Packets sent, and acknowledgements.
    pub(crate) packets: u32,
    pub(crate) acks: u32,
    /// Where ports give rates.
    pub(crate) requests: Option<Box<Requests>>,
}

impl Flow {
    pub(crate) fn source(&self) -> u32 {
        self.arrival.source.0
    }
    pub(crate) fn destination(&self) -> u32 {
        self.arrival.destination.0
    }

    /// What is told of it when its last byte is there.
    pub(crate) fn record(&self, now: Picos, topology: &Topology, network: &Network) -> FlowRecord {
        FlowRecord {
            number: self.number,
            flow: self.arrival,
            finish: now,
            retransmitted: self.sender.retransmitted,
            timeouts: self.sender.all_timeouts,
            ideal: crate::spans::ideal(&self.arrival, topology, network),
        }
    }

    /// It was given up, and no port counts it any more.
    fn has_left(&self) -> bool {
        self.requests.as_ref().is_some_and(|requests| requests.stopped && !requests.is_counted())
    }

    /// Nothing is to come that names it.
    fn is_over(&self) -> bool {
        let sender = &self.sender;
        (sender.is_done() || self.has_left())
            && self.in_network == 0
            && sender.timer_events == 0
            && sender.pace_events == 0
            && !self.receiver.hold_set
            && !self.requests.as_ref().is_some_and(|requests| requests.is_counted())
    }
}

/// A flow whose last byte has not arrived.
#[derive(Clone, Copy)]
pub(crate) struct Open {
    pub(crate) number: u64,
    pub(crate) arrival: FlowArrival,
    pub(crate) received: u64,
}

impl Open {
    fn of(flow: &Flow) -> Open {
        Open { number: flow.number, arrival: flow.arrival, received: flow.receiver.bytes }
    }
}

/// All flows that may still be named by a packet or an event, by place; places are used again.
#[derive(Default)]
pub(crate) struct Flows {
    table: Vec<Option<Flow>>,
    free: Vec<u32>,
    /// Those that were given up and forgotten.
    stopped: Vec<Open>,
}

impl Flows {
    pub(crate) fn add(&mut self, arrival: FlowArrival, sender: Sender, number: u64) -> u32 {
        let flow = Flow {
            number,
            arrival,
            sender,
            receiver: Receiver::default(),
            in_network: 0,
            way: spread(number),
            packets: 0,
            acks: 0,
            requests: None,
        };
        if let Some(place) = self.free.pop() {
            self.table[place as usize] = Some(flow);
            return place;
        }
        self.table.push(Some(flow));
        (self.table.len() - 1) as u32
    }

    /// A flow by its place. Packets and events name only flows that are here: [`Flows::forget_if_over`].
    #[inline]
    #[expect(clippy::expect_used, reason = "a flow stays while a packet or an event names it")]
    pub(crate) fn get(&self, place: u32) -> &Flow {
        self.table[place as usize].as_ref().expect("a flow that is named is here")
    }
    #[inline]
    #[expect(clippy::expect_used, reason = "a flow stays while a packet or an event names it")]
    pub(crate) fn get_mut(&mut self, place: u32) -> &mut Flow {
        self.table[place as usize].as_mut().expect("a flow that is named is here")
    }

    /// Frees the place of a flow that is complete, or was given up, and that nothing names any more.
    pub(crate) fn forget_if_over(&mut self, place: u32) {
        let entry = &mut self.table[place as usize];
        if let Some(flow) = entry.take_if(|flow| flow.is_over()) {
            if !flow.sender.is_done() {
                self.stopped.push(Open::of(&flow));
            }
            self.free.push(place);
        }
    }

    /// Those whose last byte has not arrived.
    pub(crate) fn unfinished(&self) -> impl Iterator<Item = Open> {
        let open = |flow: &&Flow| flow.receiver.bytes < flow.arrival.size.0.max(1);
        let live = self.live().filter(open).map(Open::of);
        live.chain(self.stopped.iter().copied())
    }

    /// Those that are live.
    pub(crate) fn live(&self) -> impl Iterator<Item = &Flow> {
        self.table.iter().flatten().filter(|flow| !flow.sender.is_done())
    }
    /// Whether there is any that is not complete and goes on.
    pub(crate) fn any(&self) -> bool {
        self.live().any(|flow| !flow.requests.as_ref().is_some_and(|requests| requests.stopped))
    }
    /// How many there ever were at a time.
    pub(crate) fn most(&self) -> usize {
        // Places are used again before the table grows, so its length is the largest number of
        // flows at a time.
        self.table.len()
    }
}

/// Numbers in a row become numbers all over (the finalizer of SplitMix64).
fn spread(number: u64) -> u32 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) as u32
}
