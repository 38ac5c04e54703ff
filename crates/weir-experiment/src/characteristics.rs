//! What is measured of a workload itself, by name: what section 4 of the Varys paper tells of its own.

use crate::Measures;
use weir_model::CoflowSpec;
use weir_trace::distributions::Distributions;
use weir_trace::statistics::{Statistics, WIDTH_CLASSES};

/// Measures that are not a curve, and what each is.
const SINGLE: &[(&str, &str)] = &[
    ("coflows", "coflows"),
    ("flows", "flows"),
    ("widest", "flows of the widest coflow"),
    ("over 1 GB", "coflows of more than 10^9 bytes, % of all"),
    ("bytes over 1 GB", "bytes of coflows of more than 10^9 bytes, % of all"),
    ("over 10 GB", "coflows of more than 10^10 bytes, % of all"),
    ("bytes over 10 GB", "bytes of coflows of more than 10^10 bytes, % of all"),
    ("sender bound", "coflows whose busiest sender has more to carry than their busiest receiver, % of all"),
    ("fewer senders", "coflows with fewer sending hosts than receiving ones, % of all"),
];

/// What curves are over.
pub(crate) const CURVES: &[(&str, &str)] = &[
    ("length", "coflows whose largest flow is no larger, % of all"),
    ("width", "coflows of no more flows, % of all"),
    (
        "skew",
        "coflows whose flow sizes, rounded up to 1 MB, vary by no larger a part of their mean, % of all",
    ),
    ("senders per receiver", "coflows whose sending hosts over receiving ones are no more, % of all"),
    ("size", "coflows of no more bytes, % of all"),
    ("bytes", "bytes of coflows of no more bytes, % of all"),
];

/// All measures of a workload.
pub(crate) fn of_workload(coflows: &[CoflowSpec], hosts: u32) -> Measures {
    let (mut statistics, mut distributions) = (Statistics::new(hosts), Distributions::default());
    for coflow in coflows {
        statistics.add(coflow);
        distributions.add(coflow);
    }
    let mut measures = Measures::new();
    let mut percent = |name: String, share: f64| measures.insert(name, 100.0 * share);
    for bin in 1..=4 {
        let share = statistics.bin(bin);
        percent(format!("coflows bin {bin}"), share.coflows);
        percent(format!("bytes bin {bin}"), share.bytes);
    }
    for (name, share) in [("over 1 GB", statistics.over_1_gb()), ("over 10 GB", statistics.over_10_gb())] {
        percent(name.to_owned(), share.coflows);
        percent(format!("bytes {name}"), share.bytes);
    }
    percent("sender bound".to_owned(), statistics.sender_bound());
    percent("fewer senders".to_owned(), statistics.fewer_senders());
    for curve in distributions.curves() {
        curve.shares().for_each(|(bound, share)| _ = percent(format!("{} up to {bound}", curve.name), share));
    }
    let counts = [
        ("coflows", statistics.coflows() as f64),
        ("flows", statistics.flows() as f64),
        ("widest", statistics.widest() as f64),
    ];
    measures.extend(counts.map(|(name, count)| (name.to_owned(), count)));
    for (class, skew) in statistics.skew_by_width().into_iter().enumerate() {
        measures.extend(skew.map(|skew| (skew_of(class), skew)));
    }
    measures
}

/// The measure of the mean skew of a class of widths.
fn skew_of(class: usize) -> String {
    let least = WIDTH_CLASSES[class];
    match WIDTH_CLASSES.get(class + 1) {
        Some(next) => format!("skew of {least} to {} flows", next - 1),
        None => format!("skew of {least} flows and more"),
    }
}

/// Whether there is such a measure.
pub(crate) fn check(name: &str) -> Result<(), String> {
    let skew = (0..WIDTH_CLASSES.len()).any(|class| skew_of(class) == name);
    let known = skew || of_workload(&[], 0).contains_key(name);
    if known { Ok(()) } else { Err(format!("`{name}` is no measure of a workload")) }
}

/// What a measure is, in words.
pub(crate) fn describe(name: &str) -> String {
    let words = |list: &[(&str, &str)], name: &str| {
        list.iter().find(|(known, _)| *known == name).map(|(_, words)| (*words).to_owned())
    };
    if let Some((curve, _)) = name.split_once(" up to ") {
        return words(CURVES, curve).unwrap_or_default();
    }
    match name.split_once(" bin ") {
        Some((of, bin)) => format!("{of} of Table 4's bin {bin}, % of all"),
        None => words(SINGLE, name).unwrap_or_else(|| {
            "standard deviation over mean of flow sizes, average over such coflows".to_owned()
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::{Bytes, CoflowId, FlowSpec, HostId, Time};

    #[test]
    fn every_measure_is_known_and_has_words() {
        let flow = |destination| FlowSpec {
            source: HostId(0),
            destination: HostId(destination),
            size: Bytes(3_000_000_000),
            group: 0,
        };
        let coflow = |id, width| CoflowSpec::new(CoflowId(id), Time::ZERO, (0..width).map(flow).collect());
        let measures = of_workload(&[coflow(1, 2), coflow(2, 4)], 4);
        for (name, value) in &measures {
            assert!(check(name).is_ok() && !describe(name).is_empty() && value.is_finite(), "{name}");
        }
        // 6 of 18 GB are in a coflow of not more than 10 GB.
        assert_eq!(
            (measures["over 10 GB"], measures["coflows bin 2"], measures["widest"]),
            (50.0, 100.0, 4.0)
        );
        assert!((measures["bytes up to 10 GB"] - 100.0 / 3.0).abs() < 1e-9);
        assert_eq!(measures["skew of 2 to 10 flows"], 0.0);
        assert!(check("length up to 2 MB").is_err() && check("avg").is_err());
    }
}
