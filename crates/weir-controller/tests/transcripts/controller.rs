//! A controller of one process without gRPC: a server, the store's ledger and a decision maker.

use crate::messages::decode;
use crate::play::{NOW, Side, message_line};
use crate::text::{Cuts, Line, Who};
use std::collections::{BTreeSet, VecDeque};
use weir_controller::maker::{Maker, MakerSettings, Step};
use weir_controller::records::State;
use weir_controller::server::{Output, Reply, Request, ServerCore, ServerSettings, SessionId};
use weir_controller::store::Ledger;
use weir_model::Time;
use weir_proto::v1;

const SERVER: &str = "one";

pub(crate) struct ControllerSide {
    core: ServerCore,
    ledger: Ledger,
    maker: Maker,
    /// The epoch that the maker decides on.
    begun: u64,
    calls: BTreeSet<u32>,
    sessions: BTreeSet<u32>,
    acts: VecDeque<Line>,
}

impl ControllerSide {
    pub(crate) fn new() -> ControllerSide {
        ControllerSide {
            core: ServerCore::new(NOW, ServerSettings::new(SERVER.to_owned())),
            ledger: Ledger::default(),
            maker: Maker::new("maker".to_owned(), 1, MakerSettings::default()),
            begun: 0,
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

    /// What the server asks the store for.
    fn ask(&mut self, now: Time, request: &Request) {
        let reply = match request {
            Request::Report(report) => Reply::Reported(self.ledger.report(now, report)),
            Request::Renew => Reply::Renewed(self.ledger.renew(now, SERVER)),
            Request::Issue(floor) => {
                let (number, snapshot) = self.ledger.issue(*floor);
                Reply::Issued(number, Box::new(snapshot))
            }
        };
        self.core.handle_reply(now, reply);
    }

    /// The maker decides on what the store has, to the end.
    fn decide(&mut self, now: Time) {
        let snapshot = self.ledger.read();
        if snapshot.epoch != self.begun {
            self.begun = snapshot.epoch;
            self.maker.begin(snapshot.epoch, &State::of(&snapshot.servers));
        }
        loop {
            match self.maker.step() {
                Step::Propose(proposal) => _ = self.ledger.propose(&proposal),
                Step::Share(tally) => {
                    let shared = self.ledger.share(snapshot.epoch, "maker", &tally);
                    shared.into_iter().for_each(|all| self.maker.totals(&all));
                }
                Step::Done => break,
            }
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
                    self.ask(now, &request);
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
