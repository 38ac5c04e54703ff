//! The table of live coflows.

use super::class::Classes;
use super::line::FLOOR_BYTES;
use super::moving::Moving;
use super::paced::Paced;
use super::place::{FlowRef, NONE, Slot};
use super::{Class, ClassId, Coflow};
use crate::{Form, Plan};
use std::collections::BTreeMap;
use weir_model::{Bytes, CoflowId, CoflowSpec, Fabric, FlowId, FlowSpec, HostId, LinkId, Path, Span, Time};

/// What changed since the last [`CoflowTable::adopt`], besides what moved by the plan.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Coflows that were inserted, in order of insertion; some may be gone again.
    pub arrived: Vec<Slot>,
    /// Coflows that were removed, in order of removal.
    pub departed: Vec<Slot>,
    /// Path classes whose number of live flows was touched, each once.
    pub classes: Vec<ClassId>,
    /// Flows that ended when their grant had moved all they had.
    pub ended: Vec<FlowRef>,
    /// All flows that ended, in whatever way; their coflow may have been removed since.
    pub gone: Vec<FlowRef>,
    /// Whether anything else happened: something came or went otherwise, or was corrected.
    pub disturbed: bool,
}

/// All live coflows. Iteration is by (arrival, id) whatever the order of insertion.
#[derive(Clone, Debug)]
pub struct CoflowTable {
    pub(super) hosts: usize,
    pub(super) links: usize,
    pub(super) slots: Vec<Option<Box<Coflow>>>,
    free: Vec<Slot>,
    pub(super) order: Vec<Slot>,
    by_id: BTreeMap<CoflowId, Slot>,
    /// First flow id of a run of consecutive ids -> coflow, index of the first, length.
    flow_ids: BTreeMap<u64, (Slot, u32, u32)>,
    pub(super) classes: Classes,
    /// That of the last plan: how amounts left are kept; see the module's documentation.
    pub(super) form: Form,
    live_flows: usize,
    /// Live coflows with a place or ancestors stated.
    related: usize,
    /// Above [`Coflow::raises`] of all coflows that were removed.
    raises: u64,
    pub(super) moving: Moving,
    pub(super) changes: Changes,
}

impl CoflowTable {
    /// An empty table for coflows on a fabric. Later calls must pass fabrics of the same shape, until
    /// [`CoflowTable::refit`] takes over another one; their capacities may change.
    pub fn new(fabric: &Fabric) -> CoflowTable {
        CoflowTable {
            hosts: fabric.hosts() as usize,
            links: fabric.links().len(),
            slots: Vec::new(),
            free: Vec::new(),
            order: Vec::new(),
            by_id: BTreeMap::new(),
            flow_ids: BTreeMap::new(),
            classes: Classes::new(fabric),
            form: Form::Drains,
            live_flows: 0,
            related: 0,
            raises: 0,
            moving: Moving::default(),
            changes: Changes::default(),
        }
    }

    /// Slots of all live coflows by (arrival, id).
    #[inline]
    pub fn slots(&self) -> &[Slot] {
        &self.order
    }

    /// All live coflows by (arrival, id).
    pub fn coflows(&self) -> impl Iterator<Item = (Slot, &Coflow)> {
        self.order.iter().map(|&slot| (slot, self.coflow(slot)))
    }

    /// The live coflow in a slot. Panics on a slot that is not in use.
    #[inline]
    pub fn coflow(&self, slot: Slot) -> &Coflow {
        self.slots[slot.0 as usize].as_deref().expect("a slot in use")
    }

    pub(super) fn coflow_mut(&mut self, slot: Slot) -> &mut Coflow {
        self.slots[slot.0 as usize].as_deref_mut().expect("a slot in use")
    }

    /// Number of slots ever in use: every slot is below it.
    pub fn slot_bound(&self) -> usize {
        self.slots.len()
    }

    /// The slot of a live coflow.
    pub fn find_coflow(&self, id: CoflowId) -> Option<Slot> {
        self.by_id.get(&id).copied()
    }

    /// A live flow by the id its owner gave.
    pub fn find_flow(&self, id: FlowId) -> Option<FlowRef> {
        let (&first, &(coflow, index, length)) = self.flow_ids.range(..=id.0).next_back()?;
        let offset = id.0 - first;
        let flow = FlowRef { coflow, flow: index + offset as u32 };
        (offset < u64::from(length) && self.flow(flow).live).then_some(flow)
    }

    /// A flow, live or not.
    #[inline]
    pub fn flow(&self, at: FlowRef) -> &super::Flow {
        &self.coflow(at.coflow).flows[at.flow as usize]
    }

    /// Number of live flows of all coflows.
    pub fn live_flows(&self) -> usize {
        self.live_flows
    }

    /// Whether the place or ancestors of any live coflow were stated; without, there is no need to ask for them.
    pub fn has_related_coflows(&self) -> bool {
        self.related > 0
    }

    /// All path classes met so far; a [`ClassId`] is an index into them.
    #[inline]
    pub fn classes(&self) -> &[Class] {
        &self.classes.all
    }

    /// What changed since the last plan was adopted.
    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Adds a coflow whose flows get consecutive ids from `first_flow`. Panics if the coflow or one of
    /// the ids is already live.
    pub fn insert(&mut self, spec: &CoflowSpec, first_flow: FlowId, fabric: &Fabric) -> Slot {
        let mut coflow = Box::new(Coflow::new(spec.id, spec.arrival, self.hosts, self.links, self.raises));
        coflow.weight = spec.weight;
        coflow.deadline = spec.deadline;
        coflow.dependencies.clone_from(&spec.dependencies);
        self.related += usize::from(coflow.is_related());
        coflow.flows.reserve_exact(spec.flows.len());
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            Slot(self.slots.len() as u32 - 1)
        });
        let key = (spec.arrival, spec.id);
        let at = self.order.partition_point(|&other| {
            let other = self.coflow(other);
            (other.arrival, other.id) < key
        });
        self.order.insert(at, slot);
        if self.form == Form::Shares {
            coflow.paced = Some(Box::new(Paced::new(self.links, self.moving.clock, 0.0)));
        }
        self.slots[slot.0 as usize] = Some(coflow);
        assert!(self.by_id.insert(spec.id, slot).is_none(), "coflow {} is already live", spec.id);
        self.changes.arrived.push(slot);
        self.changes.disturbed = true;
        for (id, flow) in (first_flow.0..).zip(&spec.flows) {
            self.add_flow(slot, FlowId(id), flow, fabric);
        }
        slot
    }

    /// Adds a flow to a live coflow. Panics if the id is already live.
    pub fn add_flow(&mut self, slot: Slot, id: FlowId, spec: &FlowSpec, fabric: &Fabric) -> FlowRef {
        let class = self.classes.find(fabric, spec.source, spec.destination);
        let mut base = spec.size.0 as f64;
        let mut ends = None;
        if let Some(class) = class {
            if self.classes.all[class.index()].live == 0 {
                // No flow counts from the service of an empty class: its clock starts at 0 again, for precision.
                let service = self.classes.service(class);
                self.classes.all[class.index()].offset += service;
            }
            if self.form == Form::Levels {
                base += self.classes.service(class);
            }
            self.touch(class, 1);
            ends = Some(self.ends(class));
        }
        let form = self.form;
        let coflow = self.coflow_mut(slot);
        if form == Form::Drains {
            // What is left is base * scale, and the coflow may have drained before the flow joined.
            base /= coflow.scale;
        }
        if let Some(paced) = &mut coflow.paced {
            paced.push(spec.size.0 as f64, spec.size.0 as f64, ends.as_ref().map(|(_, _, path)| path));
        }
        let flow = coflow.add(id, (spec.size, spec.group), base, class, ends);
        self.changes.disturbed = true;
        self.live_flows += 1;
        self.note_id(slot, id, flow);
        FlowRef { coflow: slot, flow }
    }

    /// Remembers where a flow id is, extending the last run of ids where it continues it.
    fn note_id(&mut self, slot: Slot, id: FlowId, flow: u32) {
        if let Some((&first, run)) = self.flow_ids.range_mut(..=id.0).next_back() {
            let offset = id.0 - first;
            assert!(offset >= u64::from(run.2), "flow {id} is already known");
            // Flows of a coflow mostly come with consecutive ids: one entry for all of them.
            if run.0 == slot && offset == u64::from(run.2) && run.1 + run.2 == flow {
                run.2 += 1;
                return;
            }
        }
        self.flow_ids.insert(id.0, (slot, flow, 1));
        self.coflow_mut(slot).id_ranges.push(id.0);
    }

    fn ends(&self, class: ClassId) -> (HostId, HostId, Path) {
        let class = &self.classes.all[class.index()];
        (class.source, class.destination, class.path)
    }

    pub(super) fn touch(&mut self, class: ClassId, delta: i32) {
        let entry = &mut self.classes.all[class.index()];
        entry.live = entry.live.wrapping_add_signed(delta);
        if !entry.changed {
            entry.changed = true;
            self.changes.classes.push(class);
        }
    }

    /// Ends a live flow: all its bytes have arrived. Its capacity is free from now on.
    pub fn finish_flow(&mut self, at: FlowRef) {
        self.end(at, 0.0);
    }

    /// Ends a live flow that will never complete, as when its receiver is gone.
    pub fn remove_flow(&mut self, at: FlowRef) {
        self.end(at, self.remaining(at));
    }

    /// Ends a flow that has moved all but `left` bytes.
    fn end(&mut self, at: FlowRef, left: f64) {
        debug_assert!(self.flow(at).live, "a flow ends once");
        let (size, class) = (self.flow(at).size.0 as f64, self.flow(at).class);
        let coflow = self.coflow_mut(at.coflow);
        match &mut coflow.paced {
            Some(paced) => paced.leave(at.flow, left),
            None if class.is_some() => coflow.sent += size - left,
            None => {}
        }
        let ends = class.map(|class| self.ends(class));
        // Before the flow ends: its grant is moved back to the base of its links, from which `end` takes it.
        self.forget_grant(at);
        self.coflow_mut(at.coflow).end(at.flow, ends);
        if let Some(class) = class {
            self.touch(class, -1);
        }
        self.live_flows -= 1;
        self.changes.gone.push(at);
        self.refresh_if_due(at.coflow);
    }

    pub(super) fn refresh_if_due(&mut self, slot: Slot) {
        if self.form == Form::Drains && self.coflow(slot).needs_refresh() {
            self.refresh(slot, FLOOR_BYTES);
        }
    }

    /// Computes the sums of a coflow from its flows.
    pub(super) fn refresh(&mut self, slot: Slot, floor: f64) {
        let classes = &self.classes.all;
        let coflow = self.slots[slot.0 as usize].as_deref_mut().expect("a slot in use");
        coflow.refresh(&self.moving, floor, |class| classes[class.index()].path);
    }

    /// Takes a coflow out, with whatever flows it still has.
    pub fn remove(&mut self, slot: Slot) {
        let coflow = self.slots[slot.0 as usize].take().expect("a slot in use");
        self.moving.stop(slot);
        // The same coflow may come back in the same slot: its numbers begin above these, so that nothing kept of it seems to hold.
        self.raises = self.raises.max(coflow.raises() + 1);
        self.related -= usize::from(coflow.is_related());
        self.changes.disturbed = true;
        for flow in coflow.flows.iter().filter(|flow| flow.live) {
            self.live_flows -= 1;
            if flow.granted != NONE {
                self.moving.leave(flow.granted);
            }
            if let Some(class) = flow.class {
                self.touch(class, -1);
            }
        }
        for first in &coflow.id_ranges {
            self.flow_ids.remove(first);
        }
        self.by_id.remove(&coflow.id);
        self.order.retain(|&other| other != slot);
        self.free.push(slot);
        self.changes.departed.push(slot);
    }

    /// Bytes left of a flow, 0 if it has ended.
    pub fn remaining(&self, at: FlowRef) -> f64 {
        let coflow = self.coflow(at.coflow);
        let flow = &coflow.flows[at.flow as usize];
        match flow.class {
            _ if !flow.live => 0.0,
            Some(class) if self.form == Form::Levels => (flow.base - self.classes.service(class)).max(0.0),
            Some(_) if coflow.paced.is_some() => {
                coflow.paced.as_ref().map_or(0.0, |paced| paced.left(at.flow, self.moving.clock))
            }
            _ if flow.granted != NONE => self.moving.left(flow.granted).max(FLOOR_BYTES),
            _ => flow.base * coflow.scale,
        }
    }

    /// Corrects what is left of a live flow, as from an agent's report. At least a trace is kept: only
    /// [`CoflowTable::finish_flow`] ends a flow.
    pub fn set_remaining(&mut self, at: FlowRef, bytes: f64) {
        let Some(class) = self.flow(at).class else { return };
        let service = self.classes.service(class);
        let (form, clock) = (self.form, self.moving.clock);
        self.changes.disturbed = true;
        if let Some(paced) = &mut self.coflow_mut(at.coflow).paced {
            return paced.set_left(at.flow, bytes, clock);
        }
        if self.flow(at).granted != NONE {
            self.shift_granted(at, bytes);
            self.coflow_mut(at.coflow).note_raise();
            return;
        }
        let classes = &self.classes.all;
        let coflow = self.slots[at.coflow.0 as usize].as_deref_mut().expect("a slot in use");
        if form == Form::Levels {
            coflow.flows[at.flow as usize].base = bytes + service;
        } else {
            // Not 0: a flow that is still live must have a rate, and only a report ends it.
            let base = (bytes / coflow.scale).max(coflow.floor());
            let delta = base - coflow.flows[at.flow as usize].base;
            coflow.shift(at.flow, delta, class, (classes, &self.moving));
            coflow.note_raise();
            self.refresh_if_due(at.coflow);
        }
    }

    /// Takes over a plan just made: from now on [`CoflowTable::advance`] may be called with it. The table
    /// remembers drains and grants, a plan may hold no more than what changes in them. Forgets
    /// [`CoflowTable::changes`].
    pub fn adopt(&mut self, plan: &Plan) {
        // In this order: rates stop under the old form, amounts change to the new one, and then new rates start.
        if !plan.continues {
            self.stop_moving(plan);
        }
        if plan.form != self.form {
            self.change_form(plan.form);
        }
        self.start_moving(plan);
        if plan.form == Form::Shares {
            self.start_sharing(plan);
        }
        for &(class, link) in &plan.switched {
            self.classes.attach(class, link);
        }
        for class in self.changes.classes.drain(..) {
            self.classes.all[class.index()].changed = false;
        }
        self.changes.arrived.clear();
        self.changes.departed.clear();
        self.changes.ended.clear();
        self.changes.gone.clear();
        self.changes.disturbed = false;
    }

    /// Keeps amounts left in another way, at the cost of one visit to every flow.
    pub(super) fn change_form(&mut self, form: Form) {
        for at in 0..self.order.len() {
            let slot = self.order[at];
            let (attained, flows) = (self.attained(slot), self.coflow(slot).flows.len() as u32);
            let left: Vec<f64> =
                (0..flows).map(|flow| self.remaining(FlowRef { coflow: slot, flow })).collect();
            let (classes, clock) = (&self.classes, self.moving.clock);
            let coflow = self.slots[slot.0 as usize].as_deref_mut().expect("a slot in use");
            let mut paced = Paced::new(self.links, clock, attained);
            let mut moved = 0.0;
            for (flow, &left) in coflow.flows.iter_mut().zip(&left) {
                let class = flow.class.filter(|_| flow.live);
                paced.push(flow.size.0 as f64, left, class.map(|class| &classes.all[class.index()].path));
                let Some(class) = class else { continue };
                moved += flow.size.0 as f64 - left;
                flow.base = if form == Form::Levels { left + classes.service(class) } else { left };
            }
            coflow.scale = 1.0;
            // Bytes of flows that have ended: `attained` is computed from these and from what live flows have moved.
            coflow.sent = attained - moved;
            coflow.paced = (form == Form::Shares).then(|| Box::new(paced));
            if form == Form::Drains {
                coflow.refresh(&self.moving, FLOOR_BYTES, |class| classes.all[class.index()].path);
            }
        }
        self.form = form;
    }

    /// Moves every flow on by what the adopted plans give it in `span`; `plan` is the last of them. Rates
    /// are those at the time of the plan, however often this is called.
    pub fn advance(&mut self, plan: &Plan, span: Span) {
        let secs = span.as_secs();
        for (served, level) in self.classes.served.iter_mut().zip(&plan.levels) {
            // A link that limits no flow has an infinite level, and no class is attached to it.
            if level.is_finite() {
                *served += level * secs;
            }
        }
        self.pass(span.nanos());
    }

    /// Remaining demand of a coflow on a link divided by [`Coflow::scale`].
    #[inline]
    pub fn demand_base(&self, coflow: &Coflow, link: LinkId) -> f64 {
        coflow.demand_base(link, self.moving.clock)
    }

    /// Remaining demand of a coflow on a link in bytes. Meaningless while the table moves by levels.
    #[inline]
    pub fn demand(&self, slot: Slot, link: LinkId) -> f64 {
        self.coflow(slot).demand(link, self.moving.clock)
    }

    /// The bytes a flow of the class must have been served, counted by the link it is attached to,
    /// before a flow with this `target` ends; see [`CoflowTable::target`].
    #[inline]
    pub fn target_on_link(&self, class: ClassId, target: f64) -> f64 {
        target + self.classes.all[class.index()].offset
    }

    /// Bytes served so far at a link's level; rises by the level every second.
    #[inline]
    pub fn served(&self, link: LinkId) -> f64 {
        self.classes.served[link.index()]
    }

    /// While the table moves by levels: the service of its class at which a flow ends.
    #[inline]
    pub fn target(&self, at: FlowRef) -> f64 {
        self.flow(at).base
    }

    /// Bytes that all live flows of all coflows have left, rounded up; for reports.
    pub fn remaining_bytes(&self) -> Bytes {
        let mut total = 0.0;
        for &coflow in &self.order {
            for flow in 0..self.coflow(coflow).flows.len() as u32 {
                total += self.remaining(FlowRef { coflow, flow });
            }
        }
        Bytes(total.ceil() as u64)
    }

    /// When the coflow must be complete, if it has a deadline.
    pub fn due(&self, slot: Slot) -> Option<Time> {
        let coflow = self.coflow(slot);
        coflow.deadline.map(|span| coflow.arrival + span)
    }
}
