//! How much each flow gets.

mod backfill;
mod madd;
mod max_min;
mod residual;

pub use backfill::Backfill;
pub use madd::Madd;
pub use max_min::MaxMin;
pub use residual::Residual;
