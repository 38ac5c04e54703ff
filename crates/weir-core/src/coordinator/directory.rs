//! Coflows and blocks: registration, location, the end of a coflow.

use super::state::{CoflowEntry, Coordinator, SessionId};
use crate::ids::{BlockKey, HostNumber};
use crate::planted::{Defect, is_planted};
use crate::portions::Portion;
use std::collections::BTreeMap;
use std::ops::Bound;
use weir_model::{CoflowId, Span, Time};
use weir_proto::data::Identity;
use weir_proto::{limits, v1};

/// Blocks that one list looks at: those of agents whose session ended are passed over.
const MAX_BLOCKS_LOOKED_AT: usize = 10 * limits::MAX_BLOCKS_LISTED;

/// Why a coflow was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// The coordinator holds as many coflows as it may.
    #[error("{max} coflows are live already; unregister some", max = limits::MAX_LIVE_COFLOWS)]
    TooMany,
    /// A value is outside its range.
    #[error("{0}")]
    Invalid(String),
}

/// The blocks of a coflow, and who holds each. Entries of agents whose session ended stay, and are named to no receiver.
pub(super) type Blocks = BTreeMap<Box<str>, Vec<Held>>;

/// What an agent holds under a block's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) session: SessionId,
    pub(super) host: HostNumber,
    pub(super) size: u64,
    pub(super) identity: Identity,
}

/// What a driver, or an agent that kept it for one, may say of a coflow.
pub(super) fn check(options: &v1::CoflowOptions) -> Result<(), RegisterError> {
    let within = |what: &str, is: u64, most: u64| {
        let error =
            || RegisterError::Invalid(format!("{what} of a coflow is {is}; at most {most} is allowed"));
        if is <= most { Ok(()) } else { Err(error()) }
    };
    within("the length of the name in bytes", options.name.len() as u64, limits::MAX_NAME_BYTES as u64)?;
    within("the length of the tenant in bytes", options.tenant.len() as u64, limits::MAX_NAME_BYTES as u64)?;
    within("the number of parents", options.parents.len() as u64, limits::MAX_COFLOWS_PER_CALL as u64)?;
    within("the deadline in milliseconds", options.deadline_ms, limits::MAX_DEADLINE_MS)?;
    within("the lease in milliseconds", options.lease_ms, limits::MAX_COFLOW_LEASE_MS)?;
    if options.weight < 0.0 || !options.weight.is_finite() {
        return Err(RegisterError::Invalid(
            "the weight of a coflow must be a finite number above 0".to_owned(),
        ));
    }
    Ok(())
}

/// Why a coflow was not sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// It has ended, or its id was never given.
    #[error("coflow {0} is not registered")]
    Unknown(CoflowId),
    /// Its id is of an earlier process of this coordinator, and no agent has told of it yet.
    #[error("coflow {0} is of an earlier coordinator process, and no agent has told of it yet")]
    NotYetKnown(CoflowId),
}

/// The reply to a `Locate` that may have waited.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// As given with the request.
    pub token: u64,
    /// Reply to the call with this token.
    pub reply: v1::LocateReply,
}

impl Coordinator {
    /// Declares a coflow and tells the agents of it.
    ///
    /// # Errors
    /// An option is out of its range, or as many coflows are live as may be.
    pub fn handle_register(
        &mut self,
        now: Time,
        request: v1::RegisterRequest,
    ) -> Result<CoflowId, RegisterError> {
        // A call that its driver repeated, as after an answer that was lost, is of the coflow of
        // the first one.
        if let Some(&coflow) =
            self.request_keys.get(&request.request_key).filter(|_| request.request_key != 0)
        {
            return Ok(coflow);
        }
        let options = request.options.unwrap_or_default();
        check(&options)?;
        // Agents may keep notes of shorter ones, that earlier versions took: those are not checked for it.
        if (1..limits::MIN_COFLOW_LEASE_MS).contains(&options.lease_ms) {
            let (is, least) = (options.lease_ms, limits::MIN_COFLOW_LEASE_MS);
            let error = format!(
                "the lease in milliseconds of a coflow is {is}; at least {least} can be kept by renewals"
            );
            return Err(RegisterError::Invalid(error));
        }
        if self.coflows.len() >= limits::MAX_LIVE_COFLOWS {
            return Err(RegisterError::TooMany);
        }
        // An agent may have named an id before it was given. Such an id counts as ended, and no
        // coflow gets it.
        while self.ended.contains(self.next_coflow) {
            self.next_coflow.0 = self.next_coflow.0.saturating_add(1);
        }
        let coflow = self.next_coflow;
        self.next_coflow.0 = self.next_coflow.0.saturating_add(1);
        let request_key = request.request_key;
        if request_key != 0 {
            self.request_keys.insert(request_key, coflow);
        }
        let entry = CoflowEntry { options, request_key, registered: now, ..CoflowEntry::default() };
        self.coflows.insert(coflow, entry);
        self.inherit(coflow);
        self.choose_witnesses(coflow);
        self.renew(now, coflow);
        Ok(coflow)
    }

    /// No more flows will join.
    ///
    /// # Errors
    /// The coflow is not registered, or is of an earlier coordinator process and no agent has told of it yet.
    pub fn handle_seal(&mut self, now: Time, coflow: CoflowId) -> Result<(), SealError> {
        let unknown = self.unknown(coflow);
        let entry = self.coflows.get_mut(&coflow).ok_or(unknown)?;
        entry.sealed = true;
        self.stop_gathering(now, coflow);
        self.tell_note(coflow);
        self.renew(now, coflow);
        self.check_complete(now, coflow);
        Ok(())
    }

    /// Why a coflow that is not known is not.
    pub(super) fn unknown(&self, coflow: CoflowId) -> SealError {
        let earlier = !self.is_own(coflow) && !self.has_ended(coflow);
        if earlier { SealError::NotYetKnown(coflow) } else { SealError::Unknown(coflow) }
    }

    /// No receiver can ask for the blocks of a coflow any more.
    pub(super) fn forget_blocks(&mut self, coflow: CoflowId) {
        for held in self.directory.remove(&coflow).into_iter().flat_map(BTreeMap::into_values).flatten() {
            if let Some(agent) = self.agents.get_mut(&held.session) {
                agent.blocks = agent.blocks.saturating_sub(1);
            }
        }
    }

    /// Whether a receiver waits for a block of a coflow.
    pub(super) fn is_waited_for(&self, coflow: CoflowId) -> bool {
        let first = BlockKey::first_of(coflow);
        self.waiting.things_from(&first).next().is_some_and(|key| key.coflow == coflow)
    }

    /// Whether an agent with a session holds a block.
    fn is_held(&self, key: &BlockKey) -> bool {
        let holders = self.directory.get(&key.coflow).and_then(|blocks| blocks.get(key.name.as_str()));
        holders.is_some_and(|holders| holders.iter().any(|held| self.agents.contains_key(&held.session)))
    }

    /// The blocks of a coflow that an agent with a session holds, a page of them.
    pub fn list_blocks(&self, request: &v1::ListBlocksRequest) -> v1::ListBlocksReply {
        let coflow = CoflowId(request.coflow);
        let ended = self.has_ended(coflow) || self.was_never_given(coflow);
        let mut reply = v1::ListBlocksReply { ended, ..v1::ListBlocksReply::default() };
        let Some(blocks) = self.directory.get(&coflow) else { return reply };
        let after =
            if request.after.is_empty() { Bound::Unbounded } else { Bound::Excluded(&*request.after) };
        let mut room = Portion::within(limits::MAX_BLOCKS_LISTED, limits::MAX_PORTION_BYTES);
        let mut last = "";
        for (looked, (name, held)) in blocks.range::<str, _>((after, Bound::Unbounded)).enumerate() {
            let listed = self.holders_listed(name, held);
            let fits = listed.as_ref().is_none_or(|block| room.take(block));
            if !fits || looked >= MAX_BLOCKS_LOOKED_AT {
                reply.more_after = last.to_owned();
                break;
            }
            reply.blocks.extend(listed);
            last = name;
        }
        reply
    }

    fn holders_listed(&self, name: &str, held: &[Held]) -> Option<v1::BlockHolders> {
        let present = held.iter().filter_map(|held| Some((held, self.agents.get(&held.session)?)));
        let mut holders: Vec<_> = present.collect();
        holders.sort_by_key(|(held, _)| held.host);
        let hidden = holders.len().saturating_sub(limits::MAX_HOLDERS_LISTED);
        holders.truncate(limits::MAX_HOLDERS_LISTED);
        let listed = holders.into_iter().map(|(held, agent)| v1::Holder {
            host: held.host.0,
            data_address: agent.data_address.clone(),
            size: held.size,
            identity: held.identity.to_wire(),
            host_name: self.network.name(held.host),
        });
        let holders: Vec<_> = listed.collect();
        (!holders.is_empty()).then(|| v1::BlockHolders {
            block: name.to_owned(),
            holders,
            hidden_holders: hidden as u64,
        })
    }

    /// Where a block is; answered through [`Coordinator::poll_output`] now or when it is put.
    pub fn handle_locate(&mut self, now: Time, token: u64, request: v1::LocateRequest) {
        let (coflow, host) = (CoflowId(request.coflow), HostNumber(request.host));
        let key = BlockKey { coflow, name: request.block };
        let wait = Span::from_millis(request.wait_ms.min(limits::MAX_LOCATE_WAIT_MS));
        let full = self.waiting.len() >= limits::MAX_WAITING_LOCATES;
        if full {
            self.count("locates_not_waited_for");
        }
        let stopped = self.coflows.get(&coflow).is_some_and(|coflow| !coflow.stopped().is_empty());
        // An id that was never given never gets blocks: a receiver would wait for one in vain.
        let known = stopped || self.is_held(&key) || self.has_ended(coflow) || self.was_never_given(coflow);
        if known || full || wait == Span::ZERO {
            self.answer(now, &key, [(token, host)]);
        } else {
            self.waiting.add(key, token, now + wait, host);
        }
    }

    /// The caller no longer waits for the answer to a call.
    pub fn handle_given_up(&mut self, token: u64) {
        // A token is of one call, of whichever kind: where it is not known nothing happens.
        self.waiting.remove(token);
        self.awaited.waiting.remove(token);
        self.offers.give_up(token);
        self.drains.give_up(token);
    }

    /// The next reply to a `Locate`.
    pub(super) fn poll_answer(&mut self) -> Option<Answer> {
        self.answers.pop_front()
    }

    pub(super) fn answer_waiting(&mut self, now: Time, key: &BlockKey) {
        let waiting = self.waiting.take(key);
        if !waiting.is_empty() && !is_planted(Defect::AnswerLost) {
            self.answer(now, key, waiting);
        }
    }

    /// Answers those whose time limit has passed.
    pub(super) fn expire_waiting(&mut self, now: Time) {
        while let Some((token, _)) = self.waiting.take_due(now) {
            self.answers.push_back(Answer { token, reply: v1::LocateReply::default() });
        }
    }

    /// Answers all who wait for any block of a coflow.
    pub(super) fn answer_all_waiting(&mut self, now: Time, coflow: CoflowId) {
        let first = BlockKey::first_of(coflow);
        let waited = self.waiting.things_from(&first).take_while(|key| key.coflow == coflow);
        for key in waited.cloned().collect::<Vec<_>>() {
            self.answer_waiting(now, &key);
        }
    }

    /// Answers calls, by token and host of the receiver, for a block.
    fn answer(&mut self, now: Time, key: &BlockKey, calls: impl IntoIterator<Item = (u64, HostNumber)>) {
        self.advance(now);
        let ended = self.has_ended(key.coflow) || self.was_never_given(key.coflow);
        let refused = self.coflows.get(&key.coflow).map(CoflowEntry::stopped).unwrap_or_default();
        for (token, receiver) in calls {
            let holders = if refused.is_empty() { self.holders_for(now, key, receiver) } else { Vec::new() };
            let reply = v1::LocateReply { holders, ended, refused: refused.clone() };
            let token = token.saturating_sub(u64::from(is_planted(Defect::WrongCaller)));
            self.answers.push_back(Answer { token, reply });
        }
    }
}
