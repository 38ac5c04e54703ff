//! What agents listed that are gone for good.
//!
//! # Problem
//! An agent that loses its session is back a moment later as a rule, and lists its blocks again. So what it listed stays
//! where it is, and is named to no receiver meanwhile. Of one that does not come back it would stay until its coflows end, and
//! one that lists as much as it can and goes would have it stay for ever.
//!
//! # Approach
//! [`PATIENCE`] after a session was lost all blocks are looked at, a few with every step of time, so that no call waits for
//! it; those whose session is over go.

use super::state::Coordinator;
use std::ops::Bound;
use weir_model::{CoflowId, Span, Time};

/// So long after a session was lost its blocks may still be listed again.
pub(super) const PATIENCE: Span = Span::from_millis(60_000);
/// Blocks that are looked at in one step, and coflows without blocks.
pub(super) const AT_ONCE: usize = 4_096;

/// How far a look at all blocks has come.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// When the next one begins, if a session was lost.
    due: Option<Time>,
    /// The block that was looked at last, while one is under way.
    at: Option<(CoflowId, Box<str>)>,
}

impl Coordinator {
    /// A session was lost: what its agent listed may stay though it never comes back.
    pub(super) fn sweep_later(&mut self, now: Time) {
        self.sweep.due.get_or_insert(now + PATIENCE);
    }

    /// The next step of a sweep, if one is due or under way.
    pub(super) fn sweep(&mut self, now: Time) {
        if self.sweep.at.is_none() && self.sweep.due.is_some_and(|due| due <= now) {
            self.sweep = Sweep { due: None, at: Some((CoflowId(0), Box::default())) };
        }
        let Some((mut coflow, mut after)) = self.sweep.at.take() else { return };
        let mut left = AT_ONCE;
        while let Some((&id, blocks)) = self.directory.range_mut(coflow..).next() {
            let from = if id == coflow { after } else { Box::default() };
            // A coflow without blocks counts, too: there may be as many of them as one agent named before it took all back.
            left = left.saturating_sub(1);
            let looked: Vec<Box<str>> = blocks
                // Also from the beginning: no block has the empty name.
                .range::<str, _>((Bound::Excluded(&*from), Bound::Unbounded))
                .take(left)
                .map(|(name, _)| name.clone())
                .collect();
            for name in &looked {
                let Some(holders) = blocks.get_mut(name) else { continue };
                holders.retain(|held| self.agents.contains_key(&held.session));
                if holders.is_empty() {
                    blocks.remove(name);
                }
            }
            if looked.len() == left {
                self.sweep.at = Some((id, looked.into_iter().next_back().unwrap_or(from)));
                return;
            }
            left = left.saturating_sub(looked.len());
            if blocks.is_empty() {
                self.directory.remove(&id);
            }
            let Some(next) = id.0.checked_add(1).map(CoflowId) else { return };
            (coflow, after) = (next, Box::default());
        }
    }
}
