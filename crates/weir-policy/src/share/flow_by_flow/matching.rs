//! The stable matching of the ports of a switch, mended where flows came or ended.
//!
//! # Problem
//! The walk over all path classes costs as much as there are pairs of ports; one end of a flow changes the
//! rates of a few.
//!
//! # Approach
//! A waiting flow blocks if it comes before what its sender serves and before what its receiver serves; the
//! matching is the one without blocking flows. As long as nothing but time passes there is none: only served
//! flows shrink. Afterwards a blocking flow is a new one, or has a port that was freed. Serving it may free
//! two other ports, which are looked at next.
//!
//! # Pseudo-code
//! ```text
//! for class with new flows: if its head blocks, serve it
//! while a port was freed and not looked at since:
//!     serve the first of the heads of its classes that block
//! serve(flow): what its ports served waits again; the other ports of those are freed
//! ```
//!
//! # Properties
//! * It ends: sorted by key, the flows served come earlier with every step, and there are finitely many ways.
//! * It ends with the only matching without a blocking flow, which is that of the walk from the beginning (a
//!   test compares).

use super::queues::{FlowKey, Queues};
use crate::{CoflowTable, FlowRef, Grant, Plan};
use weir_model::Fabric;

/// Says that a port serves no class.
const NO_CLASS: u32 = u32::MAX;

/// Which class each port serves.
#[derive(Debug)]
pub(super) struct Matching {
    bytes_per_sec: f64,
    /// Per link, the class it serves.
    serving: Vec<u32>,
    /// Per class, its links.
    ends: Vec<[u32; 2]>,
    /// Per link, its classes.
    classes: Vec<Vec<u32>>,
    /// Links that were freed and not looked at since; a flow of another such link may have come to them.
    freed: Vec<u32>,
    /// Flows that began or ceased to be served since the last plan.
    touched: Vec<FlowRef>,
}

impl Matching {
    /// An empty matching if the fabric is a switch of equal ports.
    pub(super) fn on(fabric: &Fabric) -> Option<Matching> {
        let links = fabric.links();
        let first = links.first()?.capacity;
        let equal = links.iter().all(|link| link.capacity == first);
        (fabric.is_switch() && equal).then(|| Matching {
            bytes_per_sec: first.bytes_per_sec(),
            serving: vec![NO_CLASS; links.len()],
            ends: Vec::new(),
            classes: vec![Vec::new(); links.len()],
            freed: Vec::new(),
            touched: Vec::new(),
        })
    }

    /// Takes over who is served, after anything may have happened.
    pub(super) fn begin(&mut self, queues: &Queues, view: &CoflowTable) {
        for (class, entry) in (0u32..).zip(view.classes()).skip(self.ends.len()) {
            let ends = [2 * entry.source().0, 2 * entry.destination().0 + 1];
            ends.iter().for_each(|&link| self.classes[link as usize].push(class));
            self.ends.push(ends);
        }
        self.serving.fill(NO_CLASS);
        for class in (0..queues.classes()).filter(|&class| queues.served_of(class).is_some()) {
            self.ends[class].iter().for_each(|&link| self.serving[link as usize] = class as u32);
        }
        self.touched.clear();
        self.freed.clear();
        self.freed.extend(
            (0u32..).zip(&self.serving).filter(|(_, class)| **class == NO_CLASS).map(|(link, _)| link),
        );
    }

    /// Frees the ports of flows that have ended.
    pub(super) fn free(&mut self, queues: &mut Queues, view: &CoflowTable) {
        self.touched.clear();
        for &at in &view.changes().ended {
            let Some(class) = view.flow(at).class() else { continue };
            queues.end(class.index(), at);
            self.leave(class.index());
        }
    }

    /// The ports of a class serve no flow from now on, and are to be looked at.
    fn leave(&mut self, class: usize) {
        for link in self.ends[class] {
            self.serving[link as usize] = NO_CLASS;
            self.freed.push(link);
        }
    }

    /// Serves blocking flows until there are none.
    pub(super) fn mend(&mut self, queues: &mut Queues, view: &CoflowTable) {
        // Without arrivals no waiting flow is new, and only ports that were freed can have a flow that blocks.
        if view.changes().disturbed {
            for class in 0..queues.classes() {
                let key = queues.head(class);
                if key != FlowKey::LAST
                    && self.ends[class].iter().all(|&link| self.yields(queues, view, link, key))
                {
                    self.serve(queues, view, class);
                }
            }
        }
        while let Some(link) = self.freed.pop() {
            if let Some(class) = self.first_blocking(queues, view, link) {
                self.serve(queues, view, class);
            }
        }
    }

    /// Whether a link serves no flow, or one that comes after `key`.
    #[inline]
    fn yields(&self, queues: &Queues, view: &CoflowTable, link: u32, key: FlowKey) -> bool {
        let serving = self.serving[link as usize];
        serving == NO_CLASS || !queues.is_served_before(view, serving as usize, key)
    }

    /// The class of a link whose head comes first of those that block.
    fn first_blocking(&self, queues: &Queues, view: &CoflowTable, link: u32) -> Option<usize> {
        let serving = self.serving[link as usize];
        let served = if serving == NO_CLASS { None } else { queues.served_of(serving as usize) };
        let mut first = served.map_or(FlowKey::LAST, |at| queues.key(view, at));
        let mut best = None;
        for &class in &self.classes[link as usize] {
            let key = queues.head(class as usize);
            if key >= first {
                continue;
            }
            let [up, down] = self.ends[class as usize];
            let other = if up == link { down } else { up };
            if self.yields(queues, view, other, key) {
                (first, best) = (key, Some(class as usize));
            }
        }
        best
    }

    /// Serves the head of a class in place of what its links serve.
    fn serve(&mut self, queues: &mut Queues, view: &CoflowTable, class: usize) {
        for link in self.ends[class] {
            let before = self.serving[link as usize];
            if before != NO_CLASS {
                self.leave(before as usize);
                self.touched.extend(queues.let_wait(before as usize, view));
            }
        }
        self.touched.extend(queues.serve(class, view));
        self.ends[class].iter().for_each(|&link| self.serving[link as usize] = class as u32);
    }

    /// A flow at the rate of its ports.
    pub(super) fn grant(&self, flow: FlowRef) -> Grant {
        Grant { flow, bytes_per_sec: self.bytes_per_sec }
    }

    /// Adds to a plan that goes on what is not as in the last one.
    pub(super) fn name_changes(&mut self, queues: &Queues, view: &CoflowTable, plan: &mut Plan) {
        // A flow may stop and begin again within one mending: what counts is whether it is served at the end.
        self.touched.sort_unstable();
        self.touched.dedup();
        for &flow in &self.touched {
            let served = |class: crate::ClassId| queues.served_of(class.index()) == Some(flow);
            let served = view.flow(flow).class().is_some_and(served);
            plan.grants.push(if served { self.grant(flow) } else { Grant { flow, bytes_per_sec: 0.0 } });
        }
    }
}
