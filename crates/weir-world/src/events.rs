//! What happens in the world, in order of time; of one time in the order in which it was put in.

use crate::content::Part;
use std::collections::BTreeMap;
use weir_controller::store::Notice;
use weir_core::coordinator::SessionId;
use weir_model::Time;
use weir_proto::v1;

#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// The coordinator's next moment.
    CoordinatorWakes,
    /// An agent's next moment.
    AgentWakes {
        host: u32,
    },
    /// An agent without a session tries to get one.
    Connect {
        host: u32,
        life: u64,
    },
    /// The coordinator is asked for its terms, and answers an agent that has them.
    AskTerms {
        host: u32,
        life: u64,
    },
    /// The coordinator's terms arrive at the agent.
    Terms {
        host: u32,
        life: u64,
        terms: v1::TermsReply,
        coordinator: u64,
    },
    /// A message of an agent arrives.
    Upward {
        session: SessionId,
        message: v1::AgentMessage,
    },
    /// A message of the coordinator arrives.
    Downward {
        session: SessionId,
        message: Box<v1::CoordinatorMessage>,
    },
    /// The coordinator refused a session.
    Refused {
        session: SessionId,
    },
    /// An end of a session learns that it is over.
    CoordinatorLoses {
        session: SessionId,
    },
    AgentLoses {
        session: SessionId,
    },
    /// A batch of an agent's journal is on the disk.
    Written {
        host: u32,
        life: u64,
    },
    /// The journal of a host begins to be synced, and is, as far as it was written then.
    Syncs {
        host: u32,
        boot: u64,
    },
    Synced {
        host: u32,
        boot: u64,
        bytes: usize,
    },
    /// A call arrives at the coordinator.
    Call {
        caller: Caller,
        call: Call,
    },
    /// Its answer arrives; none: no coordinator was there to answer.
    Answer {
        caller: Caller,
        answer: Option<Reply>,
    },
    /// A driver goes on with its coflow.
    Drive {
        job: usize,
    },
    /// An agent has heard how a job's coflow was registered, if nothing failed.
    IsNoted {
        job: usize,
    },
    /// A driver asks what became of its deadline.
    AsksAdmission {
        job: usize,
    },
    /// A driver renews its lease.
    Renew {
        job: usize,
    },
    /// A task puts its block.
    Put {
        job: usize,
        block: usize,
    },
    /// A task begins to get its block.
    Get {
        get: usize,
    },
    /// A receiver's next moment.
    ReceiverWakes {
        get: usize,
    },
    /// A task is ready for the next frame.
    Wants {
        get: usize,
    },
    /// A connection that is dialled arrives at the agent's host, and its answer at the receiver.
    Dialled {
        connection: u64,
    },
    Connected {
        connection: u64,
    },
    /// What a receiver said arrives.
    Said {
        connection: u64,
        bytes: Vec<u8>,
    },
    /// The file of a flow is open.
    Opened {
        connection: u64,
        flow: u64,
    },
    /// An agent looks at what takes too long.
    Looks {
        host: u32,
        life: u64,
    },
    /// What an agent wrote leaves its uplink.
    Left {
        connection: u64,
        parts: Vec<Part>,
    },
    /// It is at its receiver.
    Arrived {
        connection: u64,
        parts: Vec<Part>,
    },
    /// The sender hears that it is.
    Acknowledged {
        connection: u64,
        bytes: u64,
    },
    /// An end of a connection learns that it is over.
    ReceiverLoses {
        connection: u64,
    },
    SenderLoses {
        connection: u64,
    },
    /// A relay's next moment.
    RelayWakes {
        relay: u32,
    },
    /// A relay without a controller tries to get one.
    Attach {
        relay: u32,
    },
    /// What a relay says to its controller arrives, and what it is told.
    Reported {
        stream: u64,
        message: Box<v1::FromRelay>,
    },
    Ruled {
        stream: u64,
        message: Box<v1::ToRelay>,
    },
    /// A relay looks whether its controller is silent.
    ListensFor {
        stream: u64,
    },
    /// An end of such a stream learns that it is over.
    RelayLeaves {
        stream: u64,
    },
    ServerLoses {
        stream: u64,
    },
    /// A server's next moment.
    ServerWakes {
        server: usize,
    },
    /// A server's request arrives at the store, its answer at the server, and word of what others did.
    StoreAsked {
        server: usize,
        life: u64,
    },
    StoreAnswers {
        server: usize,
        life: u64,
    },
    StoreTells {
        server: usize,
        life: u64,
        notice: Notice,
    },
    StoreIsBack,
    /// The same of a decision maker.
    MakerWakes {
        maker: usize,
    },
    MakerAsks {
        maker: usize,
        life: u64,
    },
    StoreAnswersMaker {
        maker: usize,
        life: u64,
    },
    StoreTellsMaker {
        maker: usize,
        life: u64,
    },
    /// Where no controller is: other rules are drawn, and a relay hears them.
    RulesChange,
    RulesCome {
        relay: u32,
        rules: Box<v1::Rules>,
    },
    /// A fault is drawn, and happens unless it is left out.
    Fault,
    /// A driver dies, and its tasks with it.
    Dies {
        job: usize,
    },
    CoordinatorDies,
    /// Another process of the coordinator begins.
    CoordinatorStarts,
    AgentStarts {
        host: u32,
    },
    /// A host is to take blocks again.
    Undrain {
        host: u32,
    },
    RelayStarts {
        relay: u32,
    },
    ServerStarts {
        server: usize,
    },
    MakerStarts {
        maker: usize,
    },
    /// A stranger says something, and goes.
    Lies {
        connection: u64,
    },
    LiarLeaves {
        connection: u64,
    },
}

/// Who made a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Caller {
    Driver(usize),
    Renewal(usize),
    Admission(usize),
    /// A stranger, whom no answer harms.
    Nobody,
    Receiver {
        get: usize,
        call: u64,
    },
}

/// A call of the coordinator.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    Register(v1::RegisterRequest),
    Unregister(u64),
    Renew(v1::RenewRequest),
    Locate(v1::LocateRequest),
    AwaitAdmission(v1::AdmissionRequest),
}

/// The answer to a [`Call`].
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Registered(Option<u64>),
    Unregistered(Option<v1::CoflowRecord>),
    Renewed(v1::RenewReply),
    Located(v1::LocateReply),
    Decided(v1::AdmissionReply),
}

/// All that is to happen.
pub(crate) struct Queue<E = Event> {
    events: BTreeMap<(Time, u64), E>,
    inserted: u64,
}

impl<E> Default for Queue<E> {
    fn default() -> Queue<E> {
        Queue { events: BTreeMap::new(), inserted: 0 }
    }
}

impl<E> Queue<E> {
    pub(crate) fn push(&mut self, at: Time, event: E) {
        // The number orders events of one time, so that every run of a seed handles them alike.
        self.events.insert((at, self.inserted), event);
        self.inserted += 1;
    }
    pub(crate) fn pop(&mut self) -> Option<(Time, u64, E)> {
        self.events.pop_first().map(|((at, number), event)| (at, number, event))
    }
    /// When the next event happens.
    pub(crate) fn next_time(&self) -> Option<Time> {
        self.events.first_key_value().map(|(&(at, _), _)| at)
    }
    /// Puts an event off. It keeps its place among those that were put in with it.
    pub(crate) fn put_off(&mut self, at: Time, number: u64, event: E) {
        self.events.insert((at, number), event);
    }
}
