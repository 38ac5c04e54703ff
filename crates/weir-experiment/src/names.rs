//! What is measured, by name: whether there is such a measure, and what it is in words.

use crate::jobs::JOB_CLASSES;
use crate::measures::{Described, INTERVAL, RATIO};

/// What every measure is.
const MEASURES: &[Described] = &[
    ("avg", "average CCT", "s"),
    ("p50", "median CCT", "s"),
    ("p90", "90th percentile of CCT", "s"),
    ("p95", "95th percentile of CCT", "s"),
    (
        "bound",
        "average CCT below which no policy can be (shortest first on the cut of the sites that says most)",
        "s",
    ),
    ("over bound", "average CCT over the bound below which no policy can be", RATIO),
    ("active", "coflows under way, average over the run", "count"),
    ("read avg", "average time until a reducer has read", "s"),
    ("read p10", "10th percentile of times until a reducer has read", "s"),
    ("read p25", "25th percentile of times until a reducer has read", "s"),
    ("read p50", "median of times until a reducer has read", "s"),
    ("read p75", "75th percentile of times until a reducer has read", "s"),
    ("read p90", "90th percentile of times until a reducer has read", "s"),
    ("relayed", "bytes by way of relays", "% of those between sites"),
    ("busiest", "bytes on the link that most of them cross", "% of those on all links"),
    ("used", "what links carried until the last end, average over links", "% of what they could"),
    ("egress", "price of all bytes that left a region; a relayed byte leaves two", "USD"),
    ("slowdown", "average of CCT over isolation time", RATIO),
    ("makespan", "last end", "s"),
    ("spread", "standard deviation of a coflow's CCT over seeds, average over coflows", "% of its mean"),
    (
        "spread p95",
        "standard deviation of a coflow's CCT over seeds, 95th percentile over coflows",
        "% of its mean",
    ),
    ("factor avg", "average CCT over the baseline's", RATIO),
    ("factor p90", "90th percentile of CCT over the baseline's", RATIO),
    ("factor p95", "95th percentile of CCT over the baseline's", RATIO),
    ("factor makespan", "last end over the baseline's", RATIO),
    ("jct", "average completion time of jobs", "s"),
    ("jct p95", "95th percentile of completion times of jobs", "s"),
    ("factor jct", "average completion time of jobs over the baseline's", RATIO),
    ("factor jct p95", "95th percentile of completion times of jobs over the baseline's", RATIO),
    ("met", "coflows in time", "% of all"),
    ("admitted", "coflows let in", "% of all"),
    ("late", "coflows let in and late", "% of all"),
    ("within 50 %", "coflows late by up to half of their deadline", "% of all"),
    ("within 100 %", "coflows late by up to their deadline", "% of all"),
];

/// A name without the class of Varys' Table 3 that it may end with.
fn without_class(name: &str) -> (&str, Option<&str>) {
    let class = JOB_CLASSES
        .iter()
        .find_map(|(class, _)| Some((name.strip_suffix(class)?.strip_suffix(' ')?, *class)));
    class.map_or((name, None), |(stem, class)| (stem, Some(class)))
}

/// Whether there is such a measure: one of the list, one with ` bin 1` to ` bin 4` behind it (of coflows) or a class
/// (`jct` and `factor jct`), or `job ` and a class; or how far the mean of one over seeds is known (` +-` behind it).
pub(crate) fn check(name: &str) -> Result<(), String> {
    let stem = name.strip_suffix(INTERVAL).unwrap_or(name);
    if matches!(without_class(stem), ("jct" | "factor jct" | "job", Some(_))) {
        return Ok(());
    }
    let without_bin = ["1", "2", "3", "4"].iter().find_map(|bin| stem.strip_suffix(&format!(" bin {bin}")));
    let known = MEASURES.iter().any(|(known, _, _)| *known == without_bin.unwrap_or(stem));
    if known { Ok(()) } else { Err(format!("`{name}` is no measure")) }
}

/// What a measure is, in words, and its unit.
pub(crate) fn words(name: &str) -> (String, &'static str) {
    if let Some(stem) = name.strip_suffix(INTERVAL) {
        let (what, unit) = words(stem);
        return (format!("half of the 95 % confidence interval over seeds of: {what}"), unit);
    }
    if let Some(found) = crate::packets::measures::words(name) {
        return found;
    }
    if let (stem @ ("jct" | "factor jct"), Some(class)) = without_class(name) {
        let (what, unit) = words(stem);
        return (format!("{what}, jobs with {class} of their time in communication"), unit);
    }
    let (stem, bin) = name.rsplit_once(" bin ").map_or((name, None), |(stem, bin)| (stem, Some(bin)));
    match (MEASURES.iter().find(|(known, _, _)| *known == stem), bin) {
        (Some((_, what, unit)), None) => ((*what).to_owned(), unit),
        (Some((_, what, unit)), Some(bin)) => (format!("{what}, bin {bin}"), unit),
        (None, _) => {
            let what =
                format!("{name} of its time in communication: average completion time over the baseline's");
            (what, RATIO)
        }
    }
}

/// What a measure is, in one line with its unit.
pub(crate) fn describe(name: &str) -> String {
    let (what, unit) = words(name);
    if unit == RATIO { what } else { format!("{what}, {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measure_may_be_of_a_bin_or_of_a_class_of_jobs() {
        assert!(check("job <25 %").is_ok() && check("factor p95 bin 4").is_ok());
        assert!(check("job some").is_err() && check("avg bin 5").is_err());
        assert!(
            check("factor jct <25 %").is_ok() && check("jct p95").is_ok() && check("jct p95 <25 %").is_err()
        );
        assert_eq!(
            describe("jct <25 %"),
            "average completion time of jobs, jobs with <25 % of their time in communication, s"
        );
    }
}
