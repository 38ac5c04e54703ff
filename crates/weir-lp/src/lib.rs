//! Linear programs: the optimum that routes between sites are measured against.
//!
//! [`least_makespan`] asks a solver, microlp. [`POLICIES`] has one policy, which decides routes by these programs.
#![forbid(unsafe_code)]

mod policy;
mod routing;

pub use policy::POLICIES;
pub use routing::{LpError, least_makespan};
