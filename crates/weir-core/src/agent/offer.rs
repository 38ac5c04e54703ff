//! What flows can use of their rates, judged by a rule ([`weir_policy::rules::Offer`]), is told to the coordinator, which gives the rest
//! to others; where senders decide, they do so with their own uplink at once.

use super::pacer::Pacing;
use super::state::Agent;
use crate::ids::FlowNumber;
use weir_model::{Rate, Span, Time};
use weir_policy::rules::{Judge, Offer};
use weir_proto::{limits, v1};

/// How often it is looked at which flows do not take what they are offered, and which fell behind.
pub(super) const LOOK_INTERVAL: Span = Span::from_nanos(50_000_000);

impl Agent {
    /// What a flow is offered: by the sender's own rule where there is one, else under the plan.
    pub(super) fn offer(&mut self, flow: FlowNumber) -> Option<&mut Offer> {
        match &mut self.sender {
            Some(sender) => sender.offers.get_mut(&flow),
            None => self.offers.get_mut(&flow),
        }
    }

    /// Gives a planned flow its rate, or what it can use of it.
    pub(super) fn pace(&mut self, now: Time, flow: FlowNumber, planned: f64) {
        self.leave_turns(flow);
        // No plan is meant to ask more of the host than its link has.
        let planned = planned.min(self.planned_uplink);
        let offer = self.offers.entry(flow).or_insert_with(|| Offer::new(now));
        let rate = planned.min(offer.usable());
        offer.take_rate(now, Rate::from_bytes_per_sec(rate));
        self.pacer.set(now, flow, Pacing::Rated(Rate::from_bytes_per_sec(rate)));
    }

    /// Looks at what planned flows took, and tells the coordinator.
    pub(super) fn look_at_offers(&mut self, now: Time) {
        if self.sender.is_some() || now.since(self.last_look) < LOOK_INTERVAL {
            return;
        }
        self.last_look = now;
        let uplink = self.planned_uplink;
        if !uplink.is_finite() {
            return;
        }
        let (mut news, mut changed) = (Vec::new(), Vec::new());
        self.suspects.clear();
        self.offers.retain(|flow, _| self.flows.contains_key(flow));
        for (&flow, offer) in &mut self.offers {
            let before = offer.usable();
            offer.look(now, Judge { uplink, planned: true });
            self.suspects.extend(offer.is_suspected().then_some(flow));
            news.extend(offer.take_news().map(|usable| (flow, usable)));
            if offer.usable() != before {
                changed.push(flow);
            }
        }
        changed.into_iter().for_each(|flow| self.pace_anew(now, flow));
        self.tell_limits(news);
    }

    /// The answer to [`Output::Suspect`](super::Output::Suspect): a flow's receiver had no room for so long, since the connection began.
    pub fn handle_waited(&mut self, now: Time, flow: FlowNumber, waited: Span) {
        self.note_turn_waited(now, flow, waited);
        let Some(offer) = self.offers.get_mut(&flow) else { return };
        if offer.note_waited(now, waited) {
            let news = offer.take_news().map(|usable| (flow, usable));
            self.pace_anew(now, flow);
            self.tell_limits(news.into_iter().collect());
        }
    }

    fn pace_anew(&mut self, now: Time, id: FlowNumber) {
        if let Some(flow) = self.flows.get(&id).filter(|flow| flow.planned) {
            let rate = flow.rate();
            self.pace(now, id, rate);
        }
    }

    /// After a restart the coordinator does not know which flows are limited by their reader: all limits count as untold.
    pub(super) fn forget_told_limits(&mut self) {
        let by_rule = self.sender.iter_mut().flat_map(|sender| sender.offers.values_mut());
        self.offers.values_mut().chain(by_rule).for_each(Offer::forget_told);
    }

    /// When offers are looked at next: while flows have rates.
    pub(super) fn next_look(&self) -> Option<Time> {
        (self.sender.is_none() && !self.offers.is_empty()).then(|| self.last_look + LOOK_INTERVAL)
    }

    /// Tells what flows can use of their rates.
    pub(super) fn tell_limits(&mut self, news: Vec<(FlowNumber, f64)>) {
        let limit = |(flow, usable): (FlowNumber, f64)| v1::FlowLimit {
            flow: flow.0,
            // Below 0 says that the limit has ended.
            bytes_per_s: if usable.is_finite() { usable } else { -1.0 },
        };
        for news in news.chunks(limits::MAX_ENTRIES_PER_MESSAGE) {
            let flows = news.iter().copied().map(limit).collect();
            self.send(v1::agent_event::Kind::Limits(v1::FlowLimits { flows }));
        }
    }
}
