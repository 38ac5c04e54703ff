//! Coflows that are about to end: their coordinator waits to hear what receivers acknowledged.

use super::state::Agent;
use crate::ids::FlowNumber;
use weir_model::{CoflowId, Span, Time};
use weir_proto::v1;

/// How long the acknowledgement of a flow that was handed over whole is waited for.
const SETTLE_LIMIT: Span = Span::from_millis(100);

impl Agent {
    /// A coflow is about to end.
    pub(super) fn settle(&mut self, now: Time, id: CoflowId) {
        if let Some(coflow) = self.coflows.get_mut(&id) {
            let until = *coflow.settles.get_or_insert(now + SETTLE_LIMIT);
            self.settling.insert((until, id));
            self.settle_if_due(id);
        } else {
            self.say_settled(id);
        }
    }

    /// Says that a coflow is settled once no receiver can still acknowledge what was handed over.
    pub(super) fn settle_if_due(&mut self, id: CoflowId) {
        let Some(coflow) = self.coflows.get(&id) else { return };
        let Some(until) = coflow.settles else { return };
        let whole = |flow: &FlowNumber| self.flows.get(flow).is_some_and(|flow| flow.left() == 0);
        if !coflow.flows.iter().any(whole) {
            self.finish_settling(until, id);
        }
    }

    /// Ends what was waited for long enough.
    pub(super) fn end_settling(&mut self, now: Time) {
        while let Some(&(until, id)) = self.settling.first().filter(|&&(until, _)| until <= now) {
            self.finish_settling(until, id);
        }
    }

    fn finish_settling(&mut self, until: Time, id: CoflowId) {
        self.settling.remove(&(until, id));
        if let Some(coflow) = self.coflows.get_mut(&id) {
            coflow.settles = None;
        }
        self.say_settled(id);
    }

    fn say_settled(&mut self, coflow: CoflowId) {
        self.send(v1::agent_event::Kind::Settled(v1::CoflowSettled { coflow: coflow.0 }));
    }
}
