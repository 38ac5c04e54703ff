//! What is measured of packets, by name.

use crate::measures::{Described, INTERVAL, RATIO};

/// What is measured of every run.
pub(crate) const MEASURES: &[Described] = &[
    ("fct avg", "average completion time of flows without deadlines", "ms"),
    ("fct p95", "95th percentile of completion times of flows without deadlines", "ms"),
    ("fct p99", "99th percentile of completion times of flows without deadlines", "ms"),
    (
        "fct slowdown",
        "average of completion time over that of the flow alone, flows without deadlines",
        RATIO,
    ),
    ("fct avg small", "average completion time of flows up to 100 kB", "ms"),
    ("fct p95 small", "95th percentile of completion times of flows up to 100 kB", "ms"),
    ("fct p99 small", "99th percentile of completion times of flows up to 100 kB", "ms"),
    ("fct avg middle", "average completion time of flows of 100 kB to 10 MB", "ms"),
    ("fct p99 middle", "99th percentile of completion times of flows of 100 kB to 10 MB", "ms"),
    ("fct avg large", "average completion time of flows above 10 MB", "ms"),
    ("deadline fct avg", "average completion time of flows with deadlines", "ms"),
    ("missed", "deadlines missed", "% of those that the flow could meet alone"),
    ("infeasible", "deadlines that the flow could not meet alone", "% of all"),
    (
        "deadline used",
        "completion time over the time until the deadline, of flows that met theirs, average",
        "%",
    ),
    (
        "deadline used least",
        "completion time over the time until the deadline, of flows that met theirs, least",
        "%",
    ),
    (
        "open rate",
        "what flows received that were still going when the run ended, over the whole run",
        "Mbit/s",
    ),
    ("cct avg small", "average completion time of small coflows", "ms"),
    ("cct p95 small", "95th percentile of completion times of small coflows", "ms"),
    ("cct p99 small", "99th percentile of completion times of small coflows", "ms"),
    ("cct avg large", "average completion time of large coflows", "ms"),
    ("cct over plan", "completion time of large coflows over what was planned for them, average", RATIO),
    ("timeouts", "retransmission timeouts", "per 1000 flows"),
    ("retransmitted", "segments sent again", "per 1000 segments"),
    ("dropped", "packets dropped", "per million packet-hops"),
];

/// What begins the name of a measure over the baseline's,
pub(super) const FACTOR: &str = "factor ";
/// and of a measure less the baseline's: both of the same seed, so that their intervals are those of pairs.
pub(super) const LESS: &str = "less ";

/// What a name says of a measure besides: how it is compared with the baseline's; and the measure.
pub(super) fn parts(name: &str) -> (&str, &str) {
    let name = name.strip_suffix(INTERVAL).unwrap_or(name);
    let compared = [FACTOR, LESS].into_iter().find_map(|how| Some((how, name.strip_prefix(how)?)));
    compared.unwrap_or(("", name))
}

/// Whether there is such a measure.
pub(crate) fn check(name: &str) -> Result<(), String> {
    let (_, stem) = parts(name);
    if MEASURES.iter().any(|(known, _, _)| *known == stem) {
        return Ok(());
    }
    Err(format!("`{name}` is no measure of packets"))
}

/// What a measure is, in words, and its unit; none if it is none of packets.
pub(crate) fn words(name: &str) -> Option<(String, &'static str)> {
    let (how, stem) = parts(name);
    let (_, what, unit) = MEASURES.iter().find(|(known, _, _)| *known == stem)?;
    Some(match how {
        FACTOR => (format!("{what}, over the baseline's"), RATIO),
        LESS => (format!("{what}, less the baseline's"), unit),
        _ => ((*what).to_owned(), unit),
    })
}
