//! Who asks for the status: all that wait get one snapshot, made after they asked.
//!
//! A snapshot of many coflows takes a while, in which the coordinator plans for no flow. So the next one is made only after many times
//! as long as the last one took: a caller that asks for the status in a loop gets it at the pace of the coordinator.

use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::oneshot;
use weir_model::{CoflowId, Span, Time};
use weir_proto::v1;

/// Between two snapshots so many times as long passes as one takes, with which its answers are encoded too.
const PAUSE_PER_SNAPSHOT: u64 = 20;

/// Calls that wait for a snapshot.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    /// With the coflow that each asks for; 0: for everything.
    asking: Vec<(CoflowId, oneshot::Sender<v1::StatusReply>)>,
    /// The next one is made no sooner.
    not_before: Time,
}

impl Snapshots {
    pub(super) fn ask(&mut self, coflow: CoflowId, reply: oneshot::Sender<v1::StatusReply>) {
        // Callers that gave up would otherwise have the list grow until the next snapshot, and be a reason to make one.
        self.asking.retain(|(_, reply)| !reply.is_closed());
        self.asking.push((coflow, reply));
    }

    /// What is to be in the next one.
    pub(super) fn asked(&self) -> BTreeSet<CoflowId> {
        self.asking.iter().map(|(coflow, _)| *coflow).collect()
    }

    /// When the next one is to be made, if a caller waits for one.
    pub(super) fn next_due(&self) -> Option<Time> {
        (!self.asking.is_empty()).then_some(self.not_before)
    }

    /// Answers all with what was made until `now`, in so much time.
    pub(super) fn answer(&mut self, made: &BTreeMap<CoflowId, v1::StatusReply>, now: Time, taken: Span) {
        self.not_before = now + Span::from_nanos(taken.nanos().saturating_mul(PAUSE_PER_SNAPSHOT));
        for (coflow, reply) in self.asking.drain(..) {
            if let Some(snapshot) = made.get(&coflow) {
                let _ = reply.send(snapshot.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_wait_share_a_snapshot_and_the_next_waits_for_long() {
        let mut snapshots = Snapshots::default();
        assert_eq!(snapshots.next_due(), None, "nobody asked");
        let (mut replies, mut answers): (Vec<_>, Vec<_>) = (0..3).map(|_| oneshot::channel()).unzip();
        replies.drain(..).for_each(|reply| snapshots.ask(CoflowId(0), reply));
        let now = Time::from_millis(1_000);
        assert!(snapshots.next_due().unwrap() <= now);
        let snapshot = v1::StatusReply { epoch: 7, ..v1::StatusReply::default() };
        snapshots.answer(&BTreeMap::from([(CoflowId(0), snapshot)]), now, Span::from_millis(10));
        assert!(answers.iter_mut().all(|answer| answer.try_recv().unwrap().epoch == 7));
        let (reply, gone) = oneshot::channel();
        snapshots.ask(CoflowId(0), reply);
        assert_eq!(snapshots.next_due(), Some(Time::from_millis(1_200)));
        // A caller that gave up is not answered, and is no reason to make a snapshot.
        drop(gone);
        let (reply, _waits) = oneshot::channel();
        snapshots.ask(CoflowId(5), reply);
        assert_eq!(snapshots.asked(), BTreeSet::from([CoflowId(5)]));
    }
}
