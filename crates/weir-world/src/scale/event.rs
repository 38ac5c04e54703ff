//! What happens, and to whom: coflows with their drivers, calls, and the messages that are on their way.

use weir_core::coordinator::SessionId;
use weir_core::ids::FlowNumber;
use weir_model::{CoflowId, CoflowSpec, FlowSpec, Span, Time};
use weir_proto::v1;

#[derive(Debug)]
pub(super) enum Event {
    CoordinatorWakes,
    AgentWakes {
        host: u32,
    },
    Upward {
        host: u32,
        message: Box<v1::AgentMessage>,
    },
    Downward {
        host: u32,
        message: Box<v1::CoordinatorMessage>,
    },
    /// A driver registers its coflow; it hears which number it has; it begins.
    Register {
        job: usize,
    },
    Registered {
        job: usize,
        coflow: CoflowId,
    },
    Begin {
        job: usize,
    },
    /// A call arrives at the coordinator.
    Call(Call),
    /// A receiver knows who has its block, and its request arrives there.
    Request {
        get: usize,
        holder: u32,
    },
    /// A flow of a host ends at its rate, if that was not changed since.
    Ends {
        host: u32,
        number: u64,
    },
    /// A receiver has all; then its sender hears so.
    Received {
        get: usize,
        from: u32,
        flow: FlowNumber,
    },
    Done {
        host: u32,
        flow: FlowNumber,
    },
}

/// A call of the coordinator; those of the receivers of a coflow arrive together.
#[derive(Clone, Copy, Debug)]
pub(super) enum Call {
    Register { job: usize },
    Locate { job: usize },
    Renew { job: usize },
    Unregister { job: usize },
}

/// A coflow with its driver and its tasks.
pub(super) struct Job {
    pub(super) begins: Time,
    pub(super) flows: Vec<FlowSpec>,
    pub(super) weight: f64,
    /// Number of the first of its gets.
    pub(super) first_get: usize,
    pub(super) coflow: Option<CoflowId>,
    /// Receivers that do not have all.
    pub(super) left: usize,
    pub(super) cct: Span,
}

impl Job {
    pub(super) fn new(begins: Time, first_get: usize, coflow: &CoflowSpec) -> Result<Job, String> {
        if !coflow.dependencies.after.is_empty() || coflow.deadline.is_some() || coflow.flows.is_empty() {
            return Err(format!("coflow {} has stages, a deadline or no flows", coflow.id));
        }
        Ok(Job {
            begins,
            flows: coflow.flows.clone(),
            weight: coflow.weight,
            first_get,
            coflow: None,
            left: coflow.flows.len(),
            cct: Span::ZERO,
        })
    }
}

/// The session of a host: none is ever lost.
pub(super) fn session_of(host: u32) -> SessionId {
    SessionId(u64::from(host) + 1)
}

/// The host of a session.
pub(super) fn host_of(session: SessionId) -> u32 {
    (session.0 - 1) as u32
}
