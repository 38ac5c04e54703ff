//! The coordinator: what is registered, where blocks are, what moves, and the plan for it.

mod admission;
mod ancestry;
mod differences;
mod directory;
mod foreign;
mod holders;
mod planning;
mod readiness;
mod senders;
mod state;
mod status;

pub use admission::{DeadlineMargin, Decision};
pub use directory::{Answer, RegisterError, SealError};
pub use foreign::Wire;
pub use state::{Coordinator, CoordinatorConfig, HelloError, SessionId};

#[cfg(test)]
mod tests;
