//! Files of a host that are asked for.

use super::*;
use crate::agent::Output as AgentOutput;
use crate::coordinator::{OfferError, Offered, Output};
use weir_proto::limits;

fn request(coflow: CoflowId, host: u32) -> v1::OfferRequest {
    v1::OfferRequest {
        coflow: coflow.0,
        block: "file".to_owned(),
        host,
        path: "/data/file".to_owned(),
        identity: vec![7; 16],
        ..v1::OfferRequest::default()
    }
}

impl Pair {
    fn ask_file(&mut self, token: u64, coflow: CoflowId, host: u32) {
        self.coordinator.handle_offer(self.now, token, request(coflow, host));
    }

    fn offered(&mut self) -> Option<Offered> {
        self.coordinator.poll_offered()
    }

    /// What the coordinator told of a question, if any was asked.
    fn asked(&mut self) -> Option<(SessionId, v1::Offer)> {
        while let Some(output) = self.coordinator.poll_output() {
            if let Output::Message(session, message) = output
                && let Some(v1::coordinator_message::Kind::Offer(offer)) = message.kind
            {
                return Some((session, offer));
            }
        }
        None
    }

    fn answer(&mut self, session: SessionId, answer: v1::OfferAnswer) {
        let kind = Some(v1::agent_event::Kind::OfferAnswer(answer));
        let message = v1::AgentMessage { events: vec![v1::AgentEvent { kind }] };
        self.coordinator.handle_agent(self.now, session, message);
    }
}

fn taken(token: u64) -> v1::OfferAnswer {
    v1::OfferAnswer { token, size: 5, ..v1::OfferAnswer::default() }
}

#[test]
fn the_agent_of_the_host_is_asked_and_its_answer_is_the_caller_s() {
    let mut pair = Pair::new(3);
    let coflow = pair.register(1);
    pair.settle();
    pair.ask_file(40, coflow, 1);
    let (session, offer) = pair.asked().unwrap();
    assert_eq!(Some(session), pair.sessions[1]);
    assert_eq!((offer.coflow, offer.path.as_str(), offer.identity), (coflow.0, "/data/file", vec![7; 16]));
    assert_eq!(pair.offered(), None);
    pair.answer(session, taken(40));
    assert_eq!(pair.offered(), Some(Offered { token: 40, result: Ok(5) }));
    for (again, expected) in
        [(false, OfferError::Refused("no".to_owned())), (true, OfferError::Away("no".to_owned()))]
    {
        pair.ask_file(41, coflow, 1);
        let (session, offer) = pair.asked().unwrap();
        pair.answer(
            session,
            v1::OfferAnswer { token: offer.token, size: 0, refused: "no".to_owned(), again },
        );
        assert_eq!(pair.offered().unwrap().result, Err(expected));
    }
}

#[test]
fn only_the_agent_that_was_asked_is_believed_and_once() {
    let mut pair = Pair::new(3);
    let coflow = pair.register(1);
    pair.settle();
    pair.ask_file(40, coflow, 1);
    let (asked, other) = (pair.sessions[1].unwrap(), pair.sessions[2].unwrap());
    pair.answer(other, taken(40));
    pair.answer(asked, taken(41));
    assert_eq!(pair.offered(), None);
    pair.answer(asked, taken(40));
    pair.answer(asked, v1::OfferAnswer { refused: "no".to_owned(), ..taken(40) });
    assert_eq!((pair.offered(), pair.offered()), (Some(Offered { token: 40, result: Ok(5) }), None));
}

#[test]
fn who_asks_in_vain_is_told_why_and_in_time() {
    let mut pair = Pair::new(3);
    let (coflow, ended) = (pair.register(1), pair.register(1));
    pair.unregister(ended);
    pair.settle();
    let away = |offered: Option<Offered>| matches!(offered.unwrap().result, Err(OfferError::Away(_)));
    pair.ask_file(1, ended, 1);
    assert!(matches!(pair.offered().unwrap().result, Err(OfferError::Refused(_))));
    pair.ask_file(2, coflow, 99);
    assert!(away(pair.offered()));
    // Its agent goes away.
    pair.ask_file(3, coflow, 1);
    let session = pair.sessions[1].take().unwrap();
    pair.agents[1].handle_session_lost();
    pair.coordinator.handle_session_lost(pair.now, session);
    assert!(away(pair.offered()));
    pair.ask_file(4, coflow, 1);
    assert!(away(pair.offered()));
    // It does not answer: 10 s.
    pair.ask_file(5, coflow, 2);
    pair.now = pair.now + Span::from_millis(9_999);
    pair.coordinator.handle_timeout(pair.now);
    assert_eq!(pair.offered(), None);
    pair.now = pair.now + Span::from_millis(1);
    pair.coordinator.handle_timeout(pair.now);
    assert!(away(pair.offered()));
    // A caller that gave up is not answered.
    pair.ask_file(6, coflow, 2);
    pair.coordinator.handle_given_up(6);
    pair.answer(pair.sessions[2].unwrap(), taken(6));
    assert_eq!(pair.offered(), None);
}

#[test]
fn no_agent_is_asked_for_more_than_it_may_be() {
    let mut pair = Pair::new(2);
    let coflow = pair.register(1);
    pair.settle();
    for token in 0..=limits::MAX_OFFERS_PER_AGENT as u64 {
        pair.ask_file(token, coflow, 1);
    }
    let refused = pair.offered().unwrap();
    assert_eq!(refused.token, limits::MAX_OFFERS_PER_AGENT as u64);
    assert_eq!(pair.offered(), None);
    // Others are.
    pair.ask_file(1_000, coflow, 0);
    assert_eq!(pair.offered(), None);
}

#[test]
fn an_agent_passes_the_question_on_and_says_what_became_of_it() {
    let mut pair = Pair::new(2);
    let coflow = pair.register(1);
    pair.settle();
    pair.ask_file(40, coflow, 1);
    let now = pair.now;
    while let Some(output) = pair.coordinator.poll_output() {
        if let Output::Message(session, message) = output
            && Some(session) == pair.sessions[1]
        {
            pair.agents[1].handle_coordinator(now, message);
        }
    }
    let outputs: Vec<AgentOutput> = std::iter::from_fn(|| pair.agents[1].poll_output(now)).collect();
    assert!(outputs.iter().any(|output| matches!(output, AgentOutput::Offer(offer) if offer.token == 40)));
    pair.agents[1].handle_offered(taken(40));
    pair.settle();
    assert_eq!(pair.offered(), Some(Offered { token: 40, result: Ok(5) }));
}
