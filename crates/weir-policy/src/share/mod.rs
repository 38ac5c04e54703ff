//! How much each flow gets.

mod backfill;
mod fill;
mod madd;
mod max_min;
mod progress;
mod residual;
mod tiers;

pub use backfill::Backfill;
pub use fill::{Fill, Weigh};
pub use madd::Madd;
pub use max_min::MaxMin;
pub use progress::EqualProgress;
pub use residual::Residual;
pub use tiers::Tiers;
