//! Means and percentiles.

/// Arithmetic mean; 0 of nothing.
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// The `share` quantile (0 to 1) of rising values, by linear interpolation between the two closest ranks:
/// the value at rank `share * (n - 1)`, ranks from 0. 0 of nothing.
pub fn percentile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let rank = share * last as f64;
    let below = rank.floor() as usize;
    let above = sorted[(below + 1).min(last)];
    sorted[below] + (above - sorted[below]) * (rank - below as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_interpolate_between_the_closest_ranks() {
        // Ranks 0..3: the median is at rank 1.5, the 95th percentile at 2.85.
        let values = [1.0, 2.0, 4.0, 8.0];
        assert_eq!(percentile(&values, 0.5), 3.0);
        assert!((percentile(&values, 0.95) - (4.0 + 0.85 * 4.0)).abs() < 1e-12);
        assert_eq!((percentile(&values, 0.0), percentile(&values, 1.0)), (1.0, 8.0));
        assert_eq!((percentile(&[5.0], 0.99), percentile(&[], 0.5), mean(&[])), (5.0, 0.0, 0.0));
    }
}
