//! A coordinator without sockets: calls in, replies out, and the sessions of agents.

use crate::messages::decode;
use crate::play::{Side, message_line};
use crate::text::{Cuts, Event, Line, Who};
use std::collections::{BTreeSet, VecDeque};
use weir_core::coordinator::{
    Coordinator, CoordinatorConfig, DeadlineMargin, ExpectError, HelloError, Output, RegisterError,
    SealError, SessionId, Tuning, Wire,
};
use weir_model::{CoflowId, Fabric, Rate, Span, Time};
use weir_proto::v1;
use weir_proto::v1::agent_event::Kind;

/// Hosts of the fabric, and what each link carries in bytes per second.
const HOSTS: u32 = 3;
const CAPACITY: f64 = 1e6;
/// Ids of a process are above those of the one before by so much.
const IDS: u64 = 1_000_000_000;
/// Blocks that one call asks for, at most.
const CALL_BITS: u32 = 16;

pub(crate) struct CoordinatorSide {
    policy: &'static str,
    /// Processes so far.
    processes: u64,
    core: Coordinator,
    /// Calls that ask for many blocks.
    many: BTreeSet<u32>,
    /// Calls `Attach` whose agents were taken.
    sessions: BTreeSet<u32>,
    calls: BTreeSet<u32>,
    acts: VecDeque<Line>,
}

fn coordinator(policy: &str, process: u64) -> Coordinator {
    let config = CoordinatorConfig {
        fabric: Fabric::big_switch(HOSTS, Rate::from_bytes_per_sec(CAPACITY)).unwrap(),
        joining: None,
        lease: Span::from_millis(1_000),
        first_coflow: CoflowId(process * IDS + 1),
        coflow_lease: Span::from_millis(600_000),
        wire: Wire { bytes_per_byte: 1.0, headroom: 1.0 },
        tuning: Tuning {
            bypass: Span::from_millis(250),
            ready_wait: Span::from_millis(3),
            deadline_margin: DeadlineMargin::NONE,
            sync_interval: Span::from_millis(10),
            batch: Span::from_millis(1),
        },
    };
    Coordinator::new(config, &weir_policy::find(policy).unwrap())
}

impl CoordinatorSide {
    pub(crate) fn new(policy: &'static str) -> CoordinatorSide {
        CoordinatorSide {
            policy,
            processes: 0,
            core: coordinator(policy, 0),
            many: BTreeSet::new(),
            sessions: BTreeSet::new(),
            calls: BTreeSet::new(),
            acts: VecDeque::new(),
        }
    }

    fn refuse(&mut self, number: u32, status: &str) {
        self.acts.push_back(Line::Refuses(number, Who::Coordinator, status.to_owned()));
    }

    fn reply<M: weir_proto::Message>(&mut self, number: u32, message: &M) {
        self.acts.push_back(message_line(number, Who::Coordinator, message));
    }

    fn ask(&mut self, now: Time, number: u32, name: &str, bytes: &[u8]) {
        let token = u64::from(number) << CALL_BITS;
        match name {
            "RegisterRequest" => match self.core.handle_register(now, decode(bytes)) {
                Ok(coflow) => {
                    let lease_ms = self.core.lease_ms(coflow);
                    self.reply(number, &v1::RegisterReply { coflow: coflow.0, lease_ms });
                }
                Err(RegisterError::TooMany) => self.refuse(number, "RESOURCE_EXHAUSTED"),
                Err(RegisterError::Invalid(_)) => self.refuse(number, "INVALID_ARGUMENT"),
            },
            "ExpectRequest" => match self.core.handle_expect(now, &decode(bytes)) {
                Ok(()) => self.reply(number, &v1::ExpectReply {}),
                Err(ExpectError::Coflow(SealError::Unknown(_))) => self.refuse(number, "NOT_FOUND"),
                Err(ExpectError::Coflow(SealError::NotYetKnown(_))) => self.refuse(number, "UNAVAILABLE"),
                Err(ExpectError::TooManyHosts(_)) => self.refuse(number, "INVALID_ARGUMENT"),
                Err(ExpectError::TooMany) => self.refuse(number, "RESOURCE_EXHAUSTED"),
            },
            "SealRequest" => {
                match self.core.handle_seal(now, CoflowId(decode::<v1::SealRequest>(bytes).coflow)) {
                    Ok(()) => self.reply(number, &v1::SealReply {}),
                    Err(SealError::Unknown(_)) => self.refuse(number, "NOT_FOUND"),
                    Err(SealError::NotYetKnown(_)) => self.refuse(number, "UNAVAILABLE"),
                }
            }
            "UnregisterRequest" => {
                self.core.handle_unregister(
                    now,
                    token,
                    CoflowId(decode::<v1::UnregisterRequest>(bytes).coflow),
                );
            }
            "RenewRequest" => {
                let reply = self.core.handle_renew(now, &decode(bytes));
                self.reply(number, &reply);
            }
            "AdmissionRequest" => self.core.handle_await_admission(now, token, &decode(bytes)),
            "LocateRequest" => self.core.handle_locate(now, token, decode(bytes)),
            "LocateAllRequest" => {
                self.many.insert(number);
                let requests = decode::<v1::LocateAllRequest>(bytes).requests;
                for (token, request) in (token..).zip(requests) {
                    self.core.handle_locate(now, token, request);
                }
            }
            "TermsRequest" => {
                let terms = self.core.terms();
                self.reply(number, &terms);
            }
            "AgentMessage" => self.hear_agent(now, number, decode(bytes)),
            other => panic!("{other}"),
        }
    }

    fn hear_agent(&mut self, now: Time, number: u32, mut message: v1::AgentMessage) {
        let session = SessionId(number.into());
        if self.sessions.contains(&number) {
            return self.core.handle_agent(now, session, message);
        }
        let Some(Kind::Hello(hello)) = message.events.remove(0).kind else { panic!("no Hello") };
        match self.core.handle_hello(now, session, hello) {
            Ok(()) => _ = self.sessions.insert(number),
            Err(HelloError::Taken { .. } | HelloError::Awaited { .. }) => {
                self.refuse(number, "ALREADY_EXISTS");
            }
            Err(_) => self.refuse(number, "FAILED_PRECONDITION"),
        }
    }

    fn carry_out(&mut self, output: Output) {
        let call = |token: u64| (token >> CALL_BITS) as u32;
        match output {
            Output::Message(session, message) => self.reply(session.0 as u32, &message),
            Output::Close(session) => {
                self.sessions.remove(&(session.0 as u32));
                self.acts.push_back(Line::Closes(session.0 as u32, Who::Coordinator));
            }
            // No transcript asks for a file.
            Output::Expired(_) | Output::Offered(_) | Output::Drained(_) => {}
            Output::Unregistered(unregistered) => {
                let reply = v1::UnregisterReply { record: unregistered.record };
                self.reply(call(unregistered.token), &reply);
            }
            Output::Decided(decision) => self.reply(call(decision.token), &decision.reply),
            Output::Located(answer) => {
                let number = call(answer.token);
                if self.many.contains(&number) {
                    let index = (answer.token & ((1 << CALL_BITS) - 1)) as u32;
                    self.reply(number, &v1::LocateAllReply { index, reply: Some(answer.reply) });
                } else {
                    self.reply(number, &answer.reply);
                }
            }
        }
    }
}

impl Side for CoordinatorSide {
    fn who(&self) -> Who {
        Who::Coordinator
    }

    fn hear(&mut self, now: Time, line: &Line, _: &mut Cuts) {
        match line {
            Line::Calls(number, _, Who::Coordinator, _) => _ = self.calls.insert(*number),
            Line::Message(number, who, name, bytes)
                if *who != Who::Coordinator && self.calls.contains(number) =>
            {
                self.ask(now, *number, name, bytes);
            }
            Line::Closes(number, who) if *who != Who::Coordinator && self.sessions.remove(number) => {
                self.core.handle_session_lost(now, SessionId((*number).into()));
            }
            Line::Happens(Who::Coordinator, Event::StartsAnew) => {
                self.processes += 1;
                self.core = coordinator(self.policy, self.processes);
                for number in std::mem::take(&mut self.sessions) {
                    self.acts.push_back(Line::Closes(number, Who::Coordinator));
                }
            }
            _ => {}
        }
    }

    fn poll(&mut self, _: Time) -> Option<Line> {
        while let Some(output) = self.core.poll_output() {
            self.carry_out(output);
        }
        self.acts.pop_front()
    }

    fn pass_time(&mut self, now: Time) {
        self.core.handle_timeout(now);
        self.core.poll_plan(now);
    }

    fn next_timeout(&self) -> Option<Time> {
        self.core.next_timeout()
    }
}
