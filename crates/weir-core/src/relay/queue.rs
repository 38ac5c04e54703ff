//! What waits at one next hop, and which message goes next.
//!
//! # Problem
//! Messages of many flows want the same link. A coflow that is to go first must not wait for one behind it, flows of
//! equal rank divide the link by their weights, and a flow whose peer takes nothing must not hold up any other, as
//! it would in one queue for all.
//!
//! # Approach
//! One queue per flow; strict priority between ranks (Siphon, ATC'18, section 4.2), start-time fair queueing among
//! the flows of a rank (Goyal, Vin, Cheng, SIGCOMM'96). A flow takes part only while its credit covers its first
//! message.
//!
//! # Terminology
//! * credit: the next hop takes the bytes of the flow that are before it; it grows as the flow's receiver takes them.
//! * start, finish: a message's place in its rank's virtual time; finish = start + length / weight.
//! * ready: the flow has a message, and credit for it.
//!
//! # Pseudo-code
//! ```text
//! a flow becomes ready:  start = max(virtual time of its rank, its last finish)
//! next message:          of the least rank with a ready flow, the flow with the least (start, key)
//!                        virtual time of the rank = start; finish = start + length / weight
//! ```
//!
//! # Properties
//! * A message goes only if no ready flow has a lesser rank.
//! * While two flows of a rank are both ready, what each got, divided by its weight, differs by at most one
//!   message of each, divided by theirs.
//! * Of a flow, the message goes first that comes first in it. So what the receiver waits for is never behind what
//!   may not go yet, whatever overtook it on the way here. No message is lost or doubled.
//! * A flow without credit costs the others nothing.
//!
//! # Departures
//! The paper names weights within a coflow and not how they are kept.

use super::facts::Message;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use weir_proto::relay::FlowKey;

/// Virtual time of one byte at weight 1.
const TICKS_PER_BYTE: f64 = 1024.0;
/// Weights are held between its inverse and this, so that virtual time lasts.
const MOST_WEIGHT: f64 = 1e6;

/// The messages that wait for one next hop.
#[derive(Debug)]
pub struct NextHopQueue<P> {
    flows: BTreeMap<FlowKey, Queued<P>>,
    ranks: BTreeMap<u64, Rank>,
}

#[derive(Debug)]
struct Queued<P> {
    rank: u64,
    weight: f64,
    /// Messages that wait, by offset in the flow.
    messages: BTreeMap<u64, Message<P>>,
    credit: u64,
    sent: u64,
    finish: u64,
    /// Set while the flow is ready.
    start: Option<u64>,
}

#[derive(Debug, Default)]
struct Rank {
    flows: usize,
    virtual_time: u64,
    ready: BTreeSet<(u64, FlowKey)>,
}

impl<P> Default for NextHopQueue<P> {
    fn default() -> NextHopQueue<P> {
        NextHopQueue { flows: BTreeMap::new(), ranks: BTreeMap::new() }
    }
}

impl<P> NextHopQueue<P> {
    /// Adds a flow, without credit, or gives one that is there another class.
    pub fn set_class(&mut self, key: FlowKey, rank: u64, weight: f64) {
        let weight = weight.clamp(1.0 / MOST_WEIGHT, MOST_WEIGHT);
        self.suspend(key);
        match self.flows.get_mut(&key) {
            // What went at the old weight is not counted anew: the next message is the first of the
            // new one.
            Some(flow) if flow.rank == rank => flow.weight = weight,
            Some(flow) => {
                let before = std::mem::replace(&mut flow.rank, rank);
                // Virtual times of two ranks have nothing to do with each other.
                (flow.weight, flow.finish) = (weight, 0);
                self.leave(before);
                let flows = &mut self.ranks.entry(rank).or_default().flows;
                *flows = flows.saturating_add(1);
            }
            None => {
                let messages = BTreeMap::new();
                let flow = Queued { rank, weight, messages, credit: 0, sent: 0, finish: 0, start: None };
                self.flows.insert(key, flow);
                let flows = &mut self.ranks.entry(rank).or_default().flows;
                *flows = flows.saturating_add(1);
            }
        }
        self.resume(key);
    }

    /// Adds a message. False, and dropped, if its flow is not there, or a message of its place is.
    pub fn push(&mut self, message: Message<P>) -> bool {
        let key = message.key;
        let Some(flow) = self.flows.get_mut(&key) else { return false };
        match flow.messages.entry(message.offset) {
            Entry::Vacant(place) => drop(place.insert(message)),
            Entry::Occupied(_) => return false,
        }
        self.resume(key);
        true
    }

    /// The next hop takes the bytes of the flow that are before `credit`. It never takes a word back.
    pub fn set_credit(&mut self, key: FlowKey, credit: u64) {
        if let Some(flow) = self.flows.get_mut(&key) {
            flow.credit = flow.credit.max(credit);
        }
        self.resume(key);
    }

    /// Whether some message may go.
    pub fn is_ready(&self) -> bool {
        self.ranks.values().any(|rank| !rank.ready.is_empty())
    }

    /// The message that goes next.
    pub fn pop(&mut self) -> Option<Message<P>> {
        let rank = self.ranks.values_mut().find(|rank| !rank.ready.is_empty())?;
        let (start, key) = rank.ready.pop_first()?;
        rank.virtual_time = start;
        let flow = self.flows.get_mut(&key)?;
        flow.start = None;
        let (_, message) = flow.messages.pop_first()?;
        let ticks = (f64::from(message.length) * TICKS_PER_BYTE / flow.weight) as u64;
        // At least a tick, so that a flow whose messages are small for its weight gives others their turn too.
        flow.finish = start.saturating_add(ticks.max(1));
        flow.sent = flow.sent.saturating_add(u64::from(message.length));
        self.resume(key);
        Some(message)
    }

    /// Bytes of the flow that went to this next hop.
    pub fn sent(&self, key: FlowKey) -> u64 {
        self.flows.get(&key).map_or(0, |flow| flow.sent)
    }

    /// Whether messages of the flow wait.
    pub fn holds(&self, key: FlowKey) -> bool {
        self.flows.get(&key).is_some_and(|flow| !flow.messages.is_empty())
    }

    /// Takes out what waits of a flow; the flow stays.
    pub fn take_waiting(&mut self, key: FlowKey) -> impl Iterator<Item = Message<P>> + use<P> {
        self.suspend(key);
        let messages = self.flows.get_mut(&key).map(|flow| std::mem::take(&mut flow.messages));
        messages.unwrap_or_default().into_values()
    }

    /// Forgets a flow and drops what waits of it.
    pub fn remove(&mut self, key: FlowKey) {
        self.suspend(key);
        if let Some(flow) = self.flows.remove(&key) {
            self.leave(flow.rank);
        }
    }

    fn leave(&mut self, rank: u64) {
        if let Some(left) = self.ranks.get_mut(&rank) {
            left.flows = left.flows.saturating_sub(1);
            if left.flows == 0 {
                self.ranks.remove(&rank);
            }
        }
    }

    /// Takes the flow out of the running.
    fn suspend(&mut self, key: FlowKey) {
        if let Some(flow) = self.flows.get_mut(&key)
            && let Some(start) = flow.start.take()
            && let Some(rank) = self.ranks.get_mut(&flow.rank)
        {
            rank.ready.remove(&(start, key));
        }
    }

    /// Lets the flow take part, if it has a message and credit for it.
    fn resume(&mut self, key: FlowKey) {
        let Some(flow) = self.flows.get_mut(&key).filter(|flow| flow.start.is_none()) else { return };
        let Some((offset, first)) = flow.messages.first_key_value() else { return };
        // A message goes whole or not at all: the next hop takes what credit covers, and no more.
        if offset.saturating_add(u64::from(first.length)) > flow.credit {
            return;
        }
        if let Some(rank) = self.ranks.get_mut(&flow.rank) {
            // Start-time fair queueing (Goyal, Vin, Cheng): what a flow did not use while it was not ready is not kept for it.
            let start = flow.finish.max(rank.virtual_time);
            flow.start = Some(start);
            rank.ready.insert((start, key));
        }
    }
}
