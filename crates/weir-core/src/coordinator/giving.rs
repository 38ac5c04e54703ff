//! What limited flows leave is given to others ([`weir_policy::rules::gifts`]): which flows are limited is heard from agents.
//!
//! Agents tell what a flow can use where that is less than it is given (`FlowLimits`); at each plan the rule says what
//! others get. A limited flow moves in the table by what it can use, so that what it is believed to have left is what it has.

use super::state::{Coordinator, FlowKey, SessionId, flow_key};
use crate::ids::FlowNumber;
use weir_model::{Span, Time};
use weir_policy::FlowRef;
use weir_policy::rules::{Given, gifts};
use weir_proto::v1;

impl Coordinator {
    /// What flows of an agent can use.
    pub(super) fn handle_limits(&mut self, now: Time, session: SessionId, limits: &v1::FlowLimits) {
        let Some(host) = self.agents.get(&session).map(|agent| agent.host) else { return };
        self.advance(now);
        for limit in &limits.flows {
            let key = flow_key(host, FlowNumber(limit.flow));
            // A flow that ended, or that the agent made up: a limit kept for it would never be removed.
            if !self.flows.contains_key(&key) {
                continue;
            }
            if limit.bytes_per_s >= 0.0 && limit.bytes_per_s.is_finite() {
                self.limits.insert(key, limit.bytes_per_s);
            } else {
                self.limits.remove(&key);
            }
        }
        self.count("flow_limits");
        self.want_plan(now);
    }

    /// What a flow can use, as its agent said.
    pub(super) fn limit_of(&self, key: FlowKey) -> f64 {
        self.limits.get(&key).copied().unwrap_or(f64::INFINITY)
    }

    /// Flows of the table that are limited, and bytes per second that they can use.
    fn limited(&self) -> impl Iterator<Item = (FlowRef, f64)> + '_ {
        self.limits.iter().filter_map(|(key, &limit)| Some((self.flows.get(key)?.at?, limit)))
    }

    /// What a flow has on top of the plan in force, of what limited flows leave.
    pub(super) fn gift(&self, at: FlowRef) -> f64 {
        self.gifts.get(&at).copied().unwrap_or(0.0)
    }

    /// Gives away, on top of the plan just adopted, what limited flows do not take.
    pub(super) fn give_away(&mut self) {
        let limits = self.limited().collect();
        let given = Given {
            fabric: self.network.left(),
            table: &self.table,
            plan: &self.plan,
            order: &self.plan.order,
        };
        self.gifts = gifts(given, &limits);
    }

    /// Moves the table on by a plan, limited flows by what they can use and others by what they have besides.
    pub(super) fn advance_table(&mut self, span: Span) {
        let secs = span.as_secs();
        let before: Vec<(FlowRef, f64, f64)> =
            self.limited().map(|(at, limit)| (at, self.table.remaining(at), limit * secs)).collect();
        self.table.advance(&self.plan, span);
        for (at, before, usable) in before {
            if self.table.flow(at).live() && before - self.table.remaining(at) > usable {
                // At least a byte: only the receiver's word ends a flow, and one with nothing left would get no rate.
                self.table.set_remaining(at, (before - usable).max(1.0));
            }
        }
        for (&at, &gift) in &self.gifts {
            if self.table.flow(at).live() {
                self.table.set_remaining(at, (self.table.remaining(at) - gift * secs).max(1.0));
            }
        }
    }
}
