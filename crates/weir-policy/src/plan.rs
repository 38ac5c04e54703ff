//! What a policy decides, in compact form.

use crate::view::{ClassId, FlowRef, Slot};
use std::fmt;
use weir_model::{LinkId, LinkKind, Rate, Span};

/// The rate of one flow, in place of what its coflow's drain gives it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grant {
    /// Flow that has the rate.
    pub flow: FlowRef,
    /// Its rate, not below that of the drain; 0 takes the grant away.
    pub bytes_per_sec: f64,
}

/// A part of a flow that goes by way of a relay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Detour {
    /// The flow, which has a grant.
    pub flow: FlowRef,
    /// The site whose relay passes it on: neither the one it comes from nor the one it goes to.
    pub relay: u32,
    /// How much of its grant goes this way; what is left of the grant by all its detours goes directly.
    pub bytes_per_sec: f64,
}

/// Why a coflow is refused.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// Coflow that is refused, by its slot.
    pub coflow: Slot,
    /// Link on which the coflow lacks most capacity.
    pub link: LinkKind,
    /// What it needs there on average until it is due.
    pub needed: Rate,
    /// What coflows let in before leave there on average until then.
    pub left: Rate,
    /// Time until it is due.
    pub within: Span,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal { link, needed, left, within, .. } = self;
        let secs = within.as_secs();
        write!(
            f,
            "{link}: {needed} needed for {secs} s until the deadline, {left} left by coflows let in before"
        )?;
        // On average there is enough on this link, only not when the coflow's other links have it
        // too. The bare sentence would seem to contradict its own numbers.
        let fits = needed <= left;
        if fits { f.write_str(", but not at the same time as on its other links") } else { Ok(()) }
    }
}

/// How the flows of one coflow share what links have for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// Coflow whose flows share, by its slot.
    pub coflow: Slot,
    /// Whether rates are per byte of a flow's size.
    pub by_size: bool,
    /// The rate of the flows that a link limits, for every link that the coflow crosses: 0 where a link has
    /// nothing for it, infinite where it limits no flow. Without any, no flow moves.
    pub levels: Vec<(LinkId, f64)>,
}

/// How a plan says the rate of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// By drains and grants: it is the flow's grant, or else `drain of its coflow * bytes it has left`.
    #[default]
    Drains,
    /// By levels: it is the least level of the links of the flow's path, whatever its coflow.
    Levels,
    /// By shares: it is the least level of the links of the flow's path in its coflow's share, times its size if the share
    /// is by size; several shares of a coflow add up.
    Shares,
}

/// The rates of all live flows from one event to the next, without a list of them.
///
/// A plan that goes on from the last one names changes only: [`crate::CoflowTable`] knows all drains and grants
/// once it has adopted the plan.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Which of the fields below say the rates. A policy may change it with a plan that continues nothing.
    pub form: Form,
    /// Whether drains and grants that are not named stay; else they end.
    pub continues: bool,
    /// Coflows that move as a whole: every flow moves `drain * bytes left` per second, so that all its
    /// flows without a grant end together after `1 / drain` seconds (MADD). At most one entry per coflow,
    /// above 0; none in a plan that continues the last one.
    pub drains: Vec<(Slot, f64)>,
    /// Flows with a rate of their own (backfilled); at most one entry per flow.
    pub grants: Vec<Grant>,
    /// Parts of grants that do not take the direct path; at most one entry per flow and relay, none in a plan that
    /// continues the last one.
    pub detours: Vec<Detour>,
    /// Per link, the rate of the flows that it limits, infinite where it limits none; empty in the other forms.
    pub levels: Vec<f64>,
    /// Path classes whose limiting link is not the one of the last plan (levels only).
    pub switched: Vec<(ClassId, LinkId)>,
    /// Coflows whose flows share links among themselves; all shares of a coflow stand together, and replace
    /// those of the last plan.
    pub shares: Vec<Share>,
    /// The coflows as the plan serves them, first to last, which is what relays between sites are told; empty from policies that serve
    /// them otherwise than one after the other.
    pub order: Vec<Slot>,
    /// The queue of every live coflow, counted from 0, in no order; empty from policies without queues that senders are told of.
    pub queues: Vec<(Slot, u32)>,
    /// The class of every live coflow, counted from 0, in order; empty from policies without classes.
    pub classes: Vec<(Slot, u32)>,
    /// Of coflows in classes those whose flows are to end just before they are due, and no sooner.
    pub just_in_time: Vec<Slot>,
    /// Coflows that are refused from now on, each once: they get nothing. The holder of the table (simulator or coordinator) takes them
    /// out, or lets them move on their own.
    pub refused: Vec<Refusal>,
}

impl Plan {
    /// Empties the plan, keeping its memory.
    pub fn clear(&mut self) {
        self.form = Form::Drains;
        self.continues = false;
        self.drains.clear();
        self.grants.clear();
        self.detours.clear();
        self.levels.clear();
        self.switched.clear();
        self.shares.clear();
        self.order.clear();
        self.queues.clear();
        self.classes.clear();
        self.just_in_time.clear();
        self.refused.clear();
    }
}
