//! What was cut out of a workload before it was run.

use serde::Serialize;

/// A piece of a workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cut {
    /// Host h of the workload is h modulo this; flows inside a host are left out.
    pub hosts: u32,
    /// Index of the first coflow, by arrival.
    pub first: usize,
    /// How many were taken at most; null: all that follow.
    pub count: Option<usize>,
    /// What sizes were divided by.
    pub bytes_divisor: u64,
    /// What times were divided by.
    pub time_divisor: u64,
    /// Coflows were scaled down so that none takes longer alone; null: none was.
    pub isolation_cap_s: Option<f64>,
}

impl Cut {
    /// One sentence for people.
    pub fn sentence(&self) -> String {
        let Cut { hosts, first, count, bytes_divisor, time_divisor, isolation_cap_s } = self;
        let count =
            count.map_or_else(|| "all coflows".to_owned(), |count| format!("{count} coflows at most"));
        let cap = isolation_cap_s.map_or_else(String::new, |cap| format!(", none above {cap} s alone"));
        format!(
            "Cut from the workload: {count} from number {first} on, onto {hosts} hosts, sizes divided by {bytes_divisor}, \
             times by {time_divisor}{cap}."
        )
    }
}
