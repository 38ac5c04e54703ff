//! Links between sites that carry a few TCP connections only.

use weir_model::Rate;
use weir_trace::wan::{Grid, SingleConnections};

/// Gives every pair of regions what so many connections get, where that is less than its measured bandwidth.
pub(super) fn limit(grids: &mut [Grid], connections: u32) -> Result<(), String> {
    let single = SingleConnections::included().map_err(|error| format!("single connections: {error}"))?;
    for grid in grids {
        for (from, row) in grid.rates.iter_mut().enumerate() {
            for (to, rate) in row.iter_mut().enumerate().filter(|&(to, _)| to != from) {
                let (source, destination) = (&grid.regions[from], &grid.regions[to]);
                let one = single.between(source, destination).ok_or_else(|| {
                    format!("what one connection from {source} to {destination} gets is not known")
                })?;
                let most = one.rate().scaled(f64::from(connections)).bytes_per_sec();
                *rate = Rate::from_bytes_per_sec(rate.bytes_per_sec().min(most));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_trace::wan::Excerpt;

    fn mbps(snapshot: &str, connections: Option<u32>, from: usize, to: usize) -> f64 {
        let mut grids =
            vec![Excerpt::SkyplaneGcp5.read().expect("a table").grid(snapshot, &[]).expect("a grid")];
        connections.map_or(Ok(()), |count| limit(&mut grids, count)).expect("known");
        (grids[0].rates[from][to].bits_per_sec() / 1e4).round() / 100.0
    }

    #[test]
    fn a_pair_gets_no_more_than_its_connections_do_nor_than_was_measured() {
        // From asia-east1 to asia-northeast1 one connection got 721.94 Mbit/s, and 64 of them 6692.5.
        let of = |connections| mbps("2022-01-24", connections, 0, 1);
        assert_eq!([of(Some(1)), of(Some(2)), of(Some(64)), of(None)], [721.94, 1443.88, 6692.5, 6692.5]);
    }

    #[test]
    fn one_connection_limits_every_pair_in_every_snapshot() {
        for from in 0..5 {
            for to in (0..5).filter(|&to| to != from) {
                let of = |snapshot| mbps(snapshot, Some(1), from, to);
                let first = of("2022-01-24");
                assert_eq!([of("2022-01-29"), of("2022-04-20")], [first, first]);
            }
        }
    }
}
