//! Files of a host that its agent is asked to put, for a receiver elsewhere that knows their path.
//!
//! The coordinator passes the question on and the answer back. Whether a file may be taken is the agent's to say.

use super::callers::Callers;
use super::network::label;
use super::state::{Coordinator, SessionId};
use crate::ids::HostNumber;
use std::collections::VecDeque;
use weir_model::{CoflowId, Span, Time};
use weir_proto::v1::coordinator_message::Kind;
use weir_proto::{limits, v1};

/// How long an agent may take. Its disk has a shorter limit.
const OFFER_LIMIT: Span = Span::from_millis(10_000);

/// What became of a question for a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offered {
    /// As given with the request.
    pub token: u64,
    /// Size of the block, or why it was not put.
    pub result: Result<u64, OfferError>,
}

/// Why a file did not become a block.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OfferError {
    /// The agent, or the coordinator, will not.
    #[error("{0}")]
    Refused(String),
    /// The agent is not there, or did not answer; it may later.
    #[error("{0}")]
    Away(String),
}

/// Questions that wait for their agents, and answers.
#[derive(Debug, Default)]
pub(super) struct Offers {
    waiting: Callers<SessionId, HostNumber>,
    answers: VecDeque<Offered>,
}

impl Offers {
    pub(super) fn next_due(&self) -> Option<Time> {
        self.waiting.next_due()
    }

    pub(super) fn give_up(&mut self, token: u64) {
        self.waiting.remove(token);
    }

    fn answer(&mut self, token: u64, result: Result<u64, OfferError>) {
        self.answers.push_back(Offered { token, result });
    }
}

impl Coordinator {
    /// Asks the agent of a host to put one of its files as a block; answered through [`Coordinator::poll_output`].
    pub fn handle_offer(&mut self, now: Time, token: u64, request: v1::OfferRequest) {
        let v1::OfferRequest { coflow, block, host, path, identity, host_name } = request;
        let host = HostNumber(host);
        let called = label(host, &host_name);
        let host = if host_name.is_empty() { Some(host) } else { self.network.number_of(&host_name) };
        if self.has_ended(CoflowId(coflow)) || self.was_never_given(CoflowId(coflow)) {
            let ended = OfferError::Refused(format!("coflow {coflow} has ended"));
            return self.offers.answer(token, Err(ended));
        }
        let settled =
            |session: &SessionId| self.agents.get(session).is_some_and(|agent| agent.arrival.is_none());
        let session = host.and_then(|host| self.hosts.get(&host)).copied().filter(settled);
        let Some((session, host)) = session.zip(host) else {
            let away = OfferError::Away(format!("host {called} has no agent at this coordinator"));
            return self.offers.answer(token, Err(away));
        };
        let full = self.offers.waiting.len() >= limits::MAX_WAITING_OFFERS
            || self.offers.waiting.count_of(&session) >= limits::MAX_OFFERS_PER_AGENT;
        if full {
            let away = OfferError::Away(format!("as many files of host {called} are asked for as may be"));
            return self.offers.answer(token, Err(away));
        }
        self.offers.waiting.add(session, token, now + OFFER_LIMIT, host);
        self.send(now, session, Kind::Offer(v1::Offer { token, coflow, block, path, identity }));
    }

    /// An agent says what became of a file. Only the one that was asked counts.
    pub(super) fn handle_offer_answer(&mut self, session: SessionId, answer: v1::OfferAnswer) {
        if !self.offers.waiting.waits_for(answer.token, &session) {
            return self.count("messages_out_of_place");
        }
        self.offers.waiting.remove(answer.token);
        let result = match (answer.refused, answer.again) {
            (refused, _) if refused.is_empty() => Ok(answer.size),
            (refused, true) => Err(OfferError::Away(refused)),
            (refused, false) => Err(OfferError::Refused(refused)),
        };
        self.offers.answer(answer.token, result);
    }

    /// The agent of a session answers nothing any more.
    pub(super) fn end_offers(&mut self, session: SessionId) {
        for (token, host) in self.offers.waiting.take(&session) {
            self.offers.answer(
                token,
                Err(OfferError::Away(format!("the agent of host {} went away", self.network.name(host)))),
            );
        }
    }

    pub(super) fn expire_offers(&mut self, now: Time) {
        while let Some((token, _)) = self.offers.waiting.take_due(now) {
            let away = "the host's agent does not answer; one of an older version never does".to_owned();
            self.offers.answer(token, Err(OfferError::Away(away)));
        }
    }

    pub(super) fn poll_offered(&mut self) -> Option<Offered> {
        self.offers.answers.pop_front()
    }
}
