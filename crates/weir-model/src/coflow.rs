//! The work: coflows and their flows, as they are known when they arrive.

use crate::{Bytes, CoflowId, Dependencies, HostId, JobId, Span, Time};

/// One transfer of a coflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSpec {
    /// Host that sends the bytes.
    pub source: HostId,
    /// Receiving host. May equal `source`: rack-local flows of rack-level traces use both their ports.
    pub destination: HostId,
    /// Bytes to move, at least 1.
    pub size: Bytes,
    /// The task at the receiving end (a reducer), counted from 0 within the coflow: flows with the same
    /// value form a flow group in Siphon's sense.
    pub group: u32,
}

/// The communication pattern an application declares (Varys, Table 1). A hint for people and status
/// output; no policy depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pattern {
    /// Many to many, between two stages.
    Shuffle,
    /// One block to many receivers.
    Broadcast,
    /// Many senders to one receiver.
    Aggregation,
    /// Every member to every other.
    AllToAll,
    /// The application declared none.
    #[default]
    Any,
}

/// A coflow: transfers that one application stage waits for together.
#[derive(Clone, Debug, PartialEq)]
pub struct CoflowSpec {
    /// Identity, and the second key after `arrival` wherever coflows tie.
    pub id: CoflowId,
    /// When its flows may start; of a stage, when the stage may begin, if nothing else delays it (see
    /// [`Dependencies`]). Completion time counts from when its flows may start.
    pub arrival: Time,
    /// Its transfers. May be empty in a live coflow whose flows join later.
    pub flows: Vec<FlowSpec>,
    /// Share relative to other coflows for policies that weigh them; 1 unless said, above 0, finite.
    pub weight: f64,
    /// Time allowed from arrival to last byte, if the application stated one.
    pub deadline: Option<Span>,
    /// Pattern that the application declared; for people, no policy looks at it.
    pub pattern: Pattern,
    /// How it stands to others of its job.
    pub dependencies: Dependencies,
}

impl CoflowSpec {
    /// A coflow of weight 1 without deadline, declared pattern or dependencies.
    pub fn new(id: CoflowId, arrival: Time, flows: Vec<FlowSpec>) -> CoflowSpec {
        CoflowSpec {
            id,
            arrival,
            flows,
            weight: 1.0,
            deadline: None,
            pattern: Pattern::Any,
            dependencies: Dependencies::default(),
        }
    }

    /// The job it belongs to; without one stated, a job of its own.
    pub fn job(&self) -> JobId {
        self.dependencies.job.unwrap_or(JobId(self.id.0))
    }

    /// Bytes of all flows (the coflow's size).
    pub fn bytes(&self) -> Bytes {
        self.flows.iter().map(|flow| flow.size).sum()
    }

    /// Bytes of the largest flow (the coflow's length).
    pub fn length(&self) -> Bytes {
        self.flows.iter().map(|flow| flow.size).max().unwrap_or_default()
    }

    /// Number of flows (the coflow's width).
    pub fn width(&self) -> usize {
        self.flows.len()
    }

    /// Bin of Varys' Table 4: 1 short narrow, 2 long narrow, 3 short wide, 4 long wide. Short: the
    /// largest flow is under 5 MB (10^6 bytes); narrow: at most 50 flows.
    pub fn bin(&self) -> u8 {
        bin(self.length(), self.width() as u64)
    }
}

/// The bin of a coflow whose largest flow has so many bytes, and which has so many flows, 1 to 4 (Varys, Table 4): short or long
/// from 5 MB on, narrow up to 50 flows or wide.
pub fn bin(length: Bytes, width: u64) -> u8 {
    let (long, wide) = (length.0 >= 5_000_000, width > 50);
    1 + u8::from(long) + 2 * u8::from(wide)
}
