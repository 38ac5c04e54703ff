//! The live coflows as a policy sees them; one structure serves simulator and coordinator.
//!
//! [`CoflowTable`] holds what is left of every live flow, the sums per coflow and link that policies
//! decide by, and what changed since the last plan. It moves forward by a [`crate::Plan`] and may be
//! corrected by measurements. It decides nothing.
//!
//! Three lazy forms keep the cost of moving forward independent of the number of flows:
//!
//! * **Drains and grants.** Under MADD all flows of a coflow shrink by one factor, so what is left of a
//!   flow is `base * scale`, with one `scale` per coflow. What is left of a flow with a grant is a
//!   straight line from the moment its rate last changed, and so is their sum per link.
//! * **Levels.** Under max-min fairness all flows of one path class (see [`Class`]) move at the level of
//!   one link, so what is left is `target - service(class)`, with one running service per link.
//! * **Shares.** Where shares of links differ from coflow to coflow, the same holds within each: a flow moves at the
//!   level that its coflow has on one of the flow's links, with one running service per coflow and link.
//!
//! Which one holds follows from the form of the last plan.

mod advance;
mod class;
mod coflow;
mod corrected;
mod crossing;
mod expected;
mod line;
mod load;
mod moving;
mod paced;
mod place;
mod rates;
mod refit;
mod sharing;
mod table;

pub use class::{Class, ClassId};
pub use coflow::{Coflow, Flow, Row};
pub use place::{FlowRef, Slot};
pub use table::{Changes, CoflowTable};
