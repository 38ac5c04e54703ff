//! Changes while coflows move: another policy, other times, another network.
//!
//! # Problem
//! A restart to change a policy costs every agent its plan, and every driver that waits its answer. But a policy keeps state
//! of its own, agents hold rates that it gave, and where senders decide sizes are not known.
//!
//! # Approach
//! One policy takes the place of another over the same table of live coflows, with nothing of what the other gave; every agent
//! is sent all of the next plan. Where agents are to go by other terms than before (`senders`), their sessions end: they ask for
//! the terms, and their Hellos tell what is to be known under them, as after a restart. What drivers and receivers wait for,
//! stays. An agent says which terms it goes by: one that asked before a change, and comes after it, is sent to ask again.
//!
//! # Properties
//! * No flow stops for a change: its rate stands until its agent hears more, or for as long as a new flow waits for a plan.
//! * What was promised or refused for a deadline stays promised or refused.
//! * A change that changes nothing does nothing.

use super::admission::DeadlineMargin;
use super::known::Joining;
use super::readiness::{Demand, Stage};
use super::senders::Senders;
use super::state::{Coordinator, SessionId};
use weir_model::{CoflowId, Span, Time};
use weir_policy::Chosen;
use weir_proto::v1;

/// Times and bounds of a coordinator that may be others while coflows move.
#[derive(Clone, Debug, PartialEq)]
pub struct Tuning {
    /// Coflows whose bottleneck on the empty fabric takes less than this are left to TCP. Zero: none is.
    pub bypass: Span,
    /// How long a coflow waits for the rest of its announced flows, from its first get on.
    pub ready_wait: Span,
    /// What deadlines are shortened by for the policy.
    pub deadline_margin: DeadlineMargin,
    /// Where senders decide: how often they are told queues, unless the policy's own settings say.
    pub sync_interval: Span,
    /// No plan is made sooner after the last one: events of so long share one.
    pub batch: Span,
}

impl Default for Tuning {
    /// As `weir coordinator` has it.
    fn default() -> Tuning {
        Tuning {
            bypass: Span::from_millis(250),
            ready_wait: Span::from_millis(3),
            deadline_margin: DeadlineMargin { share: 0.05, time: Span::from_millis(20) },
            sync_interval: Span::from_millis(10),
            batch: Span::from_millis(1),
        }
    }
}

/// What a coordinator is to be like from some time on.
#[derive(Clone, Debug)]
pub struct Change {
    /// The policy that plans from then on, with its settings.
    pub policy: Chosen,
    /// Times and bounds of the coordinator from then on.
    pub tuning: Tuning,
    /// What its network is to be like, if that is open.
    pub joining: Option<Joining>,
}

impl Coordinator {
    /// Takes over a change; what moves goes on.
    pub fn handle_change(&mut self, now: Time, change: Change) {
        if let Some(joining) = change.joining {
            self.handle_network(now, joining);
        }
        // Agents that have not come back since the last change are waited for no more.
        self.returning.clear();
        let is_same = change.policy.name == self.policy_name;
        if is_same && change.tuning == self.config.tuning {
            return;
        }
        // What flows moved until now, they moved at the rates of the policy before.
        self.advance(now);
        self.count("changes");
        // The terms of before, to be compared with those that follow from the change.
        let terms = self.terms();
        self.config.tuning = change.tuning;
        let senders = Senders::new(&self.config.tuning, &change.policy);
        let decided_here = self.senders.is_none() && senders.is_none();
        if !is_same || !decided_here {
            self.senders = senders;
            self.policy_name.clone_from(&change.policy.name);
            self.policy_info = change.policy.info;
            self.policy = change.policy.create_for_coordinator();
            self.begin_plans_anew();
        }
        if terms == self.terms() {
            for session in self.agents.keys().copied().collect::<Vec<_>>() {
                self.forget_told(session);
            }
            self.schedule_what_is_not_small(now);
            let waiting: Vec<CoflowId> = self.gathering.iter().map(|&(_, id)| id).collect();
            waiting.into_iter().for_each(|id| self.gather(now, id));
        } else {
            self.begin_sessions_anew(now);
        }
        self.want_plan(now);
    }

    /// The next plan is the first of its policy, on what is live.
    pub(super) fn begin_plans_anew(&mut self) {
        // Flows keep what they have left, and all that the old policy gave is gone from the table.
        self.table.refit(self.network.left());
        self.plan.clear();
        self.gifts.clear();
        self.disturb_senders();
    }

    /// Every agent is to come again, and to tell all that it knows.
    fn begin_sessions_anew(&mut self, now: Time) {
        self.returning = self.hosts.keys().copied().collect();
        for session in self.agents.keys().copied().collect::<Vec<SessionId>>() {
            self.handle_session_lost(now, session);
            self.closed.push_back(session);
        }
        self.gathering.clear();
        let mut served = Vec::new();
        for (&id, coflow) in &mut self.coflows {
            // What waited, or was not judged, begins anew.
            let is_judged = coflow.admission() != v1::Admission::Undecided;
            if matches!(coflow.stage, Stage::Gathering(_)) || !is_judged {
                coflow.stage = Stage::Bypassed;
            }
            // Where senders decided, it is a sum of stand-ins for unknown sizes; what agents served is counted anew below.
            coflow.demand = Demand::default();
            served.extend(coflow.done.iter().map(|(&host, &(_, bytes))| (host, id, bytes)));
        }
        served.into_iter().for_each(|(host, id, bytes)| self.note_served(host, id, bytes));
    }

    /// Coflows that are left to TCP, and would not be from now on, are scheduled.
    fn schedule_what_is_not_small(&mut self, now: Time) {
        let left = self.coflows.iter().filter(|(_, coflow)| {
            coflow.stage == Stage::Bypassed && coflow.opened > 0 && !coflow.outside.is_empty()
        });
        for id in left.map(|(&id, _)| id).collect::<Vec<_>>() {
            if !self.is_small(id) {
                self.gather(now, id);
            }
        }
    }

    /// How many hosts whose agents are to come again for a change have not come yet.
    pub fn returning(&self) -> usize {
        self.returning.len()
    }

    /// Coflows that need less than this alone are left to TCP. Where senders decide, no size is known, so none is taken for small.
    pub(super) fn bypass(&self) -> Span {
        if self.senders.is_some() { Span::ZERO } else { self.config.tuning.bypass }
    }

    /// How long a coflow waits for announced flows. Where senders decide, none waits for others.
    pub(super) fn ready_wait(&self) -> Span {
        if self.senders.is_some() { Span::ZERO } else { self.config.tuning.ready_wait }
    }
}
