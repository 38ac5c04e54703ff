//! When the next flow ends under a plan, and which flows end at an instant.
//!
//! Under drains and grants the table itself knows when they end. Under levels every flow of a path
//! class ends when the class has been served a certain number of bytes, and every class of a link when
//! the link's level has served a certain number: a heap per class and a heap per link, both keyed by
//! service and never by time, so that a changed level moves no entry.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use weir_model::{LinkId, Span, Time};
use weir_policy::{ClassId, CoflowTable, FlowRef, Form, Plan, Slot};

const NANOS_PER_SEC: f64 = 1e9;

/// A finite number with a total order.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Key(f64);
impl Eq for Key {}
impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Key {
    fn cmp(&self, other: &Key) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// What came since the last plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct New<'a> {
    /// Coflows, with their flows.
    pub(crate) coflows: &'a [Slot],
    /// Flows of coflows that were there, or came with some of theirs; some may have ended.
    pub(crate) flows: &'a [FlowRef],
}

/// What is due at an instant.
#[derive(Clone, Debug, Default)]
pub(crate) struct Due {
    /// Coflows all of whose flows are complete.
    pub(crate) coflows: Vec<Slot>,
    /// Flows that are complete, one by one.
    pub(crate) flows: Vec<FlowRef>,
}

/// Completions under the plan in force.
#[derive(Debug, Default)]
pub(crate) struct Completions {
    levels: LevelCompletions,
}

impl Completions {
    /// Takes over a plan that the table has just adopted. `touched` are the classes whose flows changed since the last one.
    pub(crate) fn adopt(
        &mut self,
        now: Time,
        table: &CoflowTable,
        plan: &Plan,
        new: &New<'_>,
        touched: &[ClassId],
    ) {
        if plan.form == Form::Levels {
            self.levels.adopt(now, table, plan, new, touched);
        } else {
            self.levels.forget();
        }
    }

    /// The next completion, [`Time::MAX`] if there is none. `now` is where the table stands.
    pub(crate) fn next(&self, now: Time, table: &CoflowTable) -> Time {
        let next = table.next_end().map_or(Time::MAX, |span| now + span);
        next.min(self.levels.next)
    }

    /// Takes out everything that is complete by `now`, to which the table has been advanced.
    pub(crate) fn take_due(&mut self, now: Time, table: &CoflowTable, due: &mut Due) {
        due.coflows.clear();
        due.flows.clear();
        table.take_ends(&mut due.coflows, &mut due.flows);
        if self.levels.next <= now {
            self.levels.take_due(now, table, due);
        }
    }
}

/// Completions of flows whose rates are levels of links.
#[derive(Debug)]
struct LevelCompletions {
    /// Per class, its flows by the service of the class at which they end.
    flows: Vec<BinaryHeap<Reverse<(Key, FlowRef)>>>,
    /// Per link, classes attached to it by the service of the link at which their first flow ends.
    /// Entries that no longer hold are skipped when they come up.
    classes: Vec<BinaryHeap<Reverse<(Key, ClassId)>>>,
    /// Per link at the last plan: its level, what it had served, and its first key.
    levels: Vec<f64>,
    served: Vec<f64>,
    heads: Vec<f64>,
    /// Per link, nanoseconds from the last plan to its first end, not rounded yet.
    nanos: Vec<f64>,
    /// Links whose first key may not hold any more, and whether a link is among them.
    stale: Vec<usize>,
    is_stale: Vec<bool>,
    planned: Time,
    next: Time,
    known: bool,
}

impl Default for LevelCompletions {
    fn default() -> LevelCompletions {
        LevelCompletions {
            flows: Vec::new(),
            classes: Vec::new(),
            levels: Vec::new(),
            served: Vec::new(),
            heads: Vec::new(),
            nanos: Vec::new(),
            stale: Vec::new(),
            is_stale: Vec::new(),
            planned: Time::ZERO,
            next: Time::MAX,
            known: false,
        }
    }
}

impl LevelCompletions {
    fn forget(&mut self) {
        if self.known {
            *self = LevelCompletions::default();
        }
    }

    fn adopt(&mut self, now: Time, table: &CoflowTable, plan: &Plan, new: &New<'_>, touched: &[ClassId]) {
        let links = plan.levels.len();
        self.classes.resize_with(links, BinaryHeap::new);
        self.heads.resize(links, f64::INFINITY);
        self.is_stale.resize(links, false);
        self.flows.resize_with(table.classes().len(), BinaryHeap::new);
        if !self.known {
            self.known = true;
            for &slot in table.slots() {
                self.add_coflow(table, slot);
            }
            for class in 0..table.classes().len() as u32 {
                self.announce(table, ClassId(class));
            }
        } else {
            for &slot in new.coflows {
                self.add_coflow(table, slot);
            }
            // Flows of new coflows were added with them.
            let joined = new.flows.iter().filter(|at| !new.coflows.contains(&at.coflow));
            joined.for_each(|&at| self.add_flow(table, at));
            for &class in touched {
                self.announce(table, class);
            }
            for &(class, _) in &plan.switched {
                self.announce(table, class);
            }
        }
        self.levels.clone_from(&plan.levels);
        self.planned = now;
        self.served.clear();
        self.served.extend((0..links).map(|link| table.served(LinkId(link as u32))));
        while let Some(link) = self.stale.pop() {
            self.is_stale[link] = false;
            self.settle(table, link);
        }
        self.find_next();
    }

    fn add_coflow(&mut self, table: &CoflowTable, coflow: Slot) {
        for flow in 0..table.coflow(coflow).flows().len() as u32 {
            self.add_flow(table, FlowRef { coflow, flow });
        }
    }

    fn add_flow(&mut self, table: &CoflowTable, at: FlowRef) {
        let flow = table.flow(at);
        if let Some(class) = flow.class().filter(|_| flow.live()) {
            self.flows[class.index()].push(Reverse((Key(table.target(at)), at)));
        }
    }

    /// The service of its link at which the class's first flow ends.
    fn head(&self, table: &CoflowTable, class: ClassId) -> Option<Key> {
        let Reverse((target, _)) = self.flows[class.index()].peek()?;
        Some(Key(table.target_on_link(class, target.0)))
    }

    /// Enters a class at its link after its first flow or its link may have changed. Entries it had at
    /// links of its path may not hold any more.
    fn announce(&mut self, table: &CoflowTable, class: ClassId) {
        for link in table.classes()[class.index()].path().iter().map(|link| link.index()) {
            if !std::mem::replace(&mut self.is_stale[link], true) {
                self.stale.push(link);
            }
        }
        let Some(link) = table.classes()[class.index()].bottleneck() else { return };
        if let Some(key) = self.head(table, class) {
            self.classes[link.index()].push(Reverse((key, class)));
        }
    }

    /// Drops entries at the top of a link's heap that no longer hold.
    fn settle(&mut self, table: &CoflowTable, link: usize) {
        while let Some(&Reverse((key, class))) = self.classes[link].peek() {
            let attached = table.classes()[class.index()].bottleneck() == Some(LinkId(link as u32));
            // An entry holds as long as its class is at this link and ends first where the entry says.
            if attached && self.head(table, class) == Some(key) {
                self.heads[link] = key.0;
                return;
            }
            self.classes[link].pop();
        }
        self.heads[link] = f64::INFINITY;
    }

    fn find_next(&mut self) {
        let lines = self.heads.iter().zip(&self.served).zip(&self.levels);
        self.nanos.clear();
        // An idle link has an infinite head and perhaps an infinite level: no number, never less.
        self.nanos.extend(lines.map(|((head, served), level)| (head - served) / level * NANOS_PER_SEC));
        let less = |least: f64, &nanos: &f64| if nanos < least { nanos } else { least };
        let least = self.nanos.iter().fold(f64::INFINITY, less);
        self.next = self.planned + Span::from_nanos(least.ceil() as u64);
    }

    fn take_due(&mut self, now: Time, table: &CoflowTable, due: &mut Due) {
        // `ceil(nanos) <= elapsed` just when `nanos <= elapsed`: that is a whole number.
        let elapsed = now.since(self.planned).nanos() as f64;
        for link in 0..self.heads.len() {
            while self.nanos[link] <= elapsed {
                let Some(&Reverse((_, class))) = self.classes[link].peek() else { break };
                if let Some(Reverse((_, flow))) = self.flows[class.index()].pop() {
                    due.flows.push(flow);
                }
                self.announce(table, class);
                self.settle(table, link);
                let left = self.heads[link] - self.served[link];
                self.nanos[link] = left / self.levels[link] * NANOS_PER_SEC;
            }
        }
        self.find_next();
    }
}
