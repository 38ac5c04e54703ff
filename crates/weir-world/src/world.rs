//! The world: all parties, and the loop.

use crate::controllers::Controllers;
use crate::coordinator::CoordinatorSide;
use crate::data::{Connection, Port};
use crate::end::{Report, Violation};
use crate::events::{Event, Queue};
use crate::host::Host;
use crate::jobs::Job;
use crate::receiver::Get;
use crate::relays::RelaySide;
use crate::session::Session;
use crate::settings::Settings;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;
use std::hash::Hasher;
use twox_hash::XxHash3_64;
use weir_core::coordinator::SessionId;
use weir_core::ids::FlowNumber;
use weir_model::{Span, Time};
use weir_proto::relay::FlowKey;
use weir_proto::v1;

/// The world's time begins here: clocks show the time of day.
pub(crate) const BEGIN: Time = Time::from_millis(1_700_000_000_000);
/// No party acts twice within this time for nothing.
const STEP: Span = Span::from_nanos(50_000);
/// Until a kernel has found out that another machine is gone.
const KEEPALIVE: Span = Span::from_millis(65_000);
/// How long everything is let be once all jobs are over, before it is looked at what is left.
const QUIET: Span = Span::from_millis(20_000);

/// All parties, and what is to happen.
pub(crate) struct World {
    pub(crate) settings: Settings,
    pub(crate) rng: ChaCha8Rng,
    pub(crate) now: Time,
    pub(crate) queue: Queue,
    pub(crate) coordinator: CoordinatorSide,
    pub(crate) hosts: Vec<Host>,
    pub(crate) relays: Vec<RelaySide>,
    pub(crate) controllers: Controllers,
    /// Links of machines: hosts, and then relays; and when those from a site to another are free.
    pub(crate) ports: Vec<Port>,
    pub(crate) wide_free: BTreeMap<(u32, u32), Time>,
    /// Until when nothing comes from a machine to another, of what connections carry.
    pub(crate) cut_until: BTreeMap<(u32, u32), Time>,
    /// Without controllers, what relays were told last, and whether that may lead flows in circles.
    pub(crate) rules: v1::Rules,
    pub(crate) has_circles: bool,
    /// Flows that went by relays last.
    pub(crate) keys: VecDeque<FlowKey>,
    pub(crate) sessions: BTreeMap<SessionId, Session>,
    pub(crate) jobs: Vec<Job>,
    pub(crate) gets: Vec<Get>,
    pub(crate) connections: BTreeMap<u64, Connection>,
    /// Coflows of which an agent heard how they were registered.
    pub(crate) noted: BTreeSet<u64>,
    /// Connections that no get has, from a host to another, and buffers, for later gets.
    pub(crate) idle: BTreeMap<(u32, u32), Vec<u64>>,
    pub(crate) buffers: Vec<Vec<u8>>,
    /// Numbers of sessions, connections, tokens and lives: each its own.
    pub(crate) numbers: u64,
    pub(crate) report: Report,
    /// An agent was killed before it had written down that a flow was done: it may be counted once more.
    pub(crate) forgot_done: bool,
    /// Bytes were damaged on their way.
    pub(crate) has_damaged: bool,
    /// A receiver died while a relay had a flow for it, or may have had one.
    pub(crate) has_relayed_to_dead: bool,
    /// The machine of a relay was lost.
    pub(crate) has_lost_relay: bool,
    /// What was wrong first.
    pub(crate) wrong: Option<Violation>,
    digest: XxHash3_64,
}

/// Runs what a seed says.
///
/// # Errors
/// What went wrong, first of all.
pub fn run(seed: u64, settings: &Settings) -> Result<Report, Violation> {
    let mut world = World::new(seed, settings.clone());
    world.begin();
    world.run()
}

impl World {
    fn new(seed: u64, settings: Settings) -> World {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let coordinator = CoordinatorSide::drawn(&settings, &mut rng);
        let hosts = (0..settings.hosts).map(|_| Host::drawn(&mut rng)).collect();
        let relays: Vec<RelaySide> =
            (0..settings.sites() * settings.relays).map(|_| RelaySide::drawn(&mut rng)).collect();
        let machines = settings.hosts as usize + relays.len();
        let has_circles = rng.random_range(0..4) == 0 && !settings.is_controlled();
        let controllers = Controllers::drawn(&settings, &mut rng);
        World {
            settings,
            rng,
            now: BEGIN,
            queue: Queue::default(),
            coordinator,
            hosts,
            relays,
            controllers,
            ports: vec![Port::default(); machines],
            wide_free: BTreeMap::new(),
            cut_until: BTreeMap::new(),
            rules: v1::Rules::default(),
            has_circles,
            keys: VecDeque::new(),
            sessions: BTreeMap::new(),
            jobs: Vec::new(),
            gets: Vec::new(),
            connections: BTreeMap::new(),
            noted: BTreeSet::new(),
            idle: BTreeMap::new(),
            buffers: Vec::new(),
            numbers: 0,
            report: Report::default(),
            forgot_done: false,
            has_damaged: false,
            has_relayed_to_dead: false,
            has_lost_relay: false,
            wrong: None,
            digest: XxHash3_64::new(),
        }
    }

    fn begin(&mut self) {
        self.start_coordinator();
        for host in 0..self.settings.hosts {
            // One host in four of an open network joins while coflows move.
            if self.settings.is_open && self.rng.random_range(0..4) == 0 {
                let after = self.millis(1, 2_000);
                self.later(after, Event::AgentStarts { host });
            } else {
                self.start_agent(host);
            }
        }
        for relay in 0..self.relays.len() as u32 {
            self.start_relay(relay);
        }
        self.draw_jobs();
        if self.settings.is_controlled() {
            self.start_controllers();
        } else if self.settings.relays > 0 {
            self.change_rules();
        }
        self.next_fault();
    }

    fn run(mut self) -> Result<Report, Violation> {
        let faults = self.settings.faults.unwrap_or_default();
        let limit = BEGIN + self.settings.arrivals.max(faults) + self.settings.patience;
        let mut end = None;
        while let Some((at, number, event)) = self.queue.pop() {
            if end.is_some_and(|end| at > end) {
                break;
            }
            self.now = at;
            if at > limit {
                let left = self.unfinished();
                return Err(self.violated(format!("not over in time: {left}")));
            }
            if let Some(until) = self.stopped_until(&event).filter(|until| *until > at) {
                // With its own number, so that what waits for a stopped process keeps its order.
                self.queue.put_off(until, number, event);
                continue;
            }
            self.note(&event);
            self.happen(event);
            if let Some(wrong) = self.wrong.take() {
                return Err(wrong);
            }
            // An agent that comes late tells of coflows whose lease begins then.
            let is_quiet = self.is_whole() && self.jobs.iter().all(Job::is_over);
            end = end.filter(|_| is_quiet).or(is_quiet.then(|| self.now + self.quiet()));
        }
        self.look_for_leaks();
        if let Some(wrong) = self.wrong.take() {
            return Err(wrong);
        }
        self.report.took = self.now.since(BEGIN);
        self.report.digest = self.digest.finish();
        Ok(self.report)
    }

    /// How long everything is let be: where machines were lost, kernels at the other ends of connections have yet to find that out.
    fn quiet(&self) -> Span {
        if self.report.machines_lost > 0 || self.has_lost_relay { QUIET + KEEPALIVE } else { QUIET }
    }

    /// Until when the process stands that an event is for: what comes meanwhile waits in its sockets.
    fn stopped_until(&self, event: &Event) -> Option<Time> {
        let of_relay = |relay: u32| Some(self.relays[relay as usize].stopped_until);
        let of_host = |host: u32| match self.relay_of(host) {
            Some(relay) => of_relay(relay),
            None => Some(self.hosts[host as usize].stopped_until),
        };
        let of_server = |server: usize| Some(self.controllers.servers[server].stopped_until);
        let of_connection = |number: &u64| of_host(self.connections.get(number)?.from);
        match event {
            Event::CoordinatorWakes
            | Event::AskTerms { .. }
            | Event::Upward { .. }
            | Event::CoordinatorLoses { .. }
            | Event::Call { .. } => Some(self.coordinator.stopped_until),
            Event::AgentWakes { host }
            | Event::Connect { host, .. }
            | Event::Terms { host, .. }
            | Event::Looks { host, .. }
            | Event::Written { host, .. } => of_host(*host),
            Event::Downward { session, .. } | Event::Refused { session } | Event::AgentLoses { session } => {
                of_host(self.sessions.get(session)?.host)
            }
            Event::Said { connection, .. }
            | Event::Opened { connection, .. }
            | Event::Acknowledged { connection, .. }
            | Event::SenderLoses { connection } => of_connection(connection),
            Event::Connected { connection } => {
                let role = self.connections.get(connection)?.role;
                if role.is_dialled_by_sender() { of_connection(connection) } else { None }
            }
            Event::RelayWakes { relay } | Event::RulesCome { relay, .. } | Event::Attach { relay } => {
                of_relay(*relay)
            }
            Event::Ruled { stream, .. } | Event::RelayLeaves { stream } | Event::ListensFor { stream } => {
                of_relay(self.relay_of_stream(*stream)?)
            }
            Event::Reported { stream, .. } | Event::ServerLoses { stream } => {
                of_server(self.server_of_stream(*stream)?)
            }
            Event::ServerWakes { server }
            | Event::StoreAnswers { server, .. }
            | Event::StoreTells { server, .. } => of_server(*server),
            Event::MakerWakes { maker }
            | Event::StoreAnswersMaker { maker, .. }
            | Event::StoreTellsMaker { maker, .. } => Some(self.controllers.maker_stands_until(*maker)),
            Event::Put { job, block } => of_host(self.jobs[*job].blocks[*block].host),
            _ => None,
        }
    }

    /// Counts an event, adds it to the run's digest, and prints it where the run is traced.
    fn note(&mut self, event: &Event) {
        self.report.events += 1;
        let mut line = String::new();
        let _ = write!(line, "{:.6} {event:?}", self.since_begin());
        // Of every event and its time: two runs of a seed that differ anywhere differ in it.
        self.digest.write(line.as_bytes());
        if self.settings.trace {
            println!("{line}");
        }
    }

    pub(crate) fn since_begin(&self) -> f64 {
        self.now.since(BEGIN).as_secs()
    }

    /// Whether faults may happen no more.
    pub(crate) fn is_calm(&self) -> bool {
        self.settings.faults.is_none_or(|faults| self.now >= BEGIN + faults)
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::CoordinatorWakes => self.wake_coordinator(),
            Event::AgentWakes { host } => self.wake_agent(host),
            Event::Connect { host, life } => self.connect(host, life),
            Event::AskTerms { host, life } => self.give_terms(host, life),
            Event::Terms { host, life, terms, coordinator } => {
                self.begin_session(host, life, terms, coordinator)
            }
            Event::Upward { session, message } => self.hear_agent(session, message),
            Event::Downward { session, message } => self.hear_coordinator(session, *message),
            Event::Refused { session } => self.refused(session),
            Event::CoordinatorLoses { session } => self.coordinator_loses(session),
            Event::AgentLoses { session } => self.agent_loses(session),
            Event::Written { host, life } => self.written(host, life),
            Event::Syncs { host, boot } => self.sync(host, boot),
            Event::Synced { host, boot, bytes } => self.synced(host, boot, bytes),
            Event::Call { caller, call } => self.take_call(caller, call),
            Event::Answer { caller, answer } => self.take_answer(caller, answer),
            Event::Drive { job } => self.drive(job),
            Event::IsNoted { job } => self.check_note(job),
            Event::AsksAdmission { job } => self.ask_admission(job),
            Event::Renew { job } => self.renew(job),
            Event::Put { job, block } => self.put(job, block),
            Event::Get { get } => self.get(get),
            Event::ReceiverWakes { get } => self.wake_receiver(get),
            Event::Wants { get } => self.want(get),
            Event::Dialled { connection } => self.dialled(connection),
            Event::Connected { connection } => self.connected(connection),
            Event::Said { connection, bytes } => self.said(connection, bytes),
            Event::Opened { connection, flow } => self.opened(connection, FlowNumber(flow)),
            Event::Looks { host, life } => self.look(host, life),
            Event::Left { connection, parts } => self.left(connection, parts),
            Event::Arrived { connection, parts } => self.arrived(connection, parts),
            Event::Acknowledged { connection, bytes } => self.acknowledged(connection, bytes),
            Event::ReceiverLoses { connection } => self.receiver_loses(connection),
            Event::SenderLoses { connection } => self.sender_loses(connection),
            Event::RelayWakes { relay } => self.wake_relay(relay),
            Event::Attach { relay } => self.attach(relay),
            Event::Reported { stream, message } => self.hear_relay(stream, &message),
            Event::Ruled { stream, message } => self.hear_controller(stream, &message),
            Event::ListensFor { stream } => self.listen_for(stream),
            Event::RelayLeaves { stream } => self.relay_leaves(stream),
            Event::ServerLoses { stream } => self.server_loses(stream),
            Event::ServerWakes { server } => self.wake_server(server),
            Event::StoreAsked { server, life } => self.store_is_asked(server, life),
            Event::StoreAnswers { server, life } => self.store_answers(server, life),
            Event::StoreTells { server, life, notice } => self.server_is_told(server, life, notice),
            Event::StoreIsBack => self.store_is_back(),
            Event::MakerWakes { maker } => self.wake_maker(maker),
            Event::MakerAsks { maker, life } => self.store_is_asked_by_maker(maker, life),
            Event::StoreAnswersMaker { maker, life } => self.store_answers_maker(maker, life),
            Event::StoreTellsMaker { maker, life } => self.maker_is_told(maker, life),
            Event::RulesChange => self.change_rules(),
            Event::RulesCome { relay, rules } => self.rules_come(relay, *rules),
            Event::Fault => self.fail(),
            Event::Dies { job } => self.die(job),
            Event::CoordinatorDies => self.coordinator_dies(),
            Event::CoordinatorStarts => self.start_coordinator(),
            Event::AgentStarts { host } if self.hosts[host as usize].agent.is_none() => {
                self.start_agent(host)
            }
            Event::AgentStarts { .. } => {}
            Event::Undrain { host } => self.undrain(host),
            Event::RelayStarts { relay } => self.start_relay(relay),
            Event::ServerStarts { server } => self.start_server(server),
            Event::MakerStarts { maker } => self.start_maker(maker),
            Event::Lies { connection } => self.say_lie(connection),
            Event::LiarLeaves { connection } => self.liar_leaves(connection),
        }
    }

    /// A number that was not given out before.
    pub(crate) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// A span of up to `most`, and not none.
    pub(crate) fn span(&mut self, most: Span) -> Span {
        Span::from_nanos(self.rng.random_range(1..=most.nanos().max(1)))
    }

    /// A span between two, in milliseconds.
    pub(crate) fn millis(&mut self, from: u64, to: u64) -> Span {
        Span::from_nanos(self.rng.random_range(from * 1_000_000..to * 1_000_000))
    }

    /// How long a message takes: mostly a part of the usual delay, now and then a hundred times as long.
    pub(crate) fn delay(&mut self) -> Span {
        let most = self.settings.delay;
        let long = !self.is_calm() && self.rng.random_range(0..200) == 0;
        let most = if long { Span::from_nanos(most.nanos() * 100) } else { most };
        self.span(most)
    }

    /// Has an event happen once the span is over.
    pub(crate) fn later(&mut self, after: Span, event: Event) {
        self.queue.push(self.now + after, event);
    }

    /// When a party is to act that wants to at this time: not at once again.
    pub(crate) fn not_at_once(&self, at: Time) -> Time {
        at.max(self.now + STEP)
    }

    /// Ends the run as failed; the first violation is the one that is told.
    pub(crate) fn violate(&mut self, what: String) {
        // The first violation is the cause; those after it may follow from it.
        if self.wrong.is_none() {
            self.wrong = Some(self.violated(what));
        }
    }

    fn violated(&self, what: String) -> Violation {
        Violation { at: self.since_begin(), what, report: self.report.clone() }
    }
}
