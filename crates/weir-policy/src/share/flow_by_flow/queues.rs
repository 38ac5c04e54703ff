//! The flows that wait, by path class and urgency, and the one of each class that is served.

use super::FlowOrder;
use crate::{ClassId, Coflow, CoflowTable, Flow, FlowRef, Slot};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use weir_model::{CoflowId, Time};

/// What flows are sorted by, smaller first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FlowKey {
    /// When it is due; [`Time::MAX`] where that does not count.
    due: Time,
    /// The bits of the bytes that count, which are in the order of the numbers: none is below 0.
    bytes: u64,
    arrival: Time,
    coflow: CoflowId,
    flow: u32,
}

impl FlowKey {
    /// A key after those of all flows.
    pub(super) const LAST: FlowKey = FlowKey {
        due: Time::MAX,
        bytes: u64::MAX,
        arrival: Time::MAX,
        coflow: CoflowId(u64::MAX),
        flow: u32::MAX,
    };
}

/// A flow in its queue. It holds while its stamp is that of its coflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Queued {
    key: FlowKey,
    flow: FlowRef,
    stamp: u64,
}

/// What the queues know of a coflow.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    coflow: CoflowId,
    raises: u64,
    stamp: u64,
    /// Per link, the bytes of the flows whose paths begin there, ended ones too: all that a port knows of the
    /// coflow. Empty under orders that do not use it.
    parts: Vec<u64>,
}

/// No entry has this stamp.
const UNKNOWN: Known = Known { coflow: CoflowId(u64::MAX), raises: u64::MAX, stamp: 0, parts: Vec::new() };

#[derive(Debug, Default)]
struct Queue {
    waiting: BinaryHeap<Reverse<Queued>>,
    /// The flow that is served, as it was when that began.
    served: Option<Queued>,
}

/// A queue per path class.
#[derive(Debug)]
pub(super) struct Queues {
    order: FlowOrder,
    known: Vec<Known>,
    last_stamp: u64,
    queues: Vec<Queue>,
    /// Per class, the key of its first waiting flow.
    heads: Vec<FlowKey>,
}

impl Queues {
    pub(super) fn new(order: FlowOrder) -> Queues {
        Queues { order, known: Vec::new(), last_stamp: 0, queues: Vec::new(), heads: Vec::new() }
    }

    pub(super) fn clear(&mut self) {
        *self = Queues::new(self.order);
    }

    /// The key of a live flow now.
    pub(super) fn key(&self, view: &CoflowTable, at: FlowRef) -> FlowKey {
        let coflow = view.coflow(at.coflow);
        let due = match self.order {
            FlowOrder::SmallestFirst | FlowOrder::SmallestPartFirst => None,
            FlowOrder::EarliestDeadlineFirst => view.due(at.coflow),
        };
        let bytes = match self.order {
            // `max(0.0)`: the bits of a number below 0 would come after those of all others.
            FlowOrder::SmallestFirst | FlowOrder::EarliestDeadlineFirst => view.remaining(at).max(0.0),
            FlowOrder::SmallestPartFirst => self.part(view, at),
        };
        FlowKey {
            due: due.unwrap_or(Time::MAX),
            bytes: bytes.to_bits(),
            arrival: coflow.arrival(),
            coflow: coflow.id(),
            flow: at.flow,
        }
    }

    /// What the first link of a flow's path has, or had, to carry of its coflow.
    fn part(&self, view: &CoflowTable, at: FlowRef) -> f64 {
        let parts = &self.known[at.coflow.0 as usize].parts;
        let first = first_link(view, view.flow(at));
        first.and_then(|link| parts.get(link)).map_or(0.0, |&bytes| bytes as f64)
    }

    /// Key of the first waiting flow of a class, [`FlowKey::LAST`] if none waits.
    #[inline]
    pub(super) fn head(&self, class: usize) -> FlowKey {
        self.heads[class]
    }

    /// Classes with a waiting flow and the key of the first.
    pub(super) fn heads(&self) -> impl Iterator<Item = (FlowKey, usize)> {
        let waiting = self.heads.iter().zip(0..).filter(|(head, _)| **head != FlowKey::LAST);
        waiting.map(|(&head, class)| (head, class))
    }

    /// Number of classes met so far.
    pub(super) fn classes(&self) -> usize {
        self.queues.len()
    }

    /// The flow of a class that is served.
    pub(super) fn served_of(&self, class: usize) -> Option<FlowRef> {
        self.queues[class].served.map(|queued| queued.flow)
    }

    /// All flows that are served.
    pub(super) fn served(&self) -> impl Iterator<Item = FlowRef> {
        self.queues.iter().filter_map(|queue| queue.served.map(|queued| queued.flow))
    }

    /// Whether the served flow of a class comes before `key`. Served flows only shrink: what comes before it
    /// with what it had at the beginning does with what it has.
    #[inline]
    pub(super) fn is_served_before(&self, view: &CoflowTable, class: usize, key: FlowKey) -> bool {
        let Some(served) = self.queues[class].served else { return false };
        // The key of the beginning first: it needs no look at what is left now.
        served.key <= key || self.key(view, served.flow) <= key
    }

    /// Serves the first waiting flow of a class that has none served.
    pub(super) fn serve(&mut self, class: usize, view: &CoflowTable) -> Option<FlowRef> {
        let Reverse(queued) = self.queues[class].waiting.pop()?;
        self.queues[class].served = Some(queued);
        self.settle(class, view);
        Some(queued.flow)
    }

    /// Lets the served flow of a class wait again.
    pub(super) fn let_wait(&mut self, class: usize, view: &CoflowTable) -> Option<FlowRef> {
        let served = self.queues[class].served.take()?;
        if view.flow(served.flow).live() {
            let key = self.key(view, served.flow);
            self.queues[class].waiting.push(Reverse(Queued { key, ..served }));
            // The flow that waits again may come before the first one that waited.
            self.heads[class] = self.heads[class].min(key);
        }
        Some(served.flow)
    }

    /// Lets all flows wait.
    pub(super) fn let_all_wait(&mut self, view: &CoflowTable) {
        for class in 0..self.queues.len() {
            self.let_wait(class, view);
        }
    }

    /// A flow that was served has ended.
    pub(super) fn end(&mut self, class: usize, at: FlowRef) {
        let served = &mut self.queues[class].served;
        *served = served.filter(|queued| queued.flow != at);
    }

    /// Takes over what was added, taken out or corrected: all flows of the coflows to which something
    /// happened are entered anew.
    pub(super) fn sync(&mut self, view: &CoflowTable) {
        self.known.resize(view.slot_bound(), UNKNOWN);
        self.queues.resize_with(view.classes().len(), Queue::default);
        self.heads.resize(view.classes().len(), FlowKey::LAST);
        for slot in view.changes().arrived.iter().chain(&view.changes().departed) {
            self.known[slot.0 as usize] = UNKNOWN;
        }
        let mut changed: Vec<Slot> = Vec::new();
        for (slot, coflow) in view.coflows() {
            let known = &mut self.known[slot.0 as usize];
            if (known.coflow, known.raises) != (coflow.id(), coflow.raises()) {
                self.last_stamp += 1;
                let parts = match self.order {
                    FlowOrder::SmallestPartFirst => parts(view, coflow),
                    FlowOrder::SmallestFirst | FlowOrder::EarliestDeadlineFirst => Vec::new(),
                };
                let (id, raises) = (coflow.id(), coflow.raises());
                *known = Known { coflow: id, raises, stamp: self.last_stamp, parts };
                changed.push(slot);
            }
        }
        let known = &self.known;
        for queue in &mut self.queues {
            queue.served = queue.served.filter(|queued| holds(known, view, queued));
        }
        for slot in changed {
            self.enter(slot, view);
        }
        for class in 0..self.queues.len() {
            self.drop_stale(class, view);
            self.settle(class, view);
        }
    }

    /// Enters all live flows of a coflow.
    fn enter(&mut self, slot: Slot, view: &CoflowTable) {
        let stamp = self.known[slot.0 as usize].stamp;
        for (flow, entry) in (0u32..).zip(view.coflow(slot).flows()) {
            let Some(ClassId(class)) = entry.class().filter(|_| entry.live()) else { continue };
            let at = FlowRef { coflow: slot, flow };
            let queued = Queued { key: self.key(view, at), flow: at, stamp };
            self.queues[class as usize].waiting.push(Reverse(queued));
        }
    }

    /// Keeps entries that do not hold any more from piling up.
    fn drop_stale(&mut self, class: usize, view: &CoflowTable) {
        let waiting = &mut self.queues[class].waiting;
        // Twice the live flows, so that each entry is dropped at the cost of one that stays; 8 spares short queues the pass.
        if waiting.len() > 2 * view.classes()[class].live() as usize + 8 {
            let known = &self.known;
            waiting.retain(|Reverse(queued)| holds(known, view, queued));
        }
    }

    /// Finds the head of a class.
    fn settle(&mut self, class: usize, view: &CoflowTable) {
        let waiting = &mut self.queues[class].waiting;
        while waiting.peek().is_some_and(|Reverse(queued)| !holds(&self.known, view, queued)) {
            waiting.pop();
        }
        self.heads[class] = waiting.peek().map_or(FlowKey::LAST, |Reverse(queued)| queued.key);
    }
}

/// Where a flow's path begins.
fn first_link(view: &CoflowTable, flow: &Flow) -> Option<usize> {
    let path = view.classes()[flow.class()?.index()].path();
    path.first().map(|link| link.index())
}

/// The bytes of a coflow's flows by the links where their paths begin.
fn parts(view: &CoflowTable, coflow: &Coflow) -> Vec<u64> {
    let mut parts = Vec::new();
    for flow in coflow.flows() {
        let Some(link) = first_link(view, flow) else { continue };
        if parts.len() <= link {
            parts.resize(link + 1, 0u64);
        }
        parts[link] = parts[link].saturating_add(flow.size().0);
    }
    parts
}

/// Whether an entry is of a live flow as it is now.
fn holds(known: &[Known], view: &CoflowTable, queued: &Queued) -> bool {
    known[queued.flow.coflow.0 as usize].stamp == queued.stamp && view.flow(queued.flow).live()
}
