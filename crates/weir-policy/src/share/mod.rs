//! How much each flow gets.

mod backfill;
pub mod madd;
mod max_min;
mod residual;

pub use backfill::Backfill;
pub use max_min::MaxMin;
pub use residual::Residual;
