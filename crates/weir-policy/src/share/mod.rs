//! How much each flow gets.

mod backfill;
mod flow_by_flow;
mod madd;
mod max_min;
mod port_backfill;
mod residual;

pub use backfill::Backfill;
pub use flow_by_flow::{FlowByFlow, FlowOrder};
pub use madd::Madd;
pub use max_min::MaxMin;
pub use port_backfill::PortBackfill;
pub use residual::Residual;
