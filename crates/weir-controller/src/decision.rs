//! A decision: which coflow goes first, and over which paths; and who may still make one, or apply it.

use serde::{Deserialize, Serialize};

/// How final a decision on a state is. A final one replaces a provisional one of the same state, and nothing replaces
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Finality {
    /// The best order at the mean bandwidths: at once, before any rounds.
    Provisional,
    /// After rounds of simulation.
    Final,
}

impl Finality {
    /// 1 for provisional, 2 for final.
    pub fn number(self) -> u8 {
        match self {
            Finality::Provisional => 1,
            Finality::Final => 2,
        }
    }
}

/// How a coflow's traffic from one site to another is divided: the shares of it that relays at other sites pass on. The
/// rest goes directly.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Split {
    /// Id of the coflow whose traffic is divided.
    pub coflow: u64,
    /// Number of the sending site.
    pub from: u32,
    /// Number of the receiving site.
    pub to: u32,
    /// Sites that pass bytes on, and the share of each; together at most 1.
    pub via: Vec<(u32, f64)>,
}

/// What a decision maker proposes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Proposal {
    /// Epoch of the state that it is about.
    pub epoch: u64,
    /// How final it is.
    pub finality: Finality,
    /// Name of the decision maker that proposes it.
    pub maker: String,
    /// Rounds behind it, of all decision makers.
    pub rounds: u32,
    /// Coflows, first to be served first.
    pub order: Vec<u64>,
    /// Where not all goes directly.
    pub splits: Vec<Split>,
    /// Whether the flow groups of a coflow go one after the other, the largest first; else they share.
    pub largest_group_first: bool,
}

/// A proposal that was taken, and the number that it got. Numbers of decisions and epochs of states come from one
/// counter, so a decision's number is above the epoch of its state.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Above those of all decisions before.
    pub number: u64,
    /// The proposal that was taken.
    pub proposal: Proposal,
}

impl Decision {
    /// Whether a proposal as final as that, on the state of an epoch, comes too late: as much was decided there.
    pub fn settles(&self, epoch: u64, finality: Finality) -> bool {
        self.proposal.epoch == epoch && self.proposal.finality >= finality
    }
}
