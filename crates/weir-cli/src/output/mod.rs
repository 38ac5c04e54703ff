//! What commands give back: one schema of results for `weir sim` and `weir live`, tables, and files
//! written whole or not at all.

mod files;
mod results;
mod tables;

pub(crate) use files::OutputFile;
pub(crate) use results::{CoflowRow, Mode, Results, Run};
pub(crate) use tables::{BINS, bin_average, bins_table, number, ratio, summary_table, table, text};
pub(crate) use weir_sim::{mean, percentile};
