//! Linear programs: the optimum that routes between sites are measured against.
//!
//! [`least_makespan`] needs the solver HiGHS, which is built from C++: that takes cmake, a C++ compiler and libclang.
//! Plain `cargo build` therefore leaves this crate out, and nothing but the feature `lp` of the command line uses it.
//! [`POLICIES`] has one policy, which decides routes by these programs.
#![forbid(unsafe_code)]

mod policy;
mod routing;

pub use policy::POLICIES;
pub use routing::{LpError, least_makespan};
