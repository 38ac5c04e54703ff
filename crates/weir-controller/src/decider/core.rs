//! A decision maker's process as a state machine without I/O: requests to the store out, its answers in. Time is an argument.
//!
//! Call `handle_*` with what happened, then [`DeciderCore::poll_request`] until there is none; one is under way at a time. Sleep
//! until [`DeciderCore::next_timeout`], then poll again.

use crate::decision::{Finality, Proposal};
use crate::maker::{Maker, Step};
use crate::records::State;
use crate::store::{Ledger, RETRY, Snapshot};
use weir_model::{Span, Time};
use weir_policy::order::tally::Tally;

/// The store is looked at this often even if nothing is heard from it.
pub const LOOK_INTERVAL: Span = Span::from_millis(1_000);

/// What the store is asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Asks for what there is: [`crate::store::Store::read`].
    Read,
    /// Proposes a decision: [`crate::store::Store::propose`].
    Propose(Proposal),
    /// [`crate::store::Store::share`], of an epoch.
    Share(u64, Tally),
}

impl Request {
    /// What a store without a process of its own answers to a decision maker of that name.
    pub fn answer(&self, ledger: &mut Ledger, maker: &str) -> Reply {
        match self {
            Request::Read => Reply::Read(Box::new(ledger.read())),
            Request::Propose(proposal) => Reply::Proposed(ledger.propose(proposal)),
            Request::Share(epoch, tally) => Reply::Shared(ledger.share(*epoch, maker, tally)),
        }
    }
}

/// What the store answered.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// Documents of all servers, and the last decision.
    Read(Box<Snapshot>),
    /// The number of a decision, if the proposal became one.
    Proposed(Option<u64>),
    /// The tallies of all; none if the epoch is over.
    Shared(Option<Vec<Tally>>),
    /// No answer; the store may have done what was asked for.
    Failed,
}

/// A decision maker and what it does next.
pub struct DeciderCore {
    maker: Maker,
    /// The epoch of the state that it works on.
    at_work: Option<u64>,
    /// When it looks for a state.
    look_at: Time,
    retry_at: Time,
    retry_pause: Span,
    under_way: bool,
}

impl DeciderCore {
    /// One that looks at the store at once.
    pub fn new(now: Time, maker: Maker) -> DeciderCore {
        DeciderCore {
            maker,
            at_work: None,
            look_at: now,
            retry_at: now,
            retry_pause: RETRY.0,
            under_way: false,
        }
    }

    /// Name of the decision maker, unique among all.
    pub fn name(&self) -> &str {
        self.maker.name()
    }

    /// Something happened at the store.
    pub fn handle_notice(&mut self, now: Time) {
        self.look_at = self.look_at.min(now);
    }

    /// What the store is to be asked for, if anything. This is where rounds of simulation are run.
    pub fn poll_request(&mut self, now: Time) -> Option<Request> {
        if self.under_way || now < self.retry_at {
            return None;
        }
        let request = self.work().or_else(|| (self.look_at <= now).then_some(Request::Read));
        self.under_way = request.is_some();
        request
    }

    /// The next step on the state under way. Once that is decided there may be another one.
    fn work(&mut self) -> Option<Request> {
        let epoch = self.at_work?;
        match self.maker.step() {
            Step::Propose(proposal) => Some(Request::Propose(proposal)),
            Step::Share(tally) => Some(Request::Share(epoch, tally)),
            Step::Done => {
                self.leave();
                None
            }
        }
    }

    /// Looks for the next state.
    fn leave(&mut self) {
        (self.at_work, self.look_at) = (None, Time::ZERO);
    }

    /// The answer to the request under way.
    pub fn handle_reply(&mut self, now: Time, reply: Reply) {
        self.under_way = false;
        // The store may have done what it was asked for, or forgotten all: what holds is read anew.
        if reply == Reply::Failed {
            self.leave();
            self.retry_at = now + self.retry_pause;
            self.retry_pause = Span::from_nanos((self.retry_pause.nanos() * 2).min(RETRY.1.nanos()));
            return;
        }
        self.retry_pause = RETRY.0;
        match reply {
            Reply::Read(snapshot) => self.take_up(now, &snapshot),
            Reply::Shared(Some(tallies)) => self.maker.totals(&tallies),
            Reply::Shared(None) => self.leave(),
            Reply::Proposed(_) | Reply::Failed => {}
        }
    }

    fn take_up(&mut self, now: Time, snapshot: &Snapshot) {
        let Snapshot { epoch, servers, decision } = snapshot;
        let is_settled = decision.as_ref().is_some_and(|it| it.settles(*epoch, Finality::Final));
        // Also without a notice: one may have been missed while the store was away.
        self.look_at = now + LOOK_INTERVAL;
        if !servers.is_empty() && !is_settled {
            self.maker.begin(*epoch, &State::of(servers));
            self.at_work = Some(*epoch);
        }
    }

    /// When there is something to do although nothing happens.
    pub fn next_timeout(&self) -> Option<Time> {
        let at = if self.at_work.is_some() { Time::ZERO } else { self.look_at };
        (!self.under_way).then_some(at.max(self.retry_at))
    }
}
