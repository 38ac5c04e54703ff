//! Many seeds, on all processors.

use crate::{Report, Settings, Violation, run};
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_model::Span;

/// What came of many seeds.
#[derive(Default)]
pub struct Outcome {
    /// The seeds that failed, and why, in order.
    pub failed: Vec<(u64, Violation)>,
    /// What all did together. The digest is that of all, in whatever order they ran.
    pub done: Report,
}

/// Runs seeds, each with its settings, and says at once which fail.
pub fn run_seeds(
    seeds: Range<u64>,
    settings: impl Fn(u64) -> Settings + Sync,
    fails: impl Fn(u64, &Violation) + Sync,
) -> Outcome {
    let next = AtomicU64::new(seeds.start);
    let outcome = Mutex::new(Outcome::default());
    let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let result = run(seed, &settings(seed));
                    // Another thread panicked while it had the lock. The scope passes that on once
                    // all have ended.
                    let Ok(mut outcome) = outcome.lock() else { return };
                    match result {
                        Ok(report) => outcome.done.add(&report),
                        Err(violation) => {
                            fails(seed, &violation);
                            outcome.done.add(&violation.report);
                            outcome.failed.push((seed, violation));
                        }
                    }
                }
            });
        }
    });
    let mut outcome = outcome.into_inner().unwrap_or_default();
    outcome.failed.sort_by_key(|(seed, _)| *seed);
    outcome
}

impl Report {
    /// Adds what another run did.
    fn add(&mut self, other: &Report) {
        self.events += other.events;
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.gets += other.gets;
        self.transfers += other.transfers;
        self.relayed += other.relayed;
        self.faults += other.faults;
        self.faults_drawn += other.faults_drawn;
        self.machines_lost += other.machines_lost;
        self.took = Span::from_nanos(self.took.nanos() + other.took.nanos());
        // Threads end in any order, which makes no difference to this sum.
        self.digest ^= other.digest;
    }
}

/// How many seeds it takes to find a defect that is planted, and how it shows; none if so many do not.
#[cfg(feature = "planted")]
pub fn find(defect: weir_core::planted::Defect, seeds: Range<u64>) -> Option<(u64, Violation)> {
    weir_core::planted::plant(Some(defect));
    let first = seeds.start;
    let found = seeds
        .into_iter()
        .find_map(|seed| Some((seed - first + 1, run(seed, &Settings::of_seed(seed)).err()?)));
    weir_core::planted::plant(None);
    found
}
