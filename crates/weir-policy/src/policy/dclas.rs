//! `dclas-strict`, `dclas` and `clas`: least attained service first, of whole coflows.

use super::tiered::{TierList, TierOrder, Tiered};
use super::{Claims, Parameter, ParameterKind, Policy, PolicyInfo, Settings};
use crate::local;
use crate::order::attained::{QueueSettings, Queues};
use crate::share::{Residual, Tiers, Weigh};
use crate::{CoflowTable, Plan, Slot};
use weir_model::{Fabric, LinkId, Time};

const AALO: &str =
    "Chowdhury, Stoica, Efficient Coflow Scheduling Without Prior Knowledge, SIGCOMM 2015, section 4";

const QUEUES: Parameter = Parameter {
    name: "queues",
    kind: ParameterKind::Count,
    default: "10",
    about: "number of queues, K; 10 in the released Aalo",
};
const EXPONENT: Parameter = Parameter {
    name: "exponent",
    kind: ParameterKind::Factor,
    default: "10",
    about: "factor between thresholds, E; 10 in the released Aalo",
};
const FIRST: Parameter = Parameter {
    name: "first",
    kind: ParameterKind::Size,
    default: "10MB",
    about: "bytes sent at which a coflow leaves the first queue, A; 10 MB in the released Aalo",
};
const SYNC: Parameter = Parameter {
    name: super::settings::SYNC,
    kind: ParameterKind::Time,
    default: "0",
    about: "how often senders hear of what a coflow has sent in all; 0: at once; the paper syncs every 10 ms. On hosts: 1ms to 1s, and 0 leaves it to --sync-interval",
};
/// Queues so narrow that coflows in one have got nearly the same: 145 from 10 MB to 10 TB.
const NARROW: Parameter = Parameter {
    default: "1.1",
    about: "factor between thresholds; so near 1 that coflows of one queue have got nearly the same",
    ..EXPONENT
};
const MANY: Parameter =
    Parameter { default: "160", about: "number of queues; up to 10 TB at a factor of 1.1", ..QUEUES };

pub(super) const WEIGHTED: PolicyInfo = PolicyInfo {
    name: "dclas",
    summary: "discretized least attained service of coflows, queues share links by weight; needs no sizes",
    paper: AALO,
    claims: Claims { work_conserving: true, starvation_free: false },
    between_sites: false,
    local: Some(|queues| Box::new(local::Weighted::new(queues))),
    parameters: &[QUEUES, EXPONENT, FIRST, SYNC],
    make: |from| Box::new(Weighted::new(from.queues())),
};

pub(super) const STRICT: PolicyInfo = PolicyInfo {
    name: "dclas-strict",
    summary: "discretized least attained service of coflows, queue before queue; needs no sizes",
    paper: AALO,
    claims: Claims { work_conserving: true, starvation_free: false },
    between_sites: false,
    local: Some(|queues| Box::new(local::Strict::new(queues))),
    parameters: &[QUEUES, EXPONENT, FIRST, SYNC],
    make: |from| by_queues(from, Equals::InTurn),
};

pub(super) const CONTINUOUS: PolicyInfo = PolicyInfo {
    name: "clas",
    summary: "least attained service of coflows first, equals side by side; needs no sizes",
    paper: AALO,
    claims: Claims { work_conserving: true, starvation_free: false },
    between_sites: false,
    local: None,
    parameters: &[MANY, NARROW, FIRST, SYNC],
    make: |from| by_queues(from, Equals::SideBySide),
};

fn by_queues(from: &Settings, equals: Equals) -> Box<dyn Policy> {
    Box::new(Tiered::new(ByQueue { queues: Queues::new(from.queues()), equals }, Weigh::Equally))
}

/// All live coflows by (queue, place, id): a job's coflows keep the job's place.
fn by_queue(queues: &Queues, view: &CoflowTable) -> Vec<Slot> {
    let mut sorted = view.slots().to_vec();
    if view.has_related_coflows() {
        sorted.sort_by_key(|&slot| (view.coflow(slot).place(), view.coflow(slot).id()));
    }
    // A stable sort: within a queue the order by place stays.
    sorted.sort_by_key(|&slot| queues.queue(slot));
    sorted
}

/// Coflows of one queue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Equals {
    /// First come, first served.
    InTurn,
    /// All coflows of the queue share.
    SideBySide,
}

/// Tiers by queue, the first queue first.
struct ByQueue {
    queues: Queues,
    equals: Equals,
}

impl TierOrder for ByQueue {
    fn arrange(&mut self, now: Time, view: &CoflowTable, tiers: &mut TierList) {
        self.queues.update(now, view);
        let together = |&a: &Slot, &b: &Slot| {
            self.equals == Equals::SideBySide && self.queues.queue(a) == self.queues.queue(b)
        };
        for tier in by_queue(&self.queues, view).chunk_by(together) {
            tier.iter().for_each(|&slot| tiers.push(slot));
            tiers.end_tier();
        }
    }

    fn next_change(&self, now: Time, view: &CoflowTable) -> Option<Time> {
        self.queues.next_move(now, view)
    }

    fn queue(&self, slot: Slot) -> Option<u32> {
        // Senders serve a queue's coflows in turn and cannot let them share, so they are told of no queue where coflows do.
        (self.equals == Equals::InTurn).then(|| self.queues.queue(slot))
    }
}

/// Queues that share every link by weight: the first of K has K, the last 1, of those with flows on it. What a
/// queue cannot use goes to all, first queue first.
struct Weighted {
    queues: Queues,
    residual: Residual,
    tiers: Tiers,
    weights: Vec<f64>,
    left: Vec<f64>,
    part: Vec<f64>,
}

impl Weighted {
    fn new(settings: QueueSettings) -> Weighted {
        Weighted {
            queues: Queues::new(settings),
            residual: Residual::default(),
            tiers: Tiers::new(Weigh::Equally),
            weights: Vec::new(),
            left: Vec::new(),
            part: Vec::new(),
        }
    }

    fn weight(&self, queue: u32) -> f64 {
        f64::from(self.queues.count() - queue)
    }

    /// Sums the weights of queues with flows, per link.
    fn sum_weights(&mut self, view: &CoflowTable, queues: &[&[Slot]], links: usize) {
        self.weights.clear();
        self.weights.resize(links, 0.0);
        let mut last = vec![u32::MAX; links];
        for slot in queues.iter().copied().flatten() {
            let queue = self.queues.queue(*slot);
            for link in view.coflow(*slot).links().iter().map(|link| link.index()) {
                // Coflows come sorted by queue, so that a queue is counted once per link, at its first coflow there.
                if std::mem::replace(&mut last[link], queue) != queue {
                    self.weights[link] += f64::from(self.queues.count() - queue);
                }
            }
        }
    }
}

impl Policy for Weighted {
    fn plan(&mut self, now: Time, fabric: &Fabric, view: &CoflowTable, plan: &mut Plan) {
        plan.clear();
        self.queues.update(now, view);
        let sorted = by_queue(&self.queues, view);
        let queues: Vec<&[Slot]> =
            sorted.chunk_by(|&a, &b| self.queues.queue(a) == self.queues.queue(b)).collect();
        self.sum_weights(view, &queues, fabric.links().len());
        self.left.clear();
        self.left.extend(fabric.links().iter().map(|link| link.capacity.bytes_per_sec()));
        for queue in queues {
            let weight = self.weight(self.queues.queue(queue[0]));
            self.part.clear();
            let links = fabric.links().iter().zip(&self.weights);
            self.part
                // `min`: a link on which no queue has flows has a sum of 0, and the quotient is infinite.
                .extend(links.map(|(link, sum)| link.capacity.bytes_per_sec() * (weight / sum).min(1.0)));
            self.residual.reset_to(fabric, &self.part);
            // A tier per coflow: within a queue, coflows are served in turn, first come, first
            // served (Aalo, section 4.2).
            for coflow in queue {
                self.tiers.take(view, 0, std::slice::from_ref(coflow), &mut self.residual);
            }
            for ((link, part), left) in (0u32..).zip(&self.part).zip(&mut self.left) {
                // Only what was used of a part is gone: the rest of it is for the second round.
                *left = (*left - (part - self.residual.left(LinkId(link)))).max(0.0);
            }
        }
        self.residual.reset_to(fabric, &self.left);
        for coflow in &sorted {
            self.tiers.take(view, 1, std::slice::from_ref(coflow), &mut self.residual);
        }
        self.tiers.finish(view, plan);
        plan.queues.extend(sorted.iter().map(|&slot| (slot, self.queues.queue(slot))));
    }

    fn next_wakeup(&self, now: Time, view: &CoflowTable) -> Option<Time> {
        self.queues.next_move(now, view)
    }
}
