//! An agent without sockets and files: its session with a coordinator, what is put at it, and what is gathered from it.

use crate::cases;
use crate::messages::decode;
use crate::play::{Side, message_line};
use crate::relay_side;
use crate::store_side::StoreSide;
use crate::text::{Cuts, Event, Line, Who};
use std::collections::{BTreeSet, VecDeque};
use weir_core::agent::{
    Agent, AgentConfig, BlockEntry, JournalEntry, Output, PutError, StoreEntry, StoreError,
};
use weir_core::ids::{FlowNumber, HostNumber};
use weir_core::serving::Relays;
use weir_model::{CoflowId, Span, Time};
use weir_proto::data::{Identity, Request};
use weir_proto::v1;

pub(crate) struct AgentSide {
    host: u8,
    agent: Agent,
    /// Its call for terms, and that of its session.
    terms: Option<u32>,
    session: Option<u32>,
    /// Calls of tasks and executors.
    calls: BTreeSet<u32>,
    stores: StoreSide,
    /// The relay of its site.
    relay: Option<u8>,
    journal: Vec<JournalEntry>,
    acts: VecDeque<Line>,
}

fn agent(number: u8, host: u8) -> Agent {
    Agent::new(AgentConfig {
        host: HostNumber(host.into()),
        data_address: cases::agent(number.into()).to_string(),
        incarnation: u64::from(number) + 1,
        spool_identity: u64::from(number) + 1,
        first_plan_wait: Span::from_millis(100),
        report_interval: Span::from_millis(20),
        batch: Span::from_millis(1),
        ..AgentConfig::default()
    })
}

impl AgentSide {
    /// The agent of a host.
    pub(crate) fn new(host: u8) -> AgentSide {
        AgentSide::with(host, host)
    }

    /// The agent of a host at the site of a relay.
    pub(crate) fn with_relay(host: u8, relay: u8) -> AgentSide {
        let mut side = AgentSide::new(host);
        side.relay = Some(relay);
        side.stores.relays = Some(Relays::new(relay_side::site(relay), vec![relay_side::address(relay)]));
        side
    }

    /// Another agent that was given the host of one.
    pub(crate) fn with(number: u8, host: u8) -> AgentSide {
        AgentSide {
            host: number,
            agent: agent(number, host),
            terms: None,
            session: None,
            calls: BTreeSet::new(),
            stores: StoreSide::new(Who::AgentOf(number)),
            relay: None,
            journal: Vec::new(),
            acts: VecDeque::new(),
        }
    }

    /// A task or an executor asks for something.
    fn asked(&mut self, number: u32, name: &str, bytes: &[u8]) {
        match name {
            "PutRequest" => self.put(number, decode(bytes)),
            "AttachStoreRequest" => self.attach(number, decode(bytes)),
            "DetachStoreRequest" => self.detach(number, &decode(bytes)),
            other => panic!("{other}"),
        }
    }

    fn attach(&mut self, number: u32, store: v1::AttachStoreRequest) {
        let v1::AttachStoreRequest { application, executor, token, directories, subdirectories } = store;
        let Ok(token) = token.try_into() else { return self.refuse(number, "INVALID_ARGUMENT") };
        let entry = StoreEntry { application, executor, token, directories, subdirectories };
        match self.agent.handle_attach(entry) {
            Ok(()) => {
                let data_address = cases::agent(self.host.into()).to_string();
                let relays = self.relay.map(|relay| v1::RelaysOfHost {
                    site: relay_side::site(relay),
                    addresses: vec![relay_side::address(relay).to_string()],
                });
                let reply = v1::AttachStoreReply { host: self.host.into(), data_address, relays };
                self.acts.push_back(message_line(number, self.who(), &reply));
            }
            Err(error) => self.refuse(number, refused(&error)),
        }
    }

    fn detach(&mut self, number: u32, store: &v1::DetachStoreRequest) {
        let Ok(token) = store.token[..].try_into() else { return self.refuse(number, "INVALID_ARGUMENT") };
        match self.agent.handle_detach(&store.application, &store.executor, &token) {
            Ok(()) => self.acts.push_back(message_line(number, self.who(), &v1::DetachStoreReply {})),
            Err(error) => self.refuse(number, refused(&error)),
        }
    }

    fn refuse(&mut self, number: u32, status: &str) {
        self.acts.push_back(Line::Refuses(number, self.who(), status.to_owned()));
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
        match put {
            Ok(()) => self.acts.push_back(message_line(number, self.who(), &v1::PutReply {})),
            Err(PutError::Taken { .. }) => self.refuse(number, "ALREADY_EXISTS"),
            Err(PutError::Full | PutError::NoSpace(_)) => self.refuse(number, "RESOURCE_EXHAUSTED"),
            Err(_) => self.refuse(number, "INVALID_ARGUMENT"),
        }
    }

    fn happens(&mut self, now: Time, event: &Event, cuts: &mut Cuts) {
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
            Event::Sent { flow, bytes } => {
                let flow = FlowNumber(*flow);
                match self.stores.send(now, &mut self.agent, (flow, *bytes), cuts) {
                    Some(said) => self.acts.extend(said),
                    None => self.agent.handle_sent(now, flow, *bytes),
                }
            }
            Event::Acknowledged { flow } => self.agent.handle_closed(FlowNumber(*flow), true),
            Event::StartsAnew => self.start_anew(),
            Event::Spoils => self.stores.spoils = true,
            Event::Answers { .. } | Event::Aborts { .. } | Event::Writes { .. } => {}
        }
    }

    /// Its process ends, and another one reads the journal.
    fn start_anew(&mut self) {
        assert!(self.session.is_none(), "no transcript has this in a session");
        self.agent = agent(self.host, self.host);
        self.journal.iter().for_each(|entry| self.agent.restore(entry.clone()));
        self.acts.extend(self.stores.die());
    }

    fn lose_session(&mut self) {
        self.session = None;
        self.agent.handle_session_lost();
    }
}

/// The status that an executor is told.
fn refused(error: &StoreError) -> &'static str {
    match error {
        StoreError::Name | StoreError::Directories => "INVALID_ARGUMENT",
        StoreError::Taken { .. } => "ALREADY_EXISTS",
        StoreError::Full => "RESOURCE_EXHAUSTED",
        StoreError::Draining => "FAILED_PRECONDITION",
        StoreError::Unknown { .. } => "NOT_FOUND",
    }
}

impl Side for AgentSide {
    fn who(&self) -> Who {
        Who::AgentOf(self.host)
    }

    fn hear(&mut self, now: Time, line: &Line, cuts: &mut Cuts) {
        let own = self.who();
        match line {
            Line::Happens(who, event) if *who == own => self.happens(now, event, cuts),
            Line::Happens(Who::Executor, event) => self.stores.outputs.happens(event),
            Line::Connects(number, _, to) if *to == cases::agent(self.host.into()) => {
                self.stores.accept(now, *number);
            }
            Line::Connects(number, who, _) if *who == own => {
                self.acts.extend(self.stores.connected(now, &mut self.agent, *number, cuts));
            }
            Line::Says(number, who, said) if *who != own => {
                self.acts.extend(self.stores.hear(now, &mut self.agent, (*number, said), cuts));
            }
            Line::Calls(number, who, _, call) if *who == own && call == "Terms" => {
                self.terms = Some(*number);
                self.acts.push_back(message_line(*number, own, &v1::TermsRequest {}));
            }
            Line::Calls(number, who, ..) if *who == own => {
                self.session = Some(*number);
                self.agent.handle_session_up(now);
            }
            Line::Calls(number, _, whom, _) if *whom == own => _ = self.calls.insert(*number),
            Line::Message(number, who, name, bytes) if *who != own => {
                if self.calls.contains(number) {
                    self.asked(*number, name, bytes);
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
            Line::Closes(number, who) if *who != own => {
                self.acts.extend(self.stores.lose(&mut self.agent, *number));
            }
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
                    let aborts = Line::Happens(self.who(), Event::Aborts { flow: flow.0 });
                    self.acts.push_back(self.stores.abort(flow).unwrap_or(aborts));
                    self.agent.handle_closed(flow, false);
                }
                Output::Suspect(flow) => panic!("{flow}"),
                Output::Journal(entry) => self.journal.push(entry),
                // Of its files and its log.
                Output::Cut { .. }
                | Output::Ended(..)
                | Output::Discard(_)
                | Output::Offer(_)
                | Output::Class(..)
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
