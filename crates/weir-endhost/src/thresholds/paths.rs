//! The best thresholds among given sizes, as the shortest path from no bytes to the largest flow.
//!
//! With the same thresholds for flows of both kinds, what a level adds to the mean depends on where it begins and ends,
//! and on nothing else (`T` of [`super::theory`] and [`super::shared`]). So the best thresholds on a grid of G sizes are
//! a path of as many steps as there are levels, and G^2 / 2 levels are judged, not G^(K-1) thresholds. Ours.

use super::theory::{Ends, Traffic};
use weir_model::Bytes;

/// The best `cuts` thresholds, rising, of the sizes in `grid`, for levels that share; none if `cuts` is 0 or the grid
/// empty. Also how many levels were judged. `grid` rises and ends at the largest size.
pub(super) fn least_path(traffic: &Traffic, cuts: usize, grid: &[Bytes]) -> (Vec<Bytes>, u64) {
    let mut judged = 0;
    let mut cost = |from: Bytes, to: Bytes| {
        judged += 1;
        traffic.shared_cost(Ends::both(from), Ends::both(to))
    };
    let count = grid.len();
    let mut costs = vec![0.0; count * count];
    for from in 0..count {
        for to in from + 1..count {
            costs[from * count + to] = cost(grid[from], grid[to]);
        }
    }
    // The least mean of the flows that end at each size by so many levels, and where the last of these begins.
    let mut least: Vec<f64> = grid.iter().map(|&to| cost(Bytes(0), to)).collect();
    let mut origins: Vec<Vec<usize>> = Vec::with_capacity(cuts);
    for _ in 0..cuts {
        // `..=to`: an empty level costs nothing, so that fewer levels than asked for are found too.
        let reach = |to: usize| {
            let through = |from: usize| (from, least[from] + costs[from * count + to]);
            (0..=to)
                .map(through)
                .min_by(|one, other| one.1.total_cmp(&other.1))
                .unwrap_or((to, f64::INFINITY))
        };
        let (origin, next): (Vec<usize>, Vec<f64>) = (0..count).map(reach).unzip();
        origins.push(origin);
        least = next;
    }
    let mut at = count.saturating_sub(1);
    let mut path: Vec<Bytes> = Vec::with_capacity(cuts);
    for origin in origins.iter().rev().filter(|origin| !origin.is_empty()) {
        at = origin[at];
        path.push(grid[at]);
    }
    path.reverse();
    (path, judged)
}
