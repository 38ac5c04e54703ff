//! What runs give back: one schema of results for the simulator and for real bytes, as JSON, as tables, and as a page of
//! charts. Times are seconds, sizes bytes, rates bits per second where a name ends in `bps`.
#![forbid(unsafe_code)]

mod csv;
mod cut;
mod flows;
pub mod packets;
mod provenance;
pub mod report;
mod results;
mod simulation;
mod tables;
mod text;
pub mod thresholds;

pub use csv::cell;
pub use cut::Cut;
pub use flows::{FlowRecorder, FlowRow};
pub use provenance::{Provenance, VERSION};
pub use results::{CoflowRow, JobRow, JobSummary, Mode, Results, Run, Summary};
pub use simulation::{Recorded, Simulated, Spec, coflow_rows, simulate};
pub use tables::{BINS, bin_average, bins_table, summary_table};
pub use text::{fixed, number, printable, ratio, table, text};

/// Arithmetic mean; not a number of nothing, which tables show as `-` and JSON as null.
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { f64::NAN } else { weir_sim::mean(values) }
}

/// As [`weir_sim::percentile`]; not a number of nothing.
pub fn percentile(sorted: &[f64], share: f64) -> f64 {
    if sorted.is_empty() { f64::NAN } else { weir_sim::percentile(sorted, share) }
}

/// The middle one, or the mean of the two in the middle; not a number of nothing.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let (Some(low), Some(high)) =
        (values.get(values.len().saturating_sub(1) / 2), values.get(values.len() / 2))
    else {
        return f64::NAN;
    };
    (low + high) / 2.0
}

/// Seconds of processor time that this thread has used; the simulator runs on one alone.
pub fn thread_cpu_secs() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
