//! A server as a state machine without I/O: relays' messages and the store's answers in, messages to relays and requests
//! to the store out. Time is an argument.
//!
//! Call `handle_*` with what happened, then [`ServerCore::poll_output`] until it is empty; carry requests out and hand each
//! one's answer to [`ServerCore::handle_reply`]. One is under way at a time. Sleep until [`ServerCore::next_timeout`], then
//! call [`ServerCore::handle_timeout`].

use super::known::{HelloError, Known, SessionId};
use super::rules::{At, Key, RuleTable, complete, differences, rules_for};
use super::undecided::Undecided;
use crate::decision::Decision;
use crate::records::{RelayRecord, State};
use crate::store::{Ledger, Notice, RETRY, Renewal, Report, SERVER_LIFETIME, Snapshot};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use weir_model::{Span, Time};
use weir_proto::v1;
use weir_proto::v1::from_relay::Kind as FromRelay;
use weir_proto::v1::to_relay::Kind as ToRelay;

/// Keepalives that a relay is sent within its lease, where there is nothing else to say.
const KEEPALIVES: u64 = 4;
/// A server, which renews what it told every second, did not run for so long.
const PAUSE: Span = Span::from_millis(3_000);
/// How long a store that may have forgotten all is given to hear it again from every server: each tries again within half
/// of it.
pub const FORGETFUL_GRACE: Span = Span::from_millis(1_000);

/// What a server needs to know.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// Its name, unique among all servers.
    pub name: String,
    /// How long relays count on a server that says nothing.
    pub lease: Span,
    /// Arrivals and ends that follow each other within this time are reported together.
    pub batch: Span,
    /// Progress of flows is reported this often.
    pub progress_interval: Span,
    /// Where its process serves metrics.
    pub metrics: Option<SocketAddr>,
}

impl ServerSettings {
    /// A server of this name with a lease of 1 s, 10 ms for events to be reported together, and progress every 250 ms.
    pub fn new(name: String) -> ServerSettings {
        ServerSettings {
            name,
            lease: Span::from_millis(1_000),
            batch: Span::from_millis(10),
            progress_interval: Span::from_millis(250),
            metrics: None,
        }
    }
}

/// What the store is asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Reports what changed: [`crate::store::Store::report`].
    Report(Report),
    /// Prolongs the life of the server's documents: [`crate::store::Store::renew`].
    Renew,
    /// [`crate::store::Store::issue`], above this number.
    Issue(u64),
}

impl Request {
    /// What a store without a process of its own answers to a server of that name.
    pub fn answer(&self, now: Time, ledger: &mut Ledger, server: &str) -> Reply {
        match self {
            Request::Report(report) => Reply::Reported(ledger.report(now, report)),
            Request::Renew => Reply::Renewed(ledger.renew(now, server)),
            Request::Issue(floor) => {
                let (number, snapshot) = ledger.issue(*floor);
                Reply::Issued(number, Box::new(snapshot))
            }
        }
    }
}

/// What the store answered.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// The epoch after a report; none if the store has to be told all.
    Reported(Option<u64>),
    /// The store's answer to [`Request::Renew`].
    Renewed(Renewal),
    /// A number for rules, and what there is.
    Issued(u64, Box<Snapshot>),
    /// No answer; the store may have done what was asked for.
    Failed,
}

/// What was told to a relay in its session.
#[derive(Debug)]
struct Session {
    relay: String,
    list: Vec<v1::RelayEntry>,
    rules: RuleTable,
    /// Rules that the relay said it does not have: they are told again, or withdrawn.
    missed: BTreeSet<Key>,
    /// Whether all rules were told once.
    begun: bool,
    last_message: Time,
}

/// How often things happened that should be rare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Flows that met no rule at a relay.
    pub misses: u64,
    /// Decisions that were not above the last one, and so not applied.
    pub late: u64,
    /// Requests that the store did not answer.
    pub failed: u64,
    /// Flows that were not taken into account, for [`super::MAX_OPEN_FLOWS`] were open.
    pub uncounted: u64,
}

/// What a server's driver is to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// A message for the relay that has this session.
    Message(SessionId, v1::ToRelay),
    /// Tell the operator: once for each time that it comes to be so.
    Warning(String),
    /// Ask the store. Answer with [`ServerCore::handle_reply`].
    Request(Request),
}

/// A server of the controller, as a state machine without I/O.
pub struct ServerCore {
    settings: ServerSettings,
    known: Known,
    sessions: BTreeMap<SessionId, Session>,
    messages: VecDeque<(SessionId, v1::ToRelay)>,
    state: State,
    decision: Option<Decision>,
    /// Servers that told something of that state.
    told_by: BTreeSet<String>,
    /// Whether the store did not answer when it was asked last.
    store_away: bool,
    /// Until then a state without all of these servers is one that the store has not heard again.
    forgetful_until: Time,
    /// Since then, the epoch of the first state with all of them.
    whole_since: Option<u64>,
    /// The greatest number seen.
    floor: u64,
    /// Whether the store is to be told all, since it may have lost what it was told.
    tell_all: bool,
    /// Whether it has what this server told.
    is_told: bool,
    undecided: Undecided,
    ticked: Time,
    report_at: Option<Time>,
    issue_at: Option<Time>,
    renew_at: Time,
    retry_at: Time,
    retry_pause: Span,
    under_way: bool,
    counts: Counts,
}

impl ServerCore {
    /// A server without relays, at that time.
    pub fn new(now: Time, settings: ServerSettings) -> ServerCore {
        ServerCore {
            settings,
            known: Known::default(),
            sessions: BTreeMap::new(),
            messages: VecDeque::new(),
            state: State::default(),
            decision: None,
            told_by: BTreeSet::new(),
            store_away: false,
            forgetful_until: now,
            whole_since: None,
            floor: 0,
            tell_all: true,
            is_told: false,
            undecided: Undecided::default(),
            ticked: now,
            report_at: None,
            issue_at: None,
            renew_at: now,
            retry_at: now,
            retry_pause: RETRY.0,
            under_way: false,
            counts: Counts::default(),
        }
    }

    /// State and decision that relays' rules follow.
    pub(super) fn known_last(&self) -> (&State, Option<&Decision>) {
        (&self.state, self.decision.as_ref())
    }

    #[cfg(test)]
    pub(super) fn down_of(&self, relay: &str) -> usize {
        self.known.down(relay).map_or(0, BTreeSet::len)
    }

    /// How often things happened that should be rare.
    pub fn counts(&self) -> Counts {
        Counts { uncounted: self.known.uncounted(), ..self.counts }
    }

    /// Name of this server, unique among all.
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// A relay attaches. Answers with its older session, if it had one: that one is over.
    ///
    /// # Errors
    /// The relay speaks another version, its name or address is not valid, a relay at another address has the name, or there are too many relays.
    pub fn handle_hello(
        &mut self,
        now: Time,
        session: SessionId,
        hello: &v1::RelayHello,
    ) -> Result<Option<SessionId>, HelloError> {
        self.known.hello(now, session, hello)?;
        let older = self.sessions.iter().find(|(_, other)| other.relay == hello.relay).map(|(&id, _)| id);
        // A relay has one session, the newer one: the older may be a connection that broke without
        // a word.
        older.map(|id| self.sessions.remove(&id));
        let begun = Session {
            relay: hello.relay.clone(),
            list: Vec::new(),
            rules: RuleTable::new(),
            missed: BTreeSet::new(),
            begun: false,
            last_message: now,
        };
        self.sessions.insert(session, begun);
        self.report_within(now, self.settings.batch);
        self.issue_within(now, Span::ZERO);
        self.tell_lists(now);
        self.tell_keepalive(now, session);
        Ok(older)
    }

    /// A relay says something.
    pub fn handle_message(&mut self, now: Time, session: SessionId, message: &v1::FromRelay) {
        let (Some(of), Some(kind)) = (self.sessions.get_mut(&session), &message.kind) else { return };
        let relay = of.relay.clone();
        let batch = self.settings.batch;
        match kind {
            // A `Hello` is the first message of a session, which `handle_hello` takes; a later one says nothing.
            FromRelay::Hello(_) => {}
            FromRelay::FlowOpened(opened) => {
                self.known.opened(now, &relay, opened);
                self.report_within(now, batch);
            }
            FromRelay::FlowEnded(ended) => {
                self.known.ended(&relay, ended);
                self.report_within(now, batch);
            }
            FromRelay::Progress(progress) => {
                self.known.progressed(&relay, progress);
                self.report_within(now, self.settings.progress_interval);
            }
            FromRelay::Samples(samples) => {
                self.known.measured(&relay, samples);
                self.report_within(now, self.settings.progress_interval);
            }
            FromRelay::NextHop(state) => {
                self.known.next_hop(&relay, state);
                self.issue_within(now, batch);
            }
            FromRelay::Miss(miss) => {
                self.counts.misses += 1;
                // A coflow without a place gets one with the next decision. What was told already is told again.
                let prefixes = miss.key.map(|key| [(key.coflow, None), (key.coflow, Some(key.reducer))]);
                let told = prefixes.into_iter().flatten().filter(|prefix| of.rules.contains_key(prefix));
                of.missed.extend(told);
                if !of.missed.is_empty() {
                    self.issue_within(now, batch);
                }
            }
        }
    }

    /// The name of the relay whose session it is.
    pub fn relay_of(&self, session: SessionId) -> Option<String> {
        self.sessions.get(&session).map(|session| session.relay.escape_debug().to_string())
    }

    /// The stream of a session has ended, on whichever side.
    pub fn handle_lost(&mut self, now: Time, session: SessionId) {
        if self.sessions.remove(&session).is_some() {
            self.known.lost(now, session);
        }
    }

    /// The store says that something happened there.
    pub fn handle_notice(&mut self, now: Time, notice: Notice) {
        match notice {
            Notice::Decision => self.issue_within(now, Span::ZERO),
            // A decision on it is likely to follow; relays of other servers may be new.
            Notice::State => self.issue_within(now, self.settings.batch),
            Notice::Connected => {
                self.retry_at = now;
                self.renew_at = now;
                self.issue_within(now, self.settings.batch);
            }
        }
    }

    /// What the store is to be asked for now, if anything.
    fn poll_request(&mut self, now: Time) -> Option<Request> {
        if self.under_way || now < self.retry_at {
            return None;
        }
        let due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        let request =
            if self.tell_all || due(self.report_at) { self.report(now).map(Request::Report) } else { None };
        let request = request.or_else(|| {
            if due(self.issue_at) {
                self.issue_at = None;
                Some(Request::Issue(self.floor))
            } else {
                (self.renew_at <= now).then_some(Request::Renew)
            }
        })?;
        self.under_way = true;
        Some(request)
    }

    fn report(&mut self, now: Time) -> Option<Report> {
        self.report_at = None;
        let complete = std::mem::take(&mut self.tell_all);
        let changes = if complete { self.known.take_all(now) } else { self.known.take_changes(now) };
        if self.known.is_changed() {
            // Measurements that were told less than a second ago wait for the next report.
            self.report_within(now, self.settings.progress_interval);
        }
        let any = complete || !changes.is_empty();
        any.then(|| Report { server: self.settings.name.clone(), complete, floor: self.floor, changes })
    }

    /// The answer to the request under way.
    pub fn handle_reply(&mut self, now: Time, reply: Reply) {
        self.under_way = false;
        if reply == Reply::Failed {
            self.counts.failed += 1;
            self.store_away = true;
            self.retry_at = now + self.retry_pause;
            self.retry_pause = Span::from_nanos((self.retry_pause.nanos() * 2).min(RETRY.1.nanos()));
            // It may have taken in a part of what it was told, or lost all of it.
            self.tell_all = true;
            self.issue_within(now, Span::ZERO);
            return;
        }
        self.retry_pause = RETRY.0;
        if std::mem::take(&mut self.store_away) {
            self.expect_forgotten(now);
        }
        match reply {
            Reply::Reported(Some(epoch)) => {
                self.floor = self.floor.max(epoch);
                self.is_told = true;
                self.renewed(now);
            }
            Reply::Reported(None) => self.forgotten(now),
            Reply::Renewed(renewal) => {
                if !renewal.known {
                    self.forgotten(now);
                }
                if renewal.decision > self.decision.as_ref().map_or(0, |decision| decision.number) {
                    self.issue_within(now, Span::ZERO);
                }
                self.renewed(now);
            }
            Reply::Issued(number, snapshot) => self.issued(now, number, *snapshot),
            Reply::Failed => {}
        }
    }

    fn renewed(&mut self, now: Time) {
        // A renewal may fail and be repeated before the store takes the server for gone.
        self.renew_at = now + Span::from_nanos(SERVER_LIFETIME.nanos() / 3);
    }

    /// Tells relays what is new, under this number.
    fn issued(&mut self, now: Time, number: u64, snapshot: Snapshot) {
        self.floor = self.floor.max(number);
        // The store answers, and this server's documents are not there: it lost them after it had taken them.
        if self.is_told && !snapshot.servers.contains_key(&self.settings.name) {
            self.forgotten(now);
        }
        let told = snapshot.servers.iter().filter(|(_, documents)| !documents.is_empty());
        let told_by: BTreeSet<String> = told.map(|(server, _)| server.clone()).collect();
        if now < self.forgetful_until && !self.is_whole(&told_by, &snapshot) {
            // Decided on a part of what there is: relays would lose the rules of the rest. The state before holds.
            self.issue_within(now, self.forgetful_until.since(now));
        } else {
            self.told_by = told_by;
            let epoch = snapshot.epoch;
            self.take_over(snapshot);
            self.undecided.note(now, epoch, &self.state, self.decision.as_ref());
        }
        self.tell_lists(now);
        self.tell_rules(now, number);
    }

    /// The store forgot all, without having been away: an operator emptied it.
    fn forgotten(&mut self, now: Time) {
        self.tell_all = true;
        self.is_told = false;
        self.expect_forgotten(now);
    }

    /// The store may have forgotten what servers told it.
    fn expect_forgotten(&mut self, now: Time) {
        self.forgetful_until = now + FORGETFUL_GRACE;
        self.whole_since = None;
    }

    /// Whether all servers of the state in force have told the store again, and the decision is on what they told.
    fn is_whole(&mut self, told_by: &BTreeSet<String>, snapshot: &Snapshot) -> bool {
        if !self.told_by.is_subset(told_by) {
            return false;
        }
        let since = *self.whole_since.get_or_insert(snapshot.epoch);
        snapshot.decision.as_ref().is_some_and(|decision| decision.proposal.epoch >= since)
    }

    fn take_over(&mut self, snapshot: Snapshot) {
        self.state = State::of(&snapshot.servers);
        if self.state.unreadable > 0 {
            tracing::warn!(documents = self.state.unreadable, "documents in the store cannot be read");
        }
        let last = self.decision.as_ref().map_or(0, |decision| decision.number);
        match snapshot.decision {
            Some(decision) if decision.number >= last => self.decision = Some(decision),
            // A store that forgot all, and went on to decide before it heard which numbers were given.
            Some(_) => self.counts.late += 1,
            None => {}
        }
    }

    fn tell_rules(&mut self, now: Time, number: u64) {
        let none = BTreeSet::new();
        for (&id, session) in &mut self.sessions {
            let site = self.known.relays().find(|(name, _)| **name == session.relay).map(|of| of.1.site);
            let rules = match (&self.decision, site) {
                (Some(decision), Some(site)) => {
                    let down = self.known.down(&session.relay).unwrap_or(&none);
                    rules_for(At { site, down }, &self.state, &decision.proposal)
                }
                _ => RuleTable::new(),
            };
            // The first message of a session is complete: what the relay has of an earlier server is not known.
            let message = if session.begun {
                differences(&session.rules, &rules, &session.missed, number)
            } else {
                Some(complete(&rules, number))
            };
            session.rules = rules;
            session.missed.clear();
            session.begun = true;
            if let Some(message) = message {
                session.last_message = now;
                self.messages.push_back((id, v1::ToRelay { kind: Some(ToRelay::Rules(message)) }));
            }
        }
    }

    /// Tells all relays which relays there are, as far as they do not know.
    fn tell_lists(&mut self, now: Time) {
        let others = self.state.relays.iter();
        let relays: BTreeMap<&String, &RelayRecord> = others.chain(self.known.relays()).collect();
        let entry = |(name, record): (&&String, &&RelayRecord)| v1::RelayEntry {
            relay: (*name).clone(),
            site: record.site,
            data_address: record.data_address.clone(),
        };
        let list: Vec<v1::RelayEntry> = relays.iter().map(entry).collect();
        for (&id, session) in self.sessions.iter_mut().filter(|(_, session)| session.list != list) {
            session.list.clone_from(&list);
            session.last_message = now;
            let message = v1::RelayList { relays: list.clone() };
            self.messages.push_back((id, v1::ToRelay { kind: Some(ToRelay::Relays(message)) }));
        }
    }

    fn tell_keepalive(&mut self, now: Time, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.last_message = now;
            let message = v1::RelayKeepalive { lease_ms: self.settings.lease.nanos() / 1_000_000 };
            self.messages.push_back((id, v1::ToRelay { kind: Some(ToRelay::Keepalive(message)) }));
        }
    }

    /// The next thing to do.
    pub fn poll_output(&mut self, now: Time) -> Option<Output> {
        let message = self.messages.pop_front().map(|(session, message)| Output::Message(session, message));
        let output = message.or_else(|| self.undecided.poll(now).map(Output::Warning));
        output.or_else(|| self.poll_request(now).map(Output::Request))
    }

    /// When there is something to do although nothing happens.
    pub fn next_timeout(&self) -> Option<Time> {
        let keepalive = self.sessions.values().map(|session| session.last_message + self.keepalive_after());
        let timers = keepalive.chain(self.known.next_timeout());
        let requests = [self.report_at, self.issue_at, Some(self.renew_at)].into_iter().flatten();
        let requests = requests.chain(self.tell_all.then_some(Time::ZERO)).min();
        let requests = requests.filter(|_| !self.under_way).map(|at| at.max(self.retry_at));
        timers.chain(requests).min()
    }

    /// Does what is due: forgets relays that stay away, has changes reported, sends keepalives.
    pub fn handle_timeout(&mut self, now: Time) {
        let gap = now.since(std::mem::replace(&mut self.ticked, now));
        if gap > PAUSE {
            // The process did not run: relays could not come back meanwhile.
            self.known.put_off(gap);
        }
        self.known.forget_lost(now);
        if self.known.is_changed() {
            self.report_within(now, self.settings.progress_interval);
        }
        let quiet = |session: &Session| session.last_message + self.keepalive_after() <= now;
        let quiet: Vec<SessionId> =
            self.sessions.iter().filter(|(_, session)| quiet(session)).map(|(&id, _)| id).collect();
        quiet.into_iter().for_each(|id| self.tell_keepalive(now, id));
    }

    fn keepalive_after(&self) -> Span {
        Span::from_nanos(self.settings.lease.nanos() / KEEPALIVES)
    }

    fn report_within(&mut self, now: Time, span: Span) {
        let at = now + span;
        self.report_at = Some(self.report_at.map_or(at, |had| had.min(at)));
    }

    fn issue_within(&mut self, now: Time, span: Span) {
        let at = now + span;
        self.issue_at = Some(self.issue_at.map_or(at, |had| had.min(at)));
    }
}
