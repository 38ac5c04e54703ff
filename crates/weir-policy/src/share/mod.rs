//! How much each flow gets.

mod backfill;
mod by_route;
mod fill;
mod flow_by_flow;
mod flow_groups;
mod just_in_time;
mod madd;
mod max_min;
mod port_backfill;
mod progress;
mod residual;
mod tiers;

pub use backfill::Backfill;
pub use by_route::{ByRoute, Knowing};
pub use fill::{Fill, Weigh};
pub use flow_by_flow::{FlowByFlow, FlowOrder};
pub use flow_groups::{FlowGroups, GroupOrder};
pub use just_in_time::JustInTime;
pub use madd::Madd;
pub use max_min::MaxMin;
pub use port_backfill::PortBackfill;
pub use progress::EqualProgress;
pub use residual::Residual;
pub use tiers::Tiers;
