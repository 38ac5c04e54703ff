//! The data-plane thread: sockets and files on one side, the agent's state machine on the other.

use super::Command;
use super::SiteRelays;
use super::connection::{Connection, Input, Wrote};
use super::journal::Journal;
use super::uploads::Uploads;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::path::Path;
use std::rc::{Rc, Weak};
use std::sync::mpsc as sync_mpsc;
use tokio::sync::mpsc;
use weir_core::agent::{Agent, AgentConfig, BlockEntry, InterfaceBytes, JournalEntry, Pacing};
use weir_model::{Span, Time};
use weir_net::{BlockFile, Clock, Event, FrameChecksums, Interface, InterfaceCounters, Poller};
use weir_proto::data::{Request, Status};
use weir_proto::relay::RelayPath;
use weir_proto::{limits, v1};

const LISTENER: u64 = 0;
/// Waking for every chunk of every flow would cost more than moving its bytes. Events end a sleep.
const SHORTEST_SLEEP: Span = Span::from_nanos(500_000);
/// Writes between two looks at events and commands, so that neither waits long.
const WRITES_PER_TURN: usize = 8;

/// What the thread has of the operating system.
pub(super) struct Edge {
    pub(super) clock: Clock,
    pub(super) listener: TcpListener,
    pub(super) poller: Poller,
    /// The host's link, if foreign traffic on it is measured.
    pub(super) interface: Option<Interface>,
    /// Messages to the coordinator are at least this far apart.
    pub(super) batch: Span,
    /// Relays that carry flows to other sites.
    pub(super) relays: Option<SiteRelays>,
}

/// Everything the thread owns but the state only it may touch.
pub(super) struct DataPlane {
    edge: Edge,
    agent: Agent,
    inbox: sync_mpsc::Receiver<Command>,
    journal: Journal,
}

impl DataPlane {
    /// Restores the journal and prepares to serve.
    pub(super) fn start(
        config: AgentConfig,
        spool: &Path,
        edge: Edge,
        inbox: sync_mpsc::Receiver<Command>,
    ) -> io::Result<DataPlane> {
        let (journal, entries) = Journal::open(spool)?;
        let mut agent = Agent::new(config);
        for entry in entries {
            agent.restore(entry);
        }
        edge.poller.add(&edge.listener, LISTENER)?;
        Ok(DataPlane { edge, agent, inbox, journal })
    }

    /// Runs until told to stop.
    pub(super) fn run(self) -> io::Result<()> {
        let Edge { clock, listener, poller, interface, batch, relays } = self.edge;
        Running {
            clock,
            batch,
            interface,
            counters: InterfaceCounters::default(),
            agent: self.agent,
            listener,
            poller,
            inbox: self.inbox,
            journal: self.journal,
            connections: BTreeMap::new(),
            by_flow: BTreeMap::new(),
            uploads: Uploads::new(relays),
            files: BTreeMap::new(),
            session: None,
            next_token: LISTENER + 1,
            scratch: Vec::new(),
            accept_again: false,
            last_message: Time::ZERO,
        }
        .run()
    }
}

struct Running {
    clock: Clock,
    /// Messages to the coordinator are at least this far apart.
    batch: Span,
    interface: Option<Interface>,
    /// What the interface said last.
    counters: InterfaceCounters,
    agent: Agent,
    listener: TcpListener,
    poller: Poller,
    inbox: sync_mpsc::Receiver<Command>,
    journal: Journal,
    connections: BTreeMap<u64, Connection>,
    by_flow: BTreeMap<u64, u64>,
    uploads: Uploads,
    files: BTreeMap<(u64, String), ServedBlock>,
    session: Option<mpsc::Sender<v1::AgentMessage>>,
    next_token: u64,
    scratch: Vec<u8>,
    accept_again: bool,
    last_message: Time,
}

impl Running {
    fn run(mut self) -> io::Result<()> {
        let mut events = Vec::new();
        loop {
            if !self.take_commands()? {
                return Ok(());
            }
            for event in events.drain(..) {
                self.handle_event(event);
            }
            if std::mem::take(&mut self.accept_again) {
                self.accept();
            }
            self.transmit();
            self.agent.handle_timeout(self.clock.now());
            self.measure();
            self.deliver()?;
            let mut wake = self.agent.next_timeout();
            if self.agent.has_message() {
                let next = self.last_message + self.batch;
                wake = Some(wake.map_or(next, |at| at.min(next)));
            }
            let timeout = match wake {
                _ if self.accept_again => Some(Span::from_millis(5)),
                Some(at) => Some(coalesce(at.since(self.clock.now()))),
                None => None,
            };
            self.poller.wait(timeout, &mut events)?;
        }
    }

    fn take_commands(&mut self) -> io::Result<bool> {
        loop {
            let now = self.clock.now();
            match self.inbox.try_recv() {
                Ok(Command::Put(block, reply)) => {
                    let result = self.agent.handle_put(*block);
                    // The journal first: what was answered for must survive.
                    self.write_journal()?;
                    let _ = reply.send(result);
                }
                Ok(Command::HasEnded(coflow, reply)) => {
                    let _ = reply.send(self.agent.has_ended(coflow));
                }
                Ok(Command::Latencies(reply)) => {
                    let _ = reply.send(self.agent.latencies().clone());
                }
                Ok(Command::SessionUp(session, terms)) => {
                    self.session = Some(session);
                    self.last_message = Time::ZERO;
                    self.agent.handle_terms(now, terms);
                    self.agent.handle_session_up(now);
                }
                Ok(Command::SessionLost) => {
                    self.session = None;
                    self.agent.handle_session_lost();
                }
                Ok(Command::Coordinator(message)) => {
                    self.agent.handle_coordinator(now, message);
                    while let Some(notice) = self.agent.poll_notice() {
                        tracing::warn!("the coordinator says: {notice}");
                    }
                    self.deliver()?;
                }
                Ok(Command::Stop) | Err(sync_mpsc::TryRecvError::Disconnected) => return Ok(false),
                Err(sync_mpsc::TryRecvError::Empty) => return Ok(true),
            }
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
            && let Some(flow) = self.connections.get(&event.token).and_then(Connection::flow)
        {
            self.agent.handle_writable(self.clock.now(), flow);
        }
        if event.readable {
            self.read(event.token);
        }
    }

    fn read(&mut self, token: u64) {
        loop {
            let Some(connection) = self.connections.get_mut(&token) else { return };
            let flow = connection.flow();
            match connection.read() {
                Input::Nothing => return,
                Input::Request(request, path) => self.begin(token, &request, path),
                Input::Acknowledged => {
                    self.uploads.forget(token);
                    if let Some(flow) = flow {
                        self.by_flow.remove(&flow);
                        self.agent.handle_closed(flow, true);
                    }
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
                    // Out of descriptors, most likely: those waiting are tried again shortly.
                    tracing::warn!(%error, "cannot accept a data connection");
                    self.accept_again = true;
                    return;
                }
            };
            if stream.set_nonblocking(true).is_err() || weir_net::tune_served(&stream).is_err() {
                continue;
            }
            let mut connection = Connection::new(stream);
            if self.connections.len() >= limits::MAX_DATA_CONNECTIONS {
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

    /// Something happened to the connection to a relay that carries the flow of connection `token`.
    fn handle_upload(&mut self, token: u64) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let flow = connection.flow();
        let Some(upload) = connection.upload() else { return };
        match (upload.check(), flow) {
            (Ok(()), Some(flow)) => self.agent.handle_writable(self.clock.now(), flow),
            (Ok(()), None) => {}
            // Its receiver sees the connection close, and asks again.
            (Err(error), _) => {
                tracing::debug!(token, %error, "a relay gave a flow up");
                self.close(token);
            }
        }
    }

    fn begin(&mut self, token: u64, request: &Request, path: Option<RelayPath>) {
        let now = self.clock.now();
        let opened = self.agent.handle_request(now, request);
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let opened = match opened {
            Ok(opened) => opened,
            Err(status) => return connection.refuse(status),
        };
        match open_block(&mut self.files, &opened.block) {
            Ok(file) => {
                let next = &mut self.next_token;
                let begun = path
                    .and_then(|path| self.uploads.begin(now, token, next, request, path, opened.block.size));
                let upload =
                    begun.filter(|upload| self.poller.add(&upload.outlet.stream, upload.token).is_ok());
                connection.serve(opened.flow, file, opened.offset, upload, opened.block.identity);
                self.by_flow.insert(opened.flow, token);
            }
            Err(error) => {
                tracing::warn!(path = opened.block.path, %error, "cannot read a block");
                self.agent.handle_closed(opened.flow, false);
                connection.refuse(Status::Unreadable);
            }
        }
    }

    fn transmit(&mut self) {
        for _ in 0..WRITES_PER_TURN {
            let now = self.clock.now();
            let Some(transmit) = self.agent.poll_transmit(now) else { return };
            let flow = transmit.flow;
            let token = self.by_flow.get(&flow).copied();
            let Some(connection) = token.and_then(|token| self.connections.get_mut(&token)) else {
                self.agent.handle_closed(flow, false);
                continue;
            };
            connection.set_scheduled(self.agent.pacing(flow) != Some(Pacing::Unscheduled));
            if let Some(crowd) = connection.crowd(transmit.in_flight_limit) {
                self.agent.handle_crowded(now, flow, crowd);
                continue;
            }
            match connection.write(transmit.bytes, &mut self.scratch) {
                Ok(Wrote::Bytes(bytes)) => self.agent.handle_sent(now, flow, bytes),
                Ok(Wrote::Blocked(bytes)) => {
                    self.agent.handle_blocked(now, flow);
                    self.agent.handle_sent(now, flow, bytes);
                }
                Err(error) => {
                    tracing::debug!(flow, %error, "a data connection ended");
                    if let Some(token) = token {
                        self.close(token);
                    }
                }
            }
        }
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

    fn close(&mut self, token: u64) {
        let Some(mut connection) = self.connections.remove(&token) else { return };
        if let Some(upload) = connection.upload() {
            self.uploads.end(self.clock.now(), token, upload);
        }
        if let Some(flow) = connection.flow() {
            self.by_flow.remove(&flow);
            self.agent.handle_closed(flow, false);
        }
    }

    /// Hands on what the state machine has to say.
    fn deliver(&mut self) -> io::Result<()> {
        self.write_journal()?;
        while let Some(flow) = self.agent.poll_abort() {
            if let Some(token) = self.by_flow.get(&flow).copied() {
                self.close(token);
            }
        }
        let now = self.clock.now();
        if !self.agent.has_message() || now < self.last_message + self.batch {
            return Ok(());
        }
        self.last_message = now;
        while self.may_say_more()
            && let Some(message) = self.agent.poll_message()
        {
            if let Some(session) = &self.session
                && session.try_send(message).is_err()
            {
                // The coordinator does not keep up or is gone. The session task sees its queue close
                // and starts a new session, which begins with everything.
                self.session = None;
                self.agent.handle_session_lost();
            }
        }
        Ok(())
    }

    /// Whether the session has room: parts of a Hello are large and wait in the state machine, which has no second copy
    /// of them, and not in the session's queue.
    fn may_say_more(&self) -> bool {
        const PARTS_AT_ONCE: usize = 4;
        let Some(session) = self.session.as_ref().filter(|_| self.agent.introduces()) else { return true };
        session.is_closed() || session.capacity() + PARTS_AT_ONCE > session.max_capacity()
    }

    fn write_journal(&mut self) -> io::Result<()> {
        let mut entries = Vec::new();
        while let Some(entry) = self.agent.poll_journal() {
            if let JournalEntry::EndedRange(first, last) = entry {
                let from = self.files.range((first, String::new())..).map(|(key, _)| key);
                for key in from.take_while(|key| key.0 <= last).cloned().collect::<Vec<_>>() {
                    self.files.remove(&key);
                }
            }
            entries.push(entry);
        }
        self.journal.append(&entries)?;
        while let Some(path) = self.agent.poll_discard() {
            if let Err(error) = std::fs::remove_file(&path) {
                tracing::warn!(path, %error, "cannot remove a spooled block");
            }
        }
        Ok(())
    }
}

/// Sleeps are either none or long enough that several chunks may have become due.
fn coalesce(wait: Span) -> Span {
    if wait == Span::ZERO { wait } else { wait.max(SHORTEST_SLEEP) }
}

/// A block that was asked for: its file while somebody reads it, and what is known of its checksums.
struct ServedBlock {
    file: Weak<RefCell<BlockFile>>,
    checksums: FrameChecksums,
}

/// The open file of a block, shared by all who read it now.
fn open_block(
    files: &mut BTreeMap<(u64, String), ServedBlock>,
    block: &BlockEntry,
) -> io::Result<Rc<RefCell<BlockFile>>> {
    let key = (block.coflow, block.block.clone());
    let served = files.entry(key).or_insert_with(|| ServedBlock {
        file: Weak::new(),
        checksums: FrameChecksums::new(block.size, &block.frame_checksums),
    });
    if let Some(file) = served.file.upgrade() {
        return Ok(file);
    }
    let path = Path::new(&block.path);
    let file = BlockFile::open(path, block.offset, block.size, served.checksums.clone())?;
    let file = Rc::new(RefCell::new(file));
    served.file = Rc::downgrade(&file);
    Ok(file)
}
