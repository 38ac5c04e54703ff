//! What commands give back: one schema of results for `weir sim` and `weir live`, tables, and files
//! written whole or not at all.

mod files;
mod provenance;
mod results;
mod tables;

pub(crate) use files::OutputFile;
pub(crate) use provenance::Provenance;
pub(crate) use results::{CoflowRow, Mode, Results, Run};
pub(crate) use tables::{BINS, bin_average, bins_table, fixed, number, ratio, summary_table, table, text};

/// Arithmetic mean; not a number of nothing, which tables show as `-` and JSON as null.
pub(crate) fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { f64::NAN } else { weir_sim::mean(values) }
}

/// As [`weir_sim::percentile`]; not a number of nothing.
pub(crate) fn percentile(sorted: &[f64], share: f64) -> f64 {
    if sorted.is_empty() { f64::NAN } else { weir_sim::percentile(sorted, share) }
}
