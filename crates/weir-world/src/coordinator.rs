//! The coordinator's side: the real machine, and what drives it.

use crate::events::{Call, Caller, Event, Reply};
use crate::settings::Settings;
use crate::world::World;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use weir_core::agent::Pacing;
use weir_core::coordinator::{
    Coordinator, CoordinatorConfig, DeadlineMargin, Joining, Output, Tuning, Wire, first_coflow,
};
use weir_core::ids::FlowNumber;
use weir_core::serving::Conversation;
use weir_model::{CoflowId, Fabric, Span, Time};

/// How long its word holds.
const LEASE: Span = Span::from_millis(1_000);
/// A word may be so long on its way, and a new flow waits a little.
pub(crate) const WORDS_UNDER_WAY: Span = Span::from_millis(300);

/// A coordinator, or the place of one.
pub(crate) struct CoordinatorSide {
    pub(crate) core: Option<Coordinator>,
    /// Which process it is.
    pub(crate) life: u64,
    /// When it was killed last.
    died: Time,
    /// Until when it stands (SIGSTOP).
    pub(crate) stopped_until: Time,
    /// When it acts next.
    wakes: Time,
    /// What its clock is ahead of the world's.
    ahead: Span,
    calls: BTreeMap<u64, Caller>,
    bypass: Span,
}

/// Times of all coordinators.
pub(crate) fn tuning() -> Tuning {
    Tuning { deadline_margin: DeadlineMargin::NONE, ..Tuning::default() }
}

impl CoordinatorSide {
    pub(crate) fn drawn(settings: &Settings, rng: &mut ChaCha8Rng) -> CoordinatorSide {
        // Half of the runs leave what takes less than a few milliseconds to TCP.
        let bypass = if rng.random() { Span::ZERO } else { settings.time_for(4_000_000) };
        CoordinatorSide {
            core: None,
            life: 0,
            died: Time::MAX,
            stopped_until: Time::ZERO,
            wakes: Time::MAX,
            ahead: Span::from_nanos(rng.random_range(0..10_000_000_000)),
            calls: BTreeMap::new(),
            bypass,
        }
    }

    /// Whether an answer that arrives now may be of a process that was killed since.
    pub(crate) fn died_lately(&self, now: Time) -> bool {
        self.died <= now && now.since(self.died) < WORDS_UNDER_WAY
    }

    /// What its clock shows.
    pub(crate) fn now(&self, now: Time) -> Time {
        now + self.ahead
    }
}

impl World {
    /// A process of the coordinator starts; it knows nothing.
    pub(crate) fn start_coordinator(&mut self) {
        self.check_that_all_move();
        let life = self.number();
        let now = self.coordinator.now(self.now);
        let random = self.rng.random();
        let fabric = match self.settings.is_open {
            true => Ok(Fabric::without_hosts()),
            false => Fabric::big_switch(self.settings.hosts, self.settings.link),
        };
        let policy = weir_policy::find(&self.settings.policy);
        let (Ok(fabric), Ok(policy)) = (fabric, policy) else {
            return self.violate(format!("no such hosts, or no policy {}", self.settings.policy));
        };
        let config = CoordinatorConfig {
            fabric,
            joining: self.settings.is_open.then_some(Joining { share: 1.0, ..Joining::default() }),
            lease: LEASE,
            first_coflow: first_coflow(now.nanos() / 1_000_000, random),
            coflow_lease: Span::from_millis(600_000),
            wire: Wire { bytes_per_byte: 1.0, headroom: 1.0 },
            tuning: Tuning { bypass: self.coordinator.bypass, ..tuning() },
        };
        let side = &mut self.coordinator;
        // Events for the process before this one may still be queued: they find that nothing is due.
        (side.life, side.wakes) = (life, Time::MAX);
        side.core = Some(Coordinator::new(config, &policy));
        self.settle_coordinator();
    }

    /// It is killed. Callers that wait for an answer hear that none comes.
    pub(crate) fn kill_coordinator(&mut self) {
        self.coordinator.core = None;
        let life = self.coordinator.life;
        self.jobs.iter_mut().for_each(|job| job.forget_end(life));
        // A process that stood still ends with the kill, and the next one runs at once.
        self.coordinator.stopped_until = Time::ZERO;
        self.coordinator.died = self.now;
        for (_, caller) in std::mem::take(&mut self.coordinator.calls) {
            let delay = self.delay();
            self.later(delay, Event::Answer { caller, answer: None });
        }
        for id in self.sessions.keys().copied().collect::<Vec<_>>() {
            // The agent alone learns of it: there is no coordinator left to lose a session.
            self.cut(id, None, false);
        }
    }

    /// Where the coordinator has been away for longer than its word holds, nothing waits for it any more.
    fn check_that_all_move(&mut self) {
        if self.now.since(self.coordinator.died) < LEASE + WORDS_UNDER_WAY {
            return;
        }
        for (number, host) in self.hosts.iter().enumerate() {
            let Some(agent) = host.agent.as_ref().filter(|_| host.stopped_until + WORDS_UNDER_WAY < self.now)
            else {
                continue;
            };
            // What is written whole has nothing to wait for but its reader.
            let is_whole = |number: &u64| {
                let connection = self.connections.get(number);
                connection
                    .and_then(|connection| connection.talk.as_ref())
                    .is_some_and(Conversation::is_all_written)
            };
            let waits = |flow: FlowNumber| agent.pacing(flow).filter(|pacing| *pacing != Pacing::Unscheduled);
            let waiting = host.flows.iter().filter(|(_, number)| !is_whole(number));
            if let Some((flow, pacing)) = waiting.filter_map(|(flow, _)| Some((flow, waits(*flow)?))).next() {
                return self
                    .violate(format!("host {number}: flow {flow} is {pacing:?}, and no party decides"));
            }
        }
    }

    pub(crate) fn wake_coordinator(&mut self) {
        // An event that an earlier one has made needless finds a later time here.
        if self.coordinator.wakes <= self.now {
            self.coordinator.wakes = Time::MAX;
            self.settle_coordinator();
        }
    }

    /// Lets the coordinator act, and does what it wants done.
    pub(crate) fn settle_coordinator(&mut self) {
        let now = self.coordinator.now(self.now);
        let Some(core) = &mut self.coordinator.core else { return };
        core.handle_timeout(now);
        core.poll_plan(now);
        let outputs: Vec<Output> = std::iter::from_fn(|| core.poll_output()).collect();
        for output in outputs {
            match output {
                Output::Message(session, message) => self.say_downward(session, message),
                Output::Close(session) => self.cut(session, None, false),
                Output::Expired(coflow) => self.expired(coflow.0),
                Output::Unregistered(done) => self.reply(done.token, Reply::Unregistered(done.record)),
                Output::Decided(decided) => self.reply(decided.token, Reply::Decided(decided.reply)),
                // The drivers and receivers of this world make no calls that these answer.
                Output::Offered(_) | Output::Drained(_) => {}
                Output::Located(answer) => self.reply(answer.token, Reply::Located(answer.reply)),
            }
        }
        self.wake_coordinator_in_time();
    }

    fn wake_coordinator_in_time(&mut self) {
        let next = self.coordinator.core.as_ref().and_then(Coordinator::next_timeout);
        let Some(next) = next else { return };
        let ahead = self.coordinator.ahead;
        // The coordinator's clock is ahead of the world's, in which events are queued.
        let next = self.not_at_once(Time::from_nanos(next.nanos().saturating_sub(ahead.nanos())));
        // An earlier event that is queued already settles the coordinator too, and comes here
        // again.
        if next < self.coordinator.wakes {
            self.coordinator.wakes = next;
            self.queue.push(next, Event::CoordinatorWakes);
        }
    }

    /// A driver, a receiver or a stranger calls the coordinator.
    pub(crate) fn call(&mut self, caller: Caller, call: Call) {
        let delay = self.delay();
        self.later(delay, Event::Call { caller, call });
    }

    pub(crate) fn take_call(&mut self, caller: Caller, call: Call) {
        let now = self.coordinator.now(self.now);
        let token = self.number();
        let Some(core) = &mut self.coordinator.core else {
            let delay = self.delay();
            return self.later(delay, Event::Answer { caller, answer: None });
        };
        self.coordinator.calls.insert(token, caller);
        match call {
            Call::Register(request) => {
                let coflow = core.handle_register(now, request).ok().map(|coflow| coflow.0);
                self.reply(token, Reply::Registered(coflow));
                self.may_die_of_a_registration();
            }
            Call::Renew(request) => {
                let renewed = core.handle_renew(now, &request);
                self.reply(token, Reply::Renewed(renewed));
            }
            Call::Unregister(coflow) => core.handle_unregister(now, token, CoflowId(coflow)),
            Call::Locate(request) => core.handle_locate(now, token, request),
            Call::AwaitAdmission(request) => core.handle_await_admission(now, token, &request),
        }
        self.settle_coordinator();
    }

    /// The coordinator answers a call. Its process may be killed before the answer has left.
    fn reply(&mut self, token: u64, reply: Reply) {
        // Each call has one answer: a second one finds no caller.
        let Some(caller) = self.coordinator.calls.remove(&token) else {
            return self.violate(format!("an answer to a call that no client made: {reply:?}"));
        };
        let delay = self.delay();
        let is_lost = !self.is_calm() && self.rng.random_range(0..100) == 0;
        self.report.faults += u64::from(is_lost);
        self.later(delay, Event::Answer { caller, answer: (!is_lost).then_some(reply) });
    }

    pub(crate) fn take_answer(&mut self, caller: Caller, answer: Option<Reply>) {
        match caller {
            Caller::Driver(job) => self.driver_hears(job, answer),
            Caller::Renewal(job) => self.renewal_hears(job, answer),
            Caller::Admission(job) => self.admission_hears(job, answer),
            Caller::Nobody => {
                if let Some(Reply::Registered(Some(coflow))) = answer {
                    self.violate(format!("coflow {coflow} was registered with options that cannot be"));
                }
            }
            Caller::Receiver { get, call } => self.receiver_hears(get, call, answer),
        }
    }
}
