//! An agent without sockets and files: its session with a coordinator, and what is put at it.

use crate::messages::decode;
use crate::play::{Side, message_line};
use crate::text::{Cuts, Event, Line, Who};
use std::collections::{BTreeSet, VecDeque};
use weir_core::agent::{Agent, AgentConfig, BlockEntry, Output, PutError};
use weir_core::ids::{FlowNumber, HostNumber};
use weir_model::{CoflowId, Span, Time};
use weir_proto::data::{Identity, Request};
use weir_proto::v1;

pub(crate) struct AgentSide {
    host: u8,
    agent: Agent,
    /// Its call for terms, and that of its session.
    terms: Option<u32>,
    session: Option<u32>,
    puts: BTreeSet<u32>,
    acts: VecDeque<Line>,
}

impl AgentSide {
    /// The agent of a host.
    pub(crate) fn new(host: u8) -> AgentSide {
        AgentSide::with(host, host)
    }

    /// Another agent that was given the host of one.
    pub(crate) fn with(number: u8, host: u8) -> AgentSide {
        let agent = Agent::new(AgentConfig {
            host: HostNumber(host.into()),
            data_address: format!("10.0.0.{}:7071", number + 1),
            incarnation: u64::from(number) + 1,
            spool_identity: u64::from(number) + 1,
            first_plan_wait: Span::from_millis(100),
            report_interval: Span::from_millis(20),
            batch: Span::from_millis(1),
            ..AgentConfig::default()
        });
        let acts = VecDeque::new();
        AgentSide { host: number, agent, terms: None, session: None, puts: BTreeSet::new(), acts }
    }

    fn put(&mut self, number: u32, put: v1::PutRequest) {
        let put = self.agent.handle_put(BlockEntry {
            coflow: CoflowId(put.coflow),
            block: put.block,
            path: put.path,
            offset: put.offset,
            size: put.size,
            spooled: put.spooled,
            frame_checksums: put.frame_checksums,
            stamp: None,
            identity: Identity::from_wire(&put.identity),
            durable: false,
        });
        let own = self.who();
        let refuses = |status: &str| Line::Refuses(number, own, status.to_owned());
        self.acts.push_back(match put {
            Ok(()) => message_line(number, own, &v1::PutReply {}),
            Err(PutError::Taken { .. }) => refuses("ALREADY_EXISTS"),
            Err(PutError::Full | PutError::NoSpace(_)) => refuses("RESOURCE_EXHAUSTED"),
            Err(_) => refuses("INVALID_ARGUMENT"),
        });
    }

    fn happens(&mut self, now: Time, event: &Event) {
        match event {
            Event::Attaches => {
                self.acts.push_back(Line::Calls(0, self.who(), Who::Coordinator, "Terms".to_owned()));
            }
            Event::Asked { host, coflow, block } => {
                let (coflow, destination, block) = (*coflow, *host, block.clone());
                let identity = Identity::UNKNOWN;
                let request = Request { coflow, offset: 0, destination, group: 0, identity, block };
                if let Err(status) = self.agent.handle_request(now, &request) {
                    self.acts.push_back(Line::Happens(self.who(), Event::Answers { status: status as u8 }));
                }
            }
            Event::Sent { flow, bytes } => self.agent.handle_sent(now, FlowNumber(*flow), *bytes),
            Event::Acknowledged { flow } => self.agent.handle_closed(FlowNumber(*flow), true),
            Event::Answers { .. } | Event::Aborts { .. } | Event::StartsAnew => {}
        }
    }

    fn lose_session(&mut self) {
        self.session = None;
        self.agent.handle_session_lost();
    }
}

impl Side for AgentSide {
    fn who(&self) -> Who {
        Who::AgentOf(self.host)
    }

    fn hear(&mut self, now: Time, line: &Line, _: &mut Cuts) {
        let own = self.who();
        match line {
            Line::Happens(who, event) if *who == own => self.happens(now, event),
            Line::Calls(number, who, _, call) if *who == own && call == "Terms" => {
                self.terms = Some(*number);
                self.acts.push_back(message_line(*number, own, &v1::TermsRequest {}));
            }
            Line::Calls(number, who, ..) if *who == own => {
                self.session = Some(*number);
                self.agent.handle_session_up(now);
            }
            Line::Calls(number, _, whom, _) if *whom == own => _ = self.puts.insert(*number),
            Line::Message(number, who, _, bytes) if *who != own => {
                if self.puts.contains(number) {
                    self.put(*number, decode(bytes));
                } else if self.terms == Some(*number) {
                    self.agent.handle_terms(now, decode(bytes));
                    self.acts.push_back(Line::Calls(0, own, Who::Coordinator, "Attach".to_owned()));
                } else if self.session == Some(*number) {
                    self.agent.handle_coordinator(now, decode(bytes));
                }
            }
            Line::Refuses(number, _, status) if self.session == Some(*number) => {
                if status == "ALREADY_EXISTS" {
                    self.agent.handle_refused();
                }
                self.lose_session();
            }
            Line::Closes(number, who) if *who != own && self.session == Some(*number) => self.lose_session(),
            _ => {}
        }
    }

    fn poll(&mut self, now: Time) -> Option<Line> {
        while let Some(output) = self.agent.poll_output(now) {
            match output {
                Output::Message(message) => {
                    let session = self.session.unwrap();
                    self.acts.push_back(message_line(session, self.who(), &message));
                }
                Output::Abort(flow) => {
                    self.acts.push_back(Line::Happens(self.who(), Event::Aborts { flow: flow.0 }));
                    self.agent.handle_closed(flow, false);
                }
                Output::Suspect(flow) => panic!("{flow}"),
                // Of its files, its journal and its log.
                Output::Journal(_)
                | Output::Cut { .. }
                | Output::Ended(..)
                | Output::Discard(_)
                | Output::Offer(_)
                | Output::Notice(_) => {}
            }
        }
        self.acts.pop_front()
    }

    fn pass_time(&mut self, now: Time) {
        self.agent.handle_timeout(now);
    }

    fn next_timeout(&self) -> Option<Time> {
        self.agent.next_timeout()
    }
}
