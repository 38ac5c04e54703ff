//! A controller of one process without gRPC: a server, the store's ledger and a decision maker.

use crate::messages::decode;
use crate::play::{NOW, Side, message_line};
use crate::text::{Cuts, Line, Who};
use std::collections::{BTreeSet, VecDeque};
use weir_controller::decider::DeciderCore;
use weir_controller::maker::{Maker, MakerSettings};
use weir_controller::server::{Output, ServerCore, ServerSettings, SessionId};
use weir_controller::store::Ledger;
use weir_model::Time;
use weir_proto::v1;

pub(crate) struct ControllerSide {
    core: ServerCore,
    ledger: Ledger,
    decider: DeciderCore,
    calls: BTreeSet<u32>,
    sessions: BTreeSet<u32>,
    acts: VecDeque<Line>,
}

impl ControllerSide {
    pub(crate) fn new() -> ControllerSide {
        ControllerSide {
            core: ServerCore::new(NOW, ServerSettings::new("one".to_owned())),
            ledger: Ledger::default(),
            decider: DeciderCore::new(NOW, Maker::new("maker".to_owned(), 1, MakerSettings::default())),
            calls: BTreeSet::new(),
            sessions: BTreeSet::new(),
            acts: VecDeque::new(),
        }
    }

    fn hear_relay(&mut self, now: Time, number: u32, message: &v1::FromRelay) {
        let session = SessionId(number.into());
        if self.sessions.contains(&number) {
            return self.core.handle_message(now, session, message);
        }
        let Some(v1::from_relay::Kind::Hello(hello)) = &message.kind else { panic!("no Hello") };
        match self.core.handle_hello(now, session, hello) {
            Ok(older) => {
                assert_eq!(older, None);
                self.sessions.insert(number);
            }
            Err(_) => {
                let refused = "FAILED_PRECONDITION".to_owned();
                self.acts.push_back(Line::Refuses(number, Who::Controller, refused));
            }
        }
    }

    /// The decision maker decides on what the store has, to the end.
    fn decide(&mut self, now: Time) {
        self.decider.handle_notice(now);
        while let Some(request) = self.decider.poll_request(now) {
            let reply = request.answer(&mut self.ledger, self.decider.name());
            self.decider.handle_reply(now, reply);
        }
        for notice in self.ledger.take_notices() {
            self.core.handle_notice(now, notice);
        }
    }
}

impl Side for ControllerSide {
    fn who(&self) -> Who {
        Who::Controller
    }

    fn hear(&mut self, now: Time, line: &Line, _: &mut Cuts) {
        match line {
            Line::Calls(number, _, Who::Controller, _) => _ = self.calls.insert(*number),
            Line::Message(number, who, _, bytes)
                if *who != Who::Controller && self.calls.contains(number) =>
            {
                self.hear_relay(now, *number, &decode(bytes));
            }
            _ => {}
        }
    }

    fn poll(&mut self, now: Time) -> Option<Line> {
        while let Some(output) = self.core.poll_output(now) {
            match output {
                Output::Message(session, message) => {
                    self.acts.push_back(message_line(session.0 as u32, Who::Controller, &message));
                }
                Output::Request(request) => {
                    let reply = request.answer(now, &mut self.ledger, self.core.name());
                    self.core.handle_reply(now, reply);
                    self.decide(now);
                }
                Output::Warning(warning) => panic!("{warning}"),
            }
        }
        self.acts.pop_front()
    }

    fn pass_time(&mut self, now: Time) {
        self.core.handle_timeout(now);
    }

    fn next_timeout(&self) -> Option<Time> {
        self.core.next_timeout()
    }
}
