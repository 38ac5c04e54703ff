//! How a coflow stands to the others of its job.

use crate::{CoflowId, JobId, Span, Time};

/// What a coflow waits for, what it comes behind, and what waits for it. By default nothing.
///
/// Two relations of stages are told apart. A stage that *starts after* another (`after`) has no flows before the
/// other's coflow is complete. A stage that the other only *finishes before* (`ancestors`), as in a pipeline, works
/// on what has come so far: its coflow may be live beside the other's, and should then not be served before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dependencies {
    /// Its job. A coflow without one is a job of its own, with the coflow's number.
    pub job: Option<JobId>,
    /// Coflows that must be complete before its stage begins. One that is not part of the run is not waited for.
    pub after: Vec<CoflowId>,
    /// How long its stage computes, once begun, before the coflow's flows may start.
    pub compute: Span,
    /// Coflows that it descends from, not only its parents, and that may be live when it is.
    pub ancestors: Vec<CoflowId>,
    /// What follows once it is complete.
    pub tail: Tail,
    /// The place of its job among others under policies that serve who came first: the latest arrival of a first
    /// coflow that it descends from. Its own arrival if unknown.
    pub place: Option<Time>,
}

/// What a job still needs at least once one of its coflows is complete, in an empty network, as far as it is known in
/// advance; zero where nothing follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    /// The longest path of the stages that follow, with their compute times.
    pub time: Span,
    /// The longest path of the coflows that follow, without compute times: what is still asked of the network.
    pub transfer: Span,
}
