//! The controller between sites: the real servers, store and decision makers, and how they fail.

use crate::events::Event;
use crate::relays::name_of;
use crate::settings::Settings;
use crate::streams::Stream;
use crate::world::World;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet};
use weir_controller::decider::{self, DeciderCore};
use weir_controller::maker::{Maker, MakerSettings};
use weir_controller::records::State;
use weir_controller::server::{self, Output, ServerCore, ServerSettings};
use weir_controller::store::{Ledger, Notice};
use weir_model::{Span, Time};
use weir_policy::order::branches::Reach;

/// Where nothing fails, servers have a decision on what relays told within this.
const PATIENCE: Span = Span::from_millis(12_000);
/// What decides in place of rounds, in some of the runs.
const POLICY: &str = "sebf-routed";

/// Servers, decision makers, and what is between them.
#[derive(Default)]
pub(crate) struct Controllers {
    pub(crate) servers: Vec<ServerSide>,
    makers: Vec<MakerSide>,
    ledger: Ledger,
    /// Until when no server and no decision maker reaches the store.
    away_until: Time,
    /// Until when something was missing here that decisions take.
    disturbed_until: Time,
    pub(crate) streams: BTreeMap<u64, Stream>,
}

/// A server, or the place of one.
pub(crate) struct ServerSide {
    pub(crate) core: Option<ServerCore>,
    /// Which process it is.
    pub(crate) life: u64,
    pub(crate) stopped_until: Time,
    wakes: Time,
    ahead: Span,
    /// What the store is asked for, and what it answered: one at a time is under way.
    asked: Option<server::Request>,
    answer: Option<server::Reply>,
}

impl ServerSide {
    /// It, if the process is still that one.
    fn of_life(&mut self, life: u64) -> Option<&mut ServerSide> {
        (self.life == life).then_some(self)
    }

    pub(crate) fn now(&self, now: Time) -> Time {
        now + self.ahead
    }
}

/// A decision maker, or the place of one.
#[derive(Default)]
struct MakerSide {
    core: Option<DeciderCore>,
    life: u64,
    stopped_until: Time,
    wakes: Time,
    /// Until when it is at its rounds.
    counts_until: Time,
    asked: Option<decider::Request>,
    answer: Option<decider::Reply>,
}

impl MakerSide {
    fn of_life(&mut self, life: u64) -> Option<&mut MakerSide> {
        (self.life == life).then_some(self)
    }
}

impl Controllers {
    pub(crate) fn drawn(settings: &Settings, rng: &mut ChaCha8Rng) -> Controllers {
        if !settings.is_controlled() {
            return Controllers::default();
        }
        let server = |_| ServerSide {
            core: None,
            life: 0,
            stopped_until: Time::ZERO,
            wakes: Time::MAX,
            ahead: Span::from_nanos(rng.random_range(0..10_000_000_000)),
            asked: None,
            answer: None,
        };
        Controllers {
            servers: (0..settings.controllers).map(server).collect(),
            makers: (0..settings.controllers).map(|_| MakerSide::default()).collect(),
            ..Controllers::default()
        }
    }

    /// One server, its decision maker and the store between them are one process.
    fn is_one_process(&self) -> bool {
        self.servers.len() == 1
    }

    /// Until when the process of a decision maker stands.
    pub(crate) fn maker_stands_until(&self, maker: usize) -> Time {
        self.makers[maker].stopped_until
    }

    /// Whether all servers and decision makers run, and the store answers.
    pub(crate) fn are_whole(&self, now: Time) -> bool {
        let servers = self.servers.iter().all(|side| side.core.is_some());
        servers && self.makers.iter().all(|side| side.core.is_some()) && self.away_until <= now
    }
}

impl World {
    pub(crate) fn start_controllers(&mut self) {
        for server in 0..self.controllers.servers.len() {
            self.start_server(server);
        }
        if !self.controllers.is_one_process() {
            (0..self.controllers.makers.len()).for_each(|maker| self.start_maker(maker));
        }
    }

    /// A process of a server starts, under a name that no other had.
    pub(crate) fn start_server(&mut self, server: usize) {
        let (at, life) = (self.now, self.number());
        let side = &mut self.controllers.servers[server];
        let now = side.now(at);
        let mut core = ServerCore::new(now, ServerSettings::new(format!("s{server}-{life}")));
        core.handle_notice(now, Notice::Connected);
        (side.core, side.life, side.wakes) = (Some(core), life, Time::MAX);
        if self.controllers.is_one_process() {
            self.start_maker(0);
        }
        self.settle_server(server);
    }

    pub(crate) fn start_maker(&mut self, maker: usize) {
        let (life, seed) = (self.number(), self.rng.random());
        let name = format!("m{maker}-{life}");
        let settings =
            MakerSettings { reach: Reach { depth: 2, breadth: 3 }, rounds: 50, ..MakerSettings::default() };
        let by_policy = weir_policy::find(POLICY).ok().filter(|_| self.rng.random_range(0..4) == 0);
        let made = match by_policy {
            Some(policy) => Maker::of_policy(name, policy, settings),
            None => Maker::new(name, seed, settings),
        };
        let core = Some(DeciderCore::new(self.now, made));
        self.controllers.makers[maker] = MakerSide { core, life, wakes: Time::MAX, ..MakerSide::default() };
        self.maker_acts_at(maker, self.now);
    }

    fn kill_server(&mut self, server: usize) {
        let side = &mut self.controllers.servers[server];
        (side.core, side.asked, side.answer, side.stopped_until) = (None, None, None, Time::ZERO);
        // The process holds the store and the maker too.
        if self.controllers.is_one_process() {
            self.controllers.ledger = Ledger::default();
            self.controllers.makers[0] = MakerSide::default();
        }
        let of_server = self.controllers.streams.iter().filter(|(_, stream)| stream.server == server);
        for id in of_server.map(|(&id, _)| id).collect::<Vec<_>>() {
            self.cut_stream(id);
        }
    }

    /// Something is missing until then, and a little longer.
    fn disturb(&mut self, until: Time) {
        let controllers = &mut self.controllers;
        controllers.disturbed_until = controllers.disturbed_until.max(until);
    }

    /// Something of the controller fails; `kind` is one of [`World::KINDS`].
    pub(crate) fn fail_controllers(&mut self, kind: u32) {
        let server = self.rng.random_range(0..self.controllers.servers.len());
        let after = self.millis(5, 2_500);
        self.disturb(self.now + after);
        match kind {
            0 if self.controllers.servers[server].core.is_some() => {
                self.kill_server(server);
                self.later(after, Event::ServerStarts { server });
            }
            1 => stand(&mut self.controllers.servers[server].stopped_until, self.now + after),
            2 | 3 => {
                // A store of its own forgets when its process does.
                if !self.controllers.is_one_process() {
                    if self.rng.random() {
                        self.controllers.ledger = Ledger::default();
                    }
                    if self.rng.random_range(0..4) > 0 {
                        self.controllers.away_until = self.now + after;
                        self.later(after, Event::StoreIsBack);
                    }
                }
            }
            4 if !self.controllers.is_one_process() && self.controllers.makers[server].core.is_some() => {
                self.controllers.makers[server] = MakerSide::default();
                self.later(after, Event::MakerStarts { maker: server });
            }
            5 => stand(&mut self.controllers.makers[server].stopped_until, self.now + after),
            6 => _ = self.some_stream().map(|id| self.cut_stream(id)),
            _ => {
                let upward = self.rng.random();
                _ = self.some_stream().map(|id| self.stall_stream(id, after, upward));
            }
        }
    }

    /// Number of kinds of fault in [`World::fail_controllers`].
    pub(crate) const KINDS: u32 = 8;

    pub(crate) fn wake_server(&mut self, server: usize) {
        let side = &mut self.controllers.servers[server];
        if side.wakes <= self.now {
            side.wakes = Time::MAX;
            self.settle_server(server);
        }
    }

    /// Lets a server act, and does what it wants done.
    pub(crate) fn settle_server(&mut self, server: usize) {
        let at = self.now;
        let side = &mut self.controllers.servers[server];
        let (now, life) = (side.now(at), side.life);
        let Some(core) = &mut side.core else { return };
        core.handle_timeout(now);
        let outputs: Vec<Output> = std::iter::from_fn(|| core.poll_output(now)).collect();
        for output in outputs {
            match output {
                Output::Message(session, message) => self.say_to_relay(session.0, message),
                Output::Warning(warning) => self.server_warns(&warning),
                Output::Request(request) => {
                    self.controllers.servers[server].asked = Some(request);
                    let delay = self.delay();
                    self.later(delay, Event::StoreAsked { server, life });
                }
            }
        }
        let side = &self.controllers.servers[server];
        let Some(next) = side.core.as_ref().and_then(ServerCore::next_timeout) else { return };
        // The core reads a clock of its own, which is ahead of the world's.
        let next = Time::from_nanos(next.nanos().saturating_sub(side.ahead.nanos()));
        let next = self.not_at_once(next);
        let side = &mut self.controllers.servers[server];
        if next < side.wakes {
            side.wakes = next;
            self.queue.push(next, Event::ServerWakes { server });
        }
    }

    /// A server tells its operator something: that decisions are missing, or come again.
    fn server_warns(&mut self, warning: &str) {
        if warning.starts_with("no decision") && self.now > self.controllers.disturbed_until + PATIENCE {
            self.violate(format!("a server warns, and nothing is missing: {warning}"));
        }
    }

    fn is_store_away(&self) -> bool {
        self.controllers.away_until > self.now
    }

    /// Whether what a store answers gets lost.
    fn loses_answer(&mut self) -> bool {
        let is_lost = !self.is_calm() && self.rng.random_range(0..100) == 0;
        self.report.faults += u64::from(is_lost);
        is_lost
    }

    /// How long an answer of the store takes, or until it is clear that none comes.
    fn answer_takes(&mut self) -> Span {
        if self.is_store_away() { self.millis(1, 300) } else { self.delay() }
    }

    pub(crate) fn store_is_asked(&mut self, server: usize, life: u64) {
        let (now, is_away, is_lost) = (self.now, self.is_store_away(), self.loses_answer());
        let Controllers { servers, ledger, .. } = &mut self.controllers;
        let side = &mut servers[server];
        let Some(request) = side.of_life(life).and_then(|side| side.asked.take()) else { return };
        let name = side.core.as_ref().map_or("", ServerCore::name);
        let reply = if is_away { server::Reply::Failed } else { request.answer(now, ledger, name) };
        // The store has done what it was asked for: only its answer is lost.
        side.answer = Some(if is_lost { server::Reply::Failed } else { reply });
        let after = self.answer_takes();
        self.later(after, Event::StoreAnswers { server, life });
        self.store_tells();
    }

    pub(crate) fn store_is_asked_by_maker(&mut self, maker: usize, life: u64) {
        let (is_away, is_lost) = (self.is_store_away(), self.loses_answer());
        let Controllers { makers, ledger, .. } = &mut self.controllers;
        let side = &mut makers[maker];
        let Some(request) = side.of_life(life).and_then(|side| side.asked.take()) else { return };
        let name = side.core.as_ref().map_or("", DeciderCore::name);
        let reply = if is_away { decider::Reply::Failed } else { request.answer(ledger, name) };
        // As above: the decision may have been taken all the same.
        side.answer = Some(if is_lost { decider::Reply::Failed } else { reply });
        let after = self.answer_takes();
        self.later(after, Event::StoreAnswersMaker { maker, life });
        self.store_tells();
    }

    pub(crate) fn store_answers(&mut self, server: usize, life: u64) {
        let at = self.now;
        let side = &mut self.controllers.servers[server];
        let now = side.now(at);
        let Some(reply) = side.of_life(life).and_then(|side| side.answer.take()) else { return };
        if let Some(core) = &mut side.core {
            core.handle_reply(now, reply);
        }
        self.settle_server(server);
    }

    /// Servers and decision makers hear what happened at the store.
    fn store_tells(&mut self) {
        for notice in self.controllers.ledger.take_notices() {
            self.tell_all_of_store(notice);
        }
    }

    fn tell_all_of_store(&mut self, notice: Notice) {
        for server in 0..self.controllers.servers.len() {
            let (delay, life) = (self.delay(), self.controllers.servers[server].life);
            self.later(delay, Event::StoreTells { server, life, notice });
        }
        for maker in 0..self.controllers.makers.len() {
            let (delay, life) = (self.delay(), self.controllers.makers[maker].life);
            self.later(delay, Event::StoreTellsMaker { maker, life });
        }
    }

    pub(crate) fn store_is_back(&mut self) {
        if !self.is_store_away() {
            self.tell_all_of_store(Notice::Connected);
        }
    }

    pub(crate) fn server_is_told(&mut self, server: usize, life: u64, notice: Notice) {
        // All are told `Connected` once the store is back, and read it anew then.
        if self.is_store_away() {
            return;
        }
        let at = self.now;
        let side = &mut self.controllers.servers[server];
        let now = side.now(at);
        if let Some(core) = side.core.as_mut().filter(|_| side.life == life) {
            core.handle_notice(now, notice);
            self.settle_server(server);
        }
    }

    pub(crate) fn maker_is_told(&mut self, maker: usize, life: u64) {
        let side = &mut self.controllers.makers[maker];
        if let Some(core) = side.core.as_mut().filter(|_| side.life == life) {
            core.handle_notice(self.now);
            self.settle_maker(maker);
        }
    }

    pub(crate) fn store_answers_maker(&mut self, maker: usize, life: u64) {
        let side = &mut self.controllers.makers[maker];
        let Some(reply) = side.of_life(life).and_then(|side| side.answer.take()) else { return };
        if let Some(core) = &mut side.core {
            core.handle_reply(self.now, reply);
            // Making a decision takes time, during which the state may change.
            let takes = self.millis(1, 20);
            self.controllers.makers[maker].counts_until = self.now + takes;
            self.settle_maker(maker);
        }
    }

    fn maker_acts_at(&mut self, maker: usize, at: Time) {
        let side = &mut self.controllers.makers[maker];
        if at < side.wakes {
            side.wakes = at;
            self.queue.push(at, Event::MakerWakes { maker });
        }
    }

    pub(crate) fn wake_maker(&mut self, maker: usize) {
        let side = &mut self.controllers.makers[maker];
        if side.wakes <= self.now {
            side.wakes = Time::MAX;
            self.settle_maker(maker);
        }
    }

    /// Lets a decision maker act, unless it is at its rounds.
    fn settle_maker(&mut self, maker: usize) {
        let side = &mut self.controllers.makers[maker];
        let (life, counts_until) = (side.life, side.counts_until);
        let Some(core) = &mut side.core else { return };
        if counts_until > self.now {
            self.maker_acts_at(maker, counts_until);
        } else if let Some(request) = core.poll_request(self.now) {
            side.asked = Some(request);
            let delay = self.delay();
            self.later(delay, Event::MakerAsks { maker, life });
        } else if let Some(next) = core.next_timeout() {
            let next = self.not_at_once(next);
            self.maker_acts_at(maker, next);
        }
    }

    /// Nothing is left at servers and their store, all relays are known, and the last state was decided.
    pub(crate) fn look_for_leaks_at_controllers(&mut self) {
        if !self.settings.is_controlled() {
            return;
        }
        let snapshot = self.controllers.ledger.read();
        let state = State::of(&snapshot.servers);
        let relays: BTreeSet<String> = (0..self.relays.len() as u32).map(name_of).collect();
        let known: BTreeSet<String> = state.relays.keys().cloned().collect();
        let decided = snapshot.decision.as_ref().map(|decision| decision.proposal.epoch);
        let rules = |(number, side): (usize, &crate::relays::RelaySide)| {
            let rules = side.core.as_ref().map_or(0, |core| core.rules());
            (rules > 0).then_some((number, rules))
        };
        if let Some((coflow, left)) = state.coflows.first_key_value() {
            self.violate(format!("the controller still has coflow {coflow}: {left:?}"));
        } else if known != relays || state.unreadable > 0 {
            self.violate(format!("the controller knows relays {known:?}, and not {}", state.unreadable));
        } else if decided != Some(snapshot.epoch) {
            self.violate(format!("state {} is not decided, {decided:?} is", snapshot.epoch));
        } else if let Some((relay, rules)) = self.relays.iter().enumerate().find_map(rules) {
            self.violate(format!("relay {relay} still has {rules} rules"));
        }
    }
}

/// A process that stands already does not go on sooner.
fn stand(stopped_until: &mut Time, until: Time) {
    *stopped_until = until.max(*stopped_until);
}
