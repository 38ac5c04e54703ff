//! Measured bandwidths between datacenters: the format of the excerpt in `data/wan`, and random demands over them.
//!
//! One row is one measurement: `snapshot`, `src_region`, `src_tier`, `dst_region`, `dst_tier`, `received_mbps`, in
//! any order; further columns are ignored. Kept are rows whose two ends have the tier PREMIUM, or no tier at all
//! (one snapshot did not record it): STANDARD traffic leaves the provider's own network, which is another WAN.
//! Measurements of a region to itself are dropped too.
//! Several kept rows for one pair of regions in one snapshot are repetitions, and their mean counts. Snapshots are
//! never pooled: they differ in machines and addresses.

//!
//! Beside it stand what bytes cost that leave a region ([`EgressPrices`]) and what one TCP connection gets
//! ([`SingleConnections`]).

mod demand;
mod egress;
mod excerpts;
mod single;

pub use demand::{Skew, SkewError, SkewedDemands};
pub use egress::{EgressPrices, PriceGrid, UsdPerGb};
pub use excerpts::{Excerpt, UnknownExcerpt};
pub use single::{ConnectionRate, SingleConnections};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use weir_model::Rate;

/// Most bytes of a file that are read.
pub const MAX_WAN_BYTES: u64 = 64 << 20;
/// The tier that counts, where tiers are recorded.
const TIER: &str = "PREMIUM";

/// Why measurements cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum WanReadError {
    /// The file could not be opened or read.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// A row does not have what is needed.
    #[error("line {line}: {reason}")]
    Malformed {
        /// Line, from 1; the header is the first.
        line: u64,
        /// What is wrong and what belongs there.
        reason: String,
    },
    /// Longer than anything that is read.
    #[error("the file is longer than {MAX_WAN_BYTES} bytes; keep only the snapshots and regions you need")]
    TooLong,
    /// No row is left.
    #[error("no row has tier {TIER}, or none, at both ends; nothing to build a grid from")]
    Empty,
}

/// Why there is no grid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum GridError {
    /// Nothing of that snapshot was read.
    #[error("no snapshot {asked}; there are {known}")]
    NoSnapshot {
        /// As it was given.
        asked: String,
        /// All that there are.
        known: String,
    },
    /// One region alone has no network.
    #[error("snapshot {snapshot} has {found} of the regions asked for; a grid needs two at least")]
    TooFewRegions {
        /// Name of the snapshot asked for.
        snapshot: String,
        /// Number of its regions that were asked for.
        found: usize,
    },
    /// A pair was not measured.
    #[error(
        "snapshot {snapshot} lacks {missing} pairs of regions, the first {from} to {to}; \
         leave out one of the two regions"
    )]
    Missing {
        /// Name of the snapshot asked for.
        snapshot: String,
        /// Sending region of the first pair that is missing.
        from: String,
        /// Receiving region of the first pair that is missing.
        to: String,
        /// Number of pairs that are missing.
        missing: usize,
    },
}

#[derive(Deserialize)]
struct Row {
    snapshot: String,
    src_region: String,
    src_tier: String,
    dst_region: String,
    dst_tier: String,
    received_mbps: f64,
}

/// Sum and number of the measurements of one pair.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum_mbps: f64,
    count: f64,
}

impl Mean {
    fn add(&mut self, mbps: f64) {
        self.sum_mbps += mbps;
        self.count += 1.0;
    }

    fn value(&self) -> f64 {
        self.sum_mbps / self.count
    }
}

/// The median, of two in the middle their mean; `None` of nothing.
fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (last, half) = (values.len().checked_sub(1)?, values.len() / 2);
    // Of an odd number both are the one in the middle.
    Some((values[half] + values[last - half]) / 2.0)
}

type Snapshot = BTreeMap<(String, String), Mean>;

/// All measurements of a file that count, by snapshot.
#[derive(Clone, Debug)]
pub struct Measurements {
    snapshots: BTreeMap<String, Snapshot>,
}

/// A full grid: one snapshot's bandwidth from every region to every other.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    /// Name of the snapshot that it was measured in.
    pub snapshot: String,
    /// Names of the regions.
    pub regions: Vec<String>,
    /// `rates[from][to]` by index of the region; 0 on the diagonal, which was not measured.
    pub rates: Vec<Vec<Rate>>,
}

fn malformed(error: csv::Error) -> WanReadError {
    let line = error.position().map_or(1, csv::Position::line);
    match error.into_kind() {
        csv::ErrorKind::Io(source) => WanReadError::Io(source),
        csv::ErrorKind::Deserialize { err, .. } => {
            let column = err.field().map_or(String::new(), |field| format!("column {}: ", field + 1));
            WanReadError::Malformed { line, reason: format!("{column}{}", err.kind()) }
        }
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            let reason = format!("{len} columns where the header has {expected_len}");
            WanReadError::Malformed { line, reason }
        }
        csv::ErrorKind::Utf8 { err, .. } => {
            WanReadError::Malformed { line, reason: format!("not UTF-8 text: {err}") }
        }
        other => WanReadError::Malformed { line, reason: format!("{other:?}") },
    }
}

/// Hands over every row of a CSV text whose first line is its header, with its line.
fn read_rows<R: DeserializeOwned>(
    input: impl Read,
    mut each: impl FnMut(u64, R) -> Result<(), WanReadError>,
) -> Result<(), WanReadError> {
    let mut rows = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(input);
    let header = rows.headers().map_err(malformed)?.clone();
    let mut record = csv::StringRecord::new();
    while rows.read_record(&mut record).map_err(malformed)? {
        let line = record.position().map_or(1, csv::Position::line);
        each(line, record.deserialize(Some(&header)).map_err(malformed)?)?;
    }
    Ok(())
}

impl Row {
    fn counts(&self) -> bool {
        if self.src_region == self.dst_region {
            return false;
        }
        let tiers = (self.src_tier.as_str(), self.dst_tier.as_str());
        tiers == (TIER, TIER) || tiers == ("", "")
    }

    fn check(&self, line: u64) -> Result<(), WanReadError> {
        let reason = if self.snapshot.is_empty() || self.src_region.is_empty() || self.dst_region.is_empty() {
            "the snapshot or a region has no name".to_owned()
        } else if !(self.received_mbps.is_finite() && self.received_mbps > 0.0) {
            format!("received_mbps is {}, not a number above 0; drop the row", self.received_mbps)
        } else {
            return Ok(());
        };
        Err(WanReadError::Malformed { line, reason })
    }
}

impl Measurements {
    /// Reads all measurements of a CSV file.
    ///
    /// # Errors
    /// The file cannot be opened, or [`Measurements::read`] fails.
    pub fn open(path: &std::path::Path) -> Result<Measurements, WanReadError> {
        Measurements::read(std::fs::File::open(path)?)
    }

    /// Reads all of a CSV text.
    ///
    /// # Errors
    /// Reading fails, a row is malformed, the text is longer than [`MAX_WAN_BYTES`], or it has no row of a tier that
    /// counts.
    pub fn read(input: impl Read) -> Result<Measurements, WanReadError> {
        // One byte more than is allowed tells a file that is too long from one that just fits.
        let mut input = input.take(MAX_WAN_BYTES + 1);
        let read = Measurements::of_rows(&mut input);
        // Where the text was cut off, what is wrong with its last line says nothing.
        if input.limit() == 0 { Err(WanReadError::TooLong) } else { read }
    }

    fn of_rows(input: impl Read) -> Result<Measurements, WanReadError> {
        let mut snapshots: BTreeMap<String, Snapshot> = BTreeMap::new();
        read_rows(input, |line, row: Row| {
            if !row.counts() {
                return Ok(());
            }
            row.check(line)?;
            let pair = (row.src_region, row.dst_region);
            snapshots.entry(row.snapshot).or_default().entry(pair).or_default().add(row.received_mbps);
            Ok(())
        })?;
        if snapshots.is_empty() { Err(WanReadError::Empty) } else { Ok(Measurements { snapshots }) }
    }

    /// Names of all snapshots, sorted.
    pub fn snapshots(&self) -> impl Iterator<Item = &str> {
        self.snapshots.keys().map(String::as_str)
    }

    /// The full grids of all snapshots, in their order; none if no snapshot has one.
    pub fn grids(&self, prefixes: &[String]) -> Vec<Grid> {
        self.snapshots().filter_map(|snapshot| self.grid(snapshot, prefixes).ok()).collect()
    }

    /// The grid of a snapshot over all its regions whose names begin with one of `prefixes`, in the order of names;
    /// without prefixes, over all of them.
    ///
    /// # Errors
    /// There is no such snapshot, it has fewer than two of the regions, or one of their pairs was not measured.
    pub fn grid(&self, snapshot: &str, prefixes: &[String]) -> Result<Grid, GridError> {
        let measured = self.snapshots.get(snapshot).ok_or_else(|| GridError::NoSnapshot {
            asked: snapshot.to_owned(),
            known: self.snapshots().collect::<Vec<_>>().join(", "),
        })?;
        let snapshot = snapshot.to_owned();
        let asked = |name: &&String| {
            prefixes.is_empty() || prefixes.iter().any(|prefix| name.starts_with(prefix.as_str()))
        };
        let named: BTreeSet<&String> =
            measured.keys().flat_map(|(from, to)| [from, to]).filter(asked).collect();
        let regions: Vec<String> = named.into_iter().cloned().collect();
        if regions.len() < 2 {
            return Err(GridError::TooFewRegions { snapshot, found: regions.len() });
        }
        let mut missing = Vec::new();
        let mut rates = vec![vec![Rate::default(); regions.len()]; regions.len()];
        for (from, source) in regions.iter().enumerate() {
            for (to, destination) in regions.iter().enumerate().filter(|&(to, _)| to != from) {
                let pair = (source.clone(), destination.clone());
                match measured.get(&pair) {
                    Some(mean) => {
                        let bits_per_sec = mean.value() * 1e6;
                        rates[from][to] = Rate::from_bytes_per_sec(bits_per_sec / 8.0);
                    }
                    None => missing.push(pair),
                }
            }
        }
        match missing.first() {
            None => Ok(Grid { snapshot, regions, rates }),
            Some((from, to)) => {
                let (from, to) = (from.clone(), to.clone());
                Err(GridError::Missing { snapshot, from, to, missing: missing.len() })
            }
        }
    }
}

#[cfg(test)]
mod tests;
