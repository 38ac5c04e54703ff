//! The controller between sites: the real servers, store and decision makers, and how they fail.

use crate::events::Event;
use crate::relays::name_of;
use crate::settings::Settings;
use crate::streams::Stream;
use crate::world::World;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet};
use weir_controller::decision::Finality;
use weir_controller::maker::{Maker, MakerSettings, Step};
use weir_controller::records::State;
use weir_controller::server::{Output, Reply, Request, ServerCore, ServerSettings};
use weir_controller::store::{Ledger, Notice};
use weir_model::{Span, Time};
use weir_policy::order::branches::Reach;

/// A decision maker that heard nothing looks at the store all the same.
const LOOK_INTERVAL: Span = Span::from_millis(1_000);
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
    /// Until when nobody reaches the store.
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
    asked: Option<Request>,
    answer: Option<Reply>,
}

impl ServerSide {
    pub(crate) fn now(&self, now: Time) -> Time {
        now + self.ahead
    }
}

/// A decision maker, or the place of one.
#[derive(Default)]
struct MakerSide {
    maker: Option<Maker>,
    stopped_until: Time,
    wakes: Time,
    /// It works on some state.
    is_at_work: bool,
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

    /// All are there.
    pub(crate) fn are_whole(&self, now: Time) -> bool {
        let servers = self.servers.iter().all(|side| side.core.is_some());
        servers && self.makers.iter().all(|side| side.maker.is_some()) && self.away_until <= now
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
        let by_policy = weir_policy::create(POLICY).ok().filter(|_| self.rng.random_range(0..4) == 0);
        let side = &mut self.controllers.makers[maker];
        let made = match by_policy {
            Some(policy) => Maker::of_policy(name, policy, settings),
            None => Maker::new(name, seed, settings),
        };
        *side = MakerSide { maker: Some(made), wakes: Time::MAX, ..MakerSide::default() };
        self.maker_acts_at(maker, self.now);
    }

    fn kill_server(&mut self, server: usize) {
        let side = &mut self.controllers.servers[server];
        (side.core, side.asked, side.answer, side.stopped_until) = (None, None, None, Time::ZERO);
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
            4 if !self.controllers.is_one_process() && self.controllers.makers[server].maker.is_some() => {
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

    /// Kinds of [`World::fail_controllers`].
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

    pub(crate) fn store_is_asked(&mut self, server: usize, life: u64) {
        let (now, is_away, is_lost) = (self.now, self.is_store_away(), self.loses_answer());
        let Controllers { servers, ledger, .. } = &mut self.controllers;
        let side = &mut servers[server];
        let Some(request) = side.asked.take().filter(|_| side.life == life) else { return };
        let name = format!("s{server}-{life}");
        let reply = match request {
            _ if is_away => Reply::Failed,
            Request::Report(report) => Reply::Reported(ledger.report(now, &report)),
            Request::Renew => Reply::Renewed(ledger.renew(now, &name)),
            Request::Issue(floor) => {
                let (number, snapshot) = ledger.issue(floor);
                Reply::Issued(number, Box::new(snapshot))
            }
        };
        side.answer = Some(if is_lost { Reply::Failed } else { reply });
        let after = if is_away { self.millis(1, 300) } else { self.delay() };
        self.later(after, Event::StoreAnswers { server, life });
        self.store_tells();
    }

    pub(crate) fn store_answers(&mut self, server: usize, life: u64) {
        let at = self.now;
        let side = &mut self.controllers.servers[server];
        let now = side.now(at);
        let Some(reply) = side.answer.take().filter(|_| side.life == life) else { return };
        if let Some(core) = &mut side.core {
            core.handle_reply(now, reply);
        }
        self.settle_server(server);
    }

    /// Everybody hears what happened at the store.
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
            let at = self.now + self.delay();
            if !self.controllers.makers[maker].is_at_work {
                self.maker_acts_at(maker, at);
            }
        }
    }

    pub(crate) fn store_is_back(&mut self) {
        if !self.is_store_away() {
            self.tell_all_of_store(Notice::Connected);
        }
    }

    pub(crate) fn server_is_told(&mut self, server: usize, life: u64, notice: Notice) {
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

    fn maker_acts_at(&mut self, maker: usize, at: Time) {
        let side = &mut self.controllers.makers[maker];
        if at < side.wakes {
            side.wakes = at;
            self.queue.push(at, Event::MakerActs { maker });
        }
    }

    /// A decision maker does its next step, as its process would.
    pub(crate) fn maker_acts(&mut self, maker: usize) {
        let side = &mut self.controllers.makers[maker];
        if side.wakes > self.now || side.maker.is_none() {
            return;
        }
        side.wakes = Time::MAX;
        let after = if self.is_store_away() {
            self.controllers.makers[maker].is_at_work = false;
            self.millis(20, 500)
        } else {
            let is_lost = self.loses_answer();
            self.maker_steps(maker);
            let is_at_work = &mut self.controllers.makers[maker].is_at_work;
            *is_at_work &= !is_lost;
            if *is_at_work || is_lost { self.millis(1, 20) } else { LOOK_INTERVAL }
        };
        let at = self.now + after;
        self.maker_acts_at(maker, at);
        self.store_tells();
    }

    fn maker_steps(&mut self, maker: usize) {
        let Controllers { makers, ledger, .. } = &mut self.controllers;
        let side = &mut makers[maker];
        let Some(maker) = &mut side.maker else { return };
        if side.is_at_work {
            let epoch = ledger.read().epoch;
            match maker.step() {
                Step::Propose(proposal) => _ = ledger.propose(&proposal),
                Step::Share(tally) => match ledger.share(epoch, maker.name(), &tally) {
                    Some(all) => maker.totals(&all),
                    None => side.is_at_work = false,
                },
                Step::Done => side.is_at_work = false,
            }
        }
        // A state that is over is followed at once by the next one.
        if !side.is_at_work {
            let snapshot = ledger.read();
            let decision = snapshot.decision.as_ref();
            let is_settled = decision.is_some_and(|it| it.settles(snapshot.epoch, Finality::Final));
            if !snapshot.servers.is_empty() && !is_settled {
                maker.begin(snapshot.epoch, &State::of(&snapshot.servers));
                side.is_at_work = true;
            }
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
