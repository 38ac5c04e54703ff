//! Distributions of a workload, as curves.

use crate::characteristics::CURVES;
use crate::{Measures, PointResult, PolicyResult, Results};
use weir_trace::distributions::Distributions;

/// What the bounds of a curve are, with their unit.
pub(super) fn curve_axis(measure: &str) -> String {
    let curve = measure.split_once(" up to ").map_or(measure, |(curve, _)| curve);
    let name = match curve {
        "length" | "size" | "bytes" => {
            "that: length of a coflow is its largest flow, size all its flows (bytes, logarithmic)"
        }
        "width" => "that: flows of a coflow (count, not to scale)",
        "skew" => "that: standard deviation over mean of a coflow's flow sizes (ratio, not to scale)",
        _ => "that: sending hosts over receiving hosts of a coflow (ratio, not to scale)",
    };
    name.to_owned()
}

/// Curves of the first point's workload as if they were policies and their bounds were points: the one that `measure` is
/// of, and all others that are read at the same bounds.
pub(super) fn curves(results: &Results, measure: &str) -> Results {
    let template = Distributions::default();
    let bounds_of = |curve: &str| {
        let curve = template.curves().iter().find(|known| known.name == curve)?;
        Some(curve.shares().map(|(bound, _)| bound).collect::<Vec<&str>>())
    };
    let bounds = measure.split_once(" up to ").and_then(|(curve, _)| bounds_of(curve)).unwrap_or_default();
    let measured = results.points.first().and_then(|point| point.policies.first());
    let points = bounds.iter().map(|bound| {
        let of_curve = |curve: &str| {
            let value = measured?.measures.get(&format!("{curve} up to {bound}"))?;
            let measures = Measures::from([(measure.to_owned(), *value)]);
            Some(PolicyResult { policy: curve.to_owned(), measures, ..PolicyResult::default() })
        };
        let alike = CURVES.iter().filter(|(curve, _)| bounds_of(curve).as_ref() == Some(&bounds));
        let policies = alike.filter_map(|(curve, _)| of_curve(curve)).collect();
        PointResult { name: (*bound).to_owned(), policies, ..PointResult::default() }
    });
    Results { points: points.collect(), ..results.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measure_is_drawn_with_all_that_are_read_at_the_same_bounds() {
        let measures =
            ["length", "size", "bytes", "width"].map(|curve| (format!("{curve} up to 10 GB"), 50.0));
        let measures = Measures::from(measures);
        let measured = PolicyResult { measures, ..PolicyResult::default() };
        let point = PointResult { policies: vec![measured], ..PointResult::default() };
        let results = Results { points: vec![point], ..Results::default() };
        let drawn = curves(&results, "length up to 1 MB");
        let names = |point: &PointResult| {
            point.policies.iter().map(|policy| policy.policy.clone()).collect::<Vec<String>>()
        };
        // `width` is read at other bounds.
        let last = drawn.points.iter().find(|point| point.name == "10 GB").unwrap();
        assert_eq!(
            (drawn.points.len(), names(last)),
            (7, ["length", "size", "bytes"].map(str::to_owned).to_vec())
        );
        assert!(last.policies.iter().all(|curve| curve.measures["length up to 1 MB"] == 50.0));
    }
}
