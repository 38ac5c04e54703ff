//! Deadlines: which coflows the policy lets in, and which drivers and agents are told.
//!
//! # Problem
//! A policy that promises deadlines turns coflows away. Someone waits for their bytes all the same: a driver that
//! could do without, or start again later, and receivers that would wait for ever.
//!
//! # Approach
//! A coflow with a deadline is judged by the first plan that counts it, once the flows it announced are there
//! (`readiness`). What the policy refuses leaves its table. By default the bytes move as without Weir; a driver
//! may ask for the coflow to stop instead. Either way every caller that waits gets the reason, and a refusal is part of
//! the coflow's note, so that it outlives this process.
//!
//! # Terminology
//! The margin is what a deadline is shortened by for the policy: plans are in force a little late, and transports
//! are never as even as their rates.
//!
//! # Pseudo-code
//! ```text
//! coflow c with a deadline enters the table: due for the policy = arrival + deadline * (1 - share) - time
//! after every plan:
//!     for c refused: take its flows out of the table; tell its agents to send as TCP does, or to stop
//!     for c that the plan counts and did not refuse: it is admitted
//!     answer who waits to know
//! ```
//!
//! # Properties
//! * No caller waits longer than it said, or than until the coflow is judged or ends.
//! * A coflow is refused once and for all: to try again is to register anew.
//! * One that was let in stays so: it is a promise. Where the policy later sees no way to keep it, for its flows broke off
//!   and came back behind others, they move as TCP has them move, nothing is stopped, and the record says what was told.
//!
//! # Departures
//! Varys, section 5.4, leaves what becomes of a refused coflow to its framework. The margin is ours: in the paper
//! a quarter of the coflows that were let in came late in the running system.

use super::callers::Callers;
use super::readiness::Stage;
use super::state::{CoflowEntry, Coordinator, FlowKey};
use crate::ids::HostNumber;
use std::collections::{BTreeSet, VecDeque};
use weir_model::{CoflowId, Span, Time};
use weir_policy::Slot;
use weir_proto::{limits, v1};

/// What deadlines are shortened by for the policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeadlineMargin {
    /// A share of the deadline, 0 to 1.
    pub share: f64,
    /// Time by which a deadline is shortened in addition.
    pub time: Span,
}

impl DeadlineMargin {
    /// Deadlines are not shortened, as in the simulator.
    pub const NONE: DeadlineMargin = DeadlineMargin { share: 0.0, time: Span::ZERO };

    /// The deadline that the policy sees: no time at all where the margin leaves none.
    pub(super) fn shorten(self, deadline: Span) -> Span {
        let left = deadline.as_secs() * (1.0 - self.share) - self.time.as_secs();
        if left > 0.0 { Span::from_secs_ceil(left) } else { Span::from_nanos(1) }
    }
}

/// What became of a coflow's deadline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Verdict {
    /// No plan has counted it yet.
    #[default]
    Undecided,
    Admitted,
    /// Refused, for the reason that callers are told.
    Refused(String),
}

impl CoflowEntry {
    pub(super) fn admission(&self) -> v1::Admission {
        match self.verdict {
            _ if self.options.deadline_ms == 0 => v1::Admission::NoDeadline,
            Verdict::Undecided => v1::Admission::Undecided,
            Verdict::Admitted => v1::Admission::Admitted,
            Verdict::Refused(_) => v1::Admission::Refused,
        }
    }

    /// Whether its driver may have been told that its deadline was promised.
    pub(super) fn is_admitted(&self) -> bool {
        self.admission() == v1::Admission::Admitted
    }

    /// Why it was refused; empty if it was not.
    pub(super) fn refusal(&self) -> String {
        if let Verdict::Refused(reason) = &self.verdict { reason.clone() } else { String::new() }
    }

    /// Why it was stopped; empty if it was not.
    pub(super) fn stopped(&self) -> String {
        if self.options.stop_if_refused { self.refusal() } else { String::new() }
    }
}

/// The reply to an `AwaitAdmission` that may have waited.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// As given with the request.
    pub token: u64,
    /// Reply to the call with this token.
    pub reply: v1::AdmissionReply,
}

/// Calls that wait for a verdict, and verdicts to be told.
#[derive(Debug, Default)]
pub(super) struct Awaited {
    /// Calls that wait for a verdict, by coflow.
    pub(super) waiting: Callers<CoflowId, ()>,
    decisions: VecDeque<Decision>,
    /// Coflows with a deadline in the table that no plan has counted yet.
    unjudged: BTreeSet<CoflowId>,
}

impl Coordinator {
    /// Whether a coflow was let in; answered through [`Coordinator::poll_output`] now or when it is known.
    pub fn handle_await_admission(&mut self, now: Time, token: u64, request: &v1::AdmissionRequest) {
        let wait = Span::from_millis(request.wait_ms.min(limits::MAX_LOCATE_WAIT_MS));
        let full = self.awaited.waiting.len() >= limits::MAX_WAITING_ADMISSIONS;
        let coflow = CoflowId(request.coflow);
        let undecided = self.coflows.get(&coflow).map(CoflowEntry::admission);
        if undecided != Some(v1::Admission::Undecided) || full || wait == Span::ZERO {
            self.answer_call(token, coflow);
        } else {
            self.awaited.waiting.add(coflow, token, now + wait, ());
        }
    }

    /// The next reply to an `AwaitAdmission`.
    pub(super) fn poll_decision(&mut self) -> Option<Decision> {
        self.awaited.decisions.pop_front()
    }

    fn admission_reply(&self, id: CoflowId) -> v1::AdmissionReply {
        match self.coflows.get(&id) {
            Some(coflow) => v1::AdmissionReply {
                admission: coflow.admission().into(),
                reason: coflow.refusal(),
                ended: false,
            },
            None => v1::AdmissionReply { ended: true, ..v1::AdmissionReply::default() },
        }
    }

    fn answer_call(&mut self, token: u64, id: CoflowId) {
        let reply = self.admission_reply(id);
        self.awaited.decisions.push_back(Decision { token, reply });
    }

    /// Answers all who wait to know of a coflow.
    pub(super) fn answer_awaited(&mut self, id: CoflowId) {
        for token in self.awaited.waiting.take(&id).into_keys() {
            self.answer_call(token, id);
        }
    }

    /// Answers those whose time limit has passed.
    pub(super) fn expire_awaited(&mut self, now: Time) {
        while let Some((token, id)) = self.awaited.waiting.take_due(now) {
            self.answer_call(token, *id);
        }
    }

    /// The next plan judges a coflow, if it has a deadline.
    pub(super) fn expect_judgement(&mut self, id: CoflowId) {
        if self.coflows.get(&id).is_some_and(|coflow| coflow.admission() == v1::Admission::Undecided) {
            self.awaited.unjudged.insert(id);
        }
    }

    /// Acts on what the plan just adopted lets in and refuses.
    pub(super) fn act_on_judgement(&mut self, now: Time) {
        // Refusals first: what is still undecided after them was let in.
        for refusal in std::mem::take(&mut self.plan.refused) {
            self.refuse(now, refusal.coflow, refusal.to_string());
        }
        for id in std::mem::take(&mut self.awaited.unjudged) {
            if let Some(coflow) = self.coflows.get_mut(&id)
                && coflow.verdict == Verdict::Undecided
            {
                coflow.verdict = Verdict::Admitted;
                self.count("coflows_admitted");
                self.answer_awaited(id);
                self.tell_note(id);
            }
        }
    }

    /// Takes a coflow out of the policy's table for good.
    fn refuse(&mut self, now: Time, slot: Slot, reason: String) {
        let id = self.table.coflow(slot).id();
        let live = (0u32..).zip(self.table.coflow(slot).flows()).filter(|(_, flow)| flow.live());
        let live: Vec<u32> = live.map(|(flow, _)| flow).collect();
        let keys: Vec<FlowKey> = live.iter().filter_map(|&flow| self.places.key(slot, flow)).collect();
        self.table.remove(slot);
        // Gifts name flows by their slots in the table, and the slot is free from here on.
        self.gifts.clear();
        self.disturb_senders();
        for key in &keys {
            self.flows.get_mut(key).into_iter().for_each(|flow| flow.at = None);
        }
        let Some(coflow) = self.coflows.get_mut(&id) else { return };
        // Its flows go on outside of the table, as those of a bypassed coflow.
        coflow.outside.extend(keys);
        (coflow.stage, coflow.told) = (Stage::Refused, None);
        let was_admitted = coflow.is_admitted();
        if !was_admitted {
            coflow.verdict = Verdict::Refused(reason);
        }
        let stops = !coflow.stopped().is_empty();
        let hosts: Vec<HostNumber> = coflow.live.keys().copied().collect();
        self.count(if was_admitted { "admitted_coflows_given_up" } else { "coflows_refused" });
        // A coflow that stops moves no more. Agents refuse its gets by its note, so there is
        // nothing to leave to TCP.
        for host in hosts.into_iter().filter(|_| !stops) {
            self.tell_bypassed(host, id);
        }
        self.tell_note(id);
        self.answer_awaited(id);
        if stops {
            self.answer_all_waiting(now, id);
        }
    }
}
