//! Peers that lie: strangers who dial agents and relays and say what they like, of flows that are under way and of none; who
//! call the coordinator; and agents that tell it of what is not there.

use crate::content::Part;
use crate::data::Role;
use crate::events::{Call, Caller, Event};
use crate::world::World;
use rand::{Rng, RngExt};
use weir_core::coordinator::SessionId;
use weir_proto::data::{Identity, Request};
use weir_proto::relay::{
    FlowKey, HELLO_BYTES, HOP_LIMIT, Header, Hello, Kind, OPEN_BYTES, Open, Role as Says,
};
use weir_proto::{limits, v1};

/// Of how many flows a stranger may have heard, the last ones.
const HEARD_OF: usize = 20;

impl World {
    /// A flow goes by relays.
    pub(crate) fn note_key(&mut self, key: FlowKey) {
        if self.keys.len() == HEARD_OF {
            self.keys.pop_front();
        }
        self.keys.push_back(key);
    }

    /// A stranger dials an agent or a relay.
    pub(crate) fn lie(&mut self) {
        let host = self.some_host();
        let relay = self.some_relay().filter(|_| self.rng.random_range(0..4) > 0);
        // Half of those that lie to a relay do so as a receiver would, the others as an agent or a
        // relay.
        let number = match relay {
            None => self.dial(Role::Serving, host, host),
            Some(relay) if self.rng.random() => self.dial(Role::Delivery, self.settings.hosts + relay, host),
            // Of no flow: no connection has this number.
            Some(relay) => self.dial(Role::Upload(0), host, self.settings.hosts + relay),
        };
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.is_liar = true;
        }
        for _ in 0..3 {
            let after = self.millis(2, 50);
            self.later(after, Event::Lies { connection: number });
        }
        let after = self.millis(50, 200);
        self.later(after, Event::LiarLeaves { connection: number });
    }

    /// A liar writes a message, damaged or cut short now and then.
    pub(crate) fn say_lie(&mut self, number: u64) {
        let Some(role) = self.connections.get(&number).map(|connection| connection.role) else { return };
        let mut bytes = match role {
            Role::Serving => self.request_of_nobody(),
            _ => self.some_word(role),
        };
        if self.rng.random_range(0..4) == 0 {
            let at = self.rng.random_range(0..bytes.len());
            bytes[at] ^= 1 << self.rng.random_range(0..8);
        }
        if self.rng.random_range(0..4) == 0 {
            let kept = self.rng.random_range(1..=bytes.len());
            // The next lie goes on where this one was cut off, and is read as its rest.
            bytes.truncate(kept);
        }
        match role {
            Role::Serving | Role::Delivery => self.say(number, bytes),
            _ => self.send(number, vec![Part::Bytes(bytes)]),
        }
    }

    pub(crate) fn liar_leaves(&mut self, number: u64) {
        match self.connections.get(&number).map(|connection| connection.role) {
            Some(Role::Serving | Role::Delivery) => self.close(number),
            Some(_) => self.close_sender(number),
            None => {}
        }
    }

    /// A request for a block of a coflow that no driver has registered.
    fn request_of_nobody(&mut self) -> Vec<u8> {
        let request = Request {
            coflow: self.rng.random(),
            offset: 0,
            destination: self.some_host(),
            group: 0,
            identity: Identity::UNKNOWN,
            block: "b0".to_owned(),
        };
        request.encode()
    }

    /// Something that is said to relays, of a flow that the stranger has heard of.
    fn some_word(&mut self, role: Role) -> Vec<u8> {
        let unheard = FlowKey { coflow: self.rng.random(), reducer: 0, mapper: self.rng.random() };
        let heard = self.keys.len().checked_sub(1).map(|most| self.keys[self.rng.random_range(0..=most)]);
        let key = heard.unwrap_or(unheard);
        let says = match role {
            Role::Delivery => Says::Receiver,
            _ if self.rng.random() => Says::Host,
            _ => Says::Relay,
        };
        let hello = Hello { role: says, connections: 1, session: self.rng.random() };
        let number = self.rng.random_range(0..1_000_000);
        let relay = self.some_relay().unwrap_or_default();
        let open = Open {
            source_site: self.rng.random_range(0..3),
            destination_site: self.rng.random_range(0..3),
            destination: crate::relays::relay_address(relay),
        };
        let lead = |kind, length| Header { length, ..Header::about(key, kind, number) }.encode().to_vec();
        match self.rng.random_range(0..8) {
            0..3 => [&lead(Kind::Hello, HELLO_BYTES as u32)[..], &hello.encode()].concat(),
            3 => [&lead(Kind::Open, OPEN_BYTES as u32)[..], &open.encode()].concat(),
            4 => {
                let mut payload = vec![0; self.rng.random_range(1..2_000)];
                self.rng.fill_bytes(&mut payload);
                [&Header::data(key, HOP_LIMIT, number, payload.len() as u32).encode()[..], &payload].concat()
            }
            _ => {
                let kinds = [Kind::Subscribe, Kind::Credit, Kind::End, Kind::Reset, Kind::Alive];
                lead(kinds[self.rng.random_range(0..kinds.len())], 0)
            }
        }
    }
}

/// Ids above this are never given.
const NEVER_GIVEN: u64 = u64::MAX - 1_000;

impl World {
    /// Strangers and false agents tell the coordinator what is not so.
    pub(crate) fn lie_to_coordinator(&mut self) {
        for _ in 0..self.rng.random_range(1..6) {
            match self.rng.random_range(0..4) {
                0 => self.call_of_nobody(),
                1 => self.hello_of_nobody(),
                _ => self.tell_of_nothing(),
            }
        }
    }

    /// An id that was never given, or one that is odd.
    fn some_id(&mut self) -> u64 {
        match self.rng.random_range(0..4) {
            0 => self.rng.random_range(0..10),
            1 => u64::MAX,
            _ => self.rng.random_range(NEVER_GIVEN..=u64::MAX),
        }
    }

    fn call_of_nobody(&mut self) {
        let (coflow, wait_ms) = (self.some_id(), self.rng.random_range(0..2_000));
        let call = match self.rng.random_range(0..5) {
            0 => {
                let usual = v1::CoflowOptions::default();
                let options = match self.rng.random_range(0..4) {
                    0 => v1::CoflowOptions { weight: f64::NAN, ..usual },
                    1 => v1::CoflowOptions { name: "n".repeat(limits::MAX_NAME_BYTES + 1), ..usual },
                    2 => {
                        v1::CoflowOptions { parents: vec![coflow; limits::MAX_COFLOWS_PER_CALL + 1], ..usual }
                    }
                    _ => v1::CoflowOptions { lease_ms: 1, ..usual },
                };
                Call::Register(v1::RegisterRequest {
                    options: Some(options),
                    request_key: self.rng.random_range(1..u64::MAX),
                })
            }
            1 => Call::Unregister(coflow),
            2 => Call::Renew(v1::RenewRequest { coflows: vec![coflow; self.rng.random_range(0..5)] }),
            3 => {
                let host = self.rng.random_range(0..2 * self.settings.hosts);
                Call::Locate(v1::LocateRequest { coflow, block: "b0".to_owned(), wait_ms, host })
            }
            _ => Call::AwaitAdmission(v1::AdmissionRequest { coflow, wait_ms }),
        };
        self.call(Caller::Nobody, call);
    }

    /// A session of an agent that cannot be.
    fn hello_of_nobody(&mut self) {
        let id = SessionId(self.number());
        let usual = v1::Hello { version: 1, host: self.some_host(), ..v1::Hello::default() };
        let hello = match self.rng.random_range(0..3) {
            0 => v1::Hello { version: 2, ..usual },
            1 => v1::Hello { host: self.settings.hosts + self.rng.random_range(0..u32::MAX / 2), ..usual },
            _ => v1::Hello { data_address: "a".repeat(limits::MAX_NAME_BYTES + 1), ..usual },
        };
        let events = self.words_of_nothing();
        let now = self.coordinator.now(self.now);
        let Some(core) = &mut self.coordinator.core else { return };
        if core.handle_hello(now, id, hello.clone()).is_ok() {
            return self.violate(format!("an agent that cannot be was taken: {hello:?}"));
        }
        // The coordinator has no such session: what it says, and its end, are to change nothing.
        core.handle_agent(now, id, v1::AgentMessage { events });
        core.handle_session_lost(now, id);
        self.settle_coordinator();
    }

    /// An agent tells of flows, blocks and coflows that are not.
    fn tell_of_nothing(&mut self) {
        let life = self.coordinator.life;
        let open = self.sessions.iter().filter(|(_, it)| !it.is_cut && it.coordinator == life);
        let open: Vec<SessionId> = open.map(|(&id, _)| id).collect();
        if open.is_empty() {
            return;
        }
        let (id, events) = (open[self.rng.random_range(0..open.len())], self.words_of_nothing());
        let now = self.coordinator.now(self.now);
        if let Some(core) = &mut self.coordinator.core {
            core.handle_agent(now, id, v1::AgentMessage { events });
            self.settle_coordinator();
        }
    }

    fn words_of_nothing(&mut self) -> Vec<v1::AgentEvent> {
        use v1::agent_event::Kind;
        let words = (0..self.rng.random_range(1..5)).map(|_| {
            let (coflow, flow) = (self.some_id(), self.rng.random_range(NEVER_GIVEN..=u64::MAX));
            let (sent, host) = (self.rng.random(), self.rng.random());
            let block = "b0".to_owned();
            let kind = match self.rng.random_range(0..10) {
                0 => Kind::Progress(v1::Progress { flows: vec![v1::FlowProgress { flow, sent }] }),
                1 => Kind::FlowClosed(v1::FlowClosed { flow, sent, done: true, again: false }),
                2 => Kind::BlockGone(v1::BlockGone { coflow, block }),
                3 => Kind::Settled(v1::CoflowSettled { coflow }),
                4 => {
                    let limit = |bytes_per_s| v1::FlowLimit { flow, bytes_per_s };
                    let flows = [f64::NAN, f64::INFINITY, -1.0, 0.0].map(limit).to_vec();
                    Kind::Limits(v1::FlowLimits { flows })
                }
                5 => {
                    let attained = v1::CoflowAttained { coflow, bytes: sent };
                    Kind::Attained(v1::Attained { coflows: vec![attained] })
                }
                6 => {
                    let own = vec![v1::HostBytes { host, bytes: u64::MAX }];
                    Kind::Interface(v1::InterfaceReport { interval_ns: 0, sent, received: u64::MAX, own })
                }
                7 => {
                    let identity = vec![1; self.rng.random_range(0..20)];
                    Kind::BlockAdded(v1::BlockAdded { coflow, block, size: sent, identity })
                }
                8 => {
                    let opened = v1::FlowOpened {
                        flow,
                        coflow,
                        block,
                        destination: host,
                        size: 5,
                        offset: sent,
                        group: host,
                    };
                    Kind::FlowOpened(opened)
                }
                _ => Kind::Hello(v1::Hello::default()),
            };
            v1::AgentEvent { kind: Some(kind) }
        });
        words.collect()
    }
}
