//! From which of its holders a receiver should take a block.
//!
//! # Problem
//! A block may lie on several hosts: it was put at more than one, as a broadcast or a replica is. The receiver
//! connects to the first holder it is told of.
//!
//! # Approach
//! The holder comes first from which the block would be there soonest. On every way the block has to pass the
//! receiver's downlink, so what differs is how long the holder's uplink is busy with what it has to send
//! already. The receiver's own host needs no link at all.
//!
//! # Terminology
//! A holder owes what its live flows have left, and what receivers that were told of it have not asked for yet:
//! without that, all receivers of a broadcast that ask at once would be sent to the same holder.
//!
//! # Pseudo-code
//! ```text
//! order holders of block b for receiver r by
//!     1. whether the holder is r
//!     2. (bytes it owes) / (capacity of its uplink now)
//!     3. bytes of live flows from it to r
//!     4. host
//! the first of them owes size(b) to r from now on, until r asks it for b, or PROMISE_LIMIT has passed
//! ```
//!
//! # Departures
//! Varys, section 6, lets its master choose among the sources of a block and does not say how; this rule is
//! ours. It counts bytes and no priorities: a holder whose bytes are of coflows that come later may be sooner.

use super::directory::Held;
use super::state::{Coordinator, SessionId};
use crate::ids::{BlockKey, HostNumber};
use std::collections::BTreeMap;
use weir_model::{CoflowId, Span, Time};
use weir_proto::{limits, v1};

/// How long a receiver that was told of a holder may take to ask it.
const PROMISE_LIMIT: Span = Span::from_millis(1000);

/// What receivers that were told of a holder will ask it for.
#[derive(Debug, Default)]
pub(super) struct Promises(BTreeMap<Promised, Promise>);

/// Host of the receiver, and the block that it will ask for.
type Promised = (HostNumber, BlockKey);

#[derive(Debug)]
struct Promise {
    holder: HostNumber,
    bytes: u64,
    until: Time,
}

impl Promises {
    fn expire(&mut self, now: Time) {
        self.0.retain(|_, promise| promise.until > now);
    }

    fn make(&mut self, promised: Promised, holder: HostNumber, bytes: u64, now: Time) {
        if self.0.len() < limits::MAX_PROMISED_BLOCKS {
            self.0.insert(promised, Promise { holder, bytes, until: now + PROMISE_LIMIT });
        }
    }

    /// The receiver asked for the block, wherever.
    pub(super) fn keep(&mut self, receiver: HostNumber, coflow: CoflowId, block: &str) {
        if !self.0.is_empty() {
            self.0.remove(&(receiver, BlockKey { coflow, name: block.to_owned() }));
        }
    }

    /// Bytes that a holder will be asked for by others than this receiver for this block.
    fn owed_by(&self, holder: HostNumber, except: &Promised) -> u64 {
        let of_holder = self.0.iter().filter(|(key, promise)| promise.holder == holder && *key != except);
        of_holder.map(|(_, promise)| promise.bytes).sum()
    }
}

impl Coordinator {
    /// Agents that hold a block, the best for this receiver first.
    pub(super) fn holders_for(&mut self, now: Time, key: &BlockKey, receiver: HostNumber) -> Vec<v1::Holder> {
        let blocks = self.directory.get(&key.coflow);
        let known = blocks.and_then(|blocks| blocks.get(key.name.as_str())).into_iter().flatten();
        let mut holders: Vec<(Held, v1::Holder)> = known
            .filter_map(|&held| {
                let holder = v1::Holder {
                    host: held.host.0,
                    data_address: self.agents.get(&held.session)?.data_address.clone(),
                    size: held.size,
                    identity: held.identity.to_wire(),
                    ..v1::Holder::default()
                };
                Some((held, holder))
            })
            .collect();
        // With a single holder there is nothing to choose, and no promise to count.
        if holders.len() > 1 {
            self.promises.expire(now);
            let promised = (receiver, key.clone());
            holders.sort_by_cached_key(|(held, _)| self.rank(held.session, held.host, &promised));
            let best = holders[0].0;
            // From the receiver's own host the block crosses no link, so that it is owed nothing.
            if best.host != receiver {
                self.promises.make(promised, best.host, best.size, now);
            }
        }
        holders.into_iter().map(|(_, holder)| holder).collect()
    }

    /// The smaller, the sooner a block of this holder would be at the receiver.
    fn rank(
        &self,
        session: SessionId,
        holder: HostNumber,
        promised: &Promised,
    ) -> (bool, bool, Span, u64, HostNumber) {
        let receiver = promised.0;
        let (mut owed, mut between) = (self.promises.owed_by(holder, promised) as f64, 0.0);
        for flow in self.agents.get(&session).into_iter().flat_map(|agent| &agent.flows) {
            let Some(flow) = self.flows.get(flow) else { continue };
            let left = flow.at.map_or(flow.left() as f64, |at| self.table.remaining(at));
            owed += left;
            between += if flow.destination == receiver { left } else { 0.0 };
        }
        let uplink = self.network.uplink(holder);
        // A holder outside the fabric has no known link, and counts as free.
        let rate = uplink.map_or(f64::INFINITY, |link| self.network.left().capacity(link).bytes_per_sec());
        let draining = self.is_draining(session);
        (holder != receiver, draining, Span::from_secs_ceil(owed / rate), between as u64, holder)
    }
}
