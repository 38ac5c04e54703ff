//! Where servers and decision makers meet: [`EmbeddedStore`] in one process, [`RedisStore`] between processes.
//!
//! Either does what [`Ledger`] says, in steps that no other caller's come between. A change is told to all
//! that listen; what was missed while a store was away is found by reading it.

mod embedded;
mod ledger;
mod redis;

pub use embedded::EmbeddedStore;
pub use ledger::Ledger;
pub use redis::RedisStore;

use crate::decision::{Decision, Proposal};
use crate::records::Documents;
use std::collections::BTreeMap;
use tokio::sync::mpsc;
use weir_model::Span;
use weir_policy::order::tally::{Score, Tally};

/// First and longest pause of those who ask a store, after it failed.
pub(crate) const RETRY: (Span, Span) = (Span::from_millis(20), Span::from_millis(500));
/// How long documents of a server stay that does not renew them.
pub const SERVER_LIFETIME: Span = Span::from_millis(3_000);
/// A store that was asked for nothing for longer could not be reached, or did not run: servers, which renew three times in
/// their lifetime, have a whole one from then on.
pub const PAUSE: Span = Span::from_millis(1_500);
/// Numbers are exact below this, wherever they are kept: 2^53.
pub const MAX_NUMBER: u64 = 1 << 53;
/// Notices that may wait for a listener; one that lags further behind reads the store instead.
pub const MAX_QUEUED_NOTICES: usize = 1_024;

/// Why a store did not do something. It may have done it and only the answer was lost: every call may be repeated.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The store cannot be reached, or its answer did not come.
    #[error("the store at {address} does not answer: {reason}")]
    Away {
        /// Address at which the store should be.
        address: String,
        /// Error of the connection to the store, in words.
        reason: String,
    },
    /// It answered with something that is none of ours.
    #[error("the store at {address} holds something else: {reason}")]
    Foreign {
        /// Address of the store, without user and password.
        address: String,
        /// What was wrong with its answer.
        reason: String,
    },
}

/// What a server knows, or what of it changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Name of the server that reports, unique among all.
    pub server: String,
    /// Replaces all documents of the server.
    pub complete: bool,
    /// Numbers that the server has seen; those given from now on are above it.
    pub floor: u64,
    /// Documents by name, and their text; none: the document is gone.
    pub changes: Vec<(String, Option<String>)>,
}

/// All that a store knows, but for tallies.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Of the state: it grows with every report that changes something.
    pub epoch: u64,
    /// Documents by the name of their server.
    pub servers: BTreeMap<String, Documents>,
    /// The last decision, if there was one.
    pub decision: Option<Decision>,
}

/// What a server hears when it renews its documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// Whether the store has the server's documents. If not, they are to be reported anew.
    pub known: bool,
    /// Number of the last decision; 0: none.
    pub decision: u64,
}

/// What listeners are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The state changed: it has another epoch.
    State,
    /// There is a new decision.
    Decision,
    /// The store can be reached, again or for the first time; it may have forgotten all.
    Connected,
}

/// A store. Each call happens at once or not at all, and may be repeated when it failed.
#[tonic::async_trait]
pub trait Store: Send + Sync {
    /// Takes over what a server tells, and answers with the epoch of the state since. None: the store has no documents of
    /// the server, so that what changed says too little. It takes over nothing; the server is to report all.
    async fn report(&self, report: &Report) -> Result<Option<u64>, StoreError>;

    /// Prolongs the life of a server's documents. Those of servers that did not for [`SERVER_LIFETIME`] go, and not
    /// before: what its relays had open is still open, and they are likely to attach to another server meanwhile.
    async fn renew(&self, server: &str) -> Result<Renewal, StoreError>;

    /// Documents of all servers and the last decision, as of one moment.
    async fn read(&self) -> Result<Snapshot, StoreError>;

    /// A number above all so far and above `floor`, for rules by what there is at that moment.
    async fn issue(&self, floor: u64) -> Result<(u64, Snapshot), StoreError>;

    /// Makes the tally of a decision maker on an epoch known, and answers with those of all. None: the epoch is over, or
    /// its last decision made.
    async fn share(&self, epoch: u64, maker: &str, tally: &Tally) -> Result<Option<Vec<Tally>>, StoreError>;

    /// Makes a decision of a proposal, and answers with its number. None: its epoch is over, or others decided as much.
    async fn propose(&self, proposal: &Proposal) -> Result<Option<u64>, StoreError>;

    /// What happens from now on. A listener that lags behind by [`MAX_QUEUED_NOTICES`] misses some.
    fn listen(&self) -> mpsc::Receiver<Notice>;
}

/// Bytes of one score of an encoded tally.
const SCORE_BYTES: usize = 24;

/// A tally as bytes: rounds, then for each branch rounds and wins (4 bytes each), sum and sum of squares (8 bytes each),
/// all little-endian.
fn encode_tally(tally: &Tally) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(4 + tally.scores().len() * SCORE_BYTES);
    bytes.extend(tally.rounds().to_le_bytes());
    for score in tally.scores() {
        bytes.extend(score.rounds.to_le_bytes());
        bytes.extend(score.wins.to_le_bytes());
        bytes.extend(score.sum.to_le_bytes());
        bytes.extend(score.squares.to_le_bytes());
    }
    bytes
}

/// Reads what [`encode_tally`] wrote; nothing if it is something else.
fn decode_tally(bytes: &[u8]) -> Option<Tally> {
    let (rounds, scores) = bytes.split_first_chunk::<4>()?;
    if scores.len() % SCORE_BYTES != 0 {
        return None;
    }
    let score = |bytes: &[u8]| {
        let (rounds, bytes) = bytes.split_first_chunk::<4>()?;
        let (wins, bytes) = bytes.split_first_chunk::<4>()?;
        let (sum, bytes) = bytes.split_first_chunk::<8>()?;
        Some(Score {
            rounds: u32::from_le_bytes(*rounds),
            wins: u32::from_le_bytes(*wins),
            sum: f64::from_le_bytes(*sum),
            squares: f64::from_le_bytes(*bytes.first_chunk::<8>()?),
        })
    };
    let scores: Option<Vec<Score>> = scores.chunks_exact(SCORE_BYTES).map(score).collect();
    Some(Tally::from_parts(u32::from_le_bytes(*rounds), scores?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_survives_its_encoding_and_other_bytes_are_none() {
        let mut tally = Tally::new(2);
        tally.note(&[1.5, 2.5], &[false, false]);
        let bytes = encode_tally(&tally);
        assert_eq!((bytes.len(), decode_tally(&bytes)), (52, Some(tally)));
        for wrong in [&bytes[..3], &bytes[..51], &[]] {
            assert_eq!(decode_tally(wrong), None);
        }
    }
}
