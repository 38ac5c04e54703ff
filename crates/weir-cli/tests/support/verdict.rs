//! What came of rounds in which something fails: what must never happen, and what was counted.

use super::setting;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;

/// What a round did.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// What went wrong on purpose, and how often.
    pub(crate) events: BTreeMap<&'static str, u64>,
    /// How many gets returned, whatever they returned.
    pub(crate) gets: u64,
    /// Bytes of gets, each of them compared.
    pub(crate) bytes: u64,
}

impl Tally {
    fn add(&mut self, other: Tally) {
        for (event, count) in other.events {
            *self.events.entry(event).or_default() += count;
        }
        self.gets += other.gets;
        self.bytes += other.bytes;
    }
}

/// What must never happen.
pub(crate) enum Failure {
    Wrong(String),
    Lost(String),
    Hang(String),
    /// A process ended, or a thread of it.
    Ended(String),
    /// State, files or processes left behind.
    Left(String),
}

impl Failure {
    fn kind(&self) -> (&'static str, &str) {
        match self {
            Failure::Wrong(what) => ("wrong", what),
            Failure::Lost(what) => ("lost", what),
            Failure::Hang(what) => ("hang", what),
            Failure::Ended(what) => ("ended", what),
            Failure::Left(what) => ("left behind", what),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, what) = self.kind();
        write!(out, "{kind}: {what}")
    }
}

/// Plays `WEIR_CHAOS_ROUNDS` rounds (`usual` unless set) from seed `WEIR_CHAOS_SEED` on (0 unless set), says what came of
/// them, and panics if any failed.
pub(crate) fn play_all(usual: u64, mut round: impl FnMut(u64) -> Result<Tally, Failure>) {
    let (rounds, first) = (setting("WEIR_CHAOS_ROUNDS", usual), setting("WEIR_CHAOS_SEED", 0));
    let (mut sum, mut slowest, mut failed) = (Tally::default(), (0.0, 0), Vec::new());
    let mut failures: BTreeMap<&str, u64> =
        ["wrong", "lost", "hang", "ended", "left behind"].into_iter().map(|kind| (kind, 0)).collect();
    let started = Instant::now();
    for seed in first..first + rounds {
        let began = Instant::now();
        match round(seed) {
            Ok(tally) => sum.add(tally),
            Err(failure) => {
                *failures.entry(failure.kind().0).or_default() += 1;
                eprintln!("seed {seed}: {failure}");
                failed.push(seed);
            }
        }
        let took = began.elapsed().as_secs_f64();
        if took > slowest.0 {
            slowest = (took, seed);
        }
    }
    println!(
        "chaos: {rounds} rounds from seed {first} in {:.1} s (slowest {:.2} s, seed {}); {:?}; {} gets returned, {} bytes \
         verified; failures {failures:?}",
        started.elapsed().as_secs_f64(),
        slowest.0,
        slowest.1,
        sum.events,
        sum.gets,
        sum.bytes
    );
    assert!(failed.is_empty(), "seeds {failed:?} failed");
}
