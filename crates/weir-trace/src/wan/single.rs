//! What one TCP connection gets between regions.
//!
//! # Problem
//! Over a long round trip one connection is limited by its window, not by the network. Of the pairs of regions that we
//! have bandwidths for, few were measured over one connection.
//!
//! # Approach
//! Where a pair was measured, that is what one connection gets. Elsewhere the rate is window / round trip, with the
//! median of rate times round trip over all measured pairs as the window. Both kinds are kept apart.
//!
//! # Properties
//! Measurements with round trips below [`FITTED_MS`] are not of the fit: there the machines' own bandwidth of 1 Gbit/s
//! is the limit; above it, and nothing between our regions is as far. Of a pair's two round trips the longer counts:
//! they are one way both ways, and of some pairs one direction was measured as shorter than light allows.
//! The formula is the textbook's; the window is our own derivation, from measurements with default buffers.

use super::{Mean, WanReadError, median, read_rows};
use serde::Deserialize;
use std::collections::BTreeMap;
use weir_model::Rate;

/// Round trips of the measurements that the window is fitted to, ms.
const FITTED_MS: std::ops::RangeInclusive<f64> = 30.0..=260.0;

/// What one connection gets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ConnectionRate {
    /// As measured; the mean, where repeated.
    Measured(Rate),
    /// Window / round trip.
    Estimated(Rate),
}

impl ConnectionRate {
    /// The rate, however it is known.
    pub fn rate(self) -> Rate {
        match self {
            ConnectionRate::Measured(rate) | ConnectionRate::Estimated(rate) => rate,
        }
    }
}

#[derive(Deserialize)]
struct ConnectionRow {
    src_region: String,
    dst_region: String,
    received_mbps: f64,
    rtt_ms: f64,
}

#[derive(Deserialize)]
struct RttRow {
    src_region: String,
    dst_region: String,
    min_rtt_ms: f64,
}

/// Measurements of single connections, and what they say of pairs that were not measured.
#[derive(Clone, Debug)]
pub struct SingleConnections {
    measured: BTreeMap<(String, String), Mean>,
    /// By pair of zones, ms.
    round_trips: BTreeMap<(String, String), f64>,
    /// Mbit/s times ms, that is kbit.
    window_kbit: f64,
}

/// What is measured is above 0.
fn check(line: u64, what: &str, value: f64) -> Result<(), WanReadError> {
    if value.is_finite() && value > 0.0 {
        return Ok(());
    }
    Err(WanReadError::Malformed { line, reason: format!("{what} is {value}, not a number above 0") })
}

/// The region that a zone is in: `gcp:us-east1-b` is in `gcp:us-east1`.
fn region(zone: &str) -> &str {
    zone.rsplit_once('-').map_or(zone, |(region, _)| region)
}

impl SingleConnections {
    /// Those of `data/wan`: regions of Google Cloud.
    ///
    /// # Errors
    /// Only if a table that is compiled in is malformed; tests read both.
    pub fn included() -> Result<SingleConnections, WanReadError> {
        SingleConnections::parse(
            include_str!("../../../../data/wan/doit-gcp-single.csv"),
            include_str!("../../../../data/wan/skyplane-gcp5-rtt.csv"),
        )
    }

    fn parse(connections: &str, round_trips: &str) -> Result<SingleConnections, WanReadError> {
        let mut measured: BTreeMap<(String, String), Mean> = BTreeMap::new();
        let mut windows_kbit = Vec::new();
        read_rows(connections.as_bytes(), |line, row: ConnectionRow| {
            check(line, "received_mbps", row.received_mbps)?;
            check(line, "rtt_ms", row.rtt_ms)?;
            measured.entry((row.src_region, row.dst_region)).or_default().add(row.received_mbps);
            if FITTED_MS.contains(&row.rtt_ms) {
                windows_kbit.push(row.received_mbps * row.rtt_ms);
            }
            Ok(())
        })?;
        let window_kbit = median(&mut windows_kbit).ok_or(WanReadError::Empty)?;
        let mut longest: BTreeMap<(String, String), f64> = BTreeMap::new();
        read_rows(round_trips.as_bytes(), |line, row: RttRow| {
            check(line, "min_rtt_ms", row.min_rtt_ms)?;
            let (there, back) = (row.src_region, row.dst_region);
            for pair in [(there.clone(), back.clone()), (back, there)] {
                let longest = longest.entry(pair).or_default();
                *longest = longest.max(row.min_rtt_ms);
            }
            Ok(())
        })?;
        Ok(SingleConnections { measured, round_trips: longest, window_kbit })
    }

    /// What one connection gets from one zone to another; `None` where neither it nor the round trip is known.
    pub fn between(&self, from: &str, to: &str) -> Option<ConnectionRate> {
        let rate = |mbps: f64| Rate::from_bytes_per_sec(mbps * 1e6 / 8.0);
        let regions = (region(from).to_owned(), region(to).to_owned());
        if let Some(mean) = self.measured.get(&regions) {
            return Some(ConnectionRate::Measured(rate(mean.value())));
        }
        let round_trip_ms = self.round_trips.get(&(from.to_owned(), to.to_owned()))?;
        Some(ConnectionRate::Estimated(rate(self.window_kbit / round_trip_ms)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wan::Excerpt;

    const CONNECTIONS: &str = "src_region,dst_region,received_mbps,rtt_ms\n";
    const ROUND_TRIPS: &str = "src_region,dst_region,min_rtt_ms\n";

    fn mbps(rate: ConnectionRate) -> f64 {
        (rate.rate().bits_per_sec() / 1e4).round() / 100.0
    }

    #[test]
    fn a_pair_gets_what_was_measured_or_the_median_window_over_its_longer_round_trip() {
        // Windows of 10,000, 14,500, 15,500 and 12,000 kbit: the median is 13,250. The one of 5 ms does not count.
        let rows = "x:a,x:b,100,100\nx:b,x:a,290,50\nx:b,x:a,310,50\nx:c,x:d,50,240\nx:e,x:f,900,5\n";
        let known = SingleConnections::parse(
            &format!("{CONNECTIONS}{rows}"),
            &format!("{ROUND_TRIPS}x:a-1,x:c-1,3\nx:c-1,x:a-1,60\n"),
        );
        let known = known.expect("tables");
        let between = |from, to| known.between(from, to).expect("known");
        let measured = between("x:b-7", "x:a-7");
        assert_eq!((mbps(measured), matches!(measured, ConnectionRate::Measured(_))), (300.0, true));
        // 13,250 over 60 ms, the longer of both ways.
        let estimated = between("x:a-1", "x:c-1");
        assert_eq!((mbps(estimated), matches!(estimated, ConnectionRate::Estimated(_))), (220.83, true));
        assert_eq!(known.between("x:a-1", "x:d-1"), None);
    }

    #[test]
    fn eight_of_the_twenty_pairs_were_measured() {
        let known = SingleConnections::included().unwrap();
        let grid = Excerpt::SkyplaneGcp5.read().unwrap().grid("2022-01-24", &[]).unwrap();
        let pairs = || grid.regions.iter().flat_map(|from| grid.regions.iter().map(move |to| (from, to)));
        let rates: Vec<ConnectionRate> = pairs()
            .filter(|(from, to)| from != to)
            .map(|(from, to)| known.between(from, to).expect("known"))
            .collect();
        let measured = rates.iter().filter(|rate| matches!(rate, ConnectionRate::Measured(_))).count();
        assert_eq!((rates.len(), measured), (20, 8));
        // One way each: us-east1 to us-west1, measured, and to asia-northeast1, 22,564.66 kbit over 155.089 ms.
        let between = |to| mbps(known.between("gcp:us-east1-b", to).expect("known"));
        assert_eq!((between("gcp:us-west1-a"), between("gcp:asia-northeast1-a")), (371.83, 145.49));
    }

    /// What `data/wan/README.md` says of the fit.
    #[test]
    fn the_window_explains_what_was_measured_to_within_a_tenth() {
        let known = SingleConnections::included().unwrap();
        let mut errors = Vec::new();
        read_rows(
            include_str!("../../../../data/wan/doit-gcp-single.csv").as_bytes(),
            |_, row: ConnectionRow| {
                if FITTED_MS.contains(&row.rtt_ms) {
                    errors.push((known.window_kbit / row.rtt_ms / row.received_mbps - 1.0).abs());
                }
                Ok(())
            },
        )
        .unwrap();
        errors.sort_by(f64::total_cmp);
        let at = |share: f64| (errors[(errors.len() as f64 * share) as usize] * 1000.0).round() / 10.0;
        assert_eq!((errors.len(), known.window_kbit.round()), (555, 22565.0));
        assert_eq!((at(0.5), at(0.95)), (4.1, 10.8));
    }

    #[test]
    fn what_cannot_be_measured_is_refused_with_its_line() {
        let row = |row: &str| {
            SingleConnections::parse(&format!("{CONNECTIONS}a,b,5,50\n{row}\n"), ROUND_TRIPS).unwrap_err()
        };
        assert_eq!(row("a,b,0,50").to_string(), "line 3: received_mbps is 0, not a number above 0");
        assert_eq!(row("a,b,5,inf").to_string(), "line 3: rtt_ms is inf, not a number above 0");
        let near = SingleConnections::parse(&format!("{CONNECTIONS}a,b,5,1\n"), ROUND_TRIPS);
        assert!(matches!(near, Err(WanReadError::Empty)));
    }
}
