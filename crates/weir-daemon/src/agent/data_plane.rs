//! The data-plane thread: sockets on one side, the agent's state machine on the other. It never waits for a disk: files are
//! opened, read, closed and removed by others ([`Jobs`]), and the journal is written by another ([`Scribe`]).

use super::blocks::Blocks;
use super::connection::Connection;
use super::files::Files;
use super::jobs::{Job, Jobs};
use super::journal::{FACTS_AT_ONCE, Journal};
use super::metrics::{Gathers, Said};
use super::scribe::{Outcome, Scribe};
use super::spool::{Spool, Strays};
use super::stores::OpenFiles;
use super::tags::Tags;
use super::uploads::Uploads;
use super::{Command, Durability, SiteRelays, round_trips::RoundTrips};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use weir_core::agent::{
    Agent, AgentConfig, FactCursor, InterfaceBytes, Output, Place, PutError, StoreEntry, WaitingPut,
};
use weir_core::ids::{BlockKey, FlowNumber};
use weir_core::serving::{Answers, Input, Late};
use weir_model::{Span, Time};
use weir_net::{Clock, Event, Interface, InterfaceCounters, Poller};
use weir_proto::data::Status;
use weir_proto::{limits, v1};

const LISTENER: u64 = 0;
/// Waking for every chunk of every flow would cost more than moving its bytes. Events end a sleep.
const SHORTEST_SLEEP: Span = Span::from_nanos(500_000);
/// Commands taken between two looks at sockets.
const COMMANDS_PER_TURN: usize = 256;
/// How often it is looked at which connections are idle, which files take long, and what has no room.
const LOOK_INTERVAL: Span = Span::from_millis(500);
/// How often it is counted how much of the journal lives.
const COUNT_INTERVAL: Span = Span::from_millis(5_000);
/// How often the spool is looked through for files of dead tasks.
const SWEEP_INTERVAL: Span = Span::from_millis(600_000);
/// How often it is looked which executors' stores are there.
const STORES_INTERVAL: Span = Span::from_millis(30_000);

/// What the thread has of the operating system.
pub(super) struct Edge {
    pub(super) clock: Clock,
    pub(super) listener: TcpListener,
    pub(super) poller: Poller,
    /// Where files are opened and read.
    pub(super) runtime: Handle,
    /// The host's link, if foreign traffic on it is measured.
    pub(super) interface: Option<Interface>,
    /// Relays that carry flows to other sites.
    pub(super) relays: Option<SiteRelays>,
    pub(super) tags: Option<Arc<dyn Tags>>,
    /// Where files that the coordinator asks for are looked at.
    pub(super) asked: mpsc::Sender<v1::Offer>,
}

/// Everything the thread owns but the state only it may touch.
pub(super) struct DataPlane {
    edge: Edge,
    agent: Agent,
    inbox: mpsc::Receiver<Command>,
    journal: Journal,
    blocks: PathBuf,
    lock: File,
}

impl DataPlane {
    /// Takes the spool, restores the journal and prepares to serve.
    pub(super) fn start(
        config: AgentConfig,
        (spool, lock): (&Spool, File),
        durability: Durability,
        edge: Edge,
        inbox: mpsc::Receiver<Command>,
    ) -> anyhow::Result<DataPlane> {
        let mut agent = Agent::new(config);
        agent.gather_ends();
        let (mut journal, found) = Journal::open(&spool.own, durability, |entry| agent.restore(entry))?;
        let uncertain = agent.handle_boot(&weir_net::boot(), !found.damaged.is_empty());
        if uncertain > 0 {
            tracing::warn!(
                blocks = uncertain,
                "the machine was started anew: blocks without checksums that were not durable are held no more"
            );
        }
        // What is dead goes first: the disk may be full of it. No connection is open yet, and a journal leads to the other outputs
        // each time that it is read.
        let mut entries = Vec::new();
        while let Some(output) = agent.poll_output(edge.clock.now()) {
            match output {
                Output::Discard(path) => _ = std::fs::remove_file(path),
                Output::Journal(entry) => entries.push(entry),
                _ => {}
            }
        }
        journal.append(&entries);
        journal.begin(&found, &agent);
        journal.sync_first()?;
        edge.poller.add(&edge.listener, LISTENER)?;
        Ok(DataPlane { edge, agent, inbox, journal, blocks: spool.blocks.clone(), lock })
    }

    /// Runs until told to stop.
    pub(super) fn run(self) -> io::Result<()> {
        let Edge { clock, listener, poller, runtime, interface, relays, tags, asked } = self.edge;
        let waker = poller.waker();
        let jobs = Jobs::new(runtime, waker.clone());
        Running {
            clock,
            interface,
            counters: InterfaceCounters::default(),
            agent: self.agent,
            listener,
            poller,
            inbox: self.inbox,
            scribe: Scribe::start(self.journal, waker)?,
            cursor: FactCursor::default(),
            spool: self.blocks,
            _lock: self.lock,
            jobs,
            frame_buffer: Vec::new(),
            connections: BTreeMap::new(),
            by_flow: BTreeMap::new(),
            answers: Answers::default(),
            uploads: Uploads::new(relays),
            tags,
            blocks: Blocks::default(),
            files: Files::default(),
            session: None,
            asked,
            next_token: LISTENER + 1,
            most_connections: weir_net::connections_within_limit(limits::MAX_DATA_CONNECTIONS),
            accept_again: false,
            not_accepted: 0,
            next_look: Time::ZERO,
            next_count: Time::ZERO,
            next_sweep: Time::ZERO,
            strays: Strays::default(),
            puts: [0; 2],
            next_stores: Time::ZERO,
            stores_left: Vec::new(),
            looks_at_store: false,
            gathering: OpenFiles::default(),
            gathers: Gathers::default(),
            round_trips: RoundTrips::default(),
        }
        .run()
    }
}

/// The thread at work.
pub(super) struct Running {
    pub(super) clock: Clock,
    interface: Option<Interface>,
    /// What the interface said last.
    counters: InterfaceCounters,
    pub(super) agent: Agent,
    listener: TcpListener,
    pub(super) poller: Poller,
    inbox: mpsc::Receiver<Command>,
    scribe: Scribe,
    /// How far facts were read off for a journal that is written anew.
    cursor: FactCursor,
    /// Where blocks from memory are.
    spool: PathBuf,
    _lock: File,
    pub(super) jobs: Jobs,
    pub(super) frame_buffer: Vec<u8>,
    pub(super) connections: BTreeMap<u64, Connection>,
    pub(super) by_flow: BTreeMap<FlowNumber, u64>,
    pub(super) answers: Answers,
    pub(super) uploads: Uploads,
    pub(super) tags: Option<Arc<dyn Tags>>,
    pub(super) blocks: Blocks,
    pub(super) files: Files,
    session: Option<mpsc::Sender<v1::AgentMessage>>,
    asked: mpsc::Sender<v1::Offer>,
    pub(super) next_token: u64,
    /// Beyond that, idle connections are closed, or the new one.
    most_connections: usize,
    accept_again: bool,
    /// How often no connection could be accepted.
    not_accepted: u64,
    next_look: Time,
    next_count: Time,
    next_sweep: Time,
    pub(super) strays: Strays,
    /// How many were taken, and refused.
    puts: [u64; 2],
    next_stores: Time,
    /// Stores that are to be looked for, and whether one is.
    pub(super) stores_left: Vec<StoreEntry>,
    pub(super) looks_at_store: bool,
    pub(super) gathering: OpenFiles,
    pub(super) gathers: Gathers,
    pub(super) round_trips: RoundTrips,
}

impl Running {
    fn run(mut self) -> io::Result<()> {
        let mut events = Vec::new();
        loop {
            if !self.take_commands() {
                self.carry_out();
                // After `carry_out`: what the last commands led to is to be in the journal.
                self.scribe.end();
                return Ok(());
            }
            for event in events.drain(..) {
                self.handle_event(event);
            }
            self.take_jobs();
            self.take_written();
            if std::mem::take(&mut self.accept_again) {
                self.accept();
            }
            self.transmit();
            self.answer();
            self.agent.handle_timeout(self.clock.now());
            self.measure();
            self.carry_out();
            self.write_down();
            self.look();
            let timeout = self.timeout();
            self.poller.wait(timeout, &mut events)?;
        }
    }

    /// How long nothing is to be done.
    fn timeout(&mut self) -> Option<Span> {
        let now = self.clock.now();
        let looks = !self.connections.is_empty() || self.files.keeps();
        let look = (looks || self.scribe.waits() || self.jobs.wait()).then_some(self.next_look);
        let write = self.scribe.next_timeout();
        let accept = self.accept_again.then(|| now + Span::from_millis(5));
        let sweep = Some(self.next_sweep.max(self.next_look));
        let more = (!self.inbox.is_empty()).then_some(now);
        let owes =
            |token| self.connections.get(&token).is_some_and(|connection| connection.talk.owes_answer());
        let answer = self.answers.next_timeout(owes);
        let times = [self.agent.next_timeout(), look, write, accept, sweep, more, answer];
        times.into_iter().flatten().min().map(|at| coalesce(at.since(now)))
    }

    fn take_commands(&mut self) -> bool {
        for _ in 0..COMMANDS_PER_TURN {
            let now = self.clock.now();
            match self.inbox.try_recv() {
                Ok(Command::Put(block, reply)) => {
                    let (key, place) = (block.key(), block.place());
                    let noted = if self.scribe.is_behind() {
                        Err(PutError::NoSpace("its disk does not answer".to_owned()))
                    } else {
                        self.agent.handle_put(*block)
                    };
                    match noted {
                        Ok(()) => {
                            self.scribe.add_put(WaitingPut { key, place, caller: reply });
                        }
                        refused => {
                            self.puts[1] += 1;
                            let _ = reply.send(refused);
                        }
                    }
                }
                Ok(Command::Attach(store, reply)) => _ = reply.send(self.agent.handle_attach(*store)),
                Ok(Command::Detach(application, executor, token, reply)) => {
                    let _ = reply.send(self.agent.handle_detach(&application, &executor, &token));
                }
                Ok(Command::HasEnded(coflow, reply)) => {
                    let _ = reply.send(self.agent.has_ended(coflow));
                }
                Ok(Command::Places(key, reply)) => {
                    let _ = reply.send(self.agent.places(key.coflow, &key.name).cloned().collect());
                }
                Ok(Command::PlaceGone(key, place)) => {
                    self.agent.handle_changed(key.coflow, &key.name, &place);
                }
                Ok(Command::Observe(reply)) => {
                    let _ = reply.send(Said {
                        observed: self.agent.observe(now),
                        connections: self.connections.len(),
                        is_behind: self.scribe.is_behind(),
                        puts: self.puts,
                        gathers: self.gathers,
                        stores: self.agent.stores().count(),
                    });
                }
                Ok(Command::Latencies(reply)) => {
                    let _ = reply.send(self.agent.latencies().clone());
                }
                Ok(Command::Offered(answer)) => self.agent.handle_offered(answer),
                Ok(Command::SessionUp(session, terms)) => {
                    self.session = Some(session);
                    self.agent.handle_terms(now, terms);
                    self.agent.handle_session_up(now);
                }
                Ok(Command::SessionLost) => {
                    self.session = None;
                    self.agent.handle_session_lost();
                }
                Ok(Command::Refused) => self.agent.handle_refused(),
                Ok(Command::Renumber(number)) => self.agent.renumber(number),
                Ok(Command::LinkRates(rates)) => self.agent.handle_link_rates(rates),
                Ok(Command::Coordinator(message)) => self.agent.handle_coordinator(now, message),
                Ok(Command::Stop) | Err(mpsc::error::TryRecvError::Disconnected) => return false,
                Err(mpsc::error::TryRecvError::Empty) => break,
            }
        }
        true
    }

    /// Takes what came of the journal, and answers puts: what was answered for must survive.
    fn take_written(&mut self) {
        while let Some(Outcome { kept, refused, reason }) = self.scribe.poll() {
            self.puts[0] += kept.len() as u64;
            self.puts[1] += refused.len() as u64;
            kept.into_iter().for_each(|reply| _ = reply.send(Ok(())));
            // Entries of before still go to the journal. It never had these puts, so it is not told that they are dropped either.
            for WaitingPut { key, place, caller } in refused {
                self.agent.handle_unwritten(&key, &place);
                let _ = caller.send(Err(PutError::NoSpace(reason.clone())));
            }
        }
    }

    /// Has a journal begun anew where that is due.
    fn write_down(&mut self) {
        let (agent, cursor) = (&self.agent, &mut self.cursor);
        self.scribe.begin(self.clock.now(), |from_the_first| {
            if from_the_first {
                *cursor = FactCursor::default();
            }
            agent.facts(cursor, FACTS_AT_ONCE)
        });
    }

    /// Does what the state machine wants done.
    fn carry_out(&mut self) {
        let now = self.clock.now();
        let room = self.may_say_more();
        self.agent.handle_room(room);
        let mut entries = Vec::new();
        while let Some(output) = self.agent.poll_output(now) {
            match output {
                Output::Journal(entry) => entries.push(entry),
                Output::Cut { key, place } => self.cut_off(&key, place.as_ref()),
                Output::Ended(first, last) => self.blocks.forget_coflows(first, last),
                Output::Abort(flow) => {
                    if let Some(token) = self.by_flow.get(&flow).copied() {
                        self.close(token);
                    }
                }
                Output::Discard(path) => self.jobs.remove(now, path.into()),
                Output::Class(flow, class) => self.tag_class(flow, class),
                Output::Notice(notice) => tracing::warn!("the coordinator says: {notice}"),
                Output::Offer(offer) => self.ask_for(offer),
                Output::Suspect(flow) => self.look_at(flow),
                Output::Message(message) => {
                    self.say(message);
                    let room = self.may_say_more();
                    self.agent.handle_room(room);
                }
            }
        }
        self.scribe.add(now, entries);
    }

    /// The coordinator asks for a file of this host.
    fn ask_for(&mut self, offer: v1::Offer) {
        let token = offer.token;
        if self.asked.try_send(offer).is_err() {
            let refused = "the agent looks at as many files as it may".to_owned();
            self.agent.handle_offered(v1::OfferAnswer { token, size: 0, refused, again: true });
        }
    }

    /// Finds out whether a flow's receiver has no room.
    fn look_at(&mut self, flow: FlowNumber) {
        let connection = self.by_flow.get(&flow).and_then(|token| self.connections.get(token));
        if let Some(waited) = connection.and_then(Connection::waited) {
            self.agent.handle_waited(self.clock.now(), flow, waited);
        }
    }

    /// A block is gone, or one of its files: its readers ask again, and hear why or get it from another file. What was read of
    /// it for them would come too late.
    fn cut_off(&mut self, key: &BlockKey, place: Option<&Place>) {
        let is_served =
            |place: &Place| self.blocks.open_now(key).is_some_and(|served| served.place == *place);
        if place.is_some_and(|place| !is_served(place)) {
            return;
        }
        self.blocks.forget(key);
        let readers = self.connections.iter().filter(|(_, connection)| connection.serves(key));
        for token in readers.map(|(&token, _)| token).collect::<Vec<_>>() {
            self.close(token);
        }
    }

    fn handle_event(&mut self, event: Event) {
        if event.token == LISTENER {
            self.accept();
            return;
        }
        if let Some(token) = self.uploads.connection_of(event.token) {
            return self.handle_upload(token);
        }
        if event.writable
            && let Some(flow) =
                self.connections.get(&event.token).and_then(|connection| connection.talk.flow())
        {
            self.agent.handle_writable(self.clock.now(), flow);
        }
        if event.readable
            && let Some(connection) = self.connections.get_mut(&event.token)
        {
            connection.handle_readable(event.ended);
            self.read(event.token);
        }
    }

    fn read(&mut self, token: u64) {
        loop {
            let Some(connection) = self.connections.get_mut(&token) else { return };
            let flow = connection.talk.flow();
            match connection.read(self.clock.now()) {
                Input::Nothing => return,
                Input::Request(request, path) => self.begin(token, request, path),
                Input::Gather(request, path) => self.begin_gather(token, request, path),
                Input::Acknowledged => {
                    let served = connection.take_block();
                    served.into_iter().for_each(|served| self.blocks.left(served));
                    self.uploads.forget(token);
                    if let Some(flow) = flow {
                        self.by_flow.remove(&flow);
                        self.agent.handle_closed(flow, true);
                    }
                }
                Input::Doubted(frame) => {
                    self.doubt(token, frame);
                    self.close(token);
                }
                Input::Ended => self.close(token),
            }
        }
    }

    fn accept(&mut self) {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    // Out of descriptors, most likely: idle connections make room. Those waiting are tried again.
                    self.files.clear();
                    if !self.close_idle() {
                        self.not_accepted += 1;
                        // Accepting is tried hundreds of times a second: only each doubling of the count is told.
                        if self.not_accepted.is_power_of_two() {
                            let failed = self.not_accepted;
                            tracing::warn!(%error, failed, "cannot accept a data connection");
                        }
                    }
                    self.accept_again = true;
                    return;
                }
            };
            if stream.set_nonblocking(true).is_err() || self.tune(&stream).is_err() {
                continue;
            }
            let mut connection = Connection::new(self.clock.now(), stream);
            if self.connections.len() >= self.most_connections && !self.close_idle() {
                connection.refuse(Status::Busy);
                continue;
            }
            let token = self.next_token;
            self.next_token += 1;
            if self.poller.add(connection.stream(), token).is_ok() {
                self.connections.insert(token, connection);
            }
        }
    }

    /// Closes the connection that has been idle for longest, to make room; false if none is.
    pub(super) fn close_idle(&mut self) -> bool {
        let idle = self.connections.iter().filter(|(_, connection)| connection.talk.is_idle());
        let Some(token) =
            idle.min_by_key(|(_, connection)| connection.talk.active()).map(|(&token, _)| token)
        else {
            return false;
        };
        self.close(token);
        true
    }

    /// Looks, now and then, at what takes too long.
    fn look(&mut self) {
        let now = self.clock.now();
        if now < self.next_look {
            return;
        }
        self.next_look = now + LOOK_INTERVAL;
        self.jobs.start(now);
        self.files.look(now);
        if self.scribe.waits() || self.next_count <= now {
            self.next_count = now + COUNT_INTERVAL;
            self.scribe.count(self.agent.most_facts());
        }
        if self.next_sweep <= now {
            self.next_sweep = now + SWEEP_INTERVAL;
            self.jobs.add(now, Job::Sweep(self.spool.clone()));
        }
        if self.next_stores <= now && !self.looks_at_store {
            self.next_stores = now + STORES_INTERVAL;
            self.stores_left = self.agent.stores().cloned().collect();
        }
        self.look_at_store();
        let (mut over, mut late, mut slow) = (Vec::new(), Vec::new(), Vec::new());
        for (&token, connection) in &self.connections {
            match connection.talk.late(now) {
                Some(Late::Opening(flow)) => late.push((token, flow)),
                Some(Late::Gathering) => slow.push(token),
                Some(Late::Receiver) => over.push(token),
                None => {}
            }
        }
        over.into_iter().for_each(|token| self.close(token));
        for (token, flow) in late {
            tracing::warn!(flow = flow.0, "the file of a block could not be opened within ten seconds");
            self.give_up_opening(token, flow, Status::Unreadable);
        }
        slow.into_iter().for_each(|token| self.give_up_gather(token));
    }

    /// Looks at the interface, if it is time to.
    fn measure(&mut self) {
        let now = self.clock.now();
        if !self.agent.wants_interface(now) {
            return;
        }
        // An interface that is gone for a moment passes nothing.
        if let Some(Ok(counters)) = self.interface.as_mut().map(Interface::counters) {
            self.counters = counters;
        }
        let InterfaceCounters { sent, received } = self.counters;
        let under_way = self.by_flow.iter().filter_map(|(&flow, token)| {
            let connection = self.connections.get(token)?;
            Some((flow, weir_net::unacknowledged(connection.frame_stream()).ok()?))
        });
        self.agent.handle_interface(now, InterfaceBytes { sent, received }, &under_way.collect());
    }

    pub(super) fn close(&mut self, token: u64) {
        let (now, Some(mut connection)) = (self.clock.now(), self.connections.remove(&token)) else { return };
        if let Some(upload) = connection.upload() {
            self.uploads.end(now, token, upload, connection.talk.is_relay_unreached(now));
        }
        if let Some(flow) = connection.talk.flow() {
            self.by_flow.remove(&flow);
            self.agent.handle_closed(flow, false);
        }
        connection.take_block().into_iter().for_each(|served| self.blocks.left(served));
    }

    /// Says something to the coordinator.
    fn say(&mut self, message: v1::AgentMessage) {
        let Some(session) = &self.session else { return };
        if let Err(error) = session.try_send(message) {
            // The session task sees its queue close and starts a new session, which begins with everything; or it has ended,
            // and says why.
            if matches!(error, mpsc::error::TrySendError::Full(_)) {
                tracing::warn!("the coordinator does not keep up with this agent; beginning a new session");
            }
            self.session = None;
            self.agent.handle_session_lost();
        }
    }

    /// Whether the session has room: parts of a Hello are large and wait in the state machine, which has no second copy
    /// of them, and not in the session's queue.
    fn may_say_more(&self) -> bool {
        const PARTS_AT_ONCE: usize = 4;
        let Some(session) = self.session.as_ref().filter(|_| self.agent.introduces()) else { return true };
        session.is_closed() || session.capacity() + PARTS_AT_ONCE > session.max_capacity()
    }
}

/// Sleeps are either none or long enough that several chunks may have become due.
fn coalesce(wait: Span) -> Span {
    if wait == Span::ZERO { wait } else { wait.max(SHORTEST_SLEEP) }
}
