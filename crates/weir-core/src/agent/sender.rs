//! Where senders decide (D-CLAS): the agent divides its uplink itself, by the policy's local rule.
//!
//! # Problem
//! Between two messages of the coordinator flows begin and end, and coflows outgrow their queues. The uplink
//! must be full all the same, and in the right order.
//!
//! # Approach
//! Whenever a flow begins or has handed over its last byte, when queues are heard, and once per report, the
//! rule gives every flow a rate, from what is known here: heard queues, bytes sent here, and what each flow can
//! use. That is the limit that the coordinator last told for its receiver, and less if the flow was offered more
//! for a while and did not take it.
//!
//! # Terminology
//! * held up: the flow's socket was full, or too much of it was unacknowledged.
//! * earned: what the flow would have sent at the rates it was given.
//!
//! # Properties
//! * A flow that begins is given its rate at once; it waits for no message.
//! * Uplink that a flow was offered and does not take goes to others, at the first look after it was offered
//!   enough to judge by ([`weir_policy::rules::Offer`]).
//! * A flow that lost time to its host or its transport may go a quarter faster than its rate until it has caught
//!   up, and no faster: as under plans.
//! * Nothing that this module says to a coordinator has a size in it: it tells bytes once they were sent.
//! * Without a lease nothing is decided here: flows share as TCP has them share, until the next message.

use super::coflow::Treatment;
use super::flow::Flow;
use super::offer::LOOK_INTERVAL;
use super::pacer::Pacing;
use super::state::Agent;
use crate::ids::{FlowNumber, HostNumber};
use std::collections::{BTreeMap, BTreeSet};
use weir_model::{Bytes, CoflowId, Rate, Span, Time};
use weir_policy::local::{LocalCoflow, LocalFlow, LocalRule};
use weir_policy::local_rule;
use weir_policy::order::attained::QueueSettings;
use weir_policy::rules::{Judge, Offer};
use weir_proto::{limits, v1};

/// Reports go no more often than this, whatever interval a coordinator asks for.
const SHORTEST_REPORT_INTERVAL: Span = Span::from_nanos(1_000_000);

/// What an agent keeps where it decides itself.
#[derive(Debug)]
pub(super) struct Sender {
    terms: v1::SenderRule,
    /// `None` for a policy that this version does not know: its flows share as TCP has them share.
    rule: Option<Box<dyn LocalRule>>,
    uplink: Option<f64>,
    heard: BTreeMap<CoflowId, v1::CoflowQueue>,
    pub(super) offers: BTreeMap<FlowNumber, Offer>,
    /// Coflows of which more was sent than was told.
    untold: BTreeSet<CoflowId>,
    /// Something changed since rates were decided.
    due: bool,
    last_look: Time,
}

impl Sender {
    fn new(terms: v1::SenderRule) -> Sender {
        let settings = QueueSettings {
            // From the wire: the rule takes it for the nearest that a policy may have.
            queues: terms.queues,
            exponent: terms.exponent,
            first_bytes: terms.first_threshold,
            sync_interval: Span::from_nanos(terms.sync_interval_ns),
        };
        Sender {
            rule: local_rule(&terms.policy, settings),
            terms,
            uplink: None,
            heard: BTreeMap::new(),
            offers: BTreeMap::new(),
            untold: BTreeSet::new(),
            due: true,
            last_look: Time::ZERO,
        }
    }

    /// Takes over what was heard. A coflow never moves up, whatever a coordinator that began anew knows of it.
    fn hear(&mut self, queues: v1::Queues) {
        let mut before = BTreeMap::new();
        if queues.complete {
            // Coflows that it leaves out are forgotten; of the others the queue of before still
            // counts.
            before = std::mem::take(&mut self.heard);
        }
        for mut heard in queues.coflows {
            let coflow = CoflowId(heard.coflow);
            let known = before.get(&coflow).or_else(|| self.heard.get(&coflow));
            heard.queue = heard.queue.max(known.map_or(0, |known| known.queue));
            // Every flow looks for its receiver whenever rates are decided.
            heard.limits.sort_by_key(|limit| limit.host);
            self.heard.insert(coflow, heard);
        }
        if queues.uplink > 0.0 && queues.uplink.is_finite() {
            self.uplink = Some(queues.uplink);
        }
        self.due = true;
    }

    /// What the receiver's link has for a flow, as last heard.
    fn limit(&self, coflow: CoflowId, receiver: HostNumber) -> f64 {
        let limits = self.heard.get(&coflow).map_or(&[][..], |heard| &heard.limits);
        let at = limits.partition_point(|limit| limit.host < receiver.0);
        let limit = limits.get(at).filter(|limit| limit.host == receiver.0).map(|limit| limit.bytes_per_s);
        limit.filter(|limit| *limit >= 0.0).unwrap_or(f64::INFINITY)
    }
}

impl Agent {
    /// What the coordinator of the session that is about to begin wants of agents.
    pub fn handle_terms(&mut self, now: Time, terms: v1::TermsReply) {
        self.asked_terms = true;
        if self.sender.as_ref().map(|sender| &sender.terms) != terms.sender_rule.as_ref() {
            self.sender = terms.sender_rule.map(Sender::new);
            // Neither plans nor queues that were heard under other terms hold. Their rates do until new ones are heard, for as long as a new flow waits.
            self.waiting.clear();
            for coflow in self.coflows.values_mut() {
                coflow.treatment = Treatment::Unknown;
            }
            self.take_from_classes(|_| true);
            let until = now + self.config.first_plan_wait + self.ready_wait;
            for (&id, flow) in &mut self.flows {
                flow.planned = false;
                if self.pacer.pacing(id) != Some(Pacing::Unscheduled) {
                    flow.wait_until = until;
                    self.waiting.insert((until, id));
                }
            }
        }
        let sent = self.coflows.iter().filter(|(_, coflow)| coflow.sent_bytes > 0).map(|(&id, _)| id);
        if let Some(sender) = &mut self.sender {
            sender.untold.extend(sent);
        }
    }

    /// The terms that it goes by, if it asked for any.
    pub(super) fn terms(&self) -> Option<v1::TermsReply> {
        let sender_rule = self.sender.as_ref().map(|sender| sender.terms.clone());
        self.asked_terms.then_some(v1::TermsReply { sender_rule })
    }

    /// A size as it goes to a coordinator: nothing where none is wanted.
    pub(super) fn told_size(&self, size: u64) -> u64 {
        if self.sender.is_some() { 0 } else { size }
    }

    /// How long after the first byte of which nothing was told that is told.
    pub(super) fn report_interval(&self) -> Span {
        // Where senders decide, queues follow from reports: one per sync interval.
        let synced = self.sender.as_ref().map(|sender| Span::from_nanos(sender.terms.sync_interval_ns));
        synced.map_or(self.config.report_interval, |interval| interval.max(SHORTEST_REPORT_INTERVAL))
    }

    /// Whether rates are decided here: a rule, an uplink and a lease.
    pub(super) fn decides(&self, now: Time) -> bool {
        let ready = self.sender.as_ref().is_some_and(|sender| sender.rule.is_some());
        ready && self.lease_holds(now) && self.uplink().is_some()
    }

    /// Bytes per second that this host's uplink has for Weir.
    fn uplink(&self) -> Option<f64> {
        let heard = self.sender.as_ref()?.uplink;
        let configured = self.config.uplink.map(Rate::bytes_per_sec);
        // The lesser: neither a coordinator nor a setting may have the host send more than the other knows its link to carry.
        heard.into_iter().chain(configured).reduce(f64::min)
    }

    /// Whether the coordinator has said to leave a coflow to TCP: one that was refused, where senders decide.
    pub(super) fn is_left_to_tcp(&self, coflow: CoflowId) -> bool {
        self.coflows.get(&coflow).is_some_and(|coflow| coflow.treatment == Treatment::Bypassed)
    }

    /// Rates are to be decided again.
    pub(super) fn disturb(&mut self) {
        if let Some(sender) = &mut self.sender {
            sender.due = true;
        }
    }

    /// Whether rates are to be decided again.
    pub(super) fn is_disturbed(&self) -> bool {
        self.sender.as_ref().is_some_and(|sender| sender.due)
    }

    pub(super) fn handle_queues(&mut self, queues: v1::Queues) {
        if let Some(sender) = &mut self.sender {
            sender.hear(queues);
        }
    }

    /// Limits are as old as the lease that ended.
    pub(super) fn forget_limits(&mut self) {
        if let Some(sender) = &mut self.sender {
            sender.heard.values_mut().for_each(|heard| heard.limits.clear());
            sender.offers.clear();
        }
    }

    pub(super) fn forget_heard(&mut self, coflow: CoflowId) {
        if let Some(sender) = &mut self.sender {
            sender.heard.remove(&coflow);
            sender.untold.remove(&coflow);
        }
    }

    /// Bytes of a flow were sent.
    pub(super) fn note_taken(&mut self, coflow: CoflowId, flow: FlowNumber, bytes: u64) {
        if let Some(offer) = self.offer(flow) {
            offer.take(bytes);
        }
        if let Some(sender) = self.sender.as_mut().filter(|_| bytes > 0) {
            sender.untold.insert(coflow);
        }
    }

    /// Tells what was sent of coflows since that was last told.
    pub(super) fn report_attained(&mut self) {
        let Some(sender) = &mut self.sender else { return };
        let untold = std::mem::take(&mut sender.untold);
        sender.due = true;
        let known =
            untold.into_iter().filter_map(|coflow| Some((coflow, self.coflows.get(&coflow)?.sent_bytes)));
        let coflows: Vec<_> =
            known.map(|(coflow, bytes)| v1::CoflowAttained { coflow: coflow.0, bytes }).collect();
        for coflows in coflows.chunks(limits::MAX_ENTRIES_PER_MESSAGE) {
            self.send(v1::agent_event::Kind::Attained(v1::Attained { coflows: coflows.to_vec() }));
        }
    }

    /// Gives every flow its rate, if anything changed.
    pub(super) fn decide(&mut self, now: Time) {
        if !self.is_disturbed() {
            return;
        }
        let decides = self.decides(now);
        let Some(uplink) = self.uplink().filter(|_| decides) else {
            return self.sender.iter_mut().for_each(|sender| sender.due = false);
        };
        let Some(mut sender) = self.sender.take() else { return };
        sender.due = false;
        // All get rates, whatever they waited for.
        self.waiting.clear();
        if now.since(sender.last_look) >= LOOK_INTERVAL {
            sender.last_look = now;
            let judge = Judge { uplink, planned: false };
            sender.offers.values_mut().for_each(|offer| offer.look(now, judge));
            let news = sender.offers.iter_mut().filter_map(|(&flow, offer)| Some((flow, offer.take_news()?)));
            let news: Vec<(FlowNumber, f64)> = news.collect();
            self.tell_limits(news);
        }
        let (flows, coflows) = self.in_order(&sender);
        let mut rates = Vec::new();
        if let Some(rule) = &sender.rule {
            rule.share(now, Rate::from_bytes_per_sec(uplink), &coflows, &mut rates);
        }
        sender.offers.retain(|flow, _| self.flows.contains_key(flow));
        for (flow, rate) in flows.into_iter().zip(rates) {
            self.leave_turns(flow);
            let offer = sender.offers.entry(flow).or_insert_with(|| Offer::new(now));
            self.pacer.set(now, flow, Pacing::Rated(offer.take_rate(now, rate)));
        }
        self.sender = Some(sender);
    }

    /// Flows with something left to send, coflow by coflow in the order of places, and the coflows. A coflow
    /// that nothing was heard of comes after the others of its queue.
    fn in_order(&self, sender: &Sender) -> (Vec<FlowNumber>, Vec<LocalCoflow>) {
        let mut by_coflow: BTreeMap<(u64, Time, CoflowId), Vec<FlowNumber>> = BTreeMap::new();
        let is_shared = |flow: &Flow| flow.left() > 0 && !self.is_left_to_tcp(flow.coflow);
        for (&id, flow) in self.flows.iter().filter(|(_, flow)| is_shared(flow)) {
            let place = sender.heard.get(&flow.coflow).map_or(u64::MAX, |heard| heard.place_ns);
            let opened = self.coflows.get(&flow.coflow).and_then(|coflow| coflow.first_opened);
            let opened = if place == u64::MAX { opened.unwrap_or(Time::MAX) } else { Time::ZERO };
            by_coflow.entry((place, opened, flow.coflow)).or_default().push(id);
        }
        let local = |(&(.., id), flows): (&(u64, Time, CoflowId), &Vec<FlowNumber>)| LocalCoflow {
            queue: sender.heard.get(&id).map_or(0, |heard| heard.queue),
            sent: Bytes(self.coflows.get(&id).map_or(0, |coflow| coflow.sent_bytes)),
            flows: flows.iter().map(|flow| self.usable(sender, id, *flow)).collect(),
        };
        let coflows = by_coflow.iter().map(local).collect();
        (by_coflow.into_values().flatten().collect(), coflows)
    }

    fn usable(&self, sender: &Sender, coflow: CoflowId, flow: FlowNumber) -> LocalFlow {
        let limit = self.flows.get(&flow).map_or(0.0, |flow| sender.limit(coflow, flow.destination));
        let shown = sender.offers.get(&flow).map_or(f64::INFINITY, Offer::usable);
        LocalFlow { usable: Rate::from_bytes_per_sec(limit.min(shown)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_as_many_queues_as_a_policy_may_have_each_comes_before_the_next() {
        let terms = v1::SenderRule {
            policy: "dclas-strict".to_owned(),
            queues: 1000,
            exponent: 1.01,
            first_threshold: 1e6,
            ..v1::SenderRule::default()
        };
        let flows = || vec![LocalFlow { usable: Rate::from_bytes_per_sec(f64::INFINITY) }];
        let coflow = |queue| LocalCoflow { queue, sent: Bytes(0), flows: flows() };
        let rule = Sender::new(terms).rule.expect("a policy that senders decide by");
        let mut rates = Vec::new();
        rule.share(Time::ZERO, Rate::from_bytes_per_sec(9.0), &[coflow(999), coflow(998)], &mut rates);
        assert_eq!(rates.iter().map(|rate| rate.bytes_per_sec()).collect::<Vec<_>>(), [0.0, 9.0]);
    }

    #[test]
    fn limits_are_found_in_whatever_order_they_are_told() {
        let mut sender = Sender::new(v1::SenderRule::default());
        let limit = |host| v1::ReceiverLimit { host, bytes_per_s: f64::from(host) * 10.0 };
        let limits = [7, 2, 9, 4].map(limit).to_vec();
        let coflows = vec![v1::CoflowQueue { coflow: 1, limits, ..v1::CoflowQueue::default() }];
        sender.hear(v1::Queues { coflows, ..v1::Queues::default() });
        let told = [2, 4, 7, 9].map(|host| sender.limit(CoflowId(1), HostNumber(host)));
        assert_eq!(told, [20.0, 40.0, 70.0, 90.0]);
        assert_eq!(
            (sender.limit(CoflowId(1), HostNumber(5)), sender.limit(CoflowId(2), HostNumber(4))),
            (f64::INFINITY, f64::INFINITY)
        );
    }
}
